"""The engine and its readable twin on the same jobs."""

import itertools

import numpy as np
import pytest
import torch

from bonafed.learning import models
from bonafed.learning.engine.jobs import Samples
from bonafed.learning.engine.programs import flat_parameters, program_for
from bonafed.learning.engine.sequential import run_jobs_sequentially
from bonafed.learning.engine.training import run_jobs
from bonafed.learning.noise import Secret

NOISE = Secret(bytes(range(32)))
FLIPPED = 0.01  # share of numbers at most that rounding moves to the next multiple of the released unit


def image_samples(n, side=12, channels=1, classes=4, seed=0):
    g = torch.Generator().manual_seed(seed)
    features = torch.rand(n, channels, side, side, generator=g)
    features[:, :, : side // 2] = 0.0  # flat regions, as in real images: equal values in a pool
    return Samples(features, torch.randint(0, classes, (n,), generator=g))


def doubled(samples):
    """The same samples in double precision."""
    return Samples(samples.features.double(), samples.labels)


def split(sizes):
    return [np.arange(a, b) for a, b in itertools.pairwise(np.cumsum([0, *sizes]))]


def make(name, side=12, classes=4):
    return models.build(name, (3 if name in ("cifar-cnn", "resnet18") else 1, side, side), classes, seed=3)


def both(module, samples, jobs, spec, start=None, loss="cross-entropy", sample=None, **options):
    start = flat_parameters(module) if start is None else start
    program = program_for(module, loss, sample)
    common = {"seed": 5, "round_number": 2, "noise": NOISE}
    fast = list(run_jobs(program, start, samples, jobs, spec, **common, **options))
    slow = list(run_jobs_sequentially(module, start, samples, jobs, spec, **common, loss=loss))
    return fast, slow


def assert_same(fast, slow, atol, moved=0.0):
    """`moved`: how far releases, rounded to a unit, may be apart where one was rounded the other way."""
    for a, b in zip(fast, slow, strict=True):
        assert (a.client, a.steps, a.releases) == (b.client, b.steps, b.releases)
        assert_near(a.change, b.change, atol, moved if a.releases else 0.0)
        assert a.loss == pytest.approx(b.loss, abs=1e-4 if not a.releases else 1e-4 + moved)
        assert float(b.change.abs().max()) > 10 * atol  # something was learned


def assert_near(one, other, atol, moved=0.0):
    """All numbers but a few that were rounded the other way."""
    apart = (one - other).abs()
    assert float((apart > atol).double().mean()) <= (FLIPPED if moved else 0.0)
    assert float(apart.max()) <= atol + moved
