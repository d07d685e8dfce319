"""What the figures of the sampling paper's claims have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from bonafed.papers.claim import Row, number, where
from bonafed.presentation.figures import BLUE, COLOURS, GREEN, GREY, RED, STYLES, sheet

MECHANISMS = {  # colour and line, the same in every figure
    "uniform": (GREY, "--"),
    "prior-based": (BLUE, "-"),
    "prior-independent": (GREEN, "-."),
    "complete information": (RED, ":"),
}


def panels(count: int, width: float = 4.4, height: float = 3.4) -> tuple[Figure, list[Axes]]:
    """A figure of panels side by side."""
    figure = sheet(width * count, height)
    return figure, list(figure.subplots(1, count, squeeze=False)[0])


def with_errors(
    axes: Axes, rows: Sequence[Row], x: str, y: str, label: str, place: int = 0, *, error: bool = True
) -> None:
    """A column over another, with bars of two standard errors where the column has them."""
    values = [number(row, y) for row in rows]
    bars = [2 * number(row, f"{y}_se") for row in rows] if error and f"{y}_se" in rows[0] else None
    axes.errorbar(
        [number(row, x) for row in rows], values, yerr=bars, label=label, capsize=2, marker="o", ms=3,
        color=COLOURS[place % len(COLOURS)], ls=STYLES[place % len(STYLES)],
    )  # fmt: skip


def plain_log(axes: Axes, which: str = "y") -> None:
    """A logarithmic axis with plain numbers."""
    axis = axes.yaxis if which == "y" else axes.xaxis
    (axes.set_yscale if which == "y" else axes.set_xscale)("log")
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())


def groups(rows: Sequence[Row], column: str) -> Mapping[str, list[Row]]:
    """The rows by the text in a column, in their order."""
    return {str(value): where(rows, **{column: value}) for value in dict.fromkeys(r[column] for r in rows)}


def finish(axes: Axes, x: str, y: str, title: str = "", legend: Callable[[Axes], bool] = bool) -> None:
    """Labels, title and legend of a panel."""
    axes.set(xlabel=x, ylabel=y)
    axes.set_title(title, fontsize=10)
    if axes.get_legend_handles_labels()[0] and legend(axes):
        axes.legend(frameon=False, fontsize=8)
