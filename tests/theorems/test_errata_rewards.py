"""What is wrong in print in the paper on model rewards, shown (docs/errata.md)."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bonafed.mechanisms.rewards import Standalone, run, train_with_rewards
from bonafed.mechanisms.rewards.game import best_responses, equilibria, game, standard, with_ceiling
from bonafed.mechanisms.rewards.server import expected_weights
from bonafed.mechanisms.rewards.settlement import correlation
from bonafed.papers.rewards.bounds import (
    TrainingProblem,
    fading_sum,
    limit_bound,
    printed_common_term,
    recovery_bound,
    tight_fading_sum,
)
from tests.oracles.rewards import digits_federation

SETTING = TrainingProblem(4.0, 0.5, 3, 0.2, 1.5, 0.3, 45.0, 2.0)
RATES = np.tile([0.3, 0.5, 0.8, 1.0], (20, 1))
DATA = json.loads((Path(__file__).parents[1] / "vectors" / "rewards.json").read_text())


def test_i1_the_main_texts_common_term_is_too_small():
    """Without the square old errors count too little: the term is below what it has to bound."""
    right = recovery_bound(SETTING, RATES, 0.9, 0.1).common[-1]
    printed = printed_common_term(SETTING, RATES, 0.9, 0.1)
    assert printed < 0.9 * right
    # the recursion with the printed term does not dominate the sum of the errors it stands for
    assert printed_common_term(SETTING, RATES[:1], 0.9, 0.1) == pytest.approx(
        recovery_bound(SETTING, RATES[:1], 0.9, 0.1).common[0]
    )  # one round: the square makes no difference


def test_i2_the_printed_product_undercuts_the_recursion_it_solves():
    for rounds in (2, 20, 500):
        rates = np.tile(RATES[0], (rounds, 1))
        solved = recovery_bound(SETTING, rates, 0.9, 0.1, variant="T steps").bound
        printed = recovery_bound(SETTING, rates, 0.9, 0.1, variant="printed").bound
        if rounds == 2:
            assert (printed < solved).all()  # one product of one factor: eta_1 in the place of eta_2
        else:
            assert (printed < solved * (1 - 1e-3)).all()
    # after 500 rounds the printed formula is even below the exact bound one step earlier
    assert (printed < recovery_bound(SETTING, rates, 0.9, 0.1).bound).all()


def test_i3_t_steps_bound_the_next_model():
    longer = np.tile(RATES[0], (21, 1))
    one_more = recovery_bound(SETTING, longer, 0.9, 0.1).bound
    assert recovery_bound(SETTING, RATES, 0.9, 0.1, variant="T steps").bound == pytest.approx(one_more)


def test_i7_with_those_never_recovered_the_last_line_is_exact():
    """An error of round t is still there after round T if no recovery came in t..T: (1-q)^(T-t+1)."""
    q, rounds = 0.3, 6
    for t in range(1, rounds + 1):
        el = rounds - t + 1
        printed = q * sum((1 - q) ** h for h in range(el, rounds + 1))
        never = (1 - q) ** (rounds + 1)
        assert printed < (1 - q) ** el
        assert printed + never == pytest.approx((1 - q) ** el, rel=1e-12)
    draws = np.random.default_rng(0).random((200_000, rounds)) < q  # recovery of each round
    for t in range(1, rounds + 1):
        still = (~draws[:, t - 1 :].any(1)).mean()
        assert still == pytest.approx((1 - q) ** (rounds - t + 1), abs=0.005)


def test_i8_proposition_2_needs_a_slower_growth_than_printed():
    """1/gamma' = t^1.5 is o(t^2/log t), but (54) over T + alpha - 1 grows; t^0.5 is o(t/log t)."""

    def bound(power, rounds):
        return limit_bound(SETTING, [float(rounds) ** power], float(rounds) ** power, 0.1, rounds)[0]

    allowed = [bound(1.5, n) for n in (10**3, 10**4, 10**5, 10**6)]
    assert np.all(np.diff(allowed) > 0)
    enough = [bound(0.5, n) for n in (10**3, 10**4, 10**5, 10**6)]
    assert np.all(np.diff(enough) < 0)
    assert enough[-1] < 0.15 * enough[0]  # sqrt(T) log(T)/T: 0.1 times as much
    harmless = [bound(0.0, n) * n / np.log(n / 45) for n in (10**4, 10**5, 10**6)]  # 1/gamma' <= N
    assert max(harmless) < 1.05 * min(harmless)  # like log T/T


def test_i9_equation_47_is_right_and_46_loose():
    for alpha, q in ((10.0, 0.1), (45.0, 0.01), (0.0, 0.5)):
        printed = (q - 1) * (-(alpha**2) * q**2 - 2 * alpha * q + q - 2) / q**3
        assert fading_sum(alpha, q) == pytest.approx(printed, rel=1e-12)
        assert printed / tight_fading_sum(alpha, q) == pytest.approx((1 + alpha) ** 2)
        # both bound the sum of (46) at every T
        for rounds in (1, 7, 200):
            el = np.arange(rounds)
            exact = (((rounds + alpha) / (rounds - el + alpha)) ** 2 * (1 - q) ** (el + 1)).sum()
            assert exact <= tight_fading_sum(alpha, q) <= fading_sum(alpha, q)


set_sizes = st.integers(2, 12).flatmap(lambda n: st.lists(st.integers(1, n), min_size=n, max_size=n))


@given(set_sizes)
def test_own_updates_pull_every_client_to_its_own_optimum(sizes):
    """Mean dynamics dtheta = W g: W has only positive eigenvalues, so the one fixed point is g = 0."""
    n = len(sizes)
    w = expected_weights(sizes)
    s = np.array(sizes, dtype=float)
    assert w.sum(1) == pytest.approx(1.0)
    full = int((s == n).sum())
    values = np.linalg.eigvals(w)
    assert np.abs(values.imag).max() < 1e-7
    if full <= 1:
        assert values.real.min() > 1e-9
        assert np.linalg.matrix_rank(w) == n
    else:  # clients that receive everything share one model: their updates need only sum to zero
        assert np.linalg.matrix_rank(w, tol=1e-9) == n - full + 1
    if (s > 1).all():  # similar to a symmetric matrix
        b = (1 - 1 / s) / (n - 1)
        similar = np.diag((n / s - 1) / (n - 1)) + np.sqrt(np.outer(b, b))
        root = np.diag(np.sqrt(b))
        assert np.linalg.inv(root) @ w @ root == pytest.approx(similar, abs=1e-9)
        assert np.linalg.eigvalsh(similar).min() >= -1e-12


def test_quadratic_clients_end_at_their_own_optima():
    """F_i = (theta - a_i)^2/2: the mean dynamics without recovery end at a, not at the common optimum 0."""
    sizes, a = np.array([3, 4, 5, 6, 6, 7, 8, 9, 9, 10]), np.linspace(-1, 1, 10)
    w, theta = expected_weights(sizes), np.zeros(10)
    for _ in range(40_000):
        theta = theta + 0.05 * (w @ (a - theta))
    assert theta == pytest.approx(a, abs=1e-3)
    unbiased, theta = expected_weights(sizes, "unbiased"), np.zeros(10)
    for _ in range(40_000):
        theta = theta + 0.05 * (unbiased @ (a - theta))
    assert theta == pytest.approx(np.zeros(10), abs=1e-9)


def test_the_matrix_of_the_reference_numbers():
    given_case = DATA["mean_dynamics"]
    w = expected_weights(given_case["sizes"])
    assert w == pytest.approx(np.array(given_case["W"]), rel=1e-9)
    assert np.linalg.svd(w)[1].min() == pytest.approx(given_case["min_singular"], rel=1e-8)


def test_i5_the_mean_over_a_sample_of_clients_may_be_negative():
    """(26)(a) needs the mean over S_i of F_m(theta) - F* >= 0; true of all clients together only."""
    optima = np.array([-1.0, 1.0])  # F_m = (theta - a_m)^2/2, F* = 1/2 at 0
    theta = 0.5
    losses = (theta - optima) ** 2 / 2 - 0.5
    assert losses.mean() >= 0 > losses[1]


def test_proposition_1_has_no_strict_gain_beyond_the_ceiling():
    """Contributions at least p_ceil earn no more: best responses equal those of the standard rule."""
    played = game([0.1, 0.5])
    at_rest = equilibria(played, standard())[0].contributions
    assert at_rest[0] > 0.5
    ruled = best_responses(played, with_ceiling(0.5, 0.0), at_rest)
    assert ruled[0] == pytest.approx(best_responses(played, standard(), at_rest)[0])


def test_rho_is_high_against_the_measure_that_rates_were_made_from_and_no_other():
    """Digits, three classes each: two sets say different things of the same clients' standalone models."""
    found = []
    for seed in range(3):
        fed, start = digits_federation("C3", seed), np.zeros(650)
        alone = run(Standalone(sizes=fed.sizes), fed.federation, start, rounds=50)[0]
        measured = [fed.accuracy(alone), fed.validation_accuracy(alone)]
        options = {"rounds": 50, "seed": seed, "sharing": 0.0, "recovery": 0.0}
        ends = [
            fed.accuracy(train_with_rewards(fed.federation, start, p, **options).models) for p in measured
        ]
        found.append([[correlation(end, p) for p in measured] for end in ends])
    rho = np.mean(found, axis=0)
    assert np.diag(rho).min() > 0.4
    assert abs(rho[0, 1]) < 0.25
    assert abs(rho[1, 0]) < 0.25
