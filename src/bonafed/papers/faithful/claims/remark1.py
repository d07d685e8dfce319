"""Remark 1: who is better off alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bonafed import checks
from bonafed.mechanisms.faithful.theory.bounds import AgentPopulation, federated_risk, local_risk
from bonafed.papers.claim import Check, Claim, Estimate, Results, Row, at_least, at_most, number
from bonafed.papers.tables import rising
from bonafed.sections import Section, key

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Federation(Section):
    """An agent among others who are alike."""

    others: int = key(lambda name, value: checks.whole(name, value, 2), 9, help="Agents beside it.")
    each: int = key(checks.whole, 200, help="Samples of each of them.")
    samples: tuple[float, ...] = key(
        rising(), (20.0, 100.0, 500.0, 2500.0, 12_500.0), help="Of the agent, on the axis."
    )
    apart: float = key(
        lambda name, value: checks.between(name, value, 0.0, 1.0), 1.0,
        help="How unlike the others' its data are at most; control: 0, not at all.",
    )  # fmt: skip


def rows(federation: Federation, _: Results) -> list[Row]:
    """The risk bounds (13) alone and (14) in the federation, for a typical agent and others."""
    listed: list[Row] = []
    for unlike in (0.0, federation.apart / 2, federation.apart):
        for samples in federation.samples:
            counts = np.array([samples, *[float(federation.each)] * federation.others])
            typical = np.array([0.5, 0.5])
            own = typical + unlike / 2 * np.array([1.0, -1.0])
            kinds = np.array([own, *[typical] * federation.others])
            population = AgentPopulation(counts / counts.sum(), counts, kinds, 2**0.5, 10, 0.1, 0.05)
            alone, together = (float(risk(population)[0]) for risk in (local_risk, federated_risk))
            listed.append({
                "unlike": unlike, "samples": samples, "alone": alone, "together": together,
                "gained_by_joining": alone - together,
            })  # fmt: skip
    return listed


def judge(table: Sequence[Row]) -> list[Check]:
    """The typical agent with few samples joins, the one that is neither does not."""
    gains = [Estimate(number(row, "gained_by_joining")) for row in table]
    return [
        at_least("risk bound alone less that of joining: typical, fewest samples", gains[0], 0.0),
        at_most("the same: least typical, most samples", gains[-1], -1e-9),
    ]


def draw(table: Sequence[Row]) -> Figure:
    """What is gained by joining."""
    from bonafed.papers.faithful.figures import joining_figure

    return joining_figure(table)


CLAIM = Claim(
    identifier="faithful-remark1",
    paper="faithful",
    place="remark 1",
    says="Federated learning disincentivises agents that are not typical and have sufficiently large data "
    "sets.",
    presets={"smoke": Federation(), "quick": Federation(), "paper": Federation()},
    rows=rows,
    judge=judge,
    draw=draw,
    control={"apart": 0.0},
    about="The risk bounds (13) and (14), printed constants, weights in proportion to samples; d = 10, mu "
    "= 0.1, L_ell = sqrt(2), delta = 0.05. The bounds say which is smaller, not which risk is.",
)
