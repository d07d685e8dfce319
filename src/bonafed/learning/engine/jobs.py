"""What clients do in a round, and what comes back: the vocabulary of the engine and its readable twin.

A job is one client's local training in one round (a client drawn twice has two jobs). The order of its
samples comes from a generator seeded by (seed, round, client, copy) and nothing else; its noise has a
source of its own (`noise.py`).

With augmentation what a client sees of a sample differs from pass to pass: `crop-and-flip` moves an image
by up to four pixels in each direction, what comes in from outside being its mirror image, and mirrors every
second one from left to right, at random. That is what the rewards paper does to CIFAR ("random cropping and
random horizontal flipping"), as the NIID benchmark that it follows has it: four pixels of reflection, a
random crop of the original size, a flip with probability 1/2.

Which variation a sample gets comes from (seed, round, client, copy), its pass and its place in it, and from
nothing else: not from how clients are grouped or on how many cores they are trained.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bonafed.checks import Floats
from bonafed.learning.architectures import FARTHEST
from bonafed.learning.work import LocalTraining, pass_count, sampling_rate, step_count
from bonafed.randomness import JobStream, job_bits, job_generator


@dataclass(frozen=True, slots=True, eq=False)
class Job:
    """One client's local training in one round."""

    client: int
    samples: NDArray[np.int64]  # (n,) its samples, indices into the features
    copy: int = 0  # 0, 1, ... if the client was drawn more than once
    noise_multiplier: float = 0.0  # noise over `sensitivity`, per step; 0: none


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """The result of a job."""

    client: int
    change: Tensor  # (P,) weights after minus before
    loss: float  # mean training loss over the job's steps; with a clip over `batch_share`
    steps: int  # gradient steps taken
    releases: int  # how many of those with noise a record can be in


def job_rng(seed: int, round_number: int, job: Job) -> np.random.Generator:
    """The generator of the order of a job's samples, not of its noise: anybody may know the seed."""
    return job_generator(seed, round_number, job.client, job.copy)


def passes(job: Job, spec: LocalTraining, rng: np.random.Generator) -> NDArray[np.int64]:
    """(passes, n) the order of the job's samples in each pass over them, as many as its steps take."""
    n, count = job.samples.size, pass_count(job.samples.size, spec)
    orders: NDArray[np.int64] = np.array([rng.permutation(n) for _ in range(count)])
    return job.samples[orders]


def batches(job: Job, spec: LocalTraining, rng: np.random.Generator) -> list[NDArray[np.int64]]:
    """The sample indices of each step of a job."""
    return in_steps(job, spec, passes(job, spec, rng))


def in_steps(job: Job, spec: LocalTraining, each: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Of numbers (passes, n) for the samples of every pass, those of each step."""
    n, size = job.samples.size, spec.batch_size
    steps = [one[first : first + size] for one in each for first in range(0, n, size)]
    return steps[: step_count(n, spec)]


def variations(job: Job, spec: LocalTraining, seed: int, round_number: int) -> NDArray[np.int64]:
    """(passes, n) how the samples of each pass are varied, in the order of `passes` (`vary`)."""
    bits = job_bits((seed, round_number, job.client, job.copy), JobStream.AUGMENTATION)
    shape = pass_count(job.samples.size, spec), job.samples.size
    return np.random.Generator(bits).integers(VARIATIONS, size=shape)


def poisson_batches(
    job: Job, spec: LocalTraining, uniforms: Callable[[int], Floats]
) -> Iterator[NDArray[np.int64]]:
    """The sample indices of each step, perhaps none: every one by a coin of its own (theory P6).

    The coins come from the stream that also hides the records: knowing them would undo the amplification.
    A coin of 53 bits cannot have every probability, so the probability is rounded down.
    """
    rate = sampling_rate(job.samples.size, spec)
    assert rate is not None  # batches are poisson
    within = math.floor(rate * 2.0**53) * 2.0**-53
    for _ in range(step_count(job.samples.size, spec)):
        yield job.samples[uniforms(job.samples.size) < within]


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """All samples of all clients, as tensors."""

    features: Tensor  # (n, ...)
    labels: Tensor  # (n,)


_SHIFTS = 2 * FARTHEST + 1  # in each direction
VARIATIONS = 2 * _SHIFTS**2  # of an image; number 80 is the image itself


def vary(images: Tensor, codes: Tensor) -> Tensor:
    """(m, C, H, W) every image in its variation, codes (m,) from 0 to VARIATIONS - 1.

    >>> image = torch.arange(25.0).view(1, 1, 5, 5)
    >>> [vary(image, torch.tensor([code]))[0, 0, 0].tolist() for code in (80, 81)]
    [[0.0, 1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0, 0.0]]
    """
    shift, flipped = codes // 2, codes % 2 == 1
    rows = _reflected(shift // _SHIFTS, images.shape[2])
    columns = _reflected(shift % _SHIFTS, images.shape[3])
    columns = torch.where(flipped[:, None], columns.flip(1), columns)
    moved = images.gather(2, rows[:, None, :, None].expand(images.shape))
    return moved.gather(3, columns[:, None, None, :].expand(images.shape))


def _reflected(shift: Tensor, side: int) -> Tensor:
    """(m, side) from which row each row is taken."""
    source = (shift[:, None] + torch.arange(side) - FARTHEST).abs()
    return torch.where(source >= side, 2 * (side - 1) - source, source)
