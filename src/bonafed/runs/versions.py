"""What the result of a run depends on besides its config: library versions, and the data."""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from numpy.typing import NDArray

from bonafed import __version__
from bonafed.errors import InvalidValue
from bonafed.mechanisms.protocol import Config
from bonafed.runs import folder as folders
from bonafed.runs import private
from bonafed.runs.config import differences, needs_secret, of_run, to_toml
from bonafed.runs.folder import JSONObject, Log

if TYPE_CHECKING:  # configs are compared without PyTorch
    from bonafed.learning.noise import Secret, Source

_SAME = 1e-9  # of a rate: libraries differ in last digits
_WHY = (
    "the noise of a private run is keyed by it, and repeating rounds with different noise would give away "
    "more than was promised; it is erased when a run ends"
)


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
    log: Log,
    folder: Path,
    config: Config,
    digest: str,
    resume: bool,
    start: NDArray[Any],
    model: str,
    rounds: int | None,
    files: Mapping[str, bytes],
    test: str = "",
    chosen: Mapping[str, Any] | None = None,
) -> tuple[NDArray[Any], Source | None]:
    """Set up a new run, or make sure that config, data and partition are those the run began with.

    `start` are the weights of the model at hand; returns the weights the run begins, or began, with, and
    the source of its noise. `model` is the module's `architecture`: a different module would get the same
    noise for different gradients. `files` are the other files of a new run, `test` the digest of the test
    samples; `chosen` is what [training] left open and the run trains with.
    """
    if resume:
        folders.require_unchanged(folder)
        require_same_config(config, of_run(folder))
    noise = source_of_noise(config, folder, resume=resume)
    published = published_digest(digest, noise)
    if not resume:
        content = versions(config.run.seed, rounds, published, model, test, chosen)
        log.begin(to_toml(config), content, start, files)
        return start, noise
    require_same_data(published, folder, keyed=_is_secret(noise))
    require_same_choice(chosen or {}, folder)
    weights = folders.read_start(folder)
    if (weights.dtype, weights.shape) != (start.dtype, start.shape):
        rule = f"must be as it was when the run began, with {weights.size:,} weights of {weights.dtype}"
        raise InvalidValue("model", rule, f"{start.size:,} of {start.dtype}")
    if folders.read_json(folder, folders.VERSIONS).get("model") != model:
        raise InvalidValue("model", "must be the module the run began with", "another one")
    return weights, noise
