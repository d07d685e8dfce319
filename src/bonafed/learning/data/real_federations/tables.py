"""Tables of named columns, turned into features column by column; whatever is not expected is refused.

A feature of a `Measure` is a number in a unit of its own, (value - centre)/unit: with the stated constants
all features are of order 1, and no constant follows from anybody's record. Those of an `Answer` are 0 or 1,
one for each word that has a name. Where a value may be missing there is one more feature, "... not
recorded", and the other features of the column are 0.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bonafed.errors import InvalidValue, UnreadableFile
from bonafed.learning.data.archives import read_bytes
from bonafed.learning.data.formats import Arrays
from bonafed.reports import Row, rows_in
from bonafed.text import numeral

_LARGEST = 2**24  # bytes of a table; the largest official one has 5 million
_EVERY = 5  # one record in so many is for testing
_SHOWN = 20  # characters of a cell in an error


@dataclass(frozen=True, slots=True)
class Measure:
    """A column of numbers."""

    column: str
    name: str  # of the feature
    centre: float
    unit: float
    low: float  # a smaller number is a mistake
    high: float  # and a larger one
    optional: bool = False  # whether it may be missing

    @property
    def names(self) -> tuple[str, ...]:
        """Those of its features."""
        return (self.name, f"{self.name} not recorded") if self.optional else (self.name,)

    def read(self, cell: str) -> tuple[float, ...]:
        """The features of a cell; a `ValueError` with the rule that it breaks."""
        if self.optional and cell in ("", "?"):
            return 0.0, 1.0
        value = _numeral(cell)
        if not self.low <= value <= self.high:  # also of NaN
            raise ValueError(f"must be a number from {self.low:g} to {self.high:g}")
        scaled = (value - self.centre) / self.unit
        return (scaled, 0.0) if self.optional else (scaled,)


@dataclass(frozen=True, slots=True)
class Answer:
    """A column of words."""

    column: str
    words: Mapping[
        str, str
    ]  # the name of the feature of each word; "": the word that others are held against
    optional: str = ""  # the name of the feature of a missing answer; "": it must not be missing
    numbers: bool = False  # whether words are whole numbers, which may also be spelled 1.0

    @property
    def names(self) -> tuple[str, ...]:
        """Those of its features."""
        features = dict.fromkeys(name for name in self.words.values() if name)
        return (*features, self.optional) if self.optional else tuple(features)

    def read(self, cell: str) -> tuple[float, ...]:
        """The features of a cell; a `ValueError` with the rule that it breaks."""
        if self.optional and cell in ("", "?"):
            return (*(0.0 for _ in self.names[:-1]), 1.0)
        word = f"{_numeral(cell):g}" if self.numbers else cell
        if word not in self.words:
            raise ValueError(f"must be one of {', '.join(self.words)}")
        return tuple(float(name == self.words[word]) for name in self.names)


Field = Measure | Answer


def _numeral(cell: str) -> float:
    try:
        return numeral(cell)
    except ValueError:
        raise ValueError("must be a number") from None


def read(path: Path, line: int, field: Field, row: Mapping[str, str]) -> tuple[float, ...]:
    """The features of a column of a row."""
    cell = row[field.column].strip(" ")
    try:
        return field.read(cell)
    except ValueError as error:
        raise UnreadableFile(path, f"{field.column} {error}, got {cell[:_SHOWN]!r}", line) from None


def rows_of(
    path: Path, columns: Sequence[str], header: Sequence[str] = ()
) -> Iterator[tuple[int, dict[str, str]]]:
    """Line and cells by column of every row; a file without a header has the columns of `header`."""
    content = read_bytes(path, _LARGEST)
    if len(content) > _LARGEST:
        raise UnreadableFile(path, f"must have at most {_LARGEST:,} bytes of text, got more")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UnreadableFile(path, f"not UTF-8 text ({error})") from error
    rows = rows_in(io.StringIO(text, newline=""), path)
    names = list(header) or _header(path, columns, next(rows, (1, [])))
    positions = {column: names.index(column) for column in columns}
    empty = True
    for line, row in rows:
        if len(row) != len(names):
            raise UnreadableFile(path, f"must have {len(names)} columns, got {len(row)}", line)
        empty = False
        yield line, {column: row[position] for column, position in positions.items()}
    if empty:
        raise UnreadableFile(path, "must hold at least one record, got none")


def _header(path: Path, columns: Sequence[str], first: Row) -> list[str]:
    line, cells = first
    names = [cell.strip(" ") for cell in cells]
    for column in columns:
        if names.count(column) != 1:
            got = "several" if column in names else (", ".join(names)[:200] or "none")
            raise UnreadableFile(path, f"header must have one column {column!r}, got {got}", line)
    return names


def every_fifth(owners: Sequence[str]) -> NDArray[np.bool_]:
    """(n,) whether a record is for testing: every fifth of its owner, in their order.

    >>> every_fifth(["a"] * 5 + ["b"] * 4).nonzero()[0]
    array([4])
    """
    seen: Counter[str] = Counter()
    result = np.zeros(len(owners), dtype=np.bool_)
    for position, owner in enumerate(owners):
        seen[owner] += 1
        result[position] = seen[owner] % _EVERY == 0
    return result


def arrays_of(
    features: NDArray[np.float64],
    labels: NDArray[np.int64] | NDArray[np.float64],
    clients: Sequence[str],
    test: NDArray[np.bool_],
    columns: Sequence[str],
    minimum: int,
) -> Arrays:
    """The arrays of a data set; clients with fewer than `minimum` records are left out, and their tests."""
    names = np.array(clients)
    sizes = Counter(clients)
    if minimum > max(sizes.values()):
        rule = f"must be at most {max(sizes.values()):,}, the records of the largest client"
        raise InvalidValue("minimum_rows", rule, minimum)
    large = np.array([sizes[client] >= minimum for client in clients])
    train, held_out = large & ~test, large & test
    return {
        "features": features[train],
        "labels": labels[train],
        "test_features": features[held_out],
        "test_labels": labels[held_out],
        "groups": names[train],
        "columns": np.array(columns),
    }
