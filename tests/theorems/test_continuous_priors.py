"""Continuous priors of every kind against 60-digit twins (theory A2 to A4)."""

import itertools
import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats
from scipy.integrate import quad

from bonafed.economics import (
    NormalMixture,
    ScaledBeta,
    TruncatedExponential,
    TruncatedNormal,
    Uniform,
    from_scipy,
)
from bonafed.economics.priors import ContinuousPrior, ScipyPrior
from tests.oracles import continuous as slow
from tests.theorems.kinds import KINDS, NAMES, inner_costs
from tests.theorems.strategies import powers_of_ten

EVERY = pytest.mark.parametrize("kind", KINDS, ids=NAMES)
BY_FORMULA = [k for k in KINDS if not isinstance(k.prior, ScipyPrior)]
IRREGULAR = [k for k in KINDS if not k.regular]


def reference(function, costs):
    return np.array([float(function(float(c))) for c in costs])


@EVERY
def test_cdf_and_density(kind):
    costs = inner_costs(kind.prior)
    assert kind.prior.cdf(costs) == pytest.approx(reference(kind.twin.cdf, costs), rel=1e-11, abs=1e-15)
    expected = reference(kind.twin.pdf, costs)
    assert kind.prior.pdf(costs) == pytest.approx(expected, rel=1e-10, abs=1e-15 * expected.max())


@EVERY
def test_cdf_ends(kind):
    low, high = kind.prior.low, kind.prior.high
    assert kind.prior.cdf([low - 1, low, high, high + 1]).tolist() == [0.0, 0.0, 1.0, 1.0]
    assert kind.prior.pdf([low - 1e-9, high + 1e-9]).tolist() == [0.0, 0.0]


@EVERY
def test_density_is_the_slope_of_the_cdf(kind):
    prior = kind.prior
    edges = np.unique([*prior.quantile(np.linspace(0.1, 0.9, 33)), *kind.twin.kinks])
    for a, b in itertools.pairwise(edges):
        area = quad(lambda c: float(prior.pdf(c)), a, b, epsabs=1e-300, epsrel=1e-10)[0]
        assert float(prior.cdf(b) - prior.cdf(a)) == pytest.approx(area, rel=1e-9, abs=1e-15)


@EVERY
def test_quantile_inverts_the_cdf(kind):
    levels = np.array([1e-9, 1e-4, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.9999])
    costs = kind.prior.quantile(levels)
    assert np.all(np.diff(costs) >= 0)
    # What rounding of the cost does to the cdf is allowed, and nothing else.
    rounding = 4 * np.spacing(costs) * np.maximum(kind.prior.pdf(costs), 1.0)
    assert np.all(np.abs(kind.prior.cdf(costs) - levels) <= 1e-13 + rounding)
    assert kind.prior.cdf(kind.prior.quantile([0.0, 1.0])) == pytest.approx([0.0, 1.0], abs=1e-13)


@EVERY
def test_mean(kind):
    assert kind.prior.mean == pytest.approx(float(kind.twin.mean()), rel=1e-11)


class Hidden(ContinuousPrior):
    """A needle in an even density, which says nothing of where it is."""

    low, high, ironed_intervals = 0.0, 1.0, ()

    def pdf(self, c):
        return 0.9 + 0.1 * stats.norm.pdf(c, 0.77, 1e-6)

    def cdf(self, c):
        return 0.9 * np.asarray(c) + 0.1 * stats.norm.cdf(c, 0.77, 1e-6)

    def to_json(self):
        return {}


@pytest.mark.parametrize(
    ("prior", "mean"),
    [
        (TruncatedExponential(1.0, 0.0, 1e6), 1.0),
        (TruncatedExponential(1.0, 0.0, 1e300), 1.0),
        (TruncatedNormal(-25.0, 1.0, 0.0, 1e5), 1 / (special.erfcx(25 / 2**0.5) * (np.pi / 2) ** 0.5) - 25),
        (from_scipy(stats.norm(1.03, 1e-5), 0.0, 2.0), 1.03),
        (Hidden(), 0.9 * 0.5 + 0.1 * 0.77),
    ],
    ids=["exponential", "absurd", "tail", "needle", "hidden"],
)
def test_mean_of_a_prior_concentrated_in_a_sliver_of_its_support(prior, mean):
    assert prior.mean == pytest.approx(mean, rel=1e-9)


@EVERY
def test_virtual_cost_inside(kind):
    costs = inner_costs(kind.prior)
    expected = np.array([float(kind.twin.virtual_cost(float(c))) for c in costs])
    representable = expected < 1e250
    assert kind.prior.virtual_cost(costs)[representable] == pytest.approx(
        expected[representable], rel=1e-9 if isinstance(kind.prior, ScipyPrior) else 1e-11
    )


@pytest.mark.parametrize("kind", BY_FORMULA, ids=[k.name for k in BY_FORMULA])
@pytest.mark.parametrize("part", [1e-14, 1e-12, 1e-9, 1e-6, 1e-3])
def test_hazard_term_keeps_its_digits_near_the_lowest_cost(kind, part):
    prior = kind.prior
    cost = prior.low + part * (prior.high - prior.low)
    expected = float(kind.twin.hazard(cost))
    assert float(prior.hazard_term(cost)) == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("kind", BY_FORMULA, ids=[k.name for k in BY_FORMULA])
@pytest.mark.parametrize("part", [1e-3, 1e-6, 1e-9])
def test_hazard_term_keeps_its_digits_near_the_highest_cost(kind, part):
    prior = kind.prior
    cost = prior.high - part * (prior.high - prior.low)
    expected = kind.twin.hazard(cost)
    if expected < 1e250:
        assert float(prior.hazard_term(cost)) == pytest.approx(float(expected), rel=1e-10)


@pytest.mark.parametrize(
    "kind", [k for k in KINDS if isinstance(k.prior, ScipyPrior)], ids=lambda k: k.name
)
@pytest.mark.parametrize("part", [1e-9, 1e-6, 1e-3, 0.5, 1 - 1e-6])
def test_virtual_cost_of_any_scipy_distribution(kind, part):
    """cdf(c) - cdf(low) is all one has of a general distribution: an absolute error of 1e-15 in it."""
    prior = kind.prior
    cost = prior.low + part * (prior.high - prior.low)
    expected = float(kind.twin.virtual_cost(cost))
    allowed = 1e-15 / max(float(kind.twin.pdf(cost)), 1e-300)
    assert float(prior.virtual_cost(cost)) == pytest.approx(expected, rel=1e-11, abs=min(allowed, 1e-9))


@EVERY
def test_virtual_cost_at_the_lowest_cost_is_the_lowest_cost(kind):
    assert float(kind.prior.virtual_cost(kind.prior.low)) == kind.prior.low


@EVERY
def test_root_density_is_root_of_virtual_cost_times_density(kind):
    costs = inner_costs(kind.prior)
    with mpmath.workdps(40):
        expected = [
            float(mpmath.sqrt(kind.twin.virtual_cost(float(c))) * kind.twin.pdf(float(c))) for c in costs
        ]
    assert kind.prior.root_density(costs) == pytest.approx(expected, rel=1e-9, abs=1e-14 * max(expected))


@EVERY
def test_virtual_cost_telescopes(kind):
    """E[phi 1{a < c <= x}] = x G(x) - a G(a), from the library's own density and virtual cost."""
    prior = kind.prior
    edges = np.unique([*prior.quantile(np.linspace(0.02, 0.6, 15)), *kind.twin.kinks])
    a, x = edges[0], edges[-1]
    area = math.fsum(
        quad(lambda c: float(prior.virtual_cost(c) * prior.pdf(c)), a, b, epsabs=1e-300, epsrel=1e-10)[0]
        for a, b in itertools.pairwise(edges)
    )
    assert area == pytest.approx(float(x * prior.cdf(x) - a * prior.cdf(a)), rel=1e-9)


@EVERY
def test_is_regular(kind):
    assert kind.prior.is_regular == kind.regular
    assert bool(kind.prior.ironed_intervals) == (not kind.regular)


@pytest.mark.parametrize("kind", IRREGULAR, ids=[k.name for k in IRREGULAR])
def test_pools_are_chords_of_the_hull(kind):
    """(i) phi = y at both ends, (ii) equal areas, (iii) the chord lies below the curve: all of it."""
    prior, twin = kind.prior, kind.twin
    previous = prior.low
    for left, right, y in prior.ironed_intervals:
        assert previous <= left < right <= prior.high
        previous = right
        if left > prior.low:
            assert float(twin.virtual_cost(left)) == pytest.approx(y, rel=1e-7)
        if right < prior.high:
            assert float(twin.virtual_cost(right)) == pytest.approx(y, rel=1e-7)
        with mpmath.workdps(40):
            start, end = twin.cdf(left), twin.cdf(right)
            slope = (mpmath.mpf(right) * end - mpmath.mpf(left) * start) / (end - start)
        assert float(slope) == pytest.approx(y, rel=1e-12)
        for c in np.concatenate([np.linspace(left, right, 41)[1:-1], np.array(twin.kinks)]):
            if left < c < right:
                with mpmath.workdps(40):
                    mass = twin.cdf(c)
                    chord = left * start + mpmath.mpf(y) * (mass - start)
                    assert mpmath.mpf(c) * mass >= chord - mpmath.mpf(10) ** -14


@pytest.mark.parametrize("kind", IRREGULAR, ids=[k.name for k in IRREGULAR])
def test_pools_are_those_of_a_fine_grid(kind):
    prior = kind.prior
    even = np.linspace(prior.low, prior.high, 20_001)
    likely = prior.quantile(np.linspace(0, 1, 20_001))
    points = np.unique(np.concatenate([even, likely]))
    pools = [p for p in slow.grid_hull(prior.cdf, prior.low, prior.high, points) if p[1] - p[0] > 1e-3]
    found = [p for p in prior.ironed_intervals if p.right - p.left > 1e-3]
    assert len(found) == len(pools)
    for (left, right, y), (grid_left, grid_right, slope) in zip(found, pools, strict=True):
        assert left == pytest.approx(grid_left, abs=5e-3 * (prior.high - prior.low))
        assert right == pytest.approx(grid_right, abs=5e-3 * (prior.high - prior.low))
        assert y == pytest.approx(slope, rel=1e-4)


@EVERY
def test_ironed_virtual_cost_never_falls(kind):
    costs = np.unique(np.concatenate([inner_costs(kind.prior, 400), kind.prior.landmarks()]))
    ironed = kind.prior.ironed_virtual_cost(costs)
    finite = ironed[np.isfinite(ironed)]
    assert np.all(np.diff(finite) >= -1e-9 * finite[:-1])
    assert np.all(finite >= costs[np.isfinite(ironed)].min())


LOWS = st.one_of(st.just(0.0), st.floats(0.01, 5))
WIDTHS = powers_of_ten(-2, 1)
PARTS = st.one_of(powers_of_ten(-12, -1), st.floats(0.1, 0.9))


@given(LOWS, WIDTHS, powers_of_ten(-2, 1), st.floats(-20, 20), PARTS)
def test_random_truncated_normals(low, width, sd, shift, part):
    """Any cut of a normal distribution, far tails included."""
    mean = low + width * 0.5 + shift * sd
    high = low + width
    cost = low + part * (high - low)
    twin = slow.normals([1], [mean], [sd], low, high)
    if min(abs(low - mean), abs(high - mean)) > 25 * sd:
        return  # no mass a double can hold
    prior = TruncatedNormal(mean, sd, low, high)
    expected = twin.hazard(cost)
    if 1e-250 < expected < 1e250:
        assert float(prior.hazard_term(cost)) == pytest.approx(float(expected), rel=1e-10)
    assert float(prior.cdf(cost)) == pytest.approx(float(twin.cdf(cost)), rel=1e-9, abs=1e-12)


@given(LOWS, WIDTHS, powers_of_ten(-0.7, 2), powers_of_ten(-0.7, 2), PARTS)
def test_random_betas(low, width, alpha, beta, part):
    high = low + width
    cost = low + part * (high - low)
    if cost <= low:
        return
    prior, twin = ScaledBeta(alpha, beta, low, high), slow.beta(alpha, beta, low, high)
    expected = twin.hazard(cost)
    if 1e-250 < expected < 1e250:
        assert float(prior.hazard_term(cost)) == pytest.approx(float(expected), rel=1e-9)


@given(LOWS, WIDTHS, powers_of_ten(-8, 2), PARTS)
def test_random_exponentials(low, width, rate, part):
    high = low + width
    cost = low + part * (high - low)
    if cost <= low:
        return
    prior, twin = TruncatedExponential(rate, low, high), slow.exponential(rate, low, high)
    expected = twin.hazard(cost)
    if expected < 1e250:
        assert float(prior.hazard_term(cost)) == pytest.approx(float(expected), rel=1e-12)
    assert float(prior.cdf(cost)) == pytest.approx(float(twin.cdf(cost)), rel=1e-12)
    level = float(prior.cdf(cost))
    assert float(prior.cdf(prior.quantile(level))) == pytest.approx(level, rel=1e-9)


@given(
    st.lists(st.tuples(st.floats(0.1, 1), st.floats(0, 2), powers_of_ten(-3, 0)), min_size=1, max_size=3),
    PARTS,
)
def test_random_mixtures(parts, part):
    weights, means, sds = map(np.array, zip(*parts, strict=True))
    weights = weights / weights.sum()
    low, high = 0.2, 2.0
    cost = low + part * (high - low)
    twin = slow.normals(weights, means, sds, low, high)
    if twin.total < 1e-6:
        return
    prior = NormalMixture(weights, means, sds, low, high)
    expected = twin.hazard(cost)
    if 1e-250 < expected < 1e250:
        assert float(prior.hazard_term(cost)) == pytest.approx(float(expected), rel=1e-9)


def test_uniform_virtual_cost_is_exact():
    prior = Uniform(0.5, 1.5)
    costs = np.linspace(0.5, 1.5, 11)
    assert prior.virtual_cost(costs) == pytest.approx(2 * costs - 0.5, rel=1e-15)


def test_truncation_cancels_for_the_exponential():
    one, other = TruncatedExponential(2.0, 0.3, 1.0), TruncatedExponential(2.0, 0.3, 5.0)
    costs = np.linspace(0.3, 1.0, 7)
    assert np.array_equal(one.virtual_cost(costs), other.virtual_cost(costs))
