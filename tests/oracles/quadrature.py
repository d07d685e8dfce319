"""Increasing functions on [0, 1] whose integrals are known, to try the lemma of theory C9 with."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np


def _growth(x: float) -> float:
    """(e^x - 1)/x."""
    return math.expm1(x) / x if x else 1.0


def _bulge(x: float) -> float:
    """(e^x - 1 - x)/x^2, without cancellation near 0."""
    if abs(x) > 0.1:
        return (math.expm1(x) - x) / x**2
    return sum(x**n / math.factorial(n + 2) for n in range(12))


@dataclass(frozen=True)
class Exponentials:
    """phi(0) = 0, phi' > 0 with a piecewise linear logarithm: |phi''| <= R phi', R the steepest slope."""

    knots: np.ndarray  # (n + 1,) from 0 to 1
    slopes: np.ndarray  # (n,) of log phi'
    first: float  # phi'(0)

    @property
    def bend(self) -> float:
        """R."""
        return float(np.abs(self.slopes).max())

    def _walk(self, t: float) -> tuple[float, float]:
        """phi(t) and the integral of phi over [0, t]."""
        derivative, value, integral = self.first, 0.0, 0.0
        for a, b, slope in zip(self.knots[:-1], self.knots[1:], self.slopes, strict=True):
            h = min(float(b), t) - float(a)
            if h <= 0:
                break
            x = float(slope) * h
            integral += value * h + derivative * h**2 * _bulge(x)
            value += derivative * h * _growth(x)
            derivative *= math.exp(x)
        return value, integral

    def __call__(self, t: float) -> float:
        return self._walk(t)[0]

    def integral(self) -> float:
        """Over [0, 1]."""
        return self._walk(1.0)[1]


def random_exponentials(rng: np.random.Generator) -> Exponentials:
    """One to five pieces; most slopes are as steep as R allows, one of them surely is."""
    bend, pieces = 10.0 ** rng.uniform(-3, 2), int(rng.integers(1, 6))
    knots = np.concatenate([[0.0], np.sort(rng.random(pieces - 1)), [1.0]])
    share = np.where(rng.random(pieces) < 0.7, rng.choice([-1.0, 1.0], pieces), rng.uniform(-1, 1, pieces))
    share[rng.integers(pieces)] = rng.choice([-1.0, 1.0])
    return Exponentials(knots, bend * share, 10.0 ** rng.uniform(-3, 3))


def moments_along(
    x: np.ndarray, shares: np.ndarray, start: np.ndarray, way: np.ndarray, classes: int, t: float
) -> tuple[float, float]:
    """phi' and phi'' at t of weighted cross-entropies, sample by sample: variance and third moment."""
    second = third = 0.0
    for row, share in zip(x, shares, strict=True):
        w = (start + t * way).reshape(-1, classes)
        z, s = row @ w, row @ way.reshape(-1, classes)
        p = np.exp(z - z.max())
        p /= p.sum()
        centred = s - p @ s
        second += share * float(p @ centred**2)
        third += share * float(p @ centred**3)
    return second, third
