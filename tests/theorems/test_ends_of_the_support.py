"""Terms at the ends of the support (theory A4), and that whatever is quoted is verified.

Where the density vanishes at the highest cost, the virtual cost has no bound there: q(high) = 0 and
r(high) = high. Where the density has no bound, the virtual cost falls to `high`, so that a pool ends there:
q(high) is that of the pool. At the lowest cost the virtual cost is that cost.
"""

import json
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy import stats

from bonafed.economics import (
    NormalMixture,
    ScaledBeta,
    TruncatedExponential,
    TruncatedNormal,
    from_scipy,
)
from bonafed.economics.audit import expected_transfer
from bonafed.errors import InvalidValue
from bonafed.mechanisms.sampling import optimal_menu
from bonafed.mechanisms.sampling.contracts import contract
from bonafed.mechanisms.sampling.verification import verify
from tests.theorems.strategies import fewer, powers_of_ten


def broken(prior, share):
    """What verification finds wrong with the contract that spends `share` per client and round."""
    offer = contract(prior, share * 12, clients=4, rounds=3)
    return [finding.text for finding in verify(json.loads(offer.content)) if finding.holds is not True]


JUST_BELOW, JUST_ABOVE = math.nextafter(1.0, 0.0), math.nextafter(1.0, 2.0)
SHAPES = st.one_of(
    powers_of_ten(math.log10(0.05), math.log10(20)),
    st.sampled_from([0.999, 1 - 1e-9, 1 - 1e-13, JUST_BELOW, 1.0, JUST_ABOVE, 1 + 1e-9, 1.001, 2.0]),
)
LOWS = st.sampled_from([0.0, 1e-3, 0.1, 0.5])
WIDTHS = st.sampled_from([0.01, 1.0, 3.0, 100.0])
PARTS = st.one_of(st.floats(0.01, 0.99), st.sampled_from([1e-6, 1e-3, 0.9999]))


@fewer(0.5)
@given(SHAPES, SHAPES, LOWS, WIDTHS, PARTS)
def test_what_is_quoted_for_any_beta_is_verified(alpha, beta, low, width, part):
    assert broken(ScaledBeta(alpha, beta, low, low + width), low + part * width) == []


def exponential(steepness, low, width, _at):
    return TruncatedExponential(steepness / width, low, low + width)


def normal(spread, low, width, at):
    return TruncatedNormal(low + at * width, spread * width, low, low + width)


def bimodal(spread, low, width, at):
    return NormalMixture([0.4, 0.6], [low, low + at * width], [spread * width, width], low, low + width)


def power(shape, low, width, _at):
    return from_scipy(stats.powerlaw(shape, loc=low, scale=2 * width), low, low + width)


def gamma(shape, low, width, _at):
    return from_scipy(stats.gamma(shape, loc=low, scale=width), low, low + width)


@fewer(0.4)
@given(
    st.sampled_from([exponential, normal, bimodal, power, gamma]),
    powers_of_ten(-1, 1.5),
    LOWS,
    WIDTHS,
    st.floats(-0.5, 1.5),
    PARTS,
)
def test_what_is_quoted_for_other_kinds_is_verified(kind, shape, low, width, at, part):
    try:
        prior = kind(shape, low, width, at)
    except InvalidValue:
        assume(False)
    assert broken(prior, low + part * width) == []


@pytest.mark.parametrize("beta", [JUST_ABOVE, 1.001, 1.5, 2.0, 2.4, 2.9])
@pytest.mark.parametrize("alpha", [0.2, 1.0, 2.0])
def test_nobody_at_the_highest_cost_is_sampled_where_the_density_vanishes(alpha, beta):
    menu = optimal_menu(ScaledBeta(alpha, beta, 0.5, 1.5), 0.75)
    q, r = menu.price([1.4, 1.5])
    assert q[0] > 0
    assert q[1] == 0
    assert r[1] == 1.5


@pytest.mark.parametrize("beta", [0.05, 0.1, 0.5, 0.9, 0.999, 1 - 1e-9, JUST_BELOW])
@pytest.mark.parametrize("alpha", [0.2, 1.0, 2.0])
def test_the_highest_cost_is_in_a_pool_where_the_density_has_no_bound(alpha, beta):
    prior = ScaledBeta(alpha, beta, 0.5, 1.5)
    pool = prior.ironed_intervals[-1]
    assert pool.right == 1.5
    menu = optimal_menu(prior, 0.75)
    q, r = menu.price([math.nextafter(pool.left, 2.0), math.nextafter(1.5, 0.0), 1.5])
    assert q == pytest.approx(menu.scale / math.sqrt(pool.virtual_cost), rel=1e-12)
    assert r == pytest.approx(1.5, rel=1e-12)


@pytest.mark.parametrize("alpha", [1.0, 2.0, 5.0])
def test_a_pool_too_narrow_for_the_grid_is_the_tangent_from_the_end(alpha):
    """Its slope is that of the chord, (high - a G(a))/(1 - G(a)), and phi(a), that of the curve."""
    prior = ScaledBeta(alpha, 0.9999, 0.5, 1.5)
    (pool,) = prior.ironed_intervals
    assert 1e-7 < 1.5 - pool.left < 1 / 4096
    assert float(prior.virtual_cost(pool.left)) == pytest.approx(pool.virtual_cost, rel=1e-15)
    mass = float(prior.cdf(pool.left))
    assert pool.left + (1.5 - pool.left) / (1 - mass) == pytest.approx(pool.virtual_cost, rel=1e-9)


def test_a_hardly_unbounded_density_gives_the_terms_of_a_bounded_one():
    costs = np.linspace(0.5, 1.5, 65)
    q, r = optimal_menu(ScaledBeta(2.0, JUST_BELOW, 0.5, 1.5), 0.75).price(costs)
    q_bounded, r_bounded = optimal_menu(ScaledBeta(2.0, 1.0, 0.5, 1.5), 0.75).price(costs)
    assert q == pytest.approx(q_bounded, rel=1e-7)
    assert r == pytest.approx(r_bounded, rel=1e-7)


@pytest.mark.parametrize(
    ("prior", "share"),
    [
        (ScaledBeta(2.0, 0.1, 0.5, 1.5), 0.75),
        (ScaledBeta(0.2, 2.0, 0.5, 1.5), 0.75),
        (ScaledBeta(2.0, 2.0, 0.5, 1.5), 0.75),
        (ScaledBeta(0.065, 9.1, 0.1, 3.1), 0.103),  # the first double above `low` has most of the mass
        (ScaledBeta(0.98, 0.147, 0.0, 3.0), 3e-6),  # the cut-off is next to a cost of 0
        (NormalMixture([1.0], [0.1464], [1.62e-4], 0.1, 0.186), 0.10000009),  # hardly any mass near `low`
        (NormalMixture([1.0], [-0.1408], [9.7e-3], 0.0, 2.4517), 2.2),  # far in the tail
        (TruncatedExponential(65.5, 0.1, 22.7), 6.85),  # probabilities of 1e-90
        (from_scipy(stats.triang(1.0, loc=0.1, scale=65.17), 0.1, 65.27), 58.753),  # a kink beside a border
    ],
    ids=["high", "vanishing", "2,2", "low", "zero", "needle", "tail", "steep", "kink"],
)
@pytest.mark.filterwarnings("error")
def test_hard_priors(prior, share):
    assert broken(prior, share) == []


def test_all_money_is_spent_where_the_last_double_below_the_end_holds_mass():
    prior = ScaledBeta(2.0, 0.1, 0.5, 1.5)
    assert prior.cdf(math.nextafter(1.5, 0.0)) < 0.98
    assert expected_transfer(optimal_menu(prior, 0.75), prior) == pytest.approx(0.75, rel=1e-8)
