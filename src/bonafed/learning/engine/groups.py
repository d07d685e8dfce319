"""Local training of a group of clients, step by step, as one program.

A step runs the jobs of the group that still have a batch. Batches of unequal length share a call only if at
most `MOST_PADDING` of what is computed is padding, and padding has share zero. A batch that would need too
much memory is computed in pieces, whose gradients are added up.

The samples of every step are determined for the whole group before its first step: a step is some ten short
operations, and looking up or counting anything would take as long as they do.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bonafed.learning.engine.jobs import (
    Job,
    Samples,
    Update,
    job_rng,
    passes,
    poisson_batches,
    variations,
    vary,
)
from bonafed.learning.engine.programs import CLIPPED_PIECE, Program, joined_rows
from bonafed.learning.engine.resources import array
from bonafed.learning.noise import NoiseTask, Source, Stream, add_noise
from bonafed.learning.work import LocalTraining, batch_share, record_steps, sensitivity, step_count

MOST_PADDING = 0.125  # share of padding among the samples of one call, at most
STEPS_AHEAD = 128  # steps whose calls are assembled at a time

Where = slice | NDArray[np.int64]  # models of a group: a slice gives views, an index copies


@dataclass(frozen=True, slots=True, eq=False)
class RoundNoise:
    """The source of the noise of a round, and digests of what it is added to."""

    source: Source
    training: bytes  # of the work of the jobs
    models: Sequence[bytes]  # of the start models: one, or one per job
    samples: bytes  # of the samples of all clients

    def stream(self, plan: TrainingPlan, index: int) -> Stream:
        """The stream of the job at this place."""
        model = self.models[index if len(self.models) > 1 else 0]
        return self.source.stream(
            NoiseTask.of(plan.jobs[index], self.training, plan.round_number, model, self.samples)
        )


@dataclass(frozen=True, slots=True, eq=False)
class TrainingPlan:
    """The jobs of a round and how they are grouped, the same for every process that trains a group."""

    jobs: Sequence[Job]
    groups: Sequence[Sequence[int]]  # of places in `jobs`, those with most steps first
    spec: LocalTraining
    seed: int
    round_number: int
    most: int  # samples of one call
    longest: int  # samples of one batch that are computed at once; at least `most`
    noise: RoundNoise | None  # where noise and poisson batches come from; None if there are none

    @property
    def piece(self) -> int:
        """Samples of one batch whose gradients are added up in the precision of the model."""
        return self.longest if self.spec.clip is None else min(self.longest, CLIPPED_PIECE)


def train_group(
    program: Program, samples: Samples, start: Tensor, plan: TrainingPlan, indices: Sequence[int]
) -> list[tuple[int, Update]]:
    """The updates of the jobs at these places; `start` is one model (P,), or one per job."""
    jobs = [plan.jobs[index] for index in indices]
    before = start[list(indices)] if start.dim() == 2 else start.expand(len(jobs), -1)
    schedule = _Schedule(indices, samples, plan, before.dtype)
    spec, noisy = plan.spec, plan.noise is not None
    plain = spec.optimizer == "sgd" and not spec.weight_decay and not noisy
    models = (_Descent if plain else _Optimizer)(program, samples, plan, before, schedule)
    losses = np.zeros(len(jobs))
    for call in schedule.calls():
        losses[call.where] += models.step(call).numpy()
    changes, means = models.changes(), losses / schedule.counts
    return [
        (index, Update(job.client, change, mean, steps, _releases(job, plan.spec)))
        for index, job, change, mean, steps in zip(
            indices, jobs, changes, means.tolist(), schedule.counts.tolist(), strict=True
        )
    ]


def _releases(job: Job, spec: LocalTraining) -> int:
    """How many noisy gradients a record can be in."""
    return record_steps(job.samples.size, spec) if job.noise_multiplier else 0


@dataclass(frozen=True, slots=True, eq=False)
class _Call:
    """Batches of one step that are computed together."""

    where: Where  # the models they are for
    rate: float  # the learning rate of the step
    index: Tensor  # (K, B) sample numbers; padding repeats one of the job's
    labels: Tensor  # (K, B)
    share: Tensor  # (K, B) of each sample in its job's gradient, zero for padding
    codes: Tensor | None = None  # (K, B) how images are varied; None: not at all

    def batch(self, features: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Features (K, B, ...) of all samples, labels (K, B) and shares (K, B)."""
        sample = features.shape[1:]
        x = array(features, "batch", (self.index.numel(), *sample), features)
        torch.index_select(features, 0, self.index.reshape(-1), out=x)
        if self.codes is not None:
            x = vary(x, self.codes.reshape(-1))
        return x.view(*self.index.shape, *sample), self.labels, self.share

    def pieces(self, most: int) -> Iterator[_Call]:
        """The same in pieces of at most so many samples of each batch."""
        parts = (torch.split(part, most, 1) for part in (self.index, self.labels, self.share))
        codes: Sequence[Tensor | None] = [None] * math.ceil(self.index.shape[1] / most)
        if self.codes is not None:
            codes = torch.split(self.codes, most, 1)
        for index, labels, share, varied in zip(*parts, codes, strict=True):
            yield _Call(self.where, self.rate, index, labels, share, varied)


class _Schedule:
    """The samples of every step of a group's jobs, drawn from the jobs' own generators."""

    def __init__(
        self, indices: Sequence[int], samples: Samples, plan: TrainingPlan, precision: torch.dtype
    ) -> None:
        self._labels, self._most, self._precision = samples.labels, plan.most, precision
        self._rate = plan.spec.rate
        self._piece = None if plan.spec.clip is None else plan.piece
        self.jobs = jobs = [plan.jobs[index] for index in indices]
        self.streams: list[Stream] = []  # of their noise
        self.sds: list[float] = []  # of the noise on each number of a step's gradient (theory P1)
        if plan.noise is not None:
            self.streams = [plan.noise.stream(plan, index) for index in indices]
            self.sds = [job.noise_multiplier * sensitivity(job.samples.size, plan.spec) for job in jobs]
        sizes = [job.samples.size for job in jobs]
        self.counts = np.array([step_count(n, plan.spec) for n in sizes])  # steps; the most come first
        self._size = min(plan.spec.batch_size, max(sizes))
        private = plan.spec.clip is not None
        # (K,) of a sample, where it does not depend on the length of the batch
        self._shares = np.array([batch_share(n, plan.spec, 0) for n in sizes]) if private else None
        self._alike = self._shares is None or bool((self._shares == self._shares[0]).all())
        self._orders: list[NDArray[np.int64]] = []  # of the samples, in every pass
        self._poisson: list[Iterator[NDArray[np.int64]]] = []  # or, batch after batch, by coins
        if plan.spec.batches == "poisson":
            pairs = zip(jobs, self.streams, strict=True)
            self._poisson = [poisson_batches(job, plan.spec, stream.uniforms) for job, stream in pairs]
        else:
            rngs = (job_rng(plan.seed, plan.round_number, job) for job in jobs)
            self._orders = [passes(job, plan.spec, rng) for job, rng in zip(jobs, rngs, strict=True)]
        self._codes: list[NDArray[np.int64]] = []  # of how each is varied, in every pass
        if plan.spec.augmentation != "none":
            self._codes = [variations(job, plan.spec, plan.seed, plan.round_number) for job in jobs]

    def calls(self) -> Iterator[_Call]:
        """Step by step, with batches together where it pays."""
        for first in range(0, int(self.counts[0]), STEPS_AHEAD):
            steps = np.arange(first, min(first + STEPS_AHEAD, self.counts[0]))
            if self._poisson:
                numbers, lengths = self._poisson_tables(steps)
            else:
                numbers, lengths = self._tables(steps, self._orders)
            codes: Sequence[Tensor | None] = [None] * steps.size
            if self._codes:
                codes = list(torch.from_numpy(self._tables(steps, self._codes)[0]))
            index, active = torch.from_numpy(numbers), (self.counts > steps[:, None]).sum(1)
            rates = [self._rate(step) for step in steps.tolist()]
            for each in zip(
                rates, index, self._labels[index], lengths, active.tolist(), codes, strict=True
            ):
                yield from self._step(*each)

    def _step(
        self, rate: float, index: Tensor, labels: Tensor, lengths: NDArray[np.int64], active: int,
        codes: Tensor | None,
    ) -> Iterator[_Call]:  # fmt: skip
        for where in _together(np.maximum(lengths[:active], 1), self._most, self._piece):
            own_lengths = lengths[where]
            longest = max(1, int(own_lengths.max()))  # if all are empty, padding: noise is added anyway
            shares = 1 / own_lengths if self._shares is None else self._shares[where]
            if self._alike and int(own_lengths.sum()) == longest * own_lengths.size:
                share = _even(own_lengths.size, longest, float(shares[0]), self._precision)
            else:
                real = np.arange(longest) < own_lengths[:, None]
                share = torch.from_numpy(real * shares[:, None]).to(self._precision)
            rest = (where, slice(longest))
            varied = None if codes is None else codes[rest]
            yield _Call(where, rate, index[rest], labels[rest], share, varied)

    def _tables(
        self, steps: NDArray[np.int64], each: Sequence[NDArray[np.int64]]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Of numbers (passes, n) of each job for its samples, those of the batches (steps, K, B), and the
        batches' lengths (steps, K); 0 where there is none."""
        numbers = np.zeros((steps.size, len(self.jobs), self._size), dtype=np.int64)
        lengths = np.zeros(numbers.shape[:2], dtype=np.int64)
        within = np.arange(self._size)
        for k, (orders, count) in enumerate(zip(each, self.counts.tolist(), strict=True)):
            n = orders.shape[1]
            a_pass = math.ceil(n / self._size)  # steps
            own = steps[: max(0, count - int(steps[0]))]
            if n == a_pass * self._size:
                batches = orders.reshape(-1, self._size)
                numbers[: own.size, k] = batches[int(steps[0]) : int(steps[0]) + own.size]
                lengths[: own.size, k] = self._size
            else:
                first = own % a_pass * self._size
                padded = np.minimum(first[:, None] + within, n - 1)
                numbers[: own.size, k] = orders[own[:, None] // a_pass, padded]
                lengths[: own.size, k] = np.minimum(self._size, n - first)
        return numbers, lengths

    def _poisson_tables(self, steps: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """As `_tables`, of poisson batches: as wide as the longest, and lengths may be 0."""
        counts = np.clip(self.counts - int(steps[0]), 0, steps.size).tolist()
        batches = [list(islice(own, count)) for own, count in zip(self._poisson, counts, strict=True)]
        width = max(1, *(batch.size for own in batches for batch in own))
        numbers = np.empty((steps.size, len(self.jobs), width), dtype=np.int64)
        lengths = np.zeros(numbers.shape[:2], dtype=np.int64)
        for k, (job, own) in enumerate(zip(self.jobs, batches, strict=True)):
            numbers[:, k] = job.samples[0]
            for s, batch in enumerate(own):
                numbers[s, k, : batch.size] = batch
                lengths[s, k] = batch.size
        return numbers, lengths


@lru_cache(maxsize=64)
def _even(jobs: int, length: int, share: float, precision: torch.dtype) -> Tensor:
    """(K, B) equal shares of equally many samples."""
    return torch.full((jobs, length), share, dtype=precision)


def _together(lengths: NDArray[np.int64], most: int, piece: int | None = None) -> list[Where]:
    """Which batches share a call: those of similar length, up to a number of samples.

    Batches that are computed in pieces share it piece by piece.
    """
    if _fit(int(lengths.max()), lengths.size, int(lengths.sum()), most, piece):
        return [slice(0, lengths.size)]
    calls: list[list[int]] = []
    used = longest = 0
    for k in np.argsort(-lengths, kind="stable").tolist():
        length = int(lengths[k])
        if calls and _fit(longest, len(calls[-1]) + 1, used + length, most, piece):
            calls[-1].append(k)
            used += length
        else:
            calls.append([k])
            used = longest = length
    return [_rows(sorted(call)) for call in calls]


def _fit(longest: int, batches: int, used: int, most: int, piece: int | None) -> bool:
    """Whether so many batches, padded to the longest, may share a call; `used` samples are not padding."""
    at_once = longest if piece is None else min(longest, piece)
    return at_once * batches <= most and used >= (1 - MOST_PADDING) * longest * batches


def _rows(indices: list[int]) -> Where:
    """The places as a slice, if they are consecutive."""
    if indices[-1] - indices[0] + 1 == len(indices):
        return slice(indices[0], indices[-1] + 1)
    return np.array(indices)


def _gradients(
    program: Program, samples: Samples, weights: Tensor, call: _Call, plan: TrainingPlan
) -> tuple[Tensor, Tensor]:
    """Mean losses (K,) and gradients (K, P) of a batch for each job.

    Clipped gradients are added up in pieces of a fixed length, and these in double precision: which way a
    long sum is rounded can turn on one record, but here only within its piece (decision 0010).
    """
    clip, most = plan.spec.clip, plan.piece
    if call.index.shape[1] <= most:
        return program.gradients(weights, *call.batch(samples.features), clip)
    loss = torch.zeros(len(weights), dtype=torch.float64)
    grad = torch.zeros_like(weights, dtype=weights.dtype if clip is None else torch.float64)
    for piece in call.pieces(most):
        its_loss, its_grad = program.gradients(weights, *piece.batch(samples.features), clip)
        loss += its_loss
        grad += its_grad
    return loss, grad.to(weights.dtype)


class _Models(ABC):
    """The models of a group during training."""

    def __init__(
        self, program: Program, samples: Samples, plan: TrainingPlan, before: Tensor, schedule: _Schedule
    ) -> None:
        self._program, self._samples, self._plan, self._schedule = program, samples, plan, schedule
        self._before = before  # (K, P)

    @abstractmethod
    def step(self, call: _Call) -> Tensor:
        """Take one step, with a batch for each model; returns the losses."""

    @abstractmethod
    def changes(self) -> Tensor:
        """(K, P) weights now minus before."""


@final
class _Descent(_Models):
    """Models trained by plain gradient steps, which the program takes in place."""

    def __init__(
        self, program: Program, samples: Samples, plan: TrainingPlan, before: Tensor, schedule: _Schedule
    ) -> None:
        super().__init__(program, samples, plan, before, schedule)
        self._arrays = [
            array(program, f"weights {k}", view.shape, view).copy_(view)
            for k, view in enumerate(program.views(before))
        ]

    def step(self, call: _Call) -> Tensor:
        program, spec, where = self._program, self._plan.spec, call.where
        own = [each[where] for each in self._arrays]
        if call.index.shape[1] <= self._plan.piece:
            loss = program.descend(own, *call.batch(self._samples.features), spec.clip, call.rate)
            if isinstance(where, slice):
                return loss
        else:
            weights = joined_rows(own)
            loss, grad = _gradients(program, self._samples, weights, call, self._plan)
            own = program.views(weights.sub_(grad, alpha=call.rate))
        for each, new in zip(self._arrays, own, strict=True):
            each[where] = new
        return loss

    def changes(self) -> Tensor:
        return joined_rows(self._arrays).sub_(self._before)


@final
class _Optimizer(_Models):
    """Models trained with noise, weight decay, momentum or Adam."""

    def __init__(
        self, program: Program, samples: Samples, plan: TrainingPlan, before: Tensor, schedule: _Schedule
    ) -> None:
        super().__init__(program, samples, plan, before, schedule)
        self._weights, kind = before.clone(), plan.spec.optimizer
        self._mean = torch.zeros_like(self._weights) if kind != "sgd" else None
        self._square = torch.zeros_like(self._weights) if kind == "adam" else None
        self._count = torch.zeros(before.shape[0], 1, dtype=torch.float64)

    def step(self, call: _Call) -> Tensor:
        loss, grad = _gradients(self._program, self._samples, self._weights[call.where], call, self._plan)
        if self._plan.noise is not None:
            self._add_noise(grad, call)
        self._move(call.where, call.rate, grad)
        return loss

    def changes(self) -> Tensor:
        return self._weights.sub_(self._before)

    def _add_noise(self, grad: Tensor, call: _Call) -> None:
        """Gaussian noise on the gradients of those jobs that add any."""
        sds, streams = self._schedule.sds, self._schedule.streams
        jobs = range(len(sds))[call.where] if isinstance(call.where, slice) else call.where.tolist()
        noisy = [row for row, k in enumerate(jobs) if sds[k]]
        rows = grad if len(noisy) == len(jobs) else grad[noisy]
        own = [jobs[row] for row in noisy]
        add_noise(rows, [streams[k] for k in own], [sds[k] for k in own])
        if rows is not grad:
            grad[noisy] = rows

    def _move(self, where: Where, rate: float, grad: Tensor) -> None:
        weights, spec = self._weights, self._plan.spec
        if spec.weight_decay:
            grad = grad + spec.weight_decay * weights[where]
        if self._mean is None:
            weights[where] -= rate * grad
            return
        self._count[where] += 1
        if self._square is None:
            mean = spec.momentum * self._mean[where] + grad
            self._mean[where] = mean
            weights[where] -= rate * mean
            return
        mean = 0.9 * self._mean[where] + 0.1 * grad
        square = 0.999 * self._square[where] + 0.001 * grad.square()
        self._mean[where], self._square[where] = mean, square
        t = self._count[where]
        corrected = (square / (1 - 0.999**t).to(square.dtype)).sqrt() + 1e-8
        weights[where] -= (rate / (1 - 0.9**t)).to(mean.dtype) * mean / corrected
