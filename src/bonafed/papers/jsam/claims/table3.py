"""Table III: accuracy at large sums of money, on MNIST."""

from __future__ import annotations

from collections.abc import Sequence

from bonafed.papers.claim import Check, Claim, Results, Row
from bonafed.papers.jsam import accuracy, large_sums
from bonafed.papers.jsam.accuracy import PAPER, QUICK, SMOKE, Accuracy
from bonafed.papers.jsam.large_sums import Printed, at_large_sums

PRINTED: Printed = {
    "JSAM": {100: 99.05, 70: 98.93, 30: 98.88, 0: 98.13},
    "USBM": {100: 98.99, 70: 98.94, 30: 98.88, 0: 98.44},
    "JSAM-CI": {100: 99.04, 70: 98.95, 30: 98.92, 0: 97.78},
    "FSBM-50": {100: 98.91, 70: 98.85, 30: 98.75, 0: 97.96},
    "FSBM-75": {100: 98.97, 70: 98.96, 30: 98.76, 0: 97.91},
    "BBM": {100: 99.06, 70: 98.89, 30: 97.27, 0: 98.22},
}
_SPREAD = 0.017  # the table's own range over mechanisms, at s = 30: one run each


def rows(settings: Accuracy, results: Results) -> list[Row]:
    """Accuracy at the table's sums, beside the printed one."""
    return large_sums.rows(settings, results, PRINTED)


def judge(table: Sequence[Row]) -> list[Check]:
    """Each mechanism's distance from USBM, and less accuracy where clients are unlike."""
    return large_sums.judge(table, _SPREAD)


CLAIM = Claim(
    identifier="jsam-table3",
    paper="jsam",
    place="table III",
    says="With money of about 500 all mechanisms are about as accurate as USBM on MNIST, JSAM within 0.3 "
    "points of it; data that are unlike cost accuracy.",
    presets={"smoke": at_large_sums(SMOKE), "quick": at_large_sums(QUICK), "paper": at_large_sums(PAPER)},
    cells=accuracy.cells,
    rows=rows,
    judge=judge,
    draw=large_sums.draw,
    control={"part": 0.001},
    erratum="J-16",
    about="""The runs of figure 6 at the sums that the table prints: 590.5 for JSAM and USBM, 417.6 for
JSAM-CI, 341.3 and 471.3 for FSBM, and for BBM the mean of its four. Where its money columns come from
is another claim (jsam-money).

At these sums JSAM selects everybody alike, so that it is USBM: with equal money the two are one plan.
The paper's accuracies are those of its CNN after 1,000 rounds, so preset quick compares differences to
USBM. The tolerance of 1.7 points is the table's own range over mechanisms at s = 30, where each number
is one run.

The control spends a thousandth of the money, where mechanisms do differ.""",
)
