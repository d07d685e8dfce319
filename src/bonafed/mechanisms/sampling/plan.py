"""The contract in the operator's units: total budget, clients, rounds.

Clients may differ in public ways, a data weight s_n and a prior each (theory A4, end). Then

    q_n(c) = min(1, tau sqrt(s_n/phibar_n(c)))

with one common tau, at which the expected spend of all clients together meets the budget; truthful
for each client, since s_n is public and the report is its own. Clients of equal weight and prior
share a menu.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.contracts.attendance import Attendance
from bonafed.economics.contracts import Allocation, Menu
from bonafed.economics.curves import SpendCurve, cost_curve, virtual_curve
from bonafed.economics.discrete import expectation
from bonafed.economics.money import DECIMALS
from bonafed.economics.money import decimals as check_decimals
from bonafed.economics.priors import Prior
from bonafed.economics.registry import prior as checked_prior
from bonafed.errors import InvalidValue
from bonafed.mechanisms.sampling.convergence import ConvergenceModel
from bonafed.mechanisms.sampling.menus import (
    data_weights,
    menu_at_scale,
    require_scale,
    single_term,
    solve_scale,
)
from bonafed.mechanisms.sampling.spend import (
    CostLottery,
    SpendDistribution,
    exceedance_bound,
    spend_distribution,
)

MOST_CLIENTS = 10**8  # in a contract: more do not fit into memory
MOST_ROUNDS = 10**9


class Group(NamedTuple):
    """Clients that see the same menu."""

    prior: Prior
    weight: float  # public data weight s_n of each
    clients: int  # how many


class Benchmark(NamedTuple):
    """What the same budget buys under one way of sampling, over the whole population."""

    name: str
    expected_spend: float  # money, whole run
    expected_probability: float  # mean over clients of E[q_n]
    sampling_term: float  # sum over clients of s_n E[1/q_n]
    predicted_loss: float | None  # bound of Proposition 1, where a convergence model is given


@dataclass(frozen=True, eq=False)
class SamplingPlan:
    """A published contract for a whole run; made by `plan`."""

    total_budget: float  # money, whole run
    rounds: int
    groups: tuple[Group, ...]
    menus: tuple[Menu, ...]  # one per group
    membership: NDArray[np.int64]  # (N,) index of each client's group
    intended_spend: float  # money, whole run: the expected spend it was made for; shrunk by `confidence`
    scale: float | None  # tau of the module docstring; None: everybody is in every round
    confidence: float | None = None  # realised spend is within budget with this probability
    names: tuple[str, ...] | None = None  # (N,) whose group `membership` is; None: all share one group
    decimals: int = DECIMALS  # decimals of an amount that is paid

    @property
    def clients(self) -> int:
        return self.membership.size

    @property
    def menu(self) -> Menu:
        """The menu, where all clients share one."""
        if len(self.menus) != 1:
            raise InvalidValue("menu", "differs between clients: use menu_for(n)", len(self.menus))
        return self.menus[0]

    def menu_for(self, client: int) -> Menu:
        """The menu of client n = 0, 1, ..."""
        return self.menus[int(self.membership[client])]

    @property
    def expected_spend(self) -> float:
        """Money over the whole run, in expectation over costs and coins."""
        per_round = sum(g.clients * m.expected_spend for g, m in zip(self.groups, self.menus, strict=True))
        return self.rounds * per_round

    @property
    def compared_money(self) -> float:
        """Money over the whole run that benchmarks are given: the budget; for a contract shrunk by
        `confidence`, the expected spend it was shrunk to."""
        return self.total_budget if self.confidence is None else self.expected_spend

    @property
    def sampling_term(self) -> float:
        """sum over clients of s_n E[1/q_n], which the convergence bound depends on."""
        return sum(
            g.clients * g.weight * m.expected_inverse_probability
            for g, m in zip(self.groups, self.menus, strict=True)
        )

    @property
    def attendance(self) -> Attendance:
        """How many will be in a round, on average over costs and coins.

        Costs are independent and so are coins, so that a client is in a round with probability E q(c),
        whoever else is.
        """
        means = [min(m.expected_probability, 1.0) for m in self.menus]
        return Attendance(np.repeat(means, [g.clients for g in self.groups]), self.rounds)

    @property
    def expected_probability(self) -> float:
        """Mean over clients of E[q_n]."""
        total = sum(
            g.clients * m.expected_probability for g, m in zip(self.groups, self.menus, strict=True)
        )
        return total / self.clients

    @cached_property
    def spend(self) -> SpendDistribution:
        """The distribution of realised spend over cost draw and sampling coins."""
        return spend_distribution(self.lotteries(), self.rounds)

    def lotteries(self) -> list[CostLottery]:
        """What each client may cost over the run."""
        return [CostLottery(g.clients, m.outcomes()) for g, m in zip(self.groups, self.menus, strict=True)]

    def allocate(self, reports: ArrayLike) -> Allocation:
        """Probability and expected payment per round of every client, for all reports at once."""
        c = checks.vector("reports", reports, length=self.clients)
        q, r = self.price(c, np.arange(self.clients))
        return Allocation(q, q * r)

    def price(self, reports: Floats, clients: NDArray[np.int64]) -> tuple[Floats, Floats]:
        """Probability and payment per participation of these clients for their reports."""
        q, r, of = np.empty(clients.size), np.empty(clients.size), self.membership[clients]
        for index, menu in enumerate(self.menus):
            mine = of == index
            q[mine], r[mine] = menu.price(reports[mine])
        return q, r


def plan(
    prior: Prior | str | None,
    total_budget: float,
    clients: int,
    rounds: int,
    *,
    weights: ArrayLike | None = None,
    priors: Sequence[Prior | str] | None = None,
    confidence: float | None = None,
    names: Sequence[str] | None = None,
    decimals: int = DECIMALS,
) -> SamplingPlan:
    """The optimal truthful contract for a run of `rounds` rounds with `clients` clients.

    A prior may be spelled, "uniform:0.5,1.5". `weights` are public data weights s_n, `priors` one prior per
    client (then `prior` is None). Where
    clients differ the contract lists them by name, "0", "1", ... unless `names` are given in the order of
    the weights: which terms are whose is then part of what is published. Payments over the run are rounded
    to `decimals` digits.
    With `confidence`, the contract is shrunk until realised spend stays within `total_budget` with
    at least that probability; without, only expected spend does.

    >>> from bonafed.economics import Uniform
    >>> contract = plan(Uniform(0.5, 1.5), total_budget=10_000, clients=100, rounds=200)
    >>> round(contract.expected_spend, 6)
    10000.0
    """
    money = checks.positive("total_budget", total_budget)
    n = checks.whole("clients", clients, at_most=MOST_CLIENTS)
    r = checks.whole("rounds", rounds, at_most=MOST_ROUNDS)
    digits = check_decimals("decimals", decimals)
    groups, membership = _group(prior, n, weights, priors)
    members = _names(names, n) if len(groups) > 1 else None

    def finished(contract: SamplingPlan) -> SamplingPlan:
        return replace(contract, names=members, decimals=digits)

    if confidence is None:
        return finished(plan_to_spend(money, groups, membership, money, r, None))
    level = checks.number("confidence", confidence)
    if not 0 < level < 1:
        raise InvalidValue("confidence", "must be between 0 and 1, ends excluded", confidence)

    def at(expected: float) -> SamplingPlan:
        return plan_to_spend(expected, groups, membership, money, r, level)

    return finished(_largest_safe(at, money, 1 - level))


def _names(names: Sequence[str] | None, clients: int) -> tuple[str, ...]:
    """Names of clients that differ; numbers by default."""
    if names is None:
        return tuple(map(str, range(clients)))
    if len(names) != clients:
        raise InvalidValue("names", f"must be {clients} different names", len(names))
    return checks.names("names", names)


def _group(
    prior: Prior | str | None,
    clients: int,
    weights: ArrayLike | None,
    priors: Sequence[Prior | str] | None,
) -> tuple[tuple[Group, ...], NDArray[np.int64]]:
    """Clients of equal prior and weight, in order of first appearance of the prior."""
    if (prior is None) == (priors is None):
        raise InvalidValue(
            "prior", "or priors is required, not both", "both" if priors is not None else "neither"
        )
    belief = None if prior is None else checked_prior("prior", prior)
    if belief is not None and weights is None:  # the usual case: all clients alike
        return (Group(belief, 1.0, clients),), np.zeros(clients, dtype=np.int64)
    each = [checked_prior("priors", one) for one in priors or ()] if belief is None else [belief] * clients
    if len(each) != clients:
        raise InvalidValue("priors", f"must have {clients} entries", len(each))
    index: dict[tuple[Prior, float], int] = {}
    s = data_weights(weights, clients)
    keys = [index.setdefault((p, float(w)), len(index)) for p, w in zip(each, s, strict=True)]
    membership = np.array(keys)
    counts = np.bincount(membership)
    groups = tuple(Group(p, w, int(k)) for (p, w), k in zip(index, counts, strict=True))
    return groups, membership


@np.errstate(over="ignore", invalid="ignore")  # an overflow is refused below
def plan_to_spend(
    expected: float,
    groups: tuple[Group, ...],
    membership: NDArray[np.int64],
    money: float,
    rounds: int,
    confidence: float | None,
) -> SamplingPlan:
    """The optimal plan of the given expected spend, published under the budget `money`."""
    per_round = expected / rounds

    def at(tau: float | None) -> SamplingPlan:
        menus = menus_at_scale(groups, tau, per_round / len(membership))
        return SamplingPlan(money, rounds, groups, menus, membership, expected, tau, confidence)

    if per_round >= sum(g.clients * g.prior.high for g in groups):
        return at(None)
    tau, step = common_scale(groups, virtual_curve, per_round), 4e-16
    while True:
        require_scale("total_budget", tau, money)
        candidate = at(tau)
        spend = candidate.expected_spend
        require_scale("total_budget", spend, money)
        if spend <= expected:
            return candidate
        tau *= 1 - step  # by rounding only
        step = min(2 * step, 0.5)


def menus_at_scale(groups: Sequence[Group], tau: float | None, share: float) -> tuple[Menu, ...]:
    """The menu of every group for a common tau (None: everybody is in every round).

    A menu's budget is the even `share`, money per client and round, or its own spend where groups differ.
    """
    if tau is None:
        return tuple(single_term(g.prior, g.prior.high, 1.0) for g in groups)
    scales = [tau * math.sqrt(group.weight) for group in groups]
    menus = tuple(menu_at_scale(g.prior, share, s) for g, s in zip(groups, scales, strict=True))
    if len(groups) == 1:
        return menus
    return tuple(
        menu_at_scale(g.prior, m.expected_spend, s) for g, m, s in zip(groups, menus, scales, strict=True)
    )


def common_scale(
    groups: Sequence[Group], curve_of: Callable[[Prior], SpendCurve], per_round: float
) -> float:
    """tau at which all groups together spend `per_round`; concave in tau as for one client."""
    by_prior: dict[Prior, tuple[list[float], list[int]]] = {}
    for group in groups:
        roots, counts = by_prior.setdefault(group.prior, ([], []))
        roots.append(math.sqrt(group.weight))
        counts.append(group.clients)
    blocks = [(curve_of(p), np.array(w), np.array(k, dtype=np.float64)) for p, (w, k) in by_prior.items()]

    def parts(tau: float) -> tuple[float, float]:
        head = tail = 0.0
        for curve, roots, counts in blocks:
            x = curve.cutoff(tau * roots)
            head += expectation(counts, curve.head(x))
            tail += expectation(counts * roots, curve.tail_root(x))
        return head, tail

    return solve_scale(parts, per_round)


def _largest_safe(at: Callable[[float], SamplingPlan], money: float, allowed: float) -> SamplingPlan:
    """The plan of largest expected spend whose realised spend exceeds `money` rarely enough."""

    def risk(candidate: SamplingPlan) -> float:
        return exceedance_bound(candidate.lotteries(), candidate.rounds, money)

    low, high = 0.0, money
    best = at(high)
    if risk(best) <= allowed:
        return best
    # Spend scales with the contract, so the money left above a quantile is a good first guess.
    guess = money - 3 * (best.spend.quantile(1 - allowed) - money)
    safe: SamplingPlan | None = None
    for _ in range(60):
        if not low < guess < high:
            guess = (low + high) / 2 if low > 0 else high / 4
        candidate = at(guess)
        if risk(candidate) <= allowed:
            low, safe = guess, candidate
        else:
            high = guess
        if safe is not None and high - low <= 1e-4 * money:
            return safe
        guess = (low + high) / 2 if low > 0 else high / 2
    if safe is None:
        raise InvalidValue(
            "confidence", "must be reachable with this budget and number of clients", 1 - allowed
        )
    return safe


@np.errstate(over="ignore", divide="ignore")  # money too little to divide buys nothing
def benchmarks(contract: SamplingPlan, model: ConvergenceModel | None = None) -> list[Benchmark]:
    """What `compared_money` buys: this contract, uniform sampling, complete information."""
    if model is not None and model.clients != contract.clients:
        raise InvalidValue("model", f"must have {contract.clients} clients", model.clients)
    groups = contract.groups
    per_round = contract.compared_money / contract.rounds
    counts = np.array([g.clients for g in groups], dtype=np.float64)
    weights = np.array([g.weight for g in groups])
    data = None
    if model is not None:
        counted = np.bincount(contract.membership, model.data_weights, minlength=len(groups))
        data = counted.astype(np.float64)

    def row(name: str, spend: float, q: Floats, inverse: Floats) -> Benchmark:
        loss = None
        if model is not None and data is not None:
            loss = model.bound_for(expectation(data, inverse), contract.rounds)
        return Benchmark(
            name,
            spend * contract.rounds,
            expectation(counts, q) / contract.clients,
            expectation(counts * weights, inverse),
            loss,
        )

    own = row(
        "optimal (truthful)",
        contract.expected_spend / contract.rounds,
        np.array([m.expected_probability for m in contract.menus]),
        np.array([m.expected_inverse_probability for m in contract.menus]),
    )
    dearest = expectation(counts, np.array([g.prior.high for g in groups]))
    even = min(1.0, per_round / dearest)
    ones = np.ones(len(groups))
    uniform = row("uniform (truthful)", even * dearest, even * ones, ones / even)
    return [own, uniform, row("complete information", *_complete_information(groups, per_round))]


def _complete_information(groups: Sequence[Group], per_round: float) -> tuple[float, Floats, Floats]:
    """Spend per round, E[q] and E[1/q] per group if the server knew every cost (theory A5)."""
    cheapest = sum(g.clients * g.prior.mean for g in groups)
    if per_round >= cheapest:
        return cheapest, np.ones(len(groups)), np.ones(len(groups))
    tau = common_scale(groups, cost_curve, per_round)
    spend, q, inverse = 0.0, [], []
    for prior, weight, clients in groups:
        curve, scale = cost_curve(prior), tau * math.sqrt(weight)
        x = curve.cutoff(np.asarray(scale))
        below = float(prior.cdf(x))
        spend += clients * float(curve.head(x) + scale * curve.tail_root(x))
        q.append(below + scale * float(curve.tail_inverse(x)))
        inverse.append(below + float(curve.tail_root(x)) / scale)
    return spend, np.array(q), np.array(inverse)
