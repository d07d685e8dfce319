"""Figure 3a: losses against the number of samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bonafed.papers.claim import Check, Claim, Row, at_least, at_most, estimate
from bonafed.papers.faithful.curves import FFL, LOCAL, MANIPULATED, cells, curve, names, table
from bonafed.papers.faithful.presets import BY_SAMPLES, SETTING

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def judge(rows: Sequence[Row]) -> list[Check]:
    """FFL is below manipulated FedAvg and local learning at every n."""
    found = []
    for name in names(rows, MANIPULATED):
        for row in curve(rows, name):
            for column, what in (("loss", "global loss"), ("test_loss", "expected loss")):
                above = estimate(row, f"{column}_less_ffl")
                found.append(at_least(f"{what} of {name} less FFL's, n {row['samples']:.0f}", above, 0.0))
    for row in curve(rows, FFL):
        what = f"FFL's expected loss with payment less local learning's, n {row['samples']:.0f}"
        found.append(at_most(what, estimate(row, "test_overall_less_local"), 0.0))
    return found


def draw(rows: Sequence[Row]) -> Figure:
    """Training and expected losses."""
    from bonafed.papers.faithful.figures import loss_figure

    return loss_figure(rows)


CLAIM = Claim(
    identifier="faithful-fig3a",
    paper="faithful",
    place="figure 3a, section VII",
    says="FFL has a lower global loss than FedAvg manipulated by one agent, and a lower overall loss than "
    "local learning, for every number of samples.",
    presets=BY_SAMPLES,
    rows=table("loss", "overall", "test_loss", "test_overall", less=(FFL, LOCAL)),
    judge=judge,
    draw=draw,
    control={"exchanged": "schemes"},
    cells=cells,
    about=SETTING
    + "\n\nWhat the same figure says of DP-FFL are the claims faithful-private-manipulated and "
    "faithful-private-local.",
)
