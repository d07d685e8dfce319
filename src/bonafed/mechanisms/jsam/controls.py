"""Mechanisms to set against the exact one in an audit: an audit that passes all of these is no audit.

PayAsBid pays report times epsilon, which invites overstating.

ClippedMechanism takes the optimum without a cap and cuts epsilon off at the cap, but pays the rent by the
objective of the uncapped optimum: the integral of an epsilon that it does not buy. Whoever is cut off gains
by understating its cost. (With the integral of what it does buy no lie would pay, as that does not rise in
the own report; but the plan would be the best for another problem, the one without a cap.)

EqualRents takes the plan for unequal sizes and pays report times epsilon plus the rent that the client
would get if all sizes were equal: again the integral of an epsilon that it does not buy.

PrintedMechanism takes the plan of the paper's Algorithm 1, p_h on a grid, and pays report times epsilon
plus a rent, in one of two ways that agree for an exact optimum and only there:

    "objective"   (V_k(v(c_max)) - V_k(v(c_k)))/2 with V_k the objective of the plan, the formula (ii) of
                  `payments.py` for a uniform prior. Its proof needs V_k to be the least objective.
                  Algorithm 1 minimises another function (errata J-2, J-4), so that V_k jumps where the plan
                  changes: a client on one side of the jump loses, and gains by a report on the other side.
    "integral"    the integral of epsilon_k over the own report, by quadrature between the jumps. No lie
                  pays: Algorithm 1 takes the least of finitely many increasing functions of W, one for each
                  (h, p_h) of a list that does not depend on the reports, and the sorted order gives the
                  least W among all orders; the least of functions concave in the own virtual cost is
                  concave, and its slope is epsilon_k. The printed plan is dearer, but monotone on any grid.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from bonafed import checks
from bonafed.checks import Floats
from bonafed.economics.contracts import Allocation
from bonafed.economics.priors import ContinuousPrior, Prior, Uniform
from bonafed.errors import InvalidValue
from bonafed.learning.sections import NoiseAt
from bonafed.mechanisms.jsam.payments import JsamMechanism, admit, lowest_cost
from bonafed.mechanisms.jsam.rules import Jsam, Rule
from bonafed.mechanisms.jsam.thresholds import Ints, inner

Rent = Literal["objective", "integral"]
_SWEEP = 2000  # points among which jumps of epsilon are looked for
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(20)


@dataclass(frozen=True)
class PayAsBid:
    """Plan as if reports were costs, and pay what was reported."""

    prior: Prior  # only its highest cost counts
    eta: float
    noise_scale: float
    noise_at: NoiseAt = "client"

    def allocate(self, reports: ArrayLike) -> Allocation:
        """(n,) epsilon and payment."""
        return _one_by_one(self, checks.vector("reports", reports))

    def respond(self, reports: Floats, client: int, own: Floats) -> tuple[Floats, Floats]:
        """(m,) epsilon and payment of one client for its reports `own`, the others' as they are."""
        case = _case(self.prior, reports, client, own)
        many = np.full(own.size, case.position)
        rule = Jsam(noise_at=self.noise_at)
        epsilon = rule.own(case.costs, self.eta, self.noise_scale, many, case.own).privacy
        epsilon = np.where(case.inside, epsilon, 0.0)
        return epsilon, own * epsilon


@dataclass(frozen=True)
class ClippedMechanism:
    """The optimum without a cap, cut off at one, with the payment formula of the optimum."""

    prior: Prior
    eta: float
    noise_scale: float
    max_epsilon: float

    def __post_init__(self) -> None:
        checks.positive("max_epsilon", self.max_epsilon)

    def allocate(self, reports: ArrayLike) -> Allocation:
        """(n,) epsilon and payment."""
        return _one_by_one(self, checks.vector("reports", reports))

    def respond(self, reports: Floats, client: int, own: Floats) -> tuple[Floats, Floats]:
        """(m,) epsilon and payment of one client for its reports `own`, the others' as they are."""
        uncapped = JsamMechanism(self.prior, self.eta, self.noise_scale)
        epsilon, payment = uncapped.respond(reports, client, own)
        lifted = np.clip(own, lowest_cost(self.prior), self.prior.high)
        cut = np.minimum(epsilon, self.max_epsilon)
        return cut, np.asarray(payment - lifted * (epsilon - cut))


@dataclass(frozen=True)
class EqualRents:
    """A plan for unequal sizes with the rents for equal ones."""

    prior: Prior
    eta: float
    noise_scale: float
    rule: Rule  # of the plan

    def allocate(self, reports: ArrayLike) -> Allocation:
        """(n,) epsilon and payment."""
        return _one_by_one(self, checks.vector("reports", reports))

    def respond(self, reports: Floats, client: int, own: Floats) -> tuple[Floats, Floats]:
        """(m,) epsilon and payment of one client for its reports `own`, the others' as they are."""
        right, equal = (
            JsamMechanism(self.prior, self.eta, self.noise_scale, rule) for rule in (self.rule, Jsam())
        )
        epsilon, _ = right.respond(reports, client, own)
        other, payment = equal.respond(reports, client, own)
        lifted = np.clip(own, lowest_cost(self.prior), self.prior.high)
        return epsilon, np.asarray(payment + lifted * (epsilon - other))


@dataclass(frozen=True)
class PrintedMechanism:
    """Algorithm 1 of the paper with payments; what a client gives is epsilon."""

    prior: Prior
    eta: float
    noise_scale: float
    grid: float = 0.05  # step of p_h
    rent: Rent = "objective"

    def __post_init__(self) -> None:
        checks.positive("eta", self.eta)
        checks.positive("noise_scale", self.noise_scale)
        checks.between("grid", checks.positive("grid", self.grid), 0.0, 1.0)
        checks.literal("rent", self.rent, Rent)
        needed = Uniform if self.rent == "objective" else ContinuousPrior
        if not isinstance(self.prior, needed):
            kind = "uniform" if self.rent == "objective" else "continuous"
            rule = f"must be {kind} for Algorithm 1 with the rent by {self.rent}"
            raise InvalidValue("prior", rule, type(self.prior).__name__)

    def allocate(self, reports: ArrayLike) -> Allocation:
        """(n,) epsilon and payment."""
        return _one_by_one(self, checks.vector("reports", reports))

    def respond(self, reports: Floats, client: int, own: Floats) -> tuple[Floats, Floats]:
        """(m,) epsilon and payment of one client for its reports `own`, the others' as they are."""
        case = _case(self.prior, reports, client, own)
        others = _others(self, case.position, tuple(case.virtual.tolist()))
        epsilon = others.at(case.own).privacy
        rent = (others.objective_rent if self.rent == "objective" else others.integral_rent)(case.own)
        payment = case.own * epsilon + rent
        return np.where(case.inside, epsilon, 0.0), np.where(case.inside, payment, 0.0)


def _one_by_one(
    mechanism: PayAsBid | ClippedMechanism | EqualRents | PrintedMechanism, reports: Floats
) -> Allocation:
    """The outcome for everybody from the answers to each."""
    answers = [mechanism.respond(reports, k, reports[k : k + 1]) for k in range(reports.size)]
    epsilon, payment = np.array(answers)[:, :, 0].T
    return Allocation(epsilon, payment)


class _Case(NamedTuple):
    """One client among the admitted."""

    position: int  # of the client among them
    costs: Floats  # (N,) of all admitted, lifted to the floor; the client's own stands for any
    virtual: Floats  # (N,) virtual costs
    own: Floats  # (m,) the reports to answer, lifted to the floor, at most the highest
    inside: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]  # (m,) False above the highest cost


def _case(prior: Prior, reports: Floats, client: int, own: Floats) -> _Case:
    everyone = np.array(reports)
    everyone[client] = prior.high
    group = admit(everyone, prior)
    lifted = np.clip(own, lowest_cost(prior), prior.high)
    position = int(np.searchsorted(group.clients, client))
    return _Case(position, group.costs, group.virtual_costs, lifted, own <= prior.high)


class _Printed(NamedTuple):
    """What Algorithm 1 does for each of m own virtual costs."""

    privacy: Floats  # (m,) epsilon_k
    objective: Floats  # (m,) of Problem 3, for the plan returned
    state: Ints  # (m,) which (h, p_h), and the place of k: epsilon is smooth where it does not change


class _Others:
    """Algorithm 1 for many reports of one client; B by its closed form instead of Newton's method."""

    def __init__(self, mechanism: PrintedMechanism, position: int, virtual: Floats) -> None:
        self._mechanism, self._position = mechanism, position
        self._rest = np.delete(virtual, position)
        n, grid = virtual.size, mechanism.grid
        steps = grid * np.arange(math.floor(1 / (n * grid) + 1e-9) + 1)  # line 4
        i = np.arange(1, n + 1)[:, None]  # line 2
        self._h = np.broadcast_to(n + 1 - i, (n, steps.size)).ravel()
        self._p_1 = (i / n + steps).ravel()  # line 5
        self._p_h = np.broadcast_to(np.maximum(1 / n - steps, 0.0), (n, steps.size)).ravel()

    @cached_property
    def _jumps(self) -> Floats:
        """Where epsilon_k is not smooth, found by bisection to the last digit."""
        sweep = np.linspace(lowest_cost(self._mechanism.prior), self._mechanism.prior.high, _SWEEP + 1)
        states = self.at(sweep).state
        changed = np.flatnonzero(np.diff(states))
        left, right = sweep[changed], sweep[changed + 1]
        before = states[changed]
        for _ in range(52):
            middle = (left + right) / 2
            same = self.at(middle).state == before
            left, right = np.where(same, middle, left), np.where(same, right, middle)
        return right

    def at(self, own: Floats) -> _Printed:
        """The outcome at (m,) own reports."""
        n, h, eta, scale = self._rest.size + 1, self._h, self._mechanism.eta, self._mechanism.noise_scale
        x = self._mechanism.prior.ironed_virtual_cost(own)
        first_if_equal = np.arange(n - 1) < self._position
        earlier = (self._rest < x[:, None]) | ((self._rest == x[:, None]) & first_if_equal)
        rank = earlier.sum(1)
        v = np.sort(np.column_stack([np.broadcast_to(self._rest, (x.size, n - 1)), x]), axis=1)
        w = np.cbrt(v) ** 2
        after_first = np.cumsum(w, axis=1) - w[:, :1]  # sums of w_2 .. w_j
        between = np.where(h > 1, after_first[:, np.maximum(h - 2, 0)], 0.0) / n ** (2 / 3)
        lead, last = np.cbrt(self._p_1) ** 2, np.cbrt(self._p_h) ** 2
        spread = w[:, :1] * lead + w[:, h - 1] * last + between  # line 6
        total, value = inner(eta, 2 * (self._p_1 - self._p_h), spread, scale)  # line 7
        best, row = np.argmin(value, axis=1), np.arange(x.size)  # lines 9, 10: the first among equals
        h, p_1, p_h, privacy = h[best], self._p_1[best], self._p_h[best], total[row, best]
        p = np.where(rank == h - 1, p_h, np.where(rank < h, 1 / n, 0.0))
        p = np.where(rank == 0, p_1, p)  # lines 11-19
        # for h = 1 line 6 counts client 1 twice, line 21 does not (erratum J-4)
        true = np.where(h > 1, spread[row, best], w[:, 0] * lead[best])
        epsilon = np.cbrt(p) ** 2 * privacy / (true * np.cbrt(x))  # line 21
        distance = np.abs(p_1 - 1 / n) + (n - h) / n + np.where(h > 1, 1 / n - p_h, 0.0)
        noise = np.sqrt(scale * true**3) / privacy
        objective = eta * (distance + np.hypot(distance, noise)) + privacy
        return _Printed(epsilon, objective, best * n + rank)

    def objective_rent(self, start: Floats) -> Floats:
        """(m,) half the rise of the objective from each own report to the highest cost."""
        top = self.at(np.array([self._mechanism.prior.high])).objective
        return np.asarray((top - self.at(start).objective) / 2)

    def integral_rent(self, start: Floats) -> Floats:
        """(m,) the integral of epsilon_k from each own report to the highest cost."""
        low, high = lowest_cost(self._mechanism.prior), self._mechanism.prior.high
        graded = low * 4.0 ** np.arange(math.ceil(math.log(high / low, 4)))  # epsilon is steep near 0
        edges = np.unique(np.concatenate([graded, self._jumps, start, [high]]))
        half, middle = np.diff(edges) / 2, (edges[1:] + edges[:-1]) / 2
        inside = self.at((middle[:, None] + half[:, None] * _NODES).ravel()).privacy
        pieces = half * (inside.reshape(half.size, -1) @ _WEIGHTS)
        above = np.concatenate([np.cumsum(pieces[::-1])[::-1], [0.0]])
        return np.asarray(above[np.searchsorted(edges, start)])


@lru_cache(maxsize=1024)  # an audit asks about the same case many times; to find its jumps takes long
def _others(mechanism: PrintedMechanism, position: int, virtual: tuple[float, ...]) -> _Others:
    return _Others(mechanism, position, np.array(virtual))
