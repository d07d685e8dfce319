"""Section VII: what more samples do for DP-FFL."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bonafed.papers.claim import Check, Claim, Row, at_most, estimate
from bonafed.papers.faithful.curves import LOCAL, PRIVATE, cells, curve, names, table
from bonafed.papers.faithful.presets import AS_BEFORE, BY_SAMPLES, NOISE_BEFORE

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def judge(rows: Sequence[Row]) -> list[Check]:
    """From the smallest n to the largest, DP-FFL changes by less than local learning."""
    return [
        at_most(
            f"gain in accuracy of {name} by more samples less that of local learning",
            estimate(curve(rows, name)[-1], "accuracy_less_local_since_first"),
            0.0,
        )
        for name in names(rows, PRIVATE)
    ]


def draw(rows: Sequence[Row]) -> Figure:
    """Accuracy."""
    from bonafed.papers.faithful.figures import accuracy_figure

    return accuracy_figure(rows)


CLAIM = Claim(
    identifier="faithful-private-samples",
    paper="faithful",
    place="section VII, on figure 3",
    says="The number of samples has a greater impact on local learning than on DP-FFL, too.",
    presets=BY_SAMPLES,
    rows=table("accuracy", less=(LOCAL,), since_first=True),
    judge=judge,
    draw=draw,
    control={"alphas": (10.0,)},
    cells=cells,
    erratum="F-D13",
    about=f"{AS_BEFORE}\n\n{NOISE_BEFORE}",
)
