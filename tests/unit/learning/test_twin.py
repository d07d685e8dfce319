"""Every model with every option: the engine ends with the weights of its readable twin."""

import numpy as np
import pytest
import torch
from tests.oracles.twins import NOISE, assert_near, assert_same, both, image_samples, make, split
from torch import nn

from bonafed.learning import models, programs
from bonafed.learning.autograd import ModuleProgram
from bonafed.learning.federation import make_jobs
from bonafed.learning.jobs import Job, LocalTraining, Samples
from bonafed.learning.noise import Task, digest, digest_of_samples
from bonafed.learning.programs import flat_parameters, program_for
from bonafed.learning.stacks import LayerProgram

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
def test_noise_is_the_twins_and_every_noisy_step_is_a_release(name):
    module, samples, sizes, rate, near = case(name)
    jobs = make_jobs(split(sizes), np.arange(len(sizes)), np.linspace(0, 0.5, len(sizes)))
    fast, slow = both(module, samples, jobs, LocalTraining(5, rate, clip=0.5))
    largest = 0.5 * 2 * 0.5 / 1  # standard deviation of the noise in a batch of one
    assert_same(fast, slow, near, moved=rate * largest / 16)
    assert [u.releases for u in fast] == [0, *(u.steps for u in fast[1:])]


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


@pytest.mark.parametrize("clip", [None, 0.5])
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
    stream = NOISE.stream(Task.of(noisy, spec, 2, model, digest_of_samples(samples)))
    size = 3.0 * 2 * 0.5 / 40  # multiplier times sensitivity 2C/n
    released = -without.change.clone()
    stream.add_to(released, size)
    assert_near(-with_noise.change, released, 1e-6, moved=size / 16)
