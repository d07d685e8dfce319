"""Section VII: whom Delta matters to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bonafed.papers.claim import Check, Claim, Row, at_most, estimate
from bonafed.papers.faithful.curves import FFL, LOCAL, PRIVATE, cells, curve, names, over, table
from bonafed.papers.faithful.presets import AS_BEFORE, BY_HETEROGENEITY

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NO_IMPACT = 0.25  # of what local learning changes by


def judge(rows: Sequence[Row]) -> list[Check]:
    """From the least Delta to the largest FFL and DP-FFL change by a quarter of local learning at most."""
    local = curve(rows, LOCAL)[-1]
    found = []
    for column, what in (("test_loss", "expected loss"), ("test_overall", "expected loss with payment")):
        theirs = estimate(local, f"{column}_since_first")
        for name in (FFL, *names(rows, PRIVATE)):
            change = estimate(curve(rows, name)[-1], f"{column}_since_first")
            share = over(change._replace(value=abs(change.value)), theirs._replace(value=abs(theirs.value)))
            words = f"change of {name}'s {what} with Delta, over local learning's"
            if column == "test_overall" or name == FFL:
                found.append(at_most(words, share, _NO_IMPACT))
            if column == "test_loss" and name == FFL:
                found.append(at_most(words, share, _NO_IMPACT, corrected=True))
    return found


def draw(rows: Sequence[Row]) -> Figure:
    """Training and expected losses."""
    from bonafed.papers.faithful.figures import loss_figure

    return loss_figure(rows)


CLAIM = Claim(
    identifier="faithful-heterogeneity",
    paper="faithful",
    place="section VII, on figure 4",
    says="Delta has an impact on local learning only, not on the proposed mechanisms.",
    presets=BY_HETEROGENEITY,
    rows=table("loss", "overall", "test_loss", "test_overall", less=(FFL, LOCAL), since_first=True),
    judge=judge,
    draw=draw,
    control={"exchanged": "schemes"},
    cells=cells,
    erratum="F-E16",
    about=AS_BEFORE
    + "\n\nNo impact is read as at most a quarter of what local learning changes by. The model of FFL does "
    "not depend on how samples are spread over agents of equal weight, up to their number; what they pay "
    "does: the others lose more by the presence of an agent that is unlike them. So the statement is true "
    "of losses, as corrected, and not of overall losses, which figure 4a draws.",
)
