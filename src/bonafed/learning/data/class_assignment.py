"""Who holds which class if each client holds k: at random or, where that fails, by exchanges.

Client i (from 0) of N holds the class i mod K. The rest is a flow from clients to classes, in which a class
has room for as many holders as it has samples: a client that finds no class with room takes one from
another client, which in turn looks for another. If no such chain ends at a class with room there is no
solution. No class loses its last holder along the way.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

REDRAWS = 1_000  # random draws before classes are exchanged
Holders = NDArray[np.bool_]  # (clients, classes)


def holders(
    sizes: NDArray[np.int64], clients: int, per_client: int, rng: np.random.Generator
) -> Holders | None:
    """Each client with `per_client` classes, no class with more holders than samples; None: impossible."""
    for _ in range(REDRAWS):
        holds, room = _begin(sizes, clients, rng)
        if all(_take(row, room, per_client, rng) for row in holds):
            return holds
    holds, room = _begin(sizes, clients, rng)
    for client in rng.permutation(clients).tolist():
        for _ in range(per_client - int(holds[client].sum())):
            if not _exchange(holds, room, client, rng.permutation(sizes.size)):
                return None
    return holds


def _begin(
    sizes: NDArray[np.int64], clients: int, rng: np.random.Generator
) -> tuple[Holders, NDArray[np.int64]]:
    """Class i mod K for client i, classes without a holder dealt out; and the room left in each class."""
    holds = np.zeros((clients, sizes.size), dtype=np.bool_)
    holds[np.arange(clients), np.arange(clients) % sizes.size] = True
    unheld = rng.permutation(np.flatnonzero(~holds.any(axis=0)))
    holds[np.arange(unheld.size) % clients, unheld] = True
    return holds, sizes - holds.sum(axis=0)


def _take(row: Holders, room: NDArray[np.int64], per_client: int, rng: np.random.Generator) -> bool:
    """Give one client random classes with room; False if there are too few."""
    missing = per_client - int(row.sum())
    free = np.flatnonzero(~row & (room > 0))
    if free.size < missing:
        return False
    picks = rng.choice(free, missing, replace=False)
    row[picks] = True
    room[picks] -= 1
    return True


def _exchange(holds: Holders, room: NDArray[np.int64], client: int, order: NDArray[np.int64]) -> bool:
    """One more class for a client, by the shortest chain of clients that each give one up; or False."""
    classes = holds.shape[1]
    chains: dict[int, list[tuple[int, int]]] = {client: []}  # (taker, class) up to each client
    waiting, seen = [client], set[int]()
    for taker in waiting:  # grows during the loop
        for label in order[~holds[taker, order]].tolist():
            if label in seen:
                continue
            seen.add(label)
            chain = [*chains[taker], (taker, label)]
            if room[label] > 0:
                _carry_out(holds, chain)
                room[label] -= 1
                return True
            for giver in np.flatnonzero(holds[:, label]).tolist():
                if giver not in chains and giver % classes != label:  # it keeps its first class
                    chains[giver] = chain
                    waiting.append(giver)
    return False


def _carry_out(holds: Holders, chain: list[tuple[int, int]]) -> None:
    """Every client takes a class, which the next one gives up."""
    for place, (taker, label) in enumerate(chain):
        holds[taker, label] = True
        if place:
            holds[taker, chain[place - 1][1]] = False
