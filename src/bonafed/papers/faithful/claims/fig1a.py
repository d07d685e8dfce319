"""Figure 1a: agents alike, and how much agent 1 gains by overstating."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bonafed.papers.claim import Check, Claim, Estimate, Row, at_least, at_most, number
from bonafed.papers.faithful.amplifying import ABOUT, Draws, readings, rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SLIGHTLY = 3.0  # the largest factor that is "slightly larger than 1", on an axis that reaches 1000


def judge(table: Sequence[Row]) -> list[Check]:
    """The best factors of the loss and of the bound are between 1 and 3."""
    found = []
    for reading in readings([*table]):
        row = next(row for row in table if row["reading"] == reading)
        for what, column in (("loss", "best_gamma"), ("bound", "best_of_printed_bound")):
            best = Estimate(number(row, column))
            found += [
                at_least(f"gamma that is best for the {what}, {reading}", best, 1.0),
                at_most(f"gamma that is best for the {what}, {reading}", best, _SLIGHTLY),
            ]
    return found


def draw(table: Sequence[Row]) -> Figure:
    """Loss and bound against gamma."""
    from bonafed.papers.faithful.figures import manipulation_figure

    return manipulation_figure(table)


CLAIM = Claim(
    identifier="faithful-fig1a",
    paper="faithful",
    place="figure 1a, text after proposition 3",
    says="Where the agents' data are alike (mean 0.1), the gammas that minimise agent 1's loss and its "
    "bound are both slightly larger than 1.",
    presets={"smoke": Draws(designs=200, points=13), "quick": Draws(), "paper": Draws()},
    rows=rows,
    judge=judge,
    draw=draw,
    control={"mean": 2.0},
    about=ABOUT + "\n\nSlightly is read as at most threefold, on an axis that reaches 1000.",
)
