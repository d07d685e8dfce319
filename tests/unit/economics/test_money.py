"""Amounts after rounding keep what was promised before it."""

import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bonafed.economics.money import _without, charged, owed, units
from bonafed.errors import InvalidValue

COSTS = st.decimals(0, 50, places=4).map(float)
RENTS = st.decimals(0, 3, places=4).map(float)
CLIENTS = st.lists(st.tuples(COSTS, RENTS, st.integers(0, 200)), min_size=1, max_size=12)


def exact(value: float) -> Fraction:
    return Fraction(repr(value))


@given(CLIENTS, st.integers(0, 4))
def test_amounts_cover_stated_costs_and_the_sum_that_is_due_is_not_exceeded(clients, decimals):
    costs = [cost for cost, _, _ in clients]
    payments = [cost + rent for cost, rent, _ in clients]
    times = [count for _, _, count in clients]
    amounts = owed(payments, costs, times, decimals)
    unit = Fraction(1, 10**decimals)
    for amount, cost, count in zip(amounts, costs, times, strict=True):
        assert amount * unit >= exact(cost) * count
    due = sum(exact(payment) * count for payment, count in zip(payments, times, strict=True))
    covers = sum(-(-exact(cost) * count // unit) for cost, count in zip(costs, times, strict=True))
    if covers * unit <= due:  # both promises can be kept together
        assert sum(amounts) * unit <= due
    else:
        assert sum(amounts) * unit < due + unit * len(clients)


@given(CLIENTS)
def test_nobody_gets_a_unit_more_than_is_due(clients):
    payments = [cost + rent for cost, rent, _ in clients]
    times = [count for _, _, count in clients]
    amounts = owed(payments, [cost for cost, _, _ in clients], times)
    for amount, payment, count in zip(amounts, payments, times, strict=True):
        assert amount < exact(payment) * count * 100 + 1


@pytest.mark.parametrize(("due", "amount"), [(0.0079, 0), (0.019, -1), (-0.011, 2)])
def test_who_owes_is_charged_in_its_favour(due, amount):
    assert charged([due], 2) == (amount,)


def one_by_one(surplus, amounts, covers):
    """The surplus as it is described: unit by unit, from the first of those with the largest margin."""
    left = list(amounts)
    for _ in range(surplus):
        margins = [amount - cover for amount, cover in zip(left, covers, strict=True)]
        if not max(margins):
            break
        left[margins.index(max(margins))] -= 1
    return left


MARGINS = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 6)), min_size=1, max_size=9)


@given(MARGINS, st.integers(-2, 60))
def test_a_surplus_is_taken_unit_by_unit_from_the_largest_margin(clients, surplus):
    covers = [cover for cover, _ in clients]
    amounts = [cover + margin for cover, margin in clients]
    assert _without(surplus, list(amounts), covers) == one_by_one(max(surplus, 0), amounts, covers)


def test_rounding_takes_no_longer_than_sorting():
    """100,000 clients, of whom half are rounded up at the expense of the others."""
    costs, payments = [1.001, 1.0] * 50_000, [1.001, 2.0] * 50_000
    began = time.process_time()
    amounts = owed(payments, costs)
    assert time.process_time() - began < 10  # unit by unit over all clients it is ten minutes
    assert amounts[0] == 101
    assert sum(amounts) <= 150_050 * 100


@pytest.mark.parametrize("count", [-1, 1.5, float("nan"), True, "1"])
def test_counts_that_are_none_are_refused_by_name(count):
    with pytest.raises(InvalidValue, match="times must be"):
        owed([1.0, 1.0], [0.5, 0.5], times=[1, count])
    with pytest.raises(InvalidValue, match="times must have 2 values, got 1"):
        owed([1.0, 1.0], [0.5, 0.5], times=[1])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), None, "1"])
def test_sums_that_are_no_amounts_are_refused_by_name(value):
    with pytest.raises(InvalidValue, match="amount must be"):
        units(value)
