"""The engine against its readable twin, and its independence of grouping and order."""

import itertools

import numpy as np
import pytest
import torch
from tests.oracles.twins import assert_same, both, image_samples, make, split
from torch import nn

from bonafed.errors import InvalidValue
from bonafed.learning import engine, models
from bonafed.learning.engine import run_jobs
from bonafed.learning.federation import (
    Participation,
    evaluate,
    make_jobs,
    run_round,
    unbiased,
    weighted_mean,
)
from bonafed.learning.jobs import BadUpdate, Job, LocalTraining, Samples, batches, job_rng
from bonafed.learning.programs import (
    MOST_SAMPLES,
    LayerProgram,
    VmapProgram,
    flat_parameters,
    load_parameters,
    program_for,
)

SIZES = (7, 12, 3, 20, 12, 1)


@pytest.mark.parametrize("clip", [None, 0.5])
@pytest.mark.parametrize(
    "spec",
    [
        {"optimizer": "sgd"},
        {"optimizer": "sgd", "weight_decay": 0.1},
        {"optimizer": "momentum", "momentum": 0.8},
        {"epochs": None, "steps": 4},
        {"epochs": 3},
    ],
    ids=lambda s: "-".join(f"{k}={v}" for k, v in s.items()),
)
@pytest.mark.parametrize(("name", "atol"), [("softmax", 1e-6), ("small-cnn", 1e-5)])
def test_every_option_gives_the_weights_of_the_twin(name, atol, spec, clip):
    module = make(name)
    samples = image_samples(sum(SIZES))
    jobs = make_jobs(split(SIZES), np.arange(len(SIZES)))
    training = LocalTraining(**{"batch_size": 5, "learning_rate": 0.1, "clip": clip, **spec})
    assert_same(*both(module, samples, jobs, training), atol)


@pytest.mark.parametrize("clip", [None, 0.5])
@pytest.mark.parametrize("name", ["softmax", "small-cnn"])
def test_adam_gives_the_weights_of_the_twin_in_double_precision(name, clip):
    # Adam's step is a sign where a gradient is tiny, so that single precision decides it by rounding.
    module, single = make(name).double(), image_samples(sum(SIZES))
    samples = Samples(single.features.double(), single.labels)
    jobs = make_jobs(split(SIZES), np.arange(len(SIZES)))
    training = LocalTraining(5, 0.003, optimizer="adam", clip=clip, weight_decay=0.01)
    assert_same(*both(module, samples, jobs, training), 1e-8)


@pytest.mark.parametrize("clip", [None, 0.5])
@pytest.mark.parametrize(("name", "side"), [("mnist-cnn", 12), ("cifar-cnn", 8)])
def test_every_image_model_gives_the_weights_of_the_twin(name, side, clip):
    module = make(name, side)
    samples = image_samples(7, side, channels=1 if name == "mnist-cnn" else 3)
    jobs = make_jobs(split((4, 3)), np.arange(2))
    training = LocalTraining(3, 0.05, clip=clip)
    assert_same(*both(module, samples, jobs, training), 1e-5)


def test_resnet18_gives_the_weights_of_the_twin():
    module, samples = make("resnet18", 8), image_samples(3, 8, channels=3)
    jobs = make_jobs(split((2, 1)), np.arange(2))
    assert_same(*both(module, samples, jobs, LocalTraining(2, 0.01)), 1e-5)


def test_a_small_residual_net_with_group_norm_is_clipped_as_the_twin_does():
    torch.manual_seed(0)
    module = nn.Sequential(
        models._Block(3, 8, 2, 4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)
    )
    jobs = make_jobs(split((4, 3)), np.arange(2))
    assert_same(*both(module, image_samples(7, 8, channels=3), jobs, LocalTraining(3, 0.1, clip=0.5)), 1e-5)


@pytest.mark.parametrize("clip", [None, 0.5])
def test_the_text_model_gives_the_weights_of_the_twin(clip):
    module = models.build("text-lstm", (6,), 5, seed=1, vocabulary=30)
    g = torch.Generator().manual_seed(0)
    samples = Samples(torch.randint(0, 30, (7, 6), generator=g), torch.randint(0, 5, (7,), generator=g))
    jobs = make_jobs(split((4, 3)), np.arange(2))
    assert_same(*both(module, samples, jobs, LocalTraining(3, 0.1, clip=clip)), 1e-5)


def test_any_module_and_any_arrays_work_the_same_way():
    class Mine(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(6, 5), nn.Linear(5, 1)

        def forward(self, x):
            return self.b(torch.sigmoid(self.a(x))) + x[:, :1]

    torch.manual_seed(0)
    module = Mine()
    samples = Samples(torch.randn(20, 6), torch.randn(20))
    jobs = make_jobs(split((9, 11)), np.arange(2))
    assert isinstance(program_for(module, "squared"), VmapProgram)
    assert_same(*both(module, samples, jobs, LocalTraining(4, 0.1), loss="squared"), 1e-5)
    ridge = nn.Sequential(nn.Linear(6, 1))
    assert isinstance(program_for(ridge, "squared"), LayerProgram)
    for clip in (None, 0.3):
        assert_same(*both(ridge, samples, jobs, LocalTraining(4, 0.05, clip=clip), loss="squared"), 1e-6)


def test_noise_is_the_same_as_the_twins_and_every_noisy_step_is_a_release():
    module, samples = make("softmax"), image_samples(sum(SIZES))
    jobs = make_jobs(split(SIZES), np.arange(len(SIZES)), np.linspace(0, 2, len(SIZES)))
    fast, slow = both(module, samples, jobs, LocalTraining(5, 0.1, clip=0.5))
    assert_same(fast, slow, 1e-6)
    assert [u.releases for u in fast] == [0, *(u.steps for u in fast[1:])]


def test_noise_has_the_stated_size():
    module, samples = make("softmax"), image_samples(40)
    spec = LocalTraining(40, 1.0, clip=0.5)
    job = Job(0, np.arange(40), noise_multiplier=3.0)
    quiet = Job(0, np.arange(40))
    start, program = flat_parameters(module), program_for(module)
    ((noisy,), (clean,)) = (
        list(run_jobs(program, start, samples, [j], spec, seed=0, round_number=0)) for j in (job, quiet)
    )
    sd = float((noisy.change - clean.change).std())
    assert sd == pytest.approx(3.0 * 2 * 0.5 / 40, rel=0.1)  # multiplier times sensitivity 2C/n


@pytest.mark.parametrize("name", ["softmax", "small-cnn"])
def test_results_do_not_depend_on_grouping_or_order(name):
    module, samples = make(name), image_samples(sum(SIZES))
    parts, start, program = split(SIZES), flat_parameters(make(name)), program_for(module)
    spec = LocalTraining(5, 0.1)
    everyone = weighted_mean(np.arange(len(SIZES)), SIZES)

    def end(participation):
        return run_round(program, start, samples, parts, participation, spec, seed=1, round_number=0)

    one = end(everyone).weights
    shuffled = np.random.default_rng(0).permutation(len(SIZES))
    assert torch.equal(end(Participation(shuffled, everyone.weights[shuffled])).weights, one)
    jobs = make_jobs(parts, np.arange(len(SIZES)))
    for size in (1, 10 * program.size * 4):  # one by one, and three at a time
        grouped = run_jobs(program, start, samples, jobs, spec, seed=1, round_number=0, group_bytes=size)
        reference = run_jobs(program, start, samples, jobs, spec, seed=1, round_number=0)
        for a, b in zip(grouped, reference, strict=True):
            assert float((a.change - b.change).abs().max()) <= 1e-7


@pytest.mark.parametrize("clients", [1, 3])
def test_a_batch_of_more_than_a_call_holds_is_a_group_of_its_own(clients):
    """One client per group, and an odd number of them."""
    size = MOST_SAMPLES + 8
    samples, spec = image_samples(clients * size, side=4), LocalTraining(size, 0.1)
    jobs = make_jobs(split([size] * clients), np.arange(clients))
    assert_same(*both(make("softmax", side=4), samples, jobs, spec), 1e-6)


def test_groups_are_about_equal_and_an_even_number_where_there_is_a_choice():
    for jobs, most in itertools.product(range(1, 30), range(1, 12)):
        groups = engine._in_groups(list(range(jobs)), most)
        assert list(itertools.chain(*groups)) == list(range(jobs))
        sizes = [len(group) for group in groups]
        assert 1 <= min(sizes) <= max(sizes) <= min(most, min(sizes) + 1)
        assert len(groups) % 2 == 0 or len(groups) in (1, jobs)


def test_few_clients_are_two_groups_where_the_work_is_worth_it():
    def groups(name, clients):
        program, samples = program_for(make(name, side=28)), image_samples(10 * clients, side=28)
        jobs = make_jobs(split([10] * clients), np.arange(clients))
        plan = engine._plan(program, samples, jobs, LocalTraining(10, 0.1), 0, 0, engine.GROUP_BYTES)
        return [len(group) for group in plan.groups]

    assert groups("small-cnn", 10) == [5, 5]
    assert groups("softmax", 10) == [10]
    assert groups("small-cnn", 1) == [1]


def test_one_model_per_client():
    module, samples = make("softmax"), image_samples(sum(SIZES))
    jobs = make_jobs(split(SIZES), np.arange(len(SIZES)))
    starts = torch.randn(
        len(SIZES), flat_parameters(module).numel(), generator=torch.Generator().manual_seed(0)
    )
    assert_same(*both(module, samples, jobs, LocalTraining(5, 0.1), start=starts), 1e-5)


def test_a_client_drawn_twice_makes_two_independent_runs():
    module, samples = make("softmax"), image_samples(30)
    jobs = make_jobs([np.arange(30)], np.array([0, 0]))
    start = flat_parameters(module)
    a, b = run_jobs(
        program_for(module), start, samples, jobs, LocalTraining(5, 0.1), seed=0, round_number=0
    )
    assert not torch.equal(a.change, b.change)


def test_batches_cover_the_data_once_per_epoch_and_go_round_for_steps():
    job = Job(3, np.arange(100, 111))
    rng = job_rng(0, 0, job)
    drawn = batches(job, LocalTraining(4, 0.1, epochs=2), rng)
    assert [b.size for b in drawn] == [4, 4, 3, 4, 4, 3]
    for epoch in (drawn[:3], drawn[3:]):
        assert sorted(np.concatenate(epoch)) == list(range(100, 111))
    assert len(batches(job, LocalTraining(4, 0.1, epochs=None, steps=7), job_rng(0, 0, job))) == 7


def test_unbiased_aggregation_has_the_mean_change_as_expectation():
    q = np.array([0.2, 0.5, 1.0, 0.8])
    total = np.zeros(4)
    rng = np.random.default_rng(0)
    draws = 20_000
    for _ in range(draws):
        drawn = unbiased(rng, q)
        total[drawn.clients] += drawn.weights
    error = np.sqrt((1 / q - 1) / 16 / draws)
    assert np.all(np.abs(total / draws - 0.25) <= 4.5 * error + 1e-12)


def test_a_bad_update_is_named_or_skipped():
    module, samples = make("softmax"), image_samples(20)
    samples.features[3] = float("nan")
    parts, start, program = split((10, 10)), flat_parameters(module), program_for(module)
    arguments = (program, start, samples, parts, weighted_mean([0, 1], [10, 10]), LocalTraining(5, 0.1))
    with pytest.raises(BadUpdate, match="client 0 in round 7"):
        run_round(*arguments, seed=0, round_number=7)
    kept = run_round(*arguments, seed=0, round_number=7, on_bad_update="skip")
    assert kept.skipped == (0,)
    alone = run_round(*arguments[:4], weighted_mean([1], [10, 10]), arguments[5], seed=0, round_number=7)
    assert torch.equal(kept.weights, alone.weights)  # the mean of those that are left
    assert (kept.loss, kept.steps) == (alone.loss, 2 * alone.steps)
    only = (*arguments[:4], weighted_mean([0], [10, 10]), arguments[5])
    nobody = run_round(*only, seed=0, round_number=7, on_bad_update="skip")
    assert torch.equal(nobody.weights, start)
    assert np.isnan(nobody.loss)
    assert nobody.skipped == (0,)


def test_start_models_of_another_shape_are_refused():
    samples, jobs = image_samples(20), make_jobs(split((10, 10)), np.arange(2))
    program = program_for(make("softmax"))
    for shape in ((program.size - 1,), (3, program.size), (2, program.size + 1)):
        with pytest.raises(
            InvalidValue, match=rf"^shape of the start models must be .*, got \({shape[0]},"
        ):
            list(run_jobs(program, torch.zeros(shape), samples, jobs, LocalTraining(5, 0.1), seed=0,
                          round_number=0))  # fmt: skip


def test_bad_requests_are_refused():
    module, samples = make("softmax"), image_samples(20)
    start, program = flat_parameters(module), program_for(module)
    with pytest.raises(InvalidValue, match="client 4 in round 0 must have samples, got 0"):
        list(
            run_jobs(
                program,
                start,
                samples,
                [Job(4, np.arange(0))],
                LocalTraining(5, 0.1),
                seed=0,
                round_number=0,
            )
        )
    wrong = Samples(samples.features, samples.labels.clone())
    wrong.labels[7] = 12
    parts, everyone = split((5, 15)), weighted_mean([0, 1], [5, 15])
    with pytest.raises(InvalidValue, match=r"label of client 1 in round 3 must be in 0\.\.3, got 12"):
        run_round(program, start, wrong, parts, everyone, LocalTraining(5, 0.1), seed=0, round_number=3)
    only_good = weighted_mean([0], [5, 15])  # what nobody uses is nobody's error
    run_round(program, start, wrong, parts, only_good, LocalTraining(5, 0.1), seed=0, round_number=3)
    noisy = Job(0, np.arange(5), noise_multiplier=1.0)
    with pytest.raises(InvalidValue, match="clip must be given where noise is added"):
        list(run_jobs(program, start, samples, [noisy], LocalTraining(5, 0.1), seed=0, round_number=0))
    with pytest.raises(InvalidValue, match="no buffers"):
        program_for(nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2)))
    for bad in (
        {"batch_size": 0},
        {"learning_rate": -1},
        {"steps": 3},
        {"clip": 0.0},
        {"optimizer": "lbfgs"},
    ):
        with pytest.raises(InvalidValue):
            LocalTraining(**{"batch_size": 5, "learning_rate": 0.1, **bad})


def test_evaluation_and_parameters_round_trip():
    module, samples = make("small-cnn"), image_samples(50)
    flat = flat_parameters(module)
    loss, accuracy = evaluate(program_for(module), flat, samples)
    z = module(samples.features).detach()
    assert loss == pytest.approx(float(nn.functional.cross_entropy(z, samples.labels)), abs=1e-5)
    assert accuracy == pytest.approx(float((z.argmax(1) == samples.labels).float().mean()))
    assert torch.equal(flat_parameters(load_parameters(module, flat * 2)), flat * 2)
    assert torch.equal(flat_parameters(make("small-cnn")), flat)  # weights come from the seed alone
