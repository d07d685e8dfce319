"""The clustering of agents whose models have the least risk bound (21), and Assumption 3.

The bound (21), as corrected (F-E11), is a sum over clusters of a cost that depends on the cluster's members
alone:

    (21)   RB_C = sum over C of cost(C),
           cost(C) = c' sum_{k in C} p_k (p_k/p_C)/n_k + 2 sum_{k in C} p_k ||P_k - mean of C||,

p_C being the weight of the cluster. So the best clustering that holds a set S of agents is the best cluster
of its first agent together with the best clustering of the rest: dynamic programming over the subsets
finds the least of all Bell(K) clusterings in 3^K steps, for up to `EXACT` agents. Beyond that a heuristic:
join the two clusters that lower the bound most, while any two do; and from there, and from the obvious
clusterings (all in one, everybody alone, those with the same most frequent outcome), move single agents
while that lowers the bound. The least found is never above that of an obvious one, but need not be the
least there is.

Assumption 3, (22), is that no clustering has a bound below that of all in one. The paper leaves the search
open ("beyond the scope of this work") and with it how one would know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from bonafed.mechanisms.faithful.theory.bounds import (
    AgentPopulation,
    social_clustered_risk,
    social_federated_risk,
    social_local_risk,
)

EXACT = 12  # agents up to which all clusterings are searched
_GAIN = 1e-12  # relative: less is rounding
Group = frozenset[int]
Cost = Callable[[Group], float]


class Clustering(NamedTuple):
    """Agents in clusters, and what that gives."""

    clusters: tuple[tuple[int, ...], ...]  # each ascending, in the order of their first agents
    bound: float  # (21)
    exact: bool  # no clustering has a smaller bound; else none was found


class Assumption3(NamedTuple):
    """Whether one model for all has the least risk bound of all clusterings (22)."""

    holds: bool
    federated: float  # (18), all in one cluster
    best: Clustering
    exact: bool  # else `holds` says that no counterexample was found


def best_clustering(population: AgentPopulation, exact_up_to: int = EXACT) -> Clustering:
    """The clustering that minimises (21): exact for few agents, by a heuristic for more.

    >>> kinds = [[0.9, 0.1], [0.9, 0.1], [0.1, 0.9], [0.1, 0.9]]
    >>> agents = AgentPopulation([0.25] * 4, [100.0] * 4, kinds, 1.0, 10, 0.5, 0.05)
    >>> best_clustering(agents).clusters
    ((0, 1), (2, 3))
    """
    cost = cache(_cost(population))
    agents = population.weights.size
    exact = agents <= exact_up_to
    groups = _by_subsets(agents, cost) if exact else _by_moves(population, cost)
    ordered = tuple(sorted(tuple(sorted(members)) for members in groups))
    return Clustering(ordered, social_clustered_risk(population, ordered), exact)


def assumption_3(population: AgentPopulation, exact_up_to: int = EXACT) -> Assumption3:
    """(22) against all clusterings, not only those one thinks of."""
    best = best_clustering(population, exact_up_to)
    federated = social_federated_risk(population)
    return Assumption3(federated <= best.bound * (1 + _GAIN), federated, best, best.exact)


def obvious_clusterings(population: AgentPopulation) -> list[list[list[int]]]:
    """All in one, everybody alone, and those with the same most frequent outcome together."""
    agents = range(population.weights.size)
    main = population.distributions.argmax(1)
    alike = [np.flatnonzero(main == label).tolist() for label in np.unique(main)]
    return [[[*agents]], [[k] for k in agents], alike]


def _cost(population: AgentPopulation) -> Cost:
    """cost(C) of a cluster."""
    p, n, rows = population.weights, population.counts, population.distributions
    noise = social_local_risk(population) / float((p / n).sum())  # c', by (17)

    def cost(members: Group) -> float:
        who = np.array(sorted(members))
        inside = p[who] / p[who].sum()
        away = np.abs(rows[who] - inside @ rows[who]).sum(1)
        return noise * float((p[who] * inside / n[who]).sum()) + 2 * float(p[who] @ away)

    return cost


def _by_subsets(agents: int, cost: Cost) -> list[Group]:
    """The least of all clusterings; a set of agents is a number whose bits are its members."""
    sets = [frozenset(k for k in range(agents) if mask >> k & 1) for mask in range(1 << agents)]
    costs = [0.0, *(cost(members) for members in sets[1:])]
    least, chosen = [0.0] * len(sets), [0] * len(sets)
    for mask in range(1, len(sets)):
        first, rest = mask & -mask, mask & (mask - 1)
        least[mask], part = float("inf"), rest
        while True:  # every subset of the rest, together with the first agent
            cluster = part | first
            total = costs[cluster] + least[mask ^ cluster]
            if total < least[mask]:
                least[mask], chosen[mask] = total, cluster
            if not part:
                break
            part = (part - 1) & rest
    groups, mask = [], len(sets) - 1
    while mask:
        groups.append(sets[chosen[mask]])
        mask ^= chosen[mask]
    return groups


def _by_moves(population: AgentPopulation, cost: Cost) -> list[Group]:
    """The least that joining clusters and moving agents finds."""
    starts = [[frozenset(members) for members in each] for each in obvious_clusterings(population)]
    starts.append(_joined(population.weights.size, cost))
    ends = [_moved(clusters, cost) for clusters in starts]
    return min(ends, key=lambda clusters: _total(clusters, cost))


def _total(clusters: Iterable[Group], cost: Cost) -> float:
    return sum(cost(members) for members in clusters)


def _joined(agents: int, cost: Cost) -> list[Group]:
    """From everybody alone, join the two clusters that lower the bound most, while any two do."""
    clusters = [frozenset([k]) for k in range(agents)]
    gains = {
        frozenset([a, b]): cost(a) + cost(b) - cost(a | b)
        for i, a in enumerate(clusters)
        for b in clusters[:i]
    }
    while gains:
        pair = max(gains, key=gains.__getitem__)
        if gains[pair] <= 0:
            break
        both = frozenset().union(*pair)
        clusters = [*(members for members in clusters if members not in pair), both]
        gains = {other: gain for other, gain in gains.items() if not other & pair}
        for members in clusters[:-1]:
            gains[frozenset([members, both])] = cost(members) + cost(both) - cost(members | both)
    return clusters


def _moved(clusters: Sequence[Group], cost: Cost) -> list[Group]:
    """Move single agents to other clusters, or away to be alone, while that lowers the bound."""
    now, moving = list(clusters), True
    while moving:
        moving = False
        for agent in range(sum(map(len, clusters))):
            home = next(members for members in now if agent in members)
            left = home - {agent}
            stay = cost(home) - (cost(left) if left else 0.0)
            others = [members for members in now if members != home]
            options = [*others, frozenset[int]()]
            joining = [cost(to | {agent}) - (cost(to) if to else 0.0) for to in options]
            at = int(np.argmin(joining))
            if joining[at] < stay - _GAIN * max(1.0, abs(stay)):
                kept = [members for members in others if members != options[at]]
                now = [*kept, options[at] | {agent}, *([left] if left else [])]
                moving = True
    return now
