"""Table 1: how many clients are no worse off by accuracy."""

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
    """IPR_accu of every method in every setting."""
    return table(options, results, "ipr_accuracy")


def judge(found: Sequence[Row]) -> list[Check]:
    """Joining pays for nearly everybody, and with no other method for more."""
    own = estimate(own_row(found), "ipr_accuracy")
    least = printed_mean("ipr_accuracy")
    return [
        at_least("IPR_accu of IAFL, mean over settings (no less than in print)", own, least),
        highest_check(found, "ipr_accuracy"),
        *printed_checks(found, "ipr_accuracy", 0.1),
    ]


def draw(found: Sequence[Row]) -> Figure:
    """Every method in every setting."""
    from bonafed.papers.rewards.figures import table_figure

    return table_figure(found, "ipr_accuracy", "IPR_accu: share of clients no worse off")


CLAIM = Claim(
    identifier="rewards-table1",
    paper="rewards",
    place="table 1, section 6.1",
    says="Under IAFL nearly every client gets a model at least as accurate as the one it trains alone, and "
    "in 24 of 29 settings no other method does that for more clients.",
    presets=PRESETS,
    cells=cells,
    rows=rows,
    judge=judge,
    draw=draw,
    control={"noise": 5.0},
    about=ABOUT
    + """

IPR_accu is the share of clients whose model is no less accurate than the one they train alone. One client
of ten is a tenth of it, so at preset quick a setting moves in steps of 0.1. At the paper's size the
tolerance of a printed number is 0.1: optimizer and batch size are not in print.""",
)
