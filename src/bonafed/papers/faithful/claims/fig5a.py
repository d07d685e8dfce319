"""Figure 5a: the error of private payments against alpha."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from bonafed.papers.claim import Check, Claim, Row, at_most, estimate
from bonafed.papers.faithful.curves import cells, curve, names, table
from bonafed.papers.faithful.presets import AS_BEFORE, BY_PRIVACY, NOISE_BEFORE

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def judge(rows: Sequence[Row]) -> list[Check]:
    """From the least alpha to the largest both fall; as corrected, where T_1 steps finish training.

    The last curves are those of the largest mu, whose training is finished.
    """
    all_names = names(rows)
    finished = all_names[-1].partition(", ")[2]
    found = []
    for name in all_names:
        last = curve(rows, name)[-1]
        for column, what in (("error", "mean"), ("error_sd", "standard deviation")):
            change = estimate(last, f"{column}_since_first")
            words = f"change of the {what} of |P - VCG| with alpha, {name}"
            found.append(at_most(words, change, 0.0))
            if name.endswith(finished):
                found.append(at_most(words, change, 0.0, corrected=True))
    for name in all_names:
        points = curve(rows, name)
        for before, after in pairwise(points):
            step = estimate(after, "error_since_before")
            words = f"change of the mean from alpha {before['alpha']:g} to {after['alpha']:g}, {name}"
            found.append(at_most(words, step, 0.0))
            if name.endswith(finished):
                found.append(at_most(words, step, 0.0, corrected=True))
    return found


def draw(rows: Sequence[Row]) -> Figure:
    """Mean and spread of the error."""
    from bonafed.papers.faithful.figures import error_figure

    return error_figure(rows)


CLAIM = Claim(
    identifier="faithful-fig5a",
    paper="faithful",
    place="figure 5a, section VII",
    says="The mean and the standard deviation of the payment accuracy loss decrease in alpha.",
    presets=BY_PRIVACY,
    rows=table("error", "error_sd", "collected", since_first=True, since_before=True),
    judge=judge,
    draw=draw,
    control={"exchanged": "points"},
    cells=cells,
    erratum="F-D12",
    about=f"{AS_BEFORE}\n\n{NOISE_BEFORE}\n\n"
    "The mean error falls with alpha while noise is the larger part of it. What is left is training not "
    "finished after T1 = 80 steps: phase II goes on training, and each agent is charged for it, the more "
    "the larger T2 is (F-D12). This is a matter of mu, which the paper does not state: with mu = 0.05, "
    "where 80 steps suffice, both fall throughout, which is the statement as corrected.",
)
