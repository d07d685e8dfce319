"""Whom to select how often, and how much privacy to buy from each (theory B1, B2).

The optimum selects the h clients of lowest virtual cost: the cheapest with probability (N-h+1)/N, the
others with 1/N each. That there is nothing between 0 and 1/N is a sharpening of Theorem 3 (theory B2); the
paper's grid over p_h is not needed, and misses the optimum where h = 1 (erratum J-4).

`algorithm_1` is the paper's, with Q restored (erratum J-1), to show where it is worse. Kept from the print:
p_h on a grid of step Delta, the distance 2 (p_1 - p_h) (J-2), the threshold h = 1, where client 1 is
counted twice (J-4), and the loop over both. It follows the paper's steps, one convex minimisation over B
at a time; the exact allocation does not use any of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue
from bonafed.learning.sections import NoiseAt
from bonafed.mechanisms.jsam.capped import CappedLadder
from bonafed.mechanisms.jsam.on_sum import SumLadder
from bonafed.mechanisms.jsam.thresholds import best_threshold, budgets, inner, objective
from bonafed.mechanisms.jsam.water_level import checked_cap

Variant = Literal["exact", "printed"]


@dataclass(frozen=True, slots=True, eq=False)
class SelectionPlan:
    """Who is selected how often, and whose privacy is bought; in the order of the input."""

    selection: Floats  # (N,) p: probability that a draw falls on the client, sum 1
    privacy: Floats  # (N,) epsilon: privacy budget of the whole run; 0 if never selected
    total: float  # B = sum of epsilon v: expected money
    objective: float  # J = eta times the loss bound + B
    threshold: int  # h: number of clients selected
    distance: float  # l = ||p - p^u||_1, how far from selecting everybody alike
    eta: float  # weight of the training loss against money

    @property
    def loss(self) -> float:
        """The bound on the training loss that is left, (14) of the paper."""
        return (self.objective - self.total) / self.eta


@np.errstate(over="ignore", invalid="ignore")  # what is infinite is refused in the end
def allocate(
    virtual_costs: ArrayLike,
    eta: float,
    noise_scale: float,
    variant: Variant = "exact",
    *,
    grid: float = 1e-4,
    max_epsilon: ArrayLike | None = None,
    noise_at: NoiseAt = "client",
) -> SelectionPlan:
    """The optimal plan for given virtual costs, in time O(N log N).

    `noise_scale` is Q of the paper (see `noise_scale` for its ingredients). `variant="printed"` runs
    Algorithm 1 as printed, with Q restored and p_h on a grid; it needs increasing virtual costs.
    With `max_epsilon`, one cap for all or one per client, the plan is the best of a set of selections that
    does not depend on the costs (`capped.py`); `least_objective` bounds how much better a plan could be.
    With `noise_at="sum"` the noise that trains is added once to the sum (`on_sum.py`).

    >>> plan = allocate([0.24, 0.7, 1.0, 1.42, 1.86], eta=1, noise_scale=1)
    >>> plan.threshold, plan.selection, round(plan.objective, 6)
    (4, array([0.4, 0.2, 0.2, 0.2, 0. ]), 2.833998)
    """
    v, weight, scale = checked(virtual_costs, eta, noise_scale)
    checks.literal("variant", variant, Variant)
    if checks.literal("noise_at", noise_at, NoiseAt) == "sum":
        return _on_sum(v, weight, scale, variant, max_epsilon)
    if max_epsilon is not None:
        if variant == "printed":
            raise InvalidValue("max_epsilon", "must not be given for the printed variant", max_epsilon)
        return capped_plan(v, weight, scale, checked_cap(max_epsilon, v.size))
    if variant == "printed":
        return algorithm_1(v, weight, scale, grid)
    h, _, _ = best_threshold(np.sort(v), weight, scale)
    return threshold_plan(v, h, weight, scale)


def _on_sum(
    v: Floats, eta: float, noise_scale: float, variant: Variant, max_epsilon: ArrayLike | None
) -> SelectionPlan:
    if variant != "exact":
        raise InvalidValue("variant", 'must be "exact" with noise_at = "sum"', repr(variant))
    cap = None if max_epsilon is None else checked_cap(max_epsilon, v.size)
    if not (cap is None or isinstance(cap, float)):
        rule = 'must be one for all clients with noise_at = "sum"'
        raise InvalidValue("max_epsilon", rule, f"{cap.size}")
    best = SumLadder(v, eta, noise_scale, cap)
    return bought(best.selection, best.privacy, v, best.objective, best.distance, eta, noise_scale)


def checked(virtual_costs: ArrayLike, eta: float, noise_scale: float) -> tuple[Floats, float, float]:
    """The arguments of every allocation."""
    v = checks.vector("virtual_costs", virtual_costs, sign="positive")
    return v, checks.positive("eta", eta), checks.positive("noise_scale", noise_scale)


def threshold_plan(virtual_costs: Floats, h: int, eta: float, noise_scale: float) -> SelectionPlan:
    """The plan with threshold h; equal costs are taken in the order of the clients."""
    n = virtual_costs.size
    selection = np.zeros(n)
    if h == n:
        selection[:] = 1 / n
    else:
        limit = np.partition(virtual_costs, h - 1)[h - 1]
        cheaper = virtual_costs < limit
        tied = np.flatnonzero(virtual_costs == limit)[: h - int(cheaper.sum())]
        selection[cheaper] = 1 / n
        selection[tied] = 1 / n
    selection[int(np.argmin(virtual_costs))] = (n - h + 1) / n
    return plan_for(selection, virtual_costs, eta, noise_scale, distance=2 * (n - h) / n)


def capped_plan(
    virtual_costs: Floats, eta: float, noise_scale: float, caps: float | Floats
) -> SelectionPlan:
    """The best plan under caps (theory B9)."""
    ladder = CappedLadder(virtual_costs, eta, noise_scale, caps)
    return bought(
        ladder.selection, ladder.privacy, virtual_costs, ladder.objective, ladder.distance, eta, noise_scale
    )


def bought(
    selection: Floats,
    privacy: Floats,
    virtual_costs: Floats,
    objective: float,
    distance: float,
    eta: float,
    noise_scale: float,
) -> SelectionPlan:
    """A plan whose epsilon is settled."""
    _require_representable(objective, eta, noise_scale)
    total = float(privacy @ virtual_costs)
    return SelectionPlan(selection, privacy, total, objective, int((selection > 0).sum()), distance, eta)


def _require_representable(objective: float, eta: float, noise_scale: float) -> None:
    if objective <= 0:  # it is positive, but below the smallest double
        rule = f"must be larger for noise_scale {noise_scale:g}: the objective is too small a number"
        raise InvalidValue("eta", rule, eta)
    if not math.isfinite(objective):
        rule = f"must be smaller for noise_scale {noise_scale:g}: the objective is not finite"
        raise InvalidValue("eta", rule, eta)


def plan_for(
    selection: Floats,
    virtual_costs: Floats,
    eta: float,
    noise_scale: float,
    distance: float,
) -> SelectionPlan:
    """The best privacy budgets for a given selection."""
    members = selection > 0
    share, root = np.cbrt(selection[members]) ** 2, np.cbrt(virtual_costs[members])
    spread = float((share * root**2).sum())  # W
    total, value = (float(x) for x in inner(eta, distance, spread, noise_scale))
    _require_representable(value, eta, noise_scale)
    privacy = np.zeros(selection.size)
    privacy[members] = share * total / (spread * root)  # Theorem 4
    return SelectionPlan(selection, privacy, total, value, int(members.sum()), distance, eta)


def algorithm_1(virtual_costs: Floats, eta: float, noise_scale: float, grid: float) -> SelectionPlan:
    """The printed plan; its objective is the true one, of Problem 3, for what the algorithm returns."""
    v, n = virtual_costs, virtual_costs.size
    step = checks.between("grid", checks.positive("grid", grid), 0.0, 1.0)
    if np.any(np.diff(v) < 0):
        at = int(np.argmax(np.diff(v) < 0)) + 1
        rule = "must be increasing for the printed algorithm"
        raise InvalidValue("virtual_costs", rule, f"{v[at]:g} at position {at}")
    w = np.cbrt(v) ** 2
    before = np.concatenate([[0.0], np.cumsum(w)])  # sums of the first j
    best, argument = math.inf, (n, 1 / n, 0.0)
    for i in range(1, n + 1):  # line 2
        h = n + 1 - i
        between = (before[h - 1] - w[0] if h > 1 else 0.0) / n ** (2 / 3)
        for m in range(math.floor(1 / (n * step) + 1e-9) + 1):  # line 4
            p_1, p_h = i / n + m * step, max(1 / n - m * step, 0.0)
            spread = w[0] * p_1 ** (2 / 3) + w[h - 1] * p_h ** (2 / 3) + between
            total, value = _best_total(eta, 2 * (p_1 - p_h), math.sqrt(noise_scale * spread**3))
            if value < best:
                best, argument = value, (h, p_h, total)
    h, p_h, total = argument
    selection = np.zeros(n)
    selection[1 : h - 1] = 1 / n
    if h > 1:
        selection[h - 1] = p_h
    selection[0] = (2 + n - h) / n - p_h  # line 13
    privacy = budgets(selection, v, total)
    true = objective(selection, privacy, v, eta, noise_scale)
    distance = float(np.abs(selection - 1 / n).sum())
    return SelectionPlan(selection, privacy, total, true, int((selection > 0).sum()), distance, eta)


def _best_total(eta: float, distance: float, z: float) -> tuple[float, float]:
    """Line 7: min over B of eta (l + sqrt(l^2 + z^2/B^2)) + B, which is convex, by Newton's method."""

    def value(total: float) -> float:
        return eta * (distance + math.hypot(distance, z / total)) + total

    total = math.sqrt(eta * z)  # exact for l = 0, too large otherwise
    for _ in range(100):
        root = math.hypot(distance, z / total)
        slope = 1 - eta * z**2 / (total**3 * root)
        bend = eta * z**2 * (3 * total**2 * root**2 - z**2) / (total**6 * root**3)
        following = total - slope / bend
        following = following if following > 0 else total / 2
        if abs(following - total) <= 1e-14 * total:
            break
        total = following
    return total, value(total)
