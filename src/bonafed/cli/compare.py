"""`bonafed compare`: every mechanism that applies, on the same federation."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from bonafed.cli.options import Json, Plot
from bonafed.cli.report import require_page
from bonafed.cli.train import Changes
from bonafed.presentation import terminal
from bonafed.runs.compare import COMPARISON
from bonafed.runs.compare import compare as compare_mechanisms
from bonafed.runs.config import read_tables
from bonafed.runs.folder import to_json
from bonafed.runs.pages import comparison_page


def compare(
    config: Annotated[Path, typer.Argument(metavar="CONFIG.toml", hidden=True)],
    changes: Changes = None,
    folder: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep the runs in this folder; without it, nothing is kept."),
    ] = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Also make a page, to look at and to pass on.")
    ] = None,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Compare mechanisms on one federation: accuracy, money, privacy, and the best lie of each.

    The config says what is the same for all: data, partition, model, training and, in a table [compare],
    the money and what is believed about costs. Every mechanism of the catalogue that applies is trained
    and attacked by search; for the others, the reason why they do not apply is shown.

    With --folder, the runs are kept there with what was found about them, and `bonafed report DIR` makes
    the page later.

    Example: bonafed compare fedavg.toml --report compare.html
    """
    if report is not None:
        require_page("--report", report)
    terminal.require_outputs({"--plot": plot, "--report": report}, {"CONFIG.toml": config})

    tables = read_tables(config, changes or [])
    with terminal.working("comparing") as tell:
        comparison = compare_mechanisms(tables, folder=folder, tell=tell)
    document = comparison.document()
    outputs = terminal.figure_file(document, plot)
    if folder is not None:
        outputs[folder / COMPARISON] = to_json(comparison.to_json())
    if report is not None:
        outputs[report] = comparison_page(comparison).to_html()
    terminal.write_together(outputs)
    terminal.show(document, as_json=as_json, outputs=outputs)
