"""Accuracy at the sums of money of tables II and III, beside what they print."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING

from bonafed.papers.claim import Check, Results, Row, at_most, estimate, number, only, printed
from bonafed.papers.jsam import accuracy
from bonafed.papers.jsam.accuracy import SCHEMES, Accuracy, levels
from bonafed.papers.jsam.columns import difference, together

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Printed = Mapping[str, Mapping[float, float]]  # percent, by mechanism and s


def at_large_sums(preset: Accuracy) -> Accuracy:
    """The same runs with the money of the tables."""
    return replace(preset, sums="large")


def rows(settings: Accuracy, results: Results, paper: Printed) -> list[Row]:
    """Accuracy at the table's sums, with the printed difference to USBM."""
    made = []
    for row in accuracy.rows(settings, results):
        s = number(row, "s")
        theirs = paper[str(row["mechanism"])][s]
        made.append(
            {**row, "printed": theirs / 100, "printed_over_usbm": (theirs - paper["USBM"][s]) / 100}
        )
    return made


def judge(table: Sequence[Row], tolerance: float) -> list[Check]:
    """Each mechanism's distance from USBM, and less accuracy where clients are unlike."""
    found: list[Check] = []
    for name in SCHEMES:
        mine = [row for row in table if row["mechanism"] == name]
        if name != "USBM":
            theirs = fmean(number(row, "printed_over_usbm") for row in mine)
            ours = together(mine, "over_usbm")
            found.append(printed(f"{name}: accuracy less USBM's, mean over s", ours, theirs, tolerance))
    alike, unlike = max(levels(table)), min(levels(table))
    apart, near = (estimate(only(table, mechanism="USBM", s=s), "accuracy") for s in (unlike, alike))
    what = f"USBM: accuracy at s {unlike:g} less that at s {alike:g}"
    return [*found, at_most(what, difference(apart, near), 0.0)]


def draw(table: Sequence[Row]) -> Figure:
    """Differences to USBM beside the printed ones."""
    from bonafed.papers.jsam.figures import bars

    shown = [
        {**row, "label": f"{row['mechanism']}, s {number(row, 's'):g}"}
        for row in table
        if row["mechanism"] != "USBM"
    ]
    return bars(shown, "label", "over_usbm", "test accuracy less USBM's", "printed_over_usbm")
