"""The server's step against its slow twin; sets, weights, presence and recovery as stated."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles.rewards import slow_rewards, slow_sets

from bonafed.errors import InvalidValue
from bonafed.mechanisms.rewards import expected_weights, reference_size, server_step, set_sizes
from bonafed.mechanisms.rewards.server import (
    checked_participation,
    combine,
    draw_sets,
    reward_weights,
    who_is_present,
    who_recovers,
)


@st.composite
def rounds(draw):
    n = draw(st.integers(1, 9))
    rates = np.array(draw(st.lists(st.floats(0, 1), min_size=n, max_size=n)))
    present = np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)))
    updates = np.random.default_rng(draw(st.integers(0, 99))).standard_normal((n, 3))
    return np.where(present[:, None], updates, 0.0), rates, present


@given(rounds(), st.sampled_from(["paper", "unbiased"]), st.integers(0, 99), st.integers(1, 99))
def test_rewards_are_those_of_the_slow_twin(case, own, seed, t):
    updates, rates, present = case
    found = server_step(updates, rates, seed=seed, round_number=t, own=own, present=present)
    assert found.rewards == pytest.approx(slow_rewards(updates, found.sets, present, own), abs=1e-12)
    members = [updates[j] for j in np.flatnonzero(found.reference_set)]
    expected = np.mean(members, axis=0) if members else np.zeros(3)
    assert found.reference == pytest.approx(expected, abs=1e-12)


@given(rounds(), st.sampled_from(["max", "median"]), st.integers(0, 99))
def test_sets_have_the_right_size_and_members(case, reference, seed):
    updates, rates, present = case
    found = server_step(updates, rates, seed=seed, round_number=1, reference=reference, present=present)
    n = int(present.sum())
    assert not found.sets[:, ~present].any()
    assert not found.sets[~present].any()
    assert not found.reference_set[~present].any()
    if n:
        assert found.sets[present].sum(1).tolist() == set_sizes(rates[present], n).tolist()
        assert np.diag(found.sets)[present].all()
        assert found.reference_set.sum() == reference_size(rates[present], n, reference)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=8), st.floats(0, 1), st.integers(0, 99))
def test_a_higher_rate_receives_all_that_a_lower_one_would(rates, raised, seed):
    lower, everybody = np.array(rates), np.ones(len(rates), dtype=bool)
    higher = np.maximum(lower, raised)
    few = draw_sets(lower, everybody, seed=seed, round_number=4)
    many = draw_sets(higher, everybody, seed=seed, round_number=4)
    assert not (few & ~many).any()


def test_sets_are_uniform():
    """How often each pair of others is drawn together, against the slow twin's law: all pairs alike."""
    n, rate, count = 5, 0.5, 1500
    gamma, everybody = np.full(n, rate), np.ones(n, dtype=bool)
    mine, other = np.zeros((n, n)), np.zeros((n, n))
    rng = np.random.default_rng(0)
    for t in range(count):
        row = draw_sets(gamma, everybody, seed=3, round_number=t)[0]
        mine += np.outer(row, row)
        twin = np.isin(np.arange(n), slow_sets([rate] * n, rng)[0])
        other += np.outer(twin, twin)
    pair = ~np.eye(n, dtype=bool)
    pair[0] = pair[:, 0] = False
    # Two of four others: each pair has probability 1/6, standard error 0.0096.
    for counted in (mine, other):
        assert np.abs(counted[pair] / count - 1 / 6).max() < 0.04
        assert np.abs(counted[0, 1:] / count - 1 / 2).max() < 0.055


def test_clients_and_rounds_draw_independently():
    gamma, everybody = np.full(12, 0.4), np.ones(12, dtype=bool)
    draws = [draw_sets(gamma, everybody, seed=s, round_number=t) for s in (0, 1) for t in (1, 2)]
    others = [np.delete(row, k) for one in draws for k, row in enumerate(one)]
    assert len({row.tobytes() for row in others}) > 40  # of 48; 330 sets are possible
    again = draw_sets(gamma, everybody, seed=0, round_number=1)
    assert (again == draws[0]).all()


@given(st.integers(2, 7).flatmap(lambda n: st.lists(st.integers(1, n), min_size=n, max_size=n)))
def test_expected_weights(sizes):
    n = len(sizes)
    paper, unbiased = expected_weights(sizes), expected_weights(sizes, "unbiased")
    for weights in (paper, unbiased):
        assert weights.sum(1) == pytest.approx(np.ones(n))
    assert np.diag(paper) == pytest.approx(1 / np.array(sizes))
    together = np.array(sizes) > 1
    assert unbiased[together] == pytest.approx(np.full((together.sum(), n), 1 / n))
    assert unbiased[~together] == pytest.approx(np.eye(n)[~together])


@pytest.mark.parametrize("own", ["paper", "unbiased"])
def test_weights_have_the_expectation_stated(own):
    rates, everybody = np.array([0.0, 0.3, 0.6, 0.6, 1.0]), np.ones(5, dtype=bool)
    draws = np.array(
        [
            reward_weights(draw_sets(rates, everybody, seed=2, round_number=t), everybody, own)
            for t in range(2000)
        ]
    )
    expected = expected_weights(set_sizes(rates, 5), own)
    error = draws.std(0) / np.sqrt(len(draws))
    assert (np.abs(draws.mean(0) - expected) <= 4 * error + 1e-12).all()


def test_sums_do_not_depend_on_how_much_is_summed_at_once():
    rng = np.random.default_rng(0)
    weights = rng.random((30, 30))
    for kind in (np.float32, np.float64):
        updates = rng.standard_normal((30, 1001)).astype(kind)
        whole = combine(weights, updates)
        parts = [combine(weights, updates[:, a : a + 77]) for a in range(0, 1001, 77)]
        assert whole.dtype == kind
        assert (whole == np.concatenate(parts, axis=1)).all()
        assert np.abs(whole - weights @ updates).max() < (1e-4 if kind == np.float32 else 1e-12)


def test_recovery():
    everybody = np.ones(50, dtype=bool)
    draws = np.array([who_recovers(0.2, everybody, seed=1, round_number=t) for t in range(400)])
    assert abs(draws.mean() - 0.2) < 4 * np.sqrt(0.16 / draws.size)
    assert who_recovers(1.0, everybody, seed=1, round_number=1).all()
    assert not who_recovers(0.0, everybody, seed=1, round_number=1).any()
    assert not who_recovers(1.0, ~everybody, seed=1, round_number=1).any()


def test_presence():
    rates = np.array([0.1, 0.5, 1.0])
    draws = np.array([who_is_present(rates, 3, seed=0, round_number=t) for t in range(2000)])
    assert draws[:, 2].all()
    assert np.abs(draws.mean(0) - rates).max() < 0.05
    schedule = np.array([[True, False, True], [False, False, True]])
    assert who_is_present(schedule, 3, seed=0, round_number=2).tolist() == [False, False, True]
    assert who_is_present(None, 3, seed=0, round_number=2).all()


@pytest.mark.parametrize(
    ("participation", "message"),
    [
        ([0.5, 1.5], "participation must not exceed 1, got 1.5"),
        ([0.5, 0.0], "participation must be positive, got 0 at position 1"),
        ([0.5], "participation must have 2 values, got 1"),
        ([[1, 0]], r"participation must be booleans of shape \(rounds, 2\)"),
        ([[True]], r"participation must be booleans of shape \(rounds, 2\)"),
    ],
)
def test_bad_participation(participation, message):
    with pytest.raises(InvalidValue, match=message):
        checked_participation(participation, 2)


def test_bad_input():
    updates = np.zeros((2, 1))
    with pytest.raises(InvalidValue, match="own must be one of paper, unbiased, got 'mine'"):
        server_step(updates, [1, 1], seed=0, round_number=1, own="mine")
    with pytest.raises(InvalidValue, match="rates must have 2 values, got 3"):
        server_step(updates, [1, 1, 1], seed=0, round_number=1)
    with pytest.raises(InvalidValue, match=r"rates must not exceed 1"):
        server_step(updates, [1, 1.1], seed=0, round_number=1)
    with pytest.raises(InvalidValue, match=r"sizes must be in 1\.\.2, got \[1, 3\]"):
        expected_weights([1, 3])
