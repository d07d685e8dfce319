"""Lemma 2, theorem 2, proposition 1: nobody gains by a lie, nobody loses, and money is that of the plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from bonafed import checks
from bonafed.checks import Floats
from bonafed.mechanisms.jsam import settle
from bonafed.mechanisms.jsam.controls import PayAsBid
from bonafed.papers.claim import (
    Check,
    Claim,
    Estimate,
    Results,
    Row,
    at_least,
    at_most,
    estimate,
    number,
    over_seeds,
    within,
)
from bonafed.papers.jsam.plans import Population
from bonafed.sections import flag, key

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ROUNDING = 1e-9
_NEAR = 0.1  # of the plans' money: what the draws of the presets can tell apart


@dataclass(frozen=True)
class Lies(Population):
    """Populations whose clients try reports other than the truth."""

    clients: int = key(lambda name, value: checks.whole(name, value, 2), 10, help="How many.")
    draws: int = key(
        lambda name, value: checks.whole(name, value, 2), 10, help="Populations that try to lie."
    )
    averaged: int = key(checks.whole, 400, help="Populations whose payments are averaged.")
    eta: float = key(checks.positive, 1.0, help="Weight of the training loss.")
    reports: int = key(lambda name, value: checks.whole(name, value, 3), 41, help="Reports tried by each.")
    as_bid: bool = key(flag, False, help="Control: pay report times epsilon.")


def rows(lies: Lies, _: Results) -> list[Row]:
    """By client: the best gain of a lie, the least utility of the truth, the largest rise of epsilon in the
    report; and the mean of all payments over that of the plans."""
    many = replace(lies, draws=lies.averaged)
    paid = [float(_outcome(lies, costs)[1].sum()) for costs in many.costs()]
    planned = [
        float((_outcome(lies, costs)[0] * v).sum())
        for costs, v in zip(many.costs(), many.virtual(), strict=True)
    ]
    mean = float(np.mean(planned))
    money = over_seeds("surplus", [(a - b) / mean for a, b in zip(paid, planned, strict=True)])
    return [{"client": k + 1, **_tempted(lies, k), **money} for k in range(lies.clients)]


def _tempted(lies: Lies, k: int) -> Row:
    """What client k can get by a lie, in the worst of all populations."""
    gains, utilities, rises = [], [], []
    for costs in lies.costs():
        told = []
        for report in (costs[k], *np.linspace(0.0, lies.prior.high, lies.reports)):
            others = costs.copy()
            others[k] = report
            told.append([part[k] for part in _outcome(lies, others)])
        sold, paid = np.array(told).T
        utility = paid - costs[k] * sold
        gains.append(float(utility.max() - utility[0]))
        utilities.append(float(utility[0]))
        rises.append(float(np.diff(sold[1:]).max()))
    return {"gain": max(gains), "least_utility": min(utilities), "rise": max(rises)}


def _outcome(lies: Lies, reports: Floats) -> tuple[Floats, Floats]:
    """(N,) epsilon and payment."""
    if lies.as_bid:
        bought = PayAsBid(lies.prior, lies.eta, lies.noise_scale).allocate(np.maximum(reports, 1e-6))
        return bought.quantity, bought.transfer
    settled = settle(reports, lies.prior, lies.eta, lies.noise_scale)
    return settled.allocation.privacy, settled.payment


def judge(table: Sequence[Row]) -> list[Check]:
    """The best lie, the worst truth, and the money."""
    gain, rise = (Estimate(max(number(row, name) for row in table)) for name in ("gain", "rise"))
    least = Estimate(min(number(row, "least_utility") for row in table))
    money = estimate(table[0], "surplus")
    return [
        at_most("IC: largest gain of a lie, in money", gain, _ROUNDING),
        at_least("IR: least utility of whoever tells the truth", least, -_ROUNDING),
        at_most("proposition 1: largest rise of epsilon where the own report grows", rise, _ROUNDING),
        within("theorem 2: mean payments less mean epsilon v, relative", money, 0.0, _NEAR),
    ]


def draw(table: Sequence[Row]) -> Figure:
    """Gains and utilities by client."""
    from bonafed.papers.jsam.figures import lies_figure

    return lies_figure(table)


CLAIM = Claim(
    identifier="jsam-truthful",
    paper="jsam",
    place="lemma 2, theorem 2, proposition 1",
    says="Every client does best to report its true sensitivity and never loses; epsilon falls in the own "
    "report; and the expected payments are the expected sum of epsilon times virtual cost.",
    presets={
        "smoke": Lies(clients=4, draws=2, averaged=60, reports=7),
        "quick": Lies(),
        "paper": Lies(clients=100, averaged=100),
    },
    rows=rows,
    judge=judge,
    draw=draw,
    control={"as_bid": True},
    about="""Every client of every population tries reports across the whole range while the others tell
the truth. The payments are the ex-post ones, c_k epsilon_k plus the integral of epsilon_k over higher
reports up to the highest cost: lies do not pay whatever the others report, which is more than the
Bayesian notion of the paper asks for (erratum J-8 lists what is imprecise in its statement). Their sum
is not that of the plan for given costs, only in the mean.

The control pays every client its report times epsilon.""",
)
