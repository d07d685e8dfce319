"""`bonafed settle`: the terms that follow from a published contract and what clients report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bonafed import checks
from bonafed.cli.options import Json, whole_number
from bonafed.contracts.terms import Drawn
from bonafed.errors import InvalidValue
from bonafed.mechanisms.contract_files import read_contract
from bonafed.presentation import terminal
from bonafed.reports import read_reports
from bonafed.sections import exactly_one

if TYPE_CHECKING:
    from bonafed.contracts.published import PublishedContract
    from bonafed.contracts.terms import Reports


def settle(
    contract_file: Annotated[Path, typer.Argument(metavar="CONTRACT.json", hidden=True)],
    reports: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv",
            help="A row per client: its name in a column client, and what it states in a column named like "
            "the contract's question, such as cost.",
        ),
    ] = None,
    draw: Annotated[
        int | None,
        typer.Option(
            metavar="SEED",
            help="Instead of --reports: draw them from the contract's beliefs.",
            parser=whole_number,
        ),
    ] = None,
    save: Annotated[
        Path | None, typer.Option(metavar="TERMS.csv", help="Write the terms of every client.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Settle a published contract: the terms of every client for what it states.

    Shows a row per client, the money now that reports are known, and what the contract does not promise
    for these reports. What it does promise is checked by `bonafed verify`, not here.

    Example: bonafed settle contract.json --reports stated.csv --save terms.csv
    """
    exactly_one(reports=reports, draw=draw)
    terminal.require_outputs({"--save": save}, {"the contract": contract_file, "--reports": reports})

    contract = read_contract(contract_file)
    values = _draw(contract, draw) if reports is None else _read(contract, reports)
    if contract.clients is not None:
        contract.question.require_enough(values, contract.clients)
    document = contract.settle(values).document()
    outputs = {} if save is None else {save: terminal.file_content(document, save, "csv")}
    terminal.write_together(outputs)
    terminal.show(document, as_json=as_json, outputs=outputs)


def _read(contract: PublishedContract, path: Path) -> Reports:
    return read_reports(path, contract.question.name)


def _draw(contract: PublishedContract, seed: int | None) -> Reports:
    """What clients would state if the contract's beliefs about them were right."""
    simulate, clients = contract.question.simulate, contract.clients
    if simulate is None or clients is None:
        rule = "cannot be used: the contract does not say what clients are like, or how many there are"
        raise InvalidValue("--draw", rule, seed)
    values = simulate(clients, checks.seed("draw", seed)).tolist()
    return Drawn({str(number): float(value) for number, value in enumerate(values)})
