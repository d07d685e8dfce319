"""What JSAM buys for how much: four studies, each a table and a figure.

Every study draws populations of clients from a prior, makes the plans, and averages. What the paper says
about the same curves, and what the model gives (docs/theory/jsam.md, B8; erratum J-12):

    money against eta   "increases convexly" (Observation 5). It increases, as of two weights the larger one
                        buys at least as much. It is convex only while clients come in: for a uniform prior
                        and many clients, until 61 % are selected (eta = 0.36 z_1; for N = 100, Q = 1 about
                        3.4). At a fixed threshold eta = (B/z)^2 sqrt(l^2 B^2 + z^2) is convex in B, so B is
                        concave in eta; and once all are selected B = sqrt(eta z). The curve is an S.
    clients over money  "concave" (Observation 6). Holds for the mean, up to the steps of single clients.
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
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.economics.priors import Prior, Uniform
from bonafed.economics.registry import PRIOR_FORMS
from bonafed.economics.registry import prior as prior_rule
from bonafed.mechanisms.jsam import Cheapest, Jsam, Plan, Rule, allocate, largest_losses, settle, unbiased
from bonafed.mechanisms.jsam.payments import lowest_cost, virtual_costs_of
from bonafed.randomness import JsamStudy, generator
from bonafed.sections import Section, key
from bonafed.shown import Document
from bonafed.studies.grid import Average, Results, Row, Study, average, drawing, increasing, report, rows_of

MECHANISMS = ("JSAM", "complete information", "USBM", "FSBM-50", "FSBM-75", "BBM")


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

    def costs(self) -> Floats:
        """(draws, clients) sensitivities, ascending in each row."""
        rng = np.random.default_rng(self.seed)
        costs = np.array([self.prior.sample(rng, self.clients) for _ in range(self.draws)])
        return np.sort(costs, axis=1)

    def losses(self) -> Floats:
        """(draws, clients) local losses for BBM, drawn without regard to the sensitivities."""
        rng = generator(self.seed, JsamStudy.LOSSES)
        return rng.random((self.draws, self.clients))

    @property
    def unit(self) -> float:
        """Of eta and of money: in a large population all curves are the same in it."""
        return self.prior.high * math.sqrt(self.noise_scale * self.clients)


def _weights(population: Population, etas: ArrayLike | None) -> Floats:
    default = population.unit * np.geomspace(0.01, 10.0, 31)
    return increasing("etas", default if etas is None else np.asarray(etas), at_least=3)


# Money against eta


@dataclass(frozen=True, slots=True, eq=False)
class MoneyByWeight:
    """Expected money of the optimal plan for m weights."""

    eta: Floats  # (m,) ascending
    money: Average  # (m,) B
    selected: Average  # (m,) h, number of clients

    @property
    def convex(self) -> NDArray[np.bool_]:
        """(m-2,) whether mean money bends upwards at each inner point."""
        return np.asarray(np.diff(np.diff(self.money.mean) / np.diff(self.eta)) > 0)

    @property
    def convex_range(self) -> tuple[float, float] | None:
        """First and last weight of the longest range on which mean money bends upwards; None if nowhere."""
        edges = np.flatnonzero(np.diff(np.concatenate([[0], self.convex.astype(int), [0]])))
        if not edges.size:
            return None
        first, end = edges[::2], edges[1::2]
        at = int(np.argmax(end - first))
        return float(self.eta[first[at] + 1]), float(self.eta[end[at]])

    def to_rows(self) -> list[Row]:
        return rows_of(
            eta=self.eta, money=self.money.mean, money_sd=self.money.sd,
            selected=self.selected.mean, selected_sd=self.selected.sd,
        )  # fmt: skip


def money_by_weight(population: Population, etas: ArrayLike | None = None) -> MoneyByWeight:
    """Study (a): how much is spent, and on how many clients, as the weight of the loss grows."""
    eta = _weights(population, etas)
    plans = [[allocate(v, e, population.noise_scale) for e in eta] for v in _virtual(population)]
    money = np.array([[plan.total for plan in row] for row in plans])
    selected = np.array([[float(plan.threshold) for plan in row] for row in plans])
    return MoneyByWeight(eta, average(money), average(selected))


def _virtual(population: Population) -> Floats:
    return virtual_costs_of(population.costs(), population.prior)


def _lifted_costs(population: Population) -> Floats:
    """Costs in the place of virtual costs (JSAM-CI), lifted to the floor of `settle`."""
    return np.maximum(population.costs(), lowest_cost(population.prior))


# Clients against money


@dataclass(frozen=True, slots=True, eq=False)
class SelectedByMoney:
    """How many clients the largest weight within the money selects, for m sums of money."""

    money: Floats  # (m,) ascending
    selected: Average  # (m,) JSAM
    complete: Average  # (m,) if the sensitivities were known

    @property
    def concave(self) -> NDArray[np.bool_]:
        """(m-2,) whether the mean number for JSAM bends downwards, or not at all, at each inner point."""
        slope = np.diff(self.selected.mean) / np.diff(self.money)
        return np.asarray(np.diff(slope) <= 1e-12 * slope[:-1])

    def to_rows(self) -> list[Row]:
        return rows_of(
            money=self.money, selected=self.selected.mean, selected_sd=self.selected.sd,
            complete=self.complete.mean, complete_sd=self.complete.sd,
        )  # fmt: skip


def selected_by_money(
    population: Population, money: ArrayLike | None = None, *, steps: int = 160
) -> SelectedByMoney:
    """Study (b): how many clients a sum of money reaches.

    Both B and h grow along eta, so of `steps` weights the largest whose plan stays within the money is
    taken. Where not even the smallest does, nobody is selected.
    """
    default = population.unit * 1.6 * np.linspace(1 / 24, 1.0, 24) ** 2
    sums = increasing("money", default if money is None else np.asarray(money), at_least=3)
    eta = population.unit * np.geomspace(1e-3, 4.0, checks.whole("steps", steps, at_least=2))

    def clients_within(costs: Floats) -> Floats:
        plans = [allocate(costs, e, population.noise_scale) for e in eta]
        within = np.searchsorted([plan.total for plan in plans], sums, side="right")
        return np.array([0.0, *(plan.threshold for plan in plans)])[within]

    virtual = np.array([clients_within(v) for v in _virtual(population)])
    complete = np.array([clients_within(c) for c in _lifted_costs(population)])
    return SelectedByMoney(sums, average(virtual), average(complete))


# Share of the cost by client


@dataclass(frozen=True, slots=True, eq=False)
class CostShares:
    """Who gets the money, for m weights and N clients in the order of their sensitivity."""

    eta: Floats  # (m,)
    selected: Average  # (m,) h
    planned: Average  # (m, N) epsilon_k v_k/B: the share of expected money
    paid: Average  # (m, N) share of the payments
    first_is_dearest: Floats  # (m, 2) share of draws in which client 1 has the largest: planned, paid

    def to_rows(self) -> list[Row]:
        m, n = self.paid.mean.shape
        return rows_of(
            eta=np.repeat(self.eta, n), selected=np.repeat(self.selected.mean, n),
            rank=np.tile(np.arange(1, n + 1), m),
            planned=self.planned.mean.ravel(), planned_sd=self.planned.sd.ravel(),
            paid=self.paid.mean.ravel(), paid_sd=self.paid.sd.ravel(),
            first_is_dearest_planned=np.repeat(self.first_is_dearest[:, 0], n),
            first_is_dearest_paid=np.repeat(self.first_is_dearest[:, 1], n),
        )  # fmt: skip


def cost_shares(population: Population, etas: ArrayLike | None = None) -> CostShares:
    """Study (c): which client costs most.

    The plan spends (p_k v_k)^(2/3) B/W on client k. From client 2 to h this grows with v, and client 1 has
    the largest if and only if (N-h+1) v_1 >= v_h.
    """
    default = population.unit * np.array([0.03, 0.1, 1.0])
    eta = increasing("etas", default if etas is None else np.asarray(etas))
    shape = (population.draws, eta.size, population.clients)
    planned, paid, selected = np.empty(shape), np.empty(shape), np.empty(shape[:2])
    for i, (costs, v) in enumerate(zip(population.costs(), _virtual(population), strict=True)):
        for j, e in enumerate(eta):
            bought = settle(costs, population.prior, e, population.noise_scale)
            planned[i, j] = bought.allocation.privacy * v / bought.allocation.total
            paid[i, j] = bought.payment / bought.spend
            selected[i, j] = bought.allocation.threshold
    first = np.stack([(part.argmax(2) == 0).mean(0) for part in (planned, paid)], axis=1)
    return CostShares(eta, average(selected), average(planned), average(paid), first)


# Mechanisms side by side


@dataclass(frozen=True, slots=True, eq=False)
class MechanismCurves:
    """Six mechanisms at the same m weights."""

    eta: Floats  # (m,)
    names: tuple[str, ...]  # (6,)
    money: Average  # (6, m) expected money
    loss: Average  # (6, m) the bound on the training loss, (14) of the paper
    objective: Average  # (6, m) eta times loss, plus money
    excess: Average  # (6, m) objective over JSAM's of the same draw, minus 1

    def to_rows(self) -> list[Row]:
        k, m = self.money.mean.shape
        columns: dict[str, Floats] = {}
        for name in ("money", "loss", "objective", "excess"):
            part: Average = getattr(self, name)
            columns |= {name: part.mean.ravel(), name + "_sd": part.sd.ravel()}
        rows = rows_of(eta=np.tile(self.eta, k), **columns)
        return [{"mechanism": self.names[i // m], **row} for i, row in enumerate(rows)]

    def loss_at(self, name: str, money: ArrayLike) -> Floats:
        """Mean loss of one mechanism at given money, between the points measured; NaN outside them."""
        at = self.names.index(checks.one_of("name", name, self.names))
        x, y = self.money.mean[at], self.loss.mean[at]
        return np.asarray(np.interp(np.asarray(money, dtype=np.float64), x, y, left=np.nan, right=np.nan))


def mechanism_curves(population: Population, etas: ArrayLike | None = None) -> MechanismCurves:
    """Study (d): JSAM and its baselines.

    FSBM-50 and FSBM-75 take the cheapest 50 % and 75 %; BBM the half with the largest local losses, which
    are drawn independently of the sensitivities. Complete information pays everyone just its cost.
    """
    eta = _weights(population, etas)
    n, scale = population.clients, population.noise_scale
    members = {share: max(1, round(n * share)) for share in (0.5, 0.75)}
    rows: list[list[list[Plan]]] = []
    populations = zip(_lifted_costs(population), _virtual(population), population.losses(), strict=True)
    for costs, v, losses in populations:
        rules: list[tuple[Rule, Floats]] = [
            (Jsam(), v),
            (Jsam(), costs),  # JSAM-CI: cost in the place of virtual cost
            (unbiased(n), v),
            (Cheapest(members[0.5]), v),
            (Cheapest(members[0.75]), v),
            (largest_losses(losses, members[0.5]), v),
        ]
        rows.append([[rule.plan(x, e, scale) for e in eta] for rule, x in rules])

    def collect(what: Callable[[Plan], float]) -> Floats:
        return np.array([[[what(plan) for plan in line] for line in row] for row in rows])

    value = collect(lambda plan: plan.objective)
    return MechanismCurves(
        eta,
        MECHANISMS,
        average(collect(lambda plan: plan.total)),
        average(collect(lambda plan: plan.loss)),
        average(value),
        average(value / value[:, :1] - 1),
    )


# What is shown


def _study(
    summary: str, table: Callable[[Population], Any], draw: str, example: str, note: Callable[[Any], str]
) -> Study:
    """Of a table that needs nothing but a population; `draw` is a function of `jsam_figures`."""

    def show(population: Population, _: Results) -> Document:
        result = table(population)
        return report(
            summary, result.to_rows(), drawing(f"jsam.figures.{draw}", result), notes=(note(result),)
        )

    paper = {"prior": Uniform(0.0, 1.0), "clients": 100}
    return Study(summary, Population, show, example=f"bonafed reproduce {example}", paper=paper)


def _note_on_weights(table: MoneyByWeight) -> str:
    bends = table.convex_range
    if bends is None:
        return "Mean money bends upwards nowhere."
    return f"Mean money bends upwards for eta from {bends[0]:.3g} to {bends[1]:.3g}, and downwards after."


def _note_on_money(table: SelectedByMoney) -> str:
    share = float(table.concave.mean())
    return f"The mean number of clients bends downwards, or not at all, at {share:.0%} of the inner points."


def _note_on_shares(table: CostShares) -> str:
    each = [
        f"eta {eta:.3g}: {planned:.0%} as planned, {paid:.0%} as paid"
        for eta, (planned, paid) in zip(table.eta, table.first_is_dearest, strict=True)
    ]
    return "How often the least sensitive client has the largest share: " + "; ".join(each) + "."


def _note_on_mechanisms(table: MechanismCurves) -> str:
    most = dict(zip(table.names, table.excess.mean.max(1), strict=True))
    each = [f"{name} {most[name]:.1%}" for name in table.names if name != "JSAM"]
    return "Objective above JSAM's at the same weight, at most: " + ", ".join(each) + "."


BY_WEIGHT = _study(
    "Money of the optimal plan by the weight of the loss", money_by_weight, "money_by_weight_figure",
    "jsam-money --plot money.png", _note_on_weights,
)  # fmt: skip
BY_MONEY = _study(
    "Clients that a sum of money reaches", selected_by_money, "selected_by_money_figure",
    "jsam-clients --noise-scale 8", _note_on_money,
)  # fmt: skip
SHARES = _study(
    "Share of the money by client, least sensitive first", cost_shares, "cost_shares_figure",
    "jsam-shares --clients 20", _note_on_shares,
)  # fmt: skip
RULES = _study(
    "JSAM and its baselines at equal weights", mechanism_curves, "mechanism_curves_figure",
    "jsam-mechanisms --draws 20", _note_on_mechanisms,
)  # fmt: skip
