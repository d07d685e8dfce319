"""Columns of tables of claims, over several rows."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import fmean

from bonafed.papers.claim import Estimate, Row, estimate


def together(table: Iterable[Row], name: str) -> Estimate:
    """The mean of a column over rows that share their seeds; its error is at most the mean of theirs."""
    each = [estimate(row, name) for row in table]
    if not each:
        return Estimate(float("nan"))
    return Estimate(fmean(e.value for e in each), fmean(e.error for e in each), each[0].seeds)


def largest(table: Iterable[Row], name: str) -> Estimate:
    """The largest entry of a column."""
    return max(
        (estimate(row, name) for row in table), key=lambda e: e.value, default=Estimate(float("nan"))
    )


def difference(one: Estimate, other: Estimate) -> Estimate:
    """Of two means over the same seeds; its error is at most the sum of theirs."""
    return Estimate(one.value - other.value, one.error + other.error, one.seeds)
