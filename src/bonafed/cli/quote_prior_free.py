"""`bonafed quote --prior-free`: the rules of the sequence, and an example of how it may go."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from bonafed import checks
from bonafed.checks import Floats
from bonafed.cli import inputs, tables
from bonafed.cli.coin_secret import CoinSecret, write_with_secret
from bonafed.economics.contracts import admitted
from bonafed.economics.priors import JSONObject
from bonafed.errors import InvalidValue
from bonafed.mechanisms.sampling.prior_free import PriorFreeRun, PriorFreeSampling, PriorFreeState
from bonafed.mechanisms.sampling.rules import rules_bytes, rules_to_json
from bonafed.mechanisms.sampling.spend import known_lotteries, spend_distribution


def quote_prior_free(
    clients: int,
    budget: float,
    rounds: int,
    highest: float | None,
    reports: Path | None,
    levels: Floats | None,
    as_json: bool,
    plot: Path | None,
    save: Path | None,
    sign: Path | None,
    coins: CoinSecret | None,
    seed: int,
) -> None:
    """Everything `quote` does when no prior is known."""
    stated = None if reports is None else inputs.read_costs(reports)
    if highest is None:
        raise InvalidValue("--highest", "must be given with --prior-free", "nothing")
    rules = PriorFreeSampling(clients, budget / rounds, highest)
    rng = np.random.default_rng(checks.seed("seed", seed))
    if stated is None:
        example = rng.uniform(0.0, rules.highest, clients)
    elif stated.size == clients:
        example = stated[rules.order(rng)]
    else:
        raise InvalidValue("--reports", f"must hold {clients} costs, one per client", stated.size)
    run = rules.run(example)
    shown = np.linspace(0.0, rules.highest, 7) if levels is None else admitted(levels, rules.highest)
    outputs: dict[Path, bytes] = {}
    if plot is not None:
        from bonafed.lab.figures import prior_free_figure
        from bonafed.style import render

        outputs[plot] = render(prior_free_figure(rules, example, run), plot)
    if save is not None:
        content = rules_bytes(rules, rounds, None if coins is None else coins.commitment)
        outputs |= inputs.signed(save, content, sign)
    moments = milestones(rules, example)
    description = describe(rules, rounds, run, moments, shown, "file" if reports else "uniform")
    write_with_secret(outputs, coins)
    if as_json:
        tables.say_json(description)
    else:
        tables.show_prior_free(description, outputs if coins is None else [*outputs, coins.path])


def milestones(rules: PriorFreeSampling, example: Floats) -> list[tuple[int, PriorFreeState]]:
    """The states before the first client, after the first n0, halfway, and before the last."""
    wanted = sorted({0, min(rules.first_clients, rules.clients - 1), rules.clients // 2, rules.clients - 1})
    state, found = rules.start(), []
    for place, report in enumerate(example):
        if place in wanted:
            found.append((place, state))
        _, state = state.settle(float(report))
    return found


def describe(
    rules: PriorFreeSampling,
    rounds: int,
    run: PriorFreeRun,
    moments: list[tuple[int, PriorFreeState]],
    levels: Floats,
    source: str,
) -> JSONObject:
    """Everything the quote says, as plain data."""
    served = run.probability > 0
    inverse = 1 / run.probability[served]
    spend = spend_distribution(known_lotteries(run.probability, run.payment), rounds)
    terms = []
    for place, state in moments:
        q, r = state.menu.price(levels)
        terms.append(
            {
                "client": place + 1,
                "cost": levels.tolist(),
                "probability": q.tolist(),
                "payment": r.tolist(),
            }
        )
    return {
        "rules": rules_to_json(rules, rounds),
        "example": {
            "costs": source,
            "terms": terms,
            "expected_spend": run.spent * rounds,
            "standard_deviation_of_coins": spend.sd,
            "not_admitted": int((~served).sum()),
            "mean_probability": float(run.probability.mean()),
            "mean_inverse_probability": float(inverse.mean()) if inverse.size else None,
            "uniform_inverse_probability": max(1.0, rules.clients * rules.highest / rules.budget),
        },
    }
