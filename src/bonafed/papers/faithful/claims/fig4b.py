"""Figure 4b: accuracy against heterogeneity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bonafed.papers.claim import Check, Claim, Row, at_least, at_most, estimate
from bonafed.papers.faithful.curves import FFL, LOCAL, cells, curve, table
from bonafed.papers.faithful.presets import AS_BEFORE, BY_HETEROGENEITY

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def judge(rows: Sequence[Row]) -> list[Check]:
    """Local learning gains by heterogeneity, and is behind FFL where there is none."""
    local = curve(rows, LOCAL)
    return [
        at_most(
            "local learning's accuracy less FFL's, iid", estimate(local[0], "accuracy_less_ffl"), 0.0
        ),
        at_least(
            "change of local learning's accuracy from the least Delta to the largest",
            estimate(local[-1], "accuracy_since_first"), 0.0,
        ),
    ]  # fmt: skip


def draw(rows: Sequence[Row]) -> Figure:
    """Accuracy."""
    from bonafed.papers.faithful.figures import accuracy_figure

    return accuracy_figure(rows)


CLAIM = Claim(
    identifier="faithful-fig4b",
    paper="faithful",
    place="figure 4b, section VII",
    says="A larger Delta makes local data more useful: the test accuracy of local learning rises, from "
    "below FFL's.",
    presets=BY_HETEROGENEITY,
    rows=table("accuracy", less=(FFL,), since_first=True),
    judge=judge,
    draw=draw,
    control={"exchanged": "points"},
    cells=cells,
    about=AS_BEFORE,
)
