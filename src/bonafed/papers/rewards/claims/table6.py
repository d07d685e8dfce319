"""Table 6: average increase in accuracy over standalone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bonafed.papers.claim import Check, Claim, Results, Row, at_least, estimate
from bonafed.papers.rewards.tables import (
    ABOUT,
    PRESETS,
    Tables,
    cells,
    highest_check,
    own_row,
    printed_checks,
    table,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def rows(options: Tables, results: Results) -> list[Row]:
    """Increase over standalone of every method in every setting."""
    return table(options, results, "increase")


def judge(found: Sequence[Row]) -> list[Check]:
    """Joining raises accuracy, and by more than with any other method."""
    own = own_row(found)
    return [
        at_least("increase with IAFL, mean over settings", estimate(own, "increase"), 0.0),
        at_least("the same less that of the best other method", estimate(own, "lead"), 0.0),
        highest_check(found, "increase"),
        *printed_checks(found, "increase", 0.05),
    ]


def draw(found: Sequence[Row]) -> Figure:
    """Every method in every setting."""
    from bonafed.papers.rewards.figures import table_figure

    return table_figure(found, "increase", "increase over standalone, percentage points", 100.0)


CLAIM = Claim(
    identifier="rewards-table6",
    paper="rewards",
    place="table 6, appendix E.4",
    says="IAFL raises the accuracy of its clients over what they reach alone, in nearly all settings by "
    "more than any other method.",
    presets=PRESETS,
    cells=cells,
    rows=rows,
    judge=judge,
    draw=draw,
    control={"noise": 5.0},
    erratum="R-17",
    about=ABOUT
    + """

The order of methods is that of table 5, as all are compared with the same standalone models. Tolerance of
printed numbers: 5 percentage points.""",
)
