"""Shapley values, leave-one-out and cosines: axioms, closed forms, and the mean over all orders."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bonafed.economics.contribution import (
    cosine_step,
    leave_one_out,
    shapley,
    shapley_exact,
    shapley_sampled,
)
from bonafed.errors import InvalidValue
from tests.oracles.rewards_theory import shapley_by_orders

worth = st.floats(-10, 10)


@st.composite
def tables(draw, most=5):
    """(n, 2^n) a game given by the worth of every coalition."""
    n = draw(st.integers(1, most))
    return n, np.array(draw(st.lists(worth, min_size=2**n, max_size=2**n)))


def by_table(table):
    def value(coalitions):
        return table[coalitions @ (1 << np.arange(coalitions.shape[1]))]

    return value


@given(tables())
def test_exact_values_are_the_mean_over_all_orders(case):
    n, table = case
    found = shapley_exact(by_table(table), n)
    slow = shapley_by_orders(lambda who: table[sum(1 << i for i in who)], n)
    assert found.value == pytest.approx(slow, abs=1e-10)
    assert found.evaluations == 2**n
    assert found.exact
    assert (found.error == 0).all()


@given(tables(), st.randoms(use_true_random=False))
def test_efficient_additive_and_fair_to_nobody(case, random):
    n, table = case
    phi = shapley_exact(by_table(table), n).value
    assert phi.sum() == pytest.approx(table[-1] - table[0], abs=1e-9)
    other = np.array([random.uniform(-5, 5) for _ in table])
    both = shapley_exact(by_table(table + other), n).value
    assert both == pytest.approx(phi + shapley_exact(by_table(other), n).value, abs=1e-9)
    wider = shapley_exact(
        lambda who: by_table(table)(who[:, :n]), n + 1
    ).value  # one more, who adds nothing
    assert wider == pytest.approx([*phi, 0.0], abs=1e-9)


@given(tables(most=4), st.integers(2, 20), st.booleans(), st.integers(0, 99))
def test_sampled_values_are_efficient_in_every_sample(case, pairs, antithetic, seed):
    n, table = case
    rng = np.random.default_rng(seed)
    found = shapley_sampled(by_table(table), n, orders=2 * pairs, rng=rng, antithetic=antithetic)
    assert found.value.sum() == pytest.approx(table[-1] - table[0], abs=1e-9)
    assert found.evaluations <= 2**n  # no coalition is asked for twice


def test_gloves_and_unanimity_have_their_closed_forms():
    """One left glove, two right ones: 2/3, 1/6, 1/6. A game won only by everybody: equal shares."""
    gloves = shapley_exact(lambda who: (who[:, 0] & (who[:, 1] | who[:, 2])).astype(float), 3)
    assert gloves.value == pytest.approx([2 / 3, 1 / 6, 1 / 6])
    unanimous = shapley_exact(lambda who: who.all(1).astype(float), 10)
    assert unanimous.value == pytest.approx(np.full(10, 0.1))


def crowd(coalitions):
    """Diminishing returns: sqrt of the summed sizes."""
    return np.sqrt(coalitions @ np.arange(1.0, 1 + coalitions.shape[1]))


def test_sampled_values_are_right_within_their_standard_errors():
    exact = shapley_exact(crowd, 9).value
    far = []
    for seed in range(40):
        found = shapley_sampled(crowd, 9, orders=40, rng=np.random.default_rng(seed))
        far.append((found.value - exact) / found.error)
    spread = np.array(far)
    assert np.abs(spread).max() < 6
    assert np.sqrt((spread**2).mean()) == pytest.approx(1.0, abs=0.2)  # errors are neither bold nor timid


def test_pairs_of_reversed_orders_vary_less():
    rngs = [np.random.default_rng(3) for _ in range(2)]
    paired = shapley_sampled(crowd, 12, orders=400, rng=rngs[0])
    plain = shapley_sampled(crowd, 12, orders=400, rng=rngs[1], antithetic=False)
    assert (paired.error < plain.error).all()


def test_pairs_of_orders_are_exact_where_only_pairs_of_players_interact():
    sizes = np.arange(1.0, 13.0)

    def value(coalitions):
        return coalitions @ sizes - 0.005 * (coalitions @ sizes) ** 2

    found = shapley_sampled(value, 12, orders=4, rng=np.random.default_rng(1))
    assert found.value == pytest.approx(shapley_exact(value, 12).value, abs=1e-10)
    assert found.error == pytest.approx(np.zeros(12), abs=1e-10)
    plain = shapley_sampled(value, 12, orders=4, rng=np.random.default_rng(1), antithetic=False)
    assert plain.error.min() > 0.01


def test_an_additive_game_is_exact_by_any_sample_and_many_players_are_sampled():
    sizes = np.arange(1.0, 13.0)
    found = shapley(lambda who: who @ sizes, 12, orders=4, rng=np.random.default_rng(0))
    assert not found.exact
    assert found.value == pytest.approx(sizes)
    assert found.error == pytest.approx(np.zeros(12), abs=1e-12)
    assert shapley(crowd, 10, orders=4, rng=np.random.default_rng(0)).exact


def test_leave_one_out_sees_no_worth_in_copies():
    def covered(coalitions):  # players 0 and 1 have the same data, 2 has its own
        return (coalitions[:, 0] | coalitions[:, 1]) * 1.0 + coalitions[:, 2]

    assert leave_one_out(covered, 3) == pytest.approx([0, 0, 1])
    assert shapley_exact(covered, 3).value == pytest.approx([0.5, 0.5, 1])


@given(st.integers(1, 5), st.integers(1, 6), st.integers(0, 99))
def test_cosines_by_their_definition(clients, parameters, seed):
    rng = np.random.default_rng(seed)
    d, sizes = rng.normal(size=(clients, parameters)), rng.uniform(1, 9, clients)
    before = rng.dirichlet(np.ones(clients))
    for importance in (None, before):
        found = cosine_step(d, importance, sizes, scale=0.7, memory=0.8, least=0.01)
        weights = sizes / sizes.sum() if importance is None else before
        u = [0.7 * row / (math.sqrt(sum(x * x for x in row)) + 1e-7) for row in d]
        total = sum(w * row for w, row in zip(weights, u, strict=True))
        for i in range(clients):
            cosine = u[i] @ total / math.sqrt((u[i] @ u[i]) * (total @ total))
            assert found.cosine[i] == pytest.approx(cosine, abs=1e-10)
        old = np.zeros(clients) if importance is None else before
        raw = np.maximum(0.8 * old + 0.2 * found.cosine, 0.01)
        assert found.importance == pytest.approx(raw / raw.sum())
        assert found.aggregate == pytest.approx(total)


def test_a_free_rider_fades_and_silence_is_no_error():
    d, importance = np.array([[1.0, 0.0], [1.0, 0.2], [0.0, 0.0]]), np.full(3, 1 / 3)
    for _ in range(200):
        step = cosine_step(d, importance, [1, 1, 1], scale=1.0)
        importance = step.importance
    assert step.cosine[2] == 0
    assert importance[2] < 0.01
    nothing = cosine_step(np.zeros((2, 3)), None, [1, 3], scale=1.0)
    assert nothing.cosine.tolist() == [0, 0]
    assert nothing.importance.tolist() == [0.5, 0.5]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: shapley_exact(crowd, 21), "players must be at most 20 for exact values"),
        (lambda: shapley_exact(lambda who: np.ones(3), 3), r"value must return 8 worths, got shape \(3,\)"),
        (lambda: shapley_exact(lambda who: np.where(who.all(1), np.nan, 0), 2), r"for \[0, 1\]"),
        (lambda: shapley_sampled(crowd, 3, orders=5, rng=np.random.default_rng(0)), "orders must be even"),
        (lambda: leave_one_out(crowd, 0), "players must be a whole number of at least 1"),
        (lambda: cosine_step([[1.0], [np.inf]], None, [1, 1], scale=1.0), "updates must be finite"),
        (lambda: cosine_step([1.0], None, [1], scale=1.0), r"updates must be \(clients, parameters\)"),
        (lambda: cosine_step([[1.0]], None, [1, 2], scale=1.0), "sizes must have 1 values, got 2"),
        (lambda: cosine_step([[1.0]], None, [1], scale=0.0), "scale must be positive, got 0.0"),
        (lambda: cosine_step([[1.0]], None, [1], scale=1.0, memory=1.2), "memory must be between 0 and 1"),
        (lambda: cosine_step([[1.0]], [-1], [1], scale=1.0), "importance must not be negative"),
    ],
)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(InvalidValue, match=message):
        call()
