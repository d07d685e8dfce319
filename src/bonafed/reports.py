"""Files of numbers that users hand over: costs, losses, shares, one per client and by name.

A CSV file with one column, or with a header that names them. A first line is a header if it holds the name
of the column that is asked for, and otherwise data like every other line: nobody's number is skipped
because it is misspelt. Errors name the line. Names that bonafed itself wrote read back as they were
(`bonafed.text.from_cell`), so that terms it exported can be handed over as reports.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue, UnreadableFile
from bonafed.text import alike, from_cell, numeral

_SEVERAL = {"loss": "losses", "max_epsilon": "caps"}  # where it is not an s that is added
Row = tuple[int, list[str]]  # the line it ends in, and its cells


def rows_in(stream: Iterable[str], path: Path) -> Iterator[Row]:
    """Every row of a table but empty lines; the path is for errors."""
    reader = csv.reader(stream, strict=True)
    try:
        for row in reader:
            if row:
                yield reader.line_num, row
    except csv.Error as error:
        raise UnreadableFile(path, f"not a table: {error}", reader.line_num) from error


def csv_rows(path: Path) -> Iterator[Row]:
    """Every row of a CSV file but empty lines, whatever it is about."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            for number, (line, row) in enumerate(rows_in(stream, path)):
                if not number:
                    _require_commas(path, line, row)
                yield line, row
    except OSError as error:
        raise UnreadableFile(path, error.strerror or str(error)) from error
    except UnicodeDecodeError as error:
        raise UnreadableFile(path, f"not UTF-8 text ({error})") from error


def _require_commas(path: Path, line: int, first: list[str]) -> None:
    """The first row tells what separates cells."""
    separators = {";": "';'", "\t": "a tab"}
    for mark, separator in separators.items():
        if any(mark in cell for cell in first):
            rule = f"cells must be separated by commas, got {separator}: save the table with commas"
            raise UnreadableFile(path, rule, line)


def cell_name(path: Path, line: int, what: str, cell: str) -> str:
    """The name in a cell, by the one rule for names."""
    name = from_cell(cell.strip(" "))
    if not name:
        raise UnreadableFile(path, f"{what} has no name", line)
    try:
        return checks.one_name(what, name)
    except InvalidValue as error:
        raise UnreadableFile(path, str(error), line) from error


def require_distinct(path: Path, what: str, named: Iterable[tuple[int, str]], *, once: bool = True) -> None:
    """Refuse two names that read alike, with both lines; with `once` also a name that occurs again."""
    first: dict[str, tuple[int, str]] = {}
    for line, name in named:
        before, other = first.setdefault(alike(name), (line, name))
        if name != other:
            rule = f"{what} must differ from {other!r} in line {before} by more than case, width or spaces"
            raise UnreadableFile(path, f"{rule}, got {name!r}", line)
        if once and line != before:
            raise UnreadableFile(path, f"duplicate {what} {name!r}, first in line {before}", line)


def read_costs(path: Path, what: str = "cost") -> Floats:
    """Costs from a CSV file: its column `cost`, or its only column; an error names the line.

    `what` is the name of the column: a cost, a loss, a share or a cap.
    """
    rows = _rows(path)
    if not rows:
        raise UnreadableFile(path, f"the file holds no {_several(what)}")
    column, start = _column(path, rows[0], what)
    costs = []
    for line, row in rows[start:]:
        word = row[column].strip(" ")
        try:
            cost = numeral(word)
        except ValueError:
            header = f", or the header '{what}'" if (line, row) == rows[0] else ""
            raise UnreadableFile(
                path, f"{what} must be a number{header}, got {word[:60]!r}", line
            ) from None
        if not math.isfinite(cost) or cost < 0:
            rule = "must be finite" if not math.isfinite(cost) else "must not be negative"
            raise UnreadableFile(path, f"{what} {rule}, got {word[:60]}", line)
        costs.append(cost)
    if not costs:
        raise UnreadableFile(path, f"the file holds no {_several(what)}")
    return np.array(costs)


def _several(what: str) -> str:
    return _SEVERAL.get(what, f"{what}s")


def read_clients(path: Path) -> list[str] | None:
    """The names of the clients of such a file: its column `client`, if it has one; no two alike.

    Numbers in order from 0, which are written where there are no names, do not count as names.
    """
    rows = _rows(path)
    header = _header(rows)
    if "client" not in header:
        return None
    if header.count("client") > 1:
        raise UnreadableFile(
            path, f"must have one column 'client', got {header.count('client')}", rows[0][0]
        )
    names = _names(path, rows[1:], header.index("client"))
    return None if names == list(map(str, range(len(names)))) else names


def read_columns(path: Path, names: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The cells of these columns, row by row, of a file with a header; clients by name, no two alike."""
    rows = _rows(path)
    header = _header(rows)
    for name in names:
        if header.count(name) != 1:
            raise UnreadableFile(path, f"must have a header with one column '{name}'", 1)
    columns = [
        _names(path, rows[1:], header.index(name))
        if name == "client"
        else [row[header.index(name)].strip(" ") for _, row in rows[1:]]
        for name in names
    ]
    return list(zip(*columns, strict=True))


def _names(path: Path, rows: list[Row], column: int) -> list[str]:
    names = [cell_name(path, line, "client", row[column]) for line, row in rows]
    require_distinct(path, "client", ((line, name) for (line, _), name in zip(rows, names, strict=True)))
    return names


def _header(rows: list[Row]) -> list[str]:
    return [cell.strip(" ").lower() for cell in rows[0][1]] if rows else []


def _rows(path: Path) -> list[Row]:
    """The rows of a CSV file of reports that are not blank; all have the same number of cells."""
    rows = [(line, row) for line, row in csv_rows(path) if any(cell.strip(" ") for cell in row)]
    for line, row in rows:
        if len(row) != len(rows[0][1]):
            cells = f"{len(rows[0][1])} cells separated by commas, got {len(row)}"
            raise UnreadableFile(path, f"a row must have {cells}", line)
    return rows


def _column(path: Path, first: Row, what: str) -> tuple[int, int]:
    """Which column holds the numbers, and at which row they start (1 after a header)."""
    line, cells = first
    names = _header([first])
    if names.count(what) > 1:
        raise UnreadableFile(path, f"must have one column '{what}', got {names.count(what)}", line)
    if what in names:
        return names.index(what), 1
    if len(cells) > 1:
        raise UnreadableFile(path, f"must have one column, or a header with a column '{what}'", line)
    return 0, 0


def read_matrix(path: Path) -> Floats:
    """The numbers of a CSV file without a header, row by row."""
    rows = []
    for line, row in _rows(path):
        try:
            rows.append([numeral(cell) for cell in row])
        except ValueError as error:
            raise UnreadableFile(path, f"must be rows of numbers ({error})", line) from None
    return np.array(rows, ndmin=2)


def read_one_per_client(path: Path, option: str, what: str, clients: int) -> Floats:
    """(clients,) numbers from the CSV file that an option names."""
    values = read_costs(path, what)
    if values.size != clients:
        rule = f"must hold {clients} {_several(what)}, one per client"
        raise InvalidValue(option, rule, values.size)
    return values


class ReportsFile:
    """A file of reports before anybody has said which of its columns is asked for."""

    def __init__(self, path: Path) -> None:
        self._path, self._rows = path, _rows(path)
        names = read_clients(path)
        if names is None:
            headed = len(self._rows) - any(_is_word(cell) for cell in _header(self._rows))
            names = [str(number) for number in range(headed)]
        self.names = tuple(names)

    def answers(self, what: str | None) -> dict[str, float]:
        """What each client states, by name; None: nothing is asked for, and nothing may be stated."""
        if what is None:
            rule = "cannot be used: this mechanism asks clients for nothing"
            raise InvalidValue("--reports", rule, self._path)
        return read_reports(self._path, what)


def _is_word(cell: str) -> bool:
    try:
        numeral(cell)
    except ValueError:
        return True
    return False


def read_reports(path: Path, what: str) -> dict[str, float]:
    """What each client states, by name; numbered from 0 in file order where there is no other column."""
    values = read_costs(path, what).tolist()
    for line, row in _rows(path)[:1]:
        header = _header([(line, row)])
        if len(header) > 1 and what in header and "client" not in header:
            raise UnreadableFile(path, f"must have a column 'client', or the column '{what}' alone", line)
    names = read_clients(path) or [str(number) for number in range(len(values))]
    return dict(zip(names, values, strict=True))
