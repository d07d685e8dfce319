"""Exact noise for Gaussian releases (theory B5).

T releases of the same record-level sensitivity, each with noise of standard deviation sigma times that
sensitivity, are together exactly one Gaussian release with noise multiplier sigma/sqrt(T). So

    sigma_T(eps, delta) = sqrt(T) sigma_1(eps, delta),

with sigma_1 the smallest multiplier for which one release is (eps, delta)-differentially private. The
paper's route over zero-concentrated privacy needs more noise for the same promise:

    rho = (sqrt(ln(1/delta) + eps) - sqrt(ln(1/delta)))^2,   sigma_T = sqrt(T/(2 rho)).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from bonafed import checks
from bonafed.errors import InvalidValue

Calibration = Literal["exact", "printed"]
ROUNDING_UP = 1e-12  # first step of adding noise until the promise holds


def noise_multiplier(
    epsilon: float, delta: float, releases: int = 1, variant: Calibration = "exact"
) -> float:
    """Noise standard deviation over L2 sensitivity that makes `releases` releases (eps, delta)-private.

    >>> round(noise_multiplier(1.0, 1e-5), 4)
    3.7306
    """
    checks.literal("variant", variant, Calibration)
    eps, small = checks.positive("epsilon", epsilon), _delta(delta)
    times = checks.whole("releases", releases)
    if variant == "printed":
        log_delta = -math.log(small)
        # sqrt(a + eps) - sqrt(a) = eps/(sqrt(a + eps) + sqrt(a)): no cancellation for small eps
        root_rho = eps / (math.sqrt(log_delta + eps) + math.sqrt(log_delta))
        return math.sqrt(times / 2) / root_rho
    from dp_accounting import get_sigma_gaussian  # heavy import, only needed here

    with np.errstate(divide="ignore"):  # on the way of the root search, to minus infinity
        noise, more = math.sqrt(times) * float(get_sigma_gaussian(eps, small, tol=1e-14)), ROUNDING_UP
    while True:  # what is read back from the ledger must be within the promise
        noise, more = noise * (1 + more), 2 * more
        if spent_epsilon(noise, times, small) <= eps * (1 - ROUNDING_UP):
            return noise


def spent_epsilon(multiplier: float, releases: int, delta: float) -> float:
    """The smallest epsilon for which `releases` releases at this noise are (eps, delta)-private."""
    sigma, times = checks.positive("multiplier", multiplier), checks.whole("releases", releases)
    from dp_accounting import get_epsilon_gaussian

    with np.errstate(divide="ignore"):
        return float(get_epsilon_gaussian(sigma / math.sqrt(times), _delta(delta), tol=1e-14))


def _delta(value: float) -> float:
    delta = checks.number("delta", value)
    if not 0 < delta < 1:
        raise InvalidValue("delta", "must be between 0 and 1, ends excluded", value)
    return delta


class Release(NamedTuple):
    """Noisy gradients a client gave away in one round, all at the same noise."""

    client: int
    round_number: int
    multiplier: float  # noise standard deviation over L2 sensitivity
    times: int  # how many


@dataclass(frozen=True, slots=True)
class Ledger:
    """Every release of private data, in order; adding to it gives a new ledger."""

    releases: tuple[Release, ...] = ()

    def add(self, releases: Iterable[Release]) -> Ledger:
        """The ledger with these releases written down."""
        return Ledger((*self.releases, *releases))

    def epsilon(self, client: int, delta: float) -> float:
        """The (epsilon, delta) privacy a client has left behind so far; 0 if it released nothing.

        Gaussian releases compose exactly: their inverse squared multipliers add up.
        """
        total = sum(r.times / r.multiplier**2 for r in self.releases if r.client == client)
        return spent_epsilon(1 / math.sqrt(total), 1, delta) if total else 0.0

    @property
    def clients(self) -> tuple[int, ...]:
        """Clients with at least one release, in order."""
        return tuple(sorted({r.client for r in self.releases}))
