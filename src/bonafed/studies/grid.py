"""A study as a value, and the one way its runs are trained.

A study states which cells it needs, by key, and what they show together. A cell is a run, trained like any
other, or a computation that takes as long, such as an exact minimum. Every cell has its own folder,
named after a digest of all that it depends on. A study that is stopped resumes where it was: a finished
cell is read, an unfinished run is resumed. Studies in one folder share the cells they have in common.

What is quick (bounds, prices) is computed when the table is made.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue
from bonafed.sections import Check, Section, key, natural
from bonafed.shown import Cell, Column, Document, Draw, JSONObject, Table
from bonafed.spelling import csv_bytes

if TYPE_CHECKING:
    from bonafed.learning.datasets import Dataset
    from bonafed.runs.folder import RoundRecord

_SILENCE = 30.0  # seconds between two progress messages of a long run
Row = dict[str, Cell]
Tell = Callable[[str], None]
Results = Mapping[Any, JSONObject]  # of finished cells, by key


@dataclass(frozen=True, slots=True)
class StudyCell:
    """A run of a study; or a computation that takes as long as one, and trains under no config."""

    name: str  # of its folder, before the digest
    made_of: Any = None  # plain data: all that it depends on beside the tables
    tables: Mapping[str, Any] = field(default_factory=dict)  # of the config of a run
    dataset: Callable[[], Dataset] | None = None  # data of a run that the config only names
    compute: Callable[[], JSONObject] | None = None  # what is computed in place of a run

    @property
    def folder(self) -> str:
        """Its own: cells that differ in anything have different folders."""
        run = {name: value for name, value in self.tables.get("run", {}).items() if name != "cores"}
        text = json.dumps([{**self.tables, "run": run}, self.made_of], sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:10]
        return f"{re.sub(r'[^A-Za-z0-9.]+', '-', self.name)}-{digest}"


def _no_cells(options: Any) -> Mapping[Any, StudyCell]:
    return {}


@dataclass(frozen=True, slots=True)
class Study:
    """A table and a figure of a paper, reproduced."""

    summary: str  # one line
    options: type[Section]
    show: Callable[[Any, Results], Document]  # of the options and the cells
    cells: Callable[[Any], Mapping[Any, StudyCell]] = _no_cells  # of the options
    details: str = ""  # the rest of the help text
    example: str = ""
    paper: Mapping[str, Any] = field(default_factory=dict)  # what the paper says of these options


@dataclass(frozen=True)
class Grid(Section):
    """Options of every study that trains."""

    out: Path = key(
        lambda _, value: Path(value), Path("studies"), metavar="DIR",
        help="Folder of the cells: a study that was stopped resumes from there.",
    )  # fmt: skip
    seeds: int = key(checks.whole, 1, help="How many seeds to average over.")
    seed: int = key(checks.seed, 0, help="The first of them.")
    cores: int = key(natural, 0, help="Cores to train on; 0: all. Changes time and memory, not the result.")

    @property
    def all_seeds(self) -> range:
        """To average over."""
        return range(self.seed, self.seed + self.seeds)


def run(study: Study, options: Any, tell: Tell | None = None) -> Document:
    """Train what is missing, one run after the other, and show the results; settings that are not the
    paper's are named below them."""
    cells = study.cells(options)
    shown = study.show(options, _train(cells, options.out, tell or (lambda _: None)) if cells else {})
    other = departures(options, study.paper)
    if not other:
        return shown
    each = ", ".join(f"{name} {here} (there {there})" for name, (here, there) in other.items())
    note = f"Not the paper's settings, so its numbers are not to be expected: {each}."
    return replace(
        shown, blocks=(*shown.blocks, note), data={**shown.data, "not_as_in_the_paper": [*other]}
    )


def departures(options: Any, paper: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """The options that are not as the paper has them, by name: what they are here, and there."""
    other = {}
    for name, there in paper.items():
        here = getattr(options, name)
        if here != there:
            other[name.replace("_", " ")] = (_written(here), _written(there))
    return other


def _written(value: Any) -> str:
    if isinstance(value, (int, float)):
        return f"{value:,}" if isinstance(value, int) else f"{value:g}"
    return ", ".join(map(_written, value)) if isinstance(value, tuple) else str(value)


def _train(cells: Mapping[Any, StudyCell], folder: Path, tell: Tell) -> Results:
    results: dict[Any, JSONObject] = {}
    missing = {}
    for place, cell in cells.items():
        summary = read(folder / cell.folder)
        if summary is None:
            missing[place] = cell
        else:
            results[place] = summary
    for number, (place, cell) in enumerate(missing.items(), 1):
        tell(f"{number} of {len(missing)}: {cell.name}")
        results[place] = train(cell, folder / cell.folder, tell)
    return {place: results[place] for place in cells}


def read(folder: Path) -> JSONObject | None:
    """The result of a cell; None if it is not finished."""
    from bonafed.runs import folder as folders

    return folders.read_json(folder, folders.SUMMARY) if folders.is_finished(folder) else None


def train(
    cell: StudyCell, folder: Path, tell: Tell, clock: Callable[[], float] = time.monotonic
) -> JSONObject:
    """The summary of a run, trained from the beginning or resumed; or of what is computed."""
    from bonafed.runs import config, setting, training
    from bonafed.runs import folder as folders

    if cell.compute is not None:
        folder.mkdir(parents=True, exist_ok=True)
        summary = cell.compute()
        folders.end(folder, {}, summary)
        return summary
    dataset = None if cell.dataset is None else cell.dataset()
    ready = setting.prepare(config.from_tables(cell.tables), dataset=dataset, on_progress=tell)
    rounds, last = ready.mechanism.rounds, clock()

    def on_round(record: RoundRecord) -> None:
        nonlocal last
        if clock() - last >= _SILENCE:
            last = clock()
            tell(f"{cell.name}: round {record.round} of {rounds}")

    resume = folders.holds_run(folder)
    return training.train(ready, folder, resume=resume, on_round=on_round).summary


# What studies have in common


def contents(data: str) -> str | None:
    """A digest of the user's own file, which may be another tomorrow under the same name; else None."""
    from bonafed.learning.datasets import is_own_file

    path = Path(data).expanduser()
    return hashlib.sha256(path.read_bytes()).hexdigest() if is_own_file(data) and path.is_file() else None


class Average(NamedTuple):
    """Mean and standard deviation, entry by entry."""

    mean: Floats
    sd: Floats


def average(values: Floats, axis: int = 0) -> Average:
    """Over one axis; the spread of a single value is 0."""
    single = values.shape[axis] == 1
    return Average(
        values.mean(axis), np.zeros_like(values.mean(axis)) if single else values.std(axis, ddof=1)
    )


def increasing(name: str, values: Iterable[float], *, at_least: int = 1, zero: bool = False) -> Floats:
    """(m,) positive numbers, each above the one before; the first may be 0 if `zero`."""
    result = checks.vector(name, list(values), sign="non-negative" if zero else "positive")
    if result.size < at_least:
        raise InvalidValue(name, f"must be at least {at_least} numbers", result.size)
    if np.any(np.diff(result) <= 0):
        at = int(np.argmax(np.diff(result) <= 0)) + 1
        raise InvalidValue(name, "must be increasing", f"{result[at]:g} at position {at}")
    return result


def rising(*, at_least: int = 1, zero: bool = False) -> Check:
    """The rule of a key that holds increasing numbers."""
    return lambda name, value: tuple(increasing(name, value, at_least=at_least, zero=zero).tolist())


def several(check: Check) -> Check:
    """The rule of a key that holds one or more values, each once."""

    def rule(name: str, value: Any) -> tuple[Any, ...]:
        items = (value,) if isinstance(value, str) or not isinstance(value, Sequence) else value
        if not items:
            raise InvalidValue(name, "must have at least one entry", "none")
        return tuple(dict.fromkeys(check(name, item) for item in items))

    return rule


def report(
    title: str, rows: Sequence[Row], figure: Draw, *, tables: Table | Sequence[Table] | None = None,
    notes: Sequence[str] = (), facts: Mapping[str, Any] | None = None,
) -> Document:  # fmt: skip
    """A document of rows with the same columns: as a table, as plain data and as CSV.

    `tables` are for people, where the rows themselves are too many or too long.
    """
    if tables is None:
        tables = table_of(title, rows)
    blocks = (tables,) if isinstance(tables, Table) else tables
    data = {"rows": [dict(row) for row in rows], **(facts or {})}
    return Document((*blocks, *notes), data, figure, {"csv": as_csv(rows)})


def drawing(place: str, what: Any) -> Draw:
    """The figure that a function of this package makes; its module is loaded when somebody asks for it."""
    module, _, function = place.rpartition(".")
    return lambda: getattr(importlib.import_module(f"{__package__}.{module}"), function)(what)


def table_of(title: str, rows: Sequence[Row], form: str = ".5g", caption: str = "") -> Table:
    """All rows; empty where a number is NaN."""
    columns = tuple(
        Column(name.replace("_", " "), _form(value, form), left=isinstance(value, str))
        for name, value in rows[0].items()
    )
    cells = tuple(tuple(None if value != value else value for value in row.values()) for row in rows)
    return Table(title, columns, cells, caption)


def _form(value: Cell, form: str) -> str:
    return "" if isinstance(value, str) else "," if isinstance(value, int) else form


def as_csv(rows: Sequence[Row]) -> bytes:
    """All digits."""
    header = list(rows[0])
    return csv_bytes([header, *([row[name] for name in header] for row in rows)])


def rows_of(**columns: Any) -> list[dict[str, Cell]]:
    """Rows of columns of equal length."""
    values = zip(*(np.asarray(column).tolist() for column in columns.values()), strict=True)
    return [dict(zip(columns, row, strict=True)) for row in values]
