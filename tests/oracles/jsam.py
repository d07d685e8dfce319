"""JSAM by brute force: Problem 3 from its definition, every vertex, every jump of epsilon looked for.

Nothing here knows the closed form of the inner problem, the threshold structure or the payment identity by
values. A selection rule is a list of candidate selections; the best of them is taken, and among equals the
one with the fewest clients, then the one whose leader and members come first.
"""

from __future__ import annotations

import itertools

import numpy as np
from scipy.optimize import minimize_scalar


def problem_3(p, epsilon, v, eta, q, shares=None):
    """The objective of Problem 3, term by term."""
    p, epsilon, v = (np.asarray(a, float) for a in (p, epsilon, v))
    fair = np.full(p.size, 1 / p.size) if shares is None else np.asarray(shares, float)
    distance = sum(abs(a - b) for a, b in zip(p, fair, strict=True))
    noise = sum((a / e) ** 2 for a, e in zip(p, epsilon, strict=True) if a > 0)
    return eta * (distance + np.sqrt(distance**2 + q * noise)) + sum(epsilon * v)


def least_by_search(eta, distance, spread, q):
    """min over B of the inner problem by a bounded search over log B; (B, J, J - 2 eta l).

    The search is for the least of the last, which has the digits that 2 eta l would hide.
    """
    z = np.sqrt(q) * spread**1.5

    def cost(t):
        noise = z * np.exp(-t)
        return eta * noise * (noise / (distance + np.hypot(distance, noise))) + np.exp(t)

    middle = 0.5 * np.log(eta * z)  # the answer for distance 0; never above it
    low = middle - 60.0
    found = minimize_scalar(cost, bounds=(low, middle + 1.0), method="bounded", options={"xatol": 1e-12})
    return float(np.exp(found.x)), float(found.fun) + 2 * eta * distance, float(found.fun)


def least(eta, distance, spread, q):
    """The same by Newton's method on the logarithm of the first-order condition; arrays (B, J).

    B^3 sqrt(l^2 + z^2/B^2) = eta z^2. Its logarithm rises in log B with a slope between 2 and 3.
    """
    distance, spread = np.broadcast_arrays(np.asarray(distance, float), np.asarray(spread, float))
    log_z = 0.5 * np.log(q) + 1.5 * np.log(spread)
    with np.errstate(divide="ignore", over="ignore"):
        log_l = np.log(distance)
        t = 0.5 * (np.log(eta) + log_z)
        for _ in range(60):
            root = np.logaddexp(2 * log_l, 2 * (log_z - t))
            share = np.exp(2 * (log_z - t) - root)
            step = (3 * t + root / 2 - np.log(eta) - 2 * log_z) / (3 - share)
            t = t - step
            if np.all(np.abs(step) <= 2e-15 * (1 + np.abs(t))):
                break
        total = np.exp(t)
        value = eta * (distance + np.exp(np.logaddexp(2 * log_l, 2 * (log_z - t)) / 2)) + total
    return total, value


def vertices(n, shares=None):
    """Every leader with every set of excluded clients: all p with p_k in {0, share} but one."""
    fair = np.full(n, 1 / n) if shares is None else np.asarray(shares, float)
    found = []
    for leader in range(n):
        others = [i for i in range(n) if i != leader]
        for size in range(n):
            for members in itertools.combinations(others, size):
                p = np.zeros(n)
                p[list(members)] = fair[list(members)]
                p[leader] = 1 - p.sum()
                found.append(((size, leader, members), p))
    return np.array([p for _, p in sorted(found, key=lambda item: item[0])])


def subsets(n, members):
    """Every choice of `members` clients, selected alike."""
    found = []
    for chosen in itertools.combinations(range(n), members):
        p = np.zeros(n)
        p[list(chosen)] = 1 / members
        found.append(p)
    return np.array(found)


def distances(candidates, shares=None):
    n = candidates.shape[1]
    fair = np.full(n, 1 / n) if shares is None else np.asarray(shares, float)
    return np.abs(candidates - fair).sum(1)


def brute(v, eta, q, candidates=None, shares=None):
    """(J, p, epsilon, B) of the best candidate."""
    v = np.asarray(v, float)
    options = vertices(v.size, shares) if candidates is None else np.asarray(candidates, float)
    spread = ((options * v) ** (2 / 3)).sum(1)
    total, value = least(eta, distances(options, shares), spread, q)
    at = int(np.flatnonzero(value <= value.min() * (1 + 1e-13))[0])
    p = options[at]
    epsilon = np.zeros(v.size)
    on = p > 0
    epsilon[on] = p[on] ** (2 / 3) * total[at] / (spread[at] * v[on] ** (1 / 3))
    return float(value[at]), p, epsilon, float(total[at])


def own_curve(v, k, x, eta, q, candidates=None):
    """(epsilon_k, V_k, number of the chosen candidate) as client k's virtual cost x moves; (m,) each."""
    v, x = np.asarray(v, float), np.asarray(x, float)
    options = vertices(v.size) if candidates is None else np.asarray(candidates, float)
    rest = np.delete(options * v, k, axis=1)
    own = options[:, k, None]
    with np.errstate(invalid="ignore"):
        mine = np.where(own > 0, (own * x[None, :]) ** (2 / 3), 0.0)
    spread = (rest ** (2 / 3)).sum(1)[:, None] + mine
    finite = np.isfinite(spread)
    total, value = least(eta, distances(options)[:, None], np.where(finite, spread, 1.0), q)
    value = np.where(finite, value, np.inf)
    at = np.argmax(value <= value.min(0) * (1 + 1e-13), axis=0)
    j = np.arange(x.size)
    p = options[at, k]
    epsilon = np.where(p > 0, p ** (2 / 3) * total[at, j] / (spread[at, j] * x ** (1 / 3)), 0.0)
    return epsilon, value[at, j], at


def jumps(v, k, virtual, low, high, eta, q, candidates=None, points=150):
    """Own reports in (low, high) at which another candidate becomes the best, to 1e-14 of the width."""
    grid = np.linspace(low, high, points + 1)
    a, b = grid[:-1], grid[1:]
    state_a = own_curve(v, k, virtual(a), eta, q, candidates)[2]
    state_b = own_curve(v, k, virtual(b), eta, q, candidates)[2]
    for _ in range(60):
        keep = (state_a != state_b) & (b - a > 1e-15 * high)
        if not keep.any():
            break
        fixed = (state_a != state_b) & ~keep
        middle = (a + b) / 2
        state_m = own_curve(v, k, virtual(middle), eta, q, candidates)[2]
        a, b, state_a, state_b = (
            np.concatenate([a[fixed], a[keep], middle[keep]]),
            np.concatenate([b[fixed], middle[keep], b[keep]]),
            np.concatenate([state_a[fixed], state_a[keep], state_m[keep]]),
            np.concatenate([state_b[fixed], state_m[keep], state_b[keep]]),
        )
    return np.unique(b[state_a != state_b])


def payment(v, k, cost, prior, eta, q, candidates=None, panels=12):
    """c epsilon_k(c) + the integral of epsilon_k from c to the highest cost, from jump to jump."""

    def virtual(z):
        return np.minimum(prior.ironed_virtual_cost(z), 1e300)

    def epsilon(z):
        return own_curve(v, k, virtual(z), eta, q, candidates)[0]

    first = float(epsilon(np.array([cost]))[0])
    if cost >= prior.high:
        return cost * first
    pools = [edge for pool in prior.ironed_intervals for edge in (pool.left, pool.right)]
    ends = np.concatenate([
        [cost, prior.high],
        [edge for edge in pools if cost < edge < prior.high],
        jumps(v, k, virtual, cost, prior.high, eta, q, candidates),
    ])  # fmt: skip
    ends = np.unique(ends)
    nodes, weights = np.polynomial.legendre.leggauss(12)
    steps = np.linspace(0, 1, panels + 1) ** 2  # crowded where epsilon is steep
    if not np.isfinite(prior.ironed_virtual_cost(prior.high)):  # crowd the panels where v runs away
        steps = np.unique(np.concatenate([steps, 1 - 0.5 ** np.arange(5, 45)]))
    rent = 0.0
    for a, b in itertools.pairwise(ends):
        left, right = a + (b - a) * steps[:-1], a + (b - a) * steps[1:]
        z = (left + right)[:, None] / 2 + (right - left)[:, None] / 2 * nodes
        inside = epsilon(z.ravel()).reshape(z.shape)
        rent += float(((right - left) / 2 * (inside @ weights)).sum())
    return cost * first + rent


def stepwise_payment(v, k, cost, prior, eta, q, candidates=None):
    """The same for a finite prior: a report counts as the next cost of the prior."""
    levels = np.asarray(prior.costs)
    virtual = np.maximum(prior.ironed_virtual_cost(levels), 1e-6 * prior.high)  # never 0
    epsilon = own_curve(v, k, virtual, eta, q, candidates)[0]
    at = int(np.searchsorted(levels, cost))
    rent = (levels[at] - cost) * epsilon[at]
    for j in range(at + 1, levels.size):
        rent += (levels[j] - levels[j - 1]) * epsilon[j]
    return cost * epsilon[at] + rent


def value_of(plans, v, eta, q, shares=None):
    """(m,) objectives of selections (m, n) with the best privacy budgets for each."""
    spread = ((plans * v) ** (2 / 3)).sum(1)
    return least(eta, distances(plans, shares), spread, q)[1]


def local_search(v, eta, q, rng, plans=2000, rounds=40, shares=None):
    """The least objective found by random selections of every sparsity and random moves of mass."""
    v = np.asarray(v, float)
    n = v.size
    strength = 10.0 ** rng.uniform(-2, 1.5, (plans, 1))
    p = rng.gamma(np.broadcast_to(strength, (plans, n))) + 1e-300
    p = p / p.sum(1, keepdims=True)
    fair = np.full(n, 1 / n) if shares is None else np.asarray(shares, float)
    p[0] = fair
    best = value_of(p, v, eta, q, shares)
    row = np.arange(plans)
    for _ in range(rounds):
        giver, taker = rng.integers(n, size=plans), rng.integers(n, size=plans)
        spare = p[row, giver]
        gap = np.clip(fair[taker] - p[row, taker], 0.0, spare)
        amount = np.where(rng.random(plans) < 0.4, spare, np.where(rng.random(plans) < 0.6, gap, 0.0))
        amount = np.where(amount > 0, amount, spare * rng.random(plans))
        moved = p.copy()
        moved[row, giver] -= amount
        moved[row, taker] += amount
        moved = np.maximum(moved, 0.0)
        value = value_of(moved, v, eta, q, shares)
        better = value < best
        p[better], best = moved[better], np.minimum(value, best)
    return float(best.min())


def simplex_grid(n, parts):
    """All p with p_k a multiple of 1/parts."""
    bars = np.array(list(itertools.combinations(range(parts + n - 1), n - 1)))
    edges = np.concatenate(
        [np.full((len(bars), 1), -1), bars, np.full((len(bars), 1), parts + n - 1)], axis=1
    )
    return (np.diff(edges, axis=1) - 1) / parts


def capped_by_solver(p, caps, v, eta, q):
    """The least of Problem 3 over 0 < epsilon <= caps for a given selection, by a solver; (J, epsilon)."""
    import cvxpy

    p, caps, v = (np.asarray(a, float) for a in (p, caps, v))
    chosen = np.flatnonzero(p > 0)
    distance = np.abs(p - 1 / p.size).sum()
    epsilon = cvxpy.Variable(chosen.size, pos=True)
    noise = cvxpy.multiply(np.sqrt(q) * p[chosen], cvxpy.inv_pos(epsilon))
    loss = distance + cvxpy.norm(cvxpy.hstack([distance, noise]))
    problem = cvxpy.Problem(cvxpy.Minimize(eta * loss + v[chosen] @ epsilon), [epsilon <= caps[chosen]])
    value = problem.solve(solver=cvxpy.CLARABEL)
    found = np.zeros(p.size)
    found[chosen] = epsilon.value
    return float(value), found


def least_capped(p, caps, v, eta, q):
    """The same by bisection for the water level, one selection at a time; J."""
    p, caps, v = (np.asarray(a, float) for a in (p, caps, v))
    chosen = p > 0
    a, e, x = p[chosen], caps[chosen], v[chosen]
    distance = np.abs(p - 1 / p.size).sum()

    def epsilon(log_theta):
        return np.minimum(e, np.exp(log_theta) * np.cbrt(a * a / x))

    low, high = -80.0, 80.0
    for _ in range(200):
        middle = (low + high) / 2
        noise = np.sqrt(distance**2 + q * ((a / epsilon(middle)) ** 2).sum())
        below = 3 * middle + np.log(noise) < np.log(eta * q)
        low, high = (middle, high) if below else (low, middle)
    found = np.zeros(p.size)
    found[chosen] = epsilon(low)
    return problem_3(p, found, v, eta, q)


def all_fills(n, counts):
    """Every way to give the places (g leaders, h - g fair, the rest none) to n clients; g listed, or h."""
    found = {}
    for h in range(1, n + 1):
        for g in {*(g for g in counts if 0 < g <= h), h}:
            for members in itertools.combinations(range(n), h):
                for leaders in itertools.combinations(members, g):
                    p = np.zeros(n)
                    p[list(members)] = 1 / n
                    p[list(leaders)] += (n - h) / (n * g)
                    found[tuple(p.round(12))] = p
    return list(found.values())
