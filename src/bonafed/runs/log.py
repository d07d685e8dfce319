"""How the folder of a run is written, so that the run survives being killed at any moment.

Files other than metrics.jsonl are replaced as a whole (`bonafed.files`). A checkpoint is written after the
lines it refers to are on disk. Resuming takes its weights and cuts metrics.jsonl to its length: rounds
after it are forgotten in both and happen again in the same way, since all randomness comes from
(seed, round, client) and, for noise, from the run's secret.

The manifest is written before what it lists in the set-up, and after it at the end; the config ends the
set-up, the summary the run. Killed between manifest and summary, a run ends once more.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bonafed.errors import InvalidValue, MissingReport
from bonafed.files import APPENDING, is_draft, named, remove_drafts, sync_folder, write_all, write_together
from bonafed.runs import private
from bonafed.runs.folder import (
    CHECKPOINT,
    CONFIG,
    METRICS,
    SET_UP,
    START,
    STATE,
    SUMMARY,
    SUMS,
    VERSIONS,
    Checkpoint,
    Manifest,
    holds_run,
    is_set_up_only,
    metrics_of,
    read_manifest,
    sealed_archive,
    sha256,
    to_json,
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


def require_free(folder: Path) -> None:
    """Require that a new run can be set up there; leftovers of an interrupted set-up are not in the way."""
    if holds_run(folder):
        rule = "must hold no run yet (--resume, or resume=True in Python, continues it)"
        raise InvalidValue("run.folder", rule, folder)
    if folder.exists() and not folder.is_dir():
        raise InvalidValue("run.folder", "must be a folder", folder)
    set_up = (folder / SUMS).is_file() and is_set_up_only(folder)  # written before the rest
    for path in folder.iterdir() if folder.exists() else ():
        empty_log = path.name == METRICS and path.lstat().st_size == 0
        left = (set_up and path.name in (SUMS, *SET_UP)) or is_draft(path)
        if not (empty_log or left):
            raise InvalidValue("run.folder", "must be new or empty", f"{folder} with {path.name}")


class RunLog:
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
        self._manifest = Manifest.of({})
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

        The manifest holds the SHA-256 of each, and every checkpoint that of the manifest: a run never goes
        on under anything else than it began with.
        """
        buffer = io.BytesIO()
        np.save(buffer, start, allow_pickle=False)
        contents = {
            VERSIONS: to_json(versions), START: buffer.getvalue(), **files, CONFIG: config_text.encode()
        }  # fmt: skip
        digests = {name: sha256(content) for name, content in contents.items()}
        write_together({self._folder / SUMS: Manifest.of(digests).content()})
        for name, content in contents.items():
            write_together({self._folder / name: content})

    def cut(self, last: Checkpoint | None) -> None:
        """Keep the lines of metrics.jsonl that belong to a checkpoint, which vouches for them."""
        self._manifest = read_manifest(self._folder)
        lines = b"" if last is None else metrics_of(self._folder, last)
        if os.fstat(self._file).st_size > len(lines):
            (self._folder / SUMMARY).unlink(missing_ok=True)  # the run has not ended, then
            if self._manifest.has_end:
                write_together({self._folder / SUMS: self._manifest.at_beginning().content()})
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
        content, digest = sealed_archive(
            {
                "round": np.array(round_number),
                "metrics_length": np.array(self._length),
                "metrics_digest": np.array(self._lines.hexdigest()),
                "began": np.array(self._manifest.began),
                **{STATE + name: values for name, values in state.items()},
            }
        )
        write_together({self._folder / CHECKPOINT: content})
        self._checkpoint = digest

    def finish(self, files: Mapping[str, bytes], summary: Mapping[str, Any]) -> None:
        """Write the final model and what else a run ends with; then erase its secrets."""
        with named(self._folder / METRICS):
            os.fsync(self._file)
        last = {} if self._checkpoint is None else {CHECKPOINT: self._checkpoint}
        digests = {
            **self._manifest.at_beginning().digests, METRICS: self._lines.hexdigest(), **last,
        }  # fmt: skip
        end(self._folder, files, summary, self._manifest._replace(digests=digests))
        private.erase_secrets(self._folder)  # coins.json holds that of the coins now

    def __enter__(self) -> RunLog:
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
        for name in (*reversed(SET_UP), SUMS, METRICS):  # the first one marks the folder as a run
            (self._folder / name).unlink(missing_ok=True)
        private.erase_secrets(self._folder)
        if self._made and not any(self._folder.iterdir()):
            self._folder.rmdir()


def end(
    folder: Path,
    files: Mapping[str, bytes],
    summary: Mapping[str, Any],
    before: Manifest | None = None,
) -> None:
    """Write what a run ends with: files, the manifest of all, also of those `before`, and its summary."""
    (folder / SUMMARY).unlink(missing_ok=True)  # of an end that happens again
    for name, data in files.items():
        write_together({folder / name: data})
    manifest, last = before or Manifest.of({}), to_json(summary)
    digests = {name: sha256(data) for name, data in (*files.items(), (SUMMARY, last))}
    write_together({folder / SUMS: manifest._replace(digests={**manifest.digests, **digests}).content()})
    write_together({folder / SUMMARY: last})
