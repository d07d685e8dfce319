"""Theorems 1 and 2, Proposition 2: against loops, and what the theorems claim of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bonafed.errors import InvalidValue
from bonafed.papers.rewards.bounds import (
    TrainingProblem,
    fading_sum,
    limit_bound,
    performance_bound,
    recovery_bound,
    tight_fading_sum,
)
from tests.oracles.rewards_theory import propagated, recovered

SETTING = TrainingProblem(4.0, 0.5, 3, 0.2, 1.5, 0.3, 45.0, 2.0)
rate = st.floats(0.05, 1.0)


@st.composite
def rate_tables(draw):
    clients, rounds = draw(st.integers(1, 4)), draw(st.integers(1, 8))
    row = st.lists(rate, min_size=clients, max_size=clients)
    return np.array(draw(st.lists(row, min_size=rounds, max_size=rounds)))


@given(rate_tables())
def test_theorem_1_is_its_three_sums(rates):
    rounds = len(rates)
    eta = 1 / (0.5 * 3 * (rounds + 45))
    h = (2 - 2 * 0.5 * eta) * 27 * 1.5**2
    found = performance_bound(SETTING, rates)
    for i in range(rates.shape[1]):
        expected = propagated(rates, i, 45.0, h)
        assert found.propagation[i] == pytest.approx(expected, rel=1e-10, abs=1e-9)
        whole = 4.0 / (2 * 0.25 * 9) * (SETTING.constant_with_start + expected) / (45 + rounds)
        assert found.bound[i] == pytest.approx(whole, rel=1e-10)


@given(rate_tables(), st.floats(0.01, 1.0), st.data())
def test_theorem_2_is_its_recursion(rates, q, data):
    rounds, clients = rates.shape
    guide = np.array(data.draw(st.lists(rate, min_size=rounds, max_size=rounds)))
    found = recovery_bound(SETTING, rates, guide, q)
    for i in range(clients):
        x = 2.0
        for t in range(1, rounds + 1):
            eta = SETTING.least_rate / (t + 45)
            h = (2 - 2 * 0.5 * eta) * 27 * 1.5**2
            common = recovered(rates, guide, None, q, 45.0, h, t)
            own = recovered(rates, guide, i, q, 45.0, h, t)
            assert found.common[t - 1] == pytest.approx(common, rel=1e-9, abs=1e-9)
            assert found.own[t - 1, i] == pytest.approx(own, rel=1e-9, abs=1e-9)
            if t < rounds:
                x = (1 - 2 * 0.5 * eta * 3) * x + eta**2 * (SETTING.constant + common + own)
        assert found.bound[i] == pytest.approx(2 * x, rel=1e-9)


@given(rate_tables(), rate, st.floats(0.01, 1.0))
def test_who_contributes_more_has_the_better_guarantee(rates, guide, q):
    constant = np.sort(np.repeat(rates[:1], rates.shape[0], axis=0), axis=1)
    for found in (
        performance_bound(SETTING, constant).bound,
        recovery_bound(SETTING, constant, guide, q).bound,
    ):
        assert (np.diff(found) <= 1e-9 * found[:-1]).all()


def test_corollary_1_with_everybody_at_the_ceiling_nothing_propagates():
    for rounds in (1, 10, 100_000):
        found = performance_bound(SETTING, np.ones((rounds, 3)))
        assert (found.propagation == 0).all()
    assert found.bound.max() < 0.01


def test_without_recovery_the_bound_does_not_vanish_with_it_does():
    """The error propagation of Theorem 1, and its cure."""
    rates = np.tile([0.3, 0.6, 1.0], (3000, 1))
    early, late = (performance_bound(SETTING, rates[:n]).bound for n in (300, 3000))
    assert (late > 0.9 * early).all()
    cured = [recovery_bound(SETTING, rates[:n], 0.9, 0.1).bound for n in (300, 3000)]
    assert (cured[1] < 0.25 * cured[0]).all()  # log(T/alpha)/T: 0.23 times as much


@given(st.floats(0, 100), st.floats(0.02, 1.0))
def test_equation_47_is_the_sum(alpha, q):
    el = np.arange(8000)
    assert fading_sum(alpha, q) == pytest.approx(
        ((el + 1 + alpha) ** 2 * (1 - q) ** (el + 1)).sum(), rel=1e-9
    )
    tight = ((1 + el / (1 + alpha)) ** 2 * (1 - q) ** (el + 1)).sum()
    assert tight_fading_sum(alpha, q) == pytest.approx(tight, rel=1e-9)


@given(st.lists(rate, min_size=1, max_size=4), rate, st.floats(0.05, 0.9), st.integers(2, 60))
def test_proposition_2_bounds_the_recursion(rates, guide, q, rounds):
    found = 2 / SETTING.smoothness * recovery_bound(SETTING, np.tile(rates, (rounds, 1)), guide, q).bound
    for variant in ("exact", "printed"):
        above = limit_bound(SETTING, 1 / np.array(rates), 1 / guide, q, rounds, variant=variant)
        assert (found <= above * (1 + 1e-12)).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"strong_convexity": 5.0}, "strong_convexity must not exceed smoothness = 4, got 5.0"),
        ({"local_steps": 0}, "local_steps must be a whole number of at least 1, got 0"),
        ({"variance": -1.0}, "variance must not be negative, got -1.0"),
    ],
)
def test_bad_settings_are_refused(change, message):
    fields = {name: getattr(SETTING, name) for name in SETTING.__dataclass_fields__}
    with pytest.raises(InvalidValue, match=message):
        TrainingProblem(**{**fields, **change})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: performance_bound(SETTING, [[0.5, 0.0]]), "rates must be above 0 and at most 1, got 0"),
        (lambda: performance_bound(SETTING, [0.5]), r"rates must be \(rounds, clients\), got shape \(1,\)"),
        (lambda: recovery_bound(SETTING, [[0.5]], 0.5, 0.0), "recovery must be between"),
        (lambda: recovery_bound(SETTING, [[0.5]], 0.5, 0.1, variant="best"), "variant must be one of"),
        (lambda: recovery_bound(SETTING, [[0.5]], 0.5, 0.1, rate=99.0), "rate must leave"),
        (
            lambda: performance_bound(TrainingProblem(4.0, 0.5, 3, 0.2, 1.5, 0.3, 40.0, 2.0), [[0.5]]),
            "shift must be at least 42.6667, got 40.0",
        ),
    ],
)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(InvalidValue, match=message):
        call()
