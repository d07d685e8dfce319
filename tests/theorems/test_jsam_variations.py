"""Floors and the printed algorithm, each against something slow and obvious."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bonafed.mechanisms.jsam import allocate, allocate_with_floor
from tests.oracles import jsam as oracle
from tests.theorems.strategies import NOISE_SCALES, WEIGHTS, fewer, powers_of_ten, virtual_costs


@given(virtual_costs(most=4, least=2), WEIGHTS, NOISE_SCALES, st.floats(0.0, 1.0))
@fewer(0.5)
def test_no_point_of_a_grid_above_the_floor_is_better(v, eta, q, share):
    floor = share / v.size
    found = allocate_with_floor(v, eta, q, floor)
    grid = oracle.simplex_grid(v.size, {2: 300, 3: 48, 4: 20}[v.size], floor)
    assert found.plan.objective <= oracle.value_of(grid, v, eta, q).min() * (1 + 1e-12)
    assert found.price >= 0
    assert np.all(found.plan.selection >= floor * (1 - 1e-12))
    assert found.plan.selection.sum() == pytest.approx(1.0, rel=1e-13)


@pytest.mark.parametrize("share", [0.01, 0.2, 0.7])
@pytest.mark.parametrize("n", [5, 9, 25])
def test_no_searched_plan_above_the_floor_is_better(n, share):
    rng = np.random.default_rng(n)
    v, floor = rng.uniform(0.02, 2, n), share / n
    found = allocate_with_floor(v, 1.0, 0.5, floor)
    assert found.plan.objective <= oracle.local_search(v, 1.0, 0.5, rng, 1000, 15, floor=floor) * (
        1 + 1e-12
    )


@given(virtual_costs(most=12), WEIGHTS, NOISE_SCALES)
@fewer(0.5)
def test_the_two_ends_of_the_floor(v, eta, q):
    n = v.size
    free, none = allocate(v, eta, q), allocate_with_floor(v, eta, q, 0.0)
    assert none.plan.objective == pytest.approx(free.objective, rel=1e-12)
    assert none.price <= 1e-12 * free.objective
    fair = allocate_with_floor(v, eta, q, 1 / n).plan
    assert fair.selection == pytest.approx(np.full(n, 1 / n), rel=1e-13)
    assert fair.objective == pytest.approx(oracle.value_of(np.full((1, n), 1 / n), v, eta, q)[0], rel=1e-12)
    assert 0 <= fair.distance <= 1e-13


def test_floor_zero_gives_the_optimal_plan():
    v = np.random.default_rng(3).uniform(0.05, 2, 20)
    free, none = allocate(v, 1.0, 0.3), allocate_with_floor(v, 1.0, 0.3, 0.0).plan
    assert 1 < free.threshold < 20
    assert none.selection == pytest.approx(free.selection, abs=1e-14)
    assert none.privacy == pytest.approx(free.privacy, rel=1e-12)


def test_a_higher_floor_costs_more():
    v = [0.24, 0.7, 1.0, 1.42, 1.86]
    prices = [allocate_with_floor(v, 1.0, 1.0, f).price for f in np.linspace(0, 0.2, 11)]
    assert np.all(np.diff(prices) >= -1e-15)
    assert prices[-1] > prices[0] == 0


@given(st.lists(st.floats(0.02, 2.0), min_size=1, max_size=7), powers_of_ten(-1, 1), powers_of_ten(-1, 1))
@fewer(0.5)
def test_the_printed_algorithm_is_never_better(costs, eta, q):
    v = np.sort(costs)
    exact, printed = allocate(v, eta, q), allocate(v, eta, q, "printed", grid=0.1 / v.size)
    assert printed.objective >= exact.objective * (1 - 1e-12)
    if exact.threshold > 1:
        assert printed.objective == pytest.approx(exact.objective, rel=1e-12)


def test_the_printed_algorithm_is_worse_where_one_client_is_enough():
    v = [0.24, 0.7, 1.0, 1.42, 1.86]
    exact, printed = allocate(v, 1.0, 100.0), allocate(v, 1.0, 100.0, "printed", grid=0.01)
    assert exact.threshold == 1
    assert printed.objective > exact.objective * 1.01
