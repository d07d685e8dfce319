"""How all figures look, how a statement is drawn, and how figures become files.

There is no screen, and no global state of Matplotlib.
"""

from __future__ import annotations

import io
import unicodedata
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont, fontManager, get_font
from matplotlib.text import Text

from bonafed.errors import InvalidValue
from bonafed.files import PICTURES
from bonafed.text import printable

if TYPE_CHECKING:
    from bonafed.economics.statement import Statement

BLUE, RED, GREY, GREEN = "#1f6f8b", "#c8553d", "#8a8a8a", "#4a7c59"
COLOURS = (BLUE, RED, GREEN, "#8e6c8a", "#d49a3a", GREY)
STYLES = ("-", "--", ":", "-.")
_NAMED, _SOME = 30, 12  # clients that can all have their name under a bar; of more, how many have
_DRAWN, _LINE = 0.75, 0.19  # share of a panel that is drawn in; inches along an axis that a name needs
_LETTERS = 20  # of a name in a figure, at most
_FONT = "DejaVu Sans"  # which comes with Matplotlib
# of those that are not installed nothing is said; a letter is drawn in the first that has it
_MORE_FONTS = (
    "Noto Sans CJK SC", "Noto Sans CJK JP", "Noto Sans SC", "Source Han Sans SC", "Microsoft YaHei",
    "PingFang SC", "Hiragino Sans GB", "Hiragino Sans", "Yu Gothic", "Malgun Gothic", "Apple SD Gothic Neo",
    "SimHei", "MS Gothic", "WenQuanYi Zen Hei", "WenQuanYi Micro Hei", "Droid Sans Fallback",
    "Arial Unicode MS", "Nirmala UI", "Unifont",
)  # fmt: skip
_SCREEN = 96  # pixels of a page in an inch
_LONG = 2  # letters of a name that stand side by side
_UNIT = 20  # letters, at most
_TITLE_LETTER, _MARGIN = 0.105, 0.9  # inches: of a letter of the title, and beside the panel


class Sheet(Figure):
    """A figure that a notebook shows, also where pyplot, which otherwise sees to it, was never imported.

    Letters that Matplotlib's own font lacks are drawn in other fonts of this machine.
    """

    def draw(self, renderer: Any) -> None:
        for text in self.findobj(Text):
            text.set_fontfamily(_families())
        super().draw(renderer)

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        """The picture, and its size on a page. A notebook that uses pyplot asks pyplot instead."""
        width, height = (round(side * _SCREEN) for side in self.get_size_inches())
        return saved(self, "png", dpi=2 * _SCREEN), {"width": width, "height": height}


def sheet(width: float, height: float) -> Sheet:
    """An empty figure, in inches. All figures begin here."""
    figure = Sheet(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def name_clients(axes: Axes, names: Sequence[str], order: str = "") -> None:
    """Under the bars 0, 1, ... the clients' names, as tables have them; of many clients, of evenly spread
    ones. A position in the figure is nobody's name, so no other number stands there."""
    bars, who = list(range(len(names))), "client"
    grid, figure = axes.get_subplotspec(), axes.get_figure(root=True)
    assert figure is not None  # axes are made in one
    panel = figure.get_figwidth() / (1 if grid is None else grid.get_gridspec().ncols)
    room = int(_DRAWN * panel / _LINE)
    if len(names) > min(_NAMED, room):
        bars = np.unique(np.linspace(0, len(names) - 1, _SOME).round().astype(int)).tolist()
        who = f"{len(names):,} clients"
    shown = [words(names[bar], _LETTERS) for bar in bars]
    slanted = max(map(_width, shown), default=0) > _LONG
    axes.set_xlabel(", ".join(filter(None, (who, order))))
    axes.set_xticks(
        bars, shown, rotation=60 if slanted else 0, ha="right" if slanted else "center",
        rotation_mode="anchor" if slanted else "default", fontsize=8, parse_math=False,
    )  # fmt: skip


def words(text: str, most: int = 0) -> str:
    r"""A text from outside as a figure can show it: letters that no font at hand has are spelled out.

    If `most` is given, at most so many letters are shown: both ends. Wide letters count twice.

    >>> words("\N{ZERO WIDTH SPACE}eve")
    '\\u200beve'
    >>> words("hospital of the holy spirit, ward 17", 20)
    'hospital of...ard 17'
    """
    pieces = [_piece(letter) for letter in printable(text)]
    whole = "".join(pieces)
    if not most or sum(map(_width, pieces)) <= most:
        return whole
    end = max(1, most * 3 // 10)
    return f"{_start(pieces, most - end - 3)}...{_start(pieces[::-1], end, backwards=True)}"


def _start(pieces: Sequence[str], room: int, *, backwards: bool = False) -> str:
    """As many of the pieces as there is room for, at least one."""
    ends = np.cumsum([_width(piece) for piece in pieces])
    kept = list(pieces[: max(1, int(np.searchsorted(ends, room, side="right")))])
    return "".join(kept[::-1] if backwards else kept)


def _width(piece: str) -> int:
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in piece)


@cache
def _piece(letter: str) -> str:
    """A letter, or what is drawn instead of it."""
    if _is_drawn(letter):
        return letter
    plain = unicodedata.normalize("NFKC", letter)  # full-width signs as usual ones; names differ by more
    return plain if _is_drawn(plain) else letter.encode("unicode_escape").decode()


def _is_drawn(text: str) -> bool:
    return all(any(ord(letter) in letters for letters in map(_letters_of, _families())) for letter in text)


@cache
def _families() -> tuple[str, ...]:
    """The fonts that text is drawn in, in order: Matplotlib's own, and what else is installed."""
    installed = {font.name for font in fontManager.ttflist}
    return (_FONT, *(name for name in _MORE_FONTS if name in installed))


@cache
def _letters_of(family: str) -> frozenset[int]:
    """The letters that a font has."""
    return frozenset(get_font(findfont(family)).get_charmap())


def render(figure: Figure, path: Path) -> bytes:
    """The figure as the content of a file of the path's format; the same bytes every time."""
    kind = path.suffix.lower()
    if kind not in PICTURES:
        raise InvalidValue("--plot", "must end in .png, .svg or .pdf", path)
    return saved(figure, kind[1:])


def saved(
    figure: Figure, kind: str, *, dpi: int = 150, letters: bool = False, transparent: bool = False
) -> bytes:
    """The figure as a png, svg or pdf; with `letters`, an svg has its words as words, not as outlines."""
    buffer = io.BytesIO()
    metadata = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
    # names inside an svg are random unless salted; words need a font, which every reader has
    settings: dict[Any, Any] = {"svg.hashsalt": "bonafed", "svg.fonttype": "none" if letters else "path"}
    with rc_context(settings):
        figure.savefig(buffer, format=kind, dpi=dpi, metadata=metadata[kind], transparent=transparent)
    return buffer.getvalue()


def statement_figure(statement: Statement) -> Figure:
    """Bars in the order of the roster; what a client owes is below zero and red."""
    if statement.figure_column == "amount":
        heights = list(statement.amount)
        label = f"amount ({words(statement.unit, _UNIT)})"
    else:
        cells = statement.columns[statement.figure_column]
        heights = [float(cell) if isinstance(cell, (int, float)) else float("nan") for cell in cells]
        label = words(statement.figure_column.replace("_", " "), _UNIT)
    width, of = min(12.0, 4.0 + 0.15 * len(heights)), "Statement of "
    room = int((width - _MARGIN) / _TITLE_LETTER) - len(of)
    figure = sheet(width, 3.6)
    axes = figure.subplots()
    axes.bar(range(len(heights)), heights, color=[RED if height < 0 else BLUE for height in heights])
    axes.axhline(0.0, color="black", linewidth=0.6)
    axes.set_ylabel(label, parse_math=False)
    title = f"{of}{words(statement.run or statement.mechanism, room)}"
    axes.set_title(title, loc="left", parse_math=False)
    name_clients(axes, statement.clients)
    return figure
