"""The optimum for equal clients: what to spend in closed form, and the best threshold (theory B1 to B3).

Problem 3 of the paper: the server chooses selection probabilities p and privacy budgets epsilon to

    minimise  eta (l + sqrt(l^2 + Q sum p_k^2/epsilon_k^2)) + sum epsilon_k v_k,   l = ||p - p^u||_1

with v_k the virtual costs. Given p and the total B = sum epsilon_k v_k, Hoelder's inequality gives

    (1)  min sum p^2/epsilon^2 = W^3/B^2,   W = sum (p_k v_k)^(2/3),
    (2)  attained at epsilon_k = p_k^(2/3) B/(W v_k^(1/3))                        (Theorem 4).

What is left, with z = sqrt(Q) W^(3/2), is convex in B:  min eta (l + sqrt(l^2 + z^2/B^2)) + B. With
mu = eta l^2/z and u >= 1 the largest root of u^3 - u - mu = 0,

    (3)  B = sqrt(eta z/u),   J = eta l + sqrt(eta z) (u^(3/2) + u^(-1/2)).

J grows with l and with W. Without noise to buy off (z = 0): B = 0, J = 2 eta l.

Where eta is large, J may be all bias 2 eta l, or all noise that a cap leaves, with no digit left for money.
So payments, which are differences of J, are taken term by term: for r = sqrt(l^2 + n)

    (4)  J = eta (l + r) + rest;  l + r rises by  dl (1 + (l_1 + l_0)/(r_1 + r_0)) + dn/(r_1 + r_0).

Here n is the noise of those at a cap, which is the same for most reports; in (3) there is none, and

    (5)  rest = J - 2 eta l = B (1 + 1/(1 + s)),   s = l/sqrt(l^2 + z^2/B^2).

By Theorem 3 and its corollary in theory B2 the optimum for sorted virtual costs v_1 <= ... <= v_N is

    (6)  for some h in 1..N:  p_1 = (N-h+1)/N,  p_2 = ... = p_h = 1/N,  the rest 0;  l = 2 (N-h)/N,
    (7)  W_h = N^(-2/3) ((N-h+1)^(2/3) w_1 + w_2 + ... + w_h),   w = v^(2/3).

l_h falls and W_h rises with h, and J grows with both, so a range of thresholds a..b cannot do better than

    (8)  J(l_b, W_a),

and the best h is found by halving ranges and dropping those whose bound is above the best found: the exact
minimum over all h, after looking at a small part of them.

A question "what if client k reported virtual cost x" changes one number of the sorted list; W_h for the
changed list comes from the prefix sums of the original in constant time. V_k(x), the least J, is concave
in x, and its slope is the client's privacy budget (envelope theorem, theory B3).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.learning.sections import NoiseAt

_SMALL = math.sqrt(np.finfo(float).tiny)


class Inner(NamedTuple):
    """The best total for a given selection; arrays of one shape."""

    total: Floats  # B, money in expectation
    objective: Floats  # J


class ObjectiveTerms(NamedTuple):
    """Objectives by the terms of (4), all of them money; arrays of one shape."""

    bias: Floats  # eta l
    noise: Floats  # eta sqrt(n)
    rest: Floats

    @classmethod
    def of(cls, eta: float, distance: Floats, noise: Floats, rest: Floats) -> ObjectiveTerms:
        """For l, sqrt(n) and the rest."""
        return cls(eta * distance, eta * noise, rest)

    def at(self, index: NDArray[np.int64]) -> ObjectiveTerms:
        """The terms of the questions at these indices."""
        return ObjectiveTerms(*(term[index] for term in self))

    @property
    def root(self) -> Floats:
        """eta r: the bias and the noise of (4), as one root."""
        return np.hypot(self.bias, self.noise)

    @property
    def objective(self) -> Floats:
        """J, the sum of its terms."""
        return self.bias + self.root + self.rest

    def since(self, before: ObjectiveTerms) -> Rise:
        """(4): J less J before, without the digits that they share."""
        roots = self.root + before.root
        with np.errstate(divide="ignore", invalid="ignore"):
            tilt, share = (
                np.where(roots > 0, both / roots, 0.0)
                for both in (self.bias + before.bias, self.noise + before.noise)
            )
        bias, noise, rest = (one - other for one, other in zip(self, before, strict=True))
        of = [np.where(one == other, 0.0, one + other) for one, other in zip(self, before, strict=True)]
        return Rise(bias * (1 + tilt) + noise * share + rest, of[0] * (1 + tilt) + of[1] * share + of[2])


class Rise(NamedTuple):
    """By how much objectives differ; arrays of one shape."""

    value: Floats
    size: Floats  # of what it is made of: it is right to a few roundings of this


def inner(eta: float, distance: ArrayLike, spread: ArrayLike, noise_scale: float) -> Inner:
    """(3) for l = `distance` and W = `spread`, which broadcast."""
    return best_total(eta, *_inputs(distance, spread, noise_scale))


def total_and_rest(
    eta: float, distance: ArrayLike, spread: ArrayLike, noise_scale: float
) -> tuple[Floats, Floats]:
    """B of (3), and J - 2 eta l by (5)."""
    away, z = _inputs(distance, spread, noise_scale)
    total = best_total(eta, away, z).total
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        s = 1 / np.hypot(1.0, z / (away * total))
    return total, np.where(total > 0, total * (1 + 1 / (1 + s)), 0.0)


def _inputs(distance: ArrayLike, spread: ArrayLike, noise_scale: float) -> tuple[Floats, Floats]:
    """l and z, of one shape."""
    away, w = np.broadcast_arrays(
        np.asarray(distance, dtype=np.float64), np.asarray(spread, dtype=np.float64)
    )
    with np.errstate(over="ignore"):
        return away, math.sqrt(noise_scale) * (w * np.sqrt(w))


def best_total(eta: float, away: Floats, z: Floats) -> Inner:
    """(3) for l = `away` and z, of one shape."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        u = _root(eta * away**2 / z)
        spend = np.sqrt(eta * z)
        whole = (spend > _SMALL) & (spend < np.inf)
        if not whole.all():  # eta z has lost digits
            spend = np.where(whole, spend, math.sqrt(eta) * np.sqrt(z))
        root = np.sqrt(u)
        total = spend / root
        objective = eta * away + spend * (u * root + 1 / root)
        biased = eta * (2 * away)
    free = (z == 0) | ~np.isfinite(u)  # noise costs nothing, or too little for a double to tell
    return Inner(np.where(free, 0.0, total), np.where(free, biased, objective))


def _root(mu: Floats) -> Floats:
    """The largest root of u^3 - u - mu = 0 for mu >= 0, by trigonometry and two Newton steps."""
    k = 1.5 * math.sqrt(3.0) * mu
    low = np.cos(np.arccos(np.minimum(k, 1.0)) / 3)
    high = np.cosh(np.arccosh(np.maximum(k, 1.0)) / 3)
    u = 2 / math.sqrt(3.0) * np.where(k <= 1, low, high)
    for _ in range(2):
        u = u - (u * (u * u - 1) - mu) / (3 * u * u - 1)
    return np.maximum(u, 1.0)


def budgets(selection: Floats, virtual_costs: Floats, total: float) -> Floats:
    """(2): (N,) privacy budgets; 0 where a client is never selected."""
    members = selection > 0
    w = np.cbrt(selection[members] * virtual_costs[members]) ** 2
    result = np.zeros(selection.size)
    result[members] = np.cbrt(selection[members]) ** 2 * total / (w.sum() * np.cbrt(virtual_costs[members]))
    return result


def objective(
    selection: ArrayLike,
    privacy: ArrayLike,
    virtual_costs: ArrayLike,
    eta: float,
    noise_scale: float,
    shares: ArrayLike | None = None,
    noise_at: NoiseAt = "client",
) -> float:
    """The objective of Problem 3, from its definition; `shares` is p^u, uniform if not given.

    With noise on the sum its noise is the largest of p^2/epsilon^2 instead of their sum (theory B10).
    """
    p = checks.vector("selection", selection)
    epsilon = checks.vector("privacy", privacy, length=p.size)
    v = checks.vector("virtual_costs", virtual_costs, length=p.size)
    weight, scale = checks.positive("eta", eta), checks.positive("noise_scale", noise_scale)
    fair = np.full(p.size, 1 / p.size) if shares is None else checks.shares("shares", shares, length=p.size)
    distance = float(np.abs(p - fair).sum())
    members = p > 0
    with np.errstate(divide="ignore", over="ignore"):
        each = (p[members] / epsilon[members]) ** 2
        noise = scale * float(each.max() if noise_at == "sum" else each.sum())
    return weight * (distance + math.sqrt(distance**2 + noise)) + float(epsilon @ v)


Ints = NDArray[np.int64]
_CHUNK = 1 << 13  # questions answered together
_FEW, _LITTLE = 16, 1 << 13  # clients, and thresholds in all, up to which looking at each is quicker


class Own(NamedTuple):
    """What a change of one client's virtual cost would lead to; (m,) for m questions."""

    terms: ObjectiveTerms  # of V_k(x), the least objective
    privacy: Floats  # epsilon_k(x): the client's privacy budget, V_k'(x)

    @property
    def value(self) -> Floats:
        """V_k(x); of two of them, the difference of the terms has more digits."""
        return self.terms.objective

    @classmethod
    def joined(cls, parts: Sequence[Own]) -> Own:
        """The answers to all questions."""
        terms = (np.concatenate(column) for column in zip(*(part.terms for part in parts), strict=True))
        return cls(ObjectiveTerms(*terms), np.concatenate([part.privacy for part in parts]))


class Best(NamedTuple):
    """The best plan for each question."""

    threshold: Ints  # h, the number of clients selected; the smallest, among equals
    objective: Floats  # J


@dataclass(frozen=True, slots=True, eq=False)
class Ladder:
    """Sorted virtual costs, ready for questions; made by `ladder`."""

    eta: float
    noise_scale: float
    sorted_costs: Floats  # (N,) ascending; equal costs in the order of the clients
    client_at: Ints  # (N,) whose they are
    rank: Ints  # (N,) place of each client in that order
    prefix: Floats  # (N+1,) sums of the first w
    cost_prefix: Floats  # (N+1,) sums of the first costs

    def own(self, clients: Ints, virtual_costs: Floats) -> Own:
        """V_k(x) and epsilon_k(x) for pairs (k, x), (m,) each; the others as they are."""
        if np.array_equal(virtual_costs, self.sorted_costs[self.rank[clients]]):
            return self._unchanged(clients, virtual_costs)
        parts = [
            self._own(clients[i : i + _CHUNK], virtual_costs[i : i + _CHUNK])
            for i in range(0, clients.size, _CHUNK)
        ]
        return Own.joined(parts)

    def _own(self, clients: Ints, x: Floats) -> Own:
        moved = Moved(self, clients, x)
        n = self.sorted_costs.size
        best = _search(n, clients.size, self.eta, self.noise_scale, moved.spread)
        question = np.arange(clients.size)
        spread = moved.spread(question, best.threshold)
        return self._facing(moved.rank, best.threshold, spread, x)

    def _unchanged(self, clients: Ints, x: Floats) -> Own:
        """The same question for all: nobody reports otherwise."""
        h, spread, _ = best_threshold(self.sorted_costs, self.eta, self.noise_scale)
        return self._facing(self.rank[clients], np.full(clients.size, h), np.full(clients.size, spread), x)

    def _facing(self, rank: Ints, h: Ints, spread: Floats, x: Floats) -> Own:
        """Of the client at `place` of the sorted list, whose virtual cost is x (Theorem 4)."""
        n = self.sorted_costs.size
        away = distance_of(n, h)
        total, rest = total_and_rest(self.eta, away, spread, self.noise_scale)
        share = np.where(rank == 0, n - h + 1, 1) / n  # (6)
        with np.errstate(divide="ignore", invalid="ignore"):
            epsilon = np.cbrt(share) ** 2 * total / (spread * np.cbrt(x))
        return Own(
            ObjectiveTerms.of(self.eta, away, np.zeros(x.size), rest), np.where(rank < h, epsilon, 0.0)
        )


def ladder(virtual_costs: Floats, eta: float, noise_scale: float) -> Ladder:
    """Sort once for many questions."""
    order = np.argsort(virtual_costs, kind="stable")
    rank = np.empty(order.size, dtype=np.int64)
    rank[order] = np.arange(order.size)
    w = np.cbrt(virtual_costs[order]) ** 2
    prefix, costs = (np.concatenate([[0.0], np.cumsum(each)]) for each in (w, virtual_costs[order]))
    return Ladder(eta, noise_scale, virtual_costs[order], order, rank, prefix, costs)


def best_threshold(sorted_costs: Floats, eta: float, noise_scale: float) -> tuple[int, float, float]:
    """h, W_h and J_h of the best plan for sorted virtual costs."""
    w = np.cbrt(sorted_costs) ** 2
    prefix, n = np.cumsum(w), sorted_costs.size

    def spread(_question: Ints, h: Ints) -> Floats:
        return spread_of(n, h, w[0], prefix[h - 1])

    best = _search(n, 1, eta, noise_scale, spread)
    h = int(best.threshold[0])
    return h, float(spread(np.zeros(1, np.int64), best.threshold)[0]), float(best.objective[0])


def distance_of(n: int, h: Ints) -> Floats:
    """(6): l = 2 (N-h)/N."""
    return 2.0 * (n - h) / n


def spread_of(n: int, h: Ints, lead: Floats | float, prefix: Floats) -> Floats:
    """(7): W_h from the leader's w and the sum of the first h."""
    result: Floats = (np.cbrt(n - h + 1.0) ** 2 * lead + (prefix - lead)) / np.cbrt(float(n)) ** 2
    return result


class Moved:
    """The sorted list of each question: client k taken out, x put in."""

    def __init__(self, base: Ladder, clients: Ints, x: Floats) -> None:
        self._base, self._x = base, x
        self._from = base.rank[clients]  # where k was
        self._left = base.sorted_costs[self._from]  # what it was
        self._w = np.cbrt(x) ** 2
        self._taken = np.cbrt(self._left) ** 2
        self.rank = self._where(clients, x)  # where k is now: this many others come before it
        first_other = np.minimum(self._from == 0, base.sorted_costs.size - 1).astype(np.int64)
        first = np.cbrt(base.sorted_costs[first_other]) ** 2
        self._lead = np.where(self.rank == 0, self._w, first)

    def _where(self, clients: Ints, x: Floats) -> Ints:
        """Others before k: cheaper, or equal with a smaller number (a fixed order, theory B4)."""
        base = self._base
        low = np.searchsorted(base.sorted_costs, x, side="left")
        high = np.searchsorted(base.sorted_costs, x, side="right")
        while (open_ := low < high).any():  # among equal costs clients stand in order of their number
            middle = (low + high) // 2
            before = base.client_at[np.minimum(middle, base.client_at.size - 1)] < clients
            low, high = np.where(open_ & before, middle + 1, low), np.where(open_ & ~before, middle, high)
        return np.asarray(low - (self._from < low), dtype=np.int64)

    def spread(self, question: Ints, h: Ints) -> Floats:
        """W_h of the changed list; h may exceed the place of k or not."""
        total = self.first(question, h)
        return spread_of(self._base.sorted_costs.size, h, self._lead[question], total)

    def first(self, question: Ints, count: Ints) -> Floats:
        """The sum of w over the first `count` of the changed list."""
        return self._first(self._base.prefix, self._taken, self._w, question, count)

    def cost_of_first(self, question: Ints, count: Ints) -> Floats:
        """The sum of the virtual costs of the first `count` of the changed list."""
        return self._first(self._base.cost_prefix, self._left, self._x, question, count)

    def cost_at(self, question: Ints, position: Ints) -> Floats:
        """The virtual cost at place 1, 2, ... of the changed list."""
        own_rank, before = self.rank[question], position - 1
        other = np.where(before < own_rank, before, before - 1)  # its place among the others
        other = other + (other >= self._from[question])
        at = np.clip(other, 0, self._base.sorted_costs.size - 1)
        return np.where(before == own_rank, self._x[question], self._base.sorted_costs[at])

    def _first(self, prefix: Floats, removed: Floats, own: Floats, question: Ints, count: Ints) -> Floats:
        rank, taken_from = self.rank[question], self._from[question]
        others = np.where(count <= rank, count, count - 1)  # of the first, how many are others
        behind = others > taken_from
        total = prefix[others + behind] - np.where(behind, removed[question], 0.0)
        return np.asarray(total + np.where(count <= rank, 0.0, own[question]))

    def up_to(self, question: Ints, limit: Floats) -> Ints:
        """How many of the changed list are not above `limit`."""
        count = np.searchsorted(self._base.sorted_costs, limit, side="right")
        return np.asarray(count - (self._left[question] <= limit) + (self._x[question] <= limit))


def _search(
    n: int, questions: int, eta: float, noise_scale: float, spread: Callable[[Ints, Ints], Floats]
) -> Best:
    """The least J over h = 1..n for every question, by (8)."""
    if n <= _FEW or n * questions <= _LITTLE:
        each, h = np.repeat(np.arange(questions), n), np.tile(np.arange(1, n + 1), questions)
        values = inner(eta, distance_of(n, h), spread(each, h), noise_scale).objective.reshape(questions, n)
        return Best(values.argmin(1) + 1, values.min(1))
    best = np.full(questions, np.inf)
    at = np.full(questions, n + 1, dtype=np.int64)

    def look(question: Ints, h: Ints) -> Floats:
        w = spread(question, h)
        value = inner(eta, distance_of(n, h), w, noise_scale).objective
        before = best.copy()
        np.minimum.at(best, question, value)
        at[best < before] = n + 1
        equal = value == best[question]
        np.minimum.at(at, question[equal], h[equal])
        return w

    question = np.arange(questions)
    a, b = np.ones(questions, dtype=np.int64), np.full(questions, n, dtype=np.int64)
    w_a = look(question, a)
    look(question, b)
    while True:
        bound = inner(eta, distance_of(n, b), w_a, noise_scale).objective
        keep = (b - a > 1) & (bound <= best[question])
        question, a, b, w_a = question[keep], a[keep], b[keep], w_a[keep]
        if not question.size:
            return Best(at, best)
        middle = (a + b) // 2
        w_middle = look(question, middle)
        question = np.concatenate([question, question])
        w_a = np.concatenate([w_a, w_middle])
        a, b = np.concatenate([a, middle]), np.concatenate([middle, b])
