"""The figure of a statement: one bar per client, what it is owed or another column, in any mechanism."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bonafed.presentation.figures import BLUE, RED, name_clients, sheet, words

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bonafed.economics.claims import Statement


_UNIT = 20  # letters, at most
_LETTER, _MARGIN = 0.105, 0.9  # inches: of a letter of the title, and beside the panel


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
    room = int((width - _MARGIN) / _LETTER) - len(of)
    figure = sheet(width, 3.6)
    axes = figure.subplots()
    axes.bar(range(len(heights)), heights, color=[RED if height < 0 else BLUE for height in heights])
    axes.axhline(0.0, color="black", linewidth=0.6)
    axes.set_ylabel(label, parse_math=False)
    title = f"{of}{words(statement.run or statement.mechanism, room)}"
    axes.set_title(title, loc="left", parse_math=False)
    name_clients(axes, statement.clients)
    return figure
