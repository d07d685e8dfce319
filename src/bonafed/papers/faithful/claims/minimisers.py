"""After figure 1: the loss and its bound have close minimisers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from bonafed.papers.claim import Check, Claim, Estimate, Results, Row, at_most, number
from bonafed.papers.faithful.amplifying import AS_BEFORE, Draws
from bonafed.papers.faithful.amplifying import rows as one_mean
from bonafed.papers.faithful.manipulation import MEANS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_CLOSE = math.log10(3.0)  # a factor of 3 either way, as "slightly larger" in figure 1a


def rows(draws: Draws, results: Results) -> list[Row]:
    """The best factors of the loss and of the bounds, by reading, alike and apart."""
    listed: list[Row] = []
    for mean in (MEANS[0], draws.mean):
        for row in one_mean(replace(draws, mean=mean, points=3), results):
            if row["gamma"] is not None:
                continue
            best = number(row, "best_gamma")
            bounds = ("best_of_printed_bound", "best_of_bound")
            apart = min(abs(math.log10(best / number(row, column))) for column in bounds)
            kept = ("reading", "best_gamma", *bounds)
            listed.append({"mean": mean, **{name: row[name] for name in kept}, "decades_apart": apart})
    return listed


def judge(table: Sequence[Row]) -> list[Check]:
    """Within a factor of 3, with whichever constants are closer."""
    return [
        at_most(
            f"decades between the minimisers, mean {row['mean']}, {row['reading']}",
            Estimate(number(row, "decades_apart")),
            _CLOSE,
        )
        for row in table
    ]


def draw(table: Sequence[Row]) -> Figure:
    """The best factors side by side."""
    from bonafed.papers.faithful.figures import minimisers_figure

    return minimisers_figure(table)


CLAIM = Claim(
    identifier="faithful-minimisers",
    paper="faithful",
    place="text after proposition 3, on figure 1",
    says="The bound of Proposition 3 and the loss it bounds tend to have close minimisers in gamma.",
    presets={
        "smoke": Draws(mean=MEANS[1], designs=200, points=3),
        "quick": Draws(mean=MEANS[1], points=3),
        "paper": Draws(mean=MEANS[1], points=3),
    },
    rows=rows,
    judge=judge,
    draw=draw,
    control={"mean": 2.9},
    erratum="F-E15",
    about=AS_BEFORE
    + "\n\nTrue for agents alike, and false for agents far apart, with any constants that make it a bound: "
    "its estimation term is then so large that joining is worth it, and its best gamma is between 1 and 3, "
    "while the loss is least at a gamma in the hundreds. The bound has an infinite best gamma only if the "
    "distance times half the range of the loss exceeds c (1 - p_1)/n_1, for which agent 1 would need "
    "several times its 50 samples.",
)
