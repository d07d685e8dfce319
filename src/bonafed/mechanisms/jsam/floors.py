"""A smallest selection probability for every client, and what it costs.

With p_k >= f for all k the threshold structure stays: for a fixed distance l and sign pattern W is concave
in p, so its optimum is a vertex, with one client above 1/N and at most one strictly between f and 1/N; by
rearrangement they are ordered by virtual cost (theory B2 (a)). That the one in between is at an end does
NOT carry over: the proof of B2 (b) needs p_h to reach 0. So for every threshold h the best p_h in [f, 1/N]
is searched, exactly: l falls in p_h, W is concave in p_h, J grows with both, hence on an interval [a, b]

    J(p_h) >= J(l(b), min(W(a), W(b))),

and intervals whose bound is not below the best found (by more than 1e-12 of it) are dropped.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue
from bonafed.mechanisms.jsam.allocation import Plan, allocate, checked, plan_for
from bonafed.mechanisms.jsam.inner import inner

_CLOSE = 1e-12  # relative to the objective


class FlooredPlan(NamedTuple):
    """A plan that leaves nobody out."""

    plan: Plan
    price: float  # how much the floor adds to the objective, >= 0


def allocate_with_floor(
    virtual_costs: ArrayLike, eta: float, noise_scale: float, floor: float
) -> FlooredPlan:
    """The optimal plan among those that select every client with probability at least `floor`.

    >>> fair = allocate_with_floor([0.24, 0.7, 1.0, 1.42, 1.86], eta=1, noise_scale=1, floor=0.01)
    >>> fair.plan.selection.round(4), round(fair.price, 4)
    (array([0.39, 0.2 , 0.2 , 0.2 , 0.01]), 0.0657)
    """
    v, weight, scale = checked(virtual_costs, eta, noise_scale)
    n = v.size
    least = checks.non_negative("floor", floor)
    if least > 1 / n:
        raise InvalidValue("floor", f"must be at most 1/N = {1 / n:g}", least)
    free = allocate(v, weight, scale)
    order = np.argsort(v, kind="stable")
    h, p_h = _best(v[order], weight, scale, least)
    selection = np.full(n, least)
    selection[order[: h - 1]] = 1 / n
    if h > 1:
        selection[order[h - 1]] = p_h
    excess = float(_excess(n, least, h, p_h))
    selection[order[0]] = 1 / n + excess
    plan = plan_for(selection, v, weight, scale, 2 * excess)
    return FlooredPlan(plan, max(0.0, plan.objective - free.objective))


def _excess(n: int, floor: float, h: ArrayLike, p: ArrayLike) -> Floats:
    """What the others are below 1/n, and so what the leader is above it: half the distance, exactly."""
    return np.asarray(
        (n - np.asarray(h)) * (1 / n - floor) + np.where(np.asarray(h) > 1, 1 / n - np.asarray(p), 0.0)
    )


def _best(v: Floats, eta: float, noise_scale: float, floor: float) -> tuple[int, float]:
    """Threshold and p_h for sorted virtual costs: intervals of p_h for all h at once."""
    n = v.size
    w = np.cbrt(v) ** 2
    prefix = np.concatenate([[0.0], np.cumsum(w)])
    beyond = np.cbrt(floor) ** 2 * (prefix[-1] - prefix)  # of all after the first j, at the floor

    def spread(h: Floats, p: Floats) -> Floats:
        at = h.astype(np.int64)
        middle = np.where(at > 1, (prefix[np.maximum(at - 1, 1)] - w[0]) / np.cbrt(n) ** 2, 0.0)
        own = np.where(at > 1, w[at - 1] * np.cbrt(p) ** 2, 0.0)
        return np.asarray(w[0] * np.cbrt(1 / n + _excess(n, floor, h, p)) ** 2 + middle + own + beyond[at])

    def distance(h: Floats, p: Floats) -> Floats:
        return 2 * _excess(n, floor, h, p)

    h = np.arange(1.0, n + 1)
    a, b = np.full(n, floor), np.where(h > 1, 1 / n, floor)
    best, argument = np.inf, (n, 1 / n)
    while True:
        ends = [np.concatenate([h, h]), np.concatenate([a, b])]
        value = inner(eta, distance(*ends), spread(*ends), noise_scale).objective
        at = int(np.argmin(value))
        if value[at] < best:
            best, argument = float(value[at]), (int(ends[0][at]), float(ends[1][at]))
        lower = inner(eta, distance(h, b), np.minimum(spread(h, a), spread(h, b)), noise_scale).objective
        keep = (lower < best * (1 - _CLOSE)) & (b - a > _CLOSE / n)
        h, a, b = h[keep], a[keep], b[keep]
        if not h.size:
            return argument
        middle = (a + b) / 2
        h, a, b = np.concatenate([h, h]), np.concatenate([a, middle]), np.concatenate([middle, b])
