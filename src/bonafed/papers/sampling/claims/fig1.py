"""Figure 1: the shape of the optimal sampling probability."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bonafed import checks
from bonafed.economics import registry
from bonafed.economics.priors import Prior, Uniform
from bonafed.mechanisms.sampling import optimal_menu
from bonafed.papers.claim import Check, Claim, Estimate, Results, Row, at_least, at_most, number, where
from bonafed.sections import Section, flag, key

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ROUNDING = 1e-9  # relative, of a probability


@dataclass(frozen=True)
class Shape(Section):
    """A prior, and a budget for each case of Theorem 2."""

    prior: Prior = key(registry.prior, Uniform(0.5, 1.5), help="Of the cost.")
    scarce: float = key(checks.positive, 0.5, help="Budget per client and round of case 1.")
    some: float = key(checks.positive, 1.0, help="Of case 2.")
    plenty: float = key(checks.positive, 1.5, help="Of case 3.")
    points: int = key(lambda name, value: checks.whole(name, value, 5), 101, help="Costs on the axis.")
    turned: bool = key(flag, False, help="Control: cheap clients get the terms of dear ones.")


def rows(shape: Shape, _: Results) -> list[Row]:
    """q* at every cost, for a budget of every case."""
    listed: list[Row] = []
    prior = shape.prior
    costs = np.linspace(prior.low, prior.high, shape.points)
    phi = np.asarray(prior.virtual_cost(costs))
    for budget in (shape.scarce, shape.some, shape.plenty):
        menu = optimal_menu(prior, budget)
        q = menu.probability(costs[::-1] if shape.turned else costs)
        listed += [
            {"case": int(menu.case), "budget": budget, "threshold": float(menu.threshold), "cost": c,
             "virtual_cost": v, "probability": p}
            for c, v, p in zip(costs.tolist(), phi.tolist(), q.tolist(), strict=True)
        ]  # fmt: skip
    return listed


def judge(table: Sequence[Row]) -> list[Check]:
    """Certain up to a threshold, then falling like the root of the virtual cost."""
    rises = [max(np.diff([number(row, "probability") for row in where(table, case=k)])) for k in (1, 2, 3)]
    some = where(table, case=2)
    certain = [number(r, "probability") for r in some if number(r, "cost") <= number(r, "threshold")]
    rest = [r for r in some if number(r, "cost") > number(r, "threshold")]
    scaled = [number(r, "probability") * np.sqrt(number(r, "virtual_cost")) for r in rest]
    return [
        at_most("largest rise of q* from one cost to the next", Estimate(float(max(rises))), _ROUNDING),
        at_most("largest q* in case 1", _extreme(max, where(table, case=1)), 1.0),
        at_least(
            "least q* up to the threshold, case 2", Estimate(min(certain, default=0.0)), 1 - _ROUNDING
        ),
        at_most("largest q* beyond the threshold, case 2", _extreme(max, rest), 1.0),
        at_most(
            "spread of q* sqrt(phi) beyond the threshold, over its mean",
            Estimate(float(np.ptp(scaled) / abs(np.mean(scaled)))),
            _ROUNDING,
        ),
        at_least("least q* in case 3", _extreme(min, where(table, case=3)), 1 - _ROUNDING),
    ]


def _extreme(which: object, table: Sequence[Row]) -> Estimate:
    values = [number(row, "probability") for row in table]
    return Estimate(max(values) if which is max else min(values))


def draw(table: Sequence[Row]) -> Figure:
    """q* against the cost in the three cases."""
    from bonafed.papers.sampling.figures import finish, groups, panels, with_errors

    figure, (axes,) = panels(1, 5.5)
    for place, (case, own) in enumerate(groups(table, "case").items()):
        label = f"case {case}: budget {number(own[0], 'budget'):g}"
        with_errors(axes, own, "cost", "probability", label, place, error=False)
    for line in axes.lines:
        line.set_marker("")
    threshold = number(where(table, case=2)[0], "threshold")
    axes.axvline(threshold, color="black", lw=0.8, ls=":")
    axes.annotate("threshold of case 2", (threshold, 0.03), (4, 0), textcoords="offset points", fontsize=8)
    axes.set_ylim(0, 1.08)
    finish(axes, "cost per participation (money)", "q*, probability per round")
    return figure


CLAIM = Claim(
    identifier="sampling-fig1",
    paper="sampling",
    place="figure 1, cases 1 to 3 of theorem 2",
    says="The optimal sampling probability is 1 up to a threshold and falls beyond it like the inverse "
    "root of the virtual cost; with little money nobody is certain, with enough everybody is.",
    presets={"smoke": Shape(points=21), "quick": Shape(), "paper": Shape()},
    rows=rows,
    judge=judge,
    draw=draw,
    control={"turned": True},
    about="The paper states neither prior nor budget of its sketch. Here costs are uniform on [0.5, 1.5], "
    "and the budgets per client and round are 0.5, 1 and 1.5, one for each case of Theorem 2 (corrected, "
    "S-E1). The tolerance is rounding.",
)
