"""Observation 3: BBM against the others."""

from __future__ import annotations

from collections.abc import Sequence

from bonafed.papers.claim import Check, Claim, Row, at_most
from bonafed.papers.jsam.accuracy import PAPER, QUICK, SMOKE, cells, draw, levels, rows, small
from bonafed.papers.jsam.columns import together


def judge(table: Sequence[Row]) -> list[Check]:
    """BBM against the mean of the other five, in every panel that the observation names."""
    return [
        at_most(
            f"s {s:g}: BBM's accuracy less the mean of the others', mean over the sums",
            together(small(table, "BBM", s), "over_mean"),
            0.0,
        )
        for s in levels(table)
        if s != 0
    ]


CLAIM = Claim(
    identifier="jsam-observation3",
    paper="jsam",
    place="observation 3",
    says="BBM generally underperforms compared to other mechanisms, as it does not account for the "
    "clients' privacy sensitivities.",
    presets={"smoke": SMOKE, "quick": QUICK, "paper": PAPER},
    cells=cells,
    rows=rows,
    judge=judge,
    draw=draw,
    control={"read": "exchanged"},
    about="""The runs of figure 6. "Generally underperforms" is read as: below the mean accuracy of the
five other mechanisms of the same seed and sum, averaged over the sums; panel (d), one of the two with s
= 0, is excepted in the paper and not judged. BBM takes the half of the clients with the largest losses
before training, whose number the paper does not print.

BBM buys from half of the clients at random as far as their costs go, and so less dearly than USBM,
which buys from all: with l not charged its money is 0.841 of USBM's at the same weight.

The control reads JSAM-CI's runs as BBM's, and the other way round.""",
)
