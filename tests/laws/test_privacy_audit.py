"""What private mechanisms really give away stays within what they claim; with half the noise it is seen.

Every audit runs a mechanism on two neighbouring data sets (`tests/oracles/private_releases.py`) and bounds
epsilon from below (`tests/oracles/privacy_audit.py`). All audits of mechanisms that keep their promise
together raise a false alarm with a probability of 1e-9 at most, however the noise falls.
"""

import math
import os

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
from scipy.stats import binom

from bonafed.learning.privacy import noise_multiplier, spent_epsilon
from tests.oracles.privacy import delta_of
from tests.oracles.privacy_audit import epsilon_of, error_limit, least_advantage, measure, mu_of
from tests.oracles.private_releases import (
    drawing,
    drawn_by_coins,
    faithful_releases,
    faithful_reports,
    setting_for,
    single_update,
    spent_on_sums,
    updates,
    whole_runs,
)
from tests.oracles.settings import participation

EPSILON, DELTA = 8.0, 1e-3
PROMISE = {"epsilon": EPSILON, "delta": DELTA}
DEEP = os.environ.get("HYPOTHESIS_PROFILE") == "deep"  # more runs of each mechanism
AUDITS = 16  # of mechanisms that keep their promise, below
FALSE_ALARM = 1e-9 / AUDITS

# records of each client, the first of whom has the canary, and what clients do
TRAINING = {
    "one step": ((3,), {"rounds": 1, "batch_size": 3}),
    "two rounds": ((3, 2), {"rounds": 2, "batch_size": 8}),
    "not in every round": ((3, 3, 3), {"rounds": 8, "batch_size": 3, "participation": 0.4}),
    "two passes of two batches, the second ragged": ((5,), {"rounds": 1, "batch_size": 3, "epochs": 2}),
    "steps that end within a pass": ((4,), {"rounds": 1, "batch_size": 2, "steps": 3}),
}


def leaked(rows, delta=DELTA):
    return measure(*rows, delta, FALSE_ALARM)


def require_within_and_control_caught(released, epsilon=EPSILON, delta=DELTA):
    """`released(canary, noise)` gives what is released on the data set with this canary."""
    honest = leaked([released(canary, 1.0) for canary in (0, 1)], delta)
    assert honest.gaussian <= epsilon
    assert honest.any <= epsilon
    control = leaked([released(canary, 0.5) for canary in (0, 1)], delta)
    assert control.gaussian > epsilon
    return honest, control


@pytest.mark.parametrize("case", TRAINING)
def test_private_training(case):
    sizes, training = TRAINING[case]

    def released(canary, noise):
        setting = setting_for(sizes, canary, training=training, privacy=PROMISE)
        return updates(setting, 1200, seed=canary, noise=noise)

    honest, _ = require_within_and_control_caught(released)
    assert honest.gaussian > EPSILON / 5  # it is the worst case, of which a fair share is seen


def test_private_training_whatever_the_noise_is_like():
    """With a large delta the bound that presumes nothing of the mechanism catches the control as well."""
    promise = {"epsilon": 1.0, "delta": 0.1}

    def released(canary, noise):
        sizes, training = TRAINING["one step"]
        setting = setting_for(sizes, canary, training=training, privacy=promise)
        return updates(setting, 4000, seed=canary, noise=noise)

    _, control = require_within_and_control_caught(released, **promise)
    assert control.any > 1.0


def test_whole_private_runs():
    """Models of every round, from the loop of a run."""

    def released(canary, noise):
        setting = setting_for((3,), canary, training={"rounds": 2, "batch_size": 3}, privacy=PROMISE)
        return whole_runs(setting, 450, seed=450 * canary, noise=noise)

    require_within_and_control_caught(released)


# records of each client, the first of whom has the canary; per round, how often each client is in it
ON_SUMS = {
    "two rounds": ((3, 3), [(1, 1), (1, 1)]),
    "the other is drawn more often, and needs more noise": ((4, 4), [(1, 2), (1, 2)]),
    "drawn twice in a round": ((3, 3), [(2, 1), (1, 1)]),
    "drawn once, thrice and not at all": ((3, 2), [(1, 1), (3, 1), (0, 1), (1, 0)]),
}


RARE = (
    "the other is drawn more often, and needs more noise", "drawn twice in a round",
    "drawn once, thrice and not at all",
)  # fmt: skip
SUMS = [pytest.param(case, marks=[pytest.mark.deep] if case in RARE else []) for case in ON_SUMS]


@pytest.mark.parametrize("case", SUMS)
def test_noise_once_on_the_sum(case):
    """Models of every round; a client that is drawn c times for a round is charged for c squared."""
    sizes, drawn = ON_SUMS[case]
    training = {"rounds": len(drawn), "batch_size": 4, "steps": 1}

    def setting(canary):
        made = setting_for(sizes, canary, training=training, privacy={**PROMISE, "noise_at": "sum"})
        return drawing(made, drawn)

    spent = spent_on_sums(setting(0))
    assert 0.3 * EPSILON < spent <= EPSILON

    def released(canary, noise):
        runs = 1200 if DEEP else 500
        return whole_runs(setting(canary), runs, seed=1200 * canary, noise=noise)

    require_within_and_control_caught(released, spent)  # what the ledger says, which may be less


def test_training_under_jsam_with_noise_on_the_sum():
    sold = {"prior": "uniform:0.5,1.5", "noise_scale": 1.0, "eta": 200.0, "delta": DELTA, "noise_at": "sum"}

    def setting(canary):
        return setting_for((3, 3), canary, training={"rounds": 2, "batch_size": 3}, jsam=sold)

    epsilon = float(setting(0).agreement.terms.epsilon[0])
    assert 4 < epsilon < 10
    runs = 800 if DEEP else 500
    require_within_and_control_caught(
        lambda canary, noise: whole_runs(setting(canary), runs, seed=800 * canary, noise=noise), epsilon
    )


def test_single_updates_are_not_protected_by_noise_on_the_sum():
    """The threat model: who sees single updates, as a server may, is given the record away."""
    privacy = {**PROMISE, "noise_at": "sum"}
    sent = [
        single_update(setting_for((3, 3), canary, training={"rounds": 1, "batch_size": 3}, privacy=privacy))
        for canary in (0, 1)
    ]
    assert np.abs(sent[0] - sent[1]).max() > 1e-4  # of CLIP 1e-3, and without any noise
    again = setting_for((3, 3), 0, training={"rounds": 1, "batch_size": 3}, privacy=privacy)
    assert np.array_equal(single_update(again), sent[0])


def test_batches_drawn_by_coins():
    """For adding or removing a record. At epsilon 0 the account's delta is the total variation."""
    sigma, steps = 0.8, 3
    one = from_gaussian_mechanism(sigma, sampling_prob=0.5, value_discretization_interval=1e-3)
    claimed = one.self_compose(steps).get_delta_for_epsilon(0.0)

    def advantage(multiplier):
        rows = [
            drawn_by_coins(pull, 1200, multiplier=multiplier, steps=steps, seed=seed)
            for pull, seed in ((0.0, 7), (1e6, 8))
        ]
        return least_advantage(*rows, FALSE_ALARM)

    assert 0 < advantage(sigma) <= claimed
    assert advantage(sigma / 2) > claimed  # the control


def test_training_under_jsam():
    """What is sold is what is given away, also by clients that are drawn more than once in a round."""
    sold = {"prior": "uniform:0.5,1.5", "noise_scale": 1.0, "eta": 200.0, "delta": DELTA}
    sold["clients_per_round"] = 3
    training = {"rounds": 2, "batch_size": 3, "steps": 2}

    def setting(canary):
        return setting_for((3, 3), canary, training=training, jsam=sold)

    made = setting(0)
    terms, drawn = made.agreement.terms, [participation(made, number).clients for number in (1, 2)]
    times = [int((clients == 0).sum()) for clients in drawn]
    assert max(times) > 1
    assert sum(times) > 2
    assert 4 < terms.epsilon[0] < 10
    require_within_and_control_caught(
        lambda canary, noise: updates(setting(canary), 600, seed=canary, noise=noise),
        float(terms.epsilon[0]),
    )


def test_private_faithful_learning():
    def released(canary, noise):
        return faithful_releases(canary, 600, alpha=EPSILON, beta=DELTA, seed=canary, noise=noise)

    require_within_and_control_caught(released)


def test_single_reports_of_private_faithful_learning_with_noise_at_the_agents():
    """The server sees every single report of the agent."""

    def released(canary, noise):
        return faithful_reports(canary, 600, alpha=EPSILON, beta=DELTA, seed=canary, noise=noise)

    honest, _ = require_within_and_control_caught(released)
    assert honest.gaussian > EPSILON / 5


class TestTheAuditItself:
    @pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-5), (8.0, 1e-3), (20.0, 0.1)])
    def test_epsilon_and_mu_of_a_gaussian_release(self, epsilon, delta):
        mu = mu_of(epsilon, delta)
        assert epsilon_of(mu, delta) == pytest.approx(epsilon, rel=1e-9)
        assert float(delta_of(1 / mu, 1, epsilon)) == pytest.approx(delta, rel=1e-9)  # at 60 digits
        assert spent_epsilon(1 / mu, 1, delta) == pytest.approx(epsilon, rel=1e-9)
        assert 1 / noise_multiplier(epsilon, delta) == pytest.approx(mu, rel=1e-9)

    @pytest.mark.parametrize(("wrong", "n"), [(0, 50), (3, 50), (40, 50)])
    def test_limits_of_error_rates(self, wrong, n):
        limit = error_limit(wrong, n, 1e-10)
        assert binom.cdf(wrong, n, limit) == pytest.approx(1e-10, rel=1e-6)
        assert error_limit(n, n, 1e-10) == 1.0

    def test_false_alarms_are_as_rare_as_asked(self):
        """At a rate that can be counted: of 400 audits of a mechanism at its limit, one in ten at most."""
        rng, alarms, mu = np.random.default_rng(0), 0, 1.5
        for _ in range(400):
            rows = rng.standard_normal((2, 200, 2))
            rows[1] += mu / math.sqrt(2)  # two releases of one record
            alarms += measure(*rows, 0.1, 0.1).mu > mu
        assert binom.sf(alarms - 1, 400, 0.1) > 1e-9

    def test_a_fair_share_of_what_was_given_away_is_seen(self):
        rng = np.random.default_rng(1)
        rows = rng.standard_normal((2, 20_000, 3))
        rows[1] += np.array([2.0, 1.0, 0.0])
        found = measure(*rows, DELTA, FALSE_ALARM)
        assert 0.85 * math.sqrt(5) < found.mu < math.sqrt(5)

    def test_randomised_response(self):
        """The truth with probability e^epsilon/(1 + e^epsilon): private without a delta, and tight."""
        rng, epsilon = np.random.default_rng(2), 2.0
        truth = rng.random((2, 20_000, 1)) < 1 / (1 + math.exp(-epsilon))
        rows = np.where(truth, [[[0.0]], [[1.0]]], [[[1.0]], [[0.0]]]) + 1e-3 * rng.random((2, 20_000, 1))
        assert 1.5 < measure(*rows, 0.0, FALSE_ALARM).any < epsilon
