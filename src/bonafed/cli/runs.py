"""`bonafed runs`: runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from bonafed.cli import tables
from bonafed.cli.quote import Json, Plot
from bonafed.errors import UnreadableFile
from bonafed.files import require_picture, write_together

if TYPE_CHECKING:
    from bonafed.lab.run_figures import RunCurve

_WIDTH = 120  # columns of a table that no terminal limits


def runs(
    folders: Annotated[list[Path] | None, typer.Argument(metavar="[FOLDER]...", hidden=True)] = None,
    as_json: Json = False,
    plot: Plot = None,
) -> None:
    """List and compare training runs, finished or not.

    A FOLDER is a run, or holds runs; if none is given, the folder runs. With --plot, their accuracy
    and loss are drawn over the rounds and, where clients are paid, over the money spent. Of runs without
    test data, the training loss is shown. Runs that cannot be read are named, and the others listed.

    Example: bonafed runs runs/optimal runs/uniform --plot curves.png
    """
    if plot is not None:
        require_picture(plot)
    from bonafed.runs import listing

    found, damaged = [], []
    for path in listing.find(folders or [Path("runs")]):
        try:
            found.append(listing.overview(path))
        except UnreadableFile as error:
            damaged.append(error)
    for row, name in zip(found, listing.distinct_names([Path(r["folder"]) for r in found]), strict=True):
        row["name"] = name
    _list(found, as_json, plot)
    for problem in damaged:
        typer.echo(f"error: {problem}", err=True)
    if damaged:
        raise typer.Exit(2)


def _list(found: list[dict[str, Any]], as_json: bool, plot: Path | None) -> None:
    if plot is not None:
        from bonafed.lab.run_figures import runs_figure
        from bonafed.style import render

        figure = runs_figure([_curve(row) for row in found])
        write_together({plot: render(figure, plot)})
    if as_json:
        tables.say_json(found)
        return
    if found:
        _show(found)
    if plot is not None:
        typer.echo(f"wrote {plot}")


def _curve(row: dict[str, Any]) -> RunCurve:
    from bonafed.lab.run_figures import RunCurve

    curves = row["curves"]
    rounds, accuracy, loss, train_loss = (
        np.array(curves[key], dtype=np.float64)
        for key in ("round", "test_accuracy", "test_loss", "train_loss")
    )
    spend = None if curves["spend"] is None else np.array(curves["spend"], dtype=np.float64)
    return RunCurve(row["name"], rounds, accuracy, loss, spend, train_loss)


def _show(found: list[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=max(console.width, _WIDTH))
    table = Table(title="Runs", title_justify="left", title_style="bold", padding=(0, 0, 0, 1))
    columns = {
        "name": [row["name"] for row in found],
        "data": [Path(row["data"]).name for row in found],
        "model": [row["model"] for row in found],
        "terms": [row["scheme"] or "" for row in found],
        "clients": [f"{row['clients']:,}" for row in found],
        "rounds": [_rounds(row) for row in found],
        "accuracy": [_cell(row["test_accuracy"], ".2%") for row in found],
        "loss": [_loss(row["test_loss"]) for row in found],
        "train loss": [_loss(row["train_loss"]) if row["test_loss"] is None else "" for row in found],
        "spend": [_cell(row["spend"], ",.2f") for row in found],
        "epsilon": [_cell(row["epsilon"], ".4g") for row in found],
        "seconds": [f"{row['seconds']:,.2f}" for row in found],
    }
    shown = {name: cells for name, cells in columns.items() if any(cells)}
    for name in shown:
        text = name in ("name", "data", "model", "terms")
        table.add_column(name, justify="left" if text else "right", overflow="fold", no_wrap=not text)
    for cells in zip(*shown.values(), strict=True):
        table.add_row(*map(escape, cells))
    console.print(table)


def _rounds(row: dict[str, Any]) -> str:
    return f"{row['rounds']}/{row['planned_rounds']}" + ("" if row["finished"] else " (open)")


def _loss(value: float | None) -> str:
    return "" if value is None else tables.loss(value)


def _cell(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
