"""Figure 3b: DP-FFL against local learning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bonafed.papers.claim import Check, Claim, Row, at_least, estimate
from bonafed.papers.faithful.curves import LOCAL, PRIVATE, cells, curve, names, table
from bonafed.papers.faithful.presets import AS_BEFORE, BY_SAMPLES, NOISE

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def judge(rows: Sequence[Row]) -> list[Check]:
    """At every n."""
    return [
        at_least(
            f"accuracy of {name} less that of local learning, n {row['samples']:.0f}",
            estimate(row, "accuracy_less_local"),
            0.0,
        )
        for name in names(rows, PRIVATE)
        for row in curve(rows, name)
    ]


def draw(rows: Sequence[Row]) -> Figure:
    """Accuracy."""
    from bonafed.papers.faithful.figures import accuracy_figure

    return accuracy_figure(rows)


CLAIM = Claim(
    identifier="faithful-private-local",
    paper="faithful",
    place="figure 3, section VII",
    says="DP-FFL with alpha = 0.1, too, outperforms local learning, for every number of samples.",
    presets=BY_SAMPLES,
    rows=table("test_loss", "accuracy", less=(LOCAL,)),
    judge=judge,
    draw=draw,
    control={"exchanged": "points"},
    cells=cells,
    erratum="F-D13",
    about=f"{AS_BEFORE}\n\n{NOISE}",
)
