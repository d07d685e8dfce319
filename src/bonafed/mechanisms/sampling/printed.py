"""The paper's formulas as printed, kept to show where they fail. Never a default.

Theorem 2 (errata S-E1, S-E2): the printed threshold solves H(x) = S(x) + A(x) = budget, without the
factor sqrt(phi(x)) on A. The printed probability above it, (budget - S)/A / sqrt(phi), is then
1/sqrt(phi): it may exceed 1, and for many budgets there is no threshold at all. No ironing.

Algorithm 1 (errata S-A6.1 to S-A6.4): the maximum-likelihood estimate without ironing, payments (3)
up to the highest cost, the budget test of line 8 on the SMALLEST expected payment, and line 16.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import numpy as np
from numpy.typing import ArrayLike

from bonafed.checks import Floats
from bonafed.economics.contracts import (
    Case,
    Menu,
    Outcomes,
    StepMenu,
    admitted,
    step_payments,
)
from bonafed.economics.curves import SmoothCurve, unironed_curve
from bonafed.economics.discrete import FinitePrior, estimate, expectation, virtual_costs
from bonafed.economics.priors import ContinuousPrior, Prior
from bonafed.errors import InvalidValue, NoSolution
from bonafed.mechanisms.sampling.menus import solve_scale

if TYPE_CHECKING:
    from bonafed.mechanisms.sampling.prior_free import Offer, PriorFreeState

_SCAN = 4001  # points of the paper's "linear grid search" for the threshold


def printed_menu(prior: Prior, budget: float) -> Menu:
    """Theorem 2 as printed; Lemma 1 (which is right, but for ironing) for a finite prior."""
    if isinstance(prior, FinitePrior):
        q = unironed_probabilities(prior.costs, prior.masses, budget)
        return StepMenu(prior, budget, prior.costs, q, step_payments(prior.costs, q))
    if not isinstance(prior, ContinuousPrior):
        raise InvalidValue("prior", "must be a continuous or a finite prior", prior)
    curve = unironed_curve(prior)
    low = np.asarray(prior.low)
    if budget >= prior.high:
        return PrintedMenu(prior, budget, np.inf, prior.high, curve)
    at_low = float(curve.tail_root(low))
    if budget <= np.sqrt(float(prior.virtual_cost(low))) * at_low:
        return PrintedMenu(prior, budget, budget / at_low, prior.low, curve)
    threshold = printed_threshold(prior, budget)
    x = np.asarray(threshold)
    scale = float((budget - curve.head(x)) / curve.tail_root(x))
    return PrintedMenu(prior, budget, scale, threshold, curve)


def printed_threshold_function(prior: ContinuousPrior, x: ArrayLike) -> Floats:
    """The printed H(x) of Theorem 2 and (54), erratum S-E1."""
    curve, c = unironed_curve(prior), np.asarray(x, dtype=np.float64)
    return curve.head(c) + curve.tail_root(c)


def printed_threshold(prior: ContinuousPrior, budget: float) -> float:
    """A root of the printed H(x) = budget, if there is one."""
    grid = np.linspace(prior.low, prior.high, _SCAN)
    gap = printed_threshold_function(prior, grid) - budget
    crossings = np.flatnonzero(gap[:-1] * gap[1:] <= 0)
    if not crossings.size:
        raise NoSolution(
            f"the printed H(x) has no root for budget {budget:g}: its range is "
            f"[{gap.min() + budget:.6g}, {gap.max() + budget:.6g}] (erratum S-E1)"
        )
    from scipy.optimize import brentq

    left, right = grid[crossings[-1]], grid[crossings[-1] + 1]
    return float(brentq(lambda x: float(printed_threshold_function(prior, x)) - budget, left, right))


def unironed_probabilities(costs: Floats, masses: Floats, budget: float) -> Floats:
    """q_k = min(1, tau/sqrt(phi_k)) with phi as it is: not monotone for an irregular prior."""
    phi = virtual_costs(costs, masses)
    if budget >= costs[-1]:
        return np.ones(costs.size)
    root = np.sqrt(phi)

    def parts(tau: float) -> tuple[float, float]:
        capped = root <= tau
        return float((masses * phi)[capped].sum()), float((masses * root)[~capped].sum())

    tau = solve_scale(parts, budget)
    with np.errstate(divide="ignore"):
        return np.minimum(1.0, tau / root)


@final
@dataclass(frozen=True, slots=True, eq=False)
class PrintedMenu(Menu):
    """q = 1 up to the printed threshold, scale/sqrt(phi) above it, not capped; payments by (3)."""

    prior: ContinuousPrior
    budget: float
    scale: float
    cutoff: float
    curve: SmoothCurve

    def price(self, c: ArrayLike) -> tuple[Floats, Floats]:
        reports = np.maximum(admitted(c, self.prior.high), self.prior.low)
        if np.isinf(self.scale):
            return np.ones_like(reports), np.full_like(reports, self.prior.high)
        w, rent = self.curve.inverse_root_and_rent(np.maximum(reports, self.cutoff))
        certain = (reports <= self.cutoff) & (self.cutoff > self.prior.low)
        q = np.where(certain, 1.0, self.scale * w)
        head_start = np.where(certain, self.cutoff - reports, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            r = reports + (head_start + self.scale * rent) / q
        return q, np.where(q > 0, r, self.prior.high)  # never paid where q = 0

    @property
    def threshold(self) -> float:
        return self.cutoff

    @property
    def case(self) -> Case:
        return 3 if np.isinf(self.scale) else 2 if self.cutoff > self.prior.low else 1

    @property
    def expected_spend(self) -> float:
        lottery = self.outcomes()
        return expectation(lottery.mass, lottery.probability * lottery.payment)

    @property
    def expected_probability(self) -> float:
        lottery = self.outcomes()
        return expectation(lottery.mass, lottery.probability)

    @property
    def expected_inverse_probability(self) -> float:
        lottery = self.outcomes()
        return expectation(lottery.mass, 1 / lottery.probability)

    def outcomes(self) -> Outcomes:
        borders = np.unique([0.0, float(self.prior.cdf(self.cutoff)), *np.linspace(0, 1, 257)])
        middle = (borders[1:] + borders[:-1]) / 2
        return Outcomes(np.diff(borders), *self.price(self.prior.quantile(middle)))

    def levels(self) -> Floats:
        return np.linspace(self.prior.low, self.prior.high, 65)


def printed_offer(state: PriorFreeState) -> tuple[Offer, bool]:
    """Lines 8 to 16 of the paper's Algorithm 1: the next offer, and whether it is the last."""
    from bonafed.mechanisms.sampling.prior_free import offer, one_term_offer

    rules, target = state.rules, state.remaining / state.clients_left
    if state.reports.size:
        support, masses = estimate(state.reports, float(state.reports[-1]), "mle")
        costs, q = support, unironed_probabilities(support, masses, max(target, 0.0))
        if costs[-1] < rules.highest:  # failure 3: q is kept beyond the largest report
            costs, q = np.append(costs, rules.highest), np.append(q, q[-1])
        if state.remaining - q[-1] * rules.highest >= 0:  # line 8
            return offer(support, masses, target, costs, q), False
    even = max(0.0, target / rules.highest)  # line 16
    return one_term_offer(rules.highest, min(1.0, even)), True
