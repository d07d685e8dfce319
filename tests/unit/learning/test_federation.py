"""Arguments of a round are refused by name, before anybody trains."""

import numpy as np
import pytest
import torch
from tests.oracles.rounds import run_round, simulated
from tests.oracles.twins import NOISE, image_samples, make, split

from bonafed.errors import InvalidValue
from bonafed.learning.engine.jobs import Job
from bonafed.learning.engine.programs import flat_parameters, program_for
from bonafed.learning.engine.sequential import run_jobs_sequentially
from bonafed.learning.federation import Failure, Gradients, Objective, Task, Train
from bonafed.learning.rounds import Participation, training_tasks, weighted_mean
from bonafed.learning.work import LocalTraining

PARTS = split((4, 3, 5))
EVERYONE = np.arange(3)
NAMES, MODEL, SPEC = ("0", "1", "2"), np.zeros(5, dtype=np.float32), LocalTraining(4, 0.1, clip=1.0)


def tasks(clients, noise=None):
    who = Participation(clients, np.ones(clients.size))
    return training_tasks(NAMES, MODEL, who, SPEC, round_number=1, seed=0, noise_multipliers=noise)


@pytest.mark.parametrize(
    ("noise", "message"),
    [
        ([1.0, 1.0], "noise_multipliers must have 3 values, got 2"),
        ([1.0, -2.0, 1.0], "noise_multipliers must not be negative, got -2 at position 1"),
        ([1.0, 1.0, np.nan], "noise_multipliers must be finite, got nan at position 2"),
        ([np.inf, 1.0, 1.0], "noise_multipliers must be finite, got inf at position 0"),
        ([[1.0, 1.0, 1.0]], "noise_multipliers must be one-dimensional"),
        (["a", "b", "c"], "noise_multipliers must be a list of numbers"),
    ],
)
def test_noise_that_is_none(noise, message):
    module = make("softmax")
    with pytest.raises(InvalidValue, match=f"^{message}"):
        tasks(EVERYONE, noise)
    with pytest.raises(InvalidValue, match=f"^{message}"):
        run_round(
            program_for(module), flat_parameters(module), image_samples(12), PARTS,
            weighted_mean(EVERYONE, [4, 3, 5]), LocalTraining(4, 0.1, clip=1.0),
            seed=0, round_number=1, noise_multipliers=noise,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("clients", "message"),
    [
        (np.array([0, 3]), r"clients must be in 0\.\.2, got 3"),
        (np.array([0, -1]), r"clients must be in 0\.\.2, got -1"),
        (np.array([0.5]), "clients must be a one-dimensional array of whole numbers"),
        (np.array([[0]]), "clients must be a one-dimensional array of whole numbers"),
        (np.array([True]), "clients must be a one-dimensional array of whole numbers"),
    ],
)
def test_clients_that_are_not_there(clients, message):
    with pytest.raises(InvalidValue, match=f"^{message}"):
        tasks(clients)
    with pytest.raises(InvalidValue, match=f"^{message}"):
        weighted_mean(clients, [4, 3, 5])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: Participation([0, 1], np.ones(2)),
            r"clients must be a one-dimensional array of whole numbers, got \[0, 1\]",
        ),
        (
            lambda: Participation(EVERYONE, [1.0] * 3),
            "weights must be a one-dimensional array of numbers",
        ),
        (lambda: Participation(EVERYONE, np.ones(2)), "weights must have 3 values, got 2"),
        (lambda: Participation(EVERYONE, np.array([1, np.nan, 1])), "weights must be finite"),
        (lambda: Train(SPEC, 1, 0, noise_multiplier=-2.0), "noise_multiplier must not be negative, got -2"),
        (lambda: Train(SPEC, 1, 0, noise_multiplier=np.nan), "noise_multiplier must be finite, got nan"),
        (
            lambda: weighted_mean([0, 2], [0, 3, 0]),
            r"sizes must not be 0 for all clients that take part, got \[0, 2\]",
        ),
        (lambda: weighted_mean([0], [-1, 3]), "sizes must not be negative, got -1 at position 0"),
    ],
)
def test_who_takes_part_and_with_what_weight(call, message):
    with pytest.raises(InvalidValue, match=f"^{message}"):
        call()


def test_nobody_may_take_part():
    assert weighted_mean([], [4, 3, 5]).weights.size == 0
    assert tasks(np.zeros(0, dtype=np.int64), [0.0, 1.0, 2.0]) == []
    federation, model = clients()
    nobody = federation.total([], np.zeros(0))
    assert nobody.values.tolist() == np.zeros((1, model.size)).tolist()
    assert (nobody.delivered, nobody.steps, nobody.releases) == ((), 0, ())
    assert federation.replies([]) == {}


def clients(module=None, spoil=None, parts=PARTS, noise=NOISE):
    """Three clients, and the model they begin with."""
    module, samples = module or make("softmax"), image_samples(12)
    if spoil is not None:
        spoil(samples)
    return simulated(program_for(module), samples, parts, noise), flat_parameters(module).numpy()


def train(client, models, *, copy=0, noise=0.0, spec=SPEC):
    return Task(f"{client}, {copy}", str(client), models, Train(spec, 2, 5, copy, noise))


class TestAnswers:
    """What the federation on this machine answers."""

    def test_a_model_per_task_in_any_order_is_what_the_twin_computes(self):
        module = make("softmax")
        federation, model = clients(module)
        own = [model[None] + np.float32(0.01 * k) for k in range(4)]
        asked = [
            train(2, own[0], noise=0.5), train(0, own[1]), train(2, own[2], copy=1), train(1, own[3]),
        ]  # fmt: skip
        answers = federation.replies(asked)
        assert set(answers) == {task.identifier for task in asked}
        for task, start in zip(asked, own, strict=True):
            client, work = int(task.client), task.work
            job = Job(client, PARTS[client], work.copy, work.noise_multiplier)
            (twin,) = run_jobs_sequentially(
                module, torch.from_numpy(start[0]), federation.samples, [job], SPEC,
                seed=5, round_number=2, noise=NOISE,
            )  # fmt: skip
            answer = answers[task.identifier]
            assert answer.values.shape == (1, model.size)
            near = 1e-6 if not work.noise_multiplier else 0.01
            assert np.abs(answer.values[0] - twin.change.numpy()).max() <= near
            assert (answer.steps, len(answer.releases)) == (twin.steps, int(work.noise_multiplier > 0))

    def test_the_sum_is_that_of_the_replies_whatever_the_order(self):
        federation, model = clients()
        sent = model[None]
        asked = [train(k, sent, noise=1.0) for k in (2, 0, 1)]
        shares = np.array([0.5, -1.0, 2.0])
        total, answers = federation.total(asked, shares), federation.replies(asked)
        expected = np.zeros(model.size)
        for place in (1, 2, 0):
            expected += shares[place] * answers[asked[place].identifier].values[0].astype(np.float64)
        assert np.array_equal(total.values[0], expected)
        again = federation.total([asked[1], asked[0], asked[2]], shares[[1, 0, 2]])
        assert np.array_equal(again.values, total.values)
        assert [r.client for r in again.releases] == [r.client for r in total.releases] == [0, 1, 2]
        assert total.loss == pytest.approx(np.mean([a.loss for a in answers.values()]))

    def test_who_fails_is_told_with_the_reason_and_everybody_else_counts(self):
        def spoil(samples):
            samples.features[5] = float("nan")  # of client 1
            samples.labels[8] = 9  # of client 2

        federation, model = clients(spoil=spoil, parts=[*PARTS, np.arange(0)])
        asked = [train(k, model[None], spec=LocalTraining(4, 0.1)) for k in (3, 2, 1, 0)]
        total, answers = federation.total(asked, np.ones(4)), federation.replies(asked)
        reasons = {
            "3, 0": "must have samples, got 0",
            "2, 0": "must have labels in 0..3, got 9",
            "1, 0": "must be finite, got NaN or inf; a smaller learning rate may help",
        }
        assert {name: failure.reason for name, failure in total.failures.items()} == reasons
        assert list(total.failures) == list(reasons)  # in the order of the tasks
        assert total.delivered == (False, False, False, True)
        assert np.array_equal(total.values[0], answers["0, 0"].values[0].astype(np.float64))
        assert {k: a.reason for k, a in answers.items() if isinstance(a, Failure)} == reasons
        assert total.loss == answers["0, 0"].loss
        assert total.steps == 2  # of those that trained, whether or not it can be used

    def test_an_update_that_cannot_be_used_was_given_away_all_the_same(self):
        federation, model = clients()
        far = LocalTraining(2, 3e38, clip=1.0)
        total = federation.total([train(k, model[None], noise=1e9, spec=far) for k in (1, 0)], np.ones(2))
        assert total.delivered == (False, False)
        assert np.array_equal(total.values, np.zeros((1, model.size)))
        assert np.isnan(total.loss)
        assert [(r.client, r.times, r.steps) for r in total.releases] == [(0, 1, 2), (1, 1, 2)]

    def test_in_a_private_round_a_client_that_fails_changes_nothing(self):
        """No share of it goes to others, which would tell."""
        module, samples = make("softmax"), image_samples(12)
        samples.labels[5] = 9
        who = weighted_mean(EVERYONE, [4, 3, 5])
        common = {"seed": 0, "round_number": 1, "noise_multipliers": np.ones(3), "noise": NOISE}
        arguments = program_for(module), flat_parameters(module), samples, PARTS
        kept = run_round(*arguments, who, SPEC, on_bad_update="zero", **common)
        others = Participation(np.array([0, 2]), who.weights[[0, 2]])
        alone = run_round(*arguments, others, SPEC, **common)
        assert torch.equal(kept.weights, alone.weights)
        filled = run_round(*arguments, who, SPEC, on_bad_update="skip", **common)
        assert not torch.equal(kept.weights, filled.weights)

    def test_the_same_secret_gives_the_same_noise_for_the_same_task_only(self):
        federation, model = clients()
        one = federation.replies([train(0, model[None], noise=1.0)])["0, 0"].values
        same = federation.replies([train(1, model[None]), train(0, model[None], noise=1.0)])["0, 0"].values
        assert np.array_equal(one, same)
        elsewhere = clients(noise=type(NOISE)(bytes(32)))[0]
        for other in (
            elsewhere.replies([train(0, model[None], noise=1.0)]),
            federation.replies([train(0, model[None] + np.float32(1e-3), noise=1.0)]),
            federation.with_noise(elsewhere.noise).replies([train(0, model[None], noise=1.0)]),
        ):
            assert np.abs(other["0, 0"].values - one).max() > 1e-3

    @pytest.mark.parametrize(
        ("asked", "message"),
        [
            (lambda m: [train(0, m), train(7, m)], "clients must be in the federation, got '7'"),
            (
                lambda m: [train(0, m), train(1, m, spec=LocalTraining(4, 0.2, clip=1.0))],
                "tasks must be of one kind of work, got 1, 0",
            ),
            (lambda m: [train(0, np.vstack([m, m]))], "models must be one for local training, got 2"),
            (lambda m: [train(0, m[:, 1:])], "shape of the start models must be"),
            (
                lambda m: [train(0, m), Task("x", "1", m, Gradients(Objective(0.1)))],
                "tasks must be of one kind of work, got x",
            ),
        ],
    )
    def test_what_nobody_can_be_asked(self, asked, message):
        federation, model = clients()
        for ask in (federation.replies, lambda found: federation.total(found, np.ones(len(found)))):
            with pytest.raises(InvalidValue, match=f"^{message}"):
                ask(asked(model[None]))
