"""Arrays of numbers in a MATLAB 5 file, what `save -v6` and `save -v7` write.

SciPy's reader believes what a file says of itself: a few damaged bytes, and it takes the process down. This
one reads plain numbers only, believes nothing, and asks whether an array is wanted before it reads it.

    128 bytes     116 of text, 8 that are of no use here, the version 0x0100, "IM" or, big-endian, "MI"
    elements      type and size (4 bytes each), data, and zeros up to a multiple of 8 bytes; data of up to
                  4 bytes may be in the place of the size, which is then in the upper half of the type
    of type 15    no zeros; the data are a zlib stream of one element of type 14
    of type 14    a matrix: elements that hold its flags, its dimensions, its name and its numbers, which
                  may be of a smaller type than the matrix is of
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bonafed.errors import UnreadableFile
from bonafed.learning.data.archives import Header, opened, read_up_to

_START = 128  # bytes before the first element
_ORDERS = {b"\x00\x01IM": "<", b"\x01\x00MI": ">"}  # what the start ends with
_INT8, _INT32, _UINT32, _MATRIX, _COMPRESSED = 1, 5, 6, 14, 15
_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_PLAIN = range(6, 16)  # classes of matrices that hold numbers: no cells, structures, text or sparse ones
_COMPLEX = 0x0800  # among the flags
_LONGEST_NAME = 63  # bytes; MATLAB allows no more
_MOST_DIMENSIONS = 32
_CHUNK = 2**16  # bytes that are read or inflated at a time: no memory is set aside for what is not there

Bytes = bytes | bytearray
Tag = tuple[int, int, Bytes | None]  # type and size of an element, and its data if they are in the tag
Require = Callable[[str, Header], None]


def read_matrices(path: Path, names: Sequence[str], require: Require) -> dict[str, NDArray[Any]]:
    """The arrays of these names, which must be all that the file holds.

    `require` sees the name and the shape of each before its numbers are read, and must refuse what is too
    large: no more is read or inflated than the shape says.
    """
    found: dict[str, NDArray[Any]] = {}
    with opened(path) as stream:
        start = read_up_to(path, stream, _START)
        order = _ORDERS.get(start[124:])
        if order is None:
            rule = "must be a MATLAB 5 file, as save -v7 writes them"
            raise UnreadableFile(path, f"{rule}, got one that begins with {start[:20]!r}")
        file = _Elements(path, order, lambda count: read_up_to(path, stream, count))
        while (tag := file.next_tag()) is not None:
            kind, size, _ = tag
            if kind == _COMPRESSED:
                packed = _Inflated(file.take, size)
                inner = _Elements(path, order, packed.take)
                kind, size, _ = inner.tag()
                _require_matrix(path, kind)
                name, array = _matrix(inner, size, names, found, require)
                packed.require_end(path)
            else:
                _require_matrix(path, kind)
                name, array = _matrix(file, size, names, found, require)
            found[name] = array
    if len(found) < len(names):
        raise UnreadableFile(path, f"must hold {' and '.join(names)}, got {', '.join(found) or 'neither'}")
    return found


class _Inflated:
    """A compressed element, as much of it as is asked for."""

    def __init__(self, packed: Callable[[int], Bytes], size: int) -> None:
        self._packed, self._left = packed, size
        self._stream = zlib.decompressobj()

    def take(self, count: int) -> bytearray:
        """The next bytes, fewer where it ends."""
        content = bytearray()
        while len(content) < count and not self._stream.eof:
            source = self._stream.unconsumed_tail or self._more()
            piece = self._stream.decompress(source, count - len(content))
            content += piece
            if not source and not piece:
                break
        return content

    def _more(self) -> Bytes:
        chunk = self._packed(min(self._left, _CHUNK))
        self._left -= len(chunk)
        return chunk

    def require_end(self, path: Path) -> None:
        """Refuse an element that goes on after its matrix, or whose checksum was not reached."""
        try:
            more = self.take(1)
        except zlib.error as error:
            raise _damaged(path, str(error)) from error
        if more or self._left or self._stream.unused_data or not self._stream.eof:
            raise _damaged(path, "a compressed element must hold one matrix and end with it")


class _Elements:
    """Elements one after the other."""

    def __init__(self, path: Path, order: str, take: Callable[[int], Bytes]) -> None:
        self.path, self.order, self._source = path, order, take
        self.taken = 0  # bytes so far

    def take(self, count: int) -> Bytes:
        """The next bytes, fewer where they end."""
        try:
            content = self._source(count)
        except zlib.error as error:
            raise _damaged(self.path, str(error)) from error
        self.taken += len(content)
        return content

    def exactly(self, count: int) -> Bytes:
        """The next bytes, all of them."""
        content = bytearray()
        while len(content) < count:
            piece = self.take(min(count - len(content), _CHUNK))
            if not piece:
                raise _damaged(self.path, "it ends too early")
            content += piece
        return content

    def next_tag(self) -> Tag | None:
        """The tag of the next element, if there is one."""
        tag = self.take(8)
        return self._parsed(tag) if tag else None

    def tag(self) -> Tag:
        """The tag of the next element, which must be there."""
        return self._parsed(self.take(8))

    def _parsed(self, tag: Bytes) -> Tag:
        if len(tag) < 8:
            raise _damaged(self.path, "it ends too early")
        kind, size = struct.unpack(f"{self.order}2I", tag)
        short = kind >> 16
        if not short:
            return kind, size, None
        if short > 4:
            raise _damaged(self.path, f"at most 4 bytes must be in a tag, got {short}")
        return kind & 0xFFFF, short, tag[4 : 4 + short]

    def data(self, what: str, expected: int, most: int) -> Bytes:
        """The data of the next element, which must be of this type and no longer."""
        kind, size, inside = self.tag()
        if kind != expected or size > most:
            rule = f"{what} must be of type {expected} and have at most {most} bytes"
            raise _damaged(self.path, f"{rule}, got type {kind} and {size:,}")
        if inside is not None:
            return inside
        content = self.exactly(size)
        self.exactly(-size % 8)
        return content


def _matrix(
    elements: _Elements, size: int, names: Sequence[str], before: dict[str, NDArray[Any]], require: Require
) -> tuple[str, NDArray[Any]]:
    """The name and the array of a matrix whose tag has just been read."""
    path, end = elements.path, elements.taken + size
    flags = elements.data("flags", _UINT32, 8)
    if len(flags) != 8:
        raise _damaged(path, f"flags must have 8 bytes, got {len(flags)}")
    word = struct.unpack(f"{elements.order}I", flags[:4])[0]
    sizes = elements.data("dimensions", _INT32, 4 * _MOST_DIMENSIONS)
    if len(sizes) % 4 or len(sizes) < 8:
        raise _damaged(path, f"dimensions must be two or more, of 4 bytes each, got {len(sizes)} bytes")
    shape = struct.unpack(f"{elements.order}{len(sizes) // 4}i", sizes)
    name = bytes(elements.data("a name", _INT8, _LONGEST_NAME)).decode("latin-1")
    if name not in names or name in before:
        got = f"{name!r} twice" if name in before else repr(name)
        rule = f"must hold {' and '.join(names)}, each once, and nothing else"
        raise UnreadableFile(path, f"{rule}, got {got}")
    if word & 0xFF not in _PLAIN or word & _COMPLEX or min(shape) < 0:
        rule = f"{name} must be a matrix of real numbers"
        raise UnreadableFile(path, f"{rule}, got class {word & 0xFF}, flags {word >> 8:#x}, shape {shape}")
    kind, length, inside = elements.tag()
    if kind not in _NUMBERS:
        raise UnreadableFile(path, f"{name} must hold numbers, got type {kind}")
    dtype = np.dtype(elements.order + _NUMBERS[kind])
    require(name, Header(shape, dtype))
    if length != math.prod(shape) * dtype.itemsize:
        due = math.prod(shape) * dtype.itemsize
        raise UnreadableFile(path, f"{name} must have {due:,} bytes, as its shape says, got {length:,}")
    numbers = elements.exactly(length) if inside is None else inside
    filling, rest = (0 if inside is not None else -length % 8), end - elements.taken
    if rest not in (0, filling):  # some writers leave the last zeros out
        raise _damaged(path, f"{name} must end where its matrix does, got {rest} bytes more")
    elements.exactly(rest)
    return name, np.frombuffer(numbers, dtype).reshape(shape, order="F")


def _require_matrix(path: Path, kind: int) -> None:
    if kind != _MATRIX:
        raise _damaged(path, f"it must hold matrices only, got type {kind}")


def _damaged(path: Path, rule: str) -> UnreadableFile:
    return UnreadableFile(path, f"not a MATLAB file: {rule}")
