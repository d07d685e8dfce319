"""How all figures look, and how they become files; without a screen or global state of Matplotlib."""

from __future__ import annotations

import io
from pathlib import Path

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from bonafed.errors import InvalidValue
from bonafed.files import PICTURES
from bonafed.spelling import printable

BLUE, RED, GREY, GREEN = "#1f6f8b", "#c8553d", "#8a8a8a", "#4a7c59"
COLOURS = (BLUE, RED, GREEN, "#8e6c8a", "#d49a3a", GREY)
STYLES = ("-", "--", ":", "-.")


def sheet(width: float, height: float) -> Figure:
    """An empty figure, in inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def plain(text: str) -> str:
    """A name as Matplotlib draws it letter by letter: a dollar sign begins no formula."""
    return printable(text).replace("$", r"\$")


def render(figure: Figure, path: Path) -> bytes:
    """The figure as the content of a file of the path's format; the same bytes every time."""
    kind = path.suffix.lower()
    if kind not in PICTURES:
        raise InvalidValue("--plot", "must end in .png, .svg or .pdf", path)
    buffer = io.BytesIO()
    metadata = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    figure.savefig(buffer, format=kind[1:], dpi=150, metadata=metadata[kind])
    return buffer.getvalue()
