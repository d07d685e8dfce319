"""Theorems 1 and 2, Lemmas 1 and 2: which contracts are truthful, and which of them is best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bonafed import checks
from bonafed.checks import Floats
from bonafed.economics.contracts import step_rents
from bonafed.economics.curves import unironed_curve
from bonafed.economics.discrete import Discrete
from bonafed.economics.priors import ContinuousPrior, TruncatedExponential, Uniform
from bonafed.errors import NoSolution
from bonafed.mechanisms.sampling import optimal_menu, uniform_menu
from bonafed.papers.claim import (
    Check,
    Claim,
    Estimate,
    Results,
    Row,
    Settings,
    at_least,
    at_most,
    drawn_by,
    number,
    only,
)
from bonafed.sections import Section, flag, key

# Theorem 1: which mechanisms are truthful and individually rational


KINDS = ("falling q, payment (3)", "rising q, payment (3)", "a constant more", "payments bent")
_BROKEN_BY_ROUNDING, _NOTICEABLE = 1e-12, 1e-9  # of a utility; costs are of the order of 1
_MORE = 0.1  # money per round that everybody gets on top


@dataclass(frozen=True)
class Search(Settings):
    """Random mechanisms to search for a lie that pays and for a client that loses."""

    seeds: int = key(checks.whole, 200, help="How many mechanisms of every kind.")
    levels: int = key(
        lambda name, value: checks.whole(name, value, 3), 8, help="Costs that they tell apart."
    )
    unpaid: bool = key(
        flag, False, help="Control: clients are paid what they report, without the integral."
    )


def theorem1_rows(search: Search, _: Results) -> list[Row]:
    """What the mechanisms of a kind break of their promises: the most, and the least."""
    worst: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for seed in search.all_seeds:
        rng = np.random.default_rng(seed)
        costs = np.sort(rng.uniform(0.5, 1.5, search.levels))
        falling = np.sort(rng.uniform(0.05, 1.0, search.levels))[::-1]
        rising = _with_a_rise(falling, rng)
        rent = 0.0 if search.unpaid else 1.0
        owed = costs * falling + rent * step_rents(costs, falling)
        bent = owed + rng.uniform(-_MORE, _MORE, search.levels)
        payments = {
            KINDS[0]: (falling, owed),
            KINDS[1]: (rising, costs * rising + rent * step_rents(costs, rising)),
            KINDS[2]: (falling, owed + _MORE),
            KINDS[3]: (falling, bent),
        }
        for kind, (q, money) in payments.items():
            worst[kind].append(_broken(costs, q, money))
    return [
        {"mechanisms": kind, "tried": len(broken), "least_broken": min(broken), "most_broken": max(broken)}
        for kind, broken in worst.items()
    ]


def _with_a_rise(falling: Floats, rng: np.random.Generator) -> Floats:
    """Two neighbours change places: a more expensive client is sampled more often."""
    level = int(rng.integers(falling.size - 1))
    rising = falling.copy()
    rising[[level, level + 1]] = rising[[level + 1, level]]
    return rising


def _broken(costs: Floats, q: Floats, money: Floats) -> float:
    """The best gain of a lie, or the largest loss of the honest, whichever is more; 0: neither.

    All costs and all reports between the levels are tried too: a report is rounded up to the next level.
    """
    true = np.unique(np.concatenate([costs, (costs[1:] + costs[:-1]) / 2]))
    utility = money[None, :] - true[:, None] * q[None, :]
    honest = utility[np.arange(true.size), np.searchsorted(costs, true)]
    return float(max((utility.max(axis=1) - honest).max(), -honest.min(), 0.0))


def theorem1_checks(table: Sequence[Row]) -> list[Check]:
    """If, and only if: as printed, and with the constant that print leaves out."""
    kinds = {kind: only(table, mechanisms=kind) for kind in KINDS}

    def kept(kind: str, *, corrected: bool) -> Check:
        most = Estimate(number(kinds[kind], "most_broken"))
        return at_most(f"most that is broken: {kind}", most, _BROKEN_BY_ROUNDING, corrected=corrected)

    def broken(kind: str, *, corrected: bool) -> Check:
        least = Estimate(number(kinds[kind], "least_broken"))
        return at_least(f"least that is broken: {kind}", least, _NOTICEABLE, corrected=corrected)

    comparisons = [
        check
        for c in (False, True)
        for check in (kept(KINDS[0], corrected=c), broken(KINDS[1], corrected=c))
    ]
    comparisons.append(broken(KINDS[2], corrected=False))
    return [*comparisons, kept(KINDS[2], corrected=True), broken(KINDS[3], corrected=True)]


THEOREM1 = Claim(
    identifier="sampling-theorem1",
    paper="sampling",
    place="theorem 1",
    says="A mechanism is incentive compatible and individually rational if and only if the sampling "
    "probability does not increase in the reported cost and the payment has the form (3).",
    presets={"smoke": Search(seeds=20), "quick": Search(), "paper": Search(seeds=2000, levels=20)},
    rows=theorem1_rows,
    judge=theorem1_checks,
    draw=drawn_by("sampling", "promises_figure", _NOTICEABLE),
    control={"unpaid": True},
    erratum="S-E5",
    about="Random mechanisms that tell eight costs apart, each searched for the best lie and for an "
    "honest client that loses, at the levels and between them. Payments (3) with a falling q break "
    "nothing. A single rise of q invites a lie. But whoever gets the same sum on top of (3) is as honest "
    'as before and better off, so "only if" leaves out a constant that is 0 or more: (3) is the cheapest '
    "payment. Payments that are bent otherwise do break a promise. The control pays what is reported, "
    "without the integral of (3).",
)


# Lemmas 1 and 2: the optimum for finitely many costs


_SEARCH = 1e-5  # relative, of a minimum that a numerical search finds
_ROUNDING = 1e-9
_SHARES = (0.15, 0.4, 0.65, 0.9)  # budgets, of the highest cost


@dataclass(frozen=True)
class Priors(Settings):
    """Random regular priors on a few costs."""

    seeds: int = key(checks.whole, 25, help="How many priors.")
    levels: int = key(lambda name, value: checks.whole(name, value, 2), 5, help="K.")
    uniform: bool = key(flag, False, help="Control: uniform sampling in place of the optimum.")


def lemma1_rows(priors: Priors, _: Results) -> list[Row]:
    """For every prior: the objective against a search that knows no virtual cost, and the steps of H."""
    rows: list[Row] = []
    for seed in priors.all_seeds:
        prior = _regular(np.random.default_rng(seed), priors.levels)
        steps = np.diff(_h(prior))
        for share in _SHARES:
            budget = share * prior.high
            menu = (uniform_menu if priors.uniform else optimal_menu)(prior, budget)
            q = menu.probability(prior.costs)
            ours = float(np.sum(prior.masses / q))
            rows.append(
                {
                    "prior": seed, "budget": budget, "closed_form": ours,
                    "over_search": ours / _searched(prior, budget),
                    "spend_over_budget": menu.expected_spend / budget,
                    "largest_rise": float(np.diff(q).max()),
                    "least_step_of_h": float(steps.min()), "least_step_but_last": float(steps[:-1].min()),
                }
            )  # fmt: skip
    return rows


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

    solution = minimize(objective, np.full(c.size, min(1.0, budget / prior.high)), **how)
    return float(solution.fun)


def lemma1_checks(table: Sequence[Row]) -> list[Check]:
    """The closed form is optimal, within the budget and falling; H rises, but for its last step."""
    least = {
        name: min(number(r, name) for r in table) for name in ("least_step_of_h", "least_step_but_last")
    }
    worst = {
        name: max(number(row, name) for row in table)
        for name in ("over_search", "spend_over_budget", "largest_rise")
    }
    comparisons = []
    for corrected in (False, True):
        comparisons += [
            at_most("largest E[1/q] over the least that a search finds", Estimate(worst["over_search"]),
                    1 + _SEARCH, corrected=corrected),
            at_most("largest spend over the budget", Estimate(worst["spend_over_budget"]), 1 + _ROUNDING,
                    corrected=corrected),
            at_most("largest rise of q", Estimate(worst["largest_rise"]), _ROUNDING, corrected=corrected),
        ]  # fmt: skip
    return [
        *comparisons,
        at_least("least H(m + 1) - H(m), m = 0..K - 1", Estimate(least["least_step_of_h"]), _ROUNDING),
        at_least("least H(m + 1) - H(m), m = 0..K - 2", Estimate(least["least_step_but_last"]), _ROUNDING,
                 corrected=True),
        at_least("least H(m + 1) - H(m), m = 0..K - 1, not below 0", Estimate(least["least_step_of_h"]),
                 -_ROUNDING, corrected=True),
    ]  # fmt: skip


LEMMA1 = Claim(
    identifier="sampling-lemma1",
    paper="sampling",
    place="lemmas 1 and 2, equations (13) to (18) and (32)",
    says="For finitely many costs the closed form (17), (18) is the optimal sampling probability, and H(m "
    "+ 1) > H(m) for m = 0, ..., K - 1.",
    presets={"smoke": Priors(seeds=3), "quick": Priors(), "paper": Priors(seeds=200, levels=8)},
    rows=lemma1_rows,
    judge=lemma1_checks,
    draw=drawn_by("sampling", "closed_form_figure", _SEARCH),
    control={"uniform": True},
    erratum="S-E4",
    about="Random regular priors on five costs at four budgets. The search is sequential quadratic "
    "programming over all falling q, with the payments of (16) in the budget: it knows nothing of virtual "
    "costs; its minimum is good to about 1e-5. The closed form is optimal. H(K) = H(K - 1), so that the "
    "last of the inequalities of Lemma 2 is an equality, and a budget that equals some H(m) belongs to "
    "none of its cases; H(khat - 1) < budget <= H(khat) repairs both. The control samples uniformly.",
)


# Theorem 2: the threshold solves H(x) = budget


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


def theorem2_rows(equation: Equation, _: Results) -> list[Row]:
    """How many thresholds either equation has at budgets of case 2, and what the contracts are worth."""
    return [row for name, prior in PRIORS.items() for row in _of_prior(name, prior, equation)]


def _of_prior(name: str, prior: ContinuousPrior, equation: Equation) -> list[Row]:
    curve, x = unironed_curve(prior), np.linspace(prior.low, prior.high, equation.grid)
    head, tail = curve.head(x), curve.tail_root(x)
    phi = np.asarray(prior.virtual_cost(x))
    right = head + np.where(tail > 0, phi**equation.power, 0.0) * tail
    first = float(np.sqrt(phi[0]) * tail[0])  # case 2 begins here, and ends at the highest cost
    rows: list[Row] = []
    for share in ((np.arange(equation.budgets) + 0.5) / equation.budgets).tolist():
        budget = first + share * (prior.high - first)
        best = optimal_menu(prior, budget)
        try:
            worth = optimal_menu(prior, budget, variant="printed").expected_inverse_probability
        except NoSolution:
            worth = None
        rows.append(
            {
                "prior": name, "share": share, "budget": budget,
                "printed_roots": _roots(head + tail, budget),
                "corrected_roots": _roots(right, budget), "threshold": float(best.threshold),
                "spend_over_budget": best.expected_spend / budget,
                "inverse": best.expected_inverse_probability, "printed_inverse": worth,
            }
        )  # fmt: skip
    return rows


def _roots(values: Floats, budget: float) -> int:
    """How often the function crosses the budget on the grid."""
    side = np.sign(values - budget)
    side = side[side != 0]
    return int(np.count_nonzero(side[1:] != side[:-1]))


def theorem2_checks(table: Sequence[Row]) -> list[Check]:
    """One threshold at every budget of case 2; all money used; no worse than what print gives."""
    comparisons = []
    for kind, corrected in (("printed", False), ("corrected", True)):
        counts = [number(row, f"{kind}_roots") for row in table]
        comparisons += [
            at_least(f"fewest thresholds of a budget of case 2, {kind} H", Estimate(min(counts)), 1,
                     corrected=corrected),
            at_most(f"most thresholds of a budget of case 2, {kind} H", Estimate(max(counts)), 1,
                    corrected=corrected),
        ]  # fmt: skip
    least = min(number(row, "spend_over_budget") for row in table)
    both = [row for row in table if row["printed_inverse"] is not None]
    gains = [number(row, "inverse") / number(row, "printed_inverse") for row in both] or [1.0]
    return [
        *comparisons,
        at_least("least share of the budget that is spent", Estimate(least), 1 - 1e-9, corrected=True),
        at_most("largest E[1/q] over that of the printed contract", Estimate(max(gains)), 1 + 1e-9,
                corrected=True),
    ]  # fmt: skip


THEOREM2 = Claim(
    identifier="sampling-theorem2",
    paper="sampling",
    place="theorem 2, equation (54)",
    says="For every budget of case 2 there is a unique threshold that solves H(x) = budget, with H(x) = "
    "E[phi 1{c <= x}] + E[sqrt(phi) 1{c > x}].",
    presets={"smoke": Equation(4, 401), "quick": Equation(), "paper": Equation(101, 40_001)},
    rows=theorem2_rows,
    judge=theorem2_checks,
    draw=drawn_by("sampling", "thresholds_figure"),
    control={"power": 0.0},
    erratum="S-E1",
    about="The limit in (54) loses the factor sqrt(phi(x)) of the discrete H(m). Without it money and the "
    "root of money are added, so that the answer depends on the currency: costs on [0.5, 1.5] and the "
    "same costs in cents have other thresholds. For costs uniform on [0.5, 1.5] the printed H never goes "
    "below 1.1718 while case 2 begins at 0.8484, so that most budgets have no threshold; where it has "
    "one, the printed contract keeps the budget and is worth less. With the factor restored H does not "
    "fall, and there is one threshold at every budget.",
)


CLAIMS = (THEOREM1, LEMMA1, THEOREM2)
