"""Figure 5b: the error of private payments against the number of clusters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bonafed.papers.claim import Check, Claim, Row, at_most, estimate, number
from bonafed.papers.faithful.curves import PRIVATE, cells, curve, names, over, table
from bonafed.papers.faithful.presets import AS_BEFORE, BY_CLUSTERS, NOISE_BEFORE

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SMALL = 0.5  # of the error of the fewest clusters, as without noise


def judge(rows: Sequence[Row]) -> list[Check]:
    """From four clusters on, less than half of the error of two."""
    found = []
    for name in names(rows, PRIVATE):
        first, *rest = curve(rows, name)
        for row in [row for row in rest if number(row, "clusters") >= 4] or rest:
            share = over(estimate(row, "error"), estimate(first, "error"))
            what = f"error at L = {row['clusters']:.0f} over that at 2, {name}"
            found.append(at_most(what, share, _SMALL))
    return found


def draw(rows: Sequence[Row]) -> Figure:
    """Mean and spread of the error."""
    from bonafed.papers.faithful.figures import error_figure

    return error_figure(rows)


CLAIM = Claim(
    identifier="faithful-private-clusters",
    paper="faithful",
    place="figure 5b, section VII",
    says="With alpha = 0.1, too, L >= 4 groups are enough to keep the payment accuracy loss relatively "
    "small.",
    presets=BY_CLUSTERS,
    rows=table("error", "error_sd", "collected"),
    judge=judge,
    draw=draw,
    control={"exchanged": "points"},
    cells=cells,
    erratum="F-D13",
    about=f"{AS_BEFORE}\n\n{NOISE_BEFORE}\n\n"
    "The error of a payment at alpha = 0.1 is mostly noise. From two clusters to some more it falls by "
    "less than half, and then rises again: every further cluster takes T2 more noisy sums, and so asks for "
    "more noise in each.",
)
