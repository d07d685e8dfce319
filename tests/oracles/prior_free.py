"""Algorithm 1' of theory A6, transcribed line by line: one client at a time, bisection, no arrays."""

from __future__ import annotations

import math

from tests.oracles.finite import expected_payments, hull_slopes


def play(reports, budget, highest, first, first_probability, floor, estimator="plus"):
    """One entry per client: dict(q, t, remaining, kappa, menu=[(cost, q, t)])."""
    remaining, past, log = budget, [], []
    clients = len(reports)
    for j, report in enumerate(reports):
        left = clients - j
        if j < first:
            menu, kappa = [(highest, first_probability, first_probability * highest)], 1.0
        else:
            costs, masses = estimate(past, highest, estimator)
            q = probabilities(costs, masses, remaining / left, floor)
            t = expected_payments(costs, q)
            slack = max(0.0, remaining - left * highest * floor)
            excess = t[0] - highest * floor
            kappa = 1.0
            if excess > slack:
                kappa = slack / excess
                q = [floor + kappa * (x - floor) for x in q]
                t = expected_payments(costs, q)
            menu = list(zip(costs, q, t, strict=True))
        if report > highest:
            taken = (0.0, 0.0)
        else:
            taken = next((q, t) for cost, q, t in menu if cost >= report)  # round up
            past.append(report)
        log.append({"q": taken[0], "t": taken[1], "remaining": remaining, "kappa": kappa, "menu": menu})
        remaining -= taken[1]
    return log


def estimate(past, highest, estimator):
    if estimator == "plus" or not past:
        values = [*past, highest]
    else:
        top = max(past)
        values = [highest if x == top else x for x in past]
    costs = sorted(set(values))
    return costs, [values.count(c) / len(values) for c in costs]


def probabilities(costs, masses, target, floor):
    """q = clip(tau/sqrt(phibar), floor, 1), tau by bisection on the expected spend."""
    if target >= highest(costs):
        return [1.0] * len(costs)
    phibar = [float(v) for v in hull_slopes(costs, masses)]

    def at(tau):
        return [1.0 if p == 0 else min(1.0, max(floor, tau / math.sqrt(p))) for p in phibar]

    def spend(tau):
        return math.fsum(f * p * q for f, p, q in zip(masses, phibar, at(tau), strict=True))

    low, high = 0.0, math.sqrt(phibar[-1])
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if spend(middle) <= target else (low, middle)
    return at(low)


def highest(costs):
    return costs[-1]
