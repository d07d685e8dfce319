"""Noise for batches drawn by coins: the account against integrals that share nothing with it."""

import math

import numpy as np
import pytest
from scipy.special import ndtr

from bonafed.errors import InvalidValue
from bonafed.learning.privacy import (
    ADD_OR_REMOVE,
    REPLACE,
    Ledger,
    Release,
    SampledReleases,
    noise_multiplier,
    sampled_epsilon,
    sampled_multiplier,
    spent_epsilon,
)

DELTA = 1e-5


def delta_of_one(sigma, q, epsilon):
    """Smallest delta of one release, removing a record or adding one, in closed form."""

    def crossing(ratio):
        """Where (1 - q) + q exp((2x - 1)/(2 sigma^2)) is that ratio."""
        return sigma**2 * math.log((ratio - (1 - q)) / q) + 0.5

    above = crossing(math.exp(epsilon))
    with_record = (1 - q) * ndtr(-above / sigma) + q * ndtr((1 - above) / sigma)
    removing = with_record - math.exp(epsilon) * ndtr(-above / sigma)
    if math.exp(-epsilon) <= 1 - q:
        return removing
    below = crossing(math.exp(-epsilon))
    with_record = (1 - q) * ndtr(below / sigma) + q * ndtr((below - 1) / sigma)
    return max(removing, ndtr(below / sigma) - math.exp(epsilon) * with_record)


def delta_of_two(sigma, q, epsilon):
    """Of two releases, by summing over a grid of what both can be."""
    x = np.linspace(-9 * sigma, 1 + 9 * sigma, 6001)
    cell = (x[1] - x[0]) / (sigma * math.sqrt(2 * math.pi))
    without = np.exp(-((x / sigma) ** 2) / 2) * cell
    with_record = (1 - q) * without + q * np.exp(-(((x - 1) / sigma) ** 2) / 2) * cell
    pair, other = np.outer(with_record, with_record), np.outer(without, without)
    scale = math.exp(epsilon)
    return max(np.maximum(pair - scale * other, 0).sum(), np.maximum(other - scale * pair, 0).sum())


@pytest.mark.parametrize(("sigma", "q"), [(0.6, 0.01), (1.0, 0.1), (0.8, 0.5), (2.0, 0.9)])
def test_one_release(sigma, q):
    found = sampled_epsilon([SampledReleases(sigma, q, 1)], DELTA)
    assert delta_of_one(sigma, q, found) <= DELTA
    assert delta_of_one(sigma, q, 0.99 * found) > DELTA


@pytest.mark.parametrize(("sigma", "q"), [(0.7, 0.05), (1.0, 0.3)])
def test_two_releases(sigma, q):
    found = sampled_epsilon([SampledReleases(sigma, q, 2)], DELTA)
    assert delta_of_two(sigma, q, found) <= DELTA
    assert delta_of_two(sigma, q, 0.99 * found) > DELTA


@pytest.mark.parametrize(("sigma", "times"), [(4.46, 5), (30.0, 1000), (2.0, 1), (60.0, 10_000)])
@pytest.mark.parametrize("delta", [1e-3, 1e-5, 1e-9, 1e-10])
def test_where_everybody_is_in_every_batch_it_is_the_exact_account_rounded_up(sigma, times, delta):
    exact = spent_epsilon(sigma, times, delta)
    assert exact <= sampled_epsilon([SampledReleases(sigma, 1.0, times)], delta) <= exact * 1.005


@pytest.mark.parametrize(
    ("sigma", "q", "times", "epsilon"), [(1.0, 0.01, 1000, 1.8282), (0.6, 0.01, 500, 5.8002)]
)
def test_known_figures(sigma, q, times, epsilon):
    """From dp-accounting on a mesh of 1e-4."""
    assert sampled_epsilon([SampledReleases(sigma, q, times)], DELTA) == pytest.approx(epsilon, rel=1e-3)


@pytest.mark.parametrize(
    ("epsilon", "q", "times"), [(2.0, 64 / 3000, 235), (8.0, 0.01, 500), (0.1, 0.02, 100), (1.0, 1.0, 7)]
)
def test_calibrated_noise_keeps_the_promise_and_wastes_nothing(epsilon, q, times):
    sigma = sampled_multiplier(epsilon, DELTA, q, times)
    spent = sampled_epsilon([SampledReleases(sigma, q, times)], DELTA)
    assert spent <= epsilon
    assert sampled_epsilon([SampledReleases(sigma * 0.999, q, times)], DELTA) > epsilon
    assert sigma <= noise_multiplier(epsilon, DELTA, times) * 1.001  # coins never cost


def test_releases_are_counted_however_they_are_split():
    whole = Ledger((Release(0, 1, 1.1, 60, 60, 0.02),))
    parts = Ledger((Release(0, 1, 1.1, 25, 25, 0.02), Release(0, 2, 1.1, 35, 35, 0.02)))
    assert parts.epsilon(0, DELTA) == whole.epsilon(0, DELTA)
    more = parts.add([Release(0, 3, 2.0, 10, 10, 0.05)])  # other noise, another rate
    assert more.epsilon(0, DELTA) > whole.epsilon(0, DELTA)
    assert whole.epsilon(1, DELTA) == 0.0


def test_a_promise_is_for_one_kind_of_neighbours():
    sure, by_coin = Release(0, 1, 3.0, 1, 4), Release(0, 2, 3.0, 4, 4, 0.5)
    assert (sure.adjacency, by_coin.adjacency) == (REPLACE, ADD_OR_REMOVE)
    assert Ledger((sure,)).adjacency(0) == REPLACE
    assert Ledger((by_coin,)).adjacency(0) == ADD_OR_REMOVE
    with pytest.raises(InvalidValue, match=r"^releases of client 0 must all be for 'replace one' or all"):
        Ledger((sure, by_coin)).epsilon(0, DELTA)
    full = Release(0, 1, 3.0, 1, 1, 1.0)  # a rate of 1 hides nobody, but the sensitivity is another
    assert full.adjacency == ADD_OR_REMOVE


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: sampled_multiplier(1.0, 1e-11, 0.1, 5), "delta must be between 1e-10 and 1 with a"),
        (lambda: sampled_multiplier(0.0, 1e-5, 0.1, 5), "epsilon must be positive, got 0.0"),
        (lambda: sampled_multiplier(1.0, 1e-5, 0.0, 5), "rate must be positive, got 0.0"),
        (lambda: sampled_multiplier(1.0, 1e-5, 1.5, 5), "rate must be between 0 and 1, got 1.5"),
        (lambda: sampled_multiplier(1.0, 1e-5, 0.5, 0), "releases must be a whole number of at least 1"),
        (lambda: sampled_multiplier(1e-12, 1e-10, 0.5, 5), "epsilon must be larger: 5 releases would need"),
        (lambda: sampled_epsilon([SampledReleases(-1.0, 0.5, 5)], 1e-5), "multiplier must be positive"),
        (lambda: sampled_epsilon([SampledReleases(1.0, 0.5, 0)], 1e-5), "times must be a whole number"),
    ],
)
def test_bad_arguments(call, said):
    with pytest.raises(InvalidValue) as caught:
        call()
    assert str(caught.value).startswith(said)


def test_where_no_promise_is_left_none_is_made():
    assert sampled_epsilon([SampledReleases(0.05, 1.0, 100)], 1e-5) == math.inf
