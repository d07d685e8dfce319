"""What a participant remembers, on disk before an answer leaves: a SQLite database, for its owner only.

    runs       every run it was asked to join, with what was agreed on, as plain data by name
    answers    every request it answered, by identifier: the digest of what was asked, and the answer
    releases   what each answer gave away of its records: its own ledger
    accepted   which answers the server has said that it counts

An answer and what it releases are written together, or neither. Asked again under the same identifier, the
participant gives the answer that stands here; where its numbers were dropped to save space (`KEPT`), they
are computed again, which gives the same bits on the same machine, as noise is keyed by the task. Nothing is
ever charged twice.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bonafed.errors import InvalidValue, UnreadableFile
from bonafed.files import APPENDING
from bonafed.learning.privacy.ledger import Release
from bonafed.remote.messages import JSONObject

KEPT: Final = 64  # answers of a run whose numbers are kept; older ones can be computed again
FILE: Final = "journal.sqlite"
_OWNED: Final = "journal.lock"
_TABLES = """
CREATE TABLE IF NOT EXISTS runs (run TEXT, name TEXT, value TEXT NOT NULL, PRIMARY KEY (run, name));
CREATE TABLE IF NOT EXISTS answers (
    run TEXT, identifier TEXT, number INTEGER NOT NULL, digest TEXT NOT NULL, answer TEXT NOT NULL,
    dtype TEXT, numbers BLOB, accepted INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (run, identifier));
CREATE TABLE IF NOT EXISTS releases (
    run TEXT, identifier TEXT, round INTEGER, multiplier REAL, times INTEGER, steps INTEGER, rate REAL);
"""


@dataclass(frozen=True, slots=True, eq=False)
class Answered:
    """A request that was answered before."""

    digest: str  # of what was asked
    answer: JSONObject  # all but the numbers
    numbers: NDArray[Any] | None  # None: none, or no longer kept
    accepted: bool  # whether the server said that it counts


class Journal:
    """The journal in a folder; one process at a time writes it, others may look (`reading`)."""

    def __init__(self, folder: Path, *, reading: bool = False) -> None:
        path, self._lock, self._owner = folder / FILE, threading.RLock(), -1
        if reading:
            if not path.is_file():
                raise InvalidValue(
                    "participant.folder", "must hold a journal: nothing was agreed to yet", folder
                )
        else:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if folder.stat().st_mode & 0o077:
                folder.chmod(0o700)
            self._own(folder)
            os.close(os.open(path, APPENDING, 0o600))
        try:
            self._base = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30)
            if not reading:
                self._base.execute("PRAGMA synchronous = FULL")
                self._base.executescript(_TABLES)
            self._base.execute("SELECT COUNT(*) FROM runs").fetchone()
        except sqlite3.DatabaseError as error:
            self._release()
            raise UnreadableFile(path, f"must be a journal of a participant ({error})") from error

    def _own(self, folder: Path) -> None:
        """Two processes with one journal could both sell the last of an epsilon."""
        self._owner = os.open(folder / _OWNED, APPENDING, 0o600)
        try:
            fcntl.flock(self._owner, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._release()
            raise InvalidValue(
                "participant.folder", "must not be in use by another process", folder
            ) from error

    def _release(self) -> None:
        if self._owner >= 0:
            os.close(self._owner)
            self._owner = -1

    def close(self) -> None:
        """Close the database, so that another process can open it."""
        with self._lock:
            self._base.close()
            self._release()

    def fact(self, run: str, name: str) -> Any:
        """What was noted of a run under this name; None: nothing."""
        with self._lock:
            row = self._base.execute(
                "SELECT value FROM runs WHERE run = ? AND name = ?", (run, name)
            ).fetchone()
        return None if row is None else json.loads(row[0])

    def note(self, run: str, **facts: Any) -> None:
        """Note facts of a run; one that is there is replaced."""
        rows = [(run, name, json.dumps(value)) for name, value in facts.items()]
        with self._lock:
            self._base.execute("BEGIN IMMEDIATE")
            self._base.executemany("INSERT OR REPLACE INTO runs VALUES (?, ?, ?)", rows)
            self._base.execute("COMMIT")

    @property
    def runs(self) -> list[str]:
        """All runs, the oldest first."""
        with self._lock:
            rows = self._base.execute("SELECT run, MIN(rowid) FROM runs GROUP BY run ORDER BY 2").fetchall()
        return [row[0] for row in rows]

    def answered(self, run: str, identifier: str) -> Answered | None:
        """The answer to a request of this identifier; None: it was never answered."""
        query = (
            "SELECT digest, answer, dtype, numbers, accepted FROM answers WHERE run = ? AND identifier = ?"
        )
        with self._lock:
            row = self._base.execute(query, (run, identifier)).fetchone()
        if row is None:
            return None
        numbers = None if row[3] is None else np.frombuffer(row[3], dtype=row[2])
        return Answered(row[0], json.loads(row[1]), numbers, bool(row[4]))

    def summed(self, run: str, digest: str) -> str | None:
        """The sum that this work was in, under whatever identifier; None: none."""
        query = "SELECT answer FROM answers WHERE run = ? AND digest = ?"
        with self._lock:
            rows = self._base.execute(query, (run, digest)).fetchall()
        sums = (json.loads(answer).get("sum") for (answer,) in rows)
        return next((name for name in sums if name is not None), None)

    def keep(
        self,
        run: str,
        identifier: str,
        digest: str,
        answer: JSONObject,
        numbers: NDArray[Any] | None = None,
        releases: Iterable[Release] = (),
    ) -> None:
        """Keep an answer and what it releases: on disk when this returns."""
        raw = None if numbers is None else np.ascontiguousarray(numbers).tobytes()
        dtype = None if numbers is None else numbers.dtype.str
        rows = [(run, identifier, r.round_number, r.multiplier, r.times, r.steps, r.rate) for r in releases]
        with self._lock:
            self._base.execute("BEGIN IMMEDIATE")
            try:
                (number,) = self._base.execute(
                    "SELECT COALESCE(MAX(number), 0) + 1 FROM answers WHERE run = ?", (run,)
                ).fetchone()
                self._base.execute(
                    "INSERT INTO answers VALUES (?, ?, ?, ?, ?, ?, ?, 0)",
                    (run, identifier, number, digest, json.dumps(answer), dtype, raw),
                )
                self._base.executemany("INSERT INTO releases VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
                self._base.execute(
                    "UPDATE answers SET numbers = NULL WHERE run = ? AND number <= ?", (run, number - KEPT)
                )
                self._base.execute("COMMIT")
            except BaseException:
                self._base.execute("ROLLBACK")
                raise

    def accept(self, run: str, identifiers: Iterable[str]) -> None:
        """The server counts these answers."""
        rows = [(run, identifier) for identifier in identifiers]
        with self._lock:
            self._base.execute("BEGIN IMMEDIATE")
            self._base.executemany("UPDATE answers SET accepted = 1 WHERE run = ? AND identifier = ?", rows)
            self._base.execute("COMMIT")

    def releases(self, run: str, position: int, *, accepted: bool = False) -> list[Release]:
        """Everything this run was given, in order; or only what the server says that it counts."""
        query = (
            "SELECT r.round, r.multiplier, r.times, r.steps, r.rate FROM releases r JOIN answers a "
            "ON r.run = a.run AND r.identifier = a.identifier "
            "WHERE r.run = ? AND a.accepted >= ? ORDER BY r.rowid"
        )
        with self._lock:
            rows = self._base.execute(query, (run, int(accepted))).fetchall()
        return [Release(position, *row) for row in rows]

    def identifiers(self, run: str, *, accepted: bool = False) -> list[str]:
        """Requests of a run that were answered, in order."""
        query = "SELECT identifier FROM answers WHERE run = ? AND accepted >= ? ORDER BY number"
        with self._lock:
            rows = self._base.execute(query, (run, int(accepted))).fetchall()
        return [row[0] for row in rows]
