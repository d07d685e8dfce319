"""Compressed files from outside, read by what they say of themselves first.

A few megabytes may inflate to gigabytes. So the directory of an .npz and the header of every array in it
are read before any array is: whatever does not fit is refused at the cost of a few hundred bytes. The
directory is no promise, but it is a bound: of a file in an archive never more is inflated than the
directory says. Of a .gz never more is inflated than a byte beyond what is expected.
"""

from __future__ import annotations

import gzip
import io
import math
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from bonafed.errors import UnreadableFile

# what NumPy raises on damaged archives; the header of an array is parsed as Python text
NPZ_ERRORS = (
    OSError, ValueError, EOFError, RuntimeError, OverflowError, TypeError, SyntaxError, tokenize.TokenError,
    zipfile.BadZipFile, zlib.error,
)  # fmt: skip
_ARRAY = ".npy"
_PIECE = 2**20  # bytes that are read at a time


@dataclass(frozen=True, slots=True)
class Header:
    """What an .npy file says of its array."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]


def read_arrays(
    path: Path, most: int, require: Callable[[Mapping[str, Header]], None]
) -> dict[str, NDArray[Any]]:
    """The arrays of an .npz, at most so many, if `require` does not refuse their headers."""
    try:
        with path.open("rb") as stream:
            start = stream.read(2)
            if start == b"\x93N":
                raise UnreadableFile(path, "must be an .npz archive, got a single array")
            if start != b"PK":
                raise UnreadableFile(path, "not a NumPy archive: must be written by numpy.savez")
            require(_headers(path, stream, most))
            stream.seek(0)
            with np.load(stream, allow_pickle=False) as archive:
                return {name: archive[name] for name in archive.files}
    except NPZ_ERRORS as error:
        reason = getattr(error, "strerror", None) or f"not a NumPy archive of numbers: {error}"
        raise UnreadableFile(path, reason) from error


def _headers(path: Path, stream: IO[bytes], most: int) -> dict[str, Header]:
    """Those of the arrays in an archive; nothing else is inflated."""
    headers: dict[str, Header] = {}
    with zipfile.ZipFile(stream) as archive:
        entries = archive.infolist()
        if len(entries) > most:
            raise UnreadableFile(path, f"must hold at most {most} arrays, got {len(entries):,}")
        for entry in entries:
            name = entry.filename.removesuffix(_ARRAY)
            if name == entry.filename:
                raise UnreadableFile(path, f"must hold arrays only, got a file {name[:60]!r}")
            if name in headers:
                raise UnreadableFile(path, f"must hold every array once, got {name[:60]!r} twice")
            with archive.open(entry) as member:
                headers[name] = _header(path, name, member, entry.file_size)
    return headers


def _header(path: Path, name: str, member: IO[bytes], size: int) -> Header:
    """The header of an array; the directory must hold as many bytes as it says."""
    version = np.lib.format.read_magic(member)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise UnreadableFile(path, f"{name[:60]} must be an array of plain numbers, got format {version}")
    shape, _, dtype = readers[version](member)
    if dtype.hasobject:
        raise UnreadableFile(path, f"not a NumPy archive of numbers: Object arrays such as {name[:60]!r}")
    due = member.tell() + math.prod(shape) * dtype.itemsize
    if size != due:
        rule = f"{name[:60]} must have {due:,} bytes, as its header says"
        raise UnreadableFile(path, f"not a NumPy archive of numbers: {rule}, got {size:,}")
    return Header(shape, dtype)


def read_bytes(path: Path, most: int) -> bytes:
    """The content of a file, decompressed if its name ends in .gz; at most a byte beyond `most`."""
    with opened(path) as stream:
        return read_up_to(path, stream, most + 1)


def opened(path: Path) -> gzip.GzipFile | BufferedReader:
    """A file to read, decompressed on the way if its name ends in .gz."""
    try:
        return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")
    except OSError as error:
        raise UnreadableFile(path, error.strerror or str(error)) from error


def read_up_to(path: Path, stream: gzip.GzipFile | BufferedReader, count: int) -> bytes:
    """The next bytes of a file, fewer where it ends; no memory is set aside for what is not there."""
    content = io.BytesIO()
    try:
        while piece := stream.read(min(count - content.tell(), _PIECE)):
            content.write(piece)
        return content.getvalue()
    except EOFError as error:
        raise UnreadableFile(path, "compressed data end too early: the file is truncated") from error
    except (OSError, zlib.error) as error:
        raise UnreadableFile(path, getattr(error, "strerror", None) or str(error)) from error
