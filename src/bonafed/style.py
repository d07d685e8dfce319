"""How all figures look, and how they become files; without a screen or global state of Matplotlib."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from bonafed.errors import InvalidValue
from bonafed.files import PICTURES
from bonafed.spelling import printable

BLUE, RED, GREY, GREEN = "#1f6f8b", "#c8553d", "#8a8a8a", "#4a7c59"
COLOURS = (BLUE, RED, GREEN, "#8e6c8a", "#d49a3a", GREY)
STYLES = ("-", "--", ":", "-.")
_NAMED, _SOME = 30, 12  # clients that can all have their name under a bar; of more, how many have
_LETTERS = 20  # of a name in a figure, at most
_SCREEN = 96  # pixels of a page in an inch
_LONG = 2  # letters of a name that stand side by side


class Sheet(Figure):
    """A figure that a notebook shows, also where pyplot, which otherwise sees to it, was never imported."""

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
    ones. A place in the figure is nobody's name, so no other number stands there."""
    places, who = list(range(len(names))), "client"
    if len(names) > _NAMED:
        places = np.unique(np.linspace(0, len(names) - 1, _SOME).round().astype(int)).tolist()
        who = f"{len(names):,} clients"
    shown = [_short(printable(names[place])) for place in places]
    slanted = max(map(len, shown), default=0) > _LONG
    axes.set_xlabel(", ".join(filter(None, (who, order))))
    axes.set_xticks(
        places, shown, rotation=60 if slanted else 0, ha="right" if slanted else "center",
        rotation_mode="anchor" if slanted else "default", fontsize=8, parse_math=False,
    )  # fmt: skip


def _short(name: str) -> str:
    """Both ends of a long name.

    >>> _short("hospital of the holy spirit, ward 17")
    'hospital of...ard 17'
    """
    return name if len(name) <= _LETTERS else f"{name[: _LETTERS - 9]}...{name[-6:]}"


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
