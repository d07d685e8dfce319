"""Noise that is added: what computing it costs of a promise, and noise of which every client adds a share.

Noise is computed in double precision and rounded to a grid (`bonafed.learning.noise`). The probability of
every release is then that of the ideal mechanism up to a factor of 1 +- eta (`relative_error`), and over n
noisy numbers these errors add up to little more than eta sqrt(n); `docs/decisions/0010-secret-noise.md` has
the proof. `reserve` deducts that from (epsilon, delta), and `covering` calibrates noise for the rest.

A sum may carry noise of which nobody knows all (theory P8). Where a sum is computed without showing single
answers, nobody is there to add the noise, and each of n clients adds normal noise of its own. Independent
variances add up. Up to d clients may drop out before the sum is made, and up to c of the others may tell an
attacker what they added, which takes it off again. What is left comes from n - d - c clients at least, so
with

    variance of a share  =  s^2/(n - d - c)

the sum carries s^2 or more, whoever these are. If nobody drops out it carries n/(n - d - c) as much as it
needs, which is the price of the margin.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue

_HALF_ULP = 2.0**-53
_ASIDE = 0.01  # share of epsilon and of delta, at most, for arithmetic
_TAIL = 2.0**-73  # probability, per pair, of a radius too large for 127 bits to give it up to rounding


class RemainingPromise(NamedTuple):
    """An (epsilon, delta) after deducting the cost of arithmetic."""

    epsilon: float  # left for the ideal mechanism
    delta: float  # likewise
    arithmetic: float  # epsilon for the difference between computed and ideal releases


def relative_error(reach: float) -> float:
    """eta: how far at most the probability of any release of one number is from the ideal, over itself.

    `reach` bounds |S|/sd, the number without noise. Decision 0010 proves

        eta <= 2^-53 (4 32 1.93 (176 + reach) + 22000).

    >>> f"{relative_error(100):.1e}"
    '1.0e-11'
    """
    return _HALF_ULP * (4 * 32 * 1.93 * (176 + reach) + 22_000)


def reserve(epsilon: float, delta: float, numbers: float, reach: float) -> RemainingPromise:
    """What ideal noise must promise for computed noise to be (epsilon, delta)-private.

    `numbers` is how many noisy numbers there are in all releases together, parameters times releases.
    Refused where the arithmetic would take more than a hundredth of epsilon or of delta.

    >>> promise = reserve(1.0, 1e-5, 7850 * 100, reach=100.0)
    >>> f"{promise.arithmetic:.1e}"
    '1.1e-07'
    """
    eps, small = checks.positive("epsilon", epsilon), checks.positive("delta", delta)
    eta = relative_error(reach)
    eta /= 1 - eta
    # delta pays for tails and for unlikely sums of errors once directly and once times exp(eps)
    log_budget = math.log(small * _ASIDE / 4) - eps
    each = numbers * eta**2 + eta * math.sqrt(-2 * numbers * log_budget)
    if 2 * each > _ASIDE * eps or math.log(numbers * _TAIL) > log_budget:
        rule = f"must leave room for the arithmetic of {numbers:.3g} noisy numbers, {2 * each:.2g} at least"
        raise InvalidValue("epsilon", rule, f"{epsilon} at delta {delta}")
    return RemainingPromise(eps - 2 * each, small * (1 - _ASIDE) * math.exp(-each), 2 * each)


def largest_covered(delta: float, numbers: float) -> float:
    """The epsilon up to which tails of the noise are covered: 19 for 800,000 numbers at delta 1e-5.

    Beyond it the promise is that of ideal noise. Nothing worth calling privacy is beyond it.
    """
    return math.log(checks.positive("delta", delta) * _ASIDE / 4) - math.log(numbers * _TAIL)


def covering(
    ideal: Callable[[float, float], float], epsilon: float, delta: float, numbers: float, reach: float
) -> float:
    """The noise multiplier with which computed noise keeps (epsilon, delta).

    `ideal` is the calibration of ideal noise: (epsilon, delta) -> sigma. `reach` bounds |S|/sd at
    sigma = 1.
    """
    first = ideal(epsilon, delta)
    if epsilon > largest_covered(delta, numbers):
        return first
    left = reserve(epsilon, delta, numbers, reach / first)  # more noise only shortens the reach
    return ideal(left.epsilon, left.delta)


def sd_of_share(sd: float, clients: int, *, dropouts: int = 0, colluders: int = 0) -> float:
    """Standard deviation of the noise that each of so many clients adds, for sd on the sum at least.

    >>> sd_of_share(6.0, 12, dropouts=2, colluders=1)
    2.0
    """
    return checks.positive("sd", sd) / math.sqrt(_certain(clients, dropouts, colluders))


def variance_inflation(clients: int, *, dropouts: int = 0, colluders: int = 0) -> float:
    """The variance on the sum if nobody drops out, over the one that is needed: n/(n - d - c).

    >>> variance_inflation(50, dropouts=5, colluders=5)
    1.25
    """
    return checks.whole("clients", clients) / _certain(clients, dropouts, colluders)


def _certain(clients: int, dropouts: int, colluders: int) -> int:
    """Clients whose noise is on the sum and known to nobody else, at least."""
    n = checks.whole("clients", clients)
    for name, number in (("dropouts", dropouts), ("colluders", colluders)):
        checks.whole(name, number, at_least=0)
    if dropouts + colluders >= n:
        rule = f"must leave one of {n} clients whose noise is certain and secret"
        raise InvalidValue("dropouts", rule, f"{dropouts}, and {colluders} colluders")
    return n - dropouts - colluders


class Releases(Protocol):
    """Adds noise to successive values (`bonafed.learning.noise.SecretReleases`)."""

    def released(self, values: Floats, sd: float) -> Floats:
        """Values with noise of standard deviation sd on each."""


def released(noise: np.random.Generator | Releases, values: Floats, sd: float) -> Floats:
    """Values as they may be published; a generator, which can be seeded again, is for studies and tests."""
    if isinstance(noise, np.random.Generator):
        return np.asarray(values + sd * noise.standard_normal(np.shape(values)))
    return noise.released(values, sd)
