"""Table 4: how many clients are no worse off by loss."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bonafed.papers.claim import Check, Claim, Results, Row, at_least, estimate
from bonafed.papers.rewards.printed import printed_mean
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
    """IPR_loss of every method in every setting."""
    return table(options, results, "ipr_loss")


def judge(found: Sequence[Row]) -> list[Check]:
    """Joining pays for everybody, by loss."""
    own = estimate(own_row(found), "ipr_loss")
    return [
        at_least(
            "IPR_loss of IAFL, mean over settings (no less than in print)", own, printed_mean("ipr_loss")
        ),
        highest_check(found, "ipr_loss"),
        *printed_checks(found, "ipr_loss", 0.05),
    ]


def draw(found: Sequence[Row]) -> Figure:
    """Every method in every setting."""
    from bonafed.papers.rewards.figures import table_figure

    return table_figure(found, "ipr_loss", "IPR_loss: share of clients no worse off")


CLAIM = Claim(
    identifier="rewards-table4",
    paper="rewards",
    place="table 4, appendix E.2",
    says="By the test loss nobody is worse off under IAFL, in all settings but one, and no other method is "
    "better in any setting.",
    presets=PRESETS,
    cells=cells,
    rows=rows,
    judge=judge,
    draw=draw,
    control={"noise": 5.0},
    erratum="R-17",
    about=ABOUT
    + """

The same as table 1 with the test loss in place of accuracy. Tolerance of printed numbers: 0.05, as all but
one of them are 1.00.""",
)
