"""Observation 2: FSBM against USBM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bonafed.papers.claim import Check, Claim, Row, at_least, number, where
from bonafed.papers.jsam.accuracy import PAPER, QUICK, SMOKE, Accuracy, cells, draw, levels, rows, small
from bonafed.papers.jsam.columns import difference, largest, together

_UP_TO = 0.12  # "by up to 12 %"


def judge(table: Sequence[Row]) -> list[Check]:
    """Ahead at small sums where clients are not wholly unlike; at large sums more clients do better."""
    found = []
    for s in levels(table):
        for name in ("FSBM-50", "FSBM-75"):
            if s != 0:
                ahead = together(small(table, name, s), "over_usbm")
                what = f"s {s:g}: {name}'s accuracy less USBM's, mean over the sums"
                found.append(at_least(what, ahead, 0.0))
    scarce = [row for row in where(table, sums="small") if row["mechanism"] in ("FSBM-50", "FSBM-75")]
    lead = largest([row for row in scarce if number(row, "s") != 0], "over_usbm")
    found.append(at_least("FSBM's largest lead over USBM", lead, _UP_TO))
    many, few = (where(table, sums="large", mechanism=name) for name in ("FSBM-75", "FSBM-50"))
    more = difference(together(many, "accuracy"), together(few, "accuracy"))
    return [*found, at_least("money about 500: FSBM-75's accuracy less FSBM-50's, mean over s", more, 0.0)]


def _both(preset: Accuracy) -> Accuracy:
    return replace(preset, sums="both")


CLAIM = Claim(
    identifier="jsam-observation2",
    paper="jsam",
    place="observation 2",
    says="FSBM-50 and FSBM-75 are more accurate than USBM at low and moderate cost, by up to 12 %; at "
    "higher cost FSBM improves with the number of clients that take part.",
    presets={"smoke": _both(SMOKE), "quick": _both(QUICK), "paper": _both(PAPER)},
    cells=cells,
    rows=rows,
    judge=judge,
    draw=draw,
    control={"read": "exchanged"},
    about="""The runs of figure 6 and of table III. The paper excepts panel (d), which is one of the two
with s = 0; so s = 0 is in the table and not judged. At large sums the number of clients is what differs
between FSBM-50 and FSBM-75, and the mean over all s is judged, since the paper's own table III has them
the other way round at s = 0.

FSBM follows the text and charges the bias of those left out; at an equal sum this changes only the
weight.

The control reads JSAM's runs as USBM's, and the other way round.""",
)
