"""Noise for Gaussian releases that include a record by a secret coin (theory P6).

Every record is in every release independently with probability q, drawn by its client and told to nobody;
a release is a sum of sensitivity 1 (adding or removing a record) plus noise of standard deviation sigma.
There is no closed form for what T of them add up to. dp-accounting's privacy loss distribution, discretised
so that every rounding goes against the mechanism (pessimistic estimates, connect the dots), bounds it from
above; the mesh is chosen so fine that the bound on epsilon is at most about a thousandth above the truth.

Its arithmetic (Fourier transforms in doubles, tails cut off at 1e-15) is off by some 1e-14 of delta;
`ROUNDING` of it is set aside.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import scipy  # its submodules load on first use

from bonafed import checks
from bonafed.errors import InvalidValue
from bonafed.learning.privacy.gaussian import noise_multiplier

ROUNDING = 1e-12  # of delta, set aside for the arithmetic
LEAST_DELTA = 1e-10  # below, what is set aside would matter
MULTIPLIERS = (0.05, 1e6)  # for which the distributions fit into memory
_MESH = 0.1  # over the root of the number of releases: width of a cell of privacy loss
_NEAR = 1e-5  # relative accuracy of a multiplier in a search
_LARGEST_MU = 30.0  # of the central limit; beyond, no promise is left


class SampledReleases(NamedTuple):
    """Releases at the same noise and the same rate."""

    multiplier: float  # noise standard deviation over L2 sensitivity
    rate: float  # q, probability with which a record is in one of them
    times: int  # T


def sampled_epsilon(releases: Iterable[SampledReleases], delta: float) -> float:
    """An epsilon for which all releases together are (eps, delta)-private; 0 if there are none.

    >>> round(sampled_epsilon([SampledReleases(1.0, 0.01, 1000)], 1e-5), 2)
    1.83
    """
    small = _delta(delta)
    times: Counter[tuple[float, float]] = Counter()
    for each in releases:
        checks.between("multiplier", checks.positive("multiplier", each.multiplier), *MULTIPLIERS)
        checks.between("rate", checks.positive("rate", each.rate), 0.0, 1.0)
        times[each.multiplier, each.rate] += checks.whole("times", each.times)
    return _epsilon(tuple(sorted(times.items())), small) if times else 0.0


def sampled_multiplier(epsilon: float, delta: float, rate: float, releases: int) -> float:
    """Noise over sensitivity that makes so many releases at this rate (eps, delta)-private.

    It is rounded up until the epsilon that is read back keeps the promise.

    >>> round(sampled_multiplier(2.0, 1e-5, 64 / 3000, 235), 2)
    1.03
    """
    eps, small = checks.positive("epsilon", epsilon), _delta(delta)
    q = checks.between("rate", checks.positive("rate", rate), 0.0, 1.0)
    times = checks.whole("releases", releases)
    low, high = (math.log(end) for end in MULTIPLIERS)

    def excess(log_sigma: float) -> float:
        spent = sampled_epsilon([SampledReleases(math.exp(log_sigma), q, times)], small)
        return math.log(max(spent, 1e-300) / eps)

    # the central limit of theory P6 is near the truth; where it is not, the bracket grows
    mu = 1 / noise_multiplier(eps, small)
    near = -math.log(math.log1p((mu / q) ** 2 / times)) / 2
    below = above = min(max(near, low), high)
    step = 0.02
    while excess(below) <= 0:
        if below == low:
            return MULTIPLIERS[0]
        above, below, step = below, max(low, below - step), 2 * step
    while excess(above) > 0:
        if above == high:
            rule = f"must be larger: {times} releases would need noise beyond {MULTIPLIERS[1]:g}"
            raise InvalidValue("epsilon", rule, epsilon)
        below, above, step = above, min(high, above + step), 2 * step
    sigma, more = math.exp(scipy.optimize.brentq(excess, below, above, xtol=_NEAR)), _NEAR
    while excess(math.log(sigma)) > 0:
        sigma, more = sigma * (1 + more), 2 * more
    return sigma


@lru_cache(maxsize=4096)
def _epsilon(releases: tuple[tuple[tuple[float, float], int], ...], delta: float) -> float:
    """Of releases counted by (multiplier, rate)."""
    mesh = _mesh(releases)
    if mesh is None:
        return math.inf
    parts = [_one(sigma, rate, mesh).self_compose(times) for (sigma, rate), times in releases]
    total = parts[0]
    for part in parts[1:]:
        total = total.compose(part)
    return float(total.get_epsilon_for_delta(delta - ROUNDING))


def _mesh(releases: tuple[tuple[tuple[float, float], int], ...]) -> float | None:
    """Width of a cell: a power of 2, so that rounds of a run share it; None where no promise is left."""
    count, square = 0, 0.0
    for (sigma, rate), times in releases:
        count += times
        square += times * rate**2 * math.expm1(sigma**-2)  # theory P6: mu^2 of the central limit
    mu = math.sqrt(square)
    if mu > _LARGEST_MU:
        return None
    return float(2.0 ** math.floor(math.log2(_MESH / math.sqrt(count) * min(1.0, mu))))


@lru_cache(maxsize=64)
def _one(sigma: float, rate: float, mesh: float) -> Any:  # dp-accounting ships no types
    """The distribution of the privacy loss of one release, rounded up."""
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism  # heavy

    return from_gaussian_mechanism(  # for adding or removing one record
        sigma, pessimistic_estimate=True, value_discretization_interval=mesh, sampling_prob=rate
    )


def _delta(value: float) -> float:
    delta = checks.number("delta", value)
    if not LEAST_DELTA <= delta < 1:
        raise InvalidValue("delta", f"must be between {LEAST_DELTA:g} and 1 with a sampling rate", value)
    return delta
