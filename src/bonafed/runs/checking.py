"""Whether the files of a run are as they were written: every one of them, and what says so.

This finds damage and files of other runs. Whether a run was honest is another question, which its contract,
its coins and its statement answer (`bonafed verify`).

A run ends with SHA256SUMS and then summary.json. Killed between the two, everything else is as SHA256SUMS
says, a secret of noise is still there, and the end happens again when the run is resumed: its summary is
missing, not damaged. In any other case a file that SHA256SUMS lists and that is not there is damaged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from bonafed.errors import BonafedError, InvalidValue, UnreadableFile
from bonafed.files import is_draft
from bonafed.presentation.documents import Column, Document, Table, counted
from bonafed.runs import coins, private, seals
from bonafed.runs import folder as folders
from bonafed.runs.config import needs_secret, of_run

_AGAIN = "the end happens again when resumed"
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
    finished, listed = folders.is_finished(folder), (folder / folders.SUMS).is_file()
    checks = _ended(folder) if finished else _ending(folder) if listed else _open(folder)
    if lost:
        checks[folders.CONFIG] = _as_it_began  # even where nothing is left that lists it
    others = sorted(path.name for path in folder.iterdir() if path.name not in checks)
    states = [_state(folder, name, vouch) for name, vouch in checks.items()]
    return [
        *states,
        *([_summary(folder, states)] if listed and not finished else []),
        *(FileState(name, "not vouched for", _other(folder / name)) for name in others),
    ]


def document(places: Mapping[str, Sequence[FileState]]) -> Document:
    """The files of several runs by name; it does not hold if one of them is damaged."""
    columns = (Column("file", left=True), Column("", left=True), Column("why", left=True))
    tables = tuple(
        Table(f"Files of {name}", columns, tuple((s.file, s.verdict, s.text) for s in states))
        for name, states in places.items()
    )
    damaged = [
        f"{name}/{s.file}" for name, states in places.items() for s in states if s.verdict == "DAMAGED"
    ]
    missing = [
        f"{name}/{s.file}" for name, states in places.items() for s in states if s.verdict == "missing"
    ]
    verdict = f"damaged: {', '.join(damaged)}" if damaged else "No file is damaged."
    if missing and not damaged:
        verdict = f"No file is damaged. Missing, {_AGAIN}: {', '.join(missing)}"
    data = {
        "holds": not damaged,
        "damaged": damaged,
        "missing": missing,
        "runs": {name: [asdict(state) for state in states] for name, states in places.items()},
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


def _ended(folder: Path) -> dict[str, Check]:
    """Of a run that has ended: SHA256SUMS vouches for all."""
    try:
        names = list(folders.read_sums(folder))
    except UnreadableFile:
        names = []  # nothing vouches for them
    return {folders.SUMS: _sums, **dict.fromkeys(names, _as_it_ended)}


def _ending(folder: Path) -> dict[str, Check]:
    """Of a run that has SHA256SUMS but no summary: both vouch, and SHA256SUMS for all it lists."""
    try:
        names = [name for name in folders.read_sums(folder) if name != folders.SUMMARY]
    except UnreadableFile:
        names = []  # nothing vouches for them
    return {folders.SUMS: _sums, **_open(folder), **dict.fromkeys(names, _as_listed)}


def _summary(folder: Path, states: Sequence[FileState]) -> FileState:
    """Of the summary that is not there: it may not have been written yet, or it was lost."""
    if any(state.verdict != "verified" for state in states):
        return FileState(folders.SUMMARY, "DAMAGED", "is missing, and the run is not as it was at its end")
    if needs_secret(of_run(folder)) and not private.holds_secret(folder, private.NOISE):
        return FileState(folders.SUMMARY, "DAMAGED", "is missing, and so is the secret to end again with")
    return FileState(folders.SUMMARY, "missing", _AGAIN)


def _open(folder: Path) -> dict[str, Check]:
    """Of a run that has not: versions.json and the last checkpoint vouch for what it goes on from."""
    try:
        _versions(folder, folders.VERSIONS)
        names = list(folders.began_with(folder))
    except UnreadableFile:
        names = []  # nothing vouches for them
    checks: dict[str, Check] = {folders.VERSIONS: _versions, **dict.fromkeys(names, _as_it_began)}
    if (folder / folders.CHECKPOINT).exists():
        checks |= {folders.CHECKPOINT: _checkpoint, folders.METRICS: _lines}
    return checks


def _sums(folder: Path, name: str) -> str:
    known = folders.read_sums(folder)
    folders.require_own_sums(folder, known)
    return f"vouches for itself and {counted(len(known), 'file')}"


def _as_listed(folder: Path, name: str) -> str:
    if folders.read_sums(folder)[name] != seals.sha256(folders.read_bytes(folder / name)):
        raise UnreadableFile(folder / name, f"is not as {folders.SUMS} says")
    return f"as {folders.SUMS} says"


def _as_it_ended(folder: Path, name: str) -> str:
    folders.content(folder, name)
    return "as it was when the run ended"


def _versions(folder: Path, name: str) -> str:
    folders.began_with(folder)
    try:
        folders.require_one_run(folder)
    except UnreadableFile as error:
        if Path(error.path) == folder / name:
            raise
    return "vouches for itself and what the run began with"


def _as_it_began(folder: Path, name: str) -> str:
    if name == folders.COINS:
        coins.require_unchanged(folder)
    else:
        folders.require_began_with(folder, name, folders.read_bytes(folder / name))
    return "as it was when the run began"


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
