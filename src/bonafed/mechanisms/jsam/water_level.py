"""No more than so much privacy from anyone: the best epsilon for a given selection (theory B9).

For a given selection the problem in epsilon is convex, and with one water level theta

    (1)  epsilon_k = min(E_k, theta (p_k^2/v_k)^(1/3)),   theta^3 sqrt(l^2 + Q sum p^2/epsilon^2) = eta Q.

With A = sum of p^2/E^2 and M = sum of E v over those at the cap, W = sum of (p v)^(2/3) over the others,
the level and the objective are those of a problem without caps at the distance l' = sqrt(l^2 + Q A):

    (2)  theta = B(l', W)/W,   J = eta (l - l') + J(l', W) + M = eta (l + l') + rest(l', W) + M.

The left side of (1) rises in theta. Begin above the root (nobody at the cap), take (2) for those whom this
level puts at the cap, and repeat: the level falls and stays above the root, until nobody leaves the cap.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.mechanisms.jsam.thresholds import (
    Ints,
    ObjectiveTerms,
    Own,
    inner,
    total_and_rest,
)

MOST_EPSILON = 1e50  # of a cap; the least is its inverse


class Sums(NamedTuple):
    """What a water level makes of a selection; (m,) each."""

    noise: Floats  # A: p^2/E^2 of those at the cap
    spread: Floats  # W: (p v)^(2/3) of the others
    money: Floats  # M: E v of those at the cap


class Level(NamedTuple):
    """The best epsilon for a selection; (m,) each."""

    water: Floats  # theta
    objective: Floats  # J
    terms: ObjectiveTerms  # of J, with the noise of those at the cap


SumsAt = Callable[[Ints, Floats], Sums]  # of some selections at their levels


def water_level(eta: float, noise_scale: float, distance: Floats, spread: Floats, sums: SumsAt) -> Level:
    """(1), (2) for m selections; `spread` is W if nobody is at the cap."""
    theta = _theta(eta, noise_scale, distance, spread, inner(eta, distance, spread, noise_scale).total)
    noise, rest = np.empty(theta.size), np.empty(theta.size)
    falling = np.arange(theta.size)
    while falling.size:
        away = distance[falling]
        part = sums(falling, theta[falling])
        held = np.sqrt(noise_scale * part.noise)
        beyond = np.hypot(away, held)  # l'
        total, more = total_and_rest(eta, beyond, part.spread, noise_scale)
        lower = _theta(eta, noise_scale, beyond, part.spread, total)
        noise[falling], rest[falling] = held, more + part.money
        still = lower < theta[falling]
        theta[falling] = np.minimum(lower, theta[falling])
        falling = falling[still]
    terms = ObjectiveTerms.of(eta, distance, noise, rest)  # (2)
    return Level(theta, terms.objective, terms)


def _theta(eta: float, noise_scale: float, distance: Floats, spread: Floats, total: Floats) -> Floats:
    """B/W, or its limit where nobody is below the cap."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        some = total / spread
        none = np.cbrt(eta * noise_scale / distance)
    return np.where(total > 0, some, none)


class FixedClients:
    """Clients whose selection is fixed, each with its own cap, sorted by the level that fills it."""

    def __init__(self, selection: Floats, caps: Floats, virtual_costs: Floats) -> None:
        self._p, self._caps, self._costs = selection, caps, virtual_costs
        full = _fills(selection, caps, virtual_costs)
        order = np.argsort(full, kind="stable")
        self._full = full[order]
        self._rank = np.empty(order.size, dtype=np.int64)
        self._rank[order] = np.arange(order.size)
        noise, w, money = ((selection / caps) ** 2, _w(selection, virtual_costs), caps * virtual_costs)
        self._noise, self._spread, self._money = (_prefix(each[order]) for each in (noise, w, money))
        self._after = np.concatenate([np.cumsum(w[order][::-1])[::-1], [0.0, 0.0]])

    def ask(self, members: Ints, x: Floats) -> SumsAt:
        """The sums if a member's virtual cost were x, question by question; member -1: as they are."""
        n, some = self._full.size, members >= 0
        at = np.where(some, self._rank[members], n)
        p, cap = self._p[members], self._caps[members]
        own_full = np.where(some, _fills(p, cap, x), np.nan)  # no level reaches it
        own_w = np.where(some, _w(p, x), 0.0)

        def others(prefix: Floats, where: Ints, filled: Ints) -> Floats:
            behind = prefix[filled] - prefix[np.minimum(where + 1, n)]
            return prefix[np.minimum(filled, where)] + np.where(filled > where + 1, behind, 0.0)

        def sums(question: Ints, theta: Floats) -> Sums:
            where, filled = at[question], np.searchsorted(self._full, theta, side="right")
            before = np.where(filled < where, self._spread[where] - self._spread[filled], 0.0)
            spread = before + self._after[np.maximum(filled, where + 1)]
            capped = own_full[question] <= theta
            e = cap[question]
            return Sums(
                others(self._noise, where, filled) + np.where(capped, (p[question] / e) ** 2, 0.0),
                spread + np.where(capped, 0.0, own_w[question]),
                others(self._money, where, filled) + np.where(capped, e * x[question], 0.0),
            )

        return sums


def _fills(p: Floats, cap: Floats | float, v: Floats) -> Floats:
    """The water level from which on the cap is reached."""
    return np.asarray(cap * np.cbrt(v / (p * p)))


def _w(p: Floats, v: Floats) -> Floats:
    return np.asarray(np.cbrt(p * v) ** 2)


def _prefix(values: Floats) -> Floats:
    return np.concatenate([[0.0], np.cumsum(values)])


def privacy_of(selection: Floats, caps: Floats, virtual_costs: Floats, water: Floats | float) -> Floats:
    """(1): 0 where a client is never selected."""
    with np.errstate(divide="ignore", over="ignore"):
        level = np.cbrt(selection**2 / virtual_costs) * water
    return np.where(selection > 0, np.minimum(caps, level), 0.0)


def one_cap(name: str, value: object) -> float:
    """A cap whose powers are numbers; far below the largest it limits nothing any more."""
    return checks.between(name, checks.positive(name, value), 1 / MOST_EPSILON, MOST_EPSILON)


def checked_cap(max_epsilon: ArrayLike, clients: int | None = None) -> float | Floats:
    """One cap for all, or one per client; caps that are all alike are one."""
    if np.ndim(max_epsilon) == 0:
        return one_cap("max_epsilon", max_epsilon)
    caps = checks.vector("max_epsilon", max_epsilon, sign="positive", length=clients)
    for end in (caps.min(), caps.max()):
        one_cap("max_epsilon", end)
    return float(caps[0]) if np.all(caps == caps[0]) else caps


def numbers_among(members: NDArray[np.bool_]) -> Ints:
    """0, 1, ... for the members in order, -1 for the others."""
    return np.where(members, np.cumsum(members) - 1, -1)


class CappedSelection:
    """One selection under caps of each client's own, also if one reports otherwise."""

    def __init__(
        self, selection: Floats, virtual_costs: Floats, eta: float, noise_scale: float, caps: Floats
    ) -> None:
        self._p, self._costs, self._caps = selection, virtual_costs, caps
        self._eta, self._scale = eta, noise_scale
        self.distance = float(np.abs(selection - 1 / selection.size).sum())
        members = selection > 0
        self._fixed = FixedClients(selection[members], caps[members], virtual_costs[members])
        self._numbers = numbers_among(members)
        now = self._level(np.array([-1]), np.array([np.nan]))
        self.objective = float(now.objective[0])
        self.privacy = privacy_of(selection, caps, virtual_costs, now.water)

    def own(self, clients: Ints, x: Floats) -> Own:
        """V_k(x) and epsilon_k(x) for pairs (k, x), (m,) each; the others as they are."""
        level = self._level(self._numbers[clients], x)
        return Own(level.terms, privacy_of(self._p[clients], self._caps[clients], x, level.water))

    def _level(self, members: Ints, x: Floats) -> Level:
        sums = self._fixed.ask(members, x)
        everyone = sums(np.arange(x.size), np.full(x.size, -1.0)).spread  # at this level nobody is full
        return water_level(self._eta, self._scale, np.full(x.size, self.distance), everyone, sums)
