"""Clients with unequal amounts of data: fair is p^u = u, the shares of the records (theory B7).

J(p) is least at a vertex, so p_k is 0 or u_k for all but one client, the leader, who takes what those left
out would have had. Who is left out is a knapsack problem over whole numbers of records, which
`knapsack.py` solves exactly. Hence `Unequal` minimises the objective over a set of selections that no
report changes, and the payments of theory B3 are truthful.

Where client k averages M_k records per release, its noise is (2/M_k)^2 times that of M = 2. Counting
epsilon' = epsilon M_k/2, a unit of which costs v' = 2 v/M_k, leaves the problem for Q of M = 2: `Averaged`.
V_k is then a function of x' = 2x/M_k with slope epsilon'_k: dV_k/dx = (2/M_k) epsilon'_k = epsilon_k.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue
from bonafed.mechanisms.jsam.allocation import SelectionPlan, checked, plan_for
from bonafed.mechanisms.jsam.knapsack import TIED, Choices, Facing, Knapsack, Points, best_points
from bonafed.mechanisms.jsam.rules import Fixed, Rule
from bonafed.mechanisms.jsam.thresholds import Ints, ObjectiveTerms, Own, inner, total_and_rest

MOST_CELLS = 1 << 25  # clients times units of size: what a table may hold
_MOST_POINTS = 1 << 23  # of fronts that are remembered
_CHUNK = 1 << 15  # questions answered together


def whole_sizes(name: str, sizes: ArrayLike, clients: int | None = None) -> Ints:
    """(N,) records of each client, which no report changes; few enough for the tables.

    >>> whole_sizes("sizes", [40, 25, 10])
    array([40, 25, 10])
    """
    values = checks.vector(name, sizes, sign="positive", length=clients)
    broken = np.flatnonzero(values != np.floor(values))
    if broken.size:
        at = int(broken[0])
        raise InvalidValue(name, "must be whole numbers of records", f"{values[at]:g} at position {at}")
    units = float(values.sum()) / int(np.gcd.reduce(values.astype(np.int64)))
    if units * values.size > MOST_CELLS:
        rule = f"must be at most {MOST_CELLS:,}, clients times records over their greatest common divisor"
        raise InvalidValue(name, rule, f"{values.size:,} times {units:,.0f}")
    return values.astype(np.int64)


class _Memory:
    """Fronts that were computed, as many as fit; budgets ask for the same ones with many weights."""

    def __init__(self) -> None:
        self._kept: dict[bytes, Choices | Facing] = {}
        self._points = 0

    def keep(self, key: bytes, fronts: Choices | Facing) -> None:
        if self._points > _MOST_POINTS:
            self._kept, self._points = {}, 0
        self._kept[key] = fronts
        self._points += fronts.mass.size

    def get(self, key: bytes) -> Choices | Facing | None:
        return self._kept.get(key)


@final
@dataclass(frozen=True, eq=False)
class Unequal(Rule):
    """The exact optimum for clients that hold these numbers of records.

    >>> Unequal([10, 20, 30, 40]).plan(np.array([0.2, 0.5, 0.6, 1.8]), 0.5, 1.0).selection
    array([0.5, 0.2, 0.3, 0. ])
    """

    sizes: ArrayLike  # (N,) whole numbers
    _memory: _Memory = field(default_factory=_Memory, init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sizes", whole_sizes("sizes", self.sizes))

    @property
    def _units(self) -> Ints:
        """(N,) without a common divisor."""
        sizes = np.asarray(self.sizes, dtype=np.int64)
        return np.asarray(sizes // np.gcd.reduce(sizes))

    @property
    def shares(self) -> Floats:
        """(N,) fair probabilities p^u: shares of the records."""
        sizes = np.asarray(self.sizes, dtype=np.float64)
        return np.asarray(sizes / sizes.sum())

    def among(self, admitted: NDArray[np.bool_]) -> Unequal:
        self._fits(admitted.size)
        return self if admitted.all() else Unequal(np.asarray(self.sizes)[admitted])

    def _fits(self, clients: int) -> None:
        if np.size(self.sizes) != clients:
            raise InvalidValue("sizes", f"must have {clients} values, one per client", np.size(self.sizes))

    @np.errstate(over="ignore", invalid="ignore")  # infinite, and refused in the end
    def plan(self, virtual_costs: Floats, eta: float, noise_scale: float) -> SelectionPlan:
        self._fits(virtual_costs.size)
        units = self._units
        choices = self._choices(virtual_costs)
        at = int(self._best([choices], eta, noise_scale)[0])
        leader, mass = int(choices.leader[at]), int(choices.mass[at])
        excluded = Knapsack(units, virtual_costs).left_out(leader, mass)
        held = np.where(excluded, 0, units)
        held[leader] += mass
        distance = 2 * mass / int(units.sum())
        return plan_for(held / units.sum(), virtual_costs, eta, noise_scale, distance)

    @np.errstate(over="ignore", invalid="ignore")
    def spending(self, virtual_costs: Floats, eta: float, noise_scale: float) -> Floats:
        every = [self._choices(row) for row in virtual_costs]
        at = self._best(every, eta, noise_scale)
        total = int(self._units.sum())
        distance = np.array([2 * choices.mass[k] / total for choices, k in zip(every, at, strict=True)])
        spread = np.array([choices.spread[k] for choices, k in zip(every, at, strict=True)])
        return inner(eta, distance, spread, noise_scale).total

    def _best(self, every: Sequence[Choices], eta: float, noise_scale: float) -> Ints:
        """The place of the best choice in each front."""
        total = int(self._units.sum())
        counts = np.array([choices.mass.size for choices in every])
        last = np.cumsum(counts) - 1
        first = last - counts + 1
        mass, rest = (np.concatenate(part) for part in list(zip(*every, strict=True))[:2])
        points = Points(2 * mass / total, rest, np.zeros(rest.size))
        nobody = np.zeros(len(every))
        best = best_points(points, first[:, None], last[:, None], nobody, eta, noise_scale)
        return np.asarray(best.at[:, 0] - first)

    def _choices(self, virtual_costs: Floats) -> Choices:
        key = hashlib.sha256(virtual_costs.tobytes()).digest()
        choices = self._memory.get(key)
        if not isinstance(choices, Choices):
            choices = Knapsack(self._units, virtual_costs).choices()
            self._memory.keep(key, choices)
        return choices

    @np.errstate(over="ignore", invalid="ignore")
    def own(self, virtual_costs: Floats, eta: float, noise_scale: float, clients: Ints, x: Floats) -> Own:
        self._fits(virtual_costs.size)
        parts, asked = [], []
        for facing, which in self._groups(virtual_costs, clients):
            for i in range(0, which.size, _CHUNK):
                some = which[i : i + _CHUNK]
                one = (virtual_costs, eta, noise_scale, clients[some], x[some])
                parts.append(self._answers(facing, *one))
                asked.append(some)
        joined, back = Own.joined(parts), np.argsort(np.concatenate(asked), kind="stable")
        return Own(joined.terms.at(back), joined.privacy[back])

    def _groups(self, virtual_costs: Floats, clients: Ints) -> Iterator[tuple[dict[int, Facing], Ints]]:
        """The questions by clients whose fronts fit together, with the fronts."""
        group: dict[int, Facing] = {}
        for client, fronts in self._facing(virtual_costs, np.unique(clients).tolist()):
            group[client] = fronts
            if sum(one.mass.size for one in group.values()) > _MOST_POINTS // 4:
                yield group, np.flatnonzero(np.isin(clients, list(group)))
                group = {}
        if group:
            yield group, np.flatnonzero(np.isin(clients, list(group)))

    def _facing(self, virtual_costs: Floats, clients: Sequence[int]) -> Iterator[tuple[int, Facing]]:
        """The fronts of these clients, those that are remembered first."""
        missing = {}
        for client in clients:
            others = virtual_costs.copy()
            others[client] = 0.0  # its fronts depend on the others only
            key = client.to_bytes(8, "big") + hashlib.sha256(others.tobytes()).digest()
            facing = self._memory.get(key)
            if isinstance(facing, Facing):
                yield client, facing
            else:
                missing[client] = key
        if missing:
            for client, fronts in Knapsack(self._units, virtual_costs).facing(list(missing)):
                self._memory.keep(missing[client], fronts)
                yield client, fronts

    def _answers(
        self, facing: dict[int, Facing], virtual_costs: Floats, eta: float, noise_scale: float,
        clients: Ints, x: Floats,
    ) -> Own:  # fmt: skip
        names = np.array(list(facing))
        order = np.argsort(names)
        group = order[np.searchsorted(names[order], clients)]
        sizes = np.array([fronts.mass.size for fronts in facing.values()])
        begins = np.cumsum(sizes) - sizes
        edges = np.array([(0, *fronts.ends) for fronts in facing.values()]) + begins[:, None]
        mass, rest, share = (np.concatenate(part) for part in list(zip(*facing.values(), strict=True))[:3])
        points = Points(2 * mass / int(self._units.sum()), rest, np.cbrt(share) ** 2)
        root = np.cbrt(x) ** 2
        best = best_points(points, edges[group, :-1], edges[group, 1:] - 1, root, eta, noise_scale)
        near = (best.at >= 0) & (best.objective <= best.objective.min(1, keepdims=True) * (1 + TIED))
        each = share[best.at]  # p for the best point of every front
        at = best.at[np.arange(x.size), best.objective.argmin(1)]
        # Where clients are alike, who of them is left out does not follow from J: the plan says who.
        tied = np.flatnonzero((near & (each != share[at][:, None])).any(1))
        asked, which = np.unique(np.stack([clients[tied], x[tied]]), axis=1, return_inverse=True)
        for number, (client, cost) in enumerate(asked.T.tolist()):
            stated = virtual_costs.copy()
            stated[int(client)] = cost
            p = self.plan(stated, eta, noise_scale).selection[int(client)]
            some = tied[which.ravel() == number]
            at[some] = best.at[some, np.where(near[some], np.abs(each[some] - p), np.inf).argmin(1)]
        spread, away = points.spread(at, root), points.distance[at]
        total, left = total_and_rest(eta, away, spread, noise_scale)
        with np.errstate(divide="ignore", invalid="ignore"):
            epsilon = points.weight[at] * total / (spread * np.cbrt(x))  # Theorem 4
        terms = ObjectiveTerms.of(eta, away, np.zeros(x.size), left)
        return Own(terms, np.where(share[at] > 0, epsilon, 0.0))


@final
@dataclass(frozen=True, eq=False)
class Averaged(Rule):
    """A rule for clients that average different numbers of records per release; Q is that of M = 2."""

    rule: Rule
    records: ArrayLike  # (N,) M_k

    def __post_init__(self) -> None:
        object.__setattr__(self, "records", checks.vector("records", self.records, sign="positive"))

    @property
    def _half(self) -> Floats:
        return np.asarray(self.records, dtype=np.float64) / 2

    def among(self, admitted: NDArray[np.bool_]) -> Averaged:
        return Averaged(self.rule.among(admitted), np.asarray(self.records)[admitted])

    def plan(self, virtual_costs: Floats, eta: float, noise_scale: float) -> SelectionPlan:
        plan = self.rule.plan(virtual_costs / self._half, eta, noise_scale)
        return replace(plan, privacy=plan.privacy / self._half)

    def spending(self, virtual_costs: Floats, eta: float, noise_scale: float) -> Floats:
        return self.rule.spending(virtual_costs / self._half, eta, noise_scale)

    def own(self, virtual_costs: Floats, eta: float, noise_scale: float, clients: Ints, x: Floats) -> Own:
        half = self._half
        own = self.rule.own(virtual_costs / half, eta, noise_scale, clients, x / half[clients])
        return Own(own.terms, own.privacy / half[clients])


def unbiased_by_size(sizes: ArrayLike) -> Fixed:
    """USBM: every client by its share of the records."""
    shares = Unequal(sizes).shares
    return Fixed(shares, shares=shares)


def allocate_unequal(
    virtual_costs: ArrayLike,
    sizes: ArrayLike,
    eta: float,
    noise_scale: float,
    records: ArrayLike | None = None,
) -> SelectionPlan:
    """The optimal plan for clients that hold these numbers of records.

    With `records`, M_k per release of each client, `noise_scale` is that for M = 2 records (see
    `noise_scale`: it contains (2/M)^2). Without, every release averages the same number.

    >>> allocate_unequal([0.3, 0.5, 1.8], [20, 30, 50], eta=1, noise_scale=1).selection
    array([0.2, 0.3, 0.5])
    """
    v, weight, scale = checked(virtual_costs, eta, noise_scale)
    rule: Rule = Unequal(whole_sizes("sizes", sizes, v.size))
    if records is not None:
        rule = Averaged(rule, checks.vector("records", records, sign="positive", length=v.size))
    return rule.plan(v, weight, scale)
