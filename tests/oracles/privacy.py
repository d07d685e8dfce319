"""The privacy curve of a Gaussian release at 60 digits, or more where these cancel."""

from __future__ import annotations

import mpmath


def delta_of(multiplier, releases, epsilon, digits=60):
    """Smallest delta of `releases` Gaussian releases: Phi(-e/m + m/2) - exp(e) Phi(-e/m - m/2)."""
    with mpmath.workdps(digits):
        mu = mpmath.sqrt(releases) / mpmath.mpf(multiplier)
        eps = mpmath.mpf(epsilon)
        return mpmath.ncdf(-eps / mu + mu / 2) - mpmath.exp(eps) * mpmath.ncdf(-eps / mu - mu / 2)
