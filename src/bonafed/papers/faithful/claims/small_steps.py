"""Section VII: few payment steps for little privacy given away."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bonafed.papers.claim import Check, Claim, Row, at_most, estimate
from bonafed.papers.faithful.curves import cells, curve, names, over, table
from bonafed.papers.faithful.presets import AS_BEFORE, BY_PRIVACY

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def judge(rows: Sequence[Row]) -> list[Check]:
    """At the least alpha the fewest steps have the least error, for every mu."""
    found = []
    for mu in dict.fromkeys(name.partition(", ")[2] for name in names(rows)):
        few, *more = (name for name in names(rows) if name.endswith(mu))
        least = curve(rows, few)[0]
        for name in more:
            row = curve(rows, name)[0]
            ratio = over(estimate(least, "error"), estimate(row, "error"))
            what = f"error of {few} over that of {name}, alpha {row['alpha']:g}"
            found.append(at_most(what, ratio, 1.0))
    return found


def draw(rows: Sequence[Row]) -> Figure:
    """Mean and spread of the error."""
    from bonafed.papers.faithful.figures import error_figure

    return error_figure(rows)


CLAIM = Claim(
    identifier="faithful-small-steps",
    paper="faithful",
    place="section VII, on figure 5a",
    says="To attain a reasonably small payment accuracy loss one should choose a small T2 for a small "
    "alpha.",
    presets=BY_PRIVACY,
    rows=table("error", "error_sd"),
    judge=judge,
    draw=draw,
    control={"payment_steps": (20, 2)},
    cells=cells,
    about=AS_BEFORE
    + "\n\nEvery step of phase II adds noise to the leave-one-out models; at alpha = 0.1 two steps are far "
    "better than twenty, for both mu.",
)
