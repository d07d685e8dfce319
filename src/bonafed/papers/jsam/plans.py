"""What JSAM buys for how much: curves over populations of clients that are drawn from a prior.

What the paper says about them, and what the model gives (docs/theory/jsam.md, B8; erratum J-12):

    money against eta   "increases convexly" (observation 5). It increases, as of two weights the larger one
                        buys at least as much. It is convex only while clients come in: for a uniform prior
                        and many clients, until 61 % are selected (eta = 0.36 z_1; for N = 100, Q = 1 about
                        3.4). At a fixed threshold eta = (B/z)^2 sqrt(l^2 B^2 + z^2) is convex in B, so B is
                        concave in eta; and once all are selected B = sqrt(eta z). The curve is an S.
    clients over money  "concave" (observation 6). Holds for the mean, up to the steps of single clients.
    share by client     the least sensitive "may incur the highest" cost. By epsilon v, the paper's measure,
                        if and only if (N-h+1) v_1 >= v_h, so while few are selected. By what is paid, in
                        every population tried.
    mechanisms          the loss bound against money, and the objective against JSAM's.

Q and the highest cost only set units: with epsilon counted in sqrt(Q), and eta and money in sqrt(Q) times
the highest cost, all curves are the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from bonafed import checks
from bonafed.checks import Floats
from bonafed.economics.priors import Prior, Uniform
from bonafed.economics.registry import PRIOR_FORMS
from bonafed.economics.registry import prior as prior_rule
from bonafed.mechanisms.jsam import Cheapest, Jsam, Rule, SelectionPlan, largest_losses, settle, unbiased
from bonafed.mechanisms.jsam.payments import lowest_cost, virtual_costs_of
from bonafed.papers.tables import increasing
from bonafed.randomness import JsamStudy, generator
from bonafed.sections import Section, flag, key

MECHANISMS = ("JSAM", "JSAM-CI", "USBM", "FSBM-50", "FSBM-75", "BBM")


def _two_or_more(name: str, value: object) -> int:
    return checks.whole(name, value, at_least=2)


@dataclass(frozen=True)
class Population(Section):
    """Clients whose sensitivities are drawn again and again from one prior."""

    prior: Prior = key(prior_rule, Uniform(0.0, 1.0), help="Of the sensitivities: " + PRIOR_FORMS)
    clients: int = key(_two_or_more, 100, help="How many.")
    noise_scale: float = key(checks.positive, 1.0, help="Q, how much noise hurts training.")
    draws: int = key(_two_or_more, 50, help="Populations to average over.")
    seed: int = key(checks.seed, 0, help="Of the draws.")
    alike: bool = key(flag, False, help="Control: everybody is selected alike, as under USBM.")

    def costs(self) -> Floats:
        """(draws, clients) sensitivities, ascending in each row."""
        rng = np.random.default_rng(self.seed)
        costs = np.array([self.prior.sample(rng, self.clients) for _ in range(self.draws)])
        return np.sort(costs, axis=1)

    def virtual(self) -> Floats:
        """(draws, clients) virtual costs, ascending in each row."""
        return virtual_costs_of(self.costs(), self.prior)

    def known(self) -> Floats:
        """(draws, clients) costs in the place of virtual ones (JSAM-CI), lifted as payments have it."""
        return np.maximum(self.costs(), lowest_cost(self.prior))

    def losses(self) -> Floats:
        """(draws, clients) local losses for BBM, drawn without regard to the sensitivities."""
        rng = generator(self.seed, JsamStudy.LOSSES)
        return rng.random((self.draws, self.clients))

    @property
    def rule(self) -> Rule:
        """Under test: JSAM; in a control, USBM."""
        return unbiased(self.clients) if self.alike else Jsam()

    @property
    def unit(self) -> float:
        """Of eta and of money: in a large population all curves are the same in it."""
        return self.prior.high * math.sqrt(self.noise_scale * self.clients)


# Money against eta


@dataclass(frozen=True, slots=True, eq=False)
class MoneyByWeight:
    """Expected money of the optimal plan for m weights."""

    eta: Floats  # (m,) ascending
    money: Floats  # (draws, m) B
    selected: Floats  # (draws, m) h, number of clients


def money_by_weight(population: Population, etas: ArrayLike | None = None) -> MoneyByWeight:
    """How much is spent, and on how many clients, as the weight of the loss grows."""
    eta = _weights(population, etas)
    plans = [
        [population.rule.plan(v, float(e), population.noise_scale) for e in eta]
        for v in population.virtual()
    ]
    money = np.array([[plan.total for plan in row] for row in plans])
    selected = np.array([[float(plan.threshold) for plan in row] for row in plans])
    return MoneyByWeight(eta, money, selected)


def _weights(population: Population, etas: ArrayLike | None) -> Floats:
    default = population.unit * np.geomspace(0.01, 10.0, 31)
    return increasing("etas", default if etas is None else np.asarray(etas), at_least=3)


def bends(x: Floats, y: Floats) -> Floats:
    """(..., m-2) relative change of the slope at inner points: above 0 where a rising curve is convex.

    >>> bends(np.array([0.0, 1.0, 2.0]), np.array([0.0, 1.0, 4.0])).tolist()
    [0.5]
    """
    slopes = np.diff(y) / np.diff(x)
    size = np.abs(slopes[..., 1:]) + np.abs(slopes[..., :-1])
    return np.asarray(np.diff(slopes) / np.where(size > 0, size, 1.0))


# Clients against money


@dataclass(frozen=True, slots=True, eq=False)
class SelectedByMoney:
    """How many clients the largest weight within the money selects, for m sums of money."""

    money: Floats  # (m,) ascending
    selected: Floats  # (draws, m) JSAM
    complete: Floats  # (draws, m) if the sensitivities were known


def selected_by_money(
    population: Population, money: ArrayLike | None = None, *, steps: int = 160
) -> SelectedByMoney:
    """How many clients a sum of money reaches.

    Both B and h grow along eta, so of `steps` weights the largest whose plan stays within the money is
    taken. Where not even the smallest does, nobody is selected.
    """
    default = population.unit * 1.6 * np.linspace(1 / 24, 1.0, 24) ** 2
    sums = increasing("money", default if money is None else np.asarray(money), at_least=3)
    eta = population.unit * np.geomspace(1e-3, 4.0, checks.whole("steps", steps, at_least=2))

    def clients_within(costs: Floats) -> Floats:
        plans = [population.rule.plan(costs, float(e), population.noise_scale) for e in eta]
        within = np.searchsorted([plan.total for plan in plans], sums, side="right")
        return np.array([0.0, *(plan.threshold for plan in plans)])[within]

    return SelectedByMoney(
        sums,
        np.array([clients_within(v) for v in population.virtual()]),
        np.array([clients_within(c) for c in population.known()]),
    )


# Share of the cost by client


@dataclass(frozen=True, slots=True, eq=False)
class CostShares:
    """Who gets the money, for m weights and N clients in the order of their sensitivity."""

    eta: Floats  # (m,)
    selected: Floats  # (draws, m) h
    planned: Floats  # (draws, m, N) epsilon_k v_k/B: the share of expected money
    paid: Floats  # (draws, m, N) share of the payments

    @property
    def first_is_dearest(self) -> tuple[Floats, Floats]:
        """(draws, m) each: 1 where client 1 has the largest share, as planned and as paid."""
        planned, paid = ((part.argmax(2) == 0).astype(float) for part in (self.planned, self.paid))
        return planned, paid


def cost_shares(population: Population, etas: ArrayLike | None = None) -> CostShares:
    """Which client costs most.

    The plan spends (p_k v_k)^(2/3) B/W on client k. From client 2 to h this grows with v, and client 1 has
    the largest if and only if (N-h+1) v_1 >= v_h.
    """
    default = population.unit * np.array([0.03, 0.1, 1.0])
    eta = increasing("etas", default if etas is None else np.asarray(etas))
    shape = (population.draws, eta.size, population.clients)
    planned, paid, selected = np.empty(shape), np.empty(shape), np.empty(shape[:2])
    for i, (costs, v) in enumerate(zip(population.costs(), population.virtual(), strict=True)):
        for j, e in enumerate(eta):
            bought = settle(costs, population.prior, float(e), population.noise_scale, rule=population.rule)
            planned[i, j] = bought.allocation.privacy * v / bought.allocation.total
            paid[i, j] = bought.payment / bought.spend
            selected[i, j] = bought.allocation.threshold
    return CostShares(eta, selected, planned, paid)


# Mechanisms side by side


@dataclass(frozen=True, slots=True, eq=False)
class MechanismCurves:
    """Six mechanisms at the same m weights."""

    eta: Floats  # (m,)
    names: tuple[str, ...]  # (6,)
    money: Floats  # (draws, 6, m) expected money
    loss: Floats  # (draws, 6, m) the bound on the training loss, (14) of the paper
    objective: Floats  # (draws, 6, m) eta times loss, plus money

    @property
    def excess(self) -> Floats:
        """(draws, 6, m) objective over JSAM's of the same draw, minus 1."""
        return np.asarray(self.objective / self.objective[:, :1] - 1)


def mechanism_curves(population: Population, etas: ArrayLike | None = None) -> MechanismCurves:
    """JSAM and its baselines.

    FSBM-50 and FSBM-75 take the cheapest 50 % and 75 %; BBM the half with the largest local losses, which
    are drawn independently of the sensitivities. Complete information pays everyone just its cost.
    """
    eta = _weights(population, etas)
    n, scale = population.clients, population.noise_scale
    members = {share: max(1, round(n * share)) for share in (0.5, 0.75)}
    rows: list[list[list[SelectionPlan]]] = []
    populations = zip(population.known(), population.virtual(), population.losses(), strict=True)
    for costs, v, losses in populations:
        rules: list[tuple[Rule, Floats]] = [
            (population.rule, v),
            (population.rule, costs),  # JSAM-CI: cost in the place of virtual cost
            (unbiased(n), v),
            (Cheapest(members[0.5]), v),
            (Cheapest(members[0.75]), v),
            (largest_losses(losses, members[0.5]), v),
        ]
        rows.append([[rule.plan(x, float(e), scale) for e in eta] for rule, x in rules])

    def collect(what: Callable[[SelectionPlan], float]) -> Floats:
        return np.array([[[what(plan) for plan in line] for line in row] for row in rows])

    return MechanismCurves(
        eta,
        MECHANISMS,
        collect(lambda plan: plan.total),
        collect(lambda plan: plan.loss),
        collect(lambda plan: plan.objective),
    )
