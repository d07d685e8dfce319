"""After equation (19): many agents make one model worth it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from bonafed import checks
from bonafed.mechanisms.faithful.theory.bounds import AgentPopulation, federation_advantage
from bonafed.papers.claim import Check, Claim, Estimate, Results, Row, at_least, number
from bonafed.papers.tables import rising
from bonafed.sections import Section, flag, key

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Crowds(Section):
    """Federations of more and more agents that share the same number of samples."""

    agents: tuple[float, ...] = key(
        rising(), (2.0, 5.0, 10.0, 20.0, 50.0, 100.0), help="K of the points, 2 or more."
    )
    samples: int = key(checks.whole, 10_000, help="n, of all agents together.")
    delta: float = key(checks.number, 0.3, help="How unlike one another they are.")
    turned: bool = key(flag, False, help="Control: the axis the other way round.")


def rows(crowds: Crowds, _: Results) -> list[Row]:
    """(19), local minus federated, and its first term, which a federation of equals would have."""
    listed: list[Row] = []
    for size in crowds.agents:
        k = round(size)
        own = np.eye(10)[np.arange(k) % 10]
        unlike = (1 - crowds.delta) / 10 + crowds.delta * own
        terms = [
            federation_advantage(
                AgentPopulation(
                    np.full(k, 1 / k), np.full(k, crowds.samples / k), kinds, 2**0.5, 10, 0.1, 0.05
                )
            )
            for kinds in (np.full((k, 10), 0.1), unlike)
        ]
        listed.append({"agents": k, "noise_term": terms[0], "advantage": terms[1]})
    if crowds.turned:
        sizes = [row["agents"] for row in listed]
        listed = [{**row, "agents": k} for row, k in zip(listed[::-1], sizes, strict=True)]
    return listed


def judge(table: Sequence[Row]) -> list[Check]:
    """The first term always grows; with enough agents the federation has the smaller bound."""
    least = min(number(b, "noise_term") - number(a, "noise_term") for a, b in pairwise(table))
    return [
        at_least("least change of the first term of (19) where K grows", Estimate(least), 0.0),
        at_least(
            "(19), local less federated, most agents", Estimate(number(table[-1], "advantage")), 0.0
        ),
        at_least(
            "the same, less that with the fewest agents",
            Estimate(number(table[-1], "advantage") - number(table[0], "advantage")), 0.0,
        ),
    ]  # fmt: skip


def draw(table: Sequence[Row]) -> Figure:
    """(19) against K."""
    from bonafed.papers.faithful.figures import crowd_figure

    return crowd_figure(table)


CLAIM = Claim(
    identifier="faithful-many-agents",
    paper="faithful",
    place="text after equation 19",
    says="The first term of (19) always increases in K, so that federated learning is more likely to have "
    "the smaller risk bound when there are many agents.",
    presets={"smoke": Crowds(), "quick": Crowds(), "paper": Crowds()},
    rows=rows,
    judge=judge,
    draw=draw,
    control={"turned": True},
    about="Equation (19) is local minus federated, not the reverse as its text says (F-E10): positive "
    "where one model has the smaller bound. Ten classes, agents by their own class with Delta = 0.3; d = "
    "10, mu = 0.1, L_ell = sqrt(2), delta = 0.05.",
)
