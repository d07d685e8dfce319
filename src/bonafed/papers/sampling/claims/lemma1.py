"""Lemmas 1 and 2: the optimum for finitely many costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bonafed import checks
from bonafed.checks import Floats
from bonafed.economics.contracts import step_rents
from bonafed.economics.discrete import Discrete
from bonafed.mechanisms.sampling import optimal_menu, uniform_menu
from bonafed.papers.claim import Check, Claim, Estimate, Results, Row, Settings, at_least, at_most, number
from bonafed.sections import flag, key

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SEARCH = 1e-5  # relative, of a minimum that a numerical search finds
_ROUNDING = 1e-9
_SHARES = (0.15, 0.4, 0.65, 0.9)  # budgets, of the highest cost


@dataclass(frozen=True)
class Priors(Settings):
    """Random regular priors on a few costs."""

    seeds: int = key(checks.whole, 25, help="How many priors.")
    levels: int = key(lambda name, value: checks.whole(name, value, 2), 5, help="K.")
    uniform: bool = key(flag, False, help="Control: uniform sampling in place of the optimum.")


def rows(priors: Priors, _: Results) -> list[Row]:
    """For every prior: the objective against a search that knows no virtual cost, and the steps of H."""
    listed: list[Row] = []
    for seed in priors.all_seeds:
        prior = _regular(np.random.default_rng(seed), priors.levels)
        steps = np.diff(_h(prior))
        for share in _SHARES:
            budget = share * prior.high
            menu = (uniform_menu if priors.uniform else optimal_menu)(prior, budget)
            q = menu.probability(prior.costs)
            ours = float(np.sum(prior.masses / q))
            listed.append(
                {
                    "prior": seed, "budget": budget, "closed_form": ours,
                    "over_search": ours / _searched(prior, budget),
                    "spend_over_budget": menu.expected_spend / budget,
                    "largest_rise": float(np.diff(q).max()),
                    "least_step_of_h": float(steps.min()), "least_step_but_last": float(steps[:-1].min()),
                }
            )  # fmt: skip
    return listed


def _regular(rng: np.random.Generator, levels: int) -> Discrete:
    """A prior whose virtual cost rises: drawn until one does."""
    while True:
        masses = rng.dirichlet(np.full(levels, 3.0))
        prior = Discrete(np.sort(rng.uniform(0.3, 2.0, levels)), masses)
        if np.all(np.diff(prior.virtual_cost(prior.costs)) > 0):
            return prior


def _h(prior: Discrete) -> Floats:
    """(K + 1,) H(0), ..., H(K) of (32), with H(K) = sum of f phi."""
    f, phi = prior.masses, np.asarray(prior.virtual_cost(prior.costs))
    heads = np.concatenate([[0.0], np.cumsum(f * phi)])
    tails = np.concatenate([np.cumsum((f * np.sqrt(phi))[::-1])[::-1], [0.0]])
    return np.asarray(heads + np.append(np.sqrt(phi), 0.0) * tails)


def _searched(prior: Discrete, budget: float) -> float:
    """The least E[1/q] that a general solver finds over falling q, with payments (16) in the budget."""
    from scipy.optimize import LinearConstraint, minimize

    f, c = prior.masses, prior.costs
    units = np.eye(c.size)
    spend = np.array([f @ (c * q + step_rents(c, q)) for q in units])  # (16) is linear in q
    rules = np.vstack([spend, units[:-1] - units[1:]])  # within the budget, and falling
    most = np.append(budget, np.full(c.size - 1, np.inf))
    how: dict[str, Any] = {
        "method": "SLSQP", "bounds": [(1e-6, 1.0)] * c.size, "options": {"ftol": 1e-14, "maxiter": 1000},
        "constraints": LinearConstraint(rules, np.zeros(c.size), most),
    }  # fmt: skip

    def objective(q: Floats) -> float:
        return float(f @ (1 / q))

    found = minimize(objective, np.full(c.size, min(1.0, budget / prior.high)), **how)
    return float(found.fun)


def judge(table: Sequence[Row]) -> list[Check]:
    """The closed form is optimal, within the budget and falling; H rises, but for its last step."""
    least = {
        name: min(number(r, name) for r in table) for name in ("least_step_of_h", "least_step_but_last")
    }
    worst = {
        name: max(number(row, name) for row in table)
        for name in ("over_search", "spend_over_budget", "largest_rise")
    }
    found = []
    for corrected in (False, True):
        found += [
            at_most("largest E[1/q] over the least that a search finds", Estimate(worst["over_search"]),
                    1 + _SEARCH, corrected=corrected),
            at_most("largest spend over the budget", Estimate(worst["spend_over_budget"]), 1 + _ROUNDING,
                    corrected=corrected),
            at_most("largest rise of q", Estimate(worst["largest_rise"]), _ROUNDING, corrected=corrected),
        ]  # fmt: skip
    return [
        *found,
        at_least("least H(m + 1) - H(m), m = 0..K - 1", Estimate(least["least_step_of_h"]), _ROUNDING),
        at_least("least H(m + 1) - H(m), m = 0..K - 2", Estimate(least["least_step_but_last"]), _ROUNDING,
                 corrected=True),
        at_least("least H(m + 1) - H(m), m = 0..K - 1, not below 0", Estimate(least["least_step_of_h"]),
                 -_ROUNDING, corrected=True),
    ]  # fmt: skip


def draw(table: Sequence[Row]) -> Figure:
    """The closed form over the search, for every prior and budget."""
    from bonafed.papers.sampling.figures import finish, panels
    from bonafed.presentation.figures import BLUE

    figure, (axes,) = panels(1, 5.5)
    x = [number(row, "closed_form") for row in table]
    axes.plot(x, [number(row, "over_search") - 1 for row in table], "o", ms=4, color=BLUE)
    axes.axhline(_SEARCH, color="black", lw=0.8, ls=":")
    finish(axes, "E[1/q] of the closed form", "above the least of a search, relative")
    return figure


CLAIM = Claim(
    identifier="sampling-lemma1",
    paper="sampling",
    place="lemmas 1 and 2, equations (13) to (18) and (32)",
    says="For finitely many costs the closed form (17), (18) is the optimal sampling probability, and H(m "
    "+ 1) > H(m) for m = 0, ..., K - 1.",
    presets={"smoke": Priors(seeds=3), "quick": Priors(), "paper": Priors(seeds=200, levels=8)},
    rows=rows,
    judge=judge,
    draw=draw,
    control={"uniform": True},
    erratum="S-E4",
    about="Random regular priors on five costs at four budgets. The search is sequential quadratic "
    "programming over all falling q, with the payments of (16) in the budget: it knows nothing of virtual "
    "costs; its minimum is good to about 1e-5. The closed form is optimal. H(K) = H(K - 1), so that the "
    "last of the inequalities of Lemma 2 is an equality, and a budget that equals some H(m) belongs to "
    "none of its cases; H(khat - 1) < budget <= H(khat) repairs both. The control samples uniformly.",
)
