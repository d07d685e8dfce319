"""`bonafed statement`: what every client of a finished run is owed, or owes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bonafed.cli.options import Json, Plot
from bonafed.economics.findings import all_hold
from bonafed.errors import InvalidValue, MissingValue
from bonafed.presentation import terminal
from bonafed.remote.participant.journal import Journal
from bonafed.remote.participant.own_account import my_document
from bonafed.remote.participant.settings import read_settings
from bonafed.runs.folder import CONFIG, SUMMARY, holds_run, is_finished, read_json
from bonafed.runs.summary import statement_of

if TYPE_CHECKING:
    from bonafed.economics.statement import Statement
    from bonafed.presentation.documents import Document


def statement(
    run: Annotated[Path | None, typer.Argument(metavar="[RUN]", hidden=True)] = None,
    csv: Annotated[
        Path | None, typer.Option("--csv", metavar="FILE", help="Also write a CSV, a row per client.")
    ] = None,
    client: Annotated[str | None, typer.Option(metavar="NAME", help="Show this client alone.")] = None,
    mine: Annotated[
        Path | None,
        typer.Option(
            metavar="ME.toml", help="As a participant: what my own ledger says, and what I was told."
        ),
    ] = None,
    which: Annotated[
        str | None, typer.Option("--run", metavar="ID", help="With --mine: this run, by its first digits.")
    ] = None,
    plot: Plot = None,
    as_json: Json = False,
) -> None:
    """Show the statement of a finished run: a row per client, the totals, and what was promised.

    An amount is what the server owes the client; below zero the client owes the server. Amounts are
    rounded so that what was promised holds after rounding. Exit code 1 if a promise was not kept.

    A participant of a real federation has a ledger of its own: --mine shows it, beside the statement that
    it was sent. Exit code 1 if the two differ.

    Example: bonafed statement runs/fedavg --csv statement.csv
    """
    if mine is not None:
        for name, value in {"RUN": run, "--csv": csv, "--client": client, "--plot": plot}.items():
            if value is not None:
                raise InvalidValue(name, "must not be given with --mine", value)
        terminal.show(_mine(mine, which), as_json=as_json)
        return
    if run is None:
        raise MissingValue("RUN", "or --mine is required")
    if which is not None:
        raise InvalidValue("--run", "must not be given without --mine", which)
    terminal.require_outputs({"--csv": csv, "--plot": plot})

    whole = _read(run)
    part = whole if client is None else whole.only(client)
    document = replace(part.document(), holds=all_hold(part.findings))
    outputs = terminal.figure_file(document, plot)
    if csv is not None:
        outputs[csv] = terminal.file_content(document, csv, "csv", "--csv")
    terminal.write_together(outputs)
    terminal.show(document, as_json=as_json, outputs=outputs)


def _mine(path: Path, run: str | None) -> Document:
    settings = read_settings(path)
    return my_document(Journal(settings.folder, reading=True), settings.name, run)


def _read(folder: Path) -> Statement:
    """The statement in the summary of a run."""
    if not holds_run(folder):
        raise InvalidValue("RUN", f"must be a folder that holds a run ({CONFIG})", folder)
    if not is_finished(folder):
        rule = f"must be finished, nothing is owed before (bonafed train --resume {folder} continues it)"
        raise InvalidValue("RUN", rule, folder)
    return statement_of(read_json(folder, SUMMARY), folder)
