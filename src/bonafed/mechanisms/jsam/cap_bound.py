"""How good a plan under a cap could be: a lower bound on the objective (theory B9 (c)).

Under one cap for all some optimal plan has, in the order of the virtual costs, for some g and h

    g clients at one p_a >= 1/N;  perhaps one between 1/N and p_a;  1/N up to the h-th;
    perhaps one between 0 and 1/N;  0 for the rest.

With o what the second is above 1/N, and p what the fourth has: X = (N-h)/N - p is missing below 1/N, so
l = 2X, p_a = 1/N + (X - o)/g, and o is at most X/(g+1). J grows with l and with every probability, so that
on a box of (g, h, o, p) the smallest of each bounds J from below. Boxes that cannot beat the best plan
known are dropped, the others halved. With a cap per client the largest stands for all: no plan is lost.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed.checks import Floats
from bonafed.mechanisms.jsam.allocation import allocate, checked
from bonafed.mechanisms.jsam.capped import CappedLadder
from bonafed.mechanisms.jsam.thresholds import Ints
from bonafed.mechanisms.jsam.water_level import Sums, checked_cap, water_level

_CLOSE = 1e-4  # relative: close enough
_BOXES = 1 << 15  # looked at together, at most
_HALVINGS = 60


class _Boxes(NamedTuple):
    """Ranges of g and h, of o as a share s of X/(g+1), and of p as a share of 1/N; (m,) each."""

    g: Ints
    last_g: Ints
    h: Ints
    last_h: Ints
    s: Floats
    last_s: Floats
    p: Floats
    last_p: Floats

    def take(self, keep: NDArray[np.bool_]) -> _Boxes:
        return _Boxes(*(cast(Any, each[keep]) for each in self))


@np.errstate(over="ignore", invalid="ignore")  # of costs and caps whose product is infinite
def least_objective(
    virtual_costs: ArrayLike, eta: float, noise_scale: float, max_epsilon: ArrayLike
) -> float:
    """No plan under this cap has a smaller objective.

    >>> v = [0.24, 0.7, 1.0, 1.42, 1.86]
    >>> objective = allocate(v, 1, 1, max_epsilon=0.4).objective
    >>> 0.98 < least_objective(v, 1, 1, max_epsilon=0.4) / objective <= 1
    True
    """
    v, weight, scale = checked(virtual_costs, eta, noise_scale)
    caps = checked_cap(max_epsilon, v.size)
    best = CappedLadder(v, weight, scale, caps).objective
    free = allocate(v, weight, scale).objective
    looser = float(np.max(caps))
    boxed = _Bound(np.sort(v), weight, scale, looser).least(best)
    return min(best, max(free, boxed))


class _Bound:
    """J at the lowest corner of boxes, for sorted virtual costs at one cap."""

    def __init__(self, v: Floats, eta: float, noise_scale: float, cap: float) -> None:
        self._v, self._eta, self._scale, self._cap, self._n = v, eta, noise_scale, cap, v.size
        self._padded = np.concatenate([v, [v[-1]]])
        w = np.cbrt(v) ** 2
        self._first_w, self._first = (np.concatenate([[0.0], np.cumsum(each)]) for each in (w, v))

    def least(self, best: float) -> float:
        """A bound that is within `_CLOSE` of the least objective, or what the boxes allowed give."""
        n, target = self._n, best * (1 - _CLOSE)
        one, zero = np.array([1]), np.array([0.0])
        boxes = _Boxes(one, one * n, one, one * n, zero, zero + 1, zero, zero + 1)
        bound = self._corner(boxes)
        for _ in range(_HALVINGS):
            open_ = bound < target
            boxes, bound = boxes.take(open_), bound[open_]
            if not bound.size:
                return target
            if bound.size > _BOXES:
                break
            boxes = self._halved(boxes)
            bound = self._corner(boxes)
        return min(target, float(bound.min()))

    def _halved(self, box: _Boxes) -> _Boxes:
        """Each in two: the ranges of g and h first, then of what weighs more."""
        split_g = (box.last_g > box.g) & (np.log(box.last_g / box.g) >= np.log(box.last_h / box.h))
        split_h = (box.last_h > box.h) & ~split_g
        single = ~split_g & ~split_h
        missing = (self._n - box.h) / self._n
        odd = (box.last_s - box.s) * missing / (box.g + 1)
        split_s = single & (odd >= (box.last_p - box.p) / self._n)
        split_p = single & ~split_s
        one, two = box._asdict(), box._asdict()
        middle_g, middle_h = (box.g + box.last_g) // 2, (box.h + box.last_h) // 2
        for name, split, middle, step in (
            ("g", split_g, middle_g, 1), ("h", split_h, middle_h, 1),
            ("s", split_s, (box.s + box.last_s) / 2, 0), ("p", split_p, (box.p + box.last_p) / 2, 0),
        ):  # fmt: skip
            one[f"last_{name}"] = np.where(split, middle, one[f"last_{name}"])
            two[name] = np.where(split, middle + step, two[name])
        both = _Boxes(*(np.concatenate([one[name], two[name]]) for name in _Boxes._fields))
        return both.take(both.last_h >= both.g)  # those who are above 1/N are among the h

    def _corner(self, box: _Boxes) -> Floats:
        n = self._n
        g, h = box.g, np.maximum(box.h, box.g)
        missing = np.maximum((n - box.last_h - box.last_p) / n, 0.0)  # X, at least
        lead = 1 / n + missing * (1 - box.last_s / (box.last_g + 1)) / box.last_g
        single = (box.g == box.last_g) & (box.h == box.last_h)
        beside = np.where(single & (h > g), 1 / n + box.s * missing / (g + 1), 1 / n)
        below = np.where(single & (h < n), box.p / n, 0.0)
        return self._objective(g, h, lead, beside, below, 2 * missing)

    def _objective(
        self, g: Ints, h: Ints, lead: Floats, beside: Floats, below: Floats, distance: Floats
    ) -> Floats:
        """J for g clients at `lead`, one at `beside` (if h > g), 1/N up to h, one at `below`."""
        n, cap, v = self._n, self._cap, self._v
        middle = np.minimum(g + 1, h)  # the first at 1/N, counted from 0
        odd, last = np.where(h > g, beside, 0.0), np.where(h < n, below, 0.0)
        odd_v, last_v = self._padded[g], self._padded[h]

        def sums(at: Ints, theta: Floats) -> Sums:
            fill = np.minimum((theta / cap) ** 3, np.finfo(float).max)
            i = np.minimum(np.searchsorted(v, lead[at] ** 2 * fill, side="right"), g[at])
            j = np.clip(np.searchsorted(v, fill / n**2, side="right"), middle[at], h[at])
            noise = i * lead[at] ** 2 + (j - middle[at]) / n**2
            money = self._first[i] + self._first[j] - self._first[middle[at]]
            spread = np.cbrt(lead[at]) ** 2 * (self._first_w[g[at]] - self._first_w[i])
            spread = spread + (self._first_w[h[at]] - self._first_w[j]) / np.cbrt(n) ** 2
            for p, x in ((odd[at], odd_v[at]), (last[at], last_v[at])):
                full = (x <= p**2 * fill) & (p > 0)
                noise, money = noise + np.where(full, p**2, 0.0), money + np.where(full, x, 0.0)
                spread = spread + np.where(full, 0.0, np.cbrt(p * x) ** 2)
            return Sums(noise / cap**2, np.maximum(spread, 0.0), cap * money)

        nobody = sums(np.arange(g.size), np.zeros(g.size)).spread
        return water_level(self._eta, self._scale, distance, nobody, sums).objective
