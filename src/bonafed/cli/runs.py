"""`bonafed runs`: runs side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bonafed.cli import render
from bonafed.cli.options import Json, Plot
from bonafed.errors import UnreadableFile
from bonafed.shown import Cell, Column, Document, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def runs(
    folders: Annotated[list[Path] | None, typer.Argument(metavar="[FOLDER]...", hidden=True)] = None,
    as_json: Json = False,
    plot: Plot = None,
) -> None:
    """List and compare training runs, finished or not.

    A FOLDER is a run or holds runs; the default is the folder runs. --plot draws accuracy and loss over
    the rounds and, where clients are paid, over the money spent; for runs without test data, it draws the
    training loss. Runs that cannot be read are named, and the others listed.

    Example: bonafed runs runs/optimal runs/uniform --plot curves.png
    """
    render.require_outputs({"--plot": plot})
    from bonafed.runs import listing

    rows, errors = [], []
    for path in listing.find(folders or [Path("runs")]):
        try:
            rows.append(listing.overview(path))
        except UnreadableFile as error:
            errors.append(error)
    for row, name in zip(rows, listing.distinct_names([Path(r["folder"]) for r in rows]), strict=True):
        row["name"] = name
    outputs = render.figure_file(Document((), figure=lambda: _figure(rows)), plot)
    render.write_together(outputs)
    if as_json:
        render.say_json(rows)
    else:
        blocks = (_table(rows),) if rows else ()
        render.show(Document(blocks), as_json=False, outputs=outputs)
    for problem in errors:
        typer.echo(f"error: {problem}", err=True)
    if errors:
        raise typer.Exit(2)


def _figure(rows: Sequence[dict[str, Any]]) -> Figure:
    from bonafed.runs import figures

    return figures.runs_figure([figures.curve_of(row) for row in rows])


def _table(rows: Sequence[dict[str, Any]]) -> Table:
    """A column for everything that is known about at least one run."""
    cells: dict[Column, Callable[[dict[str, Any]], Cell]] = {
        Column("name", left=True): lambda row: row["name"],
        Column("data", left=True): lambda row: Path(row["data"]).name,
        Column("model", left=True): lambda row: row["model"],
        Column("mechanism", left=True): _mechanism,
        Column("clients", ","): lambda row: row["clients"],
        Column("rounds"): _rounds,
        Column("accuracy", ".2%"): lambda row: row["test_accuracy"],
        Column("loss"): lambda row: _loss(row["test_loss"]),
        Column("train loss"): lambda row: _loss(row["train_loss"]) if row["test_loss"] is None else None,
        Column("spend", ",.2f"): lambda row: row["spend"],
        Column("epsilon", ".4g"): lambda row: row["epsilon"],
        Column("seconds", ",.2f"): lambda row: row["seconds"],
    }
    columns = {column: [cell(row) for row in rows] for column, cell in cells.items()}
    nonempty = {
        column: values for column, values in columns.items() if any(v not in (None, "") for v in values)
    }
    return Table("Runs", tuple(nonempty), tuple(zip(*nonempty.values(), strict=True)))


def _mechanism(row: dict[str, Any]) -> str:
    """The mechanism with its scheme, where it has several."""
    return " ".join(dict.fromkeys(filter(None, (row["mechanism"], row["scheme"]))))


def _rounds(row: dict[str, Any]) -> str:
    planned = "" if row["planned_rounds"] is None else f"/{row['planned_rounds']}"  # some end by themselves
    return f"{row['rounds']}{planned}" + ("" if row["finished"] else " (open)")


def _loss(value: float | None) -> str | None:
    """Four decimals, unless the loss is huge."""
    if value is None:
        return None
    return f"{value:.4f}" if abs(value) < 1e6 else f"{value:.4g}"
