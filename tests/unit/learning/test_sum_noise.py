"""Noise once on the sum: how much, for whom, and what a record can move (theory P8)."""

import math

import numpy as np
import pytest
import torch

from bonafed.errors import InvalidValue, MissingValue
from bonafed.learning.data import datasets
from bonafed.learning.engine.jobs import Job, Samples, batches, job_rng, passes
from bonafed.learning.engine.programs import CLIP_MARGIN, CLIPPED_PIECE, program_for
from bonafed.learning.engine.training import run_jobs
from bonafed.learning.federation import Roster, Task, Train
from bonafed.learning.function_federation import FunctionFederation
from bonafed.learning.local import EngineFederation
from bonafed.learning.privacy import Ledger, noise_multiplier, sd_of_share, variance_inflation
from bonafed.learning.rounds import Participation, training_tasks
from bonafed.learning.sum_noise import reaches, require_one_step, round_noise, rounding, squared_turns
from bonafed.learning.work import LocalTraining, sensitivity
from bonafed.mechanisms.promises import Promise, sum_multipliers
from bonafed.runs import config, prepare

SPEC = LocalTraining(10, 0.5, epochs=None, steps=1, clip=2.0)
SIZES = np.array([10, 5, 40])
ZERO = np.zeros(4)
RNG = np.random.default_rng(0)


def of(*clients, weights=None):
    who = np.array(clients)
    return Participation(who, np.full(who.size, 1 / who.size) if weights is None else np.array(weights))


def test_the_noise_is_that_of_the_client_that_needs_most():
    """By hand: w sigma rate 2C/d, with d the batch or all records of a client."""
    sigma = np.array([3.0, 4.0, 5.0])
    noise = round_noise(of(0, 1, 2, weights=[0.2, 0.3, 0.5]), sigma, SIZES, SPEC, ZERO, 7)
    needs = [0.2 * 3 * 0.5 * 4 / 10, 0.3 * 4 * 0.5 * 4 / 5, 0.5 * 5 * 0.5 * 4 / 10]
    assert noise.sd == pytest.approx(max(needs), rel=1e-9)
    actual = [release.multiplier for release in noise.releases]
    assert actual == pytest.approx([s * max(needs) / need for s, need in zip(sigma, needs, strict=True)])
    assert all(found >= asked * (1 - 1e-12) for found, asked in zip(actual, sigma, strict=True))
    assert [(r.client, r.round_number, r.times, r.steps) for r in noise.releases] == [
        (0, 7, 1, 1), (1, 7, 1, 1), (2, 7, 1, 1),
    ]  # fmt: skip


def test_a_client_drawn_twice_moves_the_sum_twice_as_far_and_is_charged_four_times():
    sigma = np.array([3.0, 3.0, 3.0])
    once, twice = (round_noise(who, sigma, SIZES, SPEC, ZERO, 1) for who in (of(0, 2), of(0, 0, 2, 2)))
    assert twice.sd == pytest.approx(once.sd / 2)  # half the weight each, and calibrated for the square
    assert twice.releases[0].multiplier == pytest.approx(1.5)
    assert twice.releases[0].steps == 2
    assert once.releases[0].multiplier == pytest.approx(3.0)
    assert squared_turns([of(0, 0, 2), of(0), of(1, 1, 1)], 3).tolist() == [5, 9, 1]


@pytest.mark.parametrize("noise", ["secret", "reproducible"])
def test_the_ledger_reads_back_at_most_what_was_promised(noise):
    """Over random rounds with replacement: nobody more than its epsilon, somebody much of it."""
    for _ in range(20):
        rounds = [of(*RNG.integers(0, 3, RNG.integers(1, 7))) for _ in range(12)]
        promise = Promise(RNG.uniform(0.2, 5, 3), 1e-5, 2.0, noise=noise, noise_at="sum")
        sigma = sum_multipliers(promise, rounds, SIZES, SPEC, 4)
        ledger = Ledger()
        for number, who in enumerate(rounds, 1):
            model = RNG.normal(size=4).astype(np.float32)
            ledger = ledger.add(round_noise(who, sigma, SIZES, SPEC, model, number).releases)
        spent = np.array([ledger.epsilon(client, 1e-5) for client in range(3)])
        assert np.all(spent <= promise.epsilon * (1 + 1e-12))
        assert (spent / promise.epsilon).max() > 0.5


def test_one_round_of_equal_clients_leaves_nobody_any_slack():
    promise = Promise(np.full(3, 1.0), 1e-5, 2.0, noise="reproducible", noise_at="sum")
    rounds = [of(0, 1, 2)] * 9
    sigma = sum_multipliers(promise, rounds, np.full(3, 10), SPEC, 4)
    assert sigma == pytest.approx([noise_multiplier(1.0, 1e-5, 9)] * 3)
    noise = round_noise(rounds[0], sigma, np.full(3, 10), SPEC, ZERO, 1)
    at_clients = math.sqrt(3) / 3 * sigma[0] * SPEC.learning_rate * sensitivity(10, SPEC)
    assert at_clients / noise.sd == pytest.approx(
        math.sqrt(3)
    )  # sqrt(N) more, if every client added its own


def test_what_a_secret_sets_aside_is_for_how_far_the_sum_can_reach():
    sigma, rounds = np.array([3.0, 4.0, 5.0]), [of(0, 1), of(2)]
    found = reaches(rounds, sigma, SIZES, SPEC)
    for who, here in zip(rounds, ((0, 1), (2,)), strict=True):
        sd = round_noise(who, sigma, SIZES, SPEC, ZERO, 1).sd
        longest = float(who.weights.sum()) * SPEC.learning_rate * SPEC.clip  # all gradients alike
        assert all(longest / sd <= found[client] * (1 + 1e-12) for client in here)
        assert longest / sd == pytest.approx(found[here[0]], rel=1e-6)
    secret, seeded = (
        sum_multipliers(Promise(np.ones(3), 1e-5, 2.0, noise=kind, noise_at="sum"), rounds, SIZES, SPEC, 4)
        for kind in ("secret", "reproducible")
    )
    assert np.all(secret > seeded)
    assert np.all(secret < seeded * 1.01)


@pytest.mark.parametrize("scale", [0.0, 1.0, 1e3])
def test_rounding_in_single_precision_stays_within_what_is_added_to_the_sensitivity(scale):
    """Changes of float32 weights of this size, against the same step in exact arithmetic."""
    rng = np.random.default_rng(1)
    samples = Samples(torch.rand(30, 6), torch.arange(30) % 3)
    program = program_for(torch.nn.Sequential(torch.nn.Linear(6, 3)))
    start = torch.from_numpy(scale * rng.normal(size=program.size)).float()
    spec = LocalTraining(30, 0.3, epochs=None, steps=1, clip=0.5)
    (update,) = run_jobs(program, start, samples, [Job(0, np.arange(30))], spec, seed=0, round_number=1)
    _, gradient = program.gradients(
        start[None], samples.features[None], samples.labels[None], torch.full((1, 30), 1 / 30), 0.5
    )
    off = update.change.double() + 0.3 * gradient[0].double()
    allowed = rounding(start.numpy(), spec) / 2
    assert float(off.norm()) <= allowed
    if scale:
        assert float(off.norm()) > allowed / 100  # it is not a bound on nothing


@pytest.mark.parametrize("scale", [1.0, 1e3])
@pytest.mark.parametrize("size", [30, 150])
def test_the_gradient_of_a_clipped_step_is_made_by_itself_before_it_moves_the_weights(size, scale):
    """Decision 0010: u |r g| + u |w - r g| + u |change| per number. A gradient that is accumulated into the
    weights, sample by sample or piece by piece, is rounded to theirs more often than that."""
    rng, unit = np.random.default_rng(1), 2.0**-24
    samples = Samples(torch.rand(size, 6), torch.arange(size) % 3)
    program = program_for(torch.nn.Sequential(torch.nn.Linear(6, 3)))
    start = torch.from_numpy(scale * rng.normal(size=program.size)).float()
    spec = LocalTraining(size, 0.3, epochs=None, steps=1, clip=0.5)
    job = Job(0, np.arange(size))
    (update,) = run_jobs(program, start, samples, [job], spec, seed=0, round_number=1)
    order = batches(job, spec, job_rng(0, 1, job))[0]
    sums = [  # in double precision, of pieces in single
        program.gradients(
            start[None], samples.features[part][None], samples.labels[part][None],
            torch.full((1, len(part)), 1 / size), 0.5,
        )[1][0].double()
        for part in np.split(order, range(CLIPPED_PIECE, size, CLIPPED_PIECE))
    ]  # fmt: skip
    step = 0.3 * sum(sums).float().double()
    change, before = update.change.double(), start.double()
    allowed = unit * (step.abs() + (before - step).abs() + change.abs())
    assert bool(((change + step).abs() <= allowed * (1 + 1e-6)).all())


def test_other_optimizers_and_more_steps_are_refused():
    names = ("a", "b", "c")
    require_one_step(SPEC, names, SIZES)
    for size in (10, 5):
        require_one_step(LocalTraining(10, 0.5, clip=1.0), ("a",), np.array([size]))
    with pytest.raises(InvalidValue, match=r"^training\.steps must be 1 .* got 2$"):
        require_one_step(LocalTraining(10, 0.5, epochs=None, steps=2, clip=1.0), names, SIZES)
    with pytest.raises(InvalidValue) as caught:  # nobody has set steps
        require_one_step(LocalTraining(10, 0.5, clip=1.0), names, SIZES)
    assert str(caught.value) == (
        'training.batch_size must hold all records with noise_at = "sum", for every client: later steps '
        "would look at records again; set training.batch_size = 40, or training.steps = 1, got 10 for "
        "40 of client c"
    )
    with pytest.raises(InvalidValue, match=r"^training\.epochs must be 1 with .*steps = 1, got 2$"):
        require_one_step(LocalTraining(40, 0.5, epochs=2, clip=1.0), names, SIZES)
    with pytest.raises(InvalidValue, match=r"^training\.optimizer must be"):
        require_one_step(LocalTraining(10, 0.5, clip=1.0, optimizer="adam"), names, SIZES)


def a_federation(kind):
    members = Roster(("0",), np.array([3]))
    if kind == "function":
        return FunctionFederation(members, lambda tasks: pytest.fail("nobody may be asked"))
    program = program_for(torch.nn.Sequential(torch.nn.Linear(2, 2)))
    return EngineFederation(
        members, program, Samples(torch.rand(3, 2), torch.zeros(3).long()), [np.arange(3)]
    )


@pytest.mark.parametrize(
    ("kind", "work", "error"),
    [
        (
            "function",
            Train(SPEC, 1, 0),
            r"^noise must be 0: noise is added on the clients' side, .* got 0.5",
        ),
        (
            "engine",
            Train(SPEC, 1, 0, 0, 2.0),
            r"^noise_multiplier must be 0 where the sum has noise, got 2.0",
        ),
        ("engine", Train(LocalTraining(3, 0.5), 1, 0), r"^clip is required where noise is added"),
    ],
)
def test_federations_refuse_what_they_cannot_hide(kind, work, error):
    task = Task("round 1", "0", np.zeros((1, 6), dtype=np.float32), work)
    with pytest.raises((InvalidValue, MissingValue), match=error):
        a_federation(kind).total([task], np.ones(1), 0.5)


class TestShares:
    @pytest.mark.parametrize(("n", "d", "c"), [(1, 0, 0), (5, 0, 0), (10, 3, 0), (10, 0, 4), (10, 3, 6)])
    def test_whoever_drops_out_or_tells_the_noise_that_is_left_is_enough(self, n, d, c):
        share = sd_of_share(2.5, n, dropouts=d, colluders=c)
        worst = (n - d - c) * share**2
        assert worst == pytest.approx(2.5**2)
        assert n * share**2 / 2.5**2 == pytest.approx(variance_inflation(n, dropouts=d, colluders=c))

    def test_by_simulation(self):
        rng, n, d, c = np.random.default_rng(0), 12, 3, 4
        each = sd_of_share(1.0, n, dropouts=d, colluders=c) * rng.standard_normal((200_000, n))
        unknown = each[:, d + c :].sum(1)  # d never arrive, c are subtracted
        assert unknown.std() == pytest.approx(1.0, rel=0.01)
        assert each.sum(1).var() == pytest.approx(12 / 5, rel=0.02)

    @pytest.mark.parametrize(("n", "d", "c"), [(3, 3, 0), (3, 1, 2), (2, 0, 5)])
    def test_nobody_left_is_refused(self, n, d, c):
        with pytest.raises(InvalidValue, match=rf"^dropouts must leave one of {n} clients"):
            sd_of_share(1.0, n, dropouts=d, colluders=c)


@pytest.mark.parametrize(("records", "features", "power"), [(8192, 30, -2), (20000, 1, -1), (64, 1, -1)])
def test_rounding_does_not_let_a_record_move_the_sum_further_than_is_stated(records, features, power):
    """The order of records is public. Large ones first bring the sum to just below a power of two; the next
    decides on which side it is when many small ones are added: each rounds up there, or to nothing.
    """
    data = datasets.from_arrays("x", np.zeros((records, features), np.float32), np.arange(records) % 2)
    tables = {
        "data": {"name": "x", "classes": 2}, "model": {"name": "softmax"},
        "partition": {"kind": "iid", "clients": 1},
        "training": {"rounds": 1, "learning_rate": 1.0, "steps": 1, "batch_size": records},
        "privacy": {"clip": 1.0, "epsilon": 2.0, "delta": 1e-5, "noise_at": "sum"},
    }  # fmt: skip
    made = prepare.prepare(config.from_tables(tables), dataset=data)
    spec = made.mechanism.local_training(1, made.agreement)
    model, who = np.zeros(made.program.size, np.float32), Participation(np.array([0]), np.ones(1))
    tasks = training_tasks(("0",), model, who, spec, round_number=1, seed=0, noise_multipliers=None)
    job = Job(0, made.clients.parts[0], 0, 0.0)
    order = passes(job, spec, job_rng(0, 1, job))[0]
    first = round(2.0**power * records * 2**0.5 / (1 - CLIP_MARGIN[torch.float32]))
    values = np.full(records, 2 * 0.51 * 2.0 ** (power - 23) * records, np.float32)
    values[:first] = 1e4
    sums = []
    for values[first] in (1e4, -1e4):  # neighbours
        made.clients.samples.features[order, 0] = torch.from_numpy(values)
        made.clients.samples.labels[:] = 0
        sums.append(made.clients.total(tasks, np.ones(1)).values[0].copy())
    stated = round_noise(who, np.array([1.0]), np.array([records]), spec, model, 1).sd
    assert 0.9 * stated < np.linalg.norm(sums[0] - sums[1]) <= stated
