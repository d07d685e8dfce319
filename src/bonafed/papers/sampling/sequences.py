"""Sequences of the prior-independent mechanism, Algorithm 1: what the server learns, and what it costs.

`learn`, `account` and `trade` are what cells compute, from plain data. "printed" is Algorithm 1 as the
paper has it, "safe" the corrected one (theory A6).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bonafed.checks import Floats
from bonafed.economics import registry
from bonafed.economics.priors import Prior
from bonafed.mechanisms.sampling import PriorFreeSampling, PriorFreeState, optimal_menu
from bonafed.papers.cells import Cell, Compute
from bonafed.presentation.documents import JSONObject

VARIANTS = ("printed", "safe")
_GRID = 200  # costs at which two mechanisms are compared


def rules(arguments: JSONObject, prior: Prior) -> PriorFreeSampling:
    """Of a sequence, by its arguments."""
    return PriorFreeSampling(
        arguments["clients"], arguments["budget"] * arguments["clients"], prior.high,
        arguments.get("initial"), arguments.get("initial_probability"), variant=arguments["variant"],
    )  # fmt: skip


def _midpoints(prior: Prior) -> Floats:
    return np.asarray(prior.quantile((np.arange(_GRID) + 0.5) / _GRID))


def _draw(arguments: JSONObject, prior: Prior) -> Floats:
    return prior.sample(np.random.default_rng(arguments["seed"]), arguments["clients"])


def _played(sequence: PriorFreeSampling, reports: Floats) -> Iterator[tuple[int, PriorFreeState]]:
    """The state before every client."""
    state = sequence.start()
    for reports_so_far, report in enumerate(reports.tolist()):
        yield reports_so_far, state
        _, state = state.settle(report)


def offered(state: PriorFreeState, costs: Floats) -> Floats:
    """The probability that the next client is offered at each cost."""
    terms = state.terms
    return np.asarray(terms.probabilities[np.searchsorted(terms.costs, costs)])


def distance(state: PriorFreeState, prior: Prior, costs: Floats) -> float:
    """Mean |q_j - q*| over mean q*, with q* the optimum of the true prior for the money that is left."""
    best = optimal_menu(prior, state.remaining / state.clients_left).probability(costs)
    return float(np.abs(offered(state, costs) - best).mean() / best.mean())


def learn(arguments: JSONObject, _: Path) -> JSONObject:
    """How far the mechanisms of a sequence are from the optimal one, at some places.

    `prior` is what costs are like, `reported` what clients' reports are drawn from: the same, if they are
    honest.
    """
    prior, stated = (registry.prior(name, arguments[name]) for name in ("prior", "reported"))
    costs, looked_at = _midpoints(prior), set(arguments["places"])
    states = _played(rules(arguments, prior), np.minimum(_draw(arguments, stated), prior.high))
    distances = [
        distance(state, prior, costs) for reports_so_far, state in states if reports_so_far in looked_at
    ]
    return {"distance": distances}


def account(arguments: JSONObject, _: Path) -> JSONObject:
    """Sequences from a seed on: who is over the budget, the best lie, the least utility of the honest."""
    prior = registry.prior("prior", arguments["prior"])
    sequence, money = rules(arguments, prior), arguments["money"]
    over, most, gain, utility = 0, 0.0, -np.inf, np.inf
    for number in range(arguments["sequences"]):
        reports = _draw({**arguments, "seed": [arguments["seed"], number]}, prior)
        spent = sequence.run(reports).spent / (money * sequence.budget)
        over, most = over + (spent > 1), max(most, spent)
        if number < arguments["audited"]:
            lie, least = _best_lie(sequence, reports)
            gain, utility = max(gain, lie), min(utility, least)
    return {
        "over": over / arguments["sequences"], "most": most, "gain": float(gain), "utility": float(utility)
    }  # fmt: skip


def _best_lie(sequence: PriorFreeSampling, reports: Floats) -> tuple[float, float]:
    """The most that a report other than the cost brings, and the least that the cost itself does."""
    highest = sequence.highest
    costs = np.linspace(0.0, highest, 61)
    gains, truths = [0.0], [0.0]
    for reports_so_far, state in _played(sequence, reports):
        if reports_so_far % max(1, sequence.clients // 10):
            continue
        q, r = state.menu.price(costs)
        levels, at_level = state.terms.costs, state.menu.price(state.terms.costs)
        truth = q * (r - costs)
        lies = at_level[0][:, None] * (at_level[1][:, None] - costs)
        gains.append(float((lies.max(axis=0) - truth).max() / highest) if levels.size else 0.0)
        truths.append(float(truth.min() / highest))
    return max(gains), min(truths)


def trade(arguments: JSONObject, _: Path) -> JSONObject:
    """For every seed: what the first clients and the others come to, and how good the first estimate is."""
    traded = [_traded({**arguments, "seed": seed}) for seed in arguments["seeds"]]
    return {name: [one[name] for one in traded] for name in traded[0]}


def _traded(arguments: JSONObject) -> dict[str, float]:
    prior = registry.prior("prior", arguments["prior"])
    sequence, reports = rules(arguments, prior), _draw(arguments, prior)
    first = sequence.first_clients
    run = sequence.run(reports)
    inverse = 1 / run.probability
    lost = inverse - 1 / optimal_menu(prior, arguments["budget"]).probability(reports)
    return {
        "error": _kolmogorov(np.sort(reports[:first]), prior), "first": float(inverse[:first].mean()),
        "later": float(inverse[first:].mean()), "all": float(inverse.mean()),
        "lost_first": float(lost[:first].sum() / lost.size),
        "lost_later": float(lost[first:].sum() / lost.size),
        "left": float(run.remaining[first] / (inverse.size - first)),
    }  # fmt: skip


def _kolmogorov(reports: Floats, prior: Prior) -> float:
    """The largest distance between the distribution function of sorted reports and the true one."""
    true, n = np.asarray(prior.cdf(reports)), reports.size
    steps = np.arange(n + 1) / n
    return float(max(np.abs(true - steps[1:]).max(), np.abs(true - steps[:-1]).max()))


def cell(name: str, compute: Compute, arguments: JSONObject) -> Cell:
    """A sequence, or several, as a cell."""
    return Cell(f"sampling {name}", compute, arguments)
