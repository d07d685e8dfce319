"""Theorems 1 and 2, corollary 1, proposition 2: what the bounds say of rates, rounds and recovery."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bonafed import checks
from bonafed.mechanisms.rewards.bounds import TrainingProblem, performance_bound, recovery_bound
from bonafed.mechanisms.rewards.section import unit
from bonafed.papers.claim import Check, Claim, Estimate, Results, Row, at_least, at_most, number, where
from bonafed.sections import Section, flag, key

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_RATES = (0.3, 0.5, 0.8, 1.0)  # induced rates of four clients
_PROBLEM = TrainingProblem(
    smoothness=4, strong_convexity=0.5, local_steps=3, heterogeneity=0.2, gradient_bound=1.5, variance=0.3,
    shift=45, start=2,
)  # fmt: skip
ALONE, RECOVERED, FULL = "theorem 1", "theorem 2", "corollary 1: all rates 1"


@dataclass(frozen=True)
class Bounds(Section):
    """What the bounds are computed for; the paper has no numbers."""

    rounds: int = key(lambda name, value: checks.whole(name, value, 100), 3200, help="The last T.")
    recovery: float = key(unit, 0.1, help="q of theorem 2.")
    backwards: bool = key(flag, False, help="Control: rounds and rates are read in the opposite order.")


def rows(options: Bounds, _: Results) -> list[Row]:
    """Bounds for every client, theorem and number of rounds."""
    found: list[Row] = []
    lengths = np.unique(np.geomspace(100, options.rounds, 6).round().astype(int)).tolist()
    read = lengths[::-1] if options.backwards else lengths
    clients = _RATES[::-1] if options.backwards else _RATES
    for rounds, length in zip(lengths, read, strict=True):
        rates = np.tile(clients, (length, 1))
        bounds = {
            ALONE: performance_bound(_PROBLEM, rates).bound,
            RECOVERED: recovery_bound(_PROBLEM, rates, 1.0, options.recovery).bound,
            FULL: performance_bound(_PROBLEM, np.ones_like(rates)).bound,
        }
        found += [
            {"theorem": name, "rounds": rounds, "rate": rate, "bound": float(value)}
            for name, values in bounds.items()
            for rate, value in zip(_RATES, values, strict=True)
        ]
    return found


def judge(found: Sequence[Row]) -> list[Check]:
    """Better for higher rates; without recovery towards 0 only if all rates are 1; with it, always."""
    last = max(number(row, "rounds") for row in found)
    steps = [
        float(np.diff([number(row, "bound") for row in where(found, theorem=name, rounds=int(last))]).max())
        for name in (ALONE, RECOVERED)
    ]

    def change(name: str) -> Estimate:
        own = [number(row, "bound") for row in where(found, theorem=name, rate=_RATES[0])]
        return Estimate(own[-1] / own[0])

    return [
        at_most("largest change of the bound of theorem 1 where a rate grows", Estimate(steps[0]), 0.0),
        at_most("largest change of the bound of theorem 2 where a rate grows", Estimate(steps[1]), 0.0),
        at_least("bound of theorem 1 after the last round over that after 100", change(ALONE), 1.0),
        at_most("the same of theorem 2", change(RECOVERED), 0.5),
        at_most("the same if all rates are 1", change(FULL), 0.5),
    ]


def draw(found: Sequence[Row]) -> Figure:
    """Bounds by rounds."""
    from bonafed.presentation.figures import COLOURS, STYLES, sheet

    picture = sheet(6.4, 4.0)
    axes = picture.subplots()
    for style, name in zip(STYLES, (ALONE, RECOVERED, FULL), strict=False):
        for colour, rate in zip(COLOURS, _RATES[:1] if name == FULL else _RATES, strict=False):
            own = where(found, theorem=name, rate=rate)
            x, y = ([number(row, column) for row in own] for column in ("rounds", "bound"))
            axes.loglog(
                x, y, style, color=colour, lw=1.3, label=name if name == FULL else f"{name}, rate {rate:g}"
            )
    axes.set_xlabel("rounds T")
    axes.set_ylabel("bound on the loss above the least")
    axes.legend(frameon=False, fontsize=7, ncols=2)
    return picture


CLAIM = Claim(
    identifier="rewards-theorem1",
    paper="rewards",
    place="theorems 1 and 2, corollary 1, proposition 2",
    says="Clients with higher reward rates have better guarantees; without recovery the bound does not "
    "vanish unless all rates are 1; with recovery it does.",
    presets={"smoke": Bounds(rounds=800), "quick": Bounds(), "paper": Bounds()},
    rows=rows,
    judge=judge,
    draw=draw,
    control={"backwards": True},
    about="""\
Bounds of four clients with the induced rates 0.3, 0.5, 0.8 and 1, by the corrected formulas (errata R-1
to R-10), for a problem with L = 4, mu = 0.5, three local steps, and a reference model of rate 1. What is
judged are the formulas. That theorem 1 is a bound at all supposes rewards with the same mean for all
clients, which is false (R-12): without recovery models drift to their clients' own optima.""",
)
