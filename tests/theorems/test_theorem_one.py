"""Theorem 1 (theory A1), both directions: monotone q with payments (3) is all there is."""

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from bonafed.economics import Discrete, Uniform, audit
from bonafed.economics.contracts import StepMenu, step_payments
from tests.oracles import finite

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


@given(levels(falling=False))
def test_only_if_monotone(case):
    """If q rises somewhere, NO transfers make it truthful: two types want to trade places."""
    costs, q = case
    rises = np.diff(q)
    assume(rises.max() > 1e-3)
    k = int(np.argmax(rises))
    # Truthfulness of k against k+1 and of k+1 against k bound t[k] - t[k+1] from both sides.
    at_least = costs[k] * (q[k] - q[k + 1])
    at_most = costs[k + 1] * (q[k] - q[k + 1])
    assert at_least > at_most
    t = np.array(finite.expected_payments(costs, q))
    assert largest_gain(costs, q, t) > 0


@given(levels(falling=True), st.integers(0, 7), st.floats(1e-3, 1))
def test_only_if_payments(case, where, change):
    """Paying one level more, or a level of positive rent less, breaks truthfulness or rationality."""
    costs, q = case
    k = where % costs.size
    t = np.array(finite.expected_payments(costs, q))
    gap = np.diff(costs).min()
    more = t.copy()
    more[k:] -= change * gap * q.min() * 2  # utilities above k fall below those of Theorem 1
    loses = np.min(more - costs * q) < 0
    assert loses or largest_gain(costs, q, more) > 0


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
    """Erratum E5: (3) is the minimal payment, not the only one."""
    prior = Uniform(0.5, 1.5)
    costs, q = np.linspace(0.5, 1.5, 101), np.linspace(1, 0.2, 101)
    plain = StepMenu(prior, 9.0, costs, q, step_payments(costs, q))
    generous = StepMenu(prior, 9.0, costs, q, step_payments(costs, q) + 0.1 / q)
    for menu in (plain, generous):
        assert audit(menu, 0.5, 1.5).passed
    assert generous.expected_spend > plain.expected_spend
