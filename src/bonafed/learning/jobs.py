"""What clients do in a round, and what comes back: the words the engine and its readable twin share.

A job is one client's local training in one round (a client drawn twice has two jobs). The order of its
samples comes from a generator seeded by (seed, round, client, copy) and nothing else; its noise has a
source of its own (`noise.py`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from bonafed import checks
from bonafed.errors import BonafedError, InvalidValue

Optimizer = Literal["sgd", "momentum", "adam"]


class BadUpdate(BonafedError):
    """A client's update is not finite; says which client and round."""

    def __init__(self, client: int, round_number: int) -> None:
        self.client, self.round_number = client, round_number
        super().__init__(
            f"update of client {client} in round {round_number} must be finite, got NaN or inf; "
            "a smaller learning rate may help, or on_bad_update = 'skip'"
        )


class BadModel(BonafedError):
    """The model is not finite after a round, although every update was; says the round."""

    def __init__(self, round_number: int) -> None:
        self.round_number = round_number
        super().__init__(
            f"model after round {round_number} must be finite, got NaN or inf; "
            "a smaller learning rate may help"
        )


@dataclass(frozen=True, slots=True)
class LocalTraining:
    """What every client does in a round."""

    batch_size: int
    learning_rate: float
    epochs: int | None = 1  # passes over the own data; or
    steps: int | None = None  # this many batches, going round the own data
    optimizer: Optimizer = "sgd"  # made anew each round
    momentum: float = 0.9
    weight_decay: float = 0.0  # adds weight_decay * w to the gradient
    clip: float | None = None  # largest L2 norm of one sample's gradient; None: not private

    def __post_init__(self) -> None:
        checks.whole("batch_size", self.batch_size)
        _single("learning_rate", checks.positive("learning_rate", self.learning_rate))
        checks.literal("optimizer", self.optimizer, Optimizer)
        checks.between("momentum", self.momentum, 0.0, 1.0)
        _single("weight_decay", checks.non_negative("weight_decay", self.weight_decay))
        if (self.epochs is None) == (self.steps is None):
            raise InvalidValue("epochs", "or steps must be given, not both", (self.epochs, self.steps))
        if self.epochs is not None:
            checks.whole("epochs", self.epochs)
        if self.steps is not None:
            checks.whole("steps", self.steps)
        if self.clip is not None:
            _single("clip", checks.positive("clip", self.clip))


def _single(name: str, value: float) -> None:
    """Models are mostly of single precision."""
    most = float(np.finfo(np.float32).max)
    if value > most:
        raise InvalidValue(
            name, f"must not exceed {most:.3g}, the largest number of single precision", value
        )


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """One client's local training in one round."""

    client: int
    samples: NDArray[np.int64]  # (n,) its samples, indices into the features
    copy: int = 0  # 0, 1, ... if the client was drawn more than once
    noise_multiplier: float = 0.0  # noise over sensitivity 2 clip / batch, per step; 0: none


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """What a job changed."""

    client: int
    change: Tensor  # (P,) weights after minus before
    loss: float  # mean training loss over the job's steps
    steps: int  # gradient steps taken, each a release if noise was added
    releases: int  # noisy releases made


def job_rng(seed: int, round_number: int, job: Job) -> np.random.Generator:
    """Of the order of a job's samples. Not of its noise: whoever knows the seed knows what comes out."""
    words = np.random.SeedSequence((seed, round_number, job.client, job.copy))
    return np.random.Generator(np.random.PCG64(words))  # what default_rng makes of them, in half the time


def passes(job: Job, spec: LocalTraining, rng: np.random.Generator) -> NDArray[np.int64]:
    """(passes, n) the order of the job's samples in each pass over them, as many as its steps take."""
    n = job.samples.size
    count = math.ceil(step_count(job, spec) / math.ceil(n / spec.batch_size))
    return job.samples[np.stack([rng.permutation(n) for _ in range(count)])]


def batches(job: Job, spec: LocalTraining, rng: np.random.Generator) -> list[NDArray[np.int64]]:
    """The sample indices of each step of a job."""
    n, size = job.samples.size, spec.batch_size
    found = [order[first : first + size] for order in passes(job, spec, rng) for first in range(0, n, size)]
    return found[: step_count(job, spec)]


def step_count(job: Job, spec: LocalTraining) -> int:
    """How many steps a job takes."""
    if spec.epochs is None:
        assert spec.steps is not None
        return spec.steps
    return spec.epochs * math.ceil(job.samples.size / spec.batch_size)


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """All samples of all clients, as tensors."""

    features: Tensor  # (n, ...)
    labels: Tensor  # (n,)
