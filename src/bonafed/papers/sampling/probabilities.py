"""Figures 1 and 4 and Proposition 1: sampling probabilities, and the bound that they enter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bonafed import checks
from bonafed.economics import registry
from bonafed.economics.priors import Prior, TruncatedExponential, Uniform
from bonafed.mechanisms.sampling import (
    ConvergenceModel,
    complete_information_population,
    optimal_menu,
    uniform_menu,
)
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
    where,
)
from bonafed.sections import Section, flag, key

# Figure 1: the shape of the optimal sampling probability


_ROUNDING = 1e-9  # relative, of a probability


@dataclass(frozen=True)
class Shape(Section):
    """A prior, and a budget for each case of Theorem 2."""

    prior: Prior = key(registry.prior, Uniform(0.5, 1.5), help="Of the cost.")
    scarce: float = key(checks.positive, 0.5, help="Budget per client and round of case 1.")
    some: float = key(checks.positive, 1.0, help="Of case 2.")
    plenty: float = key(checks.positive, 1.5, help="Of case 3.")
    points: int = key(lambda name, value: checks.whole(name, value, 5), 101, help="Costs on the axis.")
    turned: bool = key(flag, False, help="Control: cheap clients get the terms of expensive ones.")


def fig1_rows(shape: Shape, _: Results) -> list[Row]:
    """q* at every cost, for a budget of every case."""
    rows: list[Row] = []
    prior = shape.prior
    costs = np.linspace(prior.low, prior.high, shape.points)
    phi = np.asarray(prior.virtual_cost(costs))
    for budget in (shape.scarce, shape.some, shape.plenty):
        menu = optimal_menu(prior, budget)
        q = menu.probability(costs[::-1] if shape.turned else costs)
        rows += [
            {"case": int(menu.case), "budget": budget, "threshold": float(menu.threshold), "cost": c,
             "virtual_cost": v, "probability": p}
            for c, v, p in zip(costs.tolist(), phi.tolist(), q.tolist(), strict=True)
        ]  # fmt: skip
    return rows


def fig1_checks(table: Sequence[Row]) -> list[Check]:
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


FIG1 = Claim(
    identifier="sampling-fig1",
    paper="sampling",
    place="figure 1, cases 1 to 3 of theorem 2",
    says="The optimal sampling probability is 1 up to a threshold and falls beyond it like the inverse "
    "root of the virtual cost; with little money nobody is certain, with enough everybody is.",
    presets={"smoke": Shape(points=21), "quick": Shape(), "paper": Shape()},
    rows=fig1_rows,
    judge=fig1_checks,
    draw=drawn_by("sampling", "probability_figure"),
    control={"turned": True},
    about="The paper states neither prior nor budget of its sketch. Here costs are uniform on [0.5, 1.5], "
    "and the budgets per client and round are 0.5, 1 and 1.5, one for each case of Theorem 2 (corrected, "
    "S-E1). The tolerance is rounding.",
)


# Figure 4: the average sampling probability against the mean cost


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


def fig4_rows(means: Means, _: Results) -> list[Row]:
    """E[q] and E[1/q] of the mechanisms at every mean cost: computed, not drawn."""
    rows: list[Row] = []
    for index, mean in enumerate(np.linspace(means.lowest, means.highest, means.points).tolist()):
        for name, prior in priors(mean).items():
            best, flat = optimal_menu(prior, means.budget), uniform_menu(prior, means.budget)
            if means.exchanged and index % 2:
                best, flat = flat, best
            known = complete_information_population(prior, means.budget)
            rows.append(
                {
                    "costs": name, "mean": float(prior.mean), "highest": float(prior.high),
                    "prior_based": best.expected_probability, "uniform": flat.expected_probability,
                    "complete_information": known.expected_probability,
                    "inverse_prior_based": best.expected_inverse_probability,
                    "inverse_uniform": flat.expected_inverse_probability,
                }
            )  # fmt: skip
    return sorted(rows, key=lambda row: (str(row["costs"]), number(row, "mean")))


def fig4_checks(table: Sequence[Row]) -> list[Check]:
    """As printed, lower; as corrected, higher, while the bound is lower."""
    ratios = [number(row, "prior_based") / number(row, "uniform") for row in table]
    bounds = [number(row, "inverse_prior_based") / number(row, "inverse_uniform") for row in table]
    what = "E[q], prior-based over uniform"
    return [
        at_most(f"largest {what}, any mean cost", Estimate(max(ratios)), 1.0),
        at_least(f"least {what}, any mean cost", Estimate(min(ratios)), 1.0, corrected=True),
        at_most("largest E[1/q], prior-based over uniform", Estimate(max(bounds)), 1.0, corrected=True),
    ]


FIG4 = Claim(
    identifier="sampling-fig4",
    paper="sampling",
    place="figure 4, section 6",
    says="The average of sampling probabilities under the prior-based mechanism is lower than that under "
    "uniform sampling for different values of the mean cost.",
    presets={"smoke": Means(points=3), "quick": Means(), "paper": Means(points=21)},
    rows=fig4_rows,
    judge=fig4_checks,
    draw=drawn_by("sampling", "average_figure"),
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


# Proposition 1: the convergence bound and the learning rate that goes with it


STEPS = (1, 2, 5, 10, 50)


@dataclass(frozen=True)
class Recursion(Section):
    """The proof's recursion, round by round."""

    rounds: int = key(checks.whole, 2000, help="R.")
    condition: float = key(lambda name, value: checks.number(name, value), 10.0, help="L/mu.")
    probability: float = key(checks.positive, 0.1, help="q of every client.")
    factor: float = key(checks.positive, 1.0, help="Of the learning rates; control: 4.")


def proposition1_rows(recursion: Recursion, _: Results) -> list[Row]:
    """What the proof's inequalities come to over the bound that they are to prove, with either rate."""
    rows: list[Row] = []
    for steps in STEPS:
        for variant in ("printed", "corrected"):
            over = _over_bound(recursion, steps, variant)
            rows.append(
                {
                    "rate": variant,
                    "local_steps": steps,
                    "largest": float(over.max()),
                    "last": float(over[-1]),
                }
            )
    return rows


def _over_bound(
    recursion: Recursion, steps: int, variant: Literal["printed", "corrected"]
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """(R,) L/2 times the squared distance from the optimum, over the bound, after every round.

    A step contracts, d <- (1 - mu eta) d + eta^2 (D + 6 L Gamma); a round adds what sampling does,
    4 eta^2 E^2 sum of G_n^2/(N^2 q_n), at the rate of its last step. One client with G = 1 and Gamma = 1
    stands for all; it begins as far away as is consistent with its gradient bound, |w_0 - w*| = G/mu.
    """
    mu, smooth = 1.0, recursion.condition
    model = ConvergenceModel(smooth, mu, steps, [1.0], [1.0], heterogeneity=1.0, initial_distance=1 / mu)
    drift = 1.0 + 8 * steps**2 + 6 * smooth
    sampling = 4 * steps**2 / recursion.probability
    rounds = np.arange(recursion.rounds)[:, None]
    rates = recursion.factor * model.learning_rate(rounds, np.arange(steps), variant)
    distance, distances = model.initial_distance**2, []
    for own in rates:
        for rate in own.tolist():
            distance = abs(1 - mu * rate) * distance + rate**2 * drift
        distance += float(own[-1]) ** 2 * sampling
        distances.append(distance)
    stated = np.array([model.bound([recursion.probability], r + 1) for r in range(recursion.rounds)])
    return np.asarray(smooth / 2 * np.array(distances) / stated)


def proposition1_checks(table: Sequence[Row]) -> list[Check]:
    """The recursion must stay below the bound in every round, whatever E."""
    return [
        at_most(
            f"largest value of the recursion over the bound, {variant} rate",
            Estimate(max(number(row, "largest") for row in where(table, rate=variant))),
            1.0,
            corrected=variant == "corrected",
        )
        for variant in ("printed", "corrected")
    ]


PROPOSITION1 = Claim(
    identifier="sampling-proposition1",
    paper="sampling",
    place="proposition 1, equation (1)",
    says="With the learning rate 2/(max{8L, mu E} + mu r) in round r, the optimality gap after R rounds "
    "is at most (1/R)(sum of s_n/q_n + beta).",
    presets={"smoke": Recursion(rounds=300), "quick": Recursion(), "paper": Recursion(rounds=20_000)},
    rows=proposition1_rows,
    judge=proposition1_checks,
    draw=drawn_by("sampling", "recursion_figure"),
    control={"factor": 4.0},
    erratum="S-E11",
    about="The proof is by induction over a recursion for the distance from the optimum. Here the "
    "recursion is computed, with its inequalities taken for equations, and held against the bound. With "
    "the printed rate, which counts rounds where the bound counts iterations, it exceeds the bound by up "
    "to about E/2: that proof, at least, does not prove it. With a rate that falls from iteration to "
    "iteration it stays below in every round. `bonafed advise convergence` estimates the constants from "
    "data and gives the bound of a federation. The control takes rates four times as large.",
)


CLAIMS = (FIG1, FIG4, PROPOSITION1)
