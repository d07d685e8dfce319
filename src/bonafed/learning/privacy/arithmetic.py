"""What computed noise costs of a promise that ideal noise would keep.

Noise is computed in double precision and rounded to a grid (`bonafed.learning.noise`). The probability of
every release is then that of the ideal mechanism up to a factor of 1 +- eta (`relative_error`), and over n
noisy numbers these errors add up to little more than eta sqrt(n); `docs/decisions/0010-secret-noise.md` has
the proof. `reserve` deducts that from (epsilon, delta), and `covering` calibrates noise for the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from bonafed import checks
from bonafed.errors import InvalidValue

_HALF_ULP = 2.0**-53
_ASIDE = 0.01  # share of epsilon and of delta, at most, for arithmetic
_TAIL = 2.0**-73  # probability, per pair, of a radius too large for 127 bits to give it up to rounding


class Promise(NamedTuple):
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


def reserve(epsilon: float, delta: float, numbers: float, reach: float) -> Promise:
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
    return Promise(eps - 2 * each, small * (1 - _ASIDE) * math.exp(-each), 2 * each)


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
