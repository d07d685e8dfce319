"""Figure 1c: the bound against delta."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bonafed.papers.claim import Check, Claim, Estimate, Results, Row, at_most, number, where
from bonafed.papers.faithful.amplifying import AS_BEFORE, Draws, readings
from bonafed.papers.faithful.manipulation import READINGS, Example, bound, constants, manipulation_curve
from bonafed.sections import flag, key

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_GAMMA = 3.0
_DELTAS = (0.001, 0.1)  # ends of the axis


@dataclass(frozen=True)
class Confidence(Draws):
    """The example of figure 1c."""

    logarithm: bool = key(flag, True, help="Control: without it, a bound by Chebyshev's inequality.")


def rows(draws: Confidence, _: Results) -> list[Row]:
    """Loss and bounds, which bound it, for every delta, three factors of 10 apart at most."""
    listed: list[Row] = []
    for reading, deviation in READINGS.items():
        example = Example(draws.mean, deviation)
        loss = manipulation_curve(example, _GAMMA, designs=draws.designs, seed=draws.seed).loss[0]
        for delta in np.geomspace(*_DELTAS, draws.points).tolist():
            ways = [
                constants(example, delta, printed=printed, logarithm=draws.logarithm)
                for printed in (True, False)
            ]
            printed, right = (
                float(example.noise[0].variance + bound(example, _GAMMA, way)[0]) for way in ways
            )
            row: Row = {"reading": reading, "delta": delta, "loss": float(loss)}
            listed.append(row | {"printed_bound": printed, "bound": right})
    return listed


def judge(table: Sequence[Row]) -> list[Check]:
    """A tenfold smaller delta moves the bound by less than twofold; at 0.01 it is of the loss's order."""
    found = []
    for reading in readings([*table]):
        mine = where(table, reading=reading)
        for kind, column in (("printed", "printed_bound"), ("the proof's", "bound")):
            grows = max(number(row, column) for row in mine) / min(number(row, column) for row in mine)
            decades = math.log10(_DELTAS[1] / _DELTAS[0])
            middle = mine[len(mine) // 2]  # of the axis: delta = 0.01
            tight = number(middle, column) / number(middle, "loss")
            found += [
                at_most(
                    f"growth of the bound by a tenfold smaller delta, {reading}, {kind} constants",
                    Estimate(grows ** (1 / decades) if grows > 0 else math.nan), 2.0,
                ),
                at_most(
                    f"bound over loss at delta 0.01, {reading}, {kind} constants", Estimate(tight), 10.0
                ),
            ]  # fmt: skip
    return found


def draw(table: Sequence[Row]) -> Figure:
    """Loss and bound against delta."""
    from bonafed.papers.faithful.figures import confidence_figure

    return confidence_figure(table)


CLAIM = Claim(
    identifier="faithful-fig1c",
    paper="faithful",
    place="figure 1c, text after proposition 3",
    says="delta has a small impact on the bound, being under a logarithm, and at 0.01 the bound is "
    "reasonably tight.",
    presets={
        "smoke": Confidence(designs=200, points=5),
        "quick": Confidence(points=41),
        "paper": Confidence(points=41),
    },
    rows=rows,
    judge=judge,
    draw=draw,
    control={"logarithm": False},
    about=AS_BEFORE
    + "\n\nSmall is read as less than twofold for a tenfold smaller delta, reasonably tight as at most ten "
    "times the loss; of the excess over the least possible loss, which is 0.01, the bound is hundreds.",
)
