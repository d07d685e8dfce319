"""Local training of a group of clients, step by step, as one program.

A step runs the jobs of the group that still have a batch. Batches of unequal length share a call only if at
most `MOST_PADDING` of what is computed is padding, and padding has weight zero. A batch that would need too
much memory is computed in pieces, whose gradients are added up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bonafed.learning.jobs import Job, LocalTraining, Samples, Update, batches, job_rng, noise
from bonafed.learning.programs import Program, together
from bonafed.learning.workspace import array

MOST_PADDING = 0.125  # share of padding among the samples of one call, at most


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """A round's jobs and how they are put together: the same for whoever trains a group of them."""

    jobs: Sequence[Job]
    groups: Sequence[Sequence[int]]  # of places in `jobs`, those with most steps first
    spec: LocalTraining
    seed: int
    round_number: int
    most: int  # samples of one call
    longest: int  # samples of one batch that are computed at once; at least `most`
    noisy: bool  # whether any job adds noise


class _Run:
    """A job with its batches drawn."""

    __slots__ = ("batches", "job", "place", "rng")

    def __init__(self, place: int, plan: Plan) -> None:
        self.place, self.job = place, plan.jobs[place]
        self.rng = job_rng(plan.seed, plan.round_number, self.job)
        self.batches = batches(self.job, plan.spec, self.rng)


def train_group(
    program: Program, samples: Samples, start: Tensor, plan: Plan, places: Sequence[int]
) -> list[tuple[int, Update]]:
    """The updates of the jobs at these places; `start` is one model (P,), or one per job."""
    group = [_Run(place, plan) for place in places]
    before = start[list(places)] if start.dim() == 2 else start.expand(len(group), -1)
    losses = torch.zeros(len(group), dtype=torch.float64)
    plain = plan.spec.optimizer == "sgd" and not plan.spec.weight_decay and not plan.noisy
    models: _Descent | _Optimizer = (_Descent if plain else _Optimizer)(program, samples, plan, before)
    for step in range(len(group[0].batches)):  # the longest comes first
        active = sum(len(run.batches) > step for run in group)
        for rows in _calls([run.batches[step].size for run in group[:active]], plan.most):
            runs = [group[k] for k in rows]
            where = _as_slice(rows)
            losses[where] += models.step(where, runs, [run.batches[step] for run in runs]).double()
    changes = models.weights().sub_(before)
    return [
        (
            run.place,
            Update(
                run.job.client,
                changes[k],
                float(losses[k]) / len(run.batches),
                len(run.batches),
                len(run.batches) if run.job.noise_multiplier else 0,
            ),
        )
        for k, run in enumerate(group)
    ]


def _calls(lengths: list[int], most: int) -> list[list[int]]:
    """Group jobs for one call each: similar batch lengths, a bounded number of samples."""
    if len(set(lengths)) == 1 and lengths[0] * len(lengths) <= most:
        return [list(range(len(lengths)))]
    calls: list[list[int]] = []
    used = longest = 0
    for k in sorted(range(len(lengths)), key=lambda k: (-lengths[k], k)):
        computed = longest * (len(calls[-1]) + 1) if calls else 0
        if calls and computed <= most and used + lengths[k] >= (1 - MOST_PADDING) * computed:
            calls[-1].append(k)
            used += lengths[k]
        else:
            calls.append([k])
            used = longest = lengths[k]
    return [sorted(call) for call in calls]


def _batch(samples: Samples, parts: list[NDArray[np.int64]]) -> tuple[Tensor, Tensor, Tensor]:
    """Features (K, B, ...), labels (K, B) and importance (K, B) of a batch for each job."""
    index, importance = _padded(parts)
    return _take(samples.features, index), _take(samples.labels, index), importance


def _gradients(
    program: Program, samples: Samples, weights: Tensor, parts: list[NDArray[np.int64]], plan: Plan
) -> tuple[Tensor, Tensor]:
    """Mean losses (K,) and gradients (K, P) of a batch for each job."""
    if parts[0].size <= plan.longest:
        return program.gradients(weights, *_batch(samples, parts), plan.spec.clip)
    whole = parts[0]  # alone in its call
    loss, grad = torch.zeros(1, dtype=torch.float64), torch.zeros_like(weights)
    for first in range(0, whole.size, plan.longest):
        piece = whole[first : first + plan.longest]
        share = piece.size / whole.size
        its_loss, its_grad = program.gradients(weights, *_batch(samples, [piece]), plan.spec.clip)
        loss += share * its_loss.double()
        grad.add_(its_grad, alpha=share)
    return loss, grad


def _take(values: Tensor, index: Tensor) -> Tensor:
    """values[index] for a (K, B) index, copied row by row."""
    rows = array(values, "taken", (index.numel(), *values.shape[1:]), values)
    return torch.index_select(values, 0, index.view(-1), out=rows).view(*index.shape, *values.shape[1:])


def _as_slice(rows: list[int]) -> slice | Tensor:
    """Consecutive rows as a slice, which is a view; others as an index."""
    if rows[-1] - rows[0] + 1 == len(rows):
        return slice(rows[0], rows[-1] + 1)
    return torch.tensor(rows)


def _padded(parts: list[NDArray[np.int64]]) -> tuple[Tensor, Tensor]:
    """(K, B) sample indices and weights; padding repeats the first sample with weight zero."""
    longest = max(part.size for part in parts)
    if all(part.size == longest for part in parts):
        return torch.from_numpy(np.stack(parts)), torch.ones(len(parts), longest)
    index = np.empty((len(parts), longest), dtype=np.int64)
    importance = np.ones((len(parts), longest), dtype=np.float32)
    for k, part in enumerate(parts):
        index[k, : part.size] = part
        index[k, part.size :] = part[0]
        importance[k, part.size :] = 0.0
    return torch.from_numpy(index), torch.from_numpy(importance)


def _add_noise(grad: Tensor, runs: list[_Run], sizes: list[int], spec: LocalTraining) -> None:
    """Gaussian noise of the job's multiplier times the sensitivity 2 clip / batch (theory B5)."""
    if spec.clip is None:
        return
    for k, (run, size) in enumerate(zip(runs, sizes, strict=True)):
        if run.job.noise_multiplier:
            sd = run.job.noise_multiplier * 2 * spec.clip / size
            grad[k] += sd * noise(run.rng, grad[k])


class _Descent:
    """Models that make plain gradient steps; the program makes them in place."""

    def __init__(self, program: Program, samples: Samples, plan: Plan, before: Tensor) -> None:
        self._program, self._samples, self._plan = program, samples, plan
        self._arrays = [
            array(program, f"weights {k}", view.shape, view).copy_(view)
            for k, view in enumerate(program.views(before))
        ]

    def step(self, where: slice | Tensor, runs: list[_Run], parts: list[NDArray[np.int64]]) -> Tensor:
        """One step of the models at these rows, a batch each; their losses."""
        program, spec = self._program, self._plan.spec
        own = [each[where] for each in self._arrays]
        if parts[0].size <= self._plan.longest:
            loss = program.descend(own, *_batch(self._samples, parts), spec.clip, spec.learning_rate)
            if isinstance(where, slice):
                return loss  # a slice is a view, an index a copy
        else:
            weights = together(own)
            loss, grad = _gradients(program, self._samples, weights, parts, self._plan)
            own = program.views(weights.sub_(grad, alpha=spec.learning_rate))
        for each, new in zip(self._arrays, own, strict=True):
            each[where] = new
        return loss

    def weights(self) -> Tensor:
        """(K, P), now."""
        return together(self._arrays)


class _Optimizer:
    """Models that are trained with noise, weight decay, momentum or Adam."""

    def __init__(self, program: Program, samples: Samples, plan: Plan, before: Tensor) -> None:
        self._program, self._samples, self._plan = program, samples, plan
        self._weights, kind = before.clone(), plan.spec.optimizer
        self._mean = torch.zeros_like(self._weights) if kind != "sgd" else None
        self._square = torch.zeros_like(self._weights) if kind == "adam" else None
        self._count = torch.zeros(before.shape[0], 1, dtype=torch.float64)

    def step(self, where: slice | Tensor, runs: list[_Run], parts: list[NDArray[np.int64]]) -> Tensor:
        """One step of the models at these rows, a batch each; their losses."""
        loss, grad = _gradients(self._program, self._samples, self._weights[where], parts, self._plan)
        _add_noise(grad, runs, [part.size for part in parts], self._plan.spec)
        self._move(where, grad)
        return loss

    def weights(self) -> Tensor:
        """(K, P), now."""
        return self._weights

    def _move(self, where: slice | Tensor, grad: Tensor) -> None:
        weights, spec = self._weights, self._plan.spec
        if spec.weight_decay:
            grad = grad + spec.weight_decay * weights[where]
        if self._mean is None:
            weights[where] -= spec.learning_rate * grad
            return
        self._count[where] += 1
        if self._square is None:
            mean = spec.momentum * self._mean[where] + grad
            self._mean[where] = mean
            weights[where] -= spec.learning_rate * mean
            return
        mean = 0.9 * self._mean[where] + 0.1 * grad
        square = 0.999 * self._square[where] + 0.001 * grad.square()
        self._mean[where], self._square[where] = mean, square
        t = self._count[where]
        corrected = (square / (1 - 0.999**t).to(square.dtype)).sqrt() + 1e-8
        weights[where] -= (spec.learning_rate / (1 - 0.9**t)).to(mean.dtype) * mean / corrected
