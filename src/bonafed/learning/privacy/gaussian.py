"""Exact noise for Gaussian releases (theory B5).

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
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Literal

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
    """Phi(-t)/phi(t)."""
    result: Floats = math.sqrt(math.pi / 2) * scipy.special.erfcx(np.asarray(t) / math.sqrt(2))
    return result


def _delta(value: float) -> float:
    delta = checks.number("delta", value)
    if not 0 < delta < 1:
        raise InvalidValue("delta", "must be between 0 and 1, ends excluded", value)
    return delta
