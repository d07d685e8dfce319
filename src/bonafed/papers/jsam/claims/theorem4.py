"""Theorem 4: privacy budgets for a given selection and sum."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bonafed import checks
from bonafed.mechanisms.jsam.thresholds import budgets
from bonafed.papers.claim import Check, Claim, Estimate, Results, Row, at_least, at_most, number
from bonafed.sections import Section, key

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Splits(Section):
    """Random problems, and other ways to split the same sum."""

    instances: int = key(checks.whole, 200, help="How many problems.")
    tries: int = key(checks.whole, 2_000, help="Ways to split the sum in each.")
    power: float = key(checks.number, 1.0, help="Of the budgets (21). Control: they are turned round.")
    seed: int = key(checks.seed, 0, help="Of all of them.")


def rows(splits: Splits, _: Results) -> list[Row]:
    """The noise of (21) and the least that a search finds at the same sum."""
    rng = np.random.default_rng(splits.seed)
    made: list[Row] = []
    for number_of in range(splits.instances):
        n = int(rng.integers(2, 12))
        p, v, total = rng.dirichlet(np.ones(n)), 2 * rng.random(n) + 1e-3, float(10 ** rng.uniform(-1, 2))
        epsilon = budgets(p, v, total) ** splits.power
        epsilon *= total / (epsilon @ v)
        other = epsilon * np.exp(
            rng.normal(size=(splits.tries, n)) * 10 ** rng.uniform(-4, 0, (splits.tries, 1))
        )
        other *= (total / (other @ v))[:, None]
        least = float(((p / other) ** 2).sum(1).min())
        closed = float((np.cbrt(p * v) ** 2).sum() ** 3 / total**2)
        noise = float(((p / epsilon) ** 2).sum())
        made.append({
            "instance": number_of, "clients": n, "total": total, "noise": noise,
            "closed_form": noise / closed - 1, "search": least / noise - 1,
        })  # fmt: skip
    return made


def judge(table: Sequence[Row]) -> list[Check]:
    """Nothing is better, and the minimum is W^3/B^2."""
    off = max(abs(number(row, "closed_form")) for row in table)
    least = min(number(row, "search") for row in table)
    return [
        at_least("noise of another split over that of (21), less 1, least", Estimate(least), -_ROUNDING),
        at_most("noise of (21) over W^3/B^2: distance from 1, largest", Estimate(off), _ROUNDING),
    ]


def draw(table: Sequence[Row]) -> Figure:
    """How much worse the best other split is."""
    from bonafed.papers.jsam.figures import splits_figure

    return splits_figure(table)


CLAIM = Claim(
    identifier="jsam-theorem4",
    paper="jsam",
    place="theorem 4, (21), (22)",
    says="For given selection probabilities and a given sum, the privacy budgets (21) are optimal.",
    presets={
        "smoke": Splits(instances=20, tries=200),
        "quick": Splits(),
        "paper": Splits(),
    },
    rows=rows,
    judge=judge,
    draw=draw,
    control={"power": -1.0},
    about="""Random selections, virtual costs and sums. The budgets of (21) are held against others of
the same sum, near and far: none has a smaller sum of p^2/epsilon^2, which at (21) is W^3/B^2 with W =
sum (p_k v_k)^(2/3). That is the term of (22), where the factor Q is missing (erratum J-1).

The control turns the budgets round: much from the dear, little from the cheap.""",
)
