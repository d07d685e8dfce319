"""After theorem 4: the least sensitive clients may cost most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bonafed.papers.claim import Check, Claim, Results, Row, at_least, estimate, number, over_seeds
from bonafed.papers.jsam.plans import Population, cost_shares

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def rows(population: Population, _: Results) -> list[Row]:
    """Mean share of the money by client and weight, and how often the first has the largest."""
    table = cost_shares(population)
    planned, paid = table.first_is_dearest
    made: list[Row] = []
    for j, eta in enumerate(table.eta.tolist()):
        for k in range(population.clients):
            row: Row = {"eta": eta, "rank": k + 1, "selected": float(table.selected[:, j].mean())}
            row |= over_seeds("planned", table.planned[:, j, k].tolist())
            row |= over_seeds("paid", table.paid[:, j, k].tolist())
            row |= over_seeds("first_planned", planned[:, j].tolist())
            row |= over_seeds("first_paid", paid[:, j].tolist())
            made.append(row)
    return made


def judge(table: Sequence[Row]) -> list[Check]:
    """At the smallest weight, where few are selected, and for what is paid at every weight."""
    few = min(table, key=lambda row: number(row, "eta"))
    many = max(table, key=lambda row: number(row, "eta"))
    return [
        at_least(
            "few clients: how often the least sensitive has the largest epsilon v",
            estimate(few, "first_planned"),
            0.5,
        ),
        at_least(
            "few clients: how often it is paid most", estimate(few, "first_paid"), 0.5
        ),
        at_least("most clients: how often it is paid most", estimate(many, "first_paid"), 0.5),
    ]  # fmt: skip


def draw(table: Sequence[Row]) -> Figure:
    """Shares by client."""
    from bonafed.papers.jsam.figures import cost_shares_figure

    return cost_shares_figure(table)


CLAIM = Claim(
    identifier="jsam-least-sensitive",
    paper="jsam",
    place="abstract, after theorem 4",
    says="Clients with minimal privacy sensitivity may incur the highest monetary cost, as they are "
    "selected most often and sell most.",
    presets={
        "smoke": Population(clients=12, draws=8),
        "quick": Population(),
        "paper": Population(),
    },
    rows=rows,
    judge=judge,
    draw=draw,
    control={"alike": True},
    about="""Clients in the order of their sensitivity, at three weights: few, some, and all of them
selected. The paper's measure of a client's cost is epsilon_k v_k, its part of the expected money. By it
the least sensitive client costs most if and only if (N - h + 1) v_1 >= v_h, with h the number selected:
so while few are, and never once all are. By what it is paid it costs most at every weight. "May" is
read as: in more than half of the populations.

The control selects everybody alike: the first client then costs least by epsilon v.""",
)
