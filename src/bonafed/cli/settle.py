"""`bonafed settle`: what a published contract means for the costs that clients state."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from bonafed import checks
from bonafed.cli import inputs, tables
from bonafed.cli.quote import QUANTILES, Json
from bonafed.economics.priors import JSONObject
from bonafed.economics.registry import field
from bonafed.files import require_different, require_writable, write_together
from bonafed.mechanisms.contracts.canonical import read_object
from bonafed.mechanisms.sampling import published, rules
from bonafed.mechanisms.sampling.settlement import (
    SettledTerms,
    designed_from_reports,
    overspending,
    settle_contract,
    settle_rules,
)

_ROWS = 20  # clients shown; all of them are in --json and --save


def settle(
    contract: Annotated[Path, typer.Argument(metavar="CONTRACT.json", hidden=True)],
    reports: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv",
            help="What each client states as its cost, a row each; a column client names them.",
        ),
    ] = None,
    draw: Annotated[
        int | None,
        typer.Option(
            metavar="SEED", help="Instead of --reports: draw costs as the contract believes them to be."
        ),
    ] = None,
    save: Annotated[
        Path | None, typer.Option(metavar="TERMS.csv", help="Write the terms of every client.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Settle a published contract: the terms of every client for the cost it states.

    For each client the probability of being sampled in a round and the payment each time it is; then
    the money, now that costs are known, and what the contract does not promise for these reports. A
    client whose cost is above the highest one that the contract admits does not take part. Rules
    written by `bonafed quote --prior-free --save` approach clients in the order of the file, which must
    not depend on what they state. What the contract promises is checked by `bonafed verify`, not here.

    Example: bonafed settle contract.json --reports stated.csv --save terms.csv
    """
    inputs.exactly_one(reports=reports, draw=draw)
    if save is not None:
        require_different("--save", save, "the contract", contract)
        if reports is not None:
            require_different("--save", save, "--reports", reports)
        require_writable(save)
    names = None if reports is None else inputs.read_clients(reports)
    terms, said = _settled(contract, reports, draw)
    description = {**_describe(terms, names), "cautions": said}
    written = {} if save is None else {save: _csv(description)}
    write_together(written)
    if as_json:
        tables.say_json(description)
        return
    _show(contract, description)
    tables.say_written(tables.new_console(), written)


def _settled(path: Path, reports: Path | None, draw: int | None) -> tuple[SettledTerms, list[str]]:
    """The terms, and what is to be said about them."""
    data = read_object(path)
    rng = np.random.default_rng(None if draw is None else checks.seed("draw", draw))
    if field(data, "format", "contract") == rules.RULES_FORMAT:
        free, rounds, _ = rules.rules_from_json(data)
        if reports is None:
            stated = rng.uniform(0.0, free.highest, free.clients)
        else:
            stated = inputs.read_one_per_client(reports, "--reports", "cost", free.clients)
        return settle_rules(free, rounds, stated), []
    contract = published.contract_from_json(data)
    if reports is not None:
        stated = inputs.read_one_per_client(reports, "--reports", "cost", contract.clients)
        terms = settle_contract(contract, stated)
        return terms, [*designed_from_reports(contract, terms), *overspending(terms)]
    stated = np.empty(contract.clients)
    for index, group in enumerate(contract.groups):
        mine = np.flatnonzero(contract.membership == index)
        stated[mine] = group.prior.sample(rng, mine.size)
    terms = settle_contract(contract, stated)
    return terms, overspending(terms)


def _describe(terms: SettledTerms, names: Sequence[str] | None) -> JSONObject:
    """Everything that is said, as plain data; clients by name, or numbered from 0."""
    spend = terms.spend
    clients: Sequence[str | int] = range(terms.reports.size) if names is None else names
    return {
        "clients": [
            {
                "client": client,
                "cost": float(c),
                "admitted": bool(a),
                "probability": float(q),
                "payment": float(r),
            }
            for client, c, a, q, r in zip(
                clients, terms.reports, terms.admitted, terms.probability, terms.payment, strict=True
            )
        ],
        "rounds": terms.rounds,
        "budget": terms.total_budget,
        "expected_participants": float(terms.probability.sum()),
        "spend": {
            "expected": spend.mean,
            "standard_deviation": spend.sd,
            "quantiles": {str(p): spend.quantile(p) for p in QUANTILES},
            "method": spend.method,
            "probability_of_exceeding_budget": spend.probability_above(terms.total_budget),
        },
    }


def _csv(description: JSONObject) -> bytes:
    """All digits, a row per client."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["client", "cost", "admitted", "probability", "payment"])
    for row in description["clients"]:
        cost, probability, payment = (repr(row[name]) for name in ("cost", "probability", "payment"))
        writer.writerow([row["client"], cost, int(row["admitted"]), probability, payment])
    return text.getvalue().encode()


def _show(path: Path, description: JSONObject) -> None:
    console = tables.new_console()
    people = description["clients"]
    console.print(
        f"{path}: {len(people):,} clients, {description['rounds']:,} rounds; "
        f"{description['expected_participants']:,.4g} clients per round on average.",
        markup=False,
        soft_wrap=True,
    )
    rows = [
        [
            str(row["client"]),
            f"{row['cost']:.4f}",
            f"{row['probability']:.4f}" if row["admitted"] else "not admitted",
            f"{row['payment']:.4f}",
            f"{row['probability'] * row['payment']:.4f}",
        ]
        for row in people[:_ROWS]
    ]
    more = len(people) - len(rows)
    caption = f"and {more:,} clients more: --save and --json have all of them" if more else ""
    columns = ["client", "cost", "probability", "payment", "expected per round"]
    console.print(tables.plain_table("Terms of every client", caption, columns, rows, left=()))
    tables.show_spend(console, description)
    console.print("probability: of being sampled in a round; payment: each time it is.")
    for sentence in description["cautions"]:
        console.print(f"Note: {sentence}", markup=False)
