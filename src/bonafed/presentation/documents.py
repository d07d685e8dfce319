"""What is shown to people, as data: tables and documents for a terminal, a notebook and a program.

A `Document` is what a command says or a value shows of itself: blocks of tables and sentences, the same
numbers as plain data for programs, and a figure. Nothing here knows a terminal: `bonafed.cli` renders a
document in colour, `str()` as plain text, a notebook as HTML. Whatever it says is printable, wherever its
names came from; the plain data hold them as they are.

A `Sketch` is a small plot made of braille dots, for a look at a contract without leaving the terminal.
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

import numpy as np
from numpy.typing import NDArray

from bonafed.checks import Floats
from bonafed.errors import InvalidValue
from bonafed.files import write_together
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
        widths = [max(_cells_wide(line[k]) for line in lines) for k in range(len(self.columns))]
        text = [
            "  ".join(
                cell + " " * (width - _cells_wide(cell))
                if column.left
                else " " * (width - _cells_wide(cell)) + cell
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


def _cells_wide(text: str) -> int:
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
class SketchCurve:
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
    curves: tuple[SketchCurve, ...]

    def __str__(self) -> str:
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
    if document.figure is None:
        raise InvalidValue("plot", "needs a value that has a figure", owner)
    figure = document.figure()
    if path is not None:
        from bonafed.presentation.figures import render

        write_together({Path(path): render(figure, Path(path))})
    return figure


_DOTS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])  # dot of row, column
_MOST, _LEAST, _ROWS = 56, 16, 10  # characters side by side, and above each other
Piece = tuple[str, int | None]  # a text, and the curve that it belongs to


def pieces(sketch: Sketch, width: int = 80) -> list[Piece]:
    """The text of a sketch, row by row, as wide as fits; whoever prints it may colour the curves.

    Nothing is left where so little fits that no curve could be read.
    """
    x = np.asarray(sketch.x, dtype=np.float64)
    curves = sketch.curves
    tops, bottoms = [f"{c.top:.3g}" for c in curves], [f"{c.bottom:.3g}" for c in curves]
    margin = max(len(tops[0]), len(bottoms[0]))
    right_margin = max(len(tops[1]), len(bottoms[1])) + 2 if len(curves) > 1 else 0
    columns = min(_MOST, width - margin - 2 - right_margin)
    if columns < _LEAST:
        return []
    canvases = [
        _dots(x, np.asarray(c.values, dtype=np.float64), (c.bottom, c.top), columns) for c in curves
    ]
    text: list[Piece] = []
    for row in range(_ROWS):
        left = tops[0] if row == 0 else bottoms[0] if row == _ROWS - 1 else ""
        text.append((f"{left:>{margin}} ┤", 0))
        text += [_character([canvas[row, column] for canvas in canvases]) for column in range(columns)]
        if len(curves) > 1:
            right = tops[1] if row == 0 else bottoms[1] if row == _ROWS - 1 else ""
            text.append((f"├ {right}".rstrip(), 1))
        text.append(("\n", None))
    text.append((f"{'':>{margin}} └{'─' * columns}\n", None))
    first, last = f"{x[0]:.3g}", f"{x[-1]:.3g}"
    text.append((f"{'':>{margin}}  {first}{sketch.label:^{columns - len(first) - len(last)}}{last}", None))
    text += [(f"\n{'':>{margin}}  ── {curve.label}", number) for number, curve in enumerate(curves)]
    return text


def _character(cell: Sequence[np.int64]) -> Piece:
    """Where curves cross, the first one is on top."""
    owner = next((number for number, dots in enumerate(cell) if dots), None)
    return chr(0x2800 + (0 if owner is None else int(cell[owner]))), owner


def _dots(x: Floats, values: Floats, scale: tuple[float, float], columns: int) -> NDArray[np.int64]:
    """(rows, columns) bit patterns of a curve."""
    wide, tall = 2 * columns, 4 * _ROWS
    at = np.interp(np.linspace(x[0], x[-1], wide), x, values)
    span = scale[1] - scale[0] or 1.0
    height = np.clip(np.round((at - scale[0]) / span * (tall - 1)), 0, tall - 1).astype(int)
    canvas = np.zeros((_ROWS, columns), dtype=np.int64)
    for column in range(wide):
        low, high = sorted((height[max(column - 1, 0)], height[column]))
        for level in range(low + (low < high), high + 1):  # join steps by a vertical line
            down = tall - 1 - level
            canvas[down // 4, column // 2] |= _DOTS[down % 4, column % 2]
    return canvas
