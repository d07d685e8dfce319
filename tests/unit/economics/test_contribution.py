"""ComFedSV beside its definition, written out."""

from itertools import permutations

import numpy as np
import pytest
from scipy.optimize import minimize

from bonafed.economics.contribution import coalitions_of, complete, shapley_exact, shares
from bonafed.errors import InvalidValue
from bonafed.mechanisms.rewards.measures import (
    History,
    ObservedRound,
    completed_shapley,
    federated_shapley,
    shapley_over_rounds,
)


def slow_shares(worth, n):
    """What each player adds to those before it, over all orders."""
    total = np.zeros(n)
    orders = list(permutations(range(n)))
    for order in orders:
        before = frozenset()
        for player in order:
            after = before | {player}
            total[player] += worth(after) - worth(before)
            before = after
    return total / len(orders)


def score(models):
    """The worth of a model: a curve with diminishing returns."""
    return 1 - np.exp(-np.abs(models).sum(1))


def made(present, seed=3):
    rng = np.random.default_rng(seed)
    rounds, reference = [], np.zeros(2)
    for there in np.asarray(present, dtype=bool):
        updates = np.where(there[:, None], rng.normal(size=(there.size, 2)), 0.0)
        models = np.tile(reference, (there.size, 1))
        rounds.append(ObservedRound(updates, there, models, reference))
        reference = reference + 0.3 * updates[there].mean(0)
    return History(np.ones(len(present[0])), rounds, score)


PRESENT = [[1, 1, 1, 1], [1, 0, 1, 1], [0, 1, 1, 0], [1, 1, 0, 1], [0, 1, 1, 1]]


def test_it_is_its_definition():
    """Completed by a general minimiser, then divided over all orders."""
    history, n, rank, ridge = made(PRESENT), 4, 2, 0.01
    masks = [frozenset(np.flatnonzero(mask)) for mask in coalitions_of(n)]

    def worth(one, who):
        rows = sorted(who)
        mean = one.updates[rows].mean(0) if rows else np.zeros(2)
        return float(score((one.reference + mean)[None])[0])

    known = {
        (t, m): worth(one, who) - worth(one, ())
        for t, one in enumerate(history.rounds)
        for m, who in enumerate(masks)
        if all(one.present[i] for i in who)
    }

    def parts(x):
        split = len(PRESENT) * rank
        return x[:split].reshape(-1, rank), x[split:].reshape(-1, rank)

    def objective(x):
        w, h = parts(x)
        missed = sum((value - w[t] @ h[m]) ** 2 for (t, m), value in known.items())
        return missed + ridge * (x @ x)

    fast = completed_shapley(rank=rank, ridge=ridge)(history)
    starts = np.random.default_rng(0).normal(size=(3, (len(PRESENT) + len(masks)) * rank))
    best = min(
        (minimize(objective, start, method="L-BFGS-B", options={"maxfun": 10**6}) for start in starts),
        key=lambda found: found.fun,
    )
    w, h = parts(best.x)
    worths = dict(zip(masks, (w @ h.T).sum(0), strict=True)) | {frozenset(): 0.0}
    np.testing.assert_allclose(fast, slow_shares(worths.__getitem__, n), atol=2e-3)


def test_with_everybody_there_it_is_the_federated_shapley_value():
    history = made(np.ones((3, 4)))
    completed = completed_shapley(rank=3, ridge=1e-9)(history)
    np.testing.assert_allclose(completed, federated_shapley()(history), atol=1e-6)


def test_equal_data_get_equal_shares_though_one_was_asked_more_often():
    """Two clients send the same; the second misses most rounds (what the method was made for)."""
    rounds = []
    for t in range(12):
        there = np.array([True, t % 4 == 0, True])
        update = np.array([[1.0, 0.2], [1.0, 0.2], [0.3, 0.9]])  # the same in every round: rank 1
        rounds.append(
            ObservedRound(np.where(there[:, None], update, 0.0), there, np.zeros((3, 2)), np.zeros(2))
        )
    history = History(np.ones(3), rounds, score)
    completed, plain = completed_shapley(rank=1, ridge=1e-6)(history), federated_shapley()(history)
    assert abs(completed[0] - completed[1]) < 1e-4 * completed[0]
    assert plain[1] < 0.5 * plain[0]


def test_a_matrix_of_low_rank_is_found_again():
    rng = np.random.default_rng(5)
    matrix = rng.normal(size=(12, 2)) @ rng.normal(size=(2, 15))
    known = rng.random(matrix.shape) < 0.7
    hidden = np.where(known, matrix, np.nan)
    found = complete(hidden, known, rank=2, ridge=1e-7)
    np.testing.assert_allclose(found.matrix, matrix, atol=1e-2)


def test_sampled_orders_come_close_and_exact_shares_agree_with_all_orders():
    rng = np.random.default_rng(2)
    worth = {mask.tobytes(): value for mask, value in zip(coalitions_of(5), rng.random(31), strict=True)}
    worth[np.zeros(5, dtype=bool).tobytes()] = 0.0
    exact = shares(np.array([worth[m.tobytes()] for m in coalitions_of(5)]), coalitions_of(5))
    by_value = shapley_exact(lambda masks: np.array([worth[m.tobytes()] for m in masks]), 5).value
    np.testing.assert_allclose(exact, by_value, atol=1e-12)
    orders = np.array(list(permutations(range(5))))
    masks = coalitions_of(5, orders)
    np.testing.assert_allclose(
        shares(np.array([worth[m.tobytes()] for m in masks]), masks, orders), exact, atol=1e-12
    )


def test_more_than_ten_clients_are_valued_by_sampled_orders():
    history = made(np.ones((2, 12)))

    def worth(one, masks):
        mean = masks @ one.updates / np.maximum(masks.sum(1, keepdims=True), 1)
        return score(one.reference + mean)

    exact = sum(shapley_exact(lambda masks, one=one: worth(one, masks), 12).value for one in history.rounds)
    found = completed_shapley(orders=800, ridge=1e-9)(history)
    np.testing.assert_allclose(found.sum(), exact.sum(), atol=1e-4)
    assert (np.abs(found - exact) < 6 * shapley_over_rounds(history, orders=800).error).all()


@pytest.mark.parametrize(
    ("worths", "known"), [([1.0], [True]), ([[np.nan]], [[True]]), (np.zeros((0, 2)), np.zeros((0, 2)))]
)
def test_bad_input_is_refused_by_name(worths, known):
    with pytest.raises(InvalidValue, match=r"^worths must be"):
        complete(worths, known)
    with pytest.raises(InvalidValue, match=r"^history must have a round"):
        completed_shapley()(History(np.ones(2), [], score))
