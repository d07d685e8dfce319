"""Section VII: whom more samples help most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bonafed.papers.claim import Check, Claim, Row, at_most, estimate
from bonafed.papers.faithful.curves import FFL, LOCAL, MANIPULATED, cells, curve, table
from bonafed.papers.faithful.presets import AS_BEFORE, BY_SAMPLES

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def judge(rows: Sequence[Row]) -> list[Check]:
    """From the smallest n to the largest, FFL changes by less than either benchmark.

    What a benchmark has caught up with FFL is its own change less FFL's.
    """
    last = curve(rows, FFL)[-1]
    found = []
    for other in (LOCAL, MANIPULATED):
        beginning = other.split()[0]
        for column, what, sign in (("accuracy", "accuracy", 1), ("test_loss", "expected loss", -1)):
            ahead = estimate(last, f"{column}_less_{beginning}_since_first")
            change = ahead._replace(value=sign * ahead.value)
            found.append(at_most(f"gain of FFL by more samples less that of {other}: {what}", change, 0.0))
    return found


def draw(rows: Sequence[Row]) -> Figure:
    """Accuracy."""
    from bonafed.papers.faithful.figures import accuracy_figure

    return accuracy_figure(rows)


CLAIM = Claim(
    identifier="faithful-samples",
    paper="faithful",
    place="section VII, on figure 3",
    says="The number of samples has a greater impact on local learning and on manipulated FedAvg than on "
    "FFL.",
    presets=BY_SAMPLES,
    rows=table("accuracy", "test_loss", less=(LOCAL, MANIPULATED), since_first=True),
    judge=judge,
    draw=draw,
    control={"exchanged": "points"},
    cells=cells,
    about=AS_BEFORE
    + "\n\nCompared is the change from the smallest n to the largest, seed by seed; of the manipulated "
    "ones, the one with the largest gamma. What the same sentence says of DP-FFL is the claim "
    "faithful-private-samples.",
)
