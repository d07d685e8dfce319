"""Observation 4: noise may put JSAM before JSAM-CI."""

from __future__ import annotations

from collections.abc import Sequence

from bonafed.papers.claim import Check, Claim, Row, at_least, number, where
from bonafed.papers.jsam.accuracy import PAPER, QUICK, SMOKE, cells, draw, levels, rows
from bonafed.papers.jsam.columns import difference, together

_OCCASIONALLY = 0.05  # of the runs: one of twenty


def judge(table: Sequence[Row]) -> list[Check]:
    """How often JSAM is ahead, and whether runs differ more where clients are unlike."""
    ahead = together(where(table, sums="small", mechanism="JSAM"), "ahead_of_ci")
    found = [at_least("share of runs in which JSAM is ahead of JSAM-CI", ahead, _OCCASIONALLY)]
    if number(table[0], "seeds") > 1:
        ends = (min(levels(table)), max(levels(table)))
        unlike, alike = (together(where(table, sums="small", s=s), "deviation") for s in ends)
        what = "how far seeds are from their mean, at the smallest s less at the largest"
        found.append(at_least(what, difference(unlike, alike), 0.0))
    return found


CLAIM = Claim(
    identifier="jsam-observation4",
    paper="jsam",
    place="observation 4",
    says="JSAM occasionally outperforms JSAM-CI although the latter knows all costs, by the randomness of "
    "the noise; where data are unlike and noise is large, performance varies more.",
    presets={"smoke": SMOKE, "quick": QUICK, "paper": PAPER},
    cells=cells,
    rows=rows,
    judge=judge,
    draw=draw,
    control={"read": "one for all"},
    about="""The runs of figure 6. "Occasionally" is read as: in at least one of twenty pairs of runs
with the same seed, sum and s. JSAM-CI pays no rent for the truth, so it buys more for the same sum, of
the same clients or of more; that it is not always ahead is chance, and at s = 0 also that more clients
are not always better ones.

The second sentence compares how far the accuracies of single seeds are from their mean, in absolute
value, at s = 0 and at s = 100, averaged over mechanisms and sums. Partition, costs, coins and noise all
differ between seeds, so it is not that of the noise alone.

The control reads USBM's runs for every mechanism, of which none is then ahead.""",
)
