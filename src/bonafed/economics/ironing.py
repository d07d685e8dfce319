"""Ironing of continuous priors (theory A3), and the inverse of a cdf.

Claim (proved in theory A3). Let phibar be the slope of the lower convex hull of the curve
(G(c), c G(c)). Replacing phi by phibar and dropping monotonicity relaxes the server's problem, and
the relaxed optimum is feasible; so ironing is optimal, whatever the budget.

A pool [a, b] of the hull is a chord that touches the curve at both ends:

    (i)   phi(a) = y = phi(b)                (at b only where b < high)
    (ii)  b G(b) - a G(a) = y (G(b) - G(a))  (equal areas of phi - y above and below 0)

The pools are first found on a grid, by isotonic regression of phi; then y is the root of (ii), with
a(y), b(y) from (i), by Newton's method. An error of a or b enters (ii) only squared.

Where the density has no bound at the highest cost, phi falls to that cost, however late, and a pool ends
there (theory A4). If it falls too late for the grid, the pool is the tangent to the curve from its end:

    (iii) G(a)/g(a) = (high - a)/(1 - G(a)), which is (i) and (ii) with b = high
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from bonafed.checks import Floats
from bonafed.economics.discrete import pool
from bonafed.economics.priors import ContinuousPrior, IronedInterval

_CELLS = 4096
_NOISE = 1e-12  # a relative fall of phi below this is rounding, not irregularity
_NARROWEST = 1e-8  # of the support: in a narrower pool at the top 1 - G is lost to rounding


@lru_cache(maxsize=64)
def _grid(prior: ContinuousPrior) -> Floats:
    """Cell borders: even in cost, joined by the prior's landmarks."""
    even = np.linspace(prior.low, prior.high, _CELLS + 1)
    return np.unique(np.concatenate([even, prior.landmarks()]))


@lru_cache(maxsize=64)
def iron(prior: ContinuousPrior) -> tuple[IronedInterval, ...]:
    """The pools of a continuous prior, in order of cost; empty if it is regular."""
    borders = _grid(prior)
    mass = np.diff(prior.cdf(borders))
    middle = (borders[1:] + borders[:-1]) / 2
    phi = prior.virtual_cost(middle)
    usable = (mass > 0) & np.isfinite(phi)  # the rest has no mass that a double can hold
    phi, middle = phi[usable], middle[usable]
    falls = phi[1:] < phi[:-1] * (1 - _NOISE)
    falls_last = bool(np.any(prior.virtual_cost(prior.high) < phi[-1:] * (1 - _NOISE)))
    if not falls.any():
        return (_pool_at_the_top(prior),) if falls_last else ()
    runs = _falling_runs(pool(phi, mass[usable]), falls)
    pools: list[tuple[int, int, IronedInterval]] = []
    for first, last in runs:
        refined = _refine(prior, middle, phi, first, last)
        while pools and pools[-1][2].right >= refined.left:  # two pools met: they are one
            first = pools.pop()[0]
            refined = _refine(prior, middle, phi, first, last)
        pools.append((first, last, refined))
    ironed = tuple(refined for _, _, refined in pools)
    if falls_last and ironed[-1].right < prior.high:
        top = _pool_at_the_top(prior)
        beside = ironed[-1]
        ironed += (top._replace(left=max(top.left, math.nextafter(beside.right, math.inf))),)
    return ironed


def _pool_at_the_top(prior: ContinuousPrior) -> IronedInterval:
    """The pool that ends at `high`, where phi falls only beyond the last cell of the grid: solve (iii)."""
    from scipy.optimize import brentq

    def steepness(below: float) -> float:
        """Has the sign of: slope of the chord from a = high - `below` to the end, less phi(a)."""
        a = prior.high - below
        mass = float(prior.cdf(a))
        return float(prior.pdf(a)) * below - mass * (1 - mass)

    width = prior.high - prior.low
    narrow = _NARROWEST * width
    wide = narrow
    while steepness(wide) <= 0 and wide < width / 2:
        wide *= 2
    if wide > narrow and steepness(wide) > 0:
        wide = float(brentq(steepness, wide / 2, wide, rtol=1e-15))
    left = prior.high - wide
    return IronedInterval(left, prior.high, float(prior.virtual_cost(left)))


def _falling_runs(pooled: Floats, falls: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Index ranges of equal pooled value in which phi really falls."""
    starts = np.concatenate([[0], np.flatnonzero(np.diff(pooled) > 0) + 1])
    ends = np.append(starts[1:] - 1, pooled.size - 1)
    return [(int(i), int(j)) for i, j in zip(starts, ends, strict=True) if falls[i:j].any()]


def _refine(prior: ContinuousPrior, costs: Floats, phi: Floats, first: int, last: int) -> IronedInterval:
    """From cells first..last of the grid to the exact chord: solve (i) and (ii)."""
    inside = phi[first : last + 1]
    # Newton's method on (ii) is: the next y is the slope of the chord between a(y) and b(y).
    y = float(np.median(inside))
    for _ in range(60):
        above = first + int(np.argmax(inside > y))
        below = last - int(np.argmax(inside[::-1] < y))
        left, right = _rise(prior, costs, phi, above, y), _end(prior, costs, phi, below, y)
        mass_left, mass_right = prior.cdf([left, right])
        slope = float((right * mass_right - left * mass_left) / (mass_right - mass_left))
        if abs(slope - y) <= 2e-16 * slope:
            break
        y = slope
    return IronedInterval(left, right, y)


def _rise(prior: ContinuousPrior, costs: Floats, phi: Floats, above: int, y: float) -> float:
    """The last cost before cell `above` at which phi rises through y."""
    lower = np.flatnonzero(phi[:above] <= y)
    start = float(costs[lower[-1]]) if lower.size else prior.low
    stop = float(costs[lower[-1] + 1]) if lower.size else float(costs[0])
    return _crossing(prior, start, stop, y)


def _end(prior: ContinuousPrior, costs: Floats, phi: Floats, below: int, y: float) -> float:
    """The first cost after cell `below` at which phi rises through y; `high` if it never does."""
    upper = np.flatnonzero(phi[below:] >= y)
    if upper.size:
        stop = below + int(upper[0])
        return _crossing(prior, float(costs[stop - 1]), float(costs[stop]), y)
    if not prior.virtual_cost(prior.high) > y:
        return prior.high
    return _crossing(prior, float(costs[-1]), prior.high, y)


def _crossing(prior: ContinuousPrior, start: float, stop: float, y: float) -> float:
    """Where phi passes y in [start, stop]; the jump, where phi jumps over y."""
    from scipy.optimize import brentq

    def gap(c: float) -> float:
        value = float(prior.virtual_cost(c)) - y
        return min(value, 1e300)  # phi is infinite where the density vanishes

    if gap(start) >= 0:
        return start
    if gap(stop) <= 0:
        return stop
    return float(brentq(gap, start, stop, xtol=1e-15, rtol=1e-15))


def invert_cdf(prior: ContinuousPrior, u: Floats) -> Floats:
    """The cost at which the cdf is u: table look-up, then bracketed Newton steps."""
    borders = _grid(prior)
    levels = prior.cdf(borders)
    cell = np.clip(np.searchsorted(levels, u) - 1, 0, borders.size - 2)
    left, right = borders[cell], borders[cell + 1]
    cost = np.interp(u, levels, borders)
    for _ in range(40):
        excess = prior.cdf(cost) - u
        left, right = np.where(excess < 0, cost, left), np.where(excess < 0, right, cost)
        with np.errstate(divide="ignore", invalid="ignore"):
            step = cost - excess / prior.pdf(cost)
        inside = (step >= left) & (step <= right)
        following = np.where(inside, step, (left + right) / 2)
        converged = np.all(np.abs(following - cost) <= 4e-16 * prior.high)
        cost = following
        if converged:
            break
    return np.clip(cost, prior.low, prior.high)
