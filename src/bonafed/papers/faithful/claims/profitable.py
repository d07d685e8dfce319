"""Section VII: accuracy and profit agree."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bonafed.papers.claim import Check, Claim, Estimate, Row, at_most, estimate, number
from bonafed.papers.faithful.curves import FFL, LOCAL, cells, curve, table
from bonafed.papers.faithful.presets import AS_BEFORE, BY_HETEROGENEITY

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def judge(rows: Sequence[Row]) -> list[Check]:
    """At every Delta where FFL is the more accurate one, its overall loss is the lower one."""
    better = [row for row in curve(rows, FFL) if number(row, "accuracy_less_local") > 0]
    if not better:  # nothing speaks for it
        return [at_most("points where FFL is not the more accurate one", Estimate(float(len(rows))), 0.0)]
    return [
        at_most(
            f"FFL's expected loss with payment less local learning's, Delta {row['delta']:g}",
            estimate(row, "test_overall_less_local"),
            0.0,
        )
        for row in better
    ]


def draw(rows: Sequence[Row]) -> Figure:
    """Both differences."""
    from bonafed.papers.faithful.figures import profit_figure

    return profit_figure(rows)


CLAIM = Claim(
    identifier="faithful-profitable",
    paper="faithful",
    place="section VII, on figure 4",
    says="Whenever local learning is less accurate than FFL on test samples, FFL is more profitable for "
    "individual agents.",
    presets=BY_HETEROGENEITY,
    rows=table("accuracy", "test_overall", less=(LOCAL,)),
    judge=judge,
    draw=draw,
    control={"exchanged": "schemes"},
    cells=cells,
    erratum="F-E16",
    about=AS_BEFORE
    + "\n\nThe two cross at different Delta: in loss, where agents pay, learning alone overtakes FFL "
    "early; in accuracy only where an agent's own class is most of what it sees. Between the two FFL is "
    "more accurate and less profitable.",
)
