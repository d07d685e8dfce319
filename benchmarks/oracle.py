"""Pricing from the definitions, slowly; shares nothing with the code it checks.

The optimal contract has q(c) = min(1, tau/sqrt(psi(c))) and r(c) = c + int_c^high q(z) dz / q(c), where
psi is the slope of the lower convex hull of the points (G(c), c G(c)) and tau spends the budget,
E[psi q] = budget. Integrals are taken by `scipy.integrate.quad`, roots by `scipy.optimize`; on
finitely many costs the integrals are sums, and a report is rounded up to the next cost.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from scipy import integrate, optimize, stats

_GRID = 4000  # cells in which a pool of the hull is looked for
_EPSREL = 1e-12


class Law(Protocol):
    """A distribution as SciPy freezes it; need not be cut to the support."""

    def pdf(self, c: float) -> Any:
        """Density."""

    def cdf(self, c: float) -> Any:
        """Distribution function."""


@dataclass(frozen=True)
class Mixture:
    """Normals with weights, from `scipy.stats.norm`."""

    weights: Sequence[float]
    means: Sequence[float]
    sds: Sequence[float]

    def pdf(self, c: float) -> float:
        """Density."""
        parts = zip(self.weights, self.means, self.sds, strict=True)
        return math.fsum(w * float(stats.norm.pdf(c, m, s)) for w, m, s in parts)

    def cdf(self, c: float) -> float:
        """Distribution function."""
        parts = zip(self.weights, self.means, self.sds, strict=True)
        return math.fsum(w * float(stats.norm.cdf(c, m, s)) for w, m, s in parts)


def lower_hull(x: Sequence[float], y: Sequence[float]) -> list[int]:
    """Indices of the corners of the lower convex hull of points sorted by x."""
    corners: list[int] = []
    for k in range(len(x)):
        while len(corners) > 1:
            i, j = corners[-2:]
            if (y[j] - y[i]) * (x[k] - x[j]) < (y[k] - y[j]) * (x[j] - x[i]):
                break
            corners.pop()
        corners.append(k)
    return corners


class Continuous:
    """A law cut to [low, high], at most one pool, and the contract for a budget."""

    def __init__(self, law: Law, low: float, high: float, budget: float) -> None:
        self.law, self.low, self.high = law, low, high
        self.below = float(law.cdf(low))
        self.mass = float(law.cdf(high)) - self.below
        self.pool = self._find_pool()
        top = math.sqrt(high)
        while self._spend(top) < budget:
            top *= 2
        self.tau = float(optimize.brentq(lambda t: self._spend(t) - budget, 0.0, top, xtol=1e-15))
        self.cutoff = self._cutoff(self.tau)

    def g(self, c: float) -> float:
        """Density of the cut law."""
        return float(self.law.pdf(c)) / self.mass

    def cdf(self, c: float) -> float:
        """Distribution function of the cut law."""
        return (float(self.law.cdf(c)) - self.below) / self.mass

    def phi(self, c: float) -> float:
        """Virtual cost c + G/g; at the lowest cost G/g is 0 for every law used here."""
        mass, g = self.cdf(c), self.g(c)
        if mass <= 0:
            return c
        return c + mass / g if g > 0 else math.inf

    def psi(self, c: float) -> float:
        """Virtual cost, constant in the pool."""
        if self.pool is not None and self.pool[0] <= c <= self.pool[1]:
            return self.pool[2]
        return self.phi(c)

    def q(self, c: float) -> float:
        """Probability of being sampled."""
        return min(1.0, self.tau / math.sqrt(self.psi(c)))

    def price(self, reports: Sequence[float]) -> list[tuple[float, float]]:
        """(q, r) of each report; the integral of q is built up from the highest report down."""
        rents, rent, above = {}, 0.0, self.high
        for c in sorted(set(reports), reverse=True):
            rent += self._integral(self.q, c, above, self.cutoff)
            rents[c], above = rent, c
        return [(self.q(c), c + rents[c] / self.q(c)) for c in reports]

    def _find_pool(self) -> tuple[float, float, float] | None:
        step = (self.high - self.low) / _GRID
        grid = [self.low + k * step for k in range(_GRID + 1)]
        levels = [self.cdf(c) for c in grid]
        corners = lower_hull(levels, [c * level for c, level in zip(grid, levels, strict=True)])
        gap, left, right = max((j - i, i, j) for i, j in itertools.pairwise(corners))
        if gap < 10:  # the curve is its own hull
            return None

        def touches(ends: Any) -> list[float]:
            a, b = float(ends[0]), float(ends[1])
            slope = (b * self.cdf(b) - a * self.cdf(a)) / (self.cdf(b) - self.cdf(a))
            return [self.phi(a) - slope, self.phi(b) - slope]

        a, b = (float(end) for end in optimize.fsolve(touches, [grid[left], grid[right]], xtol=1e-14))
        return a, b, self.phi(a)

    def _cutoff(self, tau: float) -> float:
        """The last cost that is always sampled."""
        if self.psi(self.low) >= tau * tau:
            return self.low
        top = self.high - 1e-12 * (self.high - self.low)
        if self.psi(top) <= tau * tau:
            return self.high
        return float(optimize.brentq(lambda c: self.psi(c) - tau * tau, self.low, top, xtol=1e-15))

    def _spend(self, tau: float) -> float:
        def rate(c: float) -> float:  # psi q g, with psi g = c g + G outside the pool
            psi, g = self.psi(c), self.g(c)
            pooled = self.pool is not None and self.pool[0] <= c <= self.pool[1]
            return min(1.0, tau / math.sqrt(psi)) * (psi * g if pooled else c * g + self.cdf(c))

        return self._integral(rate, self.low, self.high, self._cutoff(tau))

    def _integral(self, f: Callable[[float], float], start: float, stop: float, kink: float) -> float:
        borders = [start, stop, kink, *(self.pool[:2] if self.pool is not None else ())]
        inside = sorted({c for c in borders if start <= c <= stop})
        parts = itertools.pairwise(inside)
        return math.fsum(integrate.quad(f, a, b, epsabs=0, epsrel=_EPSREL)[0] for a, b in parts)


class Finite:
    """Sorted costs, their masses, and the contract for a budget."""

    def __init__(self, costs: Sequence[float], masses: Sequence[float], budget: float) -> None:
        self.costs = list(costs)
        below = [0.0, *itertools.accumulate(masses)]
        spend = [0.0, *(c * level for c, level in zip(self.costs, below[1:], strict=True))]
        corners = lower_hull(below, spend)
        self.psi: list[float] = []
        for i, j in itertools.pairwise(corners):
            self.psi += [(spend[j] - spend[i]) / (below[j] - below[i])] * (j - i)

        def excess(tau: float) -> float:
            cells = zip(masses, self.psi, strict=True)
            return math.fsum(f * min(p, tau * math.sqrt(p)) for f, p in cells) - budget

        self.tau = float(optimize.brentq(excess, 0.0, math.sqrt(self.psi[-1]), xtol=1e-15))

    def q(self, k: int) -> float:
        """Probability of being sampled at cost level k."""
        return min(1.0, self.tau / math.sqrt(self.psi[k]))

    def price(self, reports: Sequence[float]) -> list[tuple[float, float]]:
        """(q, r) of each report, by summing all levels above it."""
        terms = []
        for c in reports:
            k = bisect.bisect_left(self.costs, c)
            rent = math.fsum(
                self.q(j) * (self.costs[j] - self.costs[j - 1]) for j in range(k + 1, len(self.costs))
            )
            terms.append((self.q(k), self.costs[k] + rent / self.q(k)))
        return terms
