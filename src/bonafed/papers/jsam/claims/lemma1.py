"""Lemma 1 and (8): whether the noise keeps its promise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bonafed import checks
from bonafed.learning.privacy import noise_multiplier, spent_epsilon
from bonafed.papers.claim import Check, Claim, Estimate, Results, Row, at_most, number
from bonafed.papers.tables import several
from bonafed.sections import Section, key

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Sold(Section):
    """Privacy that is sold for a run."""

    epsilon: tuple[float, ...] = key(
        several(checks.positive), (0.1, 0.3, 1.0, 3.0, 5.0, 10.0, 20.0, 50.0), help="Sold."
    )
    releases: int = key(checks.whole, 1000, help="T_k, how often a client is drawn.")
    delta: float = key(checks.positive, 1e-5, help="Of differential privacy.")
    share: float = key(checks.positive, 1.0, help="Of the noise. Control: half of it.")


def rows(sold: Sold, _: Results) -> list[Row]:
    """What is really spent under both noises."""
    made: list[Row] = []
    for epsilon in sold.epsilon:
        row: Row = {"sold": epsilon}
        for variant in ("printed", "exact"):
            sigma = sold.share * noise_multiplier(epsilon, sold.delta, sold.releases, variant=variant)
            spent = spent_epsilon(sigma, sold.releases, sold.delta)
            row |= {f"noise_{variant}": sigma, f"spent_{variant}": spent}
        made.append(row)
    return made


def judge(table: Sequence[Row]) -> list[Check]:
    """Spent over sold, at worst."""
    worst = {
        name: Estimate(max(_over(number(row, f"spent_{name}"), number(row, "sold")) for row in table))
        for name in ("printed", "exact")
    }
    return [
        at_most("epsilon spent over epsilon sold, noise of (8), largest", worst["printed"], 1.0),
        at_most("the same with exact noise", worst["exact"], 1 + _ROUNDING, corrected=True),
    ]


def _over(spent: float, sold: float) -> float:
    return spent / sold if sold else math.inf


def draw(table: Sequence[Row]) -> Figure:
    """Spent against sold."""
    from bonafed.papers.jsam.figures import spent_figure

    return spent_figure(table)


CLAIM = Claim(
    identifier="jsam-lemma1",
    paper="jsam",
    place="lemma 1, (8)",
    says="Noise of variance c_2^2 T_k log(1/delta)/epsilon_k^2 makes T_k releases of client k (epsilon_k, "
    "delta)-differentially private.",
    presets={"smoke": Sold(), "quick": Sold(), "paper": Sold()},
    rows=rows,
    judge=judge,
    draw=draw,
    control={"share": 0.5},
    erratum="J-13",
    about="""What a client really gives away in T_k releases, by exact accounting of Gaussian noise. The
paper leaves c_2 open; sqrt(2) is what zero-concentrated privacy needs as epsilon goes to 0. With it (8)
wastes noise below epsilon 8 and breaks the promise beyond. A larger constant moves the place where it
breaks, since sigma times epsilon grows without bound. Noise found from the exact equation keeps the
promise at every epsilon.

The control adds half of the noise.""",
)
