"""`bonafed quote`: the contract to publish, what it costs, and what it buys."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from bonafed.checks import Floats
from bonafed.cli import inputs, tables
from bonafed.cli.coin_secret import new_coin_secret, write_with_secret
from bonafed.cli.quote_prior_free import quote_prior_free
from bonafed.economics.contracts import Menu, admitted
from bonafed.economics.discrete import Empirical, FinitePrior
from bonafed.economics.priors import JSONObject
from bonafed.economics.registry import parse_numbers
from bonafed.errors import InvalidValue
from bonafed.files import require_different, require_writable
from bonafed.mechanisms.sampling.plan import SamplingPlan, benchmarks, plan
from bonafed.mechanisms.sampling.published import contract_bytes

_ROWS = 11  # cost levels shown where the user names none
QUANTILES = (0.01, 0.5, 0.99)

Prior = Annotated[str | None, typer.Option("--prior", metavar="KIND:ARGS", help=inputs.PRIOR_HELP)]
PastCosts = Annotated[
    Path | None,
    typer.Option(
        "--past-costs",
        metavar="FILE.csv",
        help="Costs of the past, not these clients' own reports, to estimate the prior from.",
    ),
]
PriorFree = Annotated[
    bool, typer.Option("--prior-free", help="Assume nothing but the highest cost (--highest).")
]
Highest = Annotated[
    float | None,
    typer.Option(help="Highest cost admitted; with --past-costs the largest of the file if not given."),
]
Clients = Annotated[int | None, typer.Option(help="Number of clients (required).")]
Rounds = Annotated[int | None, typer.Option(help="Number of training rounds (required).")]
Budget = Annotated[float | None, typer.Option(help="Money for the whole run (required).")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs, nothing else.")]
Plot = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Also draw it to a .png, .svg or .pdf file.")
]


def quote(
    clients: Clients = None,
    rounds: Rounds = None,
    budget: Budget = None,
    prior: Prior = None,
    past_costs: PastCosts = None,
    prior_free: PriorFree = False,
    highest: Highest = None,
    at: Annotated[
        str | None, typer.Option(metavar="C,C,...", help="Cost levels to show the terms for.")
    ] = None,
    confidence: Annotated[
        float | None,
        typer.Option(
            help="Shrink the contract until realised (not only expected) spend stays within the "
            "budget with this probability."
        ),
    ] = None,
    as_json: Json = False,
    plot: Plot = None,
    save: Annotated[
        Path | None,
        typer.Option(metavar="CONTRACT.json", help="Write the contract, for `bonafed verify`."),
    ] = None,
    commit_coins: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="With --save: draw a secret that decides who is sampled, keep it in this new file, and "
            "put its commitment into the contract.",
        ),
    ] = None,
    sign: Annotated[
        Path | None,
        typer.Option(metavar="KEY.pem", help="With --save: also sign it, into CONTRACT.json.sig."),
    ] = None,
    reports: Annotated[
        Path | None,
        typer.Option(metavar="FILE.csv", help="With --prior-free: what clients state, to illustrate with."),
    ] = None,
    seed: Annotated[
        int, typer.Option(help="Seed of the illustration drawn with --prior-free (0).", show_default=False)
    ] = 0,
) -> None:
    """Quote the truthful sampling contract of a budget.

    For each cost level: the probability of being sampled in a round and the payment per
    participation, under which stating the true cost is every client's best choice. Then the expected
    spend, how far realised spend may stray, and what the same budget buys under uniform sampling and
    if all costs were known.

    Example: bonafed quote --prior uniform:0.5,1.5 --clients 100 --rounds 200 --budget 10000
    """
    for path in (plot, save):
        if path is not None:
            require_writable(path)
    if plot is not None and save is not None:
        require_different("--save", save, "--plot", plot)
    if sign is not None and save is None:
        raise InvalidValue("--sign", "must be given with --save", sign)
    coins = new_coin_secret(commit_coins, save)
    levels = None if at is None else np.array(parse_numbers("--at", at))
    people, turns, money = inputs.required_numbers(clients, rounds, budget)
    if prior_free:
        if prior is not None:
            raise InvalidValue("input", "must not give --prior with --prior-free", repr(prior))
        if confidence is not None:
            raise InvalidValue("--confidence", "must not be given with --prior-free", confidence)
        if past_costs is not None:
            rule = "must not be given with --prior-free; what the clients state is --reports"
            raise InvalidValue("--past-costs", rule, past_costs)
        quote_prior_free(
            people, money, turns, highest, reports, levels, as_json, plot, save, sign, coins, seed
        )
        return
    if reports is not None:
        raise InvalidValue("--reports", "must be given with --prior-free; see also bonafed settle", reports)
    belief = inputs.choose_prior(prior, past_costs, highest)
    contract = plan(belief, money, people, turns, confidence=confidence)
    if coins is not None:
        contract = replace(contract, coin_commitment=coins.commitment)
    shown = _shown_levels(contract.menu) if levels is None else admitted(levels, belief.high)
    outputs: dict[Path, bytes] = {}
    if plot is not None:
        from bonafed.lab.figures import contract_figure
        from bonafed.style import render

        outputs[plot] = render(contract_figure(contract), plot)
    if save is not None:
        outputs |= inputs.signed(save, contract_bytes(contract), sign)
    description = describe(contract, shown)
    write_with_secret(outputs, coins)
    if as_json:
        tables.say_json(description)
    else:
        tables.show_quote(
            contract,
            description,
            outputs if coins is None else [*outputs, coins.path],
            estimated=past_costs is not None,
        )


def _shown_levels(menu: Menu) -> Floats:
    """Cost levels worth a row: all of a short menu, else evenly spread ones."""
    costs = menu.prior.costs if isinstance(menu.prior, FinitePrior) else None
    if costs is not None and costs.size <= 2 * _ROWS:
        return costs
    if costs is not None:
        return np.asarray(costs[np.unique(np.linspace(0, costs.size - 1, _ROWS).round().astype(int))])
    return np.linspace(menu.prior.low, menu.prior.high, _ROWS)


def describe(contract: SamplingPlan, levels: Floats) -> JSONObject:
    """Everything a quote says, as plain data."""
    menu, spend = contract.menu, contract.spend
    q, r = menu.price(levels)
    return {
        "clients": contract.clients,
        "rounds": contract.rounds,
        "budget": contract.total_budget,
        "confidence": contract.confidence,
        "prior": menu.prior.to_json(),
        "past_costs": menu.prior.samples.size if isinstance(menu.prior, Empirical) else None,
        "case": menu.case,
        "threshold": menu.threshold,
        "ironed_intervals": [list(pool) for pool in menu.prior.ironed_intervals],
        "terms": [
            {
                "cost": float(c),
                "probability": float(a),
                "payment": float(b),
                "expected_payment_per_round": float(a * b),
                "profit_per_round": float(a * (b - c)),
            }
            for c, a, b in zip(levels, q, r, strict=True)
        ],
        "spend": {
            "expected": contract.expected_spend,
            "standard_deviation": spend.sd,
            "quantiles": {f"{p:g}": spend.quantile(p) for p in QUANTILES},
            "probability_of_exceeding_budget": spend.probability_above(contract.total_budget),
            "method": spend.method,
        },
        "benchmarks": [
            {
                "name": b.name,
                "expected_spend": b.expected_spend,
                "mean_probability": b.expected_probability,
                "mean_inverse_probability": b.sampling_term / contract.clients,
            }
            for b in benchmarks(contract)
        ],
    }
