"""The loop of model rewards: Algorithm 1 as printed, resumption, absence, measures, bad input."""

import io
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.rewards import federated, gradient_step, quadratic

from bonafed.errors import BadUpdate, InvalidValue
from bonafed.learning.federation import Failure, Reply, Roster
from bonafed.learning.function_federation import FunctionFederation
from bonafed.learning.work import LocalTraining
from bonafed.mechanisms.rewards import (
    FederatedAveraging,
    LocalRounds,
    ModelRewards,
    RewardsState,
    RunningMeasure,
    reward_rates,
    run,
    running_cosine,
    server_step,
    train_with_rewards,
)
from bonafed.mechanisms.rewards.measures import cosine_gradient, data_size, participation_rate
from bonafed.mechanisms.rewards.server import who_recovers

TARGETS = np.array([[-1.0, 0.3], [0.0, 2.0], [0.5, -1.0], [1.0, 0.0]])
P = np.array([0.2, 0.5, 0.7, 1.0])


def as_printed(local, start, p, rounds, seed, sharing, recovery, own):
    """Algorithm 1 in the paper's order: ServerAgg(t-1) opens round t, and once more at the end."""
    n = len(p)
    theta, reference, g = np.tile(start, (n, 1)), start.copy(), np.zeros((n, start.size))
    for t in range(1, rounds + 2):
        if t > 1:  # at t = 1 all updates are zero
            done = server_step(g, reward_rates(p, sharing=sharing), seed=seed, round_number=t - 1, own=own)
            reference = reference + done.reference
            lucky = who_recovers(recovery, np.ones(n, dtype=bool), seed=seed, round_number=t - 1)
            for i in range(n):
                theta[i] = reference if lucky[i] else theta[i] + done.rewards[i]
        if t <= rounds:
            g = local(theta.copy(), t, np.ones(n, dtype=bool))
    return theta, reference


@settings(max_examples=20)
@given(
    st.integers(0, 8), st.integers(0, 99), st.floats(0, 1), st.floats(0, 1),
    st.sampled_from(["paper", "unbiased"]),
)  # fmt: skip
def test_the_algorithm_as_printed(rounds, seed, sharing, recovery, own):
    local, start = gradient_step(TARGETS, 0.3), np.array([0.1, -0.2])
    options = {"seed": seed, "sharing": sharing, "recovery": recovery, "own": own}
    theta, reference = as_printed(local, start, P, rounds, **options)
    found = train_with_rewards(federated(local, 4), start, P, rounds=rounds, **options)
    assert found.models == pytest.approx(theta, abs=1e-12)
    assert found.reference == pytest.approx(reference, abs=1e-12)
    assert found.rates.shape == (rounds, 4)
    assert found.round_number == rounds


def test_the_last_upload_is_not_lost():
    found = train_with_rewards(federated(lambda m, t, a: np.ones_like(m), 4), np.zeros(2), P, rounds=1)
    assert found.models == pytest.approx(np.ones((4, 2)))
    assert found.reference == pytest.approx(np.ones(2))


def test_full_sharing_is_federated_averaging():
    local = quadratic(TARGETS, 0.3)
    found = train_with_rewards(local, np.zeros(2), P, rounds=7, sharing=1.0, recovery=0.0).models
    plain = FederatedAveraging(sizes=np.ones(4), fine_tuning=False)
    expected = run(plain, local, np.zeros(2), rounds=7)[0]
    assert found == pytest.approx(expected, abs=1e-12)
    assert found == pytest.approx(np.tile(found[0], (4, 1)), abs=1e-12)


def test_certain_recovery_hands_out_the_reference():
    found = train_with_rewards(quadratic(TARGETS, 0.3), np.zeros(2), P, rounds=5, sharing=0.0, recovery=1.0)
    assert (found.models == found.reference).all()
    assert found.recovered.all()


def test_a_client_that_contributes_nothing_learns_alone():
    found = train_with_rewards(
        quadratic(TARGETS, 0.5), np.zeros(2), [0, 1, 1, 1], rounds=60, sharing=0.0, recovery=0.0
    )
    assert found.models[0] == pytest.approx(TARGETS[0], abs=1e-12)


def resumed(method, local, stop, rounds):
    """A run stopped after `stop` rounds, written to a file, read again, and finished."""
    state = run(method, local, np.zeros(2), rounds=stop)[1]
    file = io.BytesIO()
    np.savez(file, **state.arrays())
    file.seek(0)
    with np.load(file) as arrays:
        again = RewardsState.from_arrays(dict(arrays))
    return run(method, local, np.zeros(2), rounds=rounds, state=again)[1]


MEASURES = {
    "given": P,
    "cosine": cosine_gradient(),
    "presence": participation_rate,
    "running": running_cosine(),
}


@pytest.mark.parametrize("contributions", MEASURES.values(), ids=MEASURES)
@pytest.mark.parametrize("stop", [0, 1, 4])
def test_a_stopped_run_goes_on_bit_for_bit(contributions, stop):
    method = ModelRewards(
        contributions, sizes=[1, 2, 3, 4], participation=[0.5, 0.6, 0.7, 1.0], recovery=0.3, seed=5
    )
    local = quadratic(TARGETS, 0.3)
    whole = run(method, local, np.zeros(2), rounds=6)[1]
    parts = resumed(method, local, stop, 6)
    for name, value in whole.arrays().items():
        assert np.array_equal(value, parts.arrays()[name], equal_nan=value.dtype != bool), name
    assert len(parts.history) == len(whole.history) == (6 if callable(contributions) else 0)


def test_absent_clients_neither_send_nor_receive():
    schedule = np.array([[1, 1, 1, 0], [0, 1, 1, 1], [1, 0, 0, 0], [0, 0, 0, 0]], dtype=bool)
    seen = []

    def local(models, round_number, present):
        seen.append((round_number, present.tolist()))
        updates = np.full(models.shape, np.nan)  # what an absent client would have sent is not looked at
        updates[present] = np.arange(1, 5)[present, None]
        return updates

    states = []
    method = ModelRewards(P, sharing=1.0, recovery=0.0, participation=schedule)
    clients = federated(local, 4)
    run(method, clients, np.zeros(1), rounds=4, on_round=states.append)
    moved = np.diff([np.zeros(4), *(s.models[:, 0] for s in states)], axis=0)
    assert moved == pytest.approx(np.array([[2, 2, 2, 0], [0, 3, 3, 3], [1, 0, 0, 0], [0, 0, 0, 0]]))
    assert (states[-1].present == schedule).all()
    assert [t for t, _ in seen] == [1, 2, 3]  # nobody is asked to train in round 4
    assert np.isnan(states[-1].contributions[3]).all()
    assert states[-1].average_rates == pytest.approx(np.ones(4))
    with pytest.raises(InvalidValue, match="participation must say who is present in round 5"):
        method.advance(states[-1], clients)


def test_states_cannot_be_written_to():
    class Meddling(FunctionFederation):
        def replies(self, tasks):
            tasks[0].models[0] += 1.0

    members = quadratic(TARGETS, 0.3).members
    with pytest.raises(ValueError, match="read-only"):
        train_with_rewards(Meddling(members, None), np.zeros(2), P, rounds=1)
    start = np.zeros(2)
    found = train_with_rewards(quadratic(TARGETS, 0.3), start, P, rounds=1)
    with pytest.raises(ValueError, match="read-only"):
        found.models[0] = 0.0
    start[0] = 1.0  # the caller's own array stays the caller's


def test_average_rates_are_over_the_rounds_attended():
    schedule = np.array([[1, 0], [1, 0]], dtype=bool)
    found = train_with_rewards(
        quadratic(np.zeros((2, 1)), 0.1), np.zeros(1), [1, 4], rounds=2, sharing=0.5, participation=schedule
    )
    assert found.average_rates[0] == pytest.approx(0.5)
    assert np.isnan(found.average_rates[1])


def test_rates_of_participation():
    """Spec C.1: A_t by Bernoulli(p_i), and rates from p_i, whose ceiling is 1."""
    p = 0.5 * (1 + np.arange(1, 5) / 4)
    found = train_with_rewards(
        quadratic(TARGETS, 0.3),
        np.zeros(2),
        p,
        rounds=400,
        ceiling=1.0,
        sharing=0.0,
        participation=p,
        seed=2,
    )
    assert found.rates[0] == pytest.approx(p)
    assert np.abs(found.present.mean(0) - p).max() < 0.1


def test_contributions_may_change_from_round_to_round():
    def measure(history):
        latest = history.rounds[-1]
        assert latest.models.shape == latest.updates.shape == (4, 2)
        return np.array([len(history.rounds), 1.0, 1.0, 4.0])

    found = train_with_rewards(
        quadratic(TARGETS, 0.3), np.zeros(2), measure, rounds=4, sizes=np.ones(4), sharing=0.0
    )
    assert found.contributions[:, 0].tolist() == [1, 2, 3, 4]
    assert found.rates[:, 0].tolist() == [0.25, 0.5, 0.75, 1.0]


def test_the_measure_sees_what_was_uploaded():
    seen = []

    def measure(history):
        seen.append(history)
        return history.sizes

    local = gradient_step(TARGETS, 0.3)
    method = ModelRewards(measure, sizes=[1, 2, 3, 4], score=lambda m: m[:, 0], keep=2, recovery=0.2)
    run(method, federated(local, 4), np.zeros(2), rounds=4)
    assert [len(history.rounds) for history in seen] == [1, 2, 2, 2]
    last = seen[-1].rounds[-1]
    assert (last.updates == local(last.models, 4, None)).all()
    assert seen[-1].sizes.tolist() == [1, 2, 3, 4]
    assert seen[-1].score(TARGETS).tolist() == TARGETS[:, 0].tolist()


def test_cosine_measure_inside_model_rewards():
    """A client that sends the opposite of what all others send falls to the smallest contribution."""
    targets = np.array([[1.0, 1.0], [1.1, 0.9], [0.9, 1.1], [-1.0, -1.0]])
    found = train_with_rewards(
        quadratic(targets, 0.3), np.zeros(2), cosine_gradient(), rounds=5, sizes=np.ones(4), sharing=0.0
    )
    assert found.contributions[-1].argmin() == 3
    assert found.rates[-1, 3] < 0.1 < 0.9 < found.rates[-1, :3].min()
    assert found.contributions.sum(1) == pytest.approx(np.ones(5))


def test_a_running_measure_says_the_same_and_keeps_nothing():
    def train(measure, **options):
        return train_with_rewards(
            quadratic(TARGETS, 0.3), np.zeros(2), measure, rounds=8, sizes=[1, 2, 3, 4], **options
        )

    schedule = np.ones((8, 4), dtype=bool)
    schedule[3, 1] = False
    whole = train(cosine_gradient(scale=0.7), participation=schedule)
    running = train(running_cosine(scale=0.7), participation=schedule)
    assert (whole.contributions == running.contributions).all()
    assert (whole.models == running.models).all()
    assert running.history == ()


def test_a_running_measure_passes_over_rounds_that_nobody_attended():
    before = []

    def step(last, _one, sizes):
        before.append(None if last is None else last.tolist())
        return sizes if last is None else last + 1

    schedule = np.array([[False] * 2, [True] * 2, [False] * 2, [True] * 2])
    found = train_with_rewards(
        quadratic(np.ones((2, 1)), 0.3), np.zeros(1), RunningMeasure(step), rounds=4, sizes=[1, 2],
        participation=schedule,
    )  # fmt: skip
    assert before == [None, [1, 2]]
    assert found.contributions[3].tolist() == [2, 3]


def test_single_precision_stays_single():
    for own in ("paper", "unbiased"):
        local = quadratic(TARGETS.astype(np.float32), np.float32(0.3))
        found = train_with_rewards(local, np.zeros(2, dtype=np.float32), P, rounds=3, recovery=0.5, own=own)
        assert found.models.dtype == found.reference.dtype == np.float32


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"contributions": [1, -1]}, "contributions must not be negative, got -1 at position 1"),
        ({"contributions": [0, 0]}, "contributions must not all be zero, got 2 zeros"),
        ({"contributions": [1, np.nan]}, "contributions must be finite, got nan at position 1"),
        ({"contributions": data_size}, "sizes is required if contributions are measured"),
        ({"sizes": [1, 2, 3]}, "contributions must have 3 values, got 2"),
        ({"sizes": [1, 0]}, "sizes must be positive, got 0 at position 1"),
        ({"sharing": 2}, r"sharing must be between 0 and 1, got 2\.0"),
        ({"recovery": -0.1}, r"recovery must be between 0 and 1, got -0\.1"),
        ({"recovery": 1.1}, r"recovery must be between 0 and 1, got 1\.1"),
        ({"ceiling": 0}, r"ceiling must be positive, got 0\.0"),
        ({"reference": "mean"}, "reference must be one of max, median, got 'mean'"),
        ({"own": "mine"}, "own must be one of paper, unbiased, got 'mine'"),
        ({"seed": -1}, "seed must be a whole number of at least 0, got -1"),
        ({"keep": 0}, "keep must be a whole number of at least 1, got 0"),
        ({"participation": [0.5, 2]}, r"participation must not exceed 1, got 2\.0"),
    ],
)
def test_bad_rules(options, message):
    with pytest.raises(InvalidValue, match=message):
        ModelRewards(**{"contributions": [1, 2], **options})


@pytest.mark.parametrize(
    ("found", "message"),
    [
        ([1, 1, -1], "contributions in round 2 must not be negative, got -1 at position 2"),
        ([1, np.nan, 1], "contributions in round 2 must be finite, got nan at position 1"),
        ([1, 1], "contributions in round 2 must have 3 values, got 2"),
    ],
)
def test_bad_measures_name_the_round(found, message):
    def measure(history):
        return np.ones(3) if len(history.rounds) == 1 else found

    with pytest.raises(InvalidValue, match=message):
        train_with_rewards(
            quadratic(np.ones((3, 1)), 0.1), np.zeros(1), measure, rounds=3, sizes=np.ones(3)
        )


def test_bad_local_training():
    def bad(models, round_number, _present):
        return np.where((np.arange(2) == 1)[:, None] & (round_number == 2), np.inf, np.ones_like(models))

    with pytest.raises(BadUpdate, match=r"update of client 1 in round 2 must be .*, got NaN or inf"):
        train_with_rewards(federated(bad, 2), np.zeros(1), [1, 1], rounds=3)

    def wide():
        return federated(lambda m, t, a: np.ones((2, 3)), 2)

    with pytest.raises(BadUpdate, match=r"client 0 in round 1 must be usable, got shape \(1, 3\) instead"):
        train_with_rewards(wide(), np.zeros(1), [1, 1], rounds=3)
    with pytest.raises(InvalidValue, match="models must be 2, one per client, got 3"):
        train_with_rewards(wide(), np.zeros(1), [1, 1, 1], rounds=3)


@pytest.mark.parametrize("rules", [ModelRewards, lambda p: FederatedAveraging(sizes=p)])
def test_a_state_of_other_clients_is_refused(rules):
    """Formerly NumPy complained about shapes."""
    method, other = rules(np.ones(3)), rules(np.ones(4)).begin(np.zeros(1))
    with pytest.raises(InvalidValue, match=r"^state must be of 3 clients, got models of shape \(4, 1\)$"):
        method.advance(other, quadratic(np.ones((4, 1)), 0.1))


def failing(when):
    """Two clients that want 1; the second fails in these rounds."""

    def answers(tasks):
        return {
            task.identifier: Failure("must be an update, got silence")
            if task.client == "1" and task.work.round_number in when
            else Reply(0.5 * (1 - task.models), loss=0.25, steps=3)
            for task in tasks
        }

    class Some(FunctionFederation):
        def replies(self, tasks):
            return answers(tasks)

    return Some(Roster(("0", "1"), np.array([5, 5])), answers)


def test_a_client_that_fails_ends_the_run_or_is_absent_by_policy():
    with pytest.raises(BadUpdate, match="update of client 1 in round 2 must be an update, got silence"):
        train_with_rewards(failing({2}), np.zeros(1), [1, 1], rounds=3)
    skip = LocalRounds(on_failure="skip")
    found = train_with_rewards(failing({2}), np.zeros(1), [1, 1], rounds=3, recovery=0.0, local=skip)
    schedule = np.array([[True, True], [True, False], [True, True]])
    absent = train_with_rewards(
        failing(()), np.zeros(1), [1, 1], rounds=3, recovery=0.0, participation=schedule
    )
    assert (found.present == schedule).all()
    assert (found.models == absent.models).all()
    assert (found.rates == absent.rates).all()


def test_a_round_says_who_failed_and_what_it_took():
    method = ModelRewards([1, 1], local=LocalRounds(on_failure="skip"))
    _, sent = method.advance(method.begin(np.zeros(1)), failing({1}))
    assert sent.present.tolist() == [True, False]
    assert sent.failed.tolist() == [False, True]
    assert (sent.steps, sent.loss) == (3, 0.25)


def test_fine_tuning_skips_who_fails():
    method = FederatedAveraging(sizes=[1, 1], local=LocalRounds(on_failure="skip"))
    models, state = run(method, failing({3}), np.zeros(1), rounds=2)
    assert models[1] == state.models[1] == 0.75
    assert models[0] == 0.875


def test_tasks_name_round_and_client_and_learn_slower_every_round():
    seen = []

    def answers(tasks):
        seen.extend(tasks)
        return {task.identifier: np.ones((1, 1)) for task in tasks}

    members = Roster(("ada", "ben"), np.array([5, 5]))
    local = LocalRounds(LocalTraining(4, 0.5), seed=9, decay=0.5, name="rewards")
    rules = {"rounds": 2, "recovery": 0.0, "local": local}
    train_with_rewards(FunctionFederation(members, answers), np.zeros(1), [1, 1], **rules)
    names = ["rewards/1/ada", "rewards/1/ben", "rewards/2/ada", "rewards/2/ben"]
    assert [task.identifier for task in seen] == names
    assert [task.work.training.learning_rate for task in seen] == [0.5, 0.5, 0.25, 0.25]
    assert {task.work.seed for task in seen} == {9}


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (np.zeros((2, 2)), r"start must be one-dimensional and not empty, got shape \(2, 2\)"),
        (np.zeros(0), "start must be one-dimensional"),
        (np.zeros(2, dtype=int), "start must be in single or double precision, got int64"),
        (np.array([np.nan]), "start must be finite"),
    ],
)
def test_bad_start(start, message):
    with pytest.raises(InvalidValue, match=message):
        train_with_rewards(quadratic(TARGETS, 0.1), start, P, rounds=1)


def test_rates_and_games_need_no_heavy_library():
    code = "import sys, bonafed.mechanisms.rewards; print({'torch', 'matplotlib'} & set(sys.modules))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "set()"
