"""What is shown to people, as data: tables and documents for a terminal, a notebook and a program.

A `Document` is what a command says or a value shows of itself: blocks of tables and sentences, the same
numbers as plain data for programs, and a figure. Nothing here knows a terminal: `bonafed.cli` renders a
document in colour, `str()` as plain text, a notebook as HTML. Whatever it says is printable, wherever its
names came from; the plain data hold them as they are.
"""

from __future__ import annotations

import html
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unicodedata import east_asian_width

from bonafed.text import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure  # heavy: drawn only on request

Cell = str | float | int | bool | None
JSONObject = dict[str, Any]
Draw = Callable[[], "Figure"]


def plain(value: Any) -> Any:
    """A value as plain data: text, numbers, truth values, None, lists and dictionaries, as JSON has them.

    NumPy's numbers and arrays become Python's, NaN and infinity None. Whatever else there is, is a mistake
    of whoever shows it.

    >>> import numpy as np
    >>> plain({"holds": np.bool_(True), "gains": np.array([0.5, np.inf]), "pair": (np.int64(1), None)})
    {'holds': True, 'gains': [0.5, None], 'pair': [1, None]}
    >>> plain({1, 2})
    Traceback (most recent call last):
        ...
    TypeError: what is shown must be plain data, not set
    """
    if value is None or (isinstance(value, (str, bool, int)) and type(value).__module__ != "numpy"):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {plain_key(key): plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    if hasattr(value, "tolist"):  # of NumPy
        return plain(value.tolist())
    raise TypeError(f"what is shown must be plain data, not {type(value).__name__}")


def plain_key(key: Any) -> str:
    """The key of a dictionary, which is text."""
    if not isinstance(key, str):
        raise TypeError(f"a key of what is shown must be text, not {type(key).__name__}")
    return str(key)


def plain_cell(cell: Any) -> Any:
    """A cell of a table, of Python's own kinds; that a number is not finite is shown."""
    return cell.item() if hasattr(cell, "item") else cell


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table: its heading, and how its numbers are written."""

    name: str
    form: str = ""  # a format such as ".4f" or ",.2f"; empty: as it is
    left: bool = False  # words are aligned left, numbers right

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", printable(self.name))

    def text(self, cell: Cell) -> str:
        """A cell as it is shown; nothing for None, yes and no for truth values."""
        if cell is None:
            return ""
        if isinstance(cell, bool):
            return "yes" if cell else "no"
        if isinstance(cell, str):
            return printable(cell)
        if not math.isfinite(cell):
            return "not finite"
        return format(cell, self.form) if self.form else str(cell)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells under named columns.

    >>> print(Table("Terms", (Column("client", left=True), Column("payment", ".2f")), (("ada", 1.5),)))
    Terms
    client  payment
    ada        1.50
    """

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""

    def __post_init__(self) -> None:
        for name in ("title", "caption"):
            object.__setattr__(self, name, printable(getattr(self, name)))
        rows = tuple(tuple(map(plain_cell, row)) for row in self.rows)
        object.__setattr__(self, "rows", rows)

    @property
    def cells(self) -> list[list[str]]:
        """Every row as it is shown."""
        return [
            [column.text(cell) for column, cell in zip(self.columns, row, strict=True)] for row in self.rows
        ]

    def __str__(self) -> str:
        lines = [[column.name for column in self.columns], *self.cells]
        widths = [max(_places(line[place]) for line in lines) for place in range(len(self.columns))]
        text = [
            "  ".join(
                cell + " " * (width - _places(cell))
                if column.left
                else " " * (width - _places(cell)) + cell
                for cell, width, column in zip(line, widths, self.columns, strict=True)
            ).rstrip()
            for line in lines
        ]
        if not any(column.name for column in self.columns):
            text = text[1:]
        return "\n".join(filter(None, (self.title, *text, self.caption)))

    def _repr_html_(self) -> str:
        def row(cells: Sequence[str], tag: str) -> str:
            sides = ("left" if column.left else "right" for column in self.columns)
            styled = (
                f'<{tag} style="text-align:{side}">{html.escape(cell)}</{tag}>'
                for cell, side in zip(cells, sides, strict=True)
            )
            return f"<tr>{''.join(styled)}</tr>"

        head = row([column.name for column in self.columns], "th")
        body = "".join(row(cells, "td") for cells in self.cells)
        below = f"<p>{html.escape(self.caption)}</p>" if self.caption else ""
        caption = f"<caption>{html.escape(self.title)}</caption>" if self.title else ""
        return f"<table>{caption}{head}{body}</table>{below}"


def _places(text: str) -> int:
    """The width of a text on a screen: letters of some scripts take two places."""
    return sum(1 + (east_asian_width(letter) in "WF") for letter in text)


def counted(number: int, what: str, several: str = "") -> str:
    """So many of something, whose plural ends in s unless it is given.

    >>> counted(1, "client"), counted(1000, "more client"), counted(2, "class", "classes")
    ('1 client', '1,000 more clients', '2 classes')
    """
    return f"{number:,} " + (what if number == 1 else several or f"{what}s")


def pairs(title: str, rows: Sequence[tuple[str, Cell]], caption: str = "") -> Table:
    """A table of names and values, without a heading row."""
    return Table(title, (Column("", left=True), Column("")), tuple(rows), caption)


@dataclass(frozen=True, slots=True)
class Curve:
    """One curve of a sketch, with a scale of its own."""

    label: str
    values: Sequence[float]  # one for each x
    bottom: float
    top: float


@dataclass(frozen=True, slots=True)
class Sketch:
    """Up to two curves over the same x, drawn with dots in a terminal; a notebook draws the figure."""

    label: str  # of x
    x: Sequence[float]  # increasing
    curves: tuple[Curve, ...]

    def __str__(self) -> str:
        from bonafed.presentation.sketch import pieces

        return "".join(text for text, _ in pieces(self))


Block = Table | Sketch | str  # a sentence or a paragraph


@dataclass(frozen=True, slots=True)
class Document:
    """The output of a command, in order."""

    blocks: tuple[Block, ...]
    data: Mapping[str, Any] = field(default_factory=dict)  # the same for programs; all that --json prints
    figure: Draw | None = None  # what --plot draws
    files: Mapping[str, bytes] = field(default_factory=dict)  # what can be saved, by what it is
    lacking: Mapping[str, str] = field(default_factory=dict)  # why there is no such file: what it needs
    holds: bool = True  # whether every claim and check in it holds: the exit code

    def __post_init__(self) -> None:
        blocks = (printable(block) if isinstance(block, str) else block for block in self.blocks)
        object.__setattr__(self, "blocks", tuple(blocks))
        object.__setattr__(self, "data", plain(self.data))
        object.__setattr__(self, "holds", bool(self.holds))

    def __str__(self) -> str:
        return "\n\n".join(str(block) for block in self.blocks)

    def _repr_html_(self) -> str:
        return "".join(
            block._repr_html_() if isinstance(block, Table) else f"<p>{html.escape(block)}</p>"
            for block in self.blocks
            if not isinstance(block, Sketch)
        )

    def plot(self, path: Path | str | None = None) -> Figure:
        """The figure; also written to a .png, .svg or .pdf file if a path is given."""
        return _drawn(self, "this document", path)


class Shown(ABC):
    """A value that can be shown as text, in a notebook, as plain data and as a figure.

    Dataclasses of this kind set `repr=False`: a `repr` is one line, as values may hold whole models.
    """

    __slots__ = ()

    @abstractmethod
    def document(self) -> Document:
        """What there is to see."""

    def __str__(self) -> str:
        return str(self.document())

    def __repr__(self) -> str:
        blocks = self.document().blocks
        headline = str(blocks[0]).partition("\n")[0] if blocks else ""
        return f"<{type(self).__name__}: {headline}>"

    def _repr_html_(self) -> str:
        return self.document()._repr_html_()

    def plot(self, path: Path | str | None = None) -> Figure:
        """The figure; also written to a .png, .svg or .pdf file if a path is given."""
        return _drawn(self.document(), type(self).__name__, path)


def _drawn(document: Document, owner: str, path: Path | str | None) -> Figure:
    from bonafed.errors import InvalidValue

    if document.figure is None:
        raise InvalidValue("plot", "needs a value that has a figure", owner)
    figure = document.figure()
    if path is not None:
        from bonafed.files import write_together
        from bonafed.presentation.figures import render

        write_together({Path(path): render(figure, Path(path))})
    return figure
