"""Finite priors, the slow and obvious way: exact fractions, double loops, a convex solver.

Nothing here is imported from bonafed. Floats are exact fractions, so the hull, the pools and the
virtual costs below carry no rounding at all; only square roots do, at 50 digits.
"""

from __future__ import annotations

from fractions import Fraction

import mpmath
import numpy as np


def exact(values):
    return [Fraction(float(v)) for v in values]


def virtual_costs(costs, masses):
    """phi_k by its definition: the increase of c_k F_k per unit of mass."""
    c, f = exact(costs), exact(masses)
    area, total, result = Fraction(0), Fraction(0), []
    for ck, fk in zip(c, f, strict=True):
        total += fk
        result.append((ck * total - area) / fk)
        area = ck * total
    return result


def hull_slopes(costs, masses):
    """Slopes of the lower convex hull of (0, 0), (F_k, c_k F_k), by gift wrapping: O(K^2)."""
    c, f = exact(costs), exact(masses)
    points, total = [(Fraction(0), Fraction(0))], Fraction(0)
    for ck, fk in zip(c, f, strict=True):
        total += fk
        points.append((total, ck * total))
    slopes, at = [None] * len(c), 0
    while at < len(c):
        candidates = []
        for end in range(at + 1, len(points)):
            (x0, y0), (x1, y1) = points[at], points[end]
            candidates.append(((y1 - y0) / (x1 - x0), -end))
        slope, negative_end = min(candidates)  # of equal slopes the longest chord
        for k in range(at, -negative_end):
            slopes[k] = slope
        at = -negative_end
    return slopes


def pool_adjacent_violators(phi, masses):
    """Isotonic regression: merge neighbours as long as one falls below the one before."""
    blocks = [([k], Fraction(p), w) for k, (p, w) in enumerate(zip(phi, exact(masses), strict=True))]
    merged = True
    while merged:
        merged = False
        for i in range(len(blocks) - 1):
            (ka, va, wa), (kb, vb, wb) = blocks[i], blocks[i + 1]
            if va > vb:
                blocks[i : i + 2] = [(ka + kb, (va * wa + vb * wb) / (wa + wb), wa + wb)]
                merged = True
                break
    return [value for members, value, _ in blocks for _ in members]


def expected_payments(costs, q):
    """t_k = q_k c_k + sum over j > k of q_j (c_j - c_{j-1}): equation (16) times q_k."""
    n = len(costs)
    return [
        q[k] * costs[k] + sum(q[j] * (costs[j] - costs[j - 1]) for j in range(k + 1, n)) for k in range(n)
    ]


def threshold_budgets(costs, masses):
    """H(m), m = 0..K-1 (theory A4): the budgets at which one more level becomes certain."""
    with mpmath.workdps(50):
        f, phibar = [to_mp(v) for v in exact(masses)], [to_mp(v) for v in hull_slopes(costs, masses)]
        return [
            mpmath.fsum(f[k] * phibar[k] for k in range(m))
            + mpmath.sqrt(phibar[m]) * mpmath.fsum(f[k] * mpmath.sqrt(phibar[k]) for k in range(m, len(f)))
            for m in range(len(f))
        ]


def optimum(costs, masses, budget):
    """The closed form of theory A4 at 50 digits: probabilities q_k."""
    with mpmath.workdps(50):
        f = [to_mp(v) for v in exact(masses)]
        phibar = [to_mp(v) for v in hull_slopes(costs, masses)]
        money = mpmath.mpf(float(budget))
        if money >= mpmath.mpf(float(costs[-1])):
            return [mpmath.mpf(1)] * len(f)
        for m, border in enumerate(threshold_budgets(costs, masses)):
            if money <= border:
                head = mpmath.fsum(f[k] * phibar[k] for k in range(m))
                tail = mpmath.fsum(f[k] * mpmath.sqrt(phibar[k]) for k in range(m, len(f)))
                tau = (money - head) / tail
                return [
                    mpmath.mpf(1) if k < m or phibar[k] == 0 else min(1, tau / mpmath.sqrt(phibar[k]))
                    for k in range(len(f))
                ]
        return [mpmath.mpf(1)] * len(f)  # masses that do not quite sum to 1


def to_mp(value):
    value = Fraction(value)
    return mpmath.mpf(value.numerator) / value.denominator


def solver_optimum(costs, masses, budget):
    """Least E[1/q] by a general convex solver from the payments alone; no virtual cost, no hull."""
    import cvxpy

    c, f = np.asarray(costs, float), np.asarray(masses, float)
    scale = c[-1]
    k = c.size
    transfer = np.zeros((k, k))  # t = transfer @ q
    for i in range(k):
        transfer[i, i] = c[i] / scale
        for j in range(i + 1, k):
            transfer[i, j] = (c[j] - c[j - 1]) / scale
    q = cvxpy.Variable(k)
    rules = [q <= 1, f @ (transfer @ q) <= budget / scale]
    if k > 1:
        rules.append(q[1:] <= q[:-1])
    problem = cvxpy.Problem(cvxpy.Minimize(f @ cvxpy.inv_pos(q)), rules)
    problem.solve(solver=cvxpy.CLARABEL)
    return float(problem.value), np.asarray(q.value)


def complete_information(costs, weights, total):
    """min sum s/q with sum q c <= total, q <= 1: every number of capped clients is tried."""
    order = sorted(range(len(costs)), key=lambda n: (costs[n] / weights[n], n))
    if sum(costs) <= total:
        return [1.0] * len(costs)
    for capped in range(len(costs)):
        rest = order[capped:]
        left = total - sum(costs[n] for n in order[:capped])
        if left <= 0:
            break
        tau = left / sum((weights[n] * costs[n]) ** 0.5 for n in rest)
        q = {n: tau * (weights[n] / costs[n]) ** 0.5 if costs[n] else float("inf") for n in rest}
        if max(q.values()) <= 1:
            return [q.get(n, 1.0) for n in range(len(costs))]
    raise AssertionError("no number of capped clients fits")
