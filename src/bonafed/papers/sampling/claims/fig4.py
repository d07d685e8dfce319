"""Figure 4: the average sampling probability against the mean cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bonafed import checks
from bonafed.economics.priors import Prior, TruncatedExponential, Uniform
from bonafed.mechanisms.sampling import complete_information_population, optimal_menu, uniform_menu
from bonafed.papers.claim import Check, Claim, Estimate, Results, Row, at_least, at_most, number
from bonafed.sections import Section, flag, key

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_REACH = 5.0  # where the exponential distribution is cut off, in means of the uncut one


@dataclass(frozen=True)
class Means(Section):
    """Mean costs, and the money there is."""

    budget: float = key(checks.positive, 0.2, help="Money per client and round.")
    lowest: float = key(checks.positive, 0.5, help="Smallest mean cost.")
    highest: float = key(checks.positive, 2.5, help="Largest mean cost.")
    points: int = key(lambda name, value: checks.whole(name, value, 2), 9, help="Mean costs between them.")
    exchanged: bool = key(
        flag, False, help="Control: the two mechanisms exchange names at every second mean."
    )


def priors(mean: float) -> dict[str, Prior]:
    """Costs of about this mean: uniform from 0, and exponential, cut off."""
    return {
        "uniform": Uniform(0.0, 2 * mean),
        "exponential": TruncatedExponential(1 / mean, 0.0, _REACH * mean),
    }


def rows(means: Means, _: Results) -> list[Row]:
    """E[q] and E[1/q] of the mechanisms at every mean cost: computed, not drawn."""
    listed: list[Row] = []
    for place, mean in enumerate(np.linspace(means.lowest, means.highest, means.points).tolist()):
        for name, prior in priors(mean).items():
            best, flat = optimal_menu(prior, means.budget), uniform_menu(prior, means.budget)
            if means.exchanged and place % 2:
                best, flat = flat, best
            known = complete_information_population(prior, means.budget)
            listed.append(
                {
                    "costs": name, "mean": float(prior.mean), "highest": float(prior.high),
                    "prior_based": best.expected_probability, "uniform": flat.expected_probability,
                    "complete_information": known.expected_probability,
                    "inverse_prior_based": best.expected_inverse_probability,
                    "inverse_uniform": flat.expected_inverse_probability,
                }
            )  # fmt: skip
    return sorted(listed, key=lambda row: (str(row["costs"]), number(row, "mean")))


def judge(table: Sequence[Row]) -> list[Check]:
    """As printed, lower; as corrected, higher, while the bound is lower."""
    ratios = [number(row, "prior_based") / number(row, "uniform") for row in table]
    bounds = [number(row, "inverse_prior_based") / number(row, "inverse_uniform") for row in table]
    what = "E[q], prior-based over uniform"
    return [
        at_most(f"largest {what}, any mean cost", Estimate(max(ratios)), 1.0),
        at_least(f"least {what}, any mean cost", Estimate(min(ratios)), 1.0, corrected=True),
        at_most("largest E[1/q], prior-based over uniform", Estimate(max(bounds)), 1.0, corrected=True),
    ]


def draw(table: Sequence[Row]) -> Figure:
    """E[q] against the mean cost, both distributions."""
    from bonafed.papers.sampling.figures import MECHANISMS, finish, groups, panels

    figure, axes = panels(2)
    for panel, (name, own) in zip(axes, groups(table, "costs").items(), strict=True):
        for mechanism in ("complete information", "prior-based", "uniform"):
            colour, style = MECHANISMS[mechanism]
            column = mechanism.replace(" ", "_").replace("-", "_")
            x, y = [number(r, "mean") for r in own], [number(r, column) for r in own]
            panel.plot(x, y, color=colour, ls=style, marker="o", ms=3, label=mechanism)
        panel.set_ylim(bottom=0)
        finish(panel, "mean cost (money)", "E[q], mean probability per round", f"Costs {name}")
    return figure


CLAIM = Claim(
    identifier="sampling-fig4",
    paper="sampling",
    place="figure 4, section 6",
    says="The average of sampling probabilities under the prior-based mechanism is lower than that under "
    "uniform sampling for different values of the mean cost.",
    presets={"smoke": Means(points=3), "quick": Means(), "paper": Means(points=21)},
    rows=rows,
    judge=judge,
    draw=draw,
    control={"exchanged": True},
    erratum="S-E10",
    about='The sentence contradicts the one before it ("recruits more clients"), and theory: for a budget '
    "b up to the highest cost, E[q*] >= 1/E[1/q*] >= b/highest, the first by Jensen's inequality and the "
    "second because uniform sampling is one of the contracts that the optimum is chosen from. What is "
    "lower is E[1/q], the term of the convergence bound.\n\n"
    "Uniform sampling is the only truthful contract with one probability for all: it pays everybody the "
    "highest cost. Budget and supports are not stated in print; here 0.2 per client and round, costs "
    "uniform from 0 to twice the mean, and exponential ones cut off at five means (uncut, uniform "
    "sampling could pay nobody). All numbers are computed, none is drawn.",
)
