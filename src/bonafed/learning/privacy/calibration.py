"""Noise for a promise, exact where releases certainly include a record (theory B5, P6).

T releases of the same record-level sensitivity, each with noise of standard deviation sigma times that
sensitivity, are together exactly one Gaussian release with noise multiplier sigma/sqrt(T). So

    sigma_T(eps, delta) = sqrt(T) sigma_1(eps, delta),

with sigma_1 the smallest multiplier for which one release is (eps, delta)-differentially private. This is
`exact`. Two others are kept for comparison:

    zcdp     by zero-concentrated privacy, more noise than the promise needs:
             rho = (sqrt(ln(1/delta) + eps) - sqrt(ln(1/delta)))^2,   sigma_T = sqrt(T/(2 rho));
    printed  (8) of the JSAM paper with its constant c2 = sqrt(2), sigma_T = c2 sqrt(T ln(1/delta))/eps:
             beyond epsilon 8 or so less noise than the promise needs (erratum J-13).

With mu = 1/sigma, a = mu/2 - eps/mu, phi and Phi the normal density and distribution function and
m(t) = Phi(-t)/phi(t), the delta of one release at epsilon is

    Phi(a) - exp(eps) Phi(a - mu) = phi(a) (m(-a) - m(mu - a)) = phi(a) int_(-a)^(mu - a) 1 - t m(t) dt.

The first form loses all digits where mu is small, the last keeps them. Results are rounded up: both the
noise and the epsilon that is read back.

Other releases include a record by a secret coin (theory P6). Every record is in every release independently
with probability q, drawn by its client and told to nobody; a release is a sum of sensitivity 1 (adding or
removing a record) plus noise of standard deviation sigma. There is no closed form for what T of them add up
to. dp-accounting's privacy loss distribution, discretised so that every rounding goes against the mechanism
(pessimistic estimates, connect the dots), bounds it from above; the mesh is chosen so fine that the bound
on epsilon is at most about a thousandth above the truth.

Its arithmetic (Fourier transforms in doubles, tails cut off at 1e-15) is off by some 1e-14 of delta;
`ROUNDING` of it is set aside.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy  # its submodules load on first use

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue

Calibration = Literal["exact", "zcdp", "printed"]
ROUNDING_UP = 1e-12  # first step of adding noise until the promise holds
EPSILONS = (1e-100, 1e100)  # for which noise, and its square in a ledger, fit into double precision
MARGIN = 1e-11  # of log delta, several times the error of its computation
KNOWN = 1e-10  # relative error up to which dp-accounting's noise is accepted
_LAST_DIGITS = 1e-15  # a few roundings of mu and epsilon
_NODES, _SHARES = np.polynomial.legendre.leggauss(12)  # exact to rounding on intervals up to length 1


def noise_multiplier(
    epsilon: float, delta: float, releases: int = 1, variant: Calibration = "exact"
) -> float:
    """Noise standard deviation over L2 sensitivity that makes `releases` releases (eps, delta)-private.

    So do "exact" and "zcdp"; "printed" does not always.

    >>> round(noise_multiplier(1.0, 1e-5), 4)
    3.7306
    """
    checks.literal("variant", variant, Calibration)
    eps, small = checks.positive("epsilon", epsilon), _delta(delta)
    checks.between("epsilon", eps, *EPSILONS)
    times = checks.whole("releases", releases)
    log_delta = -math.log(small)
    # sqrt(a + eps) - sqrt(a) = eps/(sqrt(a + eps) + sqrt(a)): no cancellation for small eps
    root_rho = eps / (math.sqrt(log_delta + eps) + math.sqrt(log_delta))
    if variant == "zcdp":
        return math.sqrt(times / 2) / root_rho
    if variant == "printed":
        return math.sqrt(2 * times * log_delta) / eps
    return _exact(eps, small, times, 1 / root_rho)


@lru_cache(maxsize=4096)  # clients, and participants who compute it again, ask for the same
def _exact(epsilon: float, delta: float, releases: int, enough: float) -> float:
    noise, more = math.sqrt(releases) * _one_release(epsilon, delta, enough), ROUNDING_UP
    while True:  # what is read back from the ledger must be within the promise
        noise, more = noise * (1 + more), 2 * more
        if spent_epsilon(noise, releases, delta) <= epsilon * (1 - ROUNDING_UP):
            return noise


def _one_release(epsilon: float, delta: float, enough: float) -> float:
    """sigma_1; `enough` is more noise than zero-concentrated privacy needs."""
    from dp_accounting import get_sigma_gaussian  # heavy import, only needed here

    with np.errstate(all="ignore"):  # during its root search
        candidate = float(get_sigma_gaussian(epsilon, delta, tol=1e-14))

    def excess(sigma: float) -> float:
        return _excess(1 / sigma, epsilon, delta)

    if excess(candidate * (1 + KNOWN)) <= 0 < excess(candidate * (1 - KNOWN)):
        return candidate
    # far from everyday values it loses its digits
    while excess(enough / 10) <= 0:
        enough /= 10
    return _root(excess, enough / 10, enough)


def spent_epsilon(multiplier: float, releases: int, delta: float) -> float:
    """The smallest epsilon for which `releases` releases at this noise are (eps, delta)-private."""
    sigma, times = checks.positive("multiplier", multiplier), checks.whole("releases", releases)
    mu, small = math.sqrt(times) / sigma, _delta(delta)
    if _excess(mu, 0.0, small) <= 0:
        return 0.0
    enough = mu * mu + 2 * mu * math.sqrt(-math.log(small))  # more than by zero-concentrated privacy
    if math.isinf(enough):
        return enough
    epsilon, more = _root(lambda eps: _excess(mu, eps, small), 0.0, enough), _LAST_DIGITS
    while _excess(mu, epsilon, small) > 0:
        epsilon, more = epsilon * (1 + more), 2 * more
    return epsilon


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """A root to the last digits, also near 0."""
    return float(scipy.optimize.brentq(function, low, high, xtol=1e-300, rtol=_LAST_DIGITS, maxiter=2000))


def _excess(mu: float, epsilon: float, delta: float) -> float:
    """Above 0 unless one release at noise 1/mu is (eps, delta)-private beyond all rounding."""
    reached = _log_delta(mu * (1 + _LAST_DIGITS), epsilon * (1 - _LAST_DIGITS))
    return reached - math.log(delta) + MARGIN


def _log_delta(mu: float, epsilon: float) -> float:
    """Logarithm of the smallest delta of one release at noise 1/mu, with an error of 2e-12 at most."""
    a = mu / 2 - epsilon / mu
    if a < -40:  # delta < Phi(a) < exp(-a^2/2), below all numbers of double precision
        return -(min(-a, 1e6) ** 2) / 2
    log_density = -a * a / 2 - math.log(2 * math.pi) / 2
    if mu < 1:
        t = mu * (_NODES + 1) / 2 - a
        return log_density + math.log(mu / 2 * float(_SHARES @ (1 - t * _mills(t))))
    if a > 5:  # hardly anything is taken away
        return math.log(float(scipy.special.ndtr(a)) - math.exp(log_density) * float(_mills(mu - a)))
    return float(scipy.special.log_ndtr(a)) + math.log1p(-float(_mills(mu - a) / _mills(-a)))


def _mills(t: float | Floats) -> Floats:
    """Mills' ratio m(t) = Phi(-t)/phi(t)."""
    result: Floats = math.sqrt(math.pi / 2) * scipy.special.erfcx(np.asarray(t) / math.sqrt(2))
    return result


def _delta(value: float) -> float:
    delta = checks.number("delta", value)
    if not 0 < delta < 1:
        raise InvalidValue("delta", "must be between 0 and 1, ends excluded", value)
    return delta


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
    small = _sampled_delta(delta)
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
    eps, small = checks.positive("epsilon", epsilon), _sampled_delta(delta)
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


def _sampled_delta(value: float) -> float:
    delta = checks.number("delta", value)
    if not LEAST_DELTA <= delta < 1:
        raise InvalidValue("delta", f"must be between {LEAST_DELTA:g} and 1 with a sampling rate", value)
    return delta
