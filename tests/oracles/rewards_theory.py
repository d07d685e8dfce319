"""Slow, obvious twins of the theory of model rewards: formulas as they are written, number by number."""

import itertools
import math

from scipy.optimize import minimize_scalar

WORTH = {
    "exp": lambda x: 1 - math.exp(-x),
    "frac": lambda x: x / (1 + x),
    "log": lambda x: math.log(1 + x),
}


def share(kind, p, i, ceiling=None, sharing=None):
    """s_i of a rule, from its definition."""
    if kind == "standard":
        return 1.0
    if kind == "relative":
        return p[i] / max(p) if max(p) > 0 else 1.0
    return min(p[i] / ceiling, 1) ** (1 - sharing)


def utility(g, costs, kind, p, i, **options):
    """u_i = g(p_i + s_i sum of the others) - c_i p_i."""
    others = sum(p) - p[i]
    return WORTH[g](p[i] + share(kind, p, i, **options) * others) - costs[i] * p[i]


def best_utility(g, costs, kind, p, i, **options):
    """The largest u_i over the own contribution: a grid, then a search around its best point."""

    def loss(own):
        moved = list(p)
        moved[i] = own
        return -utility(g, costs, kind, moved, i, **options)

    top = 2 * max([*p, options.get("ceiling") or 0.0, 1 / costs[i], 1e-3])
    grid = [top * k / 400 for k in range(401)]
    values = [loss(own) for own in grid]
    k = values.index(min(values))
    low, high = grid[max(k - 1, 0)], grid[min(k + 1, 400)]
    inner = minimize_scalar(loss, bounds=(low, high), method="bounded", options={"xatol": 1e-12})
    return -min(min(values), inner.fun)


def shapley_by_orders(value, n):
    """The mean over all n! orders of what each player adds."""
    total = [0.0] * n
    for order in itertools.permutations(range(n)):
        present = set()
        for i in order:
            before = value(frozenset(present))
            present.add(i)
            total[i] += value(frozenset(present)) - before
    return [x / math.factorial(n) for x in total]


def propagated(rates, i, alpha, h):
    """C_T of Theorem 1 by three loops."""
    rounds, n = len(rates), len(rates[0])
    total = 0.0
    for m in range(n):
        for t in range(1, rounds + 1):
            weight = ((rounds + alpha) / (t + alpha)) ** 2
            total += weight * (1 / rates[t - 1][m] + 1 / rates[t - 1][i] - 2)
    return h / n * total


def recovered(rates, reference, i, q, alpha, h, last):
    """D_t (i is None) or E_t of Theorem 2 at t = last, by loops; reference is (T,)."""
    n = len(rates[0])
    who = range(n) if i is None else [i]
    total = 0.0
    for m in who:
        for t in range(1, last + 1):
            weight = ((last + alpha) / (t + alpha)) ** 2 * (1 - q) ** (last - t + 1)
            total += weight * (1 / rates[t - 1][m] + 1 / reference[t - 1] - 2)
    return h / len(who) * total
