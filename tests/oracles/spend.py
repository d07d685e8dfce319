"""Realised spend: every outcome enumerated, or simulated coin by coin."""

from __future__ import annotations

import itertools
import math

import numpy as np


def enumerate_totals(clients, rounds):
    """[(total, probability)] of everything that can happen to clients of types (mass, q, r)."""
    per_client = []
    for types in clients:
        outcomes = []
        for mass, q, r in types:
            for k in range(rounds + 1):
                chance = mass * math.comb(rounds, k) * q**k * (1 - q) ** (rounds - k)
                outcomes.append((r * k, chance))
        per_client.append(outcomes)
    totals = []
    for combination in itertools.product(*per_client):
        totals.append((math.fsum(x for x, _ in combination), math.prod(p for _, p in combination)))
    return totals


def exceedance(totals, amount):
    return math.fsum(p for x, p in totals if x > amount)


def simulate(rng, price, quantile, clients, rounds, runs):
    """(runs,) totals: draw every cost, then toss every coin. `price` gives (q, r) of costs."""
    costs = quantile(rng.random((runs, clients)))
    q, r = price(costs)
    wins = rng.binomial(rounds, q)
    return np.sum(wins * r, axis=1)
