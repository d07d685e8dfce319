"""Real numbers as integers modulo 2^64 and back (theory M3).

    (1)  x is added as round(x 2^f) modulo 2^64; a sum of n is off by n 2^-(f+1) per number at most
    (2)  a vector longer than the bound is scaled down to it as a whole; one with NaN or infinity is zero

A sum of numbers within the plan's limits is below 2^62 in size, so that it is read from the ring without
doubt; doubles have 53 bits, and the result is rounded to them once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from bonafed.checks import Floats
from bonafed.remote.secure_sums.streams import Words


class Bounded(NamedTuple):
    """A vector that keeps the bound, and what was done to it."""

    values: Floats  # (P,)
    factor: float  # 1: nothing; below: scaled by it; 0: it was not finite, and zeros stand for it


def bounded(vector: Floats, bound: float) -> Bounded:
    """(2)

    >>> bounded(np.array([3.0, 4.0]), 1.0)
    Bounded(values=array([0.6, 0.8]), factor=0.2)
    >>> bounded(np.array([3.0, np.nan]), 1.0)
    Bounded(values=array([0., 0.]), factor=0.0)
    """
    largest = float(np.abs(vector).max(initial=0.0))
    if not np.isfinite(largest):
        return Bounded(np.zeros(vector.shape), 0.0)
    if largest == 0:
        return Bounded(vector, 1.0)
    direction = vector / largest  # squares of the numbers themselves may overflow
    length = float(np.linalg.norm(direction))
    if length <= bound / largest:
        return Bounded(vector, 1.0)
    return Bounded(direction * (bound / length), bound / length / largest)


def to_ring(values: Floats, fraction_bits: int) -> Words:
    """(1)"""
    return np.rint(values * 2.0**fraction_bits).astype(np.int64).view(np.uint64)


def from_ring(words: Words, fraction_bits: int) -> Floats:
    """What a sum stands for; words from 2^63 are negative."""
    return np.asarray(words.view(np.int64) * 2.0**-fraction_bits, dtype=np.float64)
