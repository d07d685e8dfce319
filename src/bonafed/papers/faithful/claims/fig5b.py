"""Figure 5b: the error of payments against the number of clusters, without noise."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from bonafed.papers.claim import Check, Claim, Row, at_most, estimate, number
from bonafed.papers.faithful.curves import cells, curve, over, table
from bonafed.papers.faithful.presets import AS_BEFORE, BY_CLUSTERS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SMALL = 0.5  # of the error of the fewest clusters


def judge(rows: Sequence[Row]) -> list[Check]:
    """More clusters, less error; from four on, less than half of that of two."""
    points = curve(rows, "no noise")
    found = []
    for before, after in pairwise(points):
        change = estimate(after, "error_since_before")
        words = f"change of the error from L = {before['clusters']:.0f} to {after['clusters']:.0f}"
        found.append(at_most(words, change, 0.0))
    for row in points:
        if number(row, "clusters") >= 4:
            share = over(estimate(row, "error"), estimate(points[0], "error"))
            found.append(at_most(f"error at L = {row['clusters']:.0f} over that at 2", share, _SMALL))
    return found


def draw(rows: Sequence[Row]) -> Figure:
    """Mean and spread of the error."""
    from bonafed.papers.faithful.figures import error_figure

    return error_figure(rows)


CLAIM = Claim(
    identifier="faithful-fig5b",
    paper="faithful",
    place="figure 5b, section VII",
    says="Increasing the number of groups L reduces the payment accuracy loss, and L >= 4 is enough to "
    "keep it relatively small.",
    presets=BY_CLUSTERS,
    rows=table("error", "error_sd", "collected", since_before=True),
    judge=judge,
    draw=draw,
    control={"exchanged": "points"},
    cells=cells,
    about=AS_BEFORE
    + "\n\nJudged without noise, where clusters are all that errs; relatively small is read as less than "
    "half of the error of two clusters. What becomes of it in the noise of alpha = 0.1 is the claim "
    "faithful-private-clusters. Payments within clusters sum to less than zero for small L (F-D11, column "
    "collected), so that L = 4 is not enough for budget balance.",
)
