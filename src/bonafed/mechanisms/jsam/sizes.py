"""Clients with unequal amounts of data: p^u = shares that are not uniform (theory B2, last lines).

What carries over: J(p) is least at a vertex, so p_k is 0 or its share u_k for all but one client, the
leader, who takes what the excluded leave. What does not: who is excluded need not follow from the virtual
costs alone; excluding mass E at the least W is a knapsack problem. Hence

    exact       up to EXACT_LIMIT clients, every leader with every set of excluded clients;
    heuristic   beyond: for every leader, exclude in order of (u v)^(2/3)/u, as a fractional knapsack.

Q is one for all, as when every release averages the same number of records. Where client k averages M_k,
the noise term is that of Q for M = 2 with epsilon' = epsilon M_k/2, which costs v' = 2 v/M_k a unit; the
shares p^u stay what the objective says. So plan with v', and epsilon_k = 2 epsilon'_k/M_k.

There are no payments for unequal sizes: beyond EXACT_LIMIT the plan is a heuristic, V_k need not be
concave, and the formulas of `payments.py` would not be truthful.

The heuristic comes with a lower bound. Between two steps of the fractional knapsack W is concave in E (the
leader's term is, the rest is linear) and no set of mass E has a smaller W; l = 2E grows; J grows with
both. So on a step from E_j to E_{j+1}   J >= J(2 E_j, min(W_j, W_{j+1})),   and the least of these over all
leaders and steps bounds the optimum.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from bonafed import checks
from bonafed.checks import Floats
from bonafed.mechanisms.jsam.allocation import Plan, checked, plan_for
from bonafed.mechanisms.jsam.inner import inner

EXACT_LIMIT = 14  # clients: 14 leaders x 8192 sets


class BoundedPlan(NamedTuple):
    """A plan and what is known about the best there is."""

    plan: Plan
    optimal: bool  # proved to be the best
    lower_bound: float  # no plan has a smaller objective

    @property
    def gap(self) -> float:
        """How much better the optimum may be, relative to the plan; 0 if it is optimal."""
        return max(0.0, 1 - self.lower_bound / self.plan.objective) if self.plan.objective else 0.0


def allocate_unequal(
    virtual_costs: ArrayLike,
    shares: ArrayLike,
    eta: float,
    noise_scale: float,
    records: ArrayLike | None = None,
) -> BoundedPlan:
    """The best plan found for clients that hold the given shares of the data, which sum to 1.

    A plan, with a bound, and without payments. With `records`, M_k per release of each client,
    `noise_scale` is that for M = 2 records (see `noise_scale`: it contains (2/M)^2).

    >>> bounded = allocate_unequal([0.3, 0.5, 1.8], [0.2, 0.3, 0.5], eta=1, noise_scale=1)
    >>> bounded.optimal, bounded.plan.selection
    (True, array([0.2, 0.3, 0.5]))
    """
    v, weight, scale = checked(virtual_costs, eta, noise_scale)
    u = checks.shares("shares", shares, length=v.size)
    if records is not None:
        half = checks.vector("records", records, sign="positive", length=v.size) / 2
        bounded = allocate_unequal(v / half, u, weight, scale)
        return bounded._replace(plan=replace(bounded.plan, privacy=bounded.plan.privacy / half))
    if v.size <= EXACT_LIMIT:
        plan = _exact(v, u, weight, scale)
        return BoundedPlan(plan, True, plan.objective)
    plan, bound = _greedy(v, u, weight, scale)
    return BoundedPlan(plan, plan.objective <= bound, min(bound, plan.objective))


def _exact(v: Floats, u: Floats, eta: float, noise_scale: float) -> Plan:
    n = v.size
    sets = (np.arange(1 << n)[:, None] >> np.arange(n)) & 1  # 1: excluded
    mass, left = sets @ u, np.cbrt(u * v) ** 2
    remaining = (1 - sets) @ left
    best, argument = np.inf, (0, 0)
    for leader in range(n):
        allowed = np.flatnonzero(sets[:, leader] == 0)
        spread = remaining[allowed] - left[leader] + np.cbrt(v[leader] * (u[leader] + mass[allowed])) ** 2
        value = inner(eta, 2 * mass[allowed], spread, noise_scale).objective
        at = int(np.argmin(value))
        if value[at] < best:
            best, argument = float(value[at]), (leader, int(allowed[at]))
    return _plan(v, u, argument[0], sets[argument[1]].astype(bool), eta, noise_scale)


def _greedy(v: Floats, u: Floats, eta: float, noise_scale: float) -> tuple[Plan, float]:
    n = v.size
    left = np.cbrt(u * v) ** 2
    order = np.argsort(-left / u, kind="stable")  # dearest per share of the data first
    best, argument, bound = np.inf, (0, 0), np.inf
    for leader in range(n):
        others = order[order != leader]
        mass = np.concatenate([[0.0], np.cumsum(u[others])])
        gone = np.concatenate([[0.0], np.cumsum(left[others])])
        spread = np.maximum(gone[-1] - gone, 0.0) + np.cbrt(v[leader] * (u[leader] + mass)) ** 2
        value = inner(eta, 2 * mass, spread, noise_scale).objective
        at = int(np.argmin(value))
        if value[at] < best:
            best, argument = float(value[at]), (leader, at)
        steps = inner(eta, 2 * mass[:-1], np.minimum(spread[:-1], spread[1:]), noise_scale).objective
        bound = min(bound, float(steps.min()))
    leader, count = argument
    excluded = np.zeros(n, dtype=bool)
    excluded[order[order != leader][:count]] = True
    return _plan(v, u, leader, excluded, eta, noise_scale), bound


def _plan(
    v: Floats, u: Floats, leader: int, excluded: np.ndarray[tuple[int], np.dtype[np.bool_]],
    eta: float, noise_scale: float,
) -> Plan:  # fmt: skip
    selection = np.where(excluded, 0.0, u)
    mass = float(u[excluded].sum())
    selection[leader] += mass
    return plan_for(selection, v, eta, noise_scale, 2 * mass)
