"""Figure 3b: accuracy against the number of samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bonafed.papers.claim import Check, Claim, Row, at_most, estimate
from bonafed.papers.faithful.curves import FFL, LOCAL, MANIPULATED, cells, curve, names, table
from bonafed.papers.faithful.presets import AS_BEFORE, BY_SAMPLES

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def judge(rows: Sequence[Row]) -> list[Check]:
    """Both benchmarks are below FFL at every n."""
    return [
        at_most(
            f"accuracy of {name} less FFL's, n {row['samples']:.0f}",
            estimate(row, "accuracy_less_ffl"),
            0.0,
        )
        for name in (*names(rows, MANIPULATED), LOCAL)
        for row in curve(rows, name)
    ]


def draw(rows: Sequence[Row]) -> Figure:
    """Accuracy."""
    from bonafed.papers.faithful.figures import accuracy_figure

    return accuracy_figure(rows)


CLAIM = Claim(
    identifier="faithful-fig3b",
    paper="faithful",
    place="figure 3b, section VII",
    says="FFL is more accurate on test samples than manipulated FedAvg and than local learning, for every "
    "number of samples.",
    presets=BY_SAMPLES,
    rows=table("accuracy", less=(FFL,)),
    judge=judge,
    draw=draw,
    control={"exchanged": "schemes"},
    cells=cells,
    about=AS_BEFORE
    + "\n\nThe paper calls the harm of one manipulating agent significant. At its n = 10,000 and Delta = "
    "0.05 that needs a large gamma: the figure has what gamma = 10 and 100 do. With a step of 1/L_g "
    "training itself diverges for gamma > 1 + 1/p_k = 11; the fixed point is what a smaller step reaches.",
)
