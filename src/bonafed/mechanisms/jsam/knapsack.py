"""Whom to leave out where clients hold unequal amounts of data: a knapsack, solved exactly (theory B7).

Sizes are whole numbers a_k with the sum A and no common divisor; u_k = a_k/A, w_k = (u_k v_k)^(2/3). If the
excluded hold m of the A units and client j leads, then l = 2m/A and

    (1)  W = T(m) + (v_j (a_j + m)/A)^(2/3),

T(m) the least sum of w over those of the others that are kept, where those left out hold at most m. Another
client i among the others makes it

    (2)  T'(m) = min(T(m) + w_i, T(m - a_i))        (the last only if a_i <= m).

J grows with l and with W. So of the (m, W) of a leader, or of all leaders, only those count that have a
smaller W than every smaller m: a `front`. Neither eta nor Q changes a front.

    (3)  j never needs to lead if another client j' has v_j' <= v_j and a_j' >= a_j.

Where j' is kept, let it lead instead: v^(2/3) ((u + m)^(2/3) - u^(2/3)) falls in u. Where it is left out,
exchange the two: j' takes over the p of j, W and l do not grow. What is left are about log N leaders.

For one client k whose virtual cost x is asked about there are three fronts, which only the others change:

    (4)  k leads, p_k = u_k + m/A, beside T of the others;
    (5)  k keeps p_k = u_k, beside the least of (1) over the other leaders without k;
    (6)  k is left out, p_k = 0, and its a_k is part of m.

The tables without k, for all k asked about, share their work by halving the list of these clients: each
half is entered before the other is split further, N log N steps of (2) instead of N^2.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bonafed.checks import Floats
from bonafed.mechanisms.jsam.thresholds import Ints, inner

TIED = 1e-12  # relative: objectives this close may differ by rounding only


class Choices(NamedTuple):
    """The front of all leaders together, (P,) each."""

    mass: Ints  # m, ascending
    spread: Floats  # W, descending
    leader: Ints


class Facing(NamedTuple):
    """The fronts (4), (5), (6) of one client, one after the other, (P,) each."""

    mass: Ints  # m, ascending in each front
    rest: Floats  # W without the client's own term, descending in each front
    share: Floats  # its p
    ends: tuple[int, int, int]  # where the fronts end


class _Leaders(NamedTuple):
    """Clients that may have to lead, by (3)."""

    above: Ints  # (N,) how many others make it needless that a client leads
    sole: Ints  # (N,) one of them

    def beside(self, client: int) -> NDArray[np.bool_]:
        """(N,) who may have to lead if this client does not."""
        free = np.asarray((self.above == 0) | ((self.above == 1) & (self.sole == client)), dtype=np.bool_)
        free[client] = False
        return free


def _leaders(sizes: Ints, costs: Floats) -> _Leaders:
    number = np.arange(sizes.size)
    above = (costs[:, None] <= costs) & (sizes[:, None] >= sizes)
    # of two that are alike in both the first one leads
    above &= (costs[:, None] < costs) | (sizes[:, None] > sizes) | (number[:, None] < number)
    return _Leaders(above.sum(0), above.argmax(0))


class Knapsack:
    """Sizes and virtual costs, ready for (1) to (6)."""

    def __init__(self, sizes: Ints, costs: Floats) -> None:
        self._sizes, self._costs = sizes, costs
        self._total = int(sizes.sum())
        self._weight = np.cbrt(sizes * (costs / self._total)) ** 2
        self._leaders = _leaders(sizes, costs)

    def choices(self) -> Choices:
        """The front of all leaders."""
        rows = np.flatnonzero(self._leaders.above == 0)
        tables = np.zeros((rows.size, self._total))
        for client in range(self._sizes.size):
            tables = self._with(tables, rows, client)
        spread = tables + self._leading(rows)
        leader = spread.argmin(0)
        least = np.take_along_axis(spread, leader[None], axis=0)[0]
        at = _falls(least)
        return Choices(at, least[at], rows[leader[at]])

    def left_out(self, leader: int, mass: int) -> NDArray[np.bool_]:
        """(N,) whom the best choice of `choices` with this leader and mass leaves out."""
        others = [client for client in range(self._sizes.size) if client != leader]
        row, out = np.zeros((1, mass + 1)), np.zeros((len(others), mass + 1), dtype=np.bool_)
        for step, client in enumerate(others):
            before, row = row, self._with(row, np.array([leader]), client)
            out[step] = row[0] < before[0] + self._weight[client]
        excluded = np.zeros(self._sizes.size, dtype=np.bool_)
        for step, client in reversed(list(enumerate(others))):
            if out[step, mass]:
                excluded[client] = True
                mass -= int(self._sizes[client])
        return excluded

    def facing(self, clients: Sequence[int]) -> Iterator[tuple[int, Facing]]:
        """The fronts of each of these clients."""
        asked = np.isin(np.arange(self._sizes.size), clients)
        above, sole = self._leaders
        leads = np.flatnonzero((above == 0) | ((above == 1) & asked[sole]))
        rows = np.concatenate([[-1], leads])  # the first row is that of nobody: all but the client
        tables = np.zeros((rows.size, self._total))
        for client in np.flatnonzero(~asked).tolist():
            tables = self._with(tables, rows, client)
        yield from self._halved(np.flatnonzero(asked).tolist(), tables, rows, self._leading(leads))

    def _halved(
        self, clients: list[int], tables: Floats, rows: Ints, leading: Floats
    ) -> Iterator[tuple[int, Facing]]:
        """Tables of everybody but these clients, until there is one of these left."""
        if len(clients) == 1:
            yield clients[0], self._facing(clients[0], tables, rows, leading)
            return
        first, second = clients[: len(clients) // 2], clients[len(clients) // 2 :]
        for here, entered in ((first, second), (second, first)):
            fuller = tables
            for client in entered:
                fuller = self._with(fuller, rows, client)
            yield from self._halved(here, fuller, rows, leading)

    def _facing(self, client: int, tables: Floats, rows: Ints, leading: Floats) -> Facing:
        alone, size, total = tables[0], int(self._sizes[client]), self._total
        leads = _falls(alone)  # (4)
        masses, rests, shares = [leads], [alone[leads]], [(size + leads) / total]
        beside = np.flatnonzero(self._leaders.beside(client)[rows[1:]])
        for out in (False, True) if beside.size else ():
            entry = size if out else 0  # (6): its own units are left out, too
            spread = (tables[1 + beside, : total - entry] + leading[beside, entry:]).min(0)
            at = _falls(spread)
            masses.append(at + entry)
            rests.append(spread[at])
            shares.append(np.full(at.size, 0.0 if out else size / total))
        first, second, third = np.cumsum([*(part.size for part in masses), 0, 0])[:3].tolist()
        return Facing(
            np.concatenate(masses), np.concatenate(rests), np.concatenate(shares), (first, second, third)
        )

    def _with(self, tables: Floats, rows: Ints, client: int) -> Floats:
        """(2), but in the row of a leader not for the leader itself."""
        size = int(self._sizes[client])
        fuller: Floats = tables + self._weight[client]
        if size < tables.shape[1]:
            np.minimum(fuller[:, size:], tables[:, :-size], out=fuller[:, size:])
        own = rows == client
        if own.any():
            fuller[own] = tables[own]
        return fuller

    def _leading(self, clients: Ints) -> Floats:
        """(L, A) the leader's term of (1) for every m."""
        held = self._sizes[clients, None] + np.arange(self._total)
        return np.asarray(np.cbrt(held * (self._costs[clients, None] / self._total)) ** 2)


def _falls(values: Floats) -> Ints:
    """Where a value is less than all before it."""
    before = np.minimum.accumulate(values)
    return np.flatnonzero(np.concatenate([[True], values[1:] < before[:-1]]))


class Points(NamedTuple):
    """Fronts one after the other, (P,) each."""

    distance: Floats  # l
    rest: Floats  # W without the term of whoever asks
    weight: Floats  # p^(2/3) of whoever asks

    def spread(self, at: Ints, root: Floats) -> Floats:
        """W at these points if the root of the asking client's cost, x^(2/3), is `root`."""
        return np.asarray(self.rest[at] + self.weight[at] * root)


class BestPoints(NamedTuple):
    """The best point of each front that was asked about, (m, F) for m questions about F fronts each."""

    at: Ints  # -1: there is no such front
    objective: Floats  # J; infinite where a point that is not the best of all was not looked for


def best_points(
    points: Points, first: Ints, last: Ints, root: Floats, eta: float, noise_scale: float
) -> BestPoints:
    """The points of least J from `first` to `last`, (m, F) each; the last is below the first for no front.

    l grows along a front, W without the own term falls, the own p does not fall: so the points from a to b
    have at least the J of l_a, the own p at a and the rest at b. Halve what that does not rule out. What is
    within `TIED` of the best of a question is not ruled out.
    """
    fronts = first.shape[1]
    best = np.full(first.size, np.inf)
    at = np.full(first.size, -1, dtype=np.int64)

    def look(front: Ints, point: Ints) -> None:
        spread = points.spread(point, root[front // fronts])
        value = inner(eta, points.distance[point], spread, noise_scale).objective
        value = np.where(np.isnan(value), np.inf, value)
        order = np.lexsort((point, value, front))  # of each front the best comes first
        lead = order[np.concatenate([[True], front[order][1:] != front[order][:-1]])]
        which, least = front[lead], value[lead]
        better = (least < best[which]) | (at[which] < 0)
        best[which[better]], at[which[better]] = least[better], point[lead][better]

    front = np.flatnonzero((last >= first).ravel())
    a, b = first.ravel()[front], last.ravel()[front]
    look(np.concatenate([front, front]), np.concatenate([a, b]))
    while True:
        limit = best.reshape(-1, fronts).min(1) * (1 + TIED)
        wide = b - a > 1
        front, a, b = front[wide], a[wide], b[wide]
        spread = points.rest[b] + points.weight[a] * root[front // fronts]
        bound = inner(eta, points.distance[a], spread, noise_scale).objective
        keep = bound < limit[front // fronts]
        front, a, b = front[keep], a[keep], b[keep]
        if not front.size:
            return BestPoints(at.reshape(first.shape), best.reshape(first.shape))
        middle = (a + b) // 2
        look(front, middle)
        front = np.concatenate([front, front])
        a, b = np.concatenate([a, middle]), np.concatenate([middle, b])
