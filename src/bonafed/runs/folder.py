"""The folder of a run: what is in it, and why it survives being killed at any moment.

    config.toml      the resolved config; written last in the set-up, and makes the folder a run
    versions.json    versions of bonafed, Python and the libraries; the seed; a digest of data and partition
    start.npy        the initial weights; a user's module may have different ones when the run is resumed
    contract.json    the contract published before anybody reported, if there is one
    agreement.json   the clients by name, what each reported, and the terms that follow
    coins.json       for verifiable coins: the commitments and nonces they come from (`runs.coins`)
    metrics.jsonl    one line per round, appended when the round ends
    checkpoint.npz   the state, the round it belongs to, and the length of metrics.jsonl at that round
    model.pt         the final weights, as a PyTorch state dict
    summary.json     written last of all; marks the run as finished

What must not be shared is kept beside it, in `<folder>.private` (`bonafed.runs.private`): the secrets of
noise and coins until the run ends, and what only a simulation knows.

Files other than metrics.jsonl are replaced as a whole: written beside their place, forced to disk, renamed.
A checkpoint is written after the lines it refers to are on disk. Resuming takes its weights and cuts
metrics.jsonl to its length: rounds after it are forgotten in both and happen again in the same way, since
all randomness comes from (seed, round, client) and, for noise, from the run's secret.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from bonafed.errors import InvalidValue, UnreadableFile
from bonafed.learning.formats import NPZ_ERRORS
from bonafed.runs import private

JSONObject = dict[str, Any]
CONFIG, VERSIONS, METRICS = "config.toml", "versions.json", "metrics.jsonl"
START = "start.npy"
CONTRACT, AGREEMENT, COINS = "contract.json", "agreement.json", "coins.json"
CHECKPOINT, MODEL, SUMMARY = "checkpoint.npz", "model.pt", "summary.json"
_SET_UP = (START, CONTRACT, AGREEMENT, COINS)  # written between versions.json and config.toml
_FILES = "files"  # in versions.json: the SHA-256 of each file that a run is set up with
_STATE = "state_"  # prefix of its arrays in the file
_LEFTOVERS = (
    VERSIONS,
    VERSIONS + ".partial",
    *_SET_UP,
    *(n + ".partial" for n in _SET_UP),
    CONFIG + ".partial",
)


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
    steps: int  # gradient steps, all participants together
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


OnRound = Callable[[RoundRecord], None]
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """Where a run can be resumed from."""

    round: int
    metrics_length: int  # bytes of metrics.jsonl that belong to it
    metrics_digest: str  # SHA-256 of what these lines say
    set_up: str  # SHA-256 of the digests in versions.json
    state: Mapping[str, NDArray[Any]]  # of the mechanism


def holds_run(folder: Path) -> bool:
    """Whether a run was set up in the folder."""
    return (folder / CONFIG).is_file()


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
        empty_log = path.name == METRICS and path.stat().st_size == 0
        if not empty_log and (path.name not in _LEFTOVERS or (path.name in _SET_UP and not set_up)):
            raise InvalidValue("run.folder", "must be new or empty", f"{folder} with {path.name}")


def write(path: Path, data: bytes) -> None:
    """Replace a file as a whole and force it to disk."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    with suppress(OSError):  # not every system lets a folder be opened
        handle = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def to_json(value: Mapping[str, Any]) -> bytes:
    """The content of a JSON file in the folder of a run."""
    return (json.dumps(value, indent=1, allow_nan=False) + "\n").encode()


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
        self._lines = hashlib.sha256()  # of metrics.jsonl so far
        self._file: IO[bytes] = (folder / METRICS).open("ab")
        try:
            self._lock()
            if new:
                require_free(folder)  # once more, now that nobody else can be setting one up
        except BaseException:
            self._file.close()
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
        contents = {START: buffer.getvalue(), **files}
        digests = {name: sha256(content) for name, content in contents.items()}
        digests[CONFIG] = _config_digest(config_text)
        write(self._folder / VERSIONS, to_json({**versions, _FILES: digests}))
        for name, content in contents.items():
            write(self._folder / name, content)
        write(self._folder / CONFIG, config_text.encode())

    def cut(self, length: int) -> None:
        """Keep the first `length` bytes of metrics.jsonl."""
        size = self._file.seek(0, os.SEEK_END)
        if size < length:
            rule = f"must hold the {length} bytes that its checkpoint refers to"
            raise InvalidValue(str(self._folder / METRICS), rule, size)
        self._file.truncate(length)
        self._lines = _digest_of(read_rounds(self._folder))
        self._file.seek(0, os.SEEK_END)

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
        """Append the record of a round."""
        line = asdict(record)
        self._file.write((json.dumps(line, allow_nan=False) + "\n").encode())
        self._file.flush()
        self._lines.update(_what_counts(line))

    def checkpoint(self, round_number: int, state: Mapping[str, NDArray[Any]]) -> None:
        """Force the lines so far to disk, then write the state that belongs to them."""
        os.fsync(self._file.fileno())
        buffer = io.BytesIO()
        np.savez(
            buffer,
            allow_pickle=False,
            round=np.array(round_number),
            metrics_length=np.array(self._file.tell()),
            metrics_digest=np.array(self._lines.hexdigest()),
            set_up=np.array(_set_up_digest(read_json(self._folder, VERSIONS))),
            **{_STATE + name: values for name, values in state.items()},
        )
        write(self._folder / CHECKPOINT, buffer.getvalue())

    def finish(self, model: bytes, summary: Mapping[str, Any]) -> None:
        """Write the final model and, last of all, the summary; then erase the secret of the noise."""
        write(self._folder / MODEL, model)
        write(self._folder / SUMMARY, to_json(summary))
        private.erase_secret(self._folder, private.NOISE)

    def __enter__(self) -> Log:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._new and isinstance(error, Exception) and not (self._folder / CHECKPOINT).exists():
            self._undo()
        self._file.close()

    def _undo(self) -> None:
        """Remove a run that failed before anything was saved: it could only fail again."""
        if self._file.tell():
            return
        for name in (CONFIG, *_SET_UP, VERSIONS, METRICS):  # the first one marks the folder as a run
            (self._folder / name).unlink(missing_ok=True)
        private.erase_secret(self._folder, private.NOISE)
        private.erase_secret(self._folder, private.COINS)
        if self._made and not any(self._folder.iterdir()):
            self._folder.rmdir()


def sha256(content: bytes) -> str:
    """In hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def require_unchanged(folder: Path, coins: bytes | None = None) -> None:
    """The files that a run was set up with, and the lines before its checkpoint, are as they were written.

    `coins` stands for coins.json as it was before the coins were opened, where there are any.
    """
    digests = read_json(folder, VERSIONS).get(_FILES)
    if not isinstance(digests, dict):
        raise UnreadableFile(folder / VERSIONS, "must hold the SHA-256 of the files the run began with")
    for name, digest in digests.items():
        path = folder / name
        if not path.is_file():
            raise UnreadableFile(path, "is missing: the run began with it, and cannot go on without")
        content = coins if name == COINS and coins is not None else path.read_bytes()
        now = _config_digest(content.decode(errors="replace")) if name == CONFIG else sha256(content)
        if now != digest:
            raise UnreadableFile(path, "was changed since the run began, which cannot go on under it")
    last = read_checkpoint(folder)
    if last is None:
        return
    if last.set_up != _set_up_digest(read_json(folder, VERSIONS)):
        raise UnreadableFile(folder / VERSIONS, "was changed since the last checkpoint")
    records = read_rounds(folder)[: last.round]
    if len(records) == last.round and _digest_of(records).hexdigest() != last.metrics_digest:
        raise UnreadableFile(folder / METRICS, "was changed since the last checkpoint")


def _set_up_digest(versions: Mapping[str, Any]) -> str:
    """Of what a run is under; nothing of its data, whose keyed digest stays where it is."""
    return sha256(json.dumps(versions[_FILES], sort_keys=True).encode())


def _config_digest(text: str) -> str:
    """Of a config wherever its run lies: the folder of a run may be moved."""
    return sha256(re.sub(r"(?m)^folder = .*$", "folder", text).encode())


def _what_counts(record: Mapping[str, Any]) -> bytes:
    """A line without how long it took, which is another one when a round is repeated."""
    rest = {name: value for name, value in record.items() if name != "seconds"}
    return json.dumps(rest, sort_keys=True).encode()


def _digest_of(records: Sequence[Mapping[str, Any]]) -> hashlib._Hash:
    digest = hashlib.sha256()
    for record in records:
        digest.update(_what_counts(record))
    return digest


def read_checkpoint(folder: Path) -> Checkpoint | None:
    """The last checkpoint; None if the run was stopped before the first one."""
    path = folder / CHECKPOINT
    if not path.is_file():
        return None
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            state = {
                name.removeprefix(_STATE): archive[name] for name in archive if name.startswith(_STATE)
            }
            length, lines = int(archive["metrics_length"]), str(archive["metrics_digest"])
            return Checkpoint(int(archive["round"]), length, lines, str(archive["set_up"]), state)
    except (*NPZ_ERRORS, KeyError) as error:
        damaged = "the checkpoint is damaged: delete this file, and the run starts over when resumed"
        raise UnreadableFile(path, getattr(error, "strerror", None) or damaged) from error


def read_start(folder: Path) -> NDArray[Any]:
    """(P,) the weights the run began with."""
    path = folder / START
    try:
        weights = np.load(path, allow_pickle=False)
    except NPZ_ERRORS as error:
        reason = getattr(error, "strerror", None) or f"not an array of numbers: {error}"
        raise UnreadableFile(path, reason) from error
    if not isinstance(weights, np.ndarray):
        raise UnreadableFile(path, "must hold one array")
    return weights


def rounds_done(folder: Path) -> int:
    """Rounds up to the last checkpoint; 0 if there is none."""
    last = read_checkpoint(folder)
    return 0 if last is None else last.round


def read_rounds(folder: Path) -> list[JSONObject]:
    """The lines of metrics.jsonl; a last line still being written is left out."""
    path = folder / METRICS
    if not path.is_file():
        return []
    whole = path.read_bytes()
    lines = whole[: whole.rfind(b"\n") + 1].splitlines()
    records = []
    for number, line in enumerate(lines, 1):
        try:
            record = json.loads(line)
        except ValueError as error:
            raise UnreadableFile(path, f"not JSON: {error}", number) from error
        if not isinstance(record, dict) or record.get("round") != number:
            raise UnreadableFile(path, f"must be the record of round {number}", number)
        records.append(record)
    return records


def read_config(folder: Path) -> JSONObject:
    """The tables of config.toml."""
    path = folder / CONFIG
    if not path.is_file():
        raise InvalidValue("folder", f"must hold a run ({CONFIG})", folder)
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UnreadableFile(path, f"not TOML: {error}") from error


def read_json(folder: Path, name: str) -> JSONObject:
    """The object in a JSON file of the folder."""
    path = folder / name
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UnreadableFile(path, error.strerror or str(error)) from error
    except ValueError as error:
        raise UnreadableFile(path, f"not JSON: {error}") from error
    if not isinstance(content, dict):
        raise UnreadableFile(path, "must be an object")
    return content
