"""Continuous priors the slow way: 60-digit formulas, adaptive quadrature, root bracketing.

A `Slow` prior is a density and a cdf as mpmath functions of the cost, and (for quadrature) as plain
Python floats. Everything else is done from these two by the definitions of theory A2 to A4.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field

import mpmath
import numpy as np
from scipy import special
from scipy.integrate import quad
from scipy.optimize import brentq

mp = mpmath.mp
DIGITS = 50


@dataclass
class Slow:
    """A prior by its unnormalised density, lower mass and first moment, in mpmath."""

    low: float
    high: float
    weight: object  # unnormalised density, mpf -> mpf
    below: object  # unnormalised mass below c, mpf -> mpf
    moment: object  # unnormalised integral of c times the density below c, mpf -> mpf
    kinks: list = field(default_factory=list)  # where quadrature must look

    def __post_init__(self):
        with mpmath.workdps(DIGITS):
            self._start = self.below(mpmath.mpf(self.low))
            self.total = self.below(mpmath.mpf(self.high)) - self._start

    def pdf(self, c):
        with mpmath.workdps(DIGITS):
            return self.weight(mpmath.mpf(c)) / self.total

    def cdf(self, c):
        with mpmath.workdps(DIGITS):
            return (self.below(mpmath.mpf(c)) - self._start) / self.total

    def hazard(self, c):
        with mpmath.workdps(DIGITS):
            x = mpmath.mpf(c)
            return (self.below(x) - self._start) / self.weight(x)

    def virtual_cost(self, c):
        with mpmath.workdps(DIGITS):
            return mpmath.mpf(c) + self.hazard(c)

    def mean(self):
        with mpmath.workdps(DIGITS):
            return (self.moment(mpmath.mpf(self.high)) - self.moment(mpmath.mpf(self.low))) / self.total


def uniform(low, high):
    return Slow(low, high, lambda c: mpmath.mpf(1), lambda c: c, lambda c: c * c / 2)


def exponential(rate, low, high):
    r, a = mpmath.mpf(rate), mpmath.mpf(low)

    def tail(c):
        return mp.exp(-r * (c - a))

    return Slow(low, high, lambda c: r * tail(c), lambda c: -tail(c), lambda c: -tail(c) * (c + 1 / r))


def normals(weights, means, sds, low, high):
    parts = [tuple(map(mpmath.mpf, map(float, p))) for p in zip(weights, means, sds, strict=True)]
    sign = -1 if all(m < low for m in means) else 1  # far above every mean: count from above

    def mass(c, m, s):
        return sign * mp.ncdf(sign * (c - m) / s)

    def weight(c):
        return mp.fsum(w * mp.npdf(c, m, s) for w, m, s in parts)

    def below(c):
        return mp.fsum(w * mass(c, m, s) for w, m, s in parts)

    def moment(c):
        return mp.fsum(w * (m * mass(c, m, s) - s * s * mp.npdf(c, m, s)) for w, m, s in parts)

    kinks = [m + s * k for m, s in zip(means, sds, strict=True) for k in (-8, -4, -2, -1, 0, 1, 2, 4, 8)]
    return Slow(low, high, weight, below, moment, [x for x in kinks if low < x < high])


def beta(alpha, shape, low, high):
    a, b, lo, hi = map(mpmath.mpf, (alpha, shape, low, high))

    def part(c):
        return (c - lo) / (hi - lo)

    def mass(c, first):
        if c == hi:
            return mp.beta(first, b)
        return mp.re(mp.betainc(first, b, 0, part(c)))

    return Slow(
        low,
        high,
        lambda c: part(c) ** (a - 1) * (1 - part(c)) ** (b - 1) / (hi - lo),
        lambda c: mass(c, a),
        lambda c: lo * mass(c, a) + (hi - lo) * mass(c, a + 1),
    )


def gamma(shape, low, high):
    k = mpmath.mpf(shape)
    return Slow(
        low,
        high,
        lambda c: c ** (k - 1) * mp.exp(-c),
        lambda c: mp.gammainc(k, 0, c),
        lambda c: mp.gammainc(k + 1, 0, c),
    )


def lognormal(s, low, high):
    sd = mpmath.mpf(s)
    return Slow(
        low,
        high,
        lambda c: mp.npdf(mp.log(c), 0, sd) / c if c > 0 else mpmath.mpf(0),
        lambda c: mp.ncdf(mp.log(c) / sd) if c > 0 else mpmath.mpf(0),
        lambda c: mp.exp(sd * sd / 2) * mp.ncdf(mp.log(c) / sd - sd) if c > 0 else mpmath.mpf(0),
    )


class SlowMenu:
    """The contract of theory A4 by quadrature, from float functions pdf, cdf and given pools.

    q = min(1, tau/sqrt(phibar)), spend = S(x) + tau A(x) with x the cut-off of tau; tau by bracketing
    its logarithm. S(x) = x G(x) outside pools (it telescopes); all else is adaptive quadrature.
    """

    def __init__(self, functions, low, high, budget, pools=()):
        self.functions, self.pdf, self.cdf = functions, functions.pdf, functions.cdf
        self.low, self.high, self.pools = low, high, tuple(pools)
        kinks = functions.kinks
        ends = [x for left, right, _ in pools for x in (left, right)]
        self.edges = sorted({low, high, *ends, *(x for x in kinks if low < x < high)})
        # E[sqrt(phibar)] of each piece once and for all; a spend then costs one quadrature
        self._pieces = [
            (a, b, self._mean_root(a, b)) for a, b in zip(self.edges[:-1], self.edges[1:], strict=True)
        ]
        self.tau = math.inf
        if budget < high:
            least = math.log(budget / self._tail(low)) - 1e-9  # tau of Case 1, never too large
            most = 0.5 * math.log(self._largest_finite()) + 1e-9
            log_tau = brentq(lambda s: self._gap(math.exp(s), budget), least, most, xtol=1e-15, rtol=1e-14)
            self.tau = math.exp(log_tau)
        self.threshold = self.cutoff(self.tau)

    def phibar(self, c):
        for left, right, value in self.pools:
            if left <= c <= right:
                return value
        g, mass = self.pdf(c), self.cdf(c)
        if mass == 0:
            return c
        return c + mass / g if g > 0 else math.inf

    def q(self, c):
        phi = self.phibar(c)
        certain = self.low < self.threshold and c <= self.threshold
        return 1.0 if certain or phi <= self.tau**2 else self.tau / math.sqrt(phi)

    def r(self, c):
        q = self.q(c)
        return c + self._integrate(self.q, c) / q if q > 0 else self.high

    def expected_inverse(self):
        if math.isinf(self.tau):
            return 1.0
        return self.cdf(self.threshold) + self._tail(self.threshold) / self.tau

    def expected_probability(self):
        edges = [self.threshold, *(x for x in self.edges if x > self.threshold)]
        return self.cdf(self.threshold) + self.functions.expectation(self.q, edges)

    def cutoff(self, tau):
        """sup of the costs with sqrt(phibar) <= tau; phibar does not fall."""
        if math.isinf(tau):
            return self.high
        if self.phibar(self.low) > tau**2:
            return self.low
        left, right = self.low, self.high
        for _ in range(70):
            middle = (left + right) / 2
            left, right = (middle, right) if self.phibar(middle) <= tau**2 else (left, middle)
        return left

    def _root_density(self, c):
        """sqrt(phibar) g, written so that it is finite where the density vanishes."""
        g = self.pdf(c)
        for left, right, value in self.pools:
            if left <= c <= right:
                return math.sqrt(value) * g
        return math.sqrt(g) * math.sqrt(c * g + self.cdf(c))

    def _head(self, x):
        for left, right, value in self.pools:
            if left < x < right:
                start = self.cdf(left)
                return left * start + value * (self.cdf(x) - start)
        return x * self.cdf(x)

    def _tail(self, x):
        return math.fsum(
            whole if x <= a else self._mean_root(x, b) for a, b, whole in self._pieces if b > x
        )

    def _gap(self, tau, budget):
        x = self.cutoff(tau)
        return self._head(x) + tau * self._tail(x) - budget

    def _largest_finite(self):
        step, c = 1e-16, self.high
        while not self.phibar(c) < 1e280:
            c, step = self.high - step * (self.high - self.low), 2 * step
        return max(self.phibar(c), self.high)

    def _integrate(self, function, start):
        edges = sorted({start, *(x for x in (*self.edges, self.threshold) if start < x <= self.high)})
        return math.fsum(_quad(function, a, b) for a, b in itertools.pairwise(edges))

    def _mean_root(self, a, b):
        """E[sqrt(phibar) 1{a < c <= b}]."""
        if self.functions.quantile is None:
            return _quad(self._root_density, a, b)
        return self.functions.expectation(lambda c: math.sqrt(self.phibar(c)), [a, b])


def _quad(function, a, b):
    return quad(function, a, b, epsabs=1e-300, epsrel=1e-11, limit=100)[0]


@dataclass
class Floats:
    """A prior in plain floats. With a `quantile` expectations are taken over u = cdf(c) instead of c."""

    pdf: object
    cdf: object
    kinks: list
    quantile: object = None

    def expectation(self, value, edges):
        pieces = itertools.pairwise(edges)
        if self.quantile is None:
            return math.fsum(_quad(lambda c: value(c) * self.pdf(c), a, b) for a, b in pieces)
        total = 0.0
        for a, b in pieces:
            start, stop = self.cdf(a), self.cdf(b)
            cuts = [start, *(10.0**-k for k in range(20, 0, -1) if start < 10.0**-k < stop), stop]
            total += math.fsum(
                _quad(lambda u: value(self.quantile(u)), u, v) for u, v in itertools.pairwise(cuts)
            )
        return total


def grid_hull(cdf, low, high, points):
    """Pools [(left, right, slope)] of the lower convex hull of (G, c G) on a fine grid of costs.

    Neighbouring grid points joined by the hull are no pool; a pool skips at least three points.
    """
    costs = np.unique(points)
    mass = cdf(costs)
    keep = np.concatenate([[True], np.diff(mass) > 0])
    costs, mass = costs[keep], mass[keep]
    area = costs * mass
    stack = []
    for k in range(costs.size):
        while len(stack) >= 2:
            i, j = stack[-2], stack[-1]
            cross = (mass[j] - mass[i]) * (area[k] - area[i]) - (mass[k] - mass[i]) * (area[j] - area[i])
            if cross > 0:
                break
            stack.pop()
        stack.append(k)
    return [
        (costs[i], costs[j], (area[j] - area[i]) / (mass[j] - mass[i]))
        for i, j in itertools.pairwise(stack)
        if j - i > 3
    ]


def refine(pdf, cdf, low, high, pool, reach):
    """The exact chord near a pool of the grid: phi(a) = y = phi(b), y = slope of the chord, in turn."""

    def phi(c):
        g, mass = pdf(c), cdf(c)
        return min(c + mass / g, 1e300) if g > 0 else (c if mass == 0 else 1e300)

    def through(y, near):
        start, stop = max(low, near - reach), min(high, near + reach)
        rising = [start + (stop - start) * k / 64 for k in range(65)]
        for a, b in itertools.pairwise(rising):
            if phi(a) <= y < phi(b):
                return brentq(lambda c: phi(c) - y, a, b, xtol=1e-15, rtol=1e-14)
        return stop if stop == high else start if start == low else near

    left, right, y = pool
    for _ in range(12):
        left, right = through(y, left), through(y, right)
        y = (right * cdf(right) - left * cdf(left)) / (cdf(right) - cdf(left))
    return left, right, y


def float_functions(kind, *args):
    """A prior in plain floats, by `math` and SciPy's special functions alone."""
    low, high = args[-2:]
    kinks, inverse = [], None
    if kind == "uniform":
        weight, below = (lambda c: 1.0), (lambda c: c - low)
    elif kind == "exponential":
        rate = args[0]
        weight, below = (
            lambda c: rate * math.exp(-rate * (c - low)),
            lambda c: -math.expm1(-rate * (c - low)),
        )
    elif kind == "normals":
        parts = list(zip(*args[:3], strict=True))
        side = 1.0 if all(m < low for _, m, _ in parts) else -1.0

        def weight(c):
            total = sum(w / s * math.exp(-(((c - m) / s) ** 2) / 2) for w, m, s in parts)
            return total / math.sqrt(2 * math.pi)

        def below(c):
            root = math.sqrt(2)
            total = sum(
                w * (math.erfc(side * (low - m) / s / root) - math.erfc(side * (c - m) / s / root))
                for w, m, s in parts
            )
            return side * 0.5 * total

        kinks = [m + s * k for _, m, s in parts for k in (-8, -5, -3, -2, -1, 0, 1, 2, 3, 5, 8)]
    elif kind == "beta":
        a, b = args[:2]
        width, size = high - low, math.exp(special.betaln(a, b))

        def weight(c):
            x, rest = max((c - low) / width, 1e-17), max((high - c) / width, 1e-17)  # finite at the ends
            return x ** (a - 1) * rest ** (b - 1) / (width * size)

        def below(c):
            return float(special.betainc(a, b, min(1.0, (c - low) / width)))

        if a < 1 or b < 1:  # the density is infinite at an end

            def inverse(u):
                return low + width * float(special.betaincinv(a, b, u))

    elif kind == "gamma":
        (k,) = args[:1]
        weight, below = (
            lambda c: max(c, 1e-300) ** (k - 1) * math.exp(-c) / math.gamma(k),
            lambda c: float(special.gammainc(k, c) - special.gammainc(k, low)),
        )
        if k < 1:

            def inverse(u):
                return float(special.gammaincinv(k, u * special.gammainc(k, high)))

    elif kind == "lognormal":
        (s,) = args[:1]

        def weight(c):
            if c <= 0:
                return 0.0
            return math.exp(-((math.log(c) / s) ** 2) / 2) / (c * s * math.sqrt(2 * math.pi))

        def mass(c):
            return 0.5 * math.erfc(-math.log(c) / s / math.sqrt(2)) if c > 0 else 0.0

        def below(c):
            return mass(c) - mass(low)

    total = below(high)
    return Floats(
        lambda c: weight(c) / total,
        lambda c: below(c) / total,
        sorted(x for x in kinks if low < x < high),
        inverse,
    )
