"""The inner problem of JSAM: the closed form against numeric minimisation, from 1e-6 to 1e6."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bonafed.mechanisms.jsam import noise_scale, objective
from bonafed.mechanisms.jsam.thresholds import ObjectiveTerms, budgets, inner, total_and_rest
from tests.oracles import jsam as oracle
from tests.theorems.strategies import powers_of_ten

WIDE = powers_of_ten(-6, 6)
DISTANCES = st.one_of(st.just(0.0), powers_of_ten(-9, 0), st.floats(0.0, 2.0))


@given(WIDE, DISTANCES, WIDE, WIDE)
def test_closed_form_is_the_minimum(eta, distance, spread, q):
    total, value = inner(eta, distance, spread, q)
    slow_total, slow = oracle.least(eta, distance, spread, q)
    assert value == pytest.approx(float(slow), rel=1e-13)
    assert total == pytest.approx(float(slow_total), rel=1e-12)


@given(WIDE, DISTANCES, WIDE, WIDE)
def test_both_agree_with_a_search_that_knows_nothing(eta, distance, spread, q):
    total, value = inner(eta, distance, spread, q)
    searched_total, searched, searched_rest = oracle.least_by_search(eta, distance, spread, q)
    assert value <= searched * (1 + 1e-14)
    assert value == pytest.approx(searched, rel=1e-10)
    assert total_and_rest(eta, distance, spread, q) == (total, pytest.approx(searched_rest, rel=1e-10))
    z = math.sqrt(q) * spread**1.5
    for factor in (0.5, 0.999, 1.001, 2.0):
        other = float(total) * factor
        assert eta * (distance + math.hypot(distance, z / other)) + other >= value * (1 - 1e-14)
    assert searched_total == pytest.approx(float(total), rel=1e-3)  # flat at the bottom


def exactly(bias, noise, rest):
    """J of `ObjectiveTerms` with 60 digits."""
    with localcontext(prec=60):
        b, m, r = (Decimal(float(x)) for x in (bias, noise, rest))
        return b + (b * b + m * m).sqrt() + r


MONEY = st.one_of(st.just(0.0), powers_of_ten(-3, 30))


@given(st.tuples(MONEY, MONEY, MONEY), st.tuples(MONEY, MONEY, MONEY), st.integers(0, 7))
def test_a_difference_of_objectives_keeps_the_digits_that_they_do_not_share(one, other, shared):
    """To a few roundings of the terms in which they differ, however large the others are."""
    other = [a if shared >> place & 1 else b for place, (a, b) in enumerate(zip(one, other, strict=True))]
    after, before = (ObjectiveTerms(*(np.array([x]) for x in terms)) for terms in (one, other))
    value, size = after.since(before)
    with localcontext(prec=60):
        expected = float(exactly(*one) - exactly(*other))
    assert value[0] == pytest.approx(expected, rel=0, abs=8 * np.finfo(float).eps * size[0])
    assert size[0] <= 2 * (after.objective[0] + before.objective[0])
    if shared == 7:
        assert value[0] == size[0] == 0


@given(WIDE, DISTANCES, DISTANCES, WIDE, WIDE)
def test_objective_rises_with_the_distance(eta, one, two, spread, q):
    values = inner(eta, np.sort([one, two]), spread, q).objective
    assert values[0] <= values[1] * (1 + 1e-15)


@given(WIDE, DISTANCES, WIDE, st.floats(1.001, 1e3), WIDE)
def test_objective_and_money_rise_with_the_spread(eta, distance, spread, factor, q):
    total, value = inner(eta, distance, np.array([spread, spread * factor]), q)
    assert value[0] <= value[1] * (1 + 1e-15)
    assert total[0] < total[1]


@given(WIDE, DISTANCES)
def test_without_noise_nothing_is_bought(eta, distance):
    assert inner(eta, distance, 0.0, 1.0) == (0.0, 2 * eta * distance)


@pytest.mark.parametrize("spread", [1e-250, 1e-200, 1e-100, 1e100, 1e200])
@pytest.mark.parametrize("distance", [0.0, 1e-12, 1.0, 2.0])
def test_extreme_ratios_stay_finite_and_in_order(spread, distance):
    total, value = inner(1.0, distance, spread, 1.0)
    assert np.isfinite([total, value]).all()
    assert max(2 * distance, math.sqrt(spread**1.5)) <= value * (1 + 1e-15)
    assert total <= math.sqrt(spread**1.5) * (1 + 1e-15)  # never more than without a distance


def test_more_than_a_double_can_hold_is_infinite_not_a_warning():
    assert inner(1.0, 0.5, np.array([1e250, np.inf]), 1e20).objective.tolist() == [np.inf, np.inf]


@given(st.lists(st.tuples(powers_of_ten(-4, 0), powers_of_ten(-4, 3)), min_size=1, max_size=8), WIDE)
def test_budgets_spend_the_total_with_the_least_noise(clients, total):
    p, v = np.array(clients).T
    p = np.append(p / p.sum(), 0.0)
    v = np.append(v, 1.0)
    epsilon = budgets(p, v, total)
    assert epsilon[-1] == 0.0
    assert epsilon @ v == pytest.approx(total, rel=1e-12)
    least = ((p[:-1] * v[:-1]) ** (2 / 3)).sum() ** 3 / total**2  # Hoelder
    assert ((p[:-1] / epsilon[:-1]) ** 2).sum() == pytest.approx(least, rel=1e-12)


def test_objective_is_problem_3():
    p, epsilon, v = np.array([0.6, 0.4, 0.0]), np.array([1.0, 0.5, 0.0]), np.array([0.2, 0.7, 3.0])
    expected = oracle.problem_3(p, epsilon, v, 2.0, 0.3)
    assert objective(p, epsilon, v, 2.0, 0.3) == pytest.approx(expected, rel=1e-14)
    shares = [0.5, 0.3, 0.2]
    expected = oracle.problem_3(p, epsilon, v, 2.0, 0.3, shares)
    assert objective(p, epsilon, v, 2.0, 0.3, shares) == pytest.approx(expected, rel=1e-14)


def test_selecting_without_buying_privacy_is_infinitely_bad():
    assert objective([0.5, 0.5], [1.0, 0.0], [1.0, 1.0], 1.0, 1.0) == math.inf


def test_noise_scale_from_its_ingredients():
    q = noise_scale(delta=1e-5, dimension=7850, rounds=200, smoothness=1.5, records=50, c2=1.2)
    assert q == pytest.approx(2 * 1.44 * math.log(1e5) * 7850 * math.sqrt(200) * 1.5 / 625, rel=1e-14)
