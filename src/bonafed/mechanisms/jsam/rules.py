"""Ways to choose a plan, each with its answer to "what if client k reported otherwise".

A rule is truthful with the payments of `payments.py` if V_k(x), the objective as a function of the client's
own virtual cost x, is concave with slope epsilon_k. That holds for every rule that minimises the objective
of Problem 3 over a set of selections that does not depend on the reports (theory B3), and so for

    Jsam            all selections: the exact optimum
    Fixed           one selection, made before anyone reports: USBM (all alike), BBM (largest losses)
    Cheapest        the M lowest virtual costs, 1/M each: FSBM-M. It minimises over all sets of M clients.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue
from bonafed.mechanisms.jsam.allocation import Plan, allocate, plan_for
from bonafed.mechanisms.jsam.inner import inner
from bonafed.mechanisms.jsam.ladder import Ints, Own, ladder


class Rule(ABC):
    """A choice of plans."""

    @abstractmethod
    def plan(self, virtual_costs: Floats, eta: float, noise_scale: float) -> Plan:
        """The plan for checked virtual costs."""

    @abstractmethod
    def own(self, virtual_costs: Floats, eta: float, noise_scale: float, clients: Ints, x: Floats) -> Own:
        """V_k(x) and epsilon_k(x) for pairs (k, x), the others as they are."""

    def among(self, admitted: NDArray[np.bool_]) -> Rule:
        """The same rule for the admitted ones of all clients, (n,) True where admitted."""
        return self


@final
@dataclass(frozen=True)
class Jsam(Rule):
    """The exact optimum."""

    def plan(self, virtual_costs: Floats, eta: float, noise_scale: float) -> Plan:
        return allocate(virtual_costs, eta, noise_scale)

    def own(self, virtual_costs: Floats, eta: float, noise_scale: float, clients: Ints, x: Floats) -> Own:
        return ladder(virtual_costs, eta, noise_scale).own(clients, x)


@final
@dataclass(frozen=True, eq=False)
class Fixed(Rule):
    """A selection made before anyone reports."""

    selection: Floats  # (N,) probabilities, sum 1

    def __post_init__(self) -> None:
        p = checks.vector("selection", self.selection)
        if abs(float(p.sum()) - 1) > 1e-9:
            raise InvalidValue("selection", "must sum to 1", f"sum {p.sum():.12g}")
        object.__setattr__(self, "selection", p)

    def among(self, admitted: NDArray[np.bool_]) -> Fixed:
        self._fits(admitted.size)
        if admitted.all():
            return self
        left = self.selection[admitted]
        if not left.sum() > 0:
            raise InvalidValue("selection", "must hold a client that is admitted", "none")
        return Fixed(left / left.sum())

    def plan(self, virtual_costs: Floats, eta: float, noise_scale: float) -> Plan:
        self._fits(virtual_costs.size)
        return plan_for(self.selection, virtual_costs, eta, noise_scale, self._distance)

    def _fits(self, clients: int) -> None:
        if self.selection.size != clients:
            raise InvalidValue(
                "selection", f"must have {clients} values, one per client", self.selection.size
            )

    @property
    def _distance(self) -> float:
        return float(np.abs(self.selection - 1 / self.selection.size).sum())

    def own(self, virtual_costs: Floats, eta: float, noise_scale: float, clients: Ints, x: Floats) -> Own:
        w = np.cbrt(self.selection * virtual_costs) ** 2
        p = self.selection[clients]
        rest = _all_but_one(w)[clients]
        mine = np.where(p > 0, np.cbrt(p * x) ** 2, 0.0)
        return _bought(eta, self._distance, rest + mine, noise_scale, p, x)


def unbiased(clients: int) -> Fixed:
    """USBM: every client alike."""
    n = checks.whole("clients", clients)
    return Fixed(np.full(n, 1 / n))


def largest_losses(losses: ArrayLike, members: int) -> Fixed:
    """BBM: the `members` clients with the largest local losses before training, alike.

    >>> largest_losses([0.3, 2.0, 1.0, 0.1], members=2).selection
    array([0. , 0.5, 0.5, 0. ])
    """
    given = checks.vector("losses", losses, sign="any")
    m = _members(members, given.size)
    selection = np.zeros(given.size)
    selection[np.argsort(-given, kind="stable")[:m]] = 1 / m
    return Fixed(selection)


def _members(members: int, clients: int) -> int:
    m = checks.whole("members", members)
    if m > clients:
        raise InvalidValue("members", f"must be at most the number of clients, {clients}", m)
    return m


@final
@dataclass(frozen=True)
class Cheapest(Rule):
    """FSBM-M: the M clients of lowest virtual cost, alike."""

    members: int  # M; all, if fewer are admitted

    def __post_init__(self) -> None:
        checks.whole("members", self.members)

    def plan(self, virtual_costs: Floats, eta: float, noise_scale: float) -> Plan:
        n = virtual_costs.size
        m = min(self.members, n)
        selection = np.zeros(n)
        selection[np.argsort(virtual_costs, kind="stable")[:m]] = 1 / m
        return plan_for(selection, virtual_costs, eta, noise_scale, 2 * (1 - m / n))

    def own(self, virtual_costs: Floats, eta: float, noise_scale: float, clients: Ints, x: Floats) -> Own:
        n = virtual_costs.size
        m = min(self.members, n)
        order = np.argsort(virtual_costs, kind="stable")
        place = np.empty(n, dtype=np.int64)
        place[order] = np.arange(n)
        w = np.cbrt(virtual_costs[order] / m) ** 2
        prefix = np.concatenate([[0.0], np.cumsum(w)])
        inside = place[clients] < m
        # the others: the M-1 cheapest of them, and the M-th, who gets the place if k leaves it
        others = np.where(inside, _all_but_one(w[:m])[np.minimum(place[clients], m - 1)], prefix[m - 1])
        at = np.where(inside, m, m - 1)
        cut = np.where(at < n, virtual_costs[order][np.minimum(at, n - 1)], np.inf)
        rival = order[np.minimum(at, n - 1)]
        member = (x < cut) | ((x == cut) & (clients < rival)) | (at >= n)
        spread = others + np.cbrt(np.minimum(x, cut) / m) ** 2
        p = np.where(member, 1 / m, 0.0)
        return _bought(eta, 2 * (1 - m / n), spread, noise_scale, p, x)


def _all_but_one(values: Floats) -> Floats:
    """(n,) the sum of the others, by addition only: one of them may dwarf the rest."""
    before = np.concatenate([[0.0], np.cumsum(values[:-1])])
    after = np.concatenate([np.cumsum(values[:0:-1])[::-1], [0.0]])
    return np.asarray(before + after)


def _bought(eta: float, distance: float, spread: Floats, noise_scale: float, p: Floats, x: Floats) -> Own:
    """Objective and own budget (Theorem 4) where the selection is settled."""
    total, value = inner(eta, distance, spread, noise_scale)
    with np.errstate(divide="ignore", invalid="ignore"):
        epsilon = np.cbrt(p) ** 2 * total / (spread * np.cbrt(x))
    return Own(value, np.where(p > 0, epsilon, 0.0))
