"""Theorem 2: the threshold solves H(x) = budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bonafed import checks
from bonafed.checks import Floats
from bonafed.economics.curves import unironed_curve
from bonafed.economics.priors import ContinuousPrior, TruncatedExponential, Uniform
from bonafed.errors import NoSolution
from bonafed.mechanisms.sampling import optimal_menu
from bonafed.papers.claim import Check, Claim, Estimate, Results, Row, at_least, at_most, number
from bonafed.sections import Section, key

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PRIORS: dict[str, ContinuousPrior] = {
    "uniform:0.5,1.5": Uniform(0.5, 1.5),
    "uniform:50,150": Uniform(50.0, 150.0),  # the same in another currency
    "exponential:1,0.2,3": TruncatedExponential(1.0, 0.2, 3.0),
}


@dataclass(frozen=True)
class Equation(Section):
    """Budgets of case 2 to solve for, and the equation."""

    budgets: int = key(checks.whole, 15, help="Budgets of case 2, for every prior.")
    grid: int = key(
        lambda name, value: checks.whole(name, value, 10), 4001, help="Points searched for roots."
    )
    power: float = key(
        checks.non_negative, 0.5, help="Of phi(x) in the corrected H; 0 (control): as printed."
    )


def rows(equation: Equation, _: Results) -> list[Row]:
    """How many thresholds either equation has at budgets of case 2, and what the contracts are worth."""
    return [row for name, prior in PRIORS.items() for row in _of_prior(name, prior, equation)]


def _of_prior(name: str, prior: ContinuousPrior, equation: Equation) -> list[Row]:
    curve, x = unironed_curve(prior), np.linspace(prior.low, prior.high, equation.grid)
    head, tail = curve.head(x), curve.tail_root(x)
    phi = np.asarray(prior.virtual_cost(x))
    right = head + np.where(tail > 0, phi**equation.power, 0.0) * tail
    first = float(np.sqrt(phi[0]) * tail[0])  # case 2 begins here, and ends at the highest cost
    listed: list[Row] = []
    for share in ((np.arange(equation.budgets) + 0.5) / equation.budgets).tolist():
        budget = first + share * (prior.high - first)
        best = optimal_menu(prior, budget)
        try:
            worth = optimal_menu(prior, budget, variant="printed").expected_inverse_probability
        except NoSolution:
            worth = None
        listed.append(
            {
                "prior": name, "share": share, "budget": budget,
                "printed_roots": _roots(head + tail, budget),
                "corrected_roots": _roots(right, budget), "threshold": float(best.threshold),
                "spend_over_budget": best.expected_spend / budget,
                "inverse": best.expected_inverse_probability, "printed_inverse": worth,
            }
        )  # fmt: skip
    return listed


def _roots(values: Floats, budget: float) -> int:
    """How often the function crosses the budget on the grid."""
    side = np.sign(values - budget)
    side = side[side != 0]
    return int(np.count_nonzero(side[1:] != side[:-1]))


def judge(table: Sequence[Row]) -> list[Check]:
    """One threshold at every budget of case 2; all money used; no worse than what print gives."""
    found = []
    for kind, corrected in (("printed", False), ("corrected", True)):
        counts = [number(row, f"{kind}_roots") for row in table]
        found += [
            at_least(f"fewest thresholds of a budget of case 2, {kind} H", Estimate(min(counts)), 1,
                     corrected=corrected),
            at_most(f"most thresholds of a budget of case 2, {kind} H", Estimate(max(counts)), 1,
                    corrected=corrected),
        ]  # fmt: skip
    least = min(number(row, "spend_over_budget") for row in table)
    both = [row for row in table if row["printed_inverse"] is not None]
    gains = [number(row, "inverse") / number(row, "printed_inverse") for row in both] or [1.0]
    return [
        *found,
        at_least("least share of the budget that is spent", Estimate(least), 1 - 1e-9, corrected=True),
        at_most("largest E[1/q] over that of the printed contract", Estimate(max(gains)), 1 + 1e-9,
                corrected=True),
    ]  # fmt: skip


def draw(table: Sequence[Row]) -> Figure:
    """How many thresholds there are, over the budgets of case 2."""
    from bonafed.papers.sampling.figures import finish, groups, panels, with_errors

    by_prior = groups(table, "prior")
    figure, axes = panels(len(by_prior), 3.6)
    for panel, (name, own) in zip(axes, by_prior.items(), strict=True):
        for place, kind in enumerate(("corrected", "printed")):
            with_errors(panel, own, "share", f"{kind}_roots", kind, place)
        panel.set_ylim(-0.1, 2.5)
        panel.set_yticks([0, 1, 2])
        finish(panel, "budget, as a share of case 2", "thresholds that solve H(x) = budget", name)
    return figure


CLAIM = Claim(
    identifier="sampling-theorem2",
    paper="sampling",
    place="theorem 2, equation (54)",
    says="For every budget of case 2 there is a unique threshold that solves H(x) = budget, with H(x) = "
    "E[phi 1{c <= x}] + E[sqrt(phi) 1{c > x}].",
    presets={"smoke": Equation(4, 401), "quick": Equation(), "paper": Equation(101, 40_001)},
    rows=rows,
    judge=judge,
    draw=draw,
    control={"power": 0.0},
    erratum="S-E1",
    about="The limit in (54) loses the factor sqrt(phi(x)) of the discrete H(m). Without it money and the "
    "root of money are added, so that the answer depends on the currency: costs on [0.5, 1.5] and the "
    "same costs in cents have other thresholds. For costs uniform on [0.5, 1.5] the printed H never goes "
    "below 1.1718 while case 2 begins at 0.8484, so that most budgets have no threshold; where it has "
    "one, the printed contract keeps the budget and is worth less. With the factor restored H does not "
    "fall, and there is one threshold at every budget.",
)
