"""The curves Theorem 2 integrates, for any index psi(c) that does not fall in the cost.

The server's optimum for a budget is q(c) = min(1, scale / sqrt(psi(c))), where psi is the ironed
virtual cost (truthful contract) or the cost itself (complete information). All it needs of the
prior (density g) are, at a cut-off x,

    head(x)           S(x) = E[psi 1{c <= x}]           money spent on those always sampled
    tail_root(x)      A(x) = E[sqrt(psi) 1{c > x}]      so the spend is S(x) + scale A(x)
    tail_inverse(x)   K(x) = E[psi^-1/2 1{c > x}]       expected probability above x, over scale
    inverse_root(c)   w(c) = psi(c)^-1/2
    rent(c)           R(c) = int_c^high w(z) dz         the information rent of (3), over scale

A cut-off belongs to a scale: cutoff(scale) = sup{c: sqrt(psi(c)) <= scale}.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import final

import numpy as np
from numpy.typing import NDArray

from bonafed.checks import Floats
from bonafed.economics.discrete import FinitePrior
from bonafed.economics.piecewise import Piecewise, fit
from bonafed.economics.priors import ContinuousPrior, IronedInterval, Prior, Uniform
from bonafed.errors import InvalidValue

_REACHED = 1e-9  # of w at the other border of a panel: closer to its limit is rounding
_NOTHING = 1e-140  # a tail lighter than this cannot be told from none in the tables


class SpendCurve(ABC):
    """See the module docstring for each quantity; all arguments and results are arrays."""

    __slots__ = ()

    @abstractmethod
    def cutoff(self, scale: Floats) -> Floats: ...

    @abstractmethod
    def head(self, x: Floats) -> Floats: ...

    @abstractmethod
    def tail_root(self, x: Floats) -> Floats: ...

    @abstractmethod
    def tail_inverse(self, x: Floats) -> Floats: ...


class SmoothCurve(SpendCurve):
    """The curve of a prior with a density: adds what prices a single report."""

    __slots__ = ()

    @abstractmethod
    def inverse_root(self, c: Floats) -> Floats: ...

    @abstractmethod
    def inverse_root_and_rent(self, c: Floats) -> tuple[Floats, Floats]: ...


@final
@dataclass(frozen=True, slots=True)
class UniformVirtualCurve(SmoothCurve):
    """Closed forms for U[a, b], psi = 2c - a (theory A4)."""

    a: float
    b: float

    def cutoff(self, scale: Floats) -> Floats:
        with np.errstate(over="ignore"):  # a scale beyond all costs: the cut-off is b
            return np.clip((scale * scale + self.a) / 2, self.a, self.b)

    def head(self, x: Floats) -> Floats:
        return np.asarray(x * ((x - self.a) / (self.b - self.a)))

    def tail_root(self, x: Floats) -> Floats:
        u, v = math.sqrt(2 * self.b - self.a), np.sqrt(2 * x - self.a)
        # (u^3 - v^3)/3(b - a) with u - v = 2(b - x)/(u + v): no cancellation at the top
        third = (u * u + u * v + v * v) / (3 * (self.b - self.a))
        return np.asarray(2 * (self.b - x) / (u + v) * third)

    def tail_inverse(self, x: Floats) -> Floats:
        return self.inverse_root_and_rent(x)[1] / (self.b - self.a)

    def inverse_root(self, c: Floats) -> Floats:
        return self.inverse_root_and_rent(c)[0]

    def inverse_root_and_rent(self, c: Floats) -> tuple[Floats, Floats]:
        root = np.sqrt(2 * c - self.a)
        with np.errstate(divide="ignore"):
            return 1 / root, math.sqrt(2 * self.b - self.a) - root


@final
@dataclass(frozen=True, slots=True, eq=False)
class TabulatedCurve(SmoothCurve):
    """Piecewise polynomials of near machine precision; R, A, K are their exact integrals.

    Because R is the exact integral of the tabulated w, payments built from the two are truthful
    to rounding whatever the error of the table itself.
    """

    low: float
    high: float
    exact_head: Callable[[Floats], Floats]
    w: Piecewise
    rent: Piecewise
    root: Piecewise
    inverse: Piecewise
    limits: tuple[tuple[float, float], ...] = ()  # (end, w there) where the table does not reach it
    pools: tuple[IronedInterval, ...] = ()  # where w is constant

    def cutoff(self, scale: Floats) -> Floats:
        with np.errstate(divide="ignore", over="ignore"):
            target = 1 / scale  # w falls in c; the cut-off is the last c with w(c) >= 1/scale
        left = np.full_like(target, self.low)
        right = np.full_like(target, self.high)
        # Halving the panels first, then the panel: 64 + log2(panels) steps end at neighbouring
        # doubles whatever the grading of the mesh.
        for _ in range(80):
            middle = (left + right) / 2
            above = self.w(middle) >= target
            left, right = np.where(above, middle, left), np.where(above, right, middle)
        return self._off_pools(np.where(self.inverse_root(right) >= target, right, left), target)

    def _off_pools(self, x: Floats, target: Floats) -> Floats:
        """A cut-off inside a pool is there by rounding: all of the pool is above the target, or nothing."""
        for pool in self.pools:
            inside = (pool.left < x) & (x < pool.right)
            whole = 1 / math.sqrt(pool.virtual_cost) >= target
            x = np.where(inside, np.where(whole, pool.right, pool.left), x)
        return x

    def head(self, x: Floats) -> Floats:
        return self.exact_head(x)

    def tail_root(self, x: Floats) -> Floats:
        value = self.root(x)
        return np.where(value > _NOTHING, value, 0.0)

    def tail_inverse(self, x: Floats) -> Floats:
        return self.inverse(x)

    def inverse_root(self, c: Floats) -> Floats:
        return self._to_the_end(c, np.maximum(self.w(c), 0.0))

    def inverse_root_and_rent(self, c: Floats) -> tuple[Floats, Floats]:
        panel = self.w.locate(c)
        w, rent = np.maximum(self.w(c, panel), 0.0), np.maximum(self.rent(c, panel), 0.0)
        return self._to_the_end(c, w), rent

    def _to_the_end(self, c: Floats, w: Floats) -> Floats:
        for end, limit in self.limits:
            w = np.where(c == end, limit, w)
        return w


@final
@dataclass(frozen=True, slots=True, eq=False)
class StepCurve(SpendCurve):
    """Sums instead of integrals: psi_k and masses f_k on finitely many costs (theory A4)."""

    costs: Floats  # (K,) increasing
    root: Floats  # (K,) sqrt(psi_k), non-decreasing
    heads: Floats  # (K+1,) S_m = sum_{k <= m} f_k psi_k
    tail_roots: Floats  # (K+1,) A_m = sum_{k > m} f_k sqrt(psi_k)
    tail_inverses: Floats  # (K+1,)

    def cutoff(self, scale: Floats) -> Floats:
        capped = np.searchsorted(self.root, scale, side="right")
        return np.where(capped > 0, self.costs[np.maximum(capped - 1, 0)], -np.inf)

    def head(self, x: Floats) -> Floats:
        return self.heads[self._upto(x)]

    def tail_root(self, x: Floats) -> Floats:
        return self.tail_roots[self._upto(x)]

    def tail_inverse(self, x: Floats) -> Floats:
        return self.tail_inverses[self._upto(x)]

    def _upto(self, x: Floats) -> NDArray[np.intp]:
        return np.asarray(np.searchsorted(self.costs, x, side="right"))


@lru_cache(maxsize=64)
def virtual_curve(prior: Prior) -> SpendCurve:
    """The curve of the ironed virtual cost: what the truthful contract is made from."""
    if isinstance(prior, FinitePrior):
        return step_curve(prior.costs, prior.masses, prior.ironed_virtual_costs())
    if isinstance(prior, Uniform):
        return UniformVirtualCurve(prior.low, prior.high)
    smooth = _with_density(prior)
    curve = _tabulate(smooth, *_virtual_index(smooth, smooth.ironed_intervals))
    return replace(curve, pools=tuple(smooth.ironed_intervals))


def virtual_roots(prior: FinitePrior) -> Floats:
    """(K,) square roots of the ironed virtual costs, computed once per prior."""
    curve = virtual_curve(prior)
    return curve.root if isinstance(curve, StepCurve) else np.sqrt(prior.ironed_virtual_costs())


@lru_cache(maxsize=64)
def cost_curve(prior: Prior) -> SpendCurve:
    """The curve of the cost itself: what complete information would allow (theory A5)."""
    if isinstance(prior, FinitePrior):
        return step_curve(prior.costs, prior.masses, prior.costs)
    smooth = _with_density(prior)
    (density,) = fit(
        lambda c: smooth.pdf(c) * np.stack([c, np.ones_like(c)]),
        first_breaks(smooth),
        by_mass=lambda c: c[None],
        cdf=smooth.cdf,
    )
    beyond = density.tail()
    total = float(beyond(np.asarray(prior.low)))
    return _tabulate(
        smooth,
        lambda c: c,
        lambda c: np.sqrt(c) * smooth.pdf(c),
        lambda x: total - beyond(x),
    )


@lru_cache(maxsize=8)
def unironed_curve(prior: ContinuousPrior) -> SmoothCurve:
    """The curve of the virtual cost as it is, for the printed formulas; may fall in places."""
    return _tabulate(prior, *_virtual_index(prior, ()))


def smooth_curve(prior: ContinuousPrior) -> SmoothCurve:
    """`virtual_curve` of a prior known to have a density."""
    curve = virtual_curve(prior)
    if not isinstance(curve, SmoothCurve):
        raise InvalidValue("prior", "must have a density", prior)
    return curve


def _with_density(prior: Prior) -> ContinuousPrior:
    if not isinstance(prior, ContinuousPrior):
        raise InvalidValue("prior", "must be a continuous or a finite prior", prior)
    return prior


def step_curve(costs: Floats, masses: Floats, psi: Floats) -> StepCurve:
    """The curve of an index psi_k on finitely many costs of masses f_k."""
    root = np.sqrt(psi)
    with np.errstate(divide="ignore"):
        inverse = np.where(root > 0, 1 / root, 0.0)  # psi = 0 is always sampled, never in a tail
    return StepCurve(
        costs,
        root,
        np.concatenate([[0.0], np.cumsum(masses * psi)]),
        np.concatenate([np.cumsum((masses * root)[::-1])[::-1], [0.0]]),
        np.concatenate([np.cumsum((masses * inverse)[::-1])[::-1], [0.0]]),
    )


Function = Callable[[Floats], Floats]


def _virtual_index(
    prior: ContinuousPrior, pools: tuple[IronedInterval, ...]
) -> tuple[Function, Function, Function]:
    """psi = virtual cost pooled as given: value, root density, and S in closed form (theory A4)."""

    def value(c: Floats) -> Floats:
        return prior.ironed_virtual_cost(c) if pools else prior.virtual_cost(c)

    def root_density(c: Floats) -> Floats:
        density = prior.root_density(c)
        for pool in pools:
            inside = (c >= pool.left) & (c <= pool.right)
            density = np.where(inside, math.sqrt(pool.virtual_cost) * prior.pdf(c), density)
        return density

    def head(x: Floats) -> Floats:
        spend = x * prior.cdf(x)  # telescopes: E[phi 1{c <= x}] = x G(x)
        for pool in pools:
            inside = (x > pool.left) & (x < pool.right)
            at_left = float(prior.cdf(pool.left))
            chord = pool.left * at_left + pool.virtual_cost * (prior.cdf(x) - at_left)
            spend = np.where(inside, chord, spend)
        return spend

    return value, root_density, head


def first_breaks(prior: ContinuousPrior) -> Floats:
    """Panels start where psi has kinks, and close enough to see every feature of the density."""
    pools = prior.ironed_intervals
    return np.unique(
        [
            *prior.landmarks()[::4],
            *np.linspace(prior.low, prior.high, 17),
            *(p.left for p in pools),
            *(p.right for p in pools),
        ]
    )


def _tabulate(
    prior: ContinuousPrior, psi: Function, root_density: Function, head: Function
) -> TabulatedCurve:
    def integrands(c: Floats) -> Floats:
        with np.errstate(divide="ignore"):
            w = 1 / np.sqrt(psi(c))
        density = prior.pdf(c)
        return np.stack([w, root_density(c), w * density, density])

    def factors_of_density(c: Floats) -> Floats:
        root = np.sqrt(psi(c))
        with np.errstate(divide="ignore"):
            return np.stack([np.full_like(c, np.nan), root, 1 / root])

    w, root, inverse = fit(
        integrands,
        first_breaks(prior),
        by_mass=factors_of_density,
        cdf=prior.cdf,
    )
    return TabulatedCurve(
        prior.low, prior.high, head, w, w.tail(), root.tail(), inverse.tail(), _missed_limits(w, psi)
    )


def _missed_limits(w: Piecewise, psi: Function) -> tuple[tuple[float, float], ...]:
    """The ends of the support at which the table of w = psi^-1/2 misses its limit, with that (theory A4).

    At the highest cost psi has no bound where the density vanishes, and w falls to 0: for a density like
    (1 - x)^p as (1 - x)^(p/2), steeper than any polynomial if p < 2. Halving ends a few doubles from the
    end, and w may still be far from 0 there. At the lowest cost psi is that cost, but may be more right
    beside it, if hardly any mass is near. No mass and no rent is in either: only the terms at exactly the
    end need the limit.
    """
    missed = []
    for end, inside in ((w.breaks[0], w.breaks[1]), (w.breaks[-1], w.breaks[-2])):
        with np.errstate(divide="ignore"):
            limit = float(1 / np.sqrt(psi(np.asarray(end))))
        gap = abs(float(w(np.asarray(end))) - limit)
        if math.isfinite(limit) and gap > _REACHED * abs(float(w(np.asarray(inside)))):
            missed.append((float(end), limit))
    return tuple(missed)
