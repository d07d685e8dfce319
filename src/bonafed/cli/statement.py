"""`bonafed statement`: what every client of a finished run is owed, or owes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bonafed.cli import render
from bonafed.cli.options import Json, Plot
from bonafed.errors import InvalidValue

if TYPE_CHECKING:
    from bonafed.economics.claims import Statement


def statement(
    run: Annotated[Path, typer.Argument(metavar="RUN", hidden=True)],
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Also write a CSV, a row per client.")
    ] = None,
    client: Annotated[str | None, typer.Option(metavar="NAME", help="Show this client alone.")] = None,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Show the statement of a finished run: a row per client, the totals, and what was promised.

    An amount is what the server owes the client; below zero the client owes the server. Amounts are
    rounded so that what was promised holds after rounding. Exit code 1 if a promise was not kept.

    Example: bonafed statement runs/fedavg --csv statement.csv
    """
    render.require_outputs({"--csv": csv, "--plot": plot})
    from bonafed.economics.claims import all_hold

    whole = _read(run)
    part = whole if client is None else whole.only(client)
    document = replace(part.document(), holds=all_hold(part.findings))
    outputs = render.figure_file(document, plot)
    if csv is not None:
        outputs[csv] = render.file_content(document, csv, "csv", "--csv")
    render.write_together(outputs)
    render.show(document, as_json=as_json, outputs=outputs)


def _read(place: Path) -> Statement:
    """The statement in the summary of a run."""
    from bonafed.runs.folder import CONFIG, SUMMARY, holds_run, is_finished, read_json
    from bonafed.runs.summary import statement_of

    if not holds_run(place):
        raise InvalidValue("RUN", f"must be a folder that holds a run ({CONFIG})", place)
    if not is_finished(place):
        rule = f"must be finished, nothing is owed before (bonafed train --resume {place} continues it)"
        raise InvalidValue("RUN", rule, place)
    return statement_of(read_json(place, SUMMARY), place)
