"""Algorithm 1 of the paper as printed, with Q restored (erratum J-1), to show where it is worse.

Kept from the print: p_h on a grid of step Delta, the distance 2 (p_1 - p_h) (J-2), the threshold h = 1,
where client 1 is counted twice (J-4), and the loop over both. It is told in the paper's steps, one convex
minimisation over B at a time; the exact allocation does not use any of it.
"""

from __future__ import annotations

import math

import numpy as np

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue
from bonafed.mechanisms.jsam.allocation import Plan
from bonafed.mechanisms.jsam.inner import budgets, objective


def algorithm_1(virtual_costs: Floats, eta: float, noise_scale: float, grid: float) -> Plan:
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
    return Plan(selection, privacy, total, true, int((selection > 0).sum()), distance, eta)


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
