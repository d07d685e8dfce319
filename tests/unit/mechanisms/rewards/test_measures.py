"""Every contribution measure on a small history whose answers can be worked out."""

import itertools
import math

import numpy as np
import pytest

from bonafed.economics.contribution import shapley_sampled
from bonafed.errors import InvalidValue
from bonafed.mechanisms.rewards.measures import (
    History,
    ObservedRound,
    at_least_zero,
    contributions,
    cosine_gradient,
    data_size,
    federated_shapley,
    individual_effort,
    leave_one_out,
    participation_rate,
    shapley_over_rounds,
    standalone_accuracy,
)

TARGET = np.array([1.0, 2.0])


def score(models):
    """Better the nearer to the target."""
    return -((models - TARGET) ** 2).sum(1)


def one_round(updates, present=None, reference=(0.0, 0.0), dtype=np.float64):
    g = np.array(updates, dtype=dtype)
    here = np.ones(len(g), dtype=bool) if present is None else np.array(present)
    return ObservedRound(
        np.where(here[:, None], g, 0), here, np.zeros_like(g), np.array(reference, dtype=dtype)
    )


def history(**changes):
    rounds = [
        one_round([[1, 0], [0, 1], [-1, 0], [0.5, 0.5]]),
        one_round([[1, 1], [9, 9], [0, 2], [1, 0]], [True, False, True, True], (0.2, 0.3)),
    ]
    return History(**{"sizes": np.array([10, 20, 30, 40]), "rounds": rounds, "score": score, **changes})


def worth(one, who):
    """v_t, written out for one coalition."""
    if len(who) == 0:
        return float(score(one.reference[None])[0])
    mean = sum(one.updates[j] for j in who) / len(who)
    return float(score((one.reference + mean)[None])[0])


def test_stated_sizes_presence_and_given_numbers():
    seen = history()
    assert contributions(seen, data_size).tolist() == [10, 20, 30, 40]
    assert contributions(seen, participation_rate).tolist() == [1, 0.5, 1, 1]
    assert contributions(seen, standalone_accuracy([0.1, 0.2, 0.3, 0.4])).tolist() == [0.1, 0.2, 0.3, 0.4]
    assert contributions(seen, individual_effort([5, 10, 0, 8], [10, 10, 10, 32])).tolist() == [
        0.5,
        1,
        0,
        0.25,
    ]


def test_leave_one_out_over_rounds():
    seen, expected = history(), np.zeros(4)
    for one in seen.rounds:
        here = [i for i in range(4) if one.present[i]]
        for i in here:
            expected[i] += worth(one, here) - worth(one, [j for j in here if j != i])
    assert contributions(seen, leave_one_out) == pytest.approx(expected)
    first = history(rounds=seen.rounds[:1])
    assert contributions(first, leave_one_out)[2] < 0  # its update points away from the target
    assert contributions(first, at_least_zero(leave_one_out))[2] == 0


def test_federated_shapley_is_exact_for_few():
    seen, expected = history(), np.zeros(4)
    for one in seen.rounds:
        here = [i for i in range(4) if one.present[i]]
        for order in itertools.permutations(here):
            for k, i in enumerate(order):
                expected[i] += (worth(one, order[: k + 1]) - worth(one, order[:k])) / math.factorial(
                    len(here)
                )
    found = shapley_over_rounds(seen)
    assert found.exact
    assert found.value == pytest.approx(expected)
    assert contributions(seen, federated_shapley()) == pytest.approx(expected)


def crowd(rounds, seed=0):
    rng = np.random.default_rng(seed)
    every = [one_round(rng.normal(TARGET, 1.0, (14, 2))) for _ in range(rounds)]
    return History(np.ones(14), every, score)


def test_many_clients_are_sampled_with_errors_and_the_past_stays():
    short, long = shapley_over_rounds(crowd(2), orders=60), shapley_over_rounds(crowd(3), orders=60)
    last = shapley_over_rounds(History(np.ones(14), crowd(3).rounds[2:], score), orders=60)
    assert not long.exact
    assert (long.error > short.error).all()  # a round more adds its own variance
    assert np.abs(long.value - short.value - last.value).max() < 5 * np.hypot(long.error, last.error).max()
    again = shapley_over_rounds(crowd(2), orders=60)
    assert (again.value == short.value).all()
    other = shapley_over_rounds(crowd(2), orders=60, seed=1)
    assert (np.abs(other.value - short.value) <= 6 * np.hypot(other.error, short.error)).all()
    assert (other.value != short.value).any()
    gained = sum(worth(one, range(14)) - worth(one, []) for one in crowd(2).rounds)
    assert short.value.sum() == pytest.approx(gained)


def test_rounds_are_sampled_independently_and_errors_add_in_squares():
    same = crowd(1).rounds[0]
    once = shapley_over_rounds(History(np.ones(14), [same], score), orders=200)
    twice = shapley_over_rounds(History(np.ones(14), [same, same], score), orders=200)
    assert (twice.value != 2 * once.value).all()

    def value(coalitions):
        return np.array([worth(same, np.flatnonzero(row)) for row in coalitions])

    direct = shapley_sampled(value, 14, orders=200, rng=np.random.default_rng([0, 0]))
    assert once.value == pytest.approx(direct.value)
    assert once.error == pytest.approx(direct.error)
    assert np.mean(twice.error**2 / once.error**2) == pytest.approx(2.0, abs=0.5)


def test_models_are_scored_in_small_parts():
    asked = []

    def counting(models):
        asked.append(len(models))
        return score(models)

    rng = np.random.default_rng(0)
    seen = History(np.ones(9), [one_round(rng.normal(size=(9, 2)))], counting)
    whole = contributions(seen, federated_shapley())
    assert sum(asked) == 512
    assert max(asked) <= 64
    assert whole == pytest.approx(shapley_over_rounds(History(np.ones(9), seen.rounds, score)).value)


def test_an_empty_round_adds_nothing_and_single_precision_stays():
    quiet = one_round([[1, 1], [2, 2]], [False, False])
    kinds = []

    def keeping(models):
        kinds.append(models.dtype)
        return score(models)

    seen = History(np.ones(2), [quiet, one_round([[1, 1], [0, 2]], dtype=np.float32)], keeping)
    for measure in (leave_one_out, federated_shapley()):
        assert np.isfinite(contributions(seen, measure)).all()
    assert set(kinds) == {np.dtype(np.float32)}
    assert contributions(History(np.ones(2), [quiet]), leave_one_out).tolist() == [0, 0]


def test_a_copy_of_the_mean_fools_the_cosine_but_not_shapley():
    honest = np.array([[1.0, 0.0], [0.0, 2.0]])
    seen = History(np.ones(3), [one_round([*honest, honest.mean(0)])], score)
    cosine = contributions(seen, cosine_gradient())
    assert cosine[2] > cosine[:2].max()
    assert contributions(seen, federated_shapley())[2] < contributions(seen, federated_shapley()).max()


@pytest.mark.parametrize(
    ("measure", "message"),
    [
        (lambda h: np.ones(3), "contributions must have 4 values, got 3"),
        (lambda h: np.array([1, 2, np.nan, 4]), "contributions must be finite, got nan at position 2"),
        (lambda h: "much", "contributions must be a list of numbers"),
        (standalone_accuracy([0.5, 0.5]), "accuracies must have 4 values, got 2"),
        (at_least_zero(lambda h: np.ones((4, 1))), "contributions must be one-dimensional"),
    ],
)
def test_what_a_measure_returns_is_checked(measure, message):
    with pytest.raises(InvalidValue, match=message):
        contributions(history(), measure)


def test_a_users_own_measure_is_as_good_as_any():
    def norm(seen):
        return sum(np.linalg.norm(one.updates, axis=1) for one in seen.rounds)

    assert contributions(history(), norm) == pytest.approx([1 + math.sqrt(2), 1, 3, math.sqrt(0.5) + 1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: leave_one_out(history(score=None)), "history.score is required"),
        (lambda: leave_one_out(history(score=lambda m: np.ones(1))), "history.score must return 5 scores"),
        (lambda: leave_one_out(history(score=lambda m: np.full(len(m), np.nan))), "value must be finite"),
        (
            lambda: participation_rate(history(rounds=[])),
            "history must have a round to count participation",
        ),
        (lambda: cosine_gradient()(history(rounds=[])), "history must have a round to compare updates"),
        (
            lambda: standalone_accuracy([0.5, -0.1]),
            "accuracies must not be negative, got -0.1 at position 1",
        ),
        (lambda: individual_effort([2, 1], [1, 1]), "effort must not exceed capacity, got 2 at position 0"),
        (lambda: individual_effort([1, 1], [1, 0]), "capacity must be positive, got 0 at position 1"),
        (lambda: history(sizes=np.array([1, 2])), "round 0 must have 2 clients, got 4"),
        (lambda: history(sizes=np.array([1, 2, 0, 3])), "sizes must be positive, got 0 at position 2"),
        (lambda: ObservedRound(np.zeros(3), np.ones(3, bool), np.zeros(3), np.zeros(1)), "updates must be"),
        (
            lambda: ObservedRound(np.zeros((3, 2)), np.ones(3, bool), np.zeros((3, 2)), np.zeros(3)),
            r"reference must have shape \(2,\), got \(3,\)",
        ),
        (
            lambda: ObservedRound(np.zeros((3, 2)), np.ones(3), np.zeros((3, 2)), np.zeros(2)),
            "present must be true or false for each client, got float64",
        ),
    ],
)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(InvalidValue, match=message):
        call()
