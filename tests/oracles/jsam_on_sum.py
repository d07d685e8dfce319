"""JSAM with noise on the sum, by brute force: the objective from its definition, every leader, every set.

Nothing here knows the order of the clients, the stationary points of a segment or the payment identity by
values. `everything` tries each leader with each set of excluded clients and one client in between, whose
probability runs through a grid that is refined around the best; `anything` tries plans without structure.
"""

from __future__ import annotations

import itertools

import numpy as np
from scipy.optimize import minimize

from tests.oracles.jsam import least

_GRID, _ZOOMS = 41, 6


def problem(p, epsilon, v, eta, q):
    """eta times the loss bound, whose noise is the largest that any client needs, plus money."""
    p, epsilon, v = (np.asarray(a, float) for a in (p, epsilon, v))
    distance = sum(abs(a - 1 / p.size) for a in p)
    noise = max((a / e) ** 2 for a, e in zip(p, epsilon, strict=True) if a > 0)
    return eta * (distance + np.sqrt(distance**2 + q * noise)) + sum(epsilon * v)


def of_weights(p, v, eta, q, cap=np.inf):
    """(J, theta) of given weights (..., n): epsilon is theta p, by Newton's method for theta."""
    p, v = np.asarray(p, float), np.asarray(v, float)
    mean, distance = p @ v, np.abs(p - 1 / v.size).sum(-1)
    total, value = least(eta, distance, mean ** (2 / 3), q)
    level = np.minimum(total / mean, cap / p.max(-1))
    there = eta * (distance + np.sqrt(distance**2 + q / level**2)) + level * mean
    return np.where(level < total / mean, there, value), level


def _shapes(n):
    for leader in range(n):
        others = [i for i in range(n) if i != leader]
        for size in range(n):
            for fair in itertools.combinations(others, size):
                yield leader, fair, None
                for between in set(others) - set(fair):
                    yield leader, fair, between


def everything(v, eta, q, cap=np.inf):
    """(J, p, epsilon) of the best plan with one leader, one client in between, the others at 0 or 1/n."""
    v = np.asarray(v, float)
    n, best = v.size, (np.inf, None, None)
    for leader, fair, between in _shapes(n):
        low, high = 0.0, 1.0 if between is not None else 0.0
        for _ in range(_ZOOMS if between is not None else 1):
            share = np.linspace(low, high, _GRID) if between is not None else np.zeros(1)
            p = np.zeros((share.size, n))
            p[:, list(fair)] = 1 / n
            if between is not None:
                p[:, between] = share / n
            p[:, leader] = 1 - p.sum(1)
            value, level = of_weights(p, v, eta, q, cap)
            at = int(np.argmin(value))
            if value[at] < best[0]:
                best = float(value[at]), p[at], level[at] * p[at]
            step = (high - low) / (_GRID - 1)
            low, high = max(0.0, share[at] - step), min(1.0, share[at] + step)
    return best


def anything(v, eta, q, rng, starts=5):
    """The least objective found from random plans, over epsilon and p without any structure."""
    v = np.asarray(v, float)
    n, best = v.size, np.inf
    for _ in range(starts):
        begin = rng.normal(0, 1.5, 2 * n)

        def cost(x):
            p = np.exp(x[:n] - x[:n].max())
            return problem(p / p.sum(), np.exp(x[n:]), v, eta, q)

        found = minimize(cost, begin, method="Nelder-Mead", options={"maxiter": 4000, "maxfev": 4000})
        best = min(best, float(found.fun))
    return best


def own_epsilon(v, k, x, eta, q):
    """epsilon_k if client k's virtual cost were x."""
    moved = np.array(v, float)
    moved[k] = x
    return everything(moved, eta, q)[2][k]
