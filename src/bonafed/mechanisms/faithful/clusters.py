"""Fewer leave-one-out models: one per cluster of agents (Definition 5, Theorem 2), and what that loses.

With clusters C_1..C_L, all agents of C_l are measured against the model trained without the whole cluster:

    P_k = [f_-k(w*) - f_-k(w_l)]/p_k,   w_l = argmin of the sum over agents NOT in C_l.

The pivot term still does not depend on k's report, so incentives survive for any L (Groves). Budget balance
does not: w_l is not the best model for f_-k, so P_k is at most the VCG payment and becomes negative; with
few clusters the server pays everybody (erratum F-D11). The safe choice is L = K, the default everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue
from bonafed.learning.problems.convex import Problem
from bonafed.mechanisms.faithful.vcg import Payments, minima, payments_from

Clusters = Sequence[NDArray[np.int64]]


def random_clusters(agents: int, clusters: int, rng: np.random.Generator) -> list[NDArray[np.int64]]:
    """A random partition of the agents into clusters of about equal size."""
    k, count = checks.whole("agents", agents), checks.whole("clusters", clusters)
    if count > k:
        raise InvalidValue("clusters", f"must be at most the number of agents, {k}", count)
    order = rng.permutation(k)
    return [order[start::count] for start in range(count)]


def cluster_of(clusters: Clusters, agents: int) -> NDArray[np.int64]:
    """(K,) the cluster of every agent; refuses what is not a partition."""
    numbers = np.full(agents, -1, dtype=np.int64)
    for number, members in enumerate(clusters):
        if (np.asarray(members) < 0).any() or (np.asarray(members) >= agents).any():
            raise InvalidValue("clusters", f"must hold agents 0..{agents - 1}", list(map(int, members)))
        if (numbers[members] >= 0).any():
            raise InvalidValue("clusters", "must not share an agent", list(map(int, members)))
        numbers[members] = number
    if (numbers < 0).any():
        raise InvalidValue(
            "clusters", "must hold every agent", f"agent {int(np.argmin(numbers))} is missing"
        )
    return numbers


def cluster_payments(
    problem: Problem, model: Floats, clusters: Clusters, tolerance: float = 1e-12
) -> Payments:
    """Definition 5 with exactly minimised cluster models; `total` may be negative (F-D11)."""
    of = cluster_of(clusters, problem.agents)
    if len(clusters) == 1:
        raise InvalidValue("clusters", "must be at least 2: without everybody there is no model", 1)
    mixes = np.where(of == np.arange(len(clusters))[:, None], 0.0, problem.weights)
    return payments_from(problem, model, minima(problem, mixes, model, tolerance)[of], steps=0)


def cluster_count(
    agents: int, smoothness: float, gradient_bound: float, strong_convexity: float, epsilon: float
) -> int:
    """Theorem 2, (46): clusters that keep payments within epsilon of VCG; a whole number, so rounded up.

    >>> cluster_count(10, smoothness=1.0, gradient_bound=1.0, strong_convexity=0.5, epsilon=1.0)
    5
    """
    k = checks.whole("agents", agents)
    l_g, l_f = checks.positive("smoothness", smoothness), checks.positive("gradient_bound", gradient_bound)
    mu, eps = checks.positive("strong_convexity", strong_convexity), checks.positive("epsilon", epsilon)
    return min(k, math.ceil(math.sqrt(l_g * (k - 1) / (2 * eps)) * l_f / mu - 1e-9))
