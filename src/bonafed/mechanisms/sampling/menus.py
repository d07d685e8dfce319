"""Optimal, uniform and complete-information client sampling for a known prior.

Theorem 2, corrected (theory A4; the printed H(x) lacks the factor sqrt(phi(x)), erratum S-E1). With
phibar the ironed virtual cost, the contract of least E[1/q] among all truthful and individually
rational ones that spend at most `budget` per client and round is

    (1)  q(c) = min(1, scale/sqrt(phibar(c))),
    (2)  scale solves  spend(scale) = S(x) + scale A(x) = budget,  x = cutoff(scale),
    (3)  everybody is sampled if budget >= the highest cost, since E[phi] = highest cost.

spend() is concave and increasing in scale, so Newton's method started from below, which is the
iteration  scale <- (budget - S(x))/A(x),  rises to the root and never passes it: the budget is kept
at every step. Its first step from scale = 0 is Case 1 of the theorem.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from bonafed import checks
from bonafed.checks import Floats
from bonafed.economics.contracts import Case, CurveMenu, Menu, StepMenu, step_payments
from bonafed.economics.curves import SpendCurve, cost_curve, virtual_curve, virtual_roots
from bonafed.economics.discrete import FinitePrior, expectation
from bonafed.economics.priors import ContinuousPrior, Prior
from bonafed.errors import InvalidValue

Variant = Literal["corrected", "printed"]


def optimal_menu(prior: Prior, budget: float, variant: Variant = "corrected") -> Menu:
    """The truthful contract of least E[1/q] that spends at most `budget` per client and round.

    `variant="printed"` gives Theorem 2 as printed (no ironing, H(x) without its factor), for
    comparison; it may not be a contract at all.

    >>> from bonafed.economics import Uniform
    >>> menu = optimal_menu(Uniform(0.5, 1.5), budget=1.0)
    >>> menu.case, round(menu.threshold, 6)
    (2, 0.600699)
    """
    checks.literal("variant", variant, Variant)
    money = checks.positive("budget", budget)
    if variant == "printed":
        from bonafed.mechanisms.sampling.printed import printed_menu

        return printed_menu(prior, money)
    if money >= prior.high:
        return single_term(prior, money, 1.0)
    return _menu_of(prior, money)


@np.errstate(over="ignore", invalid="ignore")  # an overflow is refused below
def _menu_of(prior: Prior, money: float) -> Menu:
    """The contract (1) that spends `money` per client and round, less than the highest cost."""
    curve = virtual_curve(prior)
    scale = solve_scale(lambda s: _spend_parts(curve, s), money)
    require_scale("budget", scale, money)
    menu = menu_at_scale(prior, money, scale)
    step = 4e-16
    while menu.expected_spend > money:  # by rounding only
        scale *= 1 - step
        step = min(2 * step, 0.5)
        require_scale("budget", scale, money)
        menu = menu_at_scale(prior, money, scale)
    require_scale("budget", menu.expected_spend, money)
    return menu


def uniform_menu(prior: Prior, budget: float) -> Menu:
    """One probability for all: the only truthful such contract pays everybody the highest cost."""
    money = checks.positive("budget", budget)
    return single_term(prior, money, min(1.0, money / prior.high))


def single_term(prior: Prior, budget: float, probability: float) -> StepMenu:
    """The same terms for every report: q, and the highest cost as payment."""
    while probability * prior.high > budget:  # by rounding only
        probability = math.nextafter(probability, 0.0)
    top = np.array([prior.high])
    return StepMenu(prior, budget, top, np.array([probability]), top)


def menu_at_scale(prior: Prior, budget: float, scale: float) -> Menu:
    """The contract (1) for a given scale."""
    if isinstance(prior, FinitePrior):
        with np.errstate(divide="ignore"):
            q = np.minimum(1.0, scale / virtual_roots(prior))
        return StepMenu(prior, budget, prior.costs, q, step_payments(prior.costs, q))
    if not isinstance(prior, ContinuousPrior):
        raise InvalidValue("prior", "must be a continuous or a finite prior", prior)
    cutoff = float(virtual_curve(prior).cutoff(np.asarray(scale)))
    if cutoff >= prior.high:  # among several groups one may be worth more than its even share
        return single_term(prior, max(budget, prior.high), 1.0)
    return CurveMenu(prior, budget, scale, cutoff)


def require_scale(name: str, value: float, budget: float) -> None:
    """A scale or spend computed from a budget must be usable: not NaN, infinite or 0."""
    if not 0 < value < math.inf:
        raise InvalidValue(name, "must not be too far from the costs for double precision", budget)


def _spend_parts(curve: SpendCurve, scale: float) -> tuple[float, float]:
    x = curve.cutoff(np.asarray(scale))
    return float(curve.head(x)), float(curve.tail_root(x))


def solve_scale(spend_parts: Callable[[float], tuple[float, float]], budget: float) -> float:
    """(2): the scale at which S + scale A = budget, for parts (S, A) given at a scale.

    Rises from 0 and stops where rounding ends the rise; the caller has excluded a budget that
    buys everybody.
    """
    scale = 0.0
    for _ in range(1000):
        head, tail = spend_parts(scale)
        if tail <= 0:  # rounding took the last step past the top of the support
            break
        following = (budget - head) / tail
        if following <= scale * (1 + 2e-16):
            break
        scale = following
    return scale


@dataclass(frozen=True, slots=True, eq=False)
class CompleteInformation:
    """The benchmark in which the server knows every cost and pays exactly that (theory A5)."""

    probability: Floats  # (n,) of being sampled in a round
    payment: Floats  # (n,) money per participation: the cost
    weights: Floats  # (n,) data weights s_n

    @property
    def expected_spend(self) -> float:
        """Money per round, over all clients."""
        return expectation(self.probability, self.payment)

    @property
    def sampling_term(self) -> float:
        """sum of s_n/q_n: what the convergence bound depends on."""
        return float(np.sum(self.weights / self.probability))


def complete_information(
    costs: ArrayLike, budget: float, weights: ArrayLike | None = None
) -> CompleteInformation:
    """Known costs: q_n = min(1, tau sqrt(s_n/c_n)) with total spend n * budget per round."""
    c = checks.vector("costs", costs)
    s = data_weights(weights, c.size)
    total = checks.positive("budget", budget) * c.size
    with np.errstate(divide="ignore"):
        per_scale = np.sqrt(s / c)  # q_n per unit of tau; infinite for a cost of zero
    q = np.ones(c.size)
    if c.sum() > total:

        def parts(tau: float) -> tuple[float, float]:
            capped = (c == 0) | (tau * np.where(c > 0, per_scale, 0.0) >= 1)
            return float(c[capped].sum()), float(np.sqrt(s[~capped] * c[~capped]).sum())

        tau = solve_scale(parts, total)
        q = np.where(c > 0, np.minimum(1.0, tau * np.where(c > 0, per_scale, 0.0)), 1.0)
    return CompleteInformation(q, c, s)


@dataclass(frozen=True, slots=True, eq=False)
class CompleteInformationPopulation:
    """`complete_information` for a whole population with costs from a prior."""

    prior: Prior
    scale: float  # q(c) = min(1, scale/sqrt(c)); infinite if everybody is sampled
    threshold: float  # costs up to here are always sampled; the lowest cost if none is

    def probability(self, c: ArrayLike) -> Floats:
        with np.errstate(divide="ignore"):
            return np.minimum(1.0, self.scale / np.sqrt(np.asarray(c, dtype=np.float64)))

    @property
    def case(self) -> Case:
        if math.isinf(self.scale):
            return 3
        return 2 if self.scale >= math.sqrt(self.prior.low) else 1

    @property
    def expected_spend(self) -> float:
        if self.case == 3:
            return self.prior.mean
        curve, x = cost_curve(self.prior), np.asarray(self._cutoff())
        return float(curve.head(x) + self.scale * curve.tail_root(x))

    @property
    def expected_probability(self) -> float:
        if self.case == 3:
            return 1.0
        curve, x = cost_curve(self.prior), np.asarray(self._cutoff())
        return float(self.prior.cdf(x) + self.scale * curve.tail_inverse(x))

    @property
    def expected_inverse_probability(self) -> float:
        if self.case == 3:
            return 1.0
        curve, x = cost_curve(self.prior), np.asarray(self._cutoff())
        return float(self.prior.cdf(x) + curve.tail_root(x) / self.scale)

    def _cutoff(self) -> float:
        return float(cost_curve(self.prior).cutoff(np.asarray(self.scale)))


def complete_information_population(prior: Prior, budget: float) -> CompleteInformationPopulation:
    """What `budget` per client and round would buy if the server knew every cost."""
    money = checks.positive("budget", budget)
    if money >= prior.mean:
        return CompleteInformationPopulation(prior, math.inf, prior.high)
    curve = cost_curve(prior)
    scale = solve_scale(lambda s: _spend_parts(curve, s), money)
    return CompleteInformationPopulation(
        prior, scale, max(prior.low, float(curve.cutoff(np.asarray(scale))))
    )


def data_weights(weights: ArrayLike | None, clients: int) -> Floats:
    """(clients,) public data weights s_n > 0; 1 each by default."""
    if weights is None:
        return np.ones(clients)
    return checks.vector("weights", weights, sign="positive", length=clients)
