"""The best selection where no more than so much privacy may be bought from anyone (theory B9).

For a given selection `water_level.py` has the best epsilon, by (1) and (2) there.

Where the cap binds, one leader with most of the probability is a bad plan: it cannot sell enough. So the
selections looked at are, for g and h of lists that depend on N alone (all h for g = 1 and g = h),

    (3)  p = 1/N + (N-h)/(N g) for g leaders, 1/N for h - g more, 0 for the rest;  l = 2 (N-h)/N;
         and 1/h for h clients (g = h).

If the cap is one for all, who takes which place is settled by exchange: the cheapest lead, the dearest are
left out (theory B9 (b)). So the least J over sorted prefixes is the least over all ways to fill the places
of (3), a set that no report changes; hence V_k is concave with slope epsilon_k, and the payments of theory
B3 are truthful. J grows with l and with every p, so that thresholds a..b of one g cannot do better than

    (4)  the leaders at their p for b, 1/N up to a, l for b.

With a cap per client exchange fails. The selections then are, for each of a few levels e taken from the
caps: clients whose cap is at least e fill the places of (3) at the cap e; the others are all left out, or
all selected with 1/N each under their own caps. That set is fixed before anyone reports, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from bonafed.checks import Floats
from bonafed.mechanisms.jsam.thresholds import (
    Ints,
    Ladder,
    Moved,
    ObjectiveTerms,
    Own,
    ladder,
)
from bonafed.mechanisms.jsam.water_level import (
    FixedClients,
    Level,
    Sums,
    SumsAt,
    numbers_among,
    privacy_of,
    water_level,
)

_CHUNK = 1 << 12  # questions answered together
_ALL = 1 << 14  # selections in all, up to which looking at each is quicker
_LEVELS = 4  # of different caps, at most
_STEPS = 64  # thresholds for every number of leaders but one
_ALIKE = 0  # for g: as many leaders as are selected


class Fill(NamedTuple):
    """The best way to fill the places of (3), for m questions."""

    objective: Floats
    leaders: Ints  # g
    threshold: Ints  # h
    lead: Floats  # p of the leaders
    water: Floats  # theta
    code: Ints  # which g of the list
    terms: ObjectiveTerms  # of the objective

    def selection(self, rank: Ints, clients: int) -> Floats:
        """(3): the probability of whoever is at this place of the sorted list."""
        below = np.where(rank < self.threshold, 1 / clients, 0.0)
        return np.where(rank < self.leaders, self.lead, below)


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """The places of (3) for the clients of a ladder, at one cap; others may be fixed."""

    base: Ladder  # of those who compete for the places
    clients: int  # N
    cap: float  # E
    fixed: FixedClients | None = None  # the others, at 1/N each
    fixed_count: int = 0

    @property
    def spare(self) -> int:
        """What the places share, in units of 1/N."""
        return self.clients - self.fixed_count

    def profile(self, g: Ints, h: Ints) -> tuple[Ints, Floats, Floats]:
        """(3): number of leaders, their probability, and the distance."""
        alike = (g == _ALIKE) | (g == h)  # the same to the last digit
        leaders = np.where(alike, h, g)
        fair = np.where(alike, h, 0) / self.clients  # of what they share, it is theirs anyway
        more = (self.spare - h) / self.clients
        lead = np.where(alike, (more + fair) / leaders, 1 / self.clients + more / leaders)
        return leaders, lead, 2.0 * more

    def level(
        self, queries: Queries, q: Ints, leaders: Ints, lead: Floats, h: Ints, distance: Floats
    ) -> Level:
        """(1) for questions q with `leaders` at `lead`, and 1/N up to h."""
        fair = 1 / self.clients
        high, low = np.cbrt(lead) ** 2, np.cbrt(fair) ** 2
        to_lead, to_h = queries.moved.first(q, leaders), queries.moved.first(q, h)
        everyone = high * to_lead + low * (to_h - to_lead)
        if queries.fixed is not None:
            below = np.full(q.size, -1.0)  # every filling level
            everyone = everyone + queries.fixed(q, below).spread

        def sums(at: Ints, theta: Floats) -> Sums:
            k, g = q[at], leaders[at]
            with np.errstate(over="ignore"):
                fill = (theta / self.cap) ** 3
                i = np.minimum(queries.moved.up_to(k, lead[at] ** 2 * fill), g)
                j = np.clip(queries.moved.up_to(k, fair**2 * fill), g, h[at])
            first = queries.moved.first(k, i), queries.moved.first(k, j)
            spread = high[at] * (to_lead[at] - first[0]) + low * (to_h[at] - first[1])
            noise = (i * lead[at] ** 2 + (j - g) * fair**2) / self.cap**2
            dear = queries.moved.cost_of_first
            money = self.cap * (dear(k, i) + dear(k, j) - dear(k, g))
            spread = np.where((i == g) & (j == h[at]), 0.0, np.maximum(spread, 0.0))
            if queries.fixed is None:
                return Sums(noise, spread, money)
            more = queries.fixed(k, theta)
            return Sums(noise + more.noise, spread + more.spread, money + more.money)

        return water_level(self.base.eta, self.base.noise_scale, distance, everyone, sums)

    def best(self, queries: Queries, hint: tuple[int, int] | None = None) -> Fill:
        """The least J over all g and h for every question, by (4)."""
        return _Search(self, queries, hint).run()


class Queries(NamedTuple):
    """m questions: the changed lists, and the sums of those whose selection is fixed."""

    moved: Moved
    fixed: SumsAt | None
    size: int


def leader_counts(clients: int) -> list[int]:
    """g of (3): 1, 2, 3, 4, 6, 8, 12, ... below the number of clients; and `_ALIKE`."""
    powers = (1 << i for i in range(clients.bit_length()))
    counts = sorted({g for power in powers for g in (power, power + power // 2)})
    return [_ALIKE, *(g for g in counts if g < clients)]


class _Search:
    """Branch and bound over (g, h) for many questions at once; thresholds by their number in the list."""

    def __init__(self, places: Places, queries: Queries, hint: tuple[int, int] | None) -> None:
        self._places, self._queries, self._hint = places, queries, hint
        self._most = places.base.sorted_costs.size
        self._best = np.full(queries.size, np.inf)
        self._g, self._h = np.zeros(queries.size, np.int64), np.ones(queries.size, np.int64)

    def run(self) -> Fill:
        codes = np.array(leader_counts(self._most), dtype=np.int64)
        steps = self._steps(codes)
        everyone = np.arange(self._queries.size)
        if int(steps.sum() + codes.size) * everyone.size <= _ALL:
            g = np.repeat(codes, steps + 1)
            at = np.concatenate([np.arange(last + 1) for last in steps])
            self._look(np.repeat(everyone, g.size), np.tile(g, everyone.size), np.tile(at, everyone.size))
        else:
            if self._hint is not None:
                self._try(everyone, *(np.full(everyone.size, value) for value in self._hint))
            q, g = np.repeat(everyone, codes.size), np.tile(codes, everyone.size)
            a, b = np.zeros(q.size, np.int64), np.tile(steps, everyone.size)
            self._look(q, g, a)
            self._look(q, g, b)
            self._narrow(q, g, a, b)
        leaders, lead, distance = self._places.profile(self._g, self._h)
        level = self._places.level(self._queries, everyone, leaders, lead, self._h, distance)
        return Fill(level.objective, leaders, self._h, lead, level.water, self._g, level.terms)

    def _steps(self, g: Ints) -> Ints:
        """The number of the last threshold in the list of g: of all thresholds for g = 1 and g = h."""
        span = self._most - np.maximum(g, 1)
        return np.where(g > 1, np.minimum(span, _STEPS), span)

    def _threshold(self, g: Ints, at: Ints) -> Ints:
        span, steps = self._most - np.maximum(g, 1), np.maximum(self._steps(g), 1)
        return np.asarray(np.maximum(g, 1) + at * span // steps)

    def _narrow(self, q: Ints, g: Ints, a: Ints, b: Ints) -> None:
        while True:
            keep = b - a > 1
            q, g, a, b = q[keep], g[keep], a[keep], b[keep]
            keep = self._bound(q, g, a, b) < self._best[q]
            q, g, a, b = q[keep], g[keep], a[keep], b[keep]
            if not q.size:
                return
            middle = (a + b) // 2
            self._look(q, g, middle)
            q, g = np.tile(q, 2), np.tile(g, 2)
            a, b = np.concatenate([a, middle]), np.concatenate([middle, b])

    def _look(self, q: Ints, g: Ints, at: Ints) -> None:
        self._try(q, g, self._threshold(g, at))

    def _try(self, q: Ints, g: Ints, h: Ints) -> None:
        leaders, lead, distance = self._places.profile(g, h)
        value = self._places.level(self._queries, q, leaders, lead, h, distance).objective
        order = np.lexsort((h, g, value, q))
        first = order[np.concatenate([[True], np.diff(q[order]) > 0])]
        better = first[value[first] < self._best[q[first]]]
        at = q[better]
        self._best[at], self._g[at], self._h[at] = value[better], g[better], h[better]

    def _bound(self, q: Ints, g: Ints, a: Ints, b: Ints) -> Floats:
        """No threshold from a to b has a smaller objective, by (4)."""
        low, high = self._threshold(g, a), self._threshold(g, b)
        leaders, lead, distance = self._places.profile(g, high)
        return self._places.level(self._queries, q, np.minimum(leaders, low), lead, low, distance).objective


class _Family(NamedTuple):
    """Places, and who competes for them; the others are fixed at 1/N, or left out."""

    places: Places
    competing: Ints  # (n,) number of each client among those who compete; -1: it does not
    fixed: Ints  # (n,) the same among those whose selection is fixed


class CappedLadder:
    """The best plan under caps, also if one client reports otherwise; the twin of `Ladder`."""

    def __init__(self, virtual_costs: Floats, eta: float, noise_scale: float, caps: float | Floats) -> None:
        self._costs, self._eta, self._scale = virtual_costs, eta, noise_scale
        self._caps = np.array(np.broadcast_to(caps, virtual_costs.shape), dtype=np.float64)
        self._families = self._make()
        nobody, nothing = np.array([-1]), np.array([np.nan])
        self._fills = [self._fill(family, nobody, nothing)[0] for family in self._families]
        self._chosen = int(np.argmin([float(fill.objective[0]) for fill in self._fills]))
        self.objective = float(self._fills[self._chosen].objective[0])
        self.selection, self.privacy, self.distance = self._plan()

    def _make(self) -> list[_Family]:
        different = np.unique(self._caps)
        if different.size > _LEVELS:
            different = different[np.linspace(0, different.size - 1, _LEVELS).round().astype(np.int64)]
        families = []
        for level in different.tolist():
            able = self._caps >= level
            families.append(self._family(able, level, keep=False))
            if not able.all():
                families.append(self._family(able, level, keep=True))
        return families

    def _family(self, able: NDArray[np.bool_], cap: float, *, keep: bool) -> _Family:
        n, v, others = self._costs.size, self._costs, ~able
        base = ladder(v[able], self._eta, self._scale)
        if not keep:
            return _Family(Places(base, n, cap), numbers_among(able), np.full(n, -1))
        count = int(others.sum())
        rest = FixedClients(np.full(count, 1 / n), self._caps[others], v[others])
        return _Family(Places(base, n, cap, rest, count), numbers_among(able), numbers_among(others))

    def _plan(self) -> tuple[Floats, Floats, float]:
        family, fill = self._families[self._chosen], self._fills[self._chosen]
        competes, n = family.competing >= 0, self._costs.size
        rank = np.full(n, n)
        rank[competes] = family.places.base.rank[family.competing[competes]]
        selection = np.where(family.fixed >= 0, 1 / n, fill.selection(rank, n))
        caps = np.where(competes, family.places.cap, self._caps)
        distance = 2.0 * (family.places.spare - int(fill.threshold[0])) / n
        return selection, privacy_of(selection, caps, self._costs, fill.water), distance

    def own(self, clients: Ints, x: Floats) -> Own:
        """V_k(x) and epsilon_k(x) for pairs (k, x), (m,) each; the others as they are."""
        if np.array_equal(x, self._costs[clients]):
            now = self._fills[self._chosen].terms
            return Own(
                ObjectiveTerms(*(np.full(clients.size, term[0]) for term in now)), self.privacy[clients]
            )
        best = np.full((5, clients.size), np.inf)  # objective, its terms, epsilon
        for family, fill in zip(self._families, self._fills, strict=True):
            left_out = np.array([fill.objective, *fill.terms, [0.0]])
            here = np.repeat(left_out, clients.size, axis=1)
            touched = np.flatnonzero((family.competing[clients] >= 0) | (family.fixed[clients] >= 0))
            for i in range(0, touched.size, _CHUNK):
                some = touched[i : i + _CHUNK]
                here[:, some] = self._answer(family, fill, clients[some], x[some])
            best = np.where(here[0] < best[0], here, best)
        return Own(ObjectiveTerms(*best[1:4]), best[4])

    def _answer(self, family: _Family, now: Fill, clients: Ints, x: Floats) -> Floats:
        """(5, m): what `own` compares, of one family."""
        fill, rank = self._fill(family, clients, x, (int(now.code[0]), int(now.threshold[0])))
        competes, n = family.competing[clients] >= 0, self._costs.size
        selection = np.where(competes, fill.selection(rank, n), 1 / n)
        caps = np.where(competes, family.places.cap, self._caps[clients])
        return np.array([fill.objective, *fill.terms, privacy_of(selection, caps, x, fill.water)])

    def _fill(
        self, family: _Family, clients: Ints, x: Floats, hint: tuple[int, int] | None = None
    ) -> tuple[Fill, Ints]:
        """The best fill if each client (-1: nobody) had virtual cost x, and its place in the list."""
        places, base = family.places, family.places.base
        competing, fixed = (
            np.where(clients >= 0, numbers[clients], -1) for numbers in (family.competing, family.fixed)
        )
        one = np.maximum(competing, 0)  # where nobody who competes moves: this one, to where it is
        moved = Moved(base, one, np.where(competing >= 0, x, base.sorted_costs[base.rank[one]]))
        sums = None if places.fixed is None else places.fixed.ask(fixed, x)
        return places.best(Queries(moved, sums, x.size), hint), moved.rank


class CappedCheapest:
    """The M cheapest alike under one cap, also if one client reports otherwise."""

    def __init__(
        self,
        members: int,
        distance: float,
        virtual_costs: Floats,
        eta: float,
        noise_scale: float,
        cap: float,
    ) -> None:
        self._m, self._distance, self._costs, self._cap = members, distance, virtual_costs, cap
        self._places = Places(ladder(virtual_costs, eta, noise_scale), virtual_costs.size, cap)
        now, _ = self._level(np.zeros(1, np.int64), virtual_costs[:1])
        self.objective = float(now.objective[0])
        self.selection = np.where(self._places.base.rank < members, 1 / members, 0.0)
        self.privacy = privacy_of(self.selection, np.array(cap), virtual_costs, now.water)

    def own(self, clients: Ints, x: Floats) -> Own:
        """V_k(x) and epsilon_k(x) for pairs (k, x), (m,) each; the others as they are."""
        level, rank = self._level(clients, x)
        selection = np.where(rank < self._m, 1 / self._m, 0.0)
        return Own(level.terms, privacy_of(selection, np.array(self._cap), x, level.water))

    def _level(self, clients: Ints, x: Floats) -> tuple[Level, Ints]:
        queries = Queries(Moved(self._places.base, clients, x), None, x.size)
        many, m = np.arange(x.size), np.full(x.size, self._m)
        lead, distance = np.full(x.size, 1 / self._m), np.full(x.size, self._distance)
        return self._places.level(queries, many, m, lead, m, distance), queries.moved.rank
