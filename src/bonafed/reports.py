"""Files of numbers that users hand over: costs, losses, shares, one per client and by name.

A CSV file with one column, or with a header that names them. Errors name the line.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np

from bonafed.checks import Floats
from bonafed.errors import InvalidValue, UnreadableFile

_SEVERAL = {"cost": "costs", "loss": "losses", "share": "shares", "max_epsilon": "caps"}


def read_costs(path: Path, what: str = "cost") -> Floats:
    """Costs from a CSV file: its column `cost`, or its only column; an error names the line.

    `what` is the name of the column: a cost, a loss, a share or a cap.
    """
    rows = _rows(path)
    if not rows:
        raise UnreadableFile(path, f"the file holds no {_SEVERAL[what]}")
    column, start = _column(path, rows[0], what)
    costs = []
    for line, row in rows[start:]:
        word = row[column].strip()
        try:
            cost = float(word)
        except ValueError:
            raise UnreadableFile(path, f"{what} must be a number, got {word!r}", line) from None
        if not math.isfinite(cost) or cost < 0:
            rule = "must be finite" if not math.isfinite(cost) else "must not be negative"
            raise UnreadableFile(path, f"{what} {rule}, got {word}", line)
        costs.append(cost)
    if not costs:
        raise UnreadableFile(path, f"the file holds no {_SEVERAL[what]}")
    return np.array(costs)


def read_clients(path: Path) -> list[str] | None:
    """The names of the clients of such a file: its column `client`, if it has one; none twice.

    Numbers in order from 0, which are written where there are no names, do not count as names.
    """
    rows = _rows(path)
    names = [cell.strip().lower() for cell in rows[0][1]] if rows else []
    if "client" not in names:
        return None
    lines: dict[str, int] = {}
    for line, row in rows[1:]:
        name = row[names.index("client")].strip()
        if not name:
            raise UnreadableFile(path, "client has no name", line)
        if name in lines:
            raise UnreadableFile(path, f"duplicate client {name!r}, first in line {lines[name]}", line)
        lines[name] = line
    return None if list(lines) == list(map(str, range(len(lines)))) else list(lines)


def read_columns(path: Path, names: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The cells of these columns, row by row, of a file with a header."""
    rows = _rows(path)
    header = [cell.strip().lower() for cell in rows[0][1]] if rows else []
    for name in names:
        if header.count(name) != 1:
            raise UnreadableFile(path, f"must have a header with one column '{name}'", 1)
    places = [header.index(name) for name in names]
    return [tuple(row[place].strip() for place in places) for _, row in rows[1:]]


def _rows(path: Path) -> list[tuple[int, list[str]]]:
    """The non-empty lines of a CSV file with their numbers; all have the same number of cells."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = [(n, row) for n, row in enumerate(csv.reader(file), 1) if any(map(str.strip, row))]
    except OSError as error:
        raise UnreadableFile(path, error.strerror or str(error)) from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise UnreadableFile(path, f"not a text file of numbers ({error})") from error
    for line, row in rows[:1]:
        if any(";" in cell for cell in row):
            raise UnreadableFile(path, "cells must be separated by commas, got ';'", line)
    for line, row in rows:
        if len(row) != len(rows[0][1]):
            cells = f"{len(rows[0][1])} cells separated by commas, got {len(row)}"
            raise UnreadableFile(path, f"a row must have {cells}", line)
    return rows


def _column(path: Path, first: tuple[int, list[str]], what: str) -> tuple[int, int]:
    """Which column holds the numbers, and at which row they start (1 after a header)."""
    line, cells = first
    names = [cell.strip().lower() for cell in cells]
    if names.count(what) > 1:
        raise UnreadableFile(path, f"must have one column '{what}', got {names.count(what)}", line)
    if what in names:
        return names.index(what), 1
    if len(cells) > 1:
        raise UnreadableFile(path, f"must have one column, or a header with a column '{what}'", line)
    try:
        float(names[0])
    except ValueError:
        return 0, 1  # a header of another name
    return 0, 0


def read_one_per_client(path: Path, option: str, what: str, clients: int) -> Floats:
    """(clients,) numbers from the CSV file that an option names."""
    values = read_costs(path, what)
    if values.size != clients:
        rule = f"must hold {clients} {_SEVERAL[what]}, one per client"
        raise InvalidValue(option, rule, values.size)
    return values


def read_reports(path: Path, what: str) -> dict[str, float]:
    """What each client states, by name; numbered from 0 in file order where there is no other column."""
    for line, row in _rows(path)[:1]:
        header = [cell.strip().lower() for cell in row]
        if len(header) > 1 and what in header and "client" not in header:
            raise UnreadableFile(path, f"must have a column 'client', or the column '{what}' alone", line)
    values = read_costs(path, what).tolist()
    names = read_clients(path) or [str(number) for number in range(len(values))]
    return dict(zip(names, values, strict=True))
