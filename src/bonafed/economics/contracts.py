"""Contracts as frozen values: what is offered, what was allocated, what was settled.

Theorem 1 (theory A1). A pair (q, t) is truthful and individually rational on [low, high] if and only if

    (a) q does not rise in the report, and
    (b) t(c) = c q(c) + int_c^high q(z) dz + u0, with u0 >= 0 the utility of the highest cost.

A menu has u0 = 0, the cheapest choice. Units: q is the probability of being sampled in a round, the
payment r = t/q is money per participation, t is money per round in expectation.

A report above the highest cost is refused. A report below the lowest is priced as the lowest, which
is what (a) and (b) say for a q that is constant there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, NamedTuple, final

import numpy as np
from numpy.typing import ArrayLike

from bonafed.checks import Floats
from bonafed.economics.curves import smooth_curve
from bonafed.economics.discrete import FinitePrior, expectation
from bonafed.economics.priors import ContinuousPrior, Prior
from bonafed.errors import ReportRefused

Case = Literal[1, 2, 3]
_CHUNK = 1 << 14  # reports priced at once: what fits into the cache
_PUBLISHED_LEVELS = 65  # cost levels of a continuous menu that are written out when published


def admitted(reports: ArrayLike, highest: float) -> Floats:
    """Reports as numbers; refuses what no contract admits."""
    c = np.asarray(reports, dtype=np.float64)
    if c.size:
        worst = c.max()  # NaN if any is NaN
        if not worst <= highest:
            raise ReportRefused("report", f"must be at most the highest cost {highest:g}", worst)
        if c.min() < 0:
            raise ReportRefused("report", "must not be negative", c.min())
    return c


class Outcomes(NamedTuple):
    """The lottery a menu is for one client: a cost type with probability `mass`, then coins."""

    mass: Floats  # (m,) probability of the cost type, sum 1
    probability: Floats  # (m,) of being sampled in a round
    payment: Floats  # (m,) money per participation


@dataclass(frozen=True, slots=True, eq=False)
class Allocation:
    """What a mechanism decided for n participants, and what each gets for it in expectation."""

    quantity: Floats  # (n,) what a participant gives, e.g. probability of being sampled per round
    transfer: Floats  # (n,) expected money to the participant, per round

    def utility(self, true_costs: ArrayLike) -> Floats:
        """(n,) transfer minus true cost times quantity."""
        return self.transfer - np.asarray(true_costs, dtype=np.float64) * self.quantity


@dataclass(frozen=True, slots=True)
class Settlement:
    """One client's terms after its report."""

    report: float
    probability: float  # of being sampled in a round
    payment: float  # money per participation

    @property
    def expected_payment(self) -> float:
        """Money per round in expectation over the sampling coin."""
        return self.probability * self.payment


class Menu(ABC):
    """A published contract for one client: terms for every report it may make."""

    __slots__ = ()

    prior: Prior  # the belief the expectations below are taken over
    budget: float  # money per client and round the menu was designed for

    @abstractmethod
    def price(self, c: ArrayLike) -> tuple[Floats, Floats]:
        """Probability and payment per participation for each report, together."""

    def probability(self, c: ArrayLike) -> Floats:
        """q(c): probability of being sampled in a round."""
        return self.price(c)[0]

    def payment(self, c: ArrayLike) -> Floats:
        """r(c): money per participation."""
        return self.price(c)[1]

    def expected_payment(self, c: ArrayLike) -> Floats:
        """t(c) = q(c) r(c): money per round, in expectation over the sampling coin."""
        q, r = self.price(c)
        return q * r

    def utility(self, true_cost: ArrayLike, report: ArrayLike) -> Floats:
        """q(report) (r(report) - true cost), money per round; arrays broadcast."""
        q, r = self.price(report)
        return q * (r - np.asarray(true_cost, dtype=np.float64))

    def settle(self, report: float) -> Settlement:
        """The terms a client gets for its report."""
        q, r = self.price(float(report))
        return Settlement(float(report), float(q), float(r))

    @property
    @abstractmethod
    def threshold(self) -> float:
        """Clients with a cost up to here are always sampled; the lowest cost if nobody is."""

    @property
    @abstractmethod
    def case(self) -> Case:
        """Of Theorem 2: 1 nobody, 2 some, 3 everybody is sampled with certainty."""

    @property
    @abstractmethod
    def expected_spend(self) -> float:
        """E[t], money per client and round."""

    @property
    @abstractmethod
    def expected_probability(self) -> float:
        """E[q], the mean probability over the prior."""

    @property
    @abstractmethod
    def expected_inverse_probability(self) -> float:
        """E[1/q]: what the convergence bound of Proposition 1 depends on."""

    @abstractmethod
    def outcomes(self) -> Outcomes:
        """The menu as a lottery over cost types, for the distribution of the spend."""

    @abstractmethod
    def levels(self) -> Floats:
        """The cost levels at which the menu is written out when published."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class StepMenu(Menu):
    """Finitely many terms; a report is rounded up to the next cost level (theory A2)."""

    prior: Prior
    budget: float
    costs: Floats  # (K,) increasing cost levels, the last is the highest admitted cost
    probabilities: Floats  # (K,) of being sampled in a round
    payments: Floats  # (K,) money per participation

    def price(self, c: ArrayLike) -> tuple[Floats, Floats]:
        at = np.searchsorted(self.costs, admitted(c, float(self.costs[-1])))
        return self.probabilities[at], self.payments[at]

    @property
    def threshold(self) -> float:
        certain = self.costs[self.probabilities == 1.0]
        return float(certain[-1]) if certain.size else self.prior.low

    @property
    def case(self) -> Case:
        certain = self.probabilities == 1.0
        return 3 if certain.all() else 2 if certain.any() else 1

    @property
    def expected_spend(self) -> float:
        return expectation(self._masses(), self.probabilities * self.payments)

    @property
    def expected_probability(self) -> float:
        return expectation(self._masses(), self.probabilities)

    @property
    def expected_inverse_probability(self) -> float:
        mass = self._masses()
        needed = mass > 0
        with np.errstate(divide="ignore"):
            return expectation(mass[needed], 1 / self.probabilities[needed])

    def outcomes(self) -> Outcomes:
        return Outcomes(self._masses(), self.probabilities, self.payments)

    def levels(self) -> Floats:
        return self.costs

    def _masses(self) -> Floats:
        """(K,) probability that a cost is rounded up to each level."""
        if isinstance(self.prior, FinitePrior) and np.array_equal(self.costs, self.prior.costs):
            return self.prior.masses
        return np.diff(self.prior.cdf(self.costs), prepend=0.0)


def step_payments(costs: Floats, probabilities: Floats) -> Floats:
    """Equation (16): r_k = c_k + sum_{j > k} (q_j/q_k)(c_j - c_{j-1}); r_K = c_K.

    Where q_k = 0 only the expected payment is defined; the payment is then the highest cost.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        payments = costs + step_rents(costs, probabilities) / probabilities
    return np.where(probabilities > 0, payments, costs[-1])


def step_rents(costs: Floats, probabilities: Floats) -> Floats:
    """(K,) sum over j > k of q_j (c_j - c_{j-1}): what (16) pays beyond the cost, money per round."""
    gains = probabilities[1:] * np.diff(costs)
    return np.concatenate([np.cumsum(gains[::-1])[::-1], [0.0]])


@final
@dataclass(frozen=True, slots=True, eq=False)
class CurveMenu(Menu):
    """q(c) = min(1, scale/sqrt(ironed virtual cost)), continuous in the report (Theorem 2).

    With z = max(c, threshold): r(c) = z + scale R(z)/q(z), R the rent of `curves.py`, which is (3).
    """

    prior: ContinuousPrior
    budget: float
    scale: float  # tau of theory A4 (times sqrt(s_n) for a client of data weight s_n)
    cutoff: float  # threshold of theory A4; the lowest cost in Case 1

    def price(self, c: ArrayLike) -> tuple[Floats, Floats]:
        reports = admitted(c, self.prior.high)
        if reports.size <= _CHUNK:
            return self._price(reports)
        flat = reports.ravel()
        q, r = np.empty(flat.size), np.empty(flat.size)
        for start in range(0, flat.size, _CHUNK):
            part = slice(start, start + _CHUNK)
            q[part], r[part] = self._price(flat[part])
        return q.reshape(reports.shape), r.reshape(reports.shape)

    def _price(self, c: Floats) -> tuple[Floats, Floats]:
        high = self.prior.high
        z = np.maximum(c, self.cutoff)
        w, rent = smooth_curve(self.prior).inverse_root_and_rent(z)
        q = np.minimum(self.scale * w, 1.0)
        if self.case == 2:
            q = np.where(c <= self.cutoff, 1.0, q)
        with np.errstate(divide="ignore", invalid="ignore"):
            r = z + self.scale * rent / q
        # r <= high because q does not rise; also where q = 0, at the highest cost (theory A4)
        r = np.fmin(r, high)
        return q, r

    @property
    def threshold(self) -> float:
        return self.cutoff

    @property
    def case(self) -> Case:
        return 2 if self.cutoff > self.prior.low else 1

    @property
    def expected_spend(self) -> float:
        curve, x = smooth_curve(self.prior), np.asarray(self.cutoff)
        tail = float(curve.tail_root(x))
        if tail == 0:  # nobody is left above the cut-off that a double could tell; all get its terms
            return float(self.prior.cdf(x) * self.expected_payment(self.cutoff))
        return float(curve.head(x)) + self.scale * tail

    @property
    def expected_probability(self) -> float:
        curve, x = smooth_curve(self.prior), np.asarray(self.cutoff)
        return float(self.prior.cdf(x) + self.scale * curve.tail_inverse(x))

    @property
    def expected_inverse_probability(self) -> float:
        curve, x = smooth_curve(self.prior), np.asarray(self.cutoff)
        with np.errstate(over="ignore"):  # hardly anybody is ever sampled
            return float(self.prior.cdf(x) + curve.tail_root(x) / self.scale)

    def outcomes(self) -> Outcomes:
        """One atom for those always sampled, Gauss rules in quantile cells for the rest.

        Cells end where the terms have kinks and are graded towards both ends of the support. What the
        rule misses of the expected spend (1e-6 of it at most for the priors tried) is put on top of the
        payments, so that a spend computed from the outcomes is never too low.
        """
        start = float(self.prior.cdf(self.cutoff))
        kinks = [x for pool in self.prior.ironed_intervals for x in (pool.left, pool.right)]
        graded = 0.5 ** np.arange(6, 40, 2)
        levels = np.concatenate([np.linspace(0, 1, 41), graded, 1 - graded, self.prior.cdf(kinks)])
        borders = np.unique([start, *levels[levels > start], 1.0])
        nodes, weights = np.polynomial.legendre.leggauss(4)
        half = np.diff(borders)[:, None] / 2
        inside = ((borders[1:] + borders[:-1])[:, None] / 2 + half * nodes).ravel()
        costs = np.concatenate([[self.cutoff], self.prior.quantile(inside)])
        mass = np.concatenate([[start], (half * weights).ravel()])
        mass /= mass.sum()
        q, r = self.price(costs)
        seen = expectation(mass, q * r)  # 0 where it is too small for a double
        return Outcomes(mass, q, r * (max(1.0, self.expected_spend / seen) if seen > 0 else 1.0))

    def levels(self) -> Floats:
        return np.linspace(self.prior.low, self.prior.high, _PUBLISHED_LEVELS)
