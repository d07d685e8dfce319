"""Every model with every option: the engine ends with the weights of its readable twin."""

import numpy as np
import pytest
import torch
from tests.oracles.rounds import make_jobs
from tests.oracles.twins import NOISE, assert_near, assert_same, both, doubled, image_samples, make, split
from torch import nn

from bonafed.learning import models
from bonafed.learning.engine import programs
from bonafed.learning.engine.jobs import Job, Samples, batches, job_rng, poisson_batches
from bonafed.learning.engine.programs import ModuleProgram, flat_parameters, program_for
from bonafed.learning.engine.stacks import LayerProgram
from bonafed.learning.engine.training import run_jobs
from bonafed.learning.noise import NoiseTask, digest, digest_of_samples, digest_of_training
from bonafed.learning.work import LocalTraining

SIZES = (7, 12, 3, 12, 1)
FEW = (4, 3)


def text_samples(n):
    g = torch.Generator().manual_seed(0)
    return Samples(torch.randint(0, 30, (n, 6), generator=g), torch.randint(0, 4, (n,), generator=g))


def residual_net():
    torch.manual_seed(0)
    return nn.Sequential(models._Block(3, 8, 2, 4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))


def text_model():
    return models.build("text-lstm", (6,), 4, seed=1, vocabulary=30)


# name: (module, samples of all clients, sizes of the clients, learning rate, how far apart at most)
MODELS = {
    "softmax": (lambda: make("softmax"), lambda n: image_samples(n), SIZES, 0.1, 1e-6),
    "small-cnn": (lambda: make("small-cnn"), lambda n: image_samples(n), SIZES, 0.1, 1e-5),
    "mnist-cnn": (lambda: make("mnist-cnn"), lambda n: image_samples(n), FEW, 0.05, 1e-5),
    "cifar-cnn": (lambda: make("cifar-cnn", 8), lambda n: image_samples(n, 8, 3), FEW, 0.05, 1e-5),
    "residual": (residual_net, lambda n: image_samples(n, 8, 3), FEW, 0.1, 1e-5),
    "text-lstm": (text_model, text_samples, FEW, 0.1, 1e-5),
}
OPTIONS = {
    "plain": {},
    "weight decay": {"weight_decay": 0.1},
    "momentum": {"optimizer": "momentum", "momentum": 0.8},
    "steps": {"epochs": None, "steps": 3},
    "epochs": {"epochs": 2},
    "clip": {"clip": 0.5},
    "clip, weight decay": {"clip": 0.5, "weight_decay": 0.1},
    "clip, momentum": {"clip": 0.5, "optimizer": "momentum"},
    "rates": {"epochs": 2, "later_rates": (0.05, 0.2, 0.01, 0.1, 0.02)},
    "rates, momentum": {"optimizer": "momentum", "later_rates": (0.05, 0.01)},
    "rates, clip, weight decay": {"clip": 0.5, "weight_decay": 0.1, "later_rates": (0.05, 0.01)},
    "clip, steps": {"clip": 0.5, "epochs": None, "steps": 3},
}
every_model = pytest.mark.parametrize("name", MODELS)


def case(name):
    build, samples, sizes, rate, near = MODELS[name]
    return build(), samples(sum(sizes)), sizes, rate, near


@pytest.mark.parametrize("option", OPTIONS)
@every_model
def test_every_option_gives_the_weights_of_the_twin(name, option):
    module, samples, sizes, rate, near = case(name)
    jobs = make_jobs(split(sizes), np.arange(len(sizes)))
    spec = LocalTraining(**{"batch_size": 5, "learning_rate": rate, **OPTIONS[option]})
    assert_same(*both(module, samples, jobs, spec), near)


@pytest.mark.parametrize("clip", [None, 0.5])
@every_model
def test_adam_gives_the_weights_of_the_twin_in_double_precision(name, clip):
    # Adam's step is a sign where a gradient is tiny, so that single precision decides it by rounding.
    module, samples, sizes, _, _ = case(name)
    features = samples.features.double() if samples.features.is_floating_point() else samples.features
    jobs = make_jobs(split(sizes), np.arange(len(sizes)))
    spec = LocalTraining(5, 0.003, optimizer="adam", clip=clip, weight_decay=0.01)
    assert_same(*both(module.double(), Samples(features, samples.labels), jobs, spec), 1e-8)


@every_model
def test_noise_is_the_twins_and_every_noisy_pass_is_a_release(name):
    module, samples, sizes, rate, near = case(name)
    jobs = make_jobs(split(sizes), np.arange(len(sizes)), np.linspace(0, 0.5, len(sizes)))
    fast, slow = both(module, samples, jobs, LocalTraining(5, rate, clip=0.5))
    largest = 0.5 * 2 * 0.5 / 1  # standard deviation of the noise in a batch of one
    assert_same(fast, slow, near, moved=rate * largest / 16)
    assert [u.releases for u in fast] == [0, *([1] * (len(sizes) - 1))]
    assert [u.steps for u in fast] == [-(-size // 5) for size in sizes]


POISSON = {
    "noise": {},
    "momentum": {"optimizer": "momentum"},
    "weight decay": {"weight_decay": 0.1},
    "steps": {"epochs": None, "steps": 7},
}


@pytest.mark.parametrize("option", POISSON)
@every_model
def test_poisson_batches_are_the_twins(name, option):
    """Batches of every length, empty ones among them, and noise in all."""
    # Noise is rounded to a grid. In single precision rounding decides now and then to which side, by a
    # whole step of the grid, and the steps that follow start from there; in double precision it does not.
    module, samples, sizes, rate, _ = case(name)
    features = samples.features.double() if samples.features.is_floating_point() else samples.features
    jobs = make_jobs(split(sizes), np.array([*range(len(sizes)), 0]), np.full(len(sizes), 0.1))
    spec = LocalTraining(2, rate, clip=0.5, batches="poisson", **POISSON[option])
    fast, slow = both(module.double(), Samples(features, samples.labels), jobs, spec)
    assert_same(fast, slow, 1e-8)
    assert [u.releases for u in fast] == [u.steps for u in fast]


def test_poisson_batches_are_drawn_by_independent_coins():
    """Every record with the rate, on its own, none twice in a batch."""
    job, spec = Job(0, np.arange(100, 140)), LocalTraining(4, 1.0, epochs=500, clip=1.0, batches="poisson")
    drawn = list(poisson_batches(job, spec, np.random.default_rng(0).random))
    assert len(drawn) == 500 * 10
    counts = np.bincount(np.concatenate(drawn) - 100, minlength=40)
    assert np.all(np.abs(counts - 500) < 5 * np.sqrt(5000 * 0.1 * 0.9))
    sizes = np.array([batch.size for batch in drawn])
    assert sizes.var() == pytest.approx(40 * 0.1 * 0.9, rel=0.1)  # of coins; a pass would have 0
    assert (sizes == 0).any()
    assert all(np.unique(batch).size == batch.size for batch in drawn)
    again = np.random.default_rng(0)
    assert all(np.array_equal(batch, job.samples[again.random(40) < 0.1]) for batch in drawn)


def test_poisson_batches_do_not_follow_from_the_public_seed():
    """Who knows the seed of the run, but not the secret, does not know who is in a batch."""
    module, samples = make("softmax"), image_samples(40)
    spec = LocalTraining(4, 1.0, clip=0.5, batches="poisson")
    start, job = flat_parameters(module), Job(0, np.arange(40))
    program = program_for(module)
    losses = [
        next(iter(run_jobs(program, start, samples, [job], spec, seed=5, round_number=2))).loss
        for _ in range(4)
    ]
    assert len(set(losses)) > 1


def test_an_empty_poisson_batch_gives_noise_alone():
    module, samples = make("softmax"), image_samples(40)
    jobs = [Job(0, np.arange(40), copy, 3.0) for copy in range(50)]
    spec = LocalTraining(1, 1.0, epochs=None, steps=1, clip=0.5, batches="poisson")
    fast, slow = both(module, samples, jobs, spec)
    empty = [k for k, update in enumerate(slow) if update.loss == 0]
    assert 5 <= len(empty) <= 35  # of 50: (1 - 1/40)^40 on average
    for k in empty:
        assert fast[k].loss == 0
        assert float(fast[k].change.std()) == pytest.approx(3.0 * 0.5, rel=0.15)  # sigma C / 1


@pytest.mark.parametrize("size", [9, 12])
def test_a_ragged_last_batch_has_the_noise_and_the_weight_of_a_full_one(size):
    """The last step of 4 + 4 + 1 records: its gradient and its noise over 4, not over 1."""
    module, samples = make("softmax").double(), doubled(image_samples(size))
    whole, without_last = (LocalTraining(4, 1.0, epochs=None, steps=n, clip=1e-3) for n in (3, 2))
    quiet, noisy = Job(0, np.arange(size)), Job(0, np.arange(size), noise_multiplier=50.0)

    def change(job, spec):
        (fast,), (slow,) = both(module, samples, [job], spec)
        assert torch.allclose(fast.change, slow.change, rtol=1e-12, atol=1e-4 if job is noisy else 1e-14)
        return fast.change

    last = change(quiet, whole) - change(quiet, without_last)
    assert 0 < float(last.norm()) <= 1e-3 * (size % 4 or 4) / 4 * (1 + 1e-3)
    drawn = change(noisy, whole) - change(quiet, whole)
    sd = 50.0 * 2 * 1e-3 / 4  # of each of the three steps
    assert float(drawn.square().mean()) / (3 * sd**2) == pytest.approx(1, abs=0.3)


@pytest.mark.parametrize(
    ("given", "times", "steps"),
    [
        ({"epochs": 3}, 3, 9),
        ({"epochs": None, "steps": 1}, 1, 1),
        ({"epochs": None, "steps": 3}, 1, 3),
        ({"epochs": None, "steps": 4}, 2, 4),
        ({"epochs": None, "steps": 7}, 3, 7),
    ],
)
def test_a_record_is_charged_for_the_steps_it_can_be_in(given, times, steps):
    module, samples = make("softmax"), image_samples(9)
    spec, job = LocalTraining(4, 0.1, clip=0.5, **given), Job(0, np.arange(9), noise_multiplier=1.0)
    (fast,), (slow,) = both(module, samples, [job], spec)
    assert (fast.releases, fast.steps) == (slow.releases, slow.steps) == (times, steps)
    for seed in range(20):
        taken = np.concatenate(batches(job, spec, job_rng(seed, 2, job)))
        assert np.bincount(taken, minlength=9).max() == times  # some record is in as many, none in more


@every_model
def test_a_model_per_client_and_clients_drawn_twice(name):
    module, samples, sizes, rate, near = case(name)
    jobs = make_jobs(split(sizes), np.array([*range(len(sizes)), 0]))
    g, own = torch.Generator().manual_seed(0), flat_parameters(module)
    starts = own + 0.01 * torch.randn(len(jobs), own.numel(), generator=g)
    starts[-1] = starts[0]  # of the client drawn twice, which trains twice, with other batches
    fast, slow = both(module, samples, jobs, LocalTraining(3, rate), start=starts)
    assert_same(fast, slow, near)
    assert not torch.equal(fast[0].change, fast[-1].change)


@pytest.mark.parametrize("clip", [None, 0.5])
@every_model
def test_long_batches_in_pieces_are_the_same_batches(name, clip, monkeypatch):
    monkeypatch.setattr(programs, "CALL_NUMBERS", 1)
    module, samples, sizes, rate, near = case(name)
    jobs = make_jobs(split(sizes), np.arange(len(sizes)))
    numbers = program_for(module).numbers_kept(samples.features[0], clip is not None)
    for at_once in (1, 2):
        monkeypatch.setattr(programs, "BATCH_NUMBERS", at_once * numbers)
        assert_same(*both(module, samples, jobs, LocalTraining(5, rate, clip=clip)), near)


@pytest.mark.parametrize("clip", [pytest.param(None, marks=pytest.mark.deep), 0.5])
def test_resnet18_gives_the_weights_of_the_twin(clip):
    # its gradients are long and single precision moves them by 1e-5, so that double tells errors apart
    module, samples = make("resnet18", 16).double(), image_samples(3, 16, channels=3)
    jobs, exact = make_jobs(split((2, 1)), np.arange(2)), Samples(samples.features.double(), samples.labels)
    assert_same(*both(module, exact, jobs, LocalTraining(2, 0.1, clip=clip)), 1e-9)


def test_any_module_and_any_arrays_work_the_same_way():
    class Mine(nn.Module):
        def __init__(self, flat):
            super().__init__()
            self.a, self.b, self.flat = nn.Linear(6, 5), nn.Linear(5, 1), flat

        def forward(self, x):
            z = self.b(torch.sigmoid(self.a(x))) + x[:, :1]
            return z[:, 0] if self.flat else z

    torch.manual_seed(0)
    samples = Samples(torch.randn(20, 6), torch.randn(20))
    jobs = make_jobs(split((9, 11)), np.arange(2))
    for flat in (False, True):
        module = Mine(flat)
        assert isinstance(program_for(module, "squared"), ModuleProgram)
        assert_same(*both(module, samples, jobs, LocalTraining(4, 0.1), loss="squared"), 1e-5)
    ridge = nn.Sequential(nn.Linear(6, 1))
    assert isinstance(program_for(ridge, "squared"), LayerProgram)
    for clip in (None, 0.3):
        assert_same(*both(ridge, samples, jobs, LocalTraining(4, 0.05, clip=clip), loss="squared"), 1e-6)


def test_noise_is_what_the_jobs_own_stream_gives():
    """Of the whole task, to the last bit of the model and the data, and of nothing else."""
    module, samples, spec = make("softmax"), image_samples(40), LocalTraining(40, 1.0, clip=0.5)
    noisy, quiet = Job(0, np.arange(40), noise_multiplier=3.0), Job(0, np.arange(40))
    (with_noise, without), _ = both(module, samples, [noisy, quiet], spec)
    model = digest(flat_parameters(module))
    stream = NOISE.stream(
        NoiseTask.of(noisy, digest_of_training(spec, 5), 2, model, digest_of_samples(samples))
    )
    size = 3.0 * 2 * 0.5 / 40  # multiplier times sensitivity 2C/n
    released = -without.change.clone()
    stream.add_to(released, size)
    assert_near(-with_noise.change, released, 1e-6, moved=size / 16)
