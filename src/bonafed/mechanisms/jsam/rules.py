"""Ways to choose a plan, each with its answer to "what if client k reported otherwise".

A rule is truthful with the payments of `payments.py` if V_k(x), the objective as a function of the client's
own virtual cost x, is concave with slope epsilon_k. That holds for every rule that minimises the objective
of Problem 3 over a set of selections that does not depend on the reports (theory B3), and so for

    Jsam            all selections: the exact optimum
    Fixed           one selection, made before anyone reports: USBM (all alike), BBM (largest losses)
    Cheapest        the M lowest virtual costs, 1/M each: FSBM-M. It minimises over all sets of M clients.

Each may carry a cap on epsilon (`capped.py`): Fixed then is as exact as without; Cheapest wants one cap for
all, since with a cap of its own a cheap client need not be a good one; Jsam minimises over the selections
that `capped.py` lists.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Literal, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue
from bonafed.learning.sections import NoiseAt
from bonafed.mechanisms.jsam.allocation import SelectionPlan, allocate, bought, plan_for
from bonafed.mechanisms.jsam.capped import CappedCheapest, CappedLadder
from bonafed.mechanisms.jsam.on_sum import SumLadder, fixed_level
from bonafed.mechanisms.jsam.thresholds import Ints, ObjectiveTerms, Own, ladder, total_and_rest
from bonafed.mechanisms.jsam.water_level import CappedSelection, checked_cap

Bias = Literal["text", "tables"]
_beyond_doubles = np.errstate(over="ignore", invalid="ignore")  # infinite, and refused in the end


class Rule(ABC):
    """A choice of plans."""

    @abstractmethod
    def plan(self, virtual_costs: Floats, eta: float, noise_scale: float) -> SelectionPlan:
        """The plan for checked virtual costs."""

    @abstractmethod
    def own(self, virtual_costs: Floats, eta: float, noise_scale: float, clients: Ints, x: Floats) -> Own:
        """V_k(x) and epsilon_k(x) for pairs (k, x), the others as they are."""

    def spending(self, virtual_costs: Floats, eta: float, noise_scale: float) -> Floats:
        """(S,) money that the plans for virtual costs drawn, (S, N), expect to pay."""
        return np.array([self.plan(v, eta, noise_scale).total for v in virtual_costs])

    def among(self, admitted: NDArray[np.bool_]) -> Rule:
        """The same rule for the admitted ones of all clients, (n,) True where admitted."""
        return self

    def on_sum(self) -> Rule:
        """The same rule where noise is added once to the sum (theory B10)."""
        raise InvalidValue("noise_at", f'must be "client" for {type(self).__name__}', "'sum'")

    def with_cap(self, max_epsilon: ArrayLike) -> Rule:
        """The same rule, buying no more than this from anyone: one number, or one per client."""
        raise InvalidValue("max_epsilon", f"must not be given for {type(self).__name__}", repr(max_epsilon))


def _caps_among(caps: float | Floats | None, admitted: NDArray[np.bool_]) -> float | Floats | None:
    """The caps of the admitted ones of all clients."""
    if caps is None or isinstance(caps, float):
        return caps
    if caps.size != admitted.size:
        rule = f"must be one number, or {admitted.size}, one per client"
        raise InvalidValue("max_epsilon", rule, caps.size)
    return checked_cap(caps[admitted])


@final
@dataclass(frozen=True, eq=False)
class Jsam(Rule):
    """The exact optimum; under a cap the best of the selections of `capped.py`."""

    max_epsilon: float | Floats | None = None  # E: one for all, or (N,)
    noise_at: NoiseAt = "client"

    def __post_init__(self) -> None:
        checks.literal("noise_at", self.noise_at, NoiseAt)
        if self.max_epsilon is not None:
            object.__setattr__(self, "max_epsilon", checked_cap(self.max_epsilon))
            if self.noise_at == "sum":
                _one_cap(self.max_epsilon, 'noise_at = "sum"')

    def with_cap(self, max_epsilon: ArrayLike) -> Jsam:
        return replace(self, max_epsilon=checked_cap(max_epsilon))

    def on_sum(self) -> Jsam:
        return replace(self, noise_at="sum")

    @property
    def _cap(self) -> float | None:
        """The cap, which is one for all where noise is on the sum."""
        assert self.max_epsilon is None or isinstance(self.max_epsilon, float)  # where noise is on the sum
        return self.max_epsilon

    def among(self, admitted: NDArray[np.bool_]) -> Jsam:
        return replace(self, max_epsilon=_caps_among(self.max_epsilon, admitted))

    @_beyond_doubles
    def plan(self, virtual_costs: Floats, eta: float, noise_scale: float) -> SelectionPlan:
        return allocate(
            virtual_costs, eta, noise_scale, max_epsilon=self.max_epsilon, noise_at=self.noise_at
        )

    @_beyond_doubles
    def own(self, virtual_costs: Floats, eta: float, noise_scale: float, clients: Ints, x: Floats) -> Own:
        if self.noise_at == "sum":
            return SumLadder(virtual_costs, eta, noise_scale, self._cap).own(clients, x)
        if self.max_epsilon is None:
            return ladder(virtual_costs, eta, noise_scale).own(clients, x)
        return CappedLadder(virtual_costs, eta, noise_scale, self.max_epsilon).own(clients, x)


@final
@dataclass(frozen=True, eq=False)
class Fixed(Rule):
    """A selection made before anyone reports."""

    selection: Floats  # (N,) probabilities, sum 1
    max_epsilon: float | Floats | None = None  # E: one for all, or (N,)
    noise_at: NoiseAt = "client"
    shares: Floats | None = None  # (N,) p^u, fair probabilities; None: 1/N each

    def __post_init__(self) -> None:
        if self.shares is not None:
            shares = checks.shares("shares", self.shares, length=np.size(self.selection))
            object.__setattr__(self, "shares", shares)
        if self.max_epsilon is not None:
            object.__setattr__(self, "max_epsilon", checked_cap(self.max_epsilon, np.size(self.selection)))
        p = checks.vector("selection", self.selection)
        if abs(float(p.sum()) - 1) > 1e-9:
            raise InvalidValue("selection", "must sum to 1", f"sum {p.sum():.12g}")
        object.__setattr__(self, "selection", p)

    def with_cap(self, max_epsilon: ArrayLike) -> Fixed:
        return replace(self, max_epsilon=checked_cap(max_epsilon, self.selection.size))

    def on_sum(self) -> Fixed:
        return replace(self, noise_at="sum")

    def among(self, admitted: NDArray[np.bool_]) -> Fixed:
        self._fits(admitted.size)
        if admitted.all():
            return self
        left = self.selection[admitted]
        if not left.sum() > 0:
            raise InvalidValue("selection", "must include an admitted client", "none")
        fair = None if self.shares is None else self.shares[admitted] / self.shares[admitted].sum()
        return Fixed(left / left.sum(), _caps_among(self.max_epsilon, admitted), self.noise_at, fair)

    @_beyond_doubles
    def plan(self, virtual_costs: Floats, eta: float, noise_scale: float) -> SelectionPlan:
        self._fits(virtual_costs.size)
        if self.noise_at == "sum":
            mean = np.array([self.selection @ virtual_costs])
            level, terms = fixed_level(eta, self._distance, mean, noise_scale, self._most)
            privacy, value = level * self.selection, float(terms.objective[0])
            return bought(self.selection, privacy, virtual_costs, value, self._distance, eta, noise_scale)
        if self.max_epsilon is None:
            return plan_for(self.selection, virtual_costs, eta, noise_scale, self._distance)
        capped = self._capped(virtual_costs, eta, noise_scale)
        return bought(
            self.selection,
            capped.privacy,
            virtual_costs,
            capped.objective,
            self._distance,
            eta,
            noise_scale,
        )

    def _capped(self, virtual_costs: Floats, eta: float, noise_scale: float) -> CappedSelection:
        caps = np.array(np.broadcast_to(np.asarray(self.max_epsilon), self.selection.shape))
        return CappedSelection(self.selection, virtual_costs, eta, noise_scale, caps)

    def _fits(self, clients: int) -> None:
        if self.selection.size != clients:
            raise InvalidValue(
                "selection", f"must have {clients} values, one per client", self.selection.size
            )

    @property
    def _most(self) -> float:
        """theta at most, where epsilon is theta p (theory B10)."""
        if self.max_epsilon is None:
            return np.inf
        members = self.selection > 0
        caps = np.broadcast_to(np.asarray(self.max_epsilon), self.selection.shape)
        return float(np.min(caps[members] / self.selection[members]))

    @property
    def _distance(self) -> float:
        fair = 1 / self.selection.size if self.shares is None else self.shares
        return float(np.abs(self.selection - fair).sum())

    @_beyond_doubles
    def own(self, virtual_costs: Floats, eta: float, noise_scale: float, clients: Ints, x: Floats) -> Own:
        if self.noise_at == "sum":
            p = self.selection[clients]
            mean = _all_but_one(self.selection * virtual_costs)[clients] + p * x
            level, terms = fixed_level(eta, self._distance, mean, noise_scale, self._most)
            return Own(terms, level * p)
        if self.max_epsilon is not None:
            return self._capped(virtual_costs, eta, noise_scale).own(clients, x)
        w = np.cbrt(self.selection * virtual_costs) ** 2
        p = self.selection[clients]
        rest = _all_but_one(w)[clients]
        own_term = np.where(p > 0, np.cbrt(p * x) ** 2, 0.0)
        return _bought(eta, self._distance, rest + own_term, noise_scale, p, x)


def unbiased(clients: int) -> Fixed:
    """USBM: every client alike."""
    n = checks.whole("clients", clients)
    return Fixed(np.full(n, 1 / n))


def largest_losses(losses: ArrayLike, members: int) -> Fixed:
    """BBM: the `members` clients with the largest local losses before training, alike.

    >>> largest_losses([0.3, 2.0, 1.0, 0.1], members=2).selection
    array([0. , 0.5, 0.5, 0. ])
    """
    values = checks.vector("losses", losses, sign="any")
    m = _members(members, values.size)
    selection = np.zeros(values.size)
    selection[np.argsort(-values, kind="stable")[:m]] = 1 / m
    return Fixed(selection)


def _members(members: int, clients: int) -> int:
    m = checks.whole("members", members)
    if m > clients:
        raise InvalidValue("members", f"must be at most the number of clients, {clients}", m)
    return m


@final
@dataclass(frozen=True)
class Cheapest(Rule):
    """FSBM-M: the M clients of lowest virtual cost, alike.

    The text of the paper charges the bias l = 2 (1 - M/N) of leaving the others out. Its tables II and III
    fit a rule that does not (`bias="tables"`: l = 0; erratum J-14), which buys more privacy. Either way the
    objective of the plan is what the rule minimises.
    """

    members: int  # M; all, if fewer are admitted
    bias: Bias = "text"
    max_epsilon: float | None = None  # E, one for all
    noise_at: NoiseAt = "client"

    def __post_init__(self) -> None:
        checks.whole("members", self.members)
        checks.literal("bias", self.bias, Bias)
        if self.max_epsilon is not None:
            object.__setattr__(self, "max_epsilon", _one_cap(self.max_epsilon))

    def with_cap(self, max_epsilon: ArrayLike) -> Cheapest:
        return replace(self, max_epsilon=_one_cap(max_epsilon))

    def on_sum(self) -> Cheapest:
        return replace(self, noise_at="sum")

    def _distance(self, clients: int) -> float:
        return 2 * (1 - min(self.members, clients) / clients) if self.bias == "text" else 0.0

    def _capped(self, virtual_costs: Floats, eta: float, noise_scale: float) -> CappedCheapest:
        assert self.max_epsilon is not None
        m, distance = min(self.members, virtual_costs.size), self._distance(virtual_costs.size)
        return CappedCheapest(m, distance, virtual_costs, eta, noise_scale, self.max_epsilon)

    @_beyond_doubles
    def plan(self, virtual_costs: Floats, eta: float, noise_scale: float) -> SelectionPlan:
        n = virtual_costs.size
        m, distance = min(self.members, n), self._distance(n)
        selection = np.zeros(n)
        selection[np.argsort(virtual_costs, kind="stable")[:m]] = 1 / m
        if self.noise_at == "sum":
            level, terms = self._level(np.array([selection @ virtual_costs]), n, eta, noise_scale)
            privacy, value = level * selection, float(terms.objective[0])
            return bought(selection, privacy, virtual_costs, value, distance, eta, noise_scale)
        if self.max_epsilon is not None:
            capped = self._capped(virtual_costs, eta, noise_scale)
            return bought(
                capped.selection,
                capped.privacy,
                virtual_costs,
                capped.objective,
                distance,
                eta,
                noise_scale,
            )
        return plan_for(selection, virtual_costs, eta, noise_scale, distance)

    def _level(self, mean: Floats, n: int, eta: float, noise_scale: float) -> tuple[Floats, ObjectiveTerms]:
        """theta and J, where noise is on the sum and the members' mean virtual cost is this."""
        most = np.inf if self.max_epsilon is None else self.max_epsilon * min(self.members, n)
        return fixed_level(eta, self._distance(n), mean, noise_scale, most)

    @_beyond_doubles
    def own(self, virtual_costs: Floats, eta: float, noise_scale: float, clients: Ints, x: Floats) -> Own:
        if self.max_epsilon is not None and self.noise_at == "client":
            return self._capped(virtual_costs, eta, noise_scale).own(clients, x)
        n = virtual_costs.size
        m = min(self.members, n)
        order = np.argsort(virtual_costs, kind="stable")
        rank = np.empty(n, dtype=np.int64)
        rank[order] = np.arange(n)
        on_sum = self.noise_at == "sum"
        w = virtual_costs[order] / m if on_sum else np.cbrt(virtual_costs[order] / m) ** 2
        prefix = np.concatenate([[0.0], np.cumsum(w)])
        inside = rank[clients] < m
        # the others: the M-1 cheapest of them, and the M-th, who gets the place if k leaves it
        others = np.where(inside, _all_but_one(w[:m])[np.minimum(rank[clients], m - 1)], prefix[m - 1])
        at = np.where(inside, m, m - 1)
        cut = np.where(at < n, virtual_costs[order][np.minimum(at, n - 1)], np.inf)
        rival = order[np.minimum(at, n - 1)]
        member = (x < cut) | ((x == cut) & (clients < rival)) | (at >= n)
        p = np.where(member, 1 / m, 0.0)
        if on_sum:
            level, terms = self._level(others + np.minimum(x, cut) / m, n, eta, noise_scale)
            return Own(terms, level * p)
        spread = others + np.cbrt(np.minimum(x, cut) / m) ** 2
        return _bought(eta, self._distance(n), spread, noise_scale, p, x)


def _one_cap(max_epsilon: ArrayLike, where: str = "the M cheapest") -> float:
    """A cap for all: with different ones the cheapest need not be the best M, nor lead."""
    cap = checked_cap(max_epsilon)
    if not isinstance(cap, float):
        raise InvalidValue("max_epsilon", f"must be one for all clients with {where}", f"{cap.size}")
    return cap


def _all_but_one(values: Floats) -> Floats:
    """(n,) the sum of the others, by addition only: one of them may dwarf the rest."""
    before = np.concatenate([[0.0], np.cumsum(values[:-1])])
    after = np.concatenate([np.cumsum(values[:0:-1])[::-1], [0.0]])
    return np.asarray(before + after)


def _bought(eta: float, distance: float, spread: Floats, noise_scale: float, p: Floats, x: Floats) -> Own:
    """Objective and own budget (Theorem 4) where the selection is settled."""
    total, rest = total_and_rest(eta, distance, spread, noise_scale)
    with np.errstate(divide="ignore", invalid="ignore"):
        epsilon = np.cbrt(p) ** 2 * total / (spread * np.cbrt(x))
    away, held = np.full(x.size, distance), np.zeros(x.size)
    return Own(ObjectiveTerms.of(eta, away, held, rest), np.where(p > 0, epsilon, 0.0))
