"""`bonafed runs`: runs side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bonafed.cli import render
from bonafed.cli.options import Json, Plot
from bonafed.errors import UnreadableFile
from bonafed.sections import at_most_one
from bonafed.shown import Cell, Column, Document, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def runs(
    folders: Annotated[list[Path] | None, typer.Argument(metavar="[FOLDER]...", hidden=True)] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Instead: whether every file is as it was written.")
    ] = False,
    as_json: Json = False,
    plot: Plot = None,
) -> None:
    """List and compare training runs, finished or not.

    A FOLDER is a run or holds runs; the default is the folder runs. --plot draws accuracy and loss over
    the rounds and, where clients are paid, over the money spent; for runs without test data, it draws the
    training loss. Where runs count gradient steps instead of rounds, or were judged by different test
    samples, the table and the figure say so. Runs that cannot be read are named, and the others listed. Of
    a run that has not ended, the rounds up to its last checkpoint are told.

    With --check, every file of each run is compared with the digests that the run keeps. Exit code 1 if one
    is damaged, or missing though SHA256SUMS lists it; their names are in the last line. Where nothing but
    summary.json is missing, the run may have been killed just before it was written, and can end again when
    resumed: the last line says so, and the exit code is 0.

    Example: bonafed runs runs/optimal runs/uniform --plot curves.png
    """
    render.require_outputs({"--plot": plot})
    from bonafed.runs import listing

    if check:
        at_most_one(check=check, plot=plot)
        _check(folders or [Path("runs")], as_json)
        return
    rows, errors = [], []
    for path in listing.find(folders or [Path("runs")]):
        try:
            rows.append(listing.overview(path))
        except UnreadableFile as error:
            errors.append(error)
    for row, name in zip(rows, listing.distinct_names([Path(r["folder"]) for r in rows]), strict=True):
        row["name"] = name
    listing.mark_test_sets(rows)
    figure = Document((), figure=lambda: _figure(rows))
    outputs = render.figure_file(figure, plot if rows else None)  # none where no run can be read
    render.write_together(outputs)
    if as_json:
        render.say_json(rows)
    else:
        blocks = (_table(rows),) if rows else ()
        render.show(Document(blocks), as_json=False, outputs=outputs)
    for problem in errors:
        render.tell(f"error: {problem}", err=True)
    if errors:
        raise typer.Exit(2)


def _check(places: Sequence[Path], as_json: bool) -> None:
    from bonafed.runs import checking, listing

    found = listing.find(places)
    states = dict(zip(map(str, found), map(checking.check, found), strict=True))
    render.show(checking.document(states), as_json=as_json)


def _figure(rows: Sequence[dict[str, Any]]) -> Figure:
    from bonafed.runs import figures

    return figures.runs_figure([figures.curve_of(row) for row in rows])


def _table(rows: Sequence[dict[str, Any]]) -> Table:
    """A column for everything that is known about at least one run; what does not compare is marked."""
    units = {row["unit"] for row in rows}
    length = f"{units.copy().pop()}s" if len(units) == 1 else "length"
    cells: dict[Column, Callable[[dict[str, Any]], Cell]] = {
        Column("name", left=True): lambda row: row["name"],
        Column("data", left=True): lambda row: Path(row["data"]).name,
        Column("model", left=True): lambda row: row["model"],
        Column("mechanism", left=True): _mechanism,
        Column("clients", ","): lambda row: row["clients"],
        Column(length): lambda row: _rounds(row) + (f" {row['unit']}s" if len(units) > 1 else ""),
        Column("test set"): lambda row: row["test_set"],
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
    caption = "test set: accuracies and losses compare between runs of the same letter only"
    marked = any(row["test_set"] is not None for row in rows)
    cells_of_rows = tuple(zip(*nonempty.values(), strict=True))
    return Table("Runs", tuple(nonempty), cells_of_rows, caption if marked else "")


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
