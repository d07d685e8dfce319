"""The figure of a statement: one bar per client, what it is owed or another column, in any mechanism."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bonafed.spelling import printable
from bonafed.style import BLUE, RED, name_clients, sheet

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bonafed.economics.claims import Statement


def statement_figure(statement: Statement) -> Figure:
    """Bars in the order of the roster; what a client owes is below zero and red."""
    if statement.figure_column == "amount":
        heights = list(statement.amount)
        label = f"amount ({statement.unit})"
    else:
        cells = statement.columns[statement.figure_column]
        heights = [float(cell) if isinstance(cell, (int, float)) else float("nan") for cell in cells]
        label = statement.figure_column.replace("_", " ")
    figure = sheet(min(12.0, 4.0 + 0.15 * len(heights)), 3.6)
    axes = figure.subplots()
    axes.bar(range(len(heights)), heights, color=[RED if height < 0 else BLUE for height in heights])
    axes.axhline(0.0, color="black", linewidth=0.6)
    axes.set_ylabel(label)
    title = printable(f"Statement of {statement.run or statement.mechanism}")
    axes.set_title(title, loc="left", parse_math=False)
    name_clients(axes, statement.clients)
    return figure
