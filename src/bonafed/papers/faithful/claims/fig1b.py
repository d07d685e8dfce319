"""Figure 1b: agents far apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bonafed.papers.claim import (
    Check,
    Claim,
    Estimate,
    Row,
    at_least,
    at_most,
    estimate,
    number,
    only,
    where,
)
from bonafed.papers.faithful.amplifying import AS_BEFORE, Draws, readings, rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LARGE = 30.0  # a factor that leaves the other agent, of 8 times as many samples, a fifth of the weight


def judge(table: Sequence[Row]) -> list[Check]:
    """Learning alone beats the truth; whether it beats every finite factor is what the erratum is about."""
    found = []
    for reading in readings([*table]):
        mine = where(table, reading=reading)
        alone = only(mine, gamma=None)
        finite = [row for row in mine if row["gamma"] is not None]
        truth = min(finite, key=lambda row: abs(number(row, "gamma") - 1.0))
        least = min(number(row, "loss") for row in finite)
        gain = number(truth, "loss") - number(alone, "loss")
        passed = number(alone, "loss") - least  # by the best finite factor
        joins = estimate(truth, "loss")
        better = Estimate(gain, max(joins.error, number(alone, "loss_se")), joins.seeds)
        for corrected in (False, True):
            found.append(
                at_least(f"loss at gamma 1 less that alone, {reading}", better, 0.0, corrected=corrected)
            )  # Remark 1: an agent that is not typical prefers not to take part
        found += [
            at_most(f"loss alone above that of the best finite gamma, {reading}", Estimate(passed), 0.0),
            at_least(
                f"best gamma, {reading}", Estimate(number(alone, "best_gamma")), _LARGE, corrected=True
            ),
            at_most(
                f"what it gains over learning alone, of the gain by leaving, {reading}",
                Estimate(passed / gain if gain > 0 else float("inf")), 0.05, corrected=True,
            ),
        ]  # fmt: skip
    return found


def draw(table: Sequence[Row]) -> Figure:
    """Loss and bound against gamma."""
    from bonafed.papers.faithful.figures import manipulation_figure

    return manipulation_figure(table)


CLAIM = Claim(
    identifier="faithful-fig1b",
    paper="faithful",
    place="figure 1b, text after proposition 3, remark 1",
    says="Where the agents' data are far apart (mean 2), agent 1 prefers an infinitely large gamma, that "
    "is to learn alone.",
    presets={
        "smoke": Draws(mean=2.0, designs=200, points=25),
        "quick": Draws(mean=2.0),
        "paper": Draws(mean=2.0),
    },
    rows=rows,
    judge=judge,
    draw=draw,
    control={"mean": 0.1},
    erratum="F-E14",
    about=AS_BEFORE
    + "\n\nWith u = 1/gamma, the noise falls in proportion to u at first and the bias rises by order u^2 "
    "only: some finite gamma is always better than learning alone. It is large, and what it gains over "
    "learning alone is small; as corrected, the best gamma is at least 30 and gains at most a twentieth of "
    "what leaving the federation does. What the bound says is the claim faithful-minimisers.",
)
