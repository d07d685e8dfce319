"""`bonafed runs`: runs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bonafed.cli.options import Json, Plot
from bonafed.errors import UnreadableFile
from bonafed.presentation import terminal
from bonafed.presentation.documents import Document
from bonafed.runs import integrity, listing
from bonafed.runs.folder import reading_once
from bonafed.sections import at_most_one

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
    terminal.require_outputs({"--plot": plot})

    with reading_once():
        if check:
            at_most_one(check=check, plot=plot)
            _check(folders or [Path("runs")], as_json)
        else:
            _list(folders or [Path("runs")], plot, as_json)


def _list(folders: Sequence[Path], plot: Path | None, as_json: bool) -> None:
    rows, errors = [], []
    for path in listing.find(folders):
        try:
            rows.append(listing.overview(path))
        except UnreadableFile as error:
            errors.append(error)
    for row, name in zip(rows, listing.distinct_names([Path(r["folder"]) for r in rows]), strict=True):
        row["name"] = name
    listing.mark_test_sets(rows)
    figure = Document((), figure=lambda: _figure(rows))
    outputs = terminal.figure_file(figure, plot if rows else None)  # none where no run can be read
    terminal.write_together(outputs)
    if as_json:
        terminal.say_json(rows)
    else:
        blocks = (listing.table(rows),) if rows else ()
        terminal.show(Document(blocks), as_json=False, outputs=outputs)
    for problem in errors:
        terminal.tell(f"error: {problem}", err=True)
    if errors:
        raise typer.Exit(2)


def _check(folders: Sequence[Path], as_json: bool) -> None:
    runs = listing.find(folders)
    states = {str(run): integrity.check(run) for run in runs}
    terminal.show(integrity.check_document(states), as_json=as_json)


def _figure(rows: Sequence[dict[str, Any]]) -> Figure:
    from bonafed.runs import figures

    return figures.runs_figure([figures.curve_of(row) for row in rows])
