"""The folder of a run: what is in it, what vouches for it, and why it survives being killed at any moment.

    config.toml      the resolved config; written last in the set-up, and makes the folder a run
    versions.json    versions of bonafed, Python and the libraries; the seed; a digest of data and partition
    start.npy        the initial weights; a user's module may have different ones when the run is resumed
    contract.json    the contract published before anybody reported, if there is one
    agreement.json   the clients by name, what each reported, and the terms that follow
    coins.json       for verifiable coins: the commitments and nonces they come from (`runs.coins`)
    metrics.jsonl    one line per round, appended when the round ends
    checkpoint.npz   the state, the round it belongs to, and the length of metrics.jsonl at that round
    model.pt         the final weights, as a PyTorch state dict
    SHA256SUMS       of every other file, when the run ended
    summary.json     written last of all; marks the run as finished

What must not be shared is kept beside it, in `<folder>.private` (`bonafed.runs.private`): the secrets of
noise and coins until the run ends, and what only a simulation knows.

**Killed.** Files other than metrics.jsonl are replaced as a whole (`bonafed.files`). A checkpoint is
written after the lines it refers to are on disk. Resuming takes its weights and cuts metrics.jsonl to its
length: rounds after it are forgotten in both and happen again in the same way, since all randomness comes
from (seed, round, client) and, for noise, from the run's secret.

**Damaged.** No file is read that nothing vouches for (`content`, `read_rounds`, `read_checkpoint`):

    versions.json    vouches for itself and for the files that the run began with
    checkpoint.npz   for itself, for versions.json and for the lines of metrics.jsonl so far; those after
                     them are not told, since they happen again
    SHA256SUMS       for itself and for all files of a run that has ended

A file that is not as it was written is refused by name, and so is the folder of a bonafed that wrote no
digests. What is hashed stands in the same folder, so a digest tells nothing of a private run that the
folder does not. All this is against damage and mix-ups, not against somebody who rewrites the whole folder
consistently (`bonafed.runs.seals`).
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bonafed.errors import InvalidValue, MissingReport, UnreadableFile
from bonafed.files import APPENDING, is_draft, named, remove_drafts, sync_folder, write_all, write_together
from bonafed.learning.data.archives import NPZ_ERRORS
from bonafed.runs import private, seals
from bonafed.runs.seals import sha256

JSONObject = dict[str, Any]
to_json = seals.to_json
CONFIG, VERSIONS, METRICS = "config.toml", "versions.json", "metrics.jsonl"
START = "start.npy"
CONTRACT, AGREEMENT, COINS = "contract.json", "agreement.json", "coins.json"
CHECKPOINT, MODEL, SUMMARY = "checkpoint.npz", "model.pt", "summary.json"
SUMS = "SHA256SUMS"
_SET_UP = (START, CONTRACT, AGREEMENT, COINS)  # written between versions.json and config.toml
_FILES = "files"  # in versions.json: the SHA-256 of each file that a run is set up with
_STATE = "state_"  # prefix of its arrays in the file
_READ: ContextVar[dict[Path, bytes] | None] = ContextVar("files that were read", default=None)


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """One line of metrics.jsonl."""

    round: int  # 1, 2, ...
    train_loss: float | None  # mean over the participants' local steps; None if nobody took part, and
    # where privacy was promised: no noise hides anybody in it
    test_loss: float | None  # None in rounds without evaluation, or without test data
    test_accuracy: float | None  # likewise; None for regression
    participants: list[str]  # names, repeated if drawn more than once
    failed: list[str]  # those of them whose answer could not be used
    steps: int  # gradient steps, all participants together; as asked for where privacy was promised
    learning_rate: float | None  # of the first local step, where it changes from step to step
    spend: float | None  # money paid in this round; None without a contract
    epsilon: float | None  # largest of any client so far; None if not private, and with poisson batches
    # where the model was not evaluated: their accounting takes longer than a round
    # of this round: client, noise multiplier, how many of them a record can be in and, where these say
    # more, how many there were, and at which rate a record was in each by a secret coin
    releases: Sequence[tuple[str | float | None, ...]]
    seconds: float
    phase: str = ""  # "": the mechanism itself; otherwise what is trained besides it, such as a baseline
    doing: str = ""  # how far it has come, in words, where the number of rounds is not known beforehand
    # of every client's model, in their order, where each has one of its own; None like test_accuracy
    accuracies: Sequence[float] | None = None


OnRound = Callable[[RoundRecord], None]
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """Where a run can be resumed from."""

    round: int
    metrics_length: int  # bytes of metrics.jsonl that belong to it
    metrics_digest: str  # SHA-256 of these
    set_up: str  # SHA-256 of versions.json
    state: Mapping[str, NDArray[Any]]  # of the mechanism
    digest: str  # SHA-256 of the file it was read from


def holds_run(folder: Path) -> bool:
    """Whether a run was set up in the folder."""
    return (folder / CONFIG).is_file()


def lost_config(folder: Path) -> bool:
    """Whether a run was set up in the folder and its config is gone; a set-up cut short is no run."""
    if holds_run(folder):
        return False
    ran = any((folder / name).is_file() for name in (CHECKPOINT, SUMS))
    lines = folder / METRICS
    return ran or ((folder / VERSIONS).is_file() and lines.is_file() and lines.stat().st_size > 0)


def is_finished(folder: Path) -> bool:
    """Whether the run in the folder is finished."""
    return (folder / SUMMARY).is_file()


def require_free(folder: Path) -> None:
    """Require that a new run can be set up there; leftovers of an interrupted set-up are not in the way."""
    if holds_run(folder):
        rule = "must hold no run yet (--resume, or resume=True in Python, continues it)"
        raise InvalidValue("run.folder", rule, folder)
    if folder.exists() and not folder.is_dir():
        raise InvalidValue("run.folder", "must be a folder", folder)
    set_up = (folder / VERSIONS).is_file()  # written before the rest
    for path in folder.iterdir() if folder.exists() else ():
        empty_log = path.name == METRICS and path.lstat().st_size == 0
        left = path.name == VERSIONS or (path.name in _SET_UP and set_up) or is_draft(path)
        if not (empty_log or left):
            raise InvalidValue("run.folder", "must be new or empty", f"{folder} with {path.name}")


class Log:
    """A run in training; only one process at a time can have it open."""

    def __init__(self, folder: Path, *, new: bool) -> None:
        self._made = new and not folder.exists()
        if new:
            require_free(folder)
            if self._made:
                private.require_no_secret(folder)
            folder.mkdir(parents=True, exist_ok=True)
        elif not holds_run(folder):
            raise InvalidValue("run.folder", f"must be a folder that holds a run ({CONFIG})", folder)
        self._folder, self._new = folder, new
        self._lines, self._length = hashlib.sha256(), 0  # of metrics.jsonl so far
        self._versions = b""  # the content of versions.json
        self._checkpoint: str | None = None  # the digest of checkpoint.npz
        try:
            with named(folder / METRICS):
                self._file = os.open(folder / METRICS, APPENDING, 0o666)
        except BaseException:
            if self._made:
                folder.rmdir()
            raise
        try:
            self._lock()
            if new:
                require_free(folder)  # once more, now that nobody else can be setting one up
            remove_drafts(folder)
        except BaseException:
            os.close(self._file)
            raise

    def begin(
        self,
        config_text: str,
        versions: Mapping[str, Any],
        start: NDArray[Any],
        files: Mapping[str, bytes],
    ) -> None:
        """Set up a new run that begins with these weights, contract, agreement and coins.

        versions.json holds the SHA-256 of each, and every checkpoint that of versions.json: a run never
        goes on under anything else than it began with.
        """
        buffer = io.BytesIO()
        np.save(buffer, start, allow_pickle=False)
        contents = {START: buffer.getvalue(), **files, CONFIG: config_text.encode()}
        digests = {name: sha256(content) for name, content in contents.items()}
        write_together({self._folder / VERSIONS: seals.sealed_json({**versions, _FILES: digests})})
        for name, content in contents.items():
            write_together({self._folder / name: content})

    def cut(self, last: Checkpoint | None) -> None:
        """Keep the lines of metrics.jsonl that belong to a checkpoint, which vouches for them."""
        self._versions = content(self._folder, VERSIONS)
        lines = b"" if last is None else _lines_of(self._folder, last)
        if os.fstat(self._file).st_size > len(lines):
            for name in (SUMMARY, SUMS):  # the run has not ended, then
                (self._folder / name).unlink(missing_ok=True)
            os.ftruncate(self._file, len(lines))
        self._lines, self._length = hashlib.sha256(lines), len(lines)
        self._checkpoint = None if last is None else last.digest

    def start_over(self) -> None:
        """Forget all rounds; killed from here on, the run begins again."""
        (self._folder / CHECKPOINT).unlink(missing_ok=True)
        sync_folder(self._folder)
        self.cut(None)

    def _lock(self) -> None:
        try:
            import fcntl  # not on every system
        except ImportError:
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            rule = "must not be in use by another process"
            raise InvalidValue("run.folder", rule, self._folder) from error

    def append(self, record: RoundRecord) -> None:
        """Append the record of a round, the whole line or nothing of it."""
        line = (json.dumps(asdict(record), allow_nan=False) + "\n").encode()
        with named(self._folder / METRICS):
            try:
                write_all(self._file, line)
            except BaseException:
                os.ftruncate(self._file, self._length)
                raise
        self._lines.update(line)
        self._length += len(line)

    def checkpoint(self, round_number: int, state: Mapping[str, NDArray[Any]]) -> None:
        """Force the lines so far to disk, then write the state that belongs to them."""
        with named(self._folder / METRICS):
            os.fsync(self._file)
        content, digest = seals.sealed_archive(
            {
                "round": np.array(round_number),
                "metrics_length": np.array(self._length),
                "metrics_digest": np.array(self._lines.hexdigest()),
                "set_up": np.array(sha256(self._versions)),
                **{_STATE + name: values for name, values in state.items()},
            }
        )
        write_together({self._folder / CHECKPOINT: content})
        self._checkpoint = digest

    def finish(self, files: Mapping[str, bytes], summary: Mapping[str, Any]) -> None:
        """Write the final model and what else a run ends with; then erase its secrets."""
        with named(self._folder / METRICS):
            os.fsync(self._file)
        digests = {
            VERSIONS: sha256(self._versions),
            **seals.open_json(self._folder / VERSIONS, self._versions)[_FILES],
            METRICS: self._lines.hexdigest(),
            **({} if self._checkpoint is None else {CHECKPOINT: self._checkpoint}),
        }
        end(self._folder, files, summary, digests)
        private.erase_secrets(self._folder)  # coins.json holds that of the coins now

    def __enter__(self) -> Log:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        failed = isinstance(error, Exception) or (error is not None and not holds_run(self._folder))
        if isinstance(error, MissingReport):  # who did answer gave something away: that is not thrown away
            failed = not holds_run(self._folder)
        if self._new and failed and not (self._folder / CHECKPOINT).exists():
            self._undo()
        os.close(self._file)

    def _undo(self) -> None:
        """Remove a run that failed before anything was saved: it could only fail again."""
        if self._length:
            return
        for name in (CONFIG, *_SET_UP, VERSIONS, METRICS):  # the first one marks the folder as a run
            (self._folder / name).unlink(missing_ok=True)
        private.erase_secrets(self._folder)
        if self._made and not any(self._folder.iterdir()):
            self._folder.rmdir()


def end(
    folder: Path,
    files: Mapping[str, bytes],
    summary: Mapping[str, Any],
    digests: Mapping[str, str] | None = None,
) -> None:
    """Write what a run ends with: files, the digests of all (`digests` of those before) and its summary."""
    (folder / SUMMARY).unlink(missing_ok=True)  # of an end that happens again
    for name, data in files.items():
        write_together({folder / name: data})
    whole = {**(digests or {}), **{name: sha256(data) for name, data in files.items()}}
    last = to_json(summary)
    write_together({folder / SUMS: seals.sums({**whole, SUMMARY: sha256(last)})})
    write_together({folder / SUMMARY: last})


def require_unchanged(folder: Path) -> None:
    """All that a run goes on from is as it was written; `runs.coins` looks at coins.json itself."""
    read_rounds(folder)  # and the checkpoint
    for name in began_with(folder):
        if name != COINS:
            content(folder, name)
    read_checkpoint(folder)
    for name in read_sums(folder) if is_finished(folder) else ():
        if (folder / name).exists():
            content(folder, name)


def content(folder: Path, name: str) -> bytes:
    """The content of a file of a run, for which something vouches."""
    data = read_bytes(folder / name)
    if is_finished(folder):
        known = read_sums(folder)
        if known.get(name) != sha256(data):
            require_own_sums(folder, known)
            listed = "was changed since the run ended" if name in known else f"must be in {SUMS} of its run"
            raise UnreadableFile(folder / name, listed)
    elif name == VERSIONS:  # which vouches for itself
        seals.open_json(folder / name, data)
    else:
        require_one_run(folder)
        require_began_with(folder, name, data)
    return data


def require_began_with(folder: Path, name: str, data: bytes) -> None:
    """A run that has not ended began with this content of a file."""
    if began_with(folder).get(name) != sha256(data):
        raise UnreadableFile(folder / name, "was changed since the run began, which cannot go on under it")


def read_sums(folder: Path) -> dict[str, str]:
    """The SHA-256 of every file of a run that has ended."""
    path = folder / SUMS
    if not path.is_file():
        raise UnreadableFile(path, "is missing: nothing vouches for what the run ended with")
    return seals.open_sums(path, read_bytes(path))


def began_with(folder: Path) -> dict[str, str]:
    """The SHA-256 of every file that a run began with, as versions.json says."""
    digests: dict[str, str] = read_json(folder, VERSIONS)[_FILES]
    return digests


def require_one_run(folder: Path) -> Checkpoint | None:
    """The checkpoint of a run that has not ended; it belongs to its versions.json."""
    last = read_checkpoint(folder)
    if last is None or last.set_up == sha256(content(folder, VERSIONS)):
        return last
    fits = all(
        (folder / name).is_file() and sha256(read_bytes(folder / name)) == digest
        for name, digest in began_with(folder).items()
        if name != COINS  # which may have been opened
    )
    raise UnreadableFile(folder / (CHECKPOINT if fits else VERSIONS), "is of another run")


def require_own_sums(folder: Path, known: Mapping[str, str]) -> None:
    """SHA256SUMS is that of this run: it is not where both metrics and summary differ from it."""
    both = [name for name in (METRICS, SUMMARY) if (folder / name).is_file()]
    if len(both) == 2 and all(known.get(name) != sha256(read_bytes(folder / name)) for name in both):
        raise UnreadableFile(folder / SUMS, "is of another run, or most of this one was changed")


@contextmanager
def reading_once() -> Iterator[None]:
    """Inside, or in a function decorated with it, a file of a run that has ended is read a single time.

    What was verified is then what is shown, whatever happens to the file meanwhile. Files of a run that has
    not ended are read anew each time.
    """
    token = None if _READ.get() is not None else _READ.set({})
    try:
        yield
    finally:
        if token is not None:
            _READ.reset(token)


def read_bytes(path: Path) -> bytes:
    """The content of a file, for which nothing vouches yet."""
    known = _READ.get()
    if known is None or not is_finished(path.parent):
        return _from_disk(path)
    place = path.absolute()
    if place not in known:
        known[place] = _from_disk(path)
    return known[place]


def _from_disk(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise UnreadableFile(path, "is missing") from error
    except OSError as error:
        raise UnreadableFile(path, error.strerror or str(error)) from error


def read_checkpoint(folder: Path) -> Checkpoint | None:
    """The last checkpoint; None if the run was stopped before the first one."""
    path = folder / CHECKPOINT
    if not path.is_file():
        return None
    data = read_bytes(path)
    try:
        arrays = seals.open_archive(data)
        length, lines = int(arrays["metrics_length"]), str(arrays["metrics_digest"])
        state = {name.removeprefix(_STATE): arrays[name] for name in arrays if name.startswith(_STATE)}
        return Checkpoint(int(arrays["round"]), length, lines, str(arrays["set_up"]), state, sha256(data))
    except (*NPZ_ERRORS, KeyError) as error:
        damaged = "the checkpoint is damaged: delete this file, and the run starts over when resumed"
        raise UnreadableFile(path, damaged) from error


def read_start(folder: Path) -> NDArray[Any]:
    """(P,) the weights the run began with."""
    weights: NDArray[Any] = np.load(io.BytesIO(content(folder, START)), allow_pickle=False)
    return weights


def rounds_done(folder: Path) -> int:
    """Rounds up to the last checkpoint; 0 if there is none."""
    last = read_checkpoint(folder)
    return 0 if last is None else last.round


def read_rounds(folder: Path) -> list[JSONObject]:
    """The lines of metrics.jsonl, all if the run has ended, otherwise up to its last checkpoint."""
    if is_finished(folder):
        data = content(folder, METRICS)
    else:
        last = require_one_run(folder)
        data = b"" if last is None else _lines_of(folder, last)
    return [json.loads(line) for line in data.splitlines()]


def _lines_of(folder: Path, last: Checkpoint) -> bytes:
    """The content of metrics.jsonl that belongs to a checkpoint."""
    path = folder / METRICS
    data = read_bytes(path)
    if len(data) < last.metrics_length:
        rule = f"must hold the {last.metrics_length} bytes that its checkpoint refers to"
        raise UnreadableFile(path, f"{rule}, got {len(data)}")
    if sha256(data[: last.metrics_length]) != last.metrics_digest:
        raise UnreadableFile(path, "was changed since the last checkpoint")
    return data[: last.metrics_length]


def read_config(folder: Path) -> JSONObject:
    """The tables of config.toml."""
    path = folder / CONFIG
    if not path.is_file():
        raise InvalidValue("folder", f"must hold a run ({CONFIG})", folder)
    return tomllib.loads(content(folder, CONFIG).decode())


def read_json(folder: Path, name: str) -> JSONObject:
    """The object in a JSON file of the folder."""
    data = content(folder, name)
    return (seals.open_json if name == VERSIONS else seals.parsed_json)(folder / name, data)
