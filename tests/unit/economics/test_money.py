"""Amounts after rounding keep what was promised before it."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bonafed.economics.money import charged, owed

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
