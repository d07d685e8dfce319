"""Figure 4a: where learning alone overtakes joining."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from bonafed.papers.claim import Check, Claim, Estimate, Row, at_least, at_most, estimate, number, printed
from bonafed.papers.faithful.curves import FFL, LOCAL, break_even, cells, curve, table
from bonafed.papers.faithful.presets import AS_BEFORE, BY_HETEROGENEITY

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PAPER = 0.15
_READING = 0.05  # half of what a point of an axis with steps of 0.1 can be told to


def judge(rows: Sequence[Row]) -> list[Check]:
    """Joining is better at Delta 0, learning alone at the largest, and they cross where the paper says."""
    ffl = curve(rows, FFL)
    gaps = [estimate(row, "test_overall_less_local") for row in ffl]
    what = "FFL's expected loss with payment less local learning's, Delta"
    return [
        at_most(f"{what} {ffl[0]['delta']:g}", gaps[0], 0.0),
        at_least(f"{what} {ffl[-1]['delta']:g}", gaps[-1], 0.0),
        printed("Delta from which on learning alone is better", _crossing(rows, gaps), _PAPER, _READING),
    ]


def _crossing(rows: Sequence[Row], gaps: Sequence[Estimate]) -> Estimate:
    """Where the curves cross; its error is that of the gap there over the slope."""
    even = break_even(rows)
    if even is None:
        return Estimate(math.nan)
    at = [number(row, "delta") for row in curve(rows, FFL)]
    right = next(j for j, x in enumerate(at) if x >= even and j)
    slope = (gaps[right].value - gaps[right - 1].value) / (at[right] - at[right - 1])
    error = max(gaps[right].error, gaps[right - 1].error)
    return Estimate(even, abs(error / slope) if slope else 0.0, gaps[right].seeds)


def draw(rows: Sequence[Row]) -> Figure:
    """Training and expected losses."""
    from bonafed.papers.faithful.figures import loss_figure

    return loss_figure(rows)


CLAIM = Claim(
    identifier="faithful-fig4a",
    paper="faithful",
    place="figure 4a, section VII",
    says="In overall loss FFL outperforms local learning when Delta <= 0.15, and local learning FFL when "
    "Delta >= 0.15.",
    presets=BY_HETEROGENEITY,
    rows=table("loss", "overall", "test_loss", "test_overall", less=(FFL, LOCAL)),
    judge=judge,
    draw=draw,
    control={"exchanged": "schemes"},
    cells=cells,
    about=AS_BEFORE
    + "\n\nThe crossing is between two points of the axis, by interpolation; 0.05 is allowed for reading "
    "the paper's figure. At n = 10,000 only is the paper's number to be expected: with fewer samples "
    "learning alone is worth less, and the curves cross later.",
)
