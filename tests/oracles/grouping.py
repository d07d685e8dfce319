"""Every clustering of a few agents, and the bound (21) of one, agent by agent."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from bonafed.mechanisms.faithful.theory.bounds import AgentPopulation


def all_clusterings(agents: int) -> Iterator[list[list[int]]]:
    """All Bell(K) of them: the last agent joins each cluster of the others, or is alone."""
    if agents == 0:
        yield []
        return
    for smaller in all_clusterings(agents - 1):
        for at in range(len(smaller)):
            yield [[*each, agents - 1] if i == at else [*each] for i, each in enumerate(smaller)]
        yield [*smaller, [agents - 1]]


def slow_bound(population: AgentPopulation, clusters: Sequence[Sequence[int]]) -> float:
    """(21) with the cluster's weight (F-E11), by loops."""
    p, n, kinds = (getattr(population, name).tolist() for name in ("weights", "counts", "distributions"))
    d = population.dimension
    c = population.lipschitz**2 * d * math.log(2 * len(p) * d / population.confidence)
    c /= 4 * population.strong_convexity
    total = 0.0
    for members in clusters:
        weight = sum(p[k] for k in members)
        for k in members:
            mean = [sum(p[j] / weight * kinds[j][y] for j in members) for y in range(len(kinds[k]))]
            away = sum(abs(mine - other) for mine, other in zip(kinds[k], mean, strict=True))
            total += c * p[k] * p[k] / weight / n[k] + 2 * p[k] * away
    return total
