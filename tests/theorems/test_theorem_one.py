"""Theorem 1 (theory A1), both directions: monotone q with payments (3) is all there is."""

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from bonafed.economics import Discrete, Uniform, audit
from bonafed.economics.contracts import StepMenu, step_payments

COSTS = st.lists(st.floats(0.01, 10), min_size=2, max_size=8, unique=True).map(sorted)


@st.composite
def levels(draw, falling):
    costs = np.array(draw(COSTS))
    assume(np.all(np.diff(costs) > 1e-3))
    q = np.array(draw(st.lists(st.floats(0.01, 1), min_size=costs.size, max_size=costs.size)))
    return costs, np.sort(q)[::-1] if falling else q


def largest_gain(costs, q, t):
    """Every type against every report, by loops."""
    return max(
        (t[j] - costs[i] * q[j]) - (t[i] - costs[i] * q[i])
        for i in range(len(costs))
        for j in range(len(costs))
    )


@given(levels(falling=True), st.floats(0, 3))
def test_if(case, bonus):
    """Any q that does not rise is truthful and rational with (16), and with any bonus u0 >= 0."""
    costs, q = case
    t = q * step_payments(costs, q) + bonus
    assert largest_gain(costs, q, t) <= 1e-12 * t.max()
    assert np.all(t - costs * q >= -1e-13 * t.max())


@st.composite
def whole_levels(draw, falling):
    """Costs that an even grid of reports hits."""
    costs = draw(st.lists(st.integers(1, 20), min_size=2, max_size=8, unique=True))
    q = np.array(draw(st.lists(st.floats(0.01, 1), min_size=len(costs), max_size=len(costs))))
    return np.array(sorted(costs), float), np.sort(q)[::-1] if falling else q


def audited(costs, q, t):
    """Every level and three costs between each whole number and the next, as types and as reports."""
    prior = Discrete(costs, np.full(costs.size, 1 / costs.size))
    menu = StepMenu(prior, 1.0, costs, q, t / q)
    points = 4 * int(costs[-1] - costs[0]) + 1
    claims = ("truthful", "individually rational", "monotone")
    return audit(menu, costs[0], costs[-1], claims=claims, points=points)


@given(whole_levels(falling=False), st.lists(st.floats(0, 5), min_size=8, max_size=8))
def test_only_if_monotone(case, extra):
    """If q rises somewhere, NO transfers make it truthful: two types want to trade places."""
    costs, q = case
    rises = np.diff(q)
    k = int(np.argmax(rises))
    assume(rises[k] > 1e-3)
    found = audited(costs, q, q * step_payments(costs, q) + extra[: costs.size])
    assert found["monotone"].witness.gain == pytest.approx(rises[k], rel=1e-12)
    # What k gains as k+1 and what k+1 gains as k add up to this product, whatever is paid.
    both = (costs[k + 1] - costs[k]) * rises[k]
    assert found["truthful"].witness.gain >= both / 2 * (1 - 1e-9)


@given(whole_levels(falling=True), st.integers(0, 7), st.floats(0.01, 1))
def test_only_if_payments(case, where, change):
    """Every type is indifferent to the next level: paying that more, or its own less, makes a lie pay."""
    costs, q = case
    k, last = where % costs.size, costs.size - 1
    t = q * step_payments(costs, q)
    assert audited(costs, q, t).passed
    less = audited(costs, q, t - change * (np.arange(costs.size) == k))
    broken = less["individually rational" if k == last else "truthful"]  # the highest has no next level
    assert broken.witness.gain >= change * (1 - 1e-9)
    more = audited(costs, q, t + change * (np.arange(costs.size) == max(k, 1)))
    assert more["truthful"].witness.gain >= change * (1 - 1e-9)


@given(levels(falling=True))
def test_transfers_fall_and_payments_stay_below_the_highest_cost(case):
    """dt = c dq: the largest expected payment is that of the LOWEST cost; r never exceeds the highest."""
    costs, q = case
    r = step_payments(costs, q)
    assert np.all(np.diff(q * r) <= 1e-13 * (q * r).max())
    assert np.all(r <= costs[-1] * (1 + 1e-15))
    assert np.all(r >= costs)
    flat = step_payments(costs, np.full(costs.size, 0.3))
    assert np.allclose(flat, costs[-1], rtol=1e-13)


@given(levels(falling=False))
def test_the_audit_agrees_with_the_theorem(case):
    """The search finds a profitable lie exactly where q rises."""
    costs, q = case
    rise = np.diff(q).max()
    assume(rise < -1e-6 or rise > 1e-3)
    prior = Discrete(costs, np.full(costs.size, 1 / costs.size))
    menu = StepMenu(prior, 1.0, costs, q, step_payments(costs, q))
    report = audit(menu, costs[0], costs[-1], claims=("truthful", "monotone"), points=1001)
    if rise < 0:
        assert report.passed
    elif np.diff(costs).min() > (costs[-1] - costs[0]) / 500:
        assert not report["monotone"].holds
        assert not report["truthful"].holds


def test_a_bonus_for_the_highest_cost_is_truthful_but_not_cheapest():
    """Erratum S-E5: (3) is the minimal payment, not the only one."""
    prior = Uniform(0.5, 1.5)
    costs, q = np.linspace(0.5, 1.5, 101), np.linspace(1, 0.2, 101)
    plain = StepMenu(prior, 9.0, costs, q, step_payments(costs, q))
    generous = StepMenu(prior, 9.0, costs, q, step_payments(costs, q) + 0.1 / q)
    for menu in (plain, generous):
        assert audit(menu, 0.5, 1.5).passed
    assert generous.expected_spend > plain.expected_spend
