"""Rounds of the engine: grouping and order, sums, what cannot be used. Its weights: `test_twin.py`."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles.rounds import make_jobs, run_round
from tests.oracles.twins import NOISE, assert_near, assert_same, both, doubled, image_samples, make, split
from torch import nn

from bonafed.errors import BadModel, BadUpdate, InvalidValue
from bonafed.learning.engine import groups, programs, stacks, training
from bonafed.learning.engine.jobs import Job, Samples, batches, job_rng
from bonafed.learning.engine.programs import (
    MOST_SAMPLES,
    ModuleProgram,
    flat_parameters,
    load_parameters,
    program_for,
)
from bonafed.learning.engine.sequential import run_jobs_sequentially
from bonafed.learning.engine.training import run_jobs
from bonafed.learning.evaluate import evaluate
from bonafed.learning.rounds import Participation, unbiased, weighted_mean
from bonafed.learning.work import LocalTraining

SIZES = (7, 12, 3, 20, 12, 1)


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


def as_vmap(module):
    return ModuleProgram(module, "cross-entropy")


@pytest.mark.parametrize(
    ("clip", "noise"), [(None, 0.0), (0.5, 0.0), (0.5, 1.0)], ids=["plain", "clipped", "noisy"]
)
@pytest.mark.parametrize("optimizer", ["sgd", "momentum"])
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize(
    ("name", "kind"), [("softmax", program_for), ("small-cnn", program_for), ("small-cnn", as_vmap)]
)
def test_results_do_not_depend_on_how_much_is_computed_at_once(
    name, kind, size, optimizer, clip, noise, monkeypatch
):
    """To rounding: another size of a product may use another kernel."""
    module, samples, parts = make(name), image_samples(sum(SIZES)), split(SIZES)
    start, program = flat_parameters(module), kind(module)
    jobs = make_jobs(parts, np.arange(len(SIZES)), np.full(len(SIZES), noise))
    spec = LocalTraining(5, 0.1, clip=clip, optimizer=optimizer)

    def end(**options):
        common = {"seed": 1, "round_number": 0, "noise": NOISE}
        return list(run_jobs(program, start, samples, jobs, spec, **common, **options))

    reference = end()
    by_memory = end(group_bytes=5 * size * program.size * 4)
    numbers = program.numbers_kept(samples.features[0], clip is not None)
    monkeypatch.setattr(programs, "CALL_NUMBERS", 6 * size * numbers)
    for found in (by_memory, end()):
        for a, b in zip(found, reference, strict=True):
            assert_near(a.change, b.change, 1e-6, moved=noise * 0.1 * 3 / 16)  # of rate, steps, unit


@pytest.mark.parametrize("ahead", [1, 2, 3])
@pytest.mark.parametrize(
    "length", [{"epochs": 1}, {"epochs": 3}, {"epochs": None, "steps": 11}], ids=["pass", "passes", "steps"]
)
@pytest.mark.parametrize("noise", [0.0, 1.0], ids=["plain", "noisy"])
def test_results_do_not_depend_on_how_many_steps_are_put_together_ahead(noise, length, ahead, monkeypatch):
    jobs = make_jobs(split(SIZES), np.arange(len(SIZES)), np.full(len(SIZES), noise))
    spec = LocalTraining(5, 0.1, clip=0.5, **length)
    case = make("softmax"), image_samples(sum(SIZES)), jobs, spec
    reference, _ = both(*case)
    monkeypatch.setattr(groups, "STEPS_AHEAD", ahead)
    found, twin = both(*case)
    for a, b in zip(found, reference, strict=True):
        assert torch.equal(a.change, b.change)
        assert (a.loss, a.steps) == (b.loss, b.steps)
    assert_same(found, twin, 1e-6, moved=noise * 0.1 / 16)


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
    # groups of other sizes are products of other sizes, which a processor may round differently
    samples, start = doubled(samples), start.double()
    program = program_for(make(name).double())
    for size in (1, 10 * program.size * 4):  # one by one, and three at a time
        grouped = run_jobs(program, start, samples, jobs, spec, seed=1, round_number=0, group_bytes=size)
        reference = run_jobs(program, start, samples, jobs, spec, seed=1, round_number=0)
        for a, b in zip(grouped, reference, strict=True):
            assert float((a.change - b.change).abs().max()) <= 1e-12


def test_nothing_of_a_round_waits_for_other_threads(monkeypatch):
    module, samples, parts = make("softmax"), image_samples(sum(SIZES)), split(SIZES)
    start, program, seen = flat_parameters(module), program_for(module), []
    forward = stacks.LayerProgram._forward

    def watched(*given):
        seen.append(torch.get_num_threads())
        return forward(*given)

    monkeypatch.setattr(stacks.LayerProgram, "_forward", watched)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        everyone, spec = weighted_mean(np.arange(len(SIZES)), SIZES), LocalTraining(5, 0.1)
        run_round(program, start, samples, parts, everyone, spec, seed=0, round_number=0)
        evaluate(program, start, samples)
        assert len(seen) > 4
        assert set(seen) == {1}
        assert torch.get_num_threads() == 2  # theirs again
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("clients", [1, 3])
def test_a_batch_of_more_than_a_call_holds_is_a_group_of_its_own(clients):
    """One client per group, and an odd number of them."""
    size = MOST_SAMPLES + 8
    samples, spec = image_samples(clients * size, side=4), LocalTraining(size, 0.1)
    jobs = make_jobs(split([size] * clients), np.arange(clients))
    assert_same(*both(make("softmax", side=4), samples, jobs, spec), 1e-6)


def test_groups_are_about_equal_and_an_even_number_where_there_is_a_choice():
    for jobs, most in itertools.product(range(1, 30), range(1, 12)):
        groups = training._in_groups(list(range(jobs)), most)
        assert list(itertools.chain(*groups)) == list(range(jobs))
        sizes = [len(group) for group in groups]
        assert 1 <= min(sizes) <= max(sizes) <= min(most, min(sizes) + 1)
        assert len(groups) % 2 == 0 or len(groups) in (1, jobs)


def test_few_clients_are_two_groups_where_the_work_is_worth_it():
    def groups(name, clients):
        program, samples = program_for(make(name, side=28)), image_samples(10 * clients, side=28)
        jobs = make_jobs(split([10] * clients), np.arange(clients))
        plan = training._plan(program, samples, jobs, LocalTraining(10, 0.1), 0, 0, training.GROUP_BYTES)
        return [len(group) for group in plan.groups]

    assert groups("small-cnn", 10) == [5, 5]
    assert groups("softmax", 10) == [10]
    assert groups("small-cnn", 1) == [1]


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


@pytest.mark.parametrize("drawn", ["mean", "unbiased", "twice"])
def test_the_model_after_a_round_is_the_model_before_plus_weights_times_changes(drawn):
    module, samples, parts = make("softmax"), image_samples(sum(SIZES)), split(SIZES)
    who = {
        "mean": weighted_mean([4, 0, 3], SIZES),
        "unbiased": unbiased(np.random.default_rng(2), [0.9, 0.3, 0.8, 0.5, 1.0, 0.7]),
        "twice": Participation(np.array([3, 1, 3]), np.array([0.5, 1.5, -0.25])),
    }[drawn]
    start, spec = flat_parameters(module), LocalTraining(5, 0.1)
    after = run_round(program_for(module), start, samples, parts, who, spec, seed=5, round_number=2)
    expected, seen = start.double().clone(), dict.fromkeys(range(len(SIZES)), 0)
    for client, weight in zip(who.clients.tolist(), who.weights.tolist(), strict=True):
        job = Job(client, parts[client], seen[client])
        seen[client] += 1
        (update,) = run_jobs_sequentially(module, start, samples, [job], spec, seed=5, round_number=2)
        expected += weight * update.change
    assert float((after.weights - expected).abs().max()) <= 1e-6
    assert float((after.weights - start).abs().max()) > 1e-3


def test_a_model_that_is_not_finite_is_not_returned():
    module, samples = make("softmax"), image_samples(20)
    heavy = Participation(np.array([0]), np.array([1e6]))
    spec = LocalTraining(20, 1e36)
    with pytest.raises(BadModel, match=r"^model after round 7 must be finite"):
        run_round(
            program_for(module), flat_parameters(module), samples, split((20,)), heavy, spec,
            seed=0, round_number=7, on_bad_update="skip",
        )  # fmt: skip


def test_clients_without_samples_or_with_unknown_classes_are_skipped_too():
    module, samples = make("softmax").double(), doubled(image_samples(30))
    samples.labels[12] = 9
    parts = [*split((10, 10, 10)), np.arange(0)]
    start, program, spec = flat_parameters(module), program_for(module), LocalTraining(5, 0.1)
    everyone = weighted_mean(np.arange(4), [10, 10, 10, 10])
    kept = run_round(
        program, start, samples, parts, everyone, spec, seed=0, round_number=7, on_bad_update="skip"
    )
    assert kept.skipped == (1, 3)
    good = weighted_mean([0, 2], [10, 10, 10])
    alone = run_round(program, start, samples, parts, good, spec, seed=0, round_number=7)
    torch.testing.assert_close(kept.weights, alone.weights, rtol=0, atol=1e-12)  # in groups of other sizes
    assert kept.loss == pytest.approx(alone.loss, abs=1e-12)
    assert kept.steps == alone.steps


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30), st.integers(1, 200))
def test_calls_hold_everybody_once_with_little_padding(lengths, most):
    found, everyone = groups._together(np.array(lengths), most), np.arange(len(lengths))
    calls = [everyone[rows].tolist() for rows in found]
    assert sorted(itertools.chain(*calls)) == list(range(len(lengths)))
    for call in calls:
        used = [lengths[k] for k in call]
        computed = max(used) * len(used)
        assert len(call) == 1 or computed <= most
        assert computed - sum(used) <= groups.MOST_PADDING * computed + 1e-9


def test_batches_in_pieces_share_calls_piece_by_piece():
    """Ten batches of 600, clipped in pieces of 64: of pieces eight fit into a call of 512 samples."""
    lengths = np.full(10, 600)
    assert len(groups._together(lengths, 512)) == 10
    assert [len(np.arange(10)[call]) for call in groups._together(lengths, 512, 64)] == [8, 2]


def test_clipped_jobs_with_long_batches_train_together_as_they_do_alone():
    rng = np.random.default_rng(0)
    sizes = (200, 190, 70, 64, 10)
    ends = np.cumsum(sizes)
    samples = Samples(torch.from_numpy(rng.normal(size=(ends[-1], 5))), torch.arange(ends[-1]) % 3)
    program = program_for(torch.nn.Sequential(torch.nn.Linear(5, 3)).double())
    start = torch.from_numpy(rng.normal(size=program.size))
    jobs = [
        Job(k, np.arange(end - size, end)) for k, (end, size) in enumerate(zip(ends, sizes, strict=True))
    ]
    spec = LocalTraining(200, 0.3, clip=0.5)
    together = list(run_jobs(program, start, samples, jobs, spec, seed=0, round_number=1))
    for job, found in zip(jobs, together, strict=True):
        (alone,) = run_jobs(program, start, samples, [job], spec, seed=0, round_number=1)
        assert torch.allclose(found.change, alone.change, rtol=0, atol=1e-14)
        assert found.loss == pytest.approx(alone.loss, rel=1e-13)


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
    with pytest.raises(BadUpdate, match=r"client 1 in round 3 must have labels in 0\.\.3, got 12"):
        run_round(program, start, wrong, parts, everyone, LocalTraining(5, 0.1), seed=0, round_number=3)
    only_good = weighted_mean([0], [5, 15])  # what nobody uses is nobody's error
    run_round(program, start, wrong, parts, only_good, LocalTraining(5, 0.1), seed=0, round_number=3)
    noisy = Job(0, np.arange(5), noise_multiplier=1.0)
    with pytest.raises(InvalidValue, match="clip is required where noise is added"):
        list(run_jobs(program, start, samples, [noisy], LocalTraining(5, 0.1), seed=0, round_number=0))
    for too_few in ((), (0.1,)):  # the client with 15 samples makes three steps
        spec = LocalTraining(5, 0.1, later_rates=too_few)
        with pytest.raises(InvalidValue, match=r"later_rates must cover at least 2 local steps after"):
            run_round(program, start, samples, parts, everyone, spec, seed=0, round_number=3)
    with pytest.raises(InvalidValue, match="must not mix the samples"):
        program_for(nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2)))
    for bad in (
        {"batch_size": 0},
        {"learning_rate": -1},
        {"steps": 3},
        {"clip": 0.0},
        {"optimizer": "lbfgs"},
        {"later_rates": (0.1, 0.0)},
        {"later_rates": (1e39,)},
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


@pytest.mark.parametrize("seed", [0, 7, 2**32 - 1, 2**32, 2**63 + 5])
def test_the_order_of_samples_is_that_of_numpys_default_generator(seed):
    job = Job(3, np.arange(5), copy=1)
    expected = np.random.default_rng((seed, 9, 3, 1)).random(4)
    assert np.array_equal(job_rng(seed, 9, job).random(4), expected)
