"""What a run must find as it was: its files, its config, its data, and what else its result depends on.

`check` looks at every file of a run, and says what vouches for it. This finds damage and files of other
runs. Whether a run was honest is another question, which its contract, its coins and its statement answer
(`bonafed verify`).

A run ends with the manifest of all files and then summary.json. Killed between the two, everything else is
as the manifest says, a secret of noise is still there, and the end happens again when the run is resumed:
its summary is missing, not damaged. In any other case a file that the manifest lists and that is not there
is damaged.

`begin_or_resume` sets a run up, or makes sure that config, data and model are those that it began with.
Versions of libraries may have changed: they are noted (`changed_versions`).
"""

from __future__ import annotations

import math
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeGuard

from numpy.typing import NDArray

from bonafed import __version__
from bonafed.errors import BonafedError, InvalidValue, UnreadableFile
from bonafed.files import is_draft
from bonafed.mechanisms.protocol import Config
from bonafed.presentation.documents import Column, Document, Table, counted
from bonafed.runs import coins, private
from bonafed.runs import folder as folders
from bonafed.runs.config import differences, needs_secret, of_run, to_toml
from bonafed.runs.folder import JSONObject
from bonafed.runs.log import RunLog

if TYPE_CHECKING:  # configs are compared without PyTorch
    from bonafed.learning.noise import Secret, Source
    from bonafed.runs.prepare import Setting

_AGAIN = "the end happens again when resumed"
_SAME = 1e-9  # of a rate: libraries differ in last digits
_WHY = (
    "the noise of a private run is keyed by it, and repeating rounds with different noise would give away "
    "more than was promised; it is erased when a run ends"
)
Check = Callable[[Path, str], str]  # of a folder and a name: what vouches for the file, or an error


@dataclass(frozen=True, slots=True)
class FileState:
    """What is known about a file in the folder of a run."""

    file: str  # its name
    verdict: Literal["verified", "DAMAGED", "missing", "not vouched for"]
    text: str  # what says so


def check(folder: Path) -> list[FileState]:
    """The state of every file of a run, and of every other file in its folder."""
    lost = folders.lost_config(folder)
    if not (folders.holds_run(folder) or folders.is_finished(folder) or lost):
        raise InvalidValue("folder", f"must hold a run ({folders.CONFIG})", folder)
    try:
        _manifest(folder, folders.SUMS)
        manifest = folders.read_manifest(folder)
    except UnreadableFile:
        manifest = folders.Manifest({}, "")  # nothing vouches for the files
    finished = folders.is_finished(folder)
    checks: dict[str, Check] = {folders.SUMS: _manifest}
    if not finished and (folder / folders.CHECKPOINT).exists():
        checks |= {folders.CHECKPOINT: _checkpoint, folders.METRICS: _lines}
    checks |= {name: _as_listed for name in manifest.digests if finished or name != folders.SUMMARY}
    if lost:
        checks[folders.CONFIG] = _as_listed  # even where nothing is left that lists it
    others = sorted(path.name for path in folder.iterdir() if path.name not in checks)
    states = [_state(folder, name, vouch) for name, vouch in checks.items()]
    return [
        *states,
        *([_summary(folder, states)] if manifest.has_end and not finished else []),
        *(FileState(name, "not vouched for", _other(folder / name)) for name in others),
    ]


def check_document(runs: Mapping[str, Sequence[FileState]]) -> Document:
    """The files of several runs by name; it does not hold if one of them is damaged."""
    columns = (Column("file", left=True), Column("", left=True), Column("why", left=True))
    tables = tuple(
        Table(f"Files of {name}", columns, tuple((s.file, s.verdict, s.text) for s in states))
        for name, states in runs.items()
    )
    damaged = [
        f"{name}/{s.file}" for name, states in runs.items() for s in states if s.verdict == "DAMAGED"
    ]
    missing = [
        f"{name}/{s.file}" for name, states in runs.items() for s in states if s.verdict == "missing"
    ]
    verdict = f"damaged: {', '.join(damaged)}" if damaged else "No file is damaged."
    if missing and not damaged:
        verdict = f"No file is damaged. Missing, {_AGAIN}: {', '.join(missing)}"
    data = {
        "holds": not damaged,
        "damaged": damaged,
        "missing": missing,
        "runs": {name: [asdict(state) for state in states] for name, states in runs.items()},
    }
    return Document((*tables, verdict), data, holds=not damaged)


def _state(folder: Path, name: str, vouch: Check) -> FileState:
    try:
        return FileState(name, "verified", vouch(folder, name))
    except UnreadableFile as error:
        if Path(error.path) == folder / name:
            return FileState(name, "DAMAGED", error.reason)
        return FileState(name, "not vouched for", str(error))
    except BonafedError as error:  # of what it holds
        return FileState(name, "DAMAGED", str(error))


def _manifest(folder: Path, name: str) -> str:
    manifest = folders.read_manifest(folder)
    folders.require_own_manifest(folder, manifest)
    if not folders.is_finished(folder):
        try:
            folders.require_one_run(folder)
        except UnreadableFile as error:
            if Path(error.path) == folder / name:
                raise
    return f"vouches for itself and {counted(len(manifest.digests), 'file')}"


def _summary(folder: Path, states: Sequence[FileState]) -> FileState:
    """Of the summary that is not there: it may not have been written yet, or it was lost."""
    if any(state.verdict != "verified" for state in states):
        return FileState(folders.SUMMARY, "DAMAGED", "is missing, and the run is not as it was at its end")
    if needs_secret(of_run(folder)) and not private.holds_secret(folder, private.NOISE):
        return FileState(folders.SUMMARY, "DAMAGED", "is missing, and so is the secret to end again with")
    return FileState(folders.SUMMARY, "missing", _AGAIN)


def _as_listed(folder: Path, name: str) -> str:
    if name == folders.COINS:
        coins.require_unchanged(folder)
    else:
        folders.require_listed(folder, name, folders.read_bytes(folder / name))
    return f"as it was when the run {'ended' if folders.read_manifest(folder).has_end else 'began'}"


def _checkpoint(folder: Path, name: str) -> str:
    folders.require_one_run(folder)
    return f"vouches for itself and {counted(folders.rounds_done(folder), 'round')}"


def _lines(folder: Path, name: str) -> str:
    done = len(folders.read_rounds(folder))
    more = (folder / name).read_bytes().count(b"\n") - done
    text = f"as it was at the last checkpoint, {counted(done, 'round')}"
    again = "happens again" if more == 1 else "happen again"
    return f"{text}; {counted(more, 'round')} after it {again}" if more else text


def _other(path: Path) -> str:
    if is_draft(path):
        return "left by a process that was killed; it goes when the run is resumed"
    if path.name == folders.METRICS:
        return "rounds before the first checkpoint, which happen again"
    if path.name == folders.MODEL:
        return "of an end that happens again"
    return "no part of the run, or nothing that vouches for it is left"


def versions(
    seed: int,
    rounds: int | None,
    digest: str,
    model: str,
    test: str = "",
    chosen: Mapping[str, Any] | None = None,
) -> JSONObject:
    """The content of versions.json; `digest` is that of data and partition, `model` that of the module,
    `test` that of the test samples, `chosen` what [training] left open."""
    return {
        **surroundings(),
        "seed": seed,
        "rounds": rounds,  # of all phases; null: it ends by itself
        "data": digest,
        "test": test,
        "model": model,
        **({"chosen": dict(chosen)} if chosen else {}),
    }


def surroundings() -> dict[str, str]:
    """All that the last digits of a run depend on besides its config: software, system and processor."""
    return {
        "bonafed": __version__,
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in ("numpy", "scipy", "torch")},
        "platform": f"{platform.system()} {platform.machine()}",
        "processor": processor(),
    }


def processor() -> str:
    """What PyTorch can use of this processor: its instructions decide how sums are rounded."""
    import torch

    return str(torch.backends.cpu.get_cpu_capability())


def changed_versions(folder: Path) -> dict[str, tuple[str, str]]:
    """What has changed around a run since it began: it may then end with other digits."""
    then = folders.read_json(folder, folders.VERSIONS)
    return {
        name: (str(then.get(name, "an unknown one")), now)
        for name, now in surroundings().items()
        if then.get(name) != now
    }


def require_same_config(now: Config, before: Config) -> None:
    """Require the same config, except for what changes no result: otherwise no promise of the run holds."""
    for key, value, then in differences(now, before):
        raise InvalidValue(key, f"must be as it was when the run began, {then!r}", repr(value))


def ended(config: Config, folder: Path) -> bool:
    """Whether a run that kept a secret is finished: nothing in it can be computed again."""
    if not (needs_secret(config) and folders.is_finished(folder)):
        return False
    require_same_config(config, of_run(folder))
    private.erase_secrets(folder)  # in case the end was cut short before that
    return True


def source_of_noise(config: Config, folder: Path, *, resume: bool) -> Source | None:
    """Where the noise of a run comes from; None if it is not private.

    A new run gets its own secret, on disk before the rest of the run. A resumed run must find it there.
    """
    if config.noise is None:
        return None
    from bonafed.learning.noise import Reproducible, Secret

    if config.noise == "reproducible":
        return Reproducible(config.run.seed)
    if resume:
        return Secret(private.read_secret(folder, private.NOISE, _WHY))
    private.erase_secret(folder, private.NOISE)  # left by a set-up that was cut short: no run uses it
    return Secret(private.create_secret(folder, private.NOISE))


def published_digest(digest: str, noise: Source | None) -> str:
    """The digest in versions.json. A plain one would confirm a guess at a record; that of a private run is
    keyed, and means nothing to those who do not hold the secret."""
    return noise.derived(b"data", digest.encode()).hex() if _is_secret(noise) else digest


def _is_secret(noise: Source | None) -> TypeGuard[Secret]:
    from bonafed.learning.noise import Secret

    return isinstance(noise, Secret)


def require_same_data(digest: str, folder: Path, *, keyed: bool = False) -> None:
    """Require the same samples, labels and owners by their published digest, wherever the files are now."""
    before = folders.read_json(folder, folders.VERSIONS).get("data")
    if before != digest:
        rule = f"must be the data and the partition the run began with ({str(before)[:12]}...)"
        if keyed:
            rule += ", and noise.secret the run's own"
        raise InvalidValue("data", rule, f"{digest[:12]}...")


def require_same_choice(chosen: Mapping[str, Any], folder: Path) -> None:
    """Require what [training] left open to come to what it was: noise is calibrated for it."""
    before = folders.read_json(folder, folders.VERSIONS).get("chosen", {})
    for name in dict.fromkeys([*before, *chosen]):
        then, now = before.get(name), chosen.get(name)
        if then is None or now is None or not math.isclose(then, now, rel_tol=_SAME):
            raise InvalidValue(f"training.{name}", f"must be as it was when the run began, {then!r}", now)


def begin_or_resume(
    log: RunLog, folder: Path, setting: Setting, files: Mapping[str, bytes], *, resume: bool
) -> tuple[NDArray[Any], Source | None]:
    """Set up a new run, or make sure that config, data and partition are those the run began with.

    Returns the weights that the run begins, or began, with, and the source of its noise. `files` are the
    other files of a new run. The module must have the same `architecture`: another one would get the same
    noise for different gradients.
    """
    from bonafed.learning.engine.programs import architecture

    config, start, model = setting.config, setting.start, architecture(setting.module)
    if resume:
        folders.require_unchanged(folder)
        require_same_config(config, of_run(folder))
    noise = source_of_noise(config, folder, resume=resume)
    published = published_digest(setting.digest, noise)
    if not resume:
        content = versions(
            config.run.seed, setting.mechanism.rounds, published, model, setting.test_digest, setting.chosen
        )
        log.begin(to_toml(config), content, start, files)
        return start, noise
    require_same_data(published, folder, keyed=_is_secret(noise))
    require_same_choice(setting.chosen, folder)
    weights = folders.read_start(folder)
    if (weights.dtype, weights.shape) != (start.dtype, start.shape):
        rule = f"must be as it was when the run began, with {weights.size:,} weights of {weights.dtype}"
        raise InvalidValue("model", rule, f"{start.size:,} of {start.dtype}")
    if folders.read_json(folder, folders.VERSIONS).get("model") != model:
        raise InvalidValue("model", "must be the module the run began with", "another one")
    return weights, noise
