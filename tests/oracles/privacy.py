"""The privacy curve of a Gaussian release at 60 digits."""

from __future__ import annotations

import mpmath


def delta_of(multiplier, releases, epsilon):
    """Smallest delta of `releases` Gaussian releases: Phi(-e/m + m/2) - exp(e) Phi(-e/m - m/2)."""
    with mpmath.workdps(60):
        mu = mpmath.sqrt(releases) / mpmath.mpf(multiplier)
        eps = mpmath.mpf(epsilon)
        return mpmath.ncdf(-eps / mu + mu / 2) - mpmath.exp(eps) * mpmath.ncdf(-eps / mu - mu / 2)
