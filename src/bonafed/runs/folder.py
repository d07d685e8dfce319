"""The folder of a run: what is in it, and how it is read: nothing that was not vouched for.

    config.toml      the resolved config; written last in the set-up, and makes the folder a run
    versions.json    versions of bonafed, Python and the libraries; the seed; a digest of data and partition
    start.npy        the initial weights; a user's module may have different ones when the run is resumed
    contract.json    the contract published before anybody reported, if there is one
    agreement.json   the clients by name, what each reported, and the terms that follow
    coins.json       for verifiable coins: the commitments and nonces they come from (`runs.coins`)
    metrics.jsonl    one line per round, appended when the round ends
    checkpoint.npz   the state, the round it belongs to, and the length of metrics.jsonl at that round
    model.pt         the final weights, as a PyTorch state dict
    SHA256SUMS       the manifest: the digests of all files that the run began with and, once the run has
                     ended, of all files
    summary.json     written last of all; marks the run as finished

What must not be shared is kept beside it, in `<folder>.private` (`bonafed.runs.private`): the secrets of
noise and coins until the run ends, and what only a simulation knows. `bonafed.runs.log` writes the folder.

**Damaged.** No file is read that nothing vouches for (`content`, `read_rounds`, `read_checkpoint`). The
manifest vouches for itself: its first line, a comment to `sha256sum --check`, is the digest of the others.
The checkpoint changes while the run goes on. So it vouches for itself, by its last 64 bytes, a comment to
other readers; for the lines of metrics.jsonl so far; and for the set-up that the manifest lists. Lines
after the last checkpoint are not told, since they happen again.

A file that is not as it was written is refused by name. A digest is no signature: it protects against
damage and against files that were mixed up, not against somebody who rewrites a file together with
everything that vouches for it. What is hashed stands in the same folder, so a digest tells nothing of a
private run that the folder does not.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import tomllib
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bonafed.errors import InvalidValue, UnreadableFile
from bonafed.learning.data.archives import NPZ_ERRORS

JSONObject = dict[str, Any]
CONFIG, VERSIONS, METRICS = "config.toml", "versions.json", "metrics.jsonl"
START = "start.npy"
CONTRACT, AGREEMENT, COINS = "contract.json", "agreement.json", "coins.json"
CHECKPOINT, MODEL, SUMMARY = "checkpoint.npz", "model.pt", "summary.json"
SUMS = "SHA256SUMS"
SET_UP = (VERSIONS, START, CONTRACT, AGREEMENT, COINS, CONFIG)  # what a run may begin with
STATE = "state_"  # prefix of the mechanism's arrays in a checkpoint
_HEX = 64  # digits of a SHA-256
_TITLE = "# SHA-256 of the lines below: "
_BEGAN = "# SHA-256 of what the run began with: "
_LINE = re.compile(r"([0-9a-f]{64})  (.+)")
_DAMAGED = "was changed since it was written: it does not match"
_READ: ContextVar[dict[Path, bytes] | None] = ContextVar("files that were read", default=None)


class Manifest(NamedTuple):
    """The manifest of a run: what SHA256SUMS says."""

    digests: Mapping[str, str]  # SHA-256 by name of the file
    began: str  # SHA-256 of the lines that the run began with, which every checkpoint holds

    @classmethod
    def of(cls, digests: Mapping[str, str]) -> Manifest:
        """Of a run that begins with these files."""
        return cls(digests, sha256(_lines(digests)))

    @property
    def has_end(self) -> bool:
        """Whether it lists what a run ended with."""
        return SUMMARY in self.digests

    def at_beginning(self) -> Manifest:
        """Without what only a run that has ended has."""
        return self._replace(digests={n: digest for n, digest in self.digests.items() if n in SET_UP})

    def content(self) -> bytes:
        """The content of the file."""
        below = f"{_BEGAN}{self.began}\n".encode() + _lines(self.digests)
        return f"{_TITLE}{sha256(below)}\n".encode() + below


def _lines(digests: Mapping[str, str]) -> bytes:
    return "".join(f"{digest}  {name}\n" for name, digest in digests.items()).encode()


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """Where a run can be resumed from."""

    round: int
    metrics_length: int  # bytes of metrics.jsonl that belong to it
    metrics_digest: str  # SHA-256 of these
    began: str  # `Manifest.began` of its run
    state: Mapping[str, NDArray[Any]]  # of the mechanism
    digest: str  # SHA-256 of the file it was read from


def holds_run(folder: Path) -> bool:
    """Whether a run was set up in the folder."""
    return (folder / CONFIG).is_file()


def lost_config(folder: Path) -> bool:
    """Whether a run was set up in the folder and its config is gone; a set-up cut short is no run."""
    if holds_run(folder) or not folder.is_dir():
        return False
    lines = folder / METRICS
    set_up = any((folder / name).is_file() for name in (SUMS, VERSIONS))
    began = set_up and lines.is_file() and lines.stat().st_size > 0
    return began or (folder / CHECKPOINT).is_file() or not is_set_up_only(folder)


def is_set_up_only(folder: Path) -> bool:
    """Whether the manifest, if there is one, is of a run that has not ended."""
    if not (folder / SUMS).is_file():
        return True
    try:
        return not read_manifest(folder).has_end
    except UnreadableFile:
        return False


def is_finished(folder: Path) -> bool:
    """Whether the run in the folder is finished."""
    return (folder / SUMMARY).is_file()


def sha256(content: bytes) -> str:
    """The SHA-256 of the content, in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def to_json(value: Mapping[str, Any]) -> bytes:
    """The content of a JSON file in the folder of a run."""
    return (json.dumps(value, indent=1, allow_nan=False) + "\n").encode()


def parsed_json(path: Path, content: bytes) -> JSONObject:
    """The object in the content of a JSON file."""
    try:
        value = json.loads(content.decode("utf-8"))
    except RecursionError as error:
        raise UnreadableFile(path, "not JSON: nested too deeply") from error
    except ValueError as error:
        raise UnreadableFile(path, f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise UnreadableFile(path, "must be an object")
    return value


def sealed_archive(arrays: Mapping[str, NDArray[Any]]) -> tuple[bytes, str]:
    """The content of an .npz that vouches for itself, and the SHA-256 of all of it: one pass makes both."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.comment = bytes(_HEX)
    content = buffer.getbuffer()[:-_HEX]
    digest = hashlib.sha256(content)
    seal = digest.hexdigest().encode()
    digest.update(seal)
    return bytes(content) + seal, digest.hexdigest()


def open_archive(content: bytes) -> dict[str, NDArray[Any]]:
    """What `sealed_archive` was given; ValueError if it is damaged, before anything is unpacked."""
    if sha256(content[:-_HEX]).encode() != content[-_HEX:]:
        raise ValueError(f"{_DAMAGED} the SHA-256 that it ends with")
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def read_manifest(folder: Path) -> Manifest:
    """The SHA-256 of every file that a run began with or, once it has ended, of every file."""
    path = folder / SUMS
    if not path.is_file():
        what = "ended" if is_finished(folder) else "began"
        raise UnreadableFile(path, f"is missing: nothing vouches for what the run {what} with")
    title, _, below = read_bytes(path).partition(b"\n")
    if title != f"{_TITLE}{sha256(below)}".encode():
        raise UnreadableFile(path, f"{_DAMAGED} its first line")
    began, *lines = below.decode().splitlines()
    matches = [_LINE.fullmatch(line) for line in lines]
    digests = {match[2]: match[1] for match in matches if match is not None}
    return Manifest(digests, began.removeprefix(_BEGAN))


def require_unchanged(folder: Path) -> None:
    """All that a run goes on from is as it was written; `runs.coins` looks at coins.json itself."""
    read_rounds(folder)  # and the checkpoint
    manifest = read_manifest(folder)
    for name in manifest.at_beginning().digests:
        if name != COINS:
            content(folder, name)
    read_checkpoint(folder)
    for name in manifest.digests if is_finished(folder) else ():
        if (folder / name).exists():
            content(folder, name)


def content(folder: Path, name: str) -> bytes:
    """The content of a file of a run, for which the manifest vouches."""
    data = read_bytes(folder / name)
    if not is_finished(folder):
        require_one_run(folder)
    require_listed(folder, name, data)
    return data


def require_listed(folder: Path, name: str, *contents: bytes) -> None:
    """The manifest lists one of these contents of a file."""
    manifest = read_manifest(folder)
    if any(manifest.digests.get(name) == sha256(data) for data in contents):
        return
    if not (manifest.has_end or is_finished(folder)):
        raise UnreadableFile(folder / name, "was changed since the run began, which cannot go on under it")
    require_own_manifest(folder, manifest)
    known = name in manifest.digests
    reason = "was changed since the run ended" if known else f"must be in {SUMS} of its run"
    raise UnreadableFile(folder / name, reason)


def require_one_run(folder: Path) -> Checkpoint | None:
    """The checkpoint of a run that has not ended; it belongs to the set-up that the manifest lists."""
    last, manifest = read_checkpoint(folder), read_manifest(folder)
    if last is None or last.began == manifest.began:
        return last
    fits = all(
        (folder / name).is_file() and sha256(read_bytes(folder / name)) == digest
        for name, digest in manifest.at_beginning().digests.items()
        if name != COINS  # which may have been opened
    )
    raise UnreadableFile(folder / (CHECKPOINT if fits else SUMS), "is of another run")


def require_own_manifest(folder: Path, manifest: Manifest) -> None:
    """The manifest is that of this run: it is not where both metrics and summary differ from it."""
    both = [name for name in (METRICS, SUMMARY) if (folder / name).is_file()]
    known = manifest.digests
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
    absolute = path.absolute()
    if absolute not in known:
        known[absolute] = _from_disk(path)
    return known[absolute]


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
        arrays = open_archive(data)
        length, lines = int(arrays["metrics_length"]), str(arrays["metrics_digest"])
        state = {name.removeprefix(STATE): arrays[name] for name in arrays if name.startswith(STATE)}
        return Checkpoint(int(arrays["round"]), length, lines, str(arrays["began"]), state, sha256(data))
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
        data = b"" if last is None else metrics_of(folder, last)
    return [json.loads(line) for line in data.splitlines()]


def metrics_of(folder: Path, last: Checkpoint) -> bytes:
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
    return parsed_json(folder / name, content(folder, name))
