"""Whom to weigh how much, and how much privacy to buy, where noise is added once to the sum (theory B10).

Every selected client takes part in every round with weight p_k, and the sum of a round carries the largest
noise that any of them needs. So the noise term of Problem 3 has a maximum in the place of its sum:

    minimise  eta (l + sqrt(l^2 + Q max p_k^2/epsilon_k^2)) + sum epsilon_k v_k.

    (1)  At the best epsilon all p_k/epsilon_k are alike: epsilon_k = theta p_k. With U = sum p_k v_k and
         z = sqrt(Q) U it is the problem of `thresholds.py`; B = theta U.
    (2)  For a given l the least U moves weight l/2 from the dearest clients to the cheapest. So for some h
         p_1 = 1/N + l/2,  p_2 = ... = p_(h-1) = 1/N,  p_h between 0 and 1/N,  the rest 0.
    (3)  U = a - b l between p_h = 1/N and p_h = 0, with b = (v_h - v_1)/2. On such a segment J is least at
         an end, or where rho = l/sqrt(l^2 + Q/theta^2) in (0, 1/2] solves
             (1 + rho)^3 (1 - rho) = kappa^2,   kappa = sqrt(Q) b^2/(eta a),   at theta = eta (1 + rho)/b.
    (4)  l falls and U rises with h, so J on all segments from a to b is at least J(l_b, U_a).

Unlike with noise at every client, an optimum may have p_h inside (0, 1/N): (3) has a point there.

(5) Under a cap E for all, theta p_k <= E, the plan is the best of those of form (2), a set that no report
changes. For a given l the objective is convex in theta, so either a point of (3) is within the cap, or
theta = E/p_1 and what is left is convex in l:  eta (l + sqrt(l^2 + Q p_1^2/E^2)) + E U/p_1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from bonafed.checks import Floats
from bonafed.mechanisms.jsam.thresholds import (
    Inner,
    Ints,
    Ladder,
    Moved,
    ObjectiveTerms,
    Own,
    best_total,
    distance_of,
    ladder,
)

_CHUNK = 1 << 13  # questions answered together
_FEW, _LITTLE = 16, 1 << 13  # clients, and segments in all, up to which looking at each is quicker
_STEPS = 60  # of Newton, at most; near rho = 1/2 each only halves the error
_HALVINGS = 60  # of a segment
_FLAT = 27 / 16  # kappa^2 beyond which a segment has no stationary point


class SumPoint(NamedTuple):
    """A selection and what it comes to; arrays of one shape."""

    objective: Floats  # J
    threshold: Ints  # h
    distance: Floats  # l
    level: Floats  # theta: epsilon per unit of weight
    money: Floats  # B = theta U

    def at(self, index: Any) -> SumPoint:
        """Some of them, or the same in another shape."""
        return SumPoint(*(part[index] for part in self))

    def terms(self, eta: float, noise_scale: float) -> ObjectiveTerms:
        """The objective by its terms."""
        return ObjectiveTerms.of(eta, self.distance, _noise(noise_scale, self.level), self.money)


def _noise(noise_scale: float, level: Floats) -> Floats:
    """sqrt(Q)/theta; none counts where nothing is bought (`thresholds.py`)."""
    with np.errstate(divide="ignore"):
        return np.where(level > 0, math.sqrt(noise_scale) / level, 0.0)


class Segments(NamedTuple):
    """What (3) needs of lists of clients by virtual cost, for pairs of a question and a threshold."""

    clients: int  # N
    first: Callable[[Ints], Floats]  # v_1 of a question
    at: Callable[[Ints, Ints], Floats]  # v_h
    up_to: Callable[[Ints, Ints], Floats]  # v_1 + ... + v_h

    def mean(self, question: Ints, h: Ints) -> Floats:
        """U at p_h = 1/N."""
        return ((self.clients - h) * self.first(question) + self.up_to(question, h)) / self.clients


def least_at(eta: float, away: Floats, mean: Floats, noise_scale: float) -> Inner:
    """(1) for l = `away` and U = `mean`."""
    return best_total(eta, away, math.sqrt(noise_scale) * mean)


def segment_best(segments: Segments, eta: float, noise_scale: float, question: Ints, h: Ints) -> SumPoint:
    """(3): the least J of p_h in (0, 1/N], for each question and threshold."""
    root = math.sqrt(noise_scale)
    away, mean = distance_of(segments.clients, h), segments.mean(question, h)
    end = least_at(eta, away, mean, noise_scale)
    point = SumPoint(end.objective, h, away.copy(), end.total / mean, end.total)
    fall = (segments.at(question, h) - segments.first(question)) / 2  # b
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        square = (root * fall**2 / (eta * (mean + fall * away))) ** 2  # kappa^2
        inside = np.flatnonzero((h > 1) & (square > 1) & (square < _FLAT))
        rho, fall = _rho(square[inside]), fall[inside]
        level = eta * (1 + rho) / fall
        noise = root / level
        distance = rho * noise / np.sqrt(1 - rho**2)
        money = level * (mean[inside] - fall * (distance - away[inside]))
        value = eta * (distance + np.hypot(distance, noise)) + money
    least, most = away[inside], away[inside] + 2 / segments.clients
    better = (distance > least) & (distance < most) & (value < point.objective[inside])
    where = inside[better]
    point.objective[where], point.distance[where], point.level[where], point.money[where] = (
        part[better] for part in (value, distance, level, money)
    )
    return point


def _rho(square: Floats) -> Floats:
    """The root in [0, 1/2] of (1 + rho)^3 (1 - rho) = kappa^2: concave, so Newton's steps rise to it."""
    rho = np.zeros(square.size)
    for _ in range(_STEPS):
        slope = (1 + rho) ** 2 * (2 - 4 * rho)
        step = (square - (1 + rho) ** 3 * (1 - rho)) / np.maximum(slope, 1e-12)
        rho = np.clip(rho + np.maximum(step, 0.0), 0.0, 0.5)
        if not (step > 1e-15).any():
            break
    return rho


def best_points(
    segments: Segments, eta: float, noise_scale: float, questions: int, cap: float | None = None
) -> SumPoint:
    """The least J over all segments for every question, exact, by (4); under a cap by (5)."""
    n = segments.clients
    at_cap = None if cap is None else capped_best(segments, eta, noise_scale, questions, cap)
    if n <= _FEW or n * questions <= _LITTLE:
        each, h = np.repeat(np.arange(questions), n), np.tile(np.arange(1, n + 1), questions)
        points = within(segment_best(segments, eta, noise_scale, each, h), n, cap)
        best_free = points.at(points.objective.reshape(questions, n).argmin(1) + n * np.arange(questions))
    else:
        bound = np.full(questions, np.inf) if at_cap is None else at_cap.objective.copy()
        best_free = _search(segments, eta, noise_scale, bound, cap)
    if at_cap is None:
        return best_free
    full = at_cap.objective < best_free.objective
    return SumPoint(*(np.where(full, held, free) for held, free in zip(at_cap, best_free, strict=True)))


def within(points: SumPoint, clients: int, cap: float | None) -> SumPoint:
    """The points with an objective of infinity where somebody would sell more than the cap."""
    if cap is None:
        return points
    over = points.level * (1 / clients + points.distance / 2) > cap
    return points._replace(objective=np.where(over, np.inf, points.objective))


def capped_best(segments: Segments, eta: float, noise_scale: float, questions: int, cap: float) -> SumPoint:
    """(5) with the leader at the cap: the least over all l, by halving, first over h and then over l."""
    n, question = segments.clients, np.arange(questions)
    scale = math.sqrt(noise_scale) / cap

    def slope(h: Ints, distance: Floats) -> Floats:
        """Of the objective in l, on the segment of h."""
        lead, fall, mean = line(h, distance)
        noise = scale * lead
        bias = 1 + (distance + scale * noise / 2) / np.hypot(distance, noise)
        return np.asarray(eta * bias - cap * (fall / lead + mean / (2 * lead**2)))

    def line(h: Ints, distance: Floats) -> tuple[Floats, Floats, Floats]:
        """p_1, b and U at l on the segment of h."""
        fall = (segments.at(question, h) - segments.first(question)) / 2
        mean = segments.mean(question, h) - fall * (distance - distance_of(n, h))
        return 1 / n + distance / 2, fall, mean

    # the smallest l is that of h = n; the segment of h > 1 reaches up to that of h - 1
    low, high = np.ones(questions, dtype=np.int64), np.full(questions, n, dtype=np.int64)
    while (low < high).any():  # the largest h whose segment rises at its far end
        h = (low + high + 1) // 2
        rises = slope(h, distance_of(n, h - 1)) >= 0
        low, high = np.where(rises, h, low), np.where(rises, high, np.maximum(h - 1, low))
    h = low
    near, far = distance_of(n, h), distance_of(n, np.maximum(h - 1, 1))
    for _ in range(_HALVINGS):
        middle = (near + far) / 2
        rises = slope(h, middle) >= 0
        near, far = np.where(rises, near, middle), np.where(rises, middle, far)
    lead, _, mean = line(h, near)
    money = cap * mean / lead
    terms = ObjectiveTerms.of(eta, near, scale * lead, money)
    return SumPoint(terms.objective, h, near, cap / lead, money)


def _search(
    segments: Segments, eta: float, noise_scale: float, best: Floats, cap: float | None
) -> SumPoint:
    """The least J of all segments; where it is not below `best`, any point, with that objective or more."""
    n, questions = segments.clients, best.size
    at = np.full(questions, n, dtype=np.int64)

    def look(question: Ints, h: Ints) -> None:
        value = within(segment_best(segments, eta, noise_scale, question, h), n, cap).objective
        order = np.lexsort((h, value, question))
        first = order[np.concatenate([[True], np.diff(question[order]) > 0])]
        better = first[value[first] < best[question[first]]]
        best[question[better]], at[question[better]] = value[better], h[better]

    question = np.arange(questions)
    a, b = np.ones(questions, dtype=np.int64), np.full(questions, n, dtype=np.int64)
    look(question, a)
    look(question, b)
    while True:
        bound = least_at(eta, distance_of(n, b), segments.mean(question, a), noise_scale).objective
        keep = (b - a > 1) & (bound <= best[question])
        question, a, b = question[keep], a[keep], b[keep]
        if not question.size:
            return within(segment_best(segments, eta, noise_scale, np.arange(questions), at), n, cap)
        middle = (a + b) // 2
        look(question, middle)
        question = np.concatenate([question, question])
        a, b = np.concatenate([a, middle]), np.concatenate([middle, b])


def weight_of(rank: Ints, point: SumPoint, clients: int) -> Floats:
    """(2): p of the client at `place` (0, 1, ...) of the list of each question."""
    fair, h = 1 / clients, point.threshold
    rest = fair - (point.distance - distance_of(clients, h)) / 2  # p_h
    lead = fair + point.distance / 2
    weight = np.where(rank < h - 1, fair, np.where(rank == h - 1, rest, 0.0))
    return np.where(rank == 0, lead, weight)


def sorted_segments(sorted_costs: Floats) -> Segments:
    """Of lists (S, N) of virtual costs, each ascending."""
    prefix = np.cumsum(sorted_costs, axis=1)
    return Segments(
        sorted_costs.shape[1],
        lambda q: np.asarray(sorted_costs[q, 0]),
        lambda q, h: np.asarray(sorted_costs[q, h - 1]),
        lambda q, h: np.asarray(prefix[q, h - 1]),
    )


class SumLadder:
    """The best plan with noise on the sum, also if one client reports otherwise; the twin of `Ladder`."""

    def __init__(
        self, virtual_costs: Floats, eta: float, noise_scale: float, cap: float | None = None
    ) -> None:
        self._eta, self._scale, self._cap = eta, noise_scale, cap
        self._base: Ladder = ladder(virtual_costs, eta, noise_scale)
        now = best_points(sorted_segments(self._base.sorted_costs[None]), eta, noise_scale, 1, cap)
        self.objective, self.distance = float(now.objective[0]), float(now.distance[0])
        self.selection = weight_of(self._base.rank, now, virtual_costs.size)
        self.privacy = self._within(now.level * self.selection)
        self._now = now.terms(eta, noise_scale)

    def own(self, clients: Ints, x: Floats) -> Own:
        """V_k(x) and epsilon_k(x) for pairs (k, x), (m,) each; the others as they are."""
        if np.array_equal(x, self._base.sorted_costs[self._base.rank[clients]]):
            return Own(
                ObjectiveTerms(*(np.full(clients.size, term[0]) for term in self._now)),
                self.privacy[clients],
            )
        parts = [
            self._own(clients[i : i + _CHUNK], x[i : i + _CHUNK]) for i in range(0, clients.size, _CHUNK)
        ]
        return Own.joined(parts)

    def _own(self, clients: Ints, x: Floats) -> Own:
        moved, n = Moved(self._base, clients, x), self._base.sorted_costs.size
        one = np.ones(1, dtype=np.int64)
        segments = Segments(
            n,
            lambda q: moved.cost_of_first(q, np.broadcast_to(one, q.shape)),
            moved.cost_at,
            moved.cost_of_first,
        )
        best = best_points(segments, self._eta, self._scale, clients.size, self._cap)
        privacy = self._within(best.level * weight_of(moved.rank, best, n))
        return Own(best.terms(self._eta, self._scale), privacy)

    def _within(self, privacy: Floats) -> Floats:
        """Not above the cap, not even by rounding."""
        return privacy if self._cap is None else np.minimum(privacy, self._cap)


def fixed_level(
    eta: float, distance: float, mean: Floats, noise_scale: float, most: Floats | float = np.inf
) -> tuple[Floats, ObjectiveTerms]:
    """theta and J of given weights, by (1); J is convex in theta, so where a cap binds the cap is best."""
    away = np.full(mean.shape, distance)
    level = np.minimum(least_at(eta, away, mean, noise_scale).total / mean, most)
    return level, ObjectiveTerms.of(eta, away, _noise(noise_scale, level), level * mean)
