"""How many participants a round has, against counting every case."""

from itertools import product

import numpy as np
import pytest
from scipy import stats

from bonafed.economics.attendance import participant_counts


def by_coins(q):
    found = np.zeros(len(q) + 1)
    for here in product((0, 1), repeat=len(q)):
        found[sum(here)] += np.prod([p if inside else 1 - p for p, inside in zip(q, here, strict=True)])
    return found


def by_draws(p, draws):
    found = np.zeros(len(p) + 1)
    for drawn in product(range(len(p)), repeat=draws):
        found[len(set(drawn))] += np.prod([p[client] for client in drawn])
    return found


@pytest.mark.parametrize("q", [[0.3], [0.0, 1.0], [1e-9, 0.5, 1 - 1e-9, 1.0], np.linspace(0.05, 0.9, 7)])
def test_coins_are_counted_exactly(q):
    every = participant_counts(q, len(q))
    np.testing.assert_allclose(every, by_coins(q), rtol=1e-12, atol=1e-300)
    for most in range(len(q)):
        np.testing.assert_array_equal(participant_counts(q, most), every[: most + 1])
    assert participant_counts(q, len(q) + 2)[len(q) + 1 :].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("p", [[1.0], [0.5, 0.5], [0.7, 0.0, 0.3], [0.1, 0.2, 0.3, 0.4]])
@pytest.mark.parametrize("draws", [1, 2, 5])
def test_draws_are_counted_exactly(p, draws):
    found = participant_counts(p, len(p), draws)
    np.testing.assert_allclose(found, by_draws(p, draws), rtol=1e-12, atol=1e-15)
    for most in range(len(p)):
        np.testing.assert_array_equal(participant_counts(p, most, draws), found[: most + 1])


def test_many_clients_and_many_draws_keep_their_digits():
    many = participant_counts(np.full(3000, 0.001), 5)
    np.testing.assert_allclose(many, stats.binom.pmf(range(6), 3000, 0.001), rtol=1e-11)
    drawn = participant_counts(np.full(40, 1 / 40), 40, draws=400)
    assert drawn.sum() == pytest.approx(1, rel=1e-11)
    mean = 40 * (1 - (1 - 1 / 40) ** 400)
    assert drawn @ np.arange(41) == pytest.approx(mean, rel=1e-11)


def test_nobody_is_drawn_where_nobody_can_be():
    assert participant_counts([0.0, 0.0], 1, draws=3).tolist() == [1.0, 0.0]
