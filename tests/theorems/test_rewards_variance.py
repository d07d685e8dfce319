"""Appendix C of the rewards paper: the precision of a reward is what the mechanism promises.

Updates that are independent with the same mean and variance sigma^2, of which client i averages its own
and gamma_i (N - 1) others: 1/Var = 1/sigma^2 + gamma_i (N - 1)/sigma^2, where gamma_i is
min(p_i/p_ceil, 1)^(1-kappa).
Exact where gamma_i (N - 1) is a whole number; otherwise the set is rounded up, and the precision with it.
"""

import numpy as np
import pytest

from bonafed.mechanisms.rewards.server import draw_sets, mean_weights, reward_rates, server_step, set_sizes

N = 11  # clients, so that tenths are whole numbers of others


def promised(rates, variance):
    return 1 / variance + np.asarray(rates) * (N - 1) / variance


@pytest.mark.parametrize("sharing", [0.0, 0.5, 1.0])
def test_the_precision_of_a_reward_is_the_mechanisms(sharing):
    """Var of a mean of independent numbers is variance times the sum of squared weights."""
    tenths = np.arange(N) / (N - 1)
    p = tenths ** (1 / (1 - sharing)) if sharing < 1 else tenths
    rates = reward_rates(p, sharing=sharing, ceiling=1.0)
    variance = 2.5
    for t in range(1, 6):
        weights = mean_weights(draw_sets(rates, np.ones(N, dtype=bool), seed=3, round_number=t))
        np.testing.assert_allclose(weights.sum(1), 1.0)
        precision = 1 / (variance * (weights**2).sum(1))
        np.testing.assert_allclose(precision, promised(rates, variance), rtol=1e-12)


def test_a_set_that_is_no_whole_number_is_rounded_up():
    rates = np.linspace(0.03, 0.97, N)
    sizes = set_sizes(rates, N)
    weights = mean_weights(draw_sets(rates, np.ones(N, dtype=bool), seed=1, round_number=1))
    precision = 1 / (weights**2).sum(1)
    np.testing.assert_allclose(precision, sizes)
    assert (precision >= promised(rates, 1.0) - 1e-9).all()
    assert (precision < promised(rates, 1.0) + 1).all()


def test_so_it_is_when_rewards_are_drawn():
    """The variance over many rounds of independent updates, one number each."""
    rates, rounds = np.arange(N) / (N - 1), 4000
    rng = np.random.default_rng(0)
    updates = rng.normal(0.7, 2.0, size=(rounds, N, 1))
    rewards = np.array(
        [
            server_step(each, rates, seed=5, round_number=t + 1).rewards[:, 0]
            for t, each in enumerate(updates)
        ]
    )
    np.testing.assert_allclose(rewards.mean(0), 0.7, atol=5 * 2.0 / np.sqrt(rounds))
    spread = rewards.var(0, ddof=1) * promised(rates, 4.0)
    np.testing.assert_allclose(spread, 1.0, atol=5 * np.sqrt(2 / rounds))
