"""What tables of claims are made of: averages, and rules for settings that hold several values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue
from bonafed.papers.claim import Estimate, Row, estimate
from bonafed.sections import Check


class Average(NamedTuple):
    """Mean and standard deviation, entry by entry."""

    mean: Floats
    sd: Floats


def average(values: Floats, axis: int = 0) -> Average:
    """Over one axis; the spread of a single value is 0."""
    single = values.shape[axis] == 1
    return Average(
        values.mean(axis), np.zeros_like(values.mean(axis)) if single else values.std(axis, ddof=1)
    )


def increasing(name: str, values: Iterable[float], *, at_least: int = 1, zero: bool = False) -> Floats:
    """(m,) positive numbers, each above the one before; the first may be 0 if `zero`."""
    result = checks.vector(name, list(values), sign="non-negative" if zero else "positive")
    if result.size < at_least:
        raise InvalidValue(name, f"must be at least {at_least} numbers", result.size)
    if np.any(np.diff(result) <= 0):
        at = int(np.argmax(np.diff(result) <= 0)) + 1
        raise InvalidValue(name, "must be increasing", f"{result[at]:g} at position {at}")
    return result


def rising(*, at_least: int = 1, zero: bool = False) -> Check:
    """The rule of a key that holds increasing numbers."""
    return lambda name, value: tuple(increasing(name, value, at_least=at_least, zero=zero).tolist())


def several(check: Check) -> Check:
    """The rule of a key that holds one or more values, each once."""

    def rule(name: str, value: Any) -> tuple[Any, ...]:
        items = (value,) if isinstance(value, str) or not isinstance(value, Sequence) else value
        if not items:
            raise InvalidValue(name, "must have at least one entry", "none")
        return tuple(dict.fromkeys(check(name, item) for item in items))

    return rule


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
