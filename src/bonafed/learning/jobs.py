"""What clients do in a round, and what comes back: the words the engine and its readable twin share.

A job is one client's local training in one round (a client drawn twice has two jobs). The order of its
samples comes from a generator seeded by (seed, round, client, copy) and nothing else; its noise has a
source of its own (`noise.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import BonafedError, InvalidValue
from bonafed.learning.privacy import Batches

Optimizer = Literal["sgd", "momentum", "adam"]
LEAST_CLIP = 1e-9


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
    learning_rate: float  # of every local step, or of the first
    epochs: int | None = 1  # passes over the own data; or
    steps: int | None = None  # this many batches, going round the own data
    optimizer: Optimizer = "sgd"  # made anew each round
    momentum: float = 0.9
    weight_decay: float = 0.0  # adds weight_decay * w to the gradient
    clip: float | None = None  # largest L2 norm of one sample's gradient; None: not private
    batches: Batches = "passes"  # over the own data, in random order; or "poisson", by secret coins
    later_rates: tuple[float, ...] | None = None  # of the second local step, ...; None: as the first

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
            if self.clip < LEAST_CLIP:  # norms of single precision do not tell such gradients apart
                raise InvalidValue("clip", f"must be at least {LEAST_CLIP:g}", self.clip)
        if checks.literal("batches", self.batches, Batches) == "poisson" and self.clip is None:
            raise InvalidValue("batches", 'must be "passes" unless clip is given', repr(self.batches))
        if self.later_rates:
            rates = checks.vector("later_rates", self.later_rates, sign="positive")
            _single("later_rates", float(rates.max()))

    def rate(self, step: int) -> float:
        """The learning rate of local step 0, 1, ..."""
        return self.learning_rate if step == 0 or self.later_rates is None else self.later_rates[step - 1]


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
    noise_multiplier: float = 0.0  # noise over `sensitivity`, per step; 0: none


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """What a job changed."""

    client: int
    change: Tensor  # (P,) weights after minus before
    loss: float  # mean training loss over the job's steps; with a clip over `batch_share`
    steps: int  # gradient steps taken
    releases: int  # of those with noise, how many any one record can be in


def job_rng(seed: int, round_number: int, job: Job) -> np.random.Generator:
    """Of the order of a job's samples. Not of its noise: whoever knows the seed knows what comes out."""
    numbers = (seed, round_number, job.client, job.copy)
    # what default_rng makes of them, in a third of the time
    entropy = np.array(numbers, dtype=np.uint32) if max(numbers) < 1 << 32 else numbers
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence(entropy)))


def passes(job: Job, spec: LocalTraining, rng: np.random.Generator) -> NDArray[np.int64]:
    """(passes, n) the order of the job's samples in each pass over them, as many as its steps take."""
    n, count = job.samples.size, pass_count(job, spec)
    orders: NDArray[np.int64] = np.array([rng.permutation(n) for _ in range(count)])
    return job.samples[orders]


def batches(job: Job, spec: LocalTraining, rng: np.random.Generator) -> list[NDArray[np.int64]]:
    """The sample indices of each step of a job."""
    n, size = job.samples.size, spec.batch_size
    found = [order[first : first + size] for order in passes(job, spec, rng) for first in range(0, n, size)]
    return found[: step_count(job, spec)]


def poisson_batches(
    job: Job, spec: LocalTraining, uniforms: Callable[[int], Floats]
) -> Iterator[NDArray[np.int64]]:
    """The sample indices of each step, perhaps none: every one by a coin of its own (theory P6).

    The coins come from the stream that also hides the records: whoever knows them undoes the amplification.
    A coin of 53 bits cannot have every probability; it is rounded down.
    """
    rate = sampling_rate(job, spec)
    assert rate is not None  # such are the batches
    within = math.floor(rate * 2.0**53) * 2.0**-53
    for _ in range(step_count(job, spec)):
        yield job.samples[uniforms(job.samples.size) < within]


def step_count(job: Job, spec: LocalTraining) -> int:
    """How many steps a job takes; an epoch of poisson batches has as many as a pass."""
    if spec.epochs is None:
        assert spec.steps is not None
        return spec.steps
    return spec.epochs * math.ceil(job.samples.size / spec.batch_size)


def pass_count(job: Job, spec: LocalTraining) -> int:
    """Passes over its samples that a job begins."""
    return math.ceil(step_count(job, spec) / math.ceil(job.samples.size / spec.batch_size))


def record_steps(job: Job, spec: LocalTraining) -> int:
    """The most steps that any one record can be in: one of every pass (theory P2), or all (P6)."""
    return pass_count(job, spec) if spec.batches == "passes" else step_count(job, spec)


def sampling_rate(job: Job, spec: LocalTraining) -> float | None:
    """Probability with which a record is in a step, by a secret coin; None where passes decide."""
    return None if spec.batches == "passes" else min(1.0, spec.batch_size / job.samples.size)


def batch_share(job: Job, spec: LocalTraining, length: int) -> float:
    """What a sample counts for in a batch of this length.

    Without privacy batches are averaged. Clipped gradients are added up and divided by the size of a full
    batch, however many there are: the noise is divided likewise, and the mean of a last batch of one record
    would have that of a full batch times its size (theory P4).
    """
    return 1 / (length if spec.clip is None else min(spec.batch_size, job.samples.size))


def sensitivity(job: Job, spec: LocalTraining) -> float:
    """How far one record moves the clipped gradient of a step (theory P1, P6).

    By 2 clip / batch if it is replaced, by half as much if it is added or removed, for which the promise is
    where batches are drawn by coins.
    """
    assert spec.clip is not None  # the engine refuses noise without it
    return (2 if spec.batches == "passes" else 1) * spec.clip * batch_share(job, spec, 0)


def largest_sum(job: Job, spec: LocalTraining) -> float:
    """How long the clipped gradient of a step can be at most, in units of its `sensitivity`.

    All records of a client can be in one batch that is drawn by coins.
    """
    full = min(spec.batch_size, job.samples.size)
    return full / 2 if spec.batches == "passes" else float(job.samples.size)


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """All samples of all clients, as tensors."""

    features: Tensor  # (n, ...)
    labels: Tensor  # (n,)
