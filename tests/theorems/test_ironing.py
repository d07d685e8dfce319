"""Virtual cost and ironing of finite priors against exact fractions (theory A2, A3)."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bonafed.economics import Discrete
from tests.oracles import finite
from tests.theorems.strategies import discrete_priors, tied_priors

PRIORS = given(discrete_priors(12))


def floats(values):
    return np.array([float(v) for v in values])


@PRIORS
def test_virtual_cost(prior):
    expected = floats(finite.virtual_costs(prior.costs, prior.masses))
    assert prior.virtual_cost(prior.costs) == pytest.approx(expected, rel=1e-12)


@PRIORS
def test_oracles_agree(prior):
    """The hull and pooling adjacent violators are the same thing, exactly."""
    phi = finite.virtual_costs(prior.costs, prior.masses)
    pooled = finite.pool_adjacent_violators(phi, prior.masses)
    assert pooled == finite.hull_slopes(prior.costs, prior.masses)


@PRIORS
def test_ironed_virtual_cost_is_the_slope_of_the_hull(prior):
    expected = floats(finite.hull_slopes(prior.costs, prior.masses))
    ironed = prior.ironed_virtual_cost(prior.costs)
    assert ironed == pytest.approx(expected, rel=1e-11, abs=1e-300)
    assert np.all(np.diff(ironed) >= 0)


@PRIORS
def test_telescoping(prior):
    """sum of f_i phi_i over i <= k is c_k F_k; in particular E[phi] is the highest cost."""
    phi = prior.virtual_cost(prior.costs)
    partial = np.cumsum(prior.masses * phi)
    assert partial == pytest.approx(prior.costs * np.cumsum(prior.masses), rel=1e-12)
    assert prior.masses @ phi == pytest.approx(prior.high, rel=1e-12)
    assert prior.masses @ prior.ironed_virtual_cost(prior.costs) == pytest.approx(prior.high, rel=1e-12)


@PRIORS
def test_pools_keep_their_money(prior):
    """Within a pool the mean of phi is the pooled value; outside nothing changes."""
    phi, ironed = prior.virtual_cost(prior.costs), prior.ironed_virtual_cost(prior.costs)
    pooled = np.zeros(prior.costs.size, bool)
    for left, right, value in prior.ironed_intervals:
        inside = (prior.costs >= left) & (prior.costs <= right)
        pooled |= inside
        assert inside.sum() >= 2
        assert (prior.masses[inside] @ phi[inside]) == pytest.approx(
            value * prior.masses[inside].sum(), rel=1e-11
        )
        assert np.all(ironed[inside] == value)
    assert ironed[~pooled] == pytest.approx(phi[~pooled], rel=1e-13)


@given(tied_priors(10))
def test_is_regular(prior):
    """Regular exactly where phi does not fall; small whole numbers make the ties."""
    phi = finite.virtual_costs(prior.costs, [round(m * 10**6) for m in prior.masses])
    falls = any(b < a * (1 - 10**-5) for a, b in itertools.pairwise(phi))
    rises = all(b >= a * (1 + 10**-5) for a, b in itertools.pairwise(phi))
    if falls:
        assert not prior.is_regular
        assert prior.ironed_intervals
    if rises:
        assert prior.is_regular
        assert prior.ironed_intervals == ()


@PRIORS
def test_reports_between_support_points_are_rounded_up(prior):
    between = (prior.costs[1:] + prior.costs[:-1]) / 2
    assert np.array_equal(prior.virtual_cost(between), prior.virtual_cost(prior.costs[1:]))
    assert np.array_equal(prior.ironed_virtual_cost(between), prior.ironed_virtual_cost(prior.costs[1:]))


@given(st.lists(st.floats(0.01, 1), min_size=2, max_size=10))
def test_a_single_dear_atom_pools_everything_below_it(weights):
    """A heavy top level after a light one: phi falls there, so the two must be pooled."""
    masses = np.array([*weights, sum(weights) * 1e-4, sum(weights) * 100])
    prior = Discrete(np.arange(1, masses.size + 1.0), masses / masses.sum())
    phi = prior.virtual_cost(prior.costs)
    assert phi[-2] > phi[-1]
    assert prior.ironed_intervals[-1].right == prior.high
