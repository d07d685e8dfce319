"""Propositions and theorems of the rewards paper: what rules make clients contribute, and their bounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bonafed import checks
from bonafed.mechanisms.rewards import game
from bonafed.mechanisms.rewards.bounds import Problem, performance_bound, recovery_bound
from bonafed.mechanisms.rewards.section import unit
from bonafed.papers.claim import (
    Check,
    Claim,
    Estimate,
    Results,
    Row,
    at_least,
    at_most,
    drawn_by,
    number,
    only,
    where,
)
from bonafed.papers.rewards.tables import several
from bonafed.sections import Section, flag, key

# Theorems 1 and 2, corollary 1, proposition 2: what the bounds say of rates, rounds and recovery


_RATES = (0.3, 0.5, 0.8, 1.0)  # induced rates of four clients
_PROBLEM = Problem(
    smoothness=4, strong_convexity=0.5, local_steps=3, heterogeneity=0.2, gradient_bound=1.5, variance=0.3,
    shift=45, start=2,
)  # fmt: skip
ALONE, RECOVERED, FULL = "theorem 1", "theorem 2", "corollary 1: all rates 1"


@dataclass(frozen=True)
class Bounds(Section):
    """What the bounds are computed for; the paper has no numbers."""

    rounds: int = key(lambda name, value: checks.whole(name, value, 100), 3200, help="The last T.")
    recovery: float = key(unit, 0.1, help="q of theorem 2.")
    backwards: bool = key(flag, False, help="Control: rounds and rates are read in the opposite order.")


def theorem1_rows(options: Bounds, _: Results) -> list[Row]:
    """Bounds for every client, theorem and number of rounds."""
    found: list[Row] = []
    lengths = np.unique(np.geomspace(100, options.rounds, 6).round().astype(int)).tolist()
    read = lengths[::-1] if options.backwards else lengths
    clients = _RATES[::-1] if options.backwards else _RATES
    for rounds, length in zip(lengths, read, strict=True):
        rates = np.tile(clients, (length, 1))
        bounds = {
            ALONE: performance_bound(_PROBLEM, rates).bound,
            RECOVERED: recovery_bound(_PROBLEM, rates, 1.0, options.recovery).bound,
            FULL: performance_bound(_PROBLEM, np.ones_like(rates)).bound,
        }
        found += [
            {"theorem": name, "rounds": rounds, "rate": rate, "bound": float(value)}
            for name, values in bounds.items()
            for rate, value in zip(_RATES, values, strict=True)
        ]
    return found


def theorem1_checks(found: Sequence[Row]) -> list[Check]:
    """Better for higher rates; without recovery towards 0 only if all rates are 1; with it, always."""
    last = max(number(row, "rounds") for row in found)
    steps = [
        float(np.diff([number(row, "bound") for row in where(found, theorem=name, rounds=int(last))]).max())
        for name in (ALONE, RECOVERED)
    ]

    def change(name: str) -> Estimate:
        own = [number(row, "bound") for row in where(found, theorem=name, rate=_RATES[0])]
        return Estimate(own[-1] / own[0])

    return [
        at_most("largest change of the bound of theorem 1 where a rate grows", Estimate(steps[0]), 0.0),
        at_most("largest change of the bound of theorem 2 where a rate grows", Estimate(steps[1]), 0.0),
        at_least("bound of theorem 1 after the last round over that after 100", change(ALONE), 1.0),
        at_most("the same of theorem 2", change(RECOVERED), 0.5),
        at_most("the same if all rates are 1", change(FULL), 0.5),
    ]


THEOREM1 = Claim(
    identifier="rewards-theorem1",
    paper="rewards",
    place="theorems 1 and 2, corollary 1, proposition 2",
    says="Clients with higher reward rates have better guarantees; without recovery the bound does not "
    "vanish unless all rates are 1; with recovery it does.",
    presets={"smoke": Bounds(rounds=800), "quick": Bounds(), "paper": Bounds()},
    rows=theorem1_rows,
    judge=theorem1_checks,
    draw=drawn_by("rewards", "bounds_figure", FULL),
    control={"backwards": True},
    about="""\
Bounds of four clients with the induced rates 0.3, 0.5, 0.8 and 1, by the corrected formulas (errata R-1
to R-10), for a problem with L = 4, mu = 0.5, three local steps, and a reference model of rate 1. What is
judged are the formulas. That theorem 1 is a bound at all supposes rewards with the same mean for all
clients, which is false (R-12): without recovery models drift to their clients' own optima.""",
)


# Propositions 1 and 3: what reward rules make clients contribute


STANDARD, RELATIVE, CEILING = "standard", "relative", "ceiling"


@dataclass(frozen=True)
class Costs(Section):
    """Clients of equal cost; the paper has no numbers."""

    clients: int = key(lambda name, value: checks.whole(name, value, 2), 4, help="N.")
    costs: tuple[float, ...] = key(several(checks.positive), (0.1, 0.2, 0.4), help="c, one game for each.")
    ceiling: float = key(checks.positive, 2.0, help="p_ceil, above what all contribute together under (1).")
    exchanged: bool = key(flag, False, help="Control: the standard rule and that of the paper exchanged.")


def proposition1_rows(options: Costs, _: Results) -> list[Row]:
    """For every cost and rule: the least total in equilibrium, and what leaving a low one gains."""
    found: list[Row] = []
    rules: dict[str, Any] = {
        STANDARD: game.standard(), RELATIVE: game.relative(),
        CEILING: game.with_ceiling(options.ceiling, sharing=0.0),
    }  # fmt: skip
    if options.exchanged:
        rules |= {STANDARD: rules[CEILING], CEILING: rules[STANDARD]}
    for cost in options.costs:
        players = game.game([cost] * options.clients)
        low = [game.symmetric_interval(players)[0]] * options.clients
        for name, rule in rules.items():
            best = game.best_responses(players, rule, low)
            moved = [best[0], *low[1:]]
            gain = game.utilities(players, rule, moved)[0] - game.utilities(players, rule, low)[0]
            total = min(one.total for one in game.equilibria(players, rule))
            found.append({"cost": cost, "rule": name, "total": total, "gain": float(max(gain, 0.0))})
    return found


def proposition1_checks(found: Sequence[Row]) -> list[Check]:
    """More than under the standard rule; relative rewards have an equilibrium of low contributions."""
    costs = list(dict.fromkeys(number(row, "cost") for row in found))

    def at(cost: float, rule: str, column: str) -> float:
        return number(only(found, cost=cost, rule=rule), column)

    return [
        at_least(
            "least gain in total contribution by rule (1) over the standard rule",
            Estimate(min(at(cost, CEILING, "total") - at(cost, STANDARD, "total") for cost in costs)), 1e-6,
        ),
        at_most(
            "what leaving the low equilibrium of relative rewards gains at most",
            Estimate(max(at(cost, RELATIVE, "gain") for cost in costs)), 1e-9,
        ),
        at_least(
            "what leaving it gains at least under rule (1)",
            Estimate(min(at(cost, CEILING, "gain") for cost in costs)), 1e-6,
        ),
    ]  # fmt: skip


PROPOSITION1 = Claim(
    identifier="rewards-proposition1",
    paper="rewards",
    place="propositions 1 and 3",
    says="Rewards that grow with a client's own contribution, by rule (1), make clients contribute more "
    "than the standard rule; rewards relative to the largest contribution leave an equilibrium in which "
    "all contribute little, and rule (1) does not.",
    presets={"smoke": Costs(costs=(0.2,)), "quick": Costs(), "paper": Costs()},
    rows=proposition1_rows,
    judge=proposition1_checks,
    draw=drawn_by("rewards", "totals_figure"),
    control={"exchanged": True},
    about="""\
Four clients of equal cost with the worth 1 - exp(-p) of contributions that a model is made from. In print
it is a statement about derivatives; here the equilibria are computed (theory D4), the least of those
found from four starts. The printed proof compares derivatives at different arguments; for this worth
concavity repairs it, and a client beyond the ceiling has no strict gain (R-14). The low equilibrium is
the least of the interval of symmetric ones (R-15).""",
)


CLAIMS = (THEOREM1, PROPOSITION1)
