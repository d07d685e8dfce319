"""Local training of all clients of a round as one program.

A job is one client's local training in one round (a client drawn twice has two jobs). Jobs are independent,
so the engine is free to run them in any grouping; what a job computes does not depend on it:

    (1) the order of a job's samples and its noise come from a generator seeded by (seed, round, client,
        copy) and nothing else;
    (2) a group holds jobs of similar size, as many as are worth computing at once; which ones depends on
        the jobs alone, not on threads or order. A step runs those that still have a batch; batches of
        unequal length share a call only if at most `MOST_PADDING` of what is computed is padding, and
        padding has weight zero;
    (3) updates are added up in the order of the jobs, one by one, in double precision.

Groups run on a pool of threads, each of which computes single-threaded. Memory grows with threads, not
with clients, but for the updates themselves, which wait for their turn in the sum.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bonafed import checks
from bonafed.errors import BonafedError, InvalidValue
from bonafed.learning.programs import Program
from bonafed.learning.workspace import array, reused_memory, start_reuse

Optimizer = Literal["sgd", "momentum", "adam"]
MOST_PADDING = 0.125  # share of padding among the samples of one call, at most
GROUP_BYTES = 256 << 20  # of parameters, gradients and optimizer state per thread


class BadUpdate(BonafedError):
    """A client's update is not finite; says which client and round."""

    def __init__(self, client: int, round_number: int) -> None:
        self.client, self.round_number = client, round_number
        super().__init__(
            f"update of client {client} in round {round_number} must be finite, got NaN or inf"
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
        checks.positive("learning_rate", self.learning_rate)
        checks.literal("optimizer", self.optimizer, Optimizer)
        checks.between("momentum", self.momentum, 0.0, 1.0)
        checks.non_negative("weight_decay", self.weight_decay)
        if (self.epochs is None) == (self.steps is None):
            raise InvalidValue("epochs", "or steps must be given, not both", (self.epochs, self.steps))
        if self.epochs is not None:
            checks.whole("epochs", self.epochs)
        if self.steps is not None:
            checks.whole("steps", self.steps)
        if self.clip is not None:
            checks.positive("clip", self.clip)


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
    """The only source of randomness of a job."""
    return np.random.default_rng(np.random.SeedSequence((seed, round_number, job.client, job.copy)))


def batches(job: Job, spec: LocalTraining, rng: np.random.Generator) -> list[NDArray[np.int64]]:
    """The sample indices of each step of a job."""
    n, size = job.samples.size, spec.batch_size
    found: list[NDArray[np.int64]] = []
    passes = spec.epochs if spec.epochs is not None else math.ceil((spec.steps or 0) / math.ceil(n / size))
    for _ in range(passes):
        order = job.samples[rng.permutation(n)]
        found += [order[start : start + size] for start in range(0, n, size)]
    return found if spec.steps is None else found[: spec.steps]


@dataclass(frozen=True, slots=True, eq=False)
class Samples:
    """All samples of all clients, as tensors."""

    features: Tensor  # (n, ...)
    labels: Tensor  # (n,)


def run_jobs(
    program: Program,
    start: Tensor,
    samples: Samples,
    jobs: Sequence[Job],
    spec: LocalTraining,
    *,
    seed: int,
    round_number: int,
    threads: int = 1,
    group_bytes: int = GROUP_BYTES,
) -> Iterator[Update]:
    """Run the jobs; yields their updates in the order of the jobs.

    `start` is one model (P,) for all, or one model per job (len(jobs), P). Each thread holds at most
    `group_bytes` of parameters, gradients and optimizer state at a time (one job, if a job needs more).
    """
    if not jobs:
        return
    for job in jobs:
        if job.samples.size == 0:
            raise InvalidValue(f"client {job.client} in round {round_number}", "must have samples", 0)
        if job.noise_multiplier and spec.clip is None:
            raise InvalidValue("clip", "must be given where noise is added", None)
    _require_labels(program, start, samples, jobs, round_number)
    runs = [_Run(k, job, spec, seed, round_number) for k, job in enumerate(jobs)]
    runs.sort(key=lambda run: (-len(run.batches), -run.job.samples.size, run.job.client, run.job.copy))
    copies = {"sgd": 3, "momentum": 4, "adam": 5}[spec.optimizer]
    most = program.samples_per_call(samples.features[0], spec.clip is not None)
    longest = min(spec.batch_size, max(job.samples.size for job in jobs))
    size = max(1, min(most // longest, group_bytes // (copies * 4 * program.size)))
    groups = _in_groups(runs, size)

    def train(group: list[_Run]) -> list[tuple[int, Update]]:
        return _train_group(program, start, samples, group, spec, most)

    with single_threaded():
        if threads == 1 or len(groups) == 1:
            with reused_memory():
                done = dict(item for group in groups for item in train(group))
        else:
            with ThreadPoolExecutor(threads, initializer=start_reuse) as pool:
                done = dict(item for part in pool.map(train, groups) for item in part)
    for place in range(len(jobs)):
        yield done.pop(place)


def _in_groups(runs: list[_Run], most: int) -> list[list[_Run]]:
    """Groups of at most so many, about equal, an even number of them: two cores finish together."""
    count = math.ceil(len(runs) / most)
    count += count > 1 and count % 2
    count = min(count, len(runs))
    return [runs[len(runs) * k // count : len(runs) * (k + 1) // count] for k in range(count)]


@contextmanager
def single_threaded() -> Iterator[None]:
    """Inside, every PyTorch call computes on one thread, so that digits do not depend on the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _require_labels(
    program: Program, start: Tensor, samples: Samples, jobs: Sequence[Job], round_number: int
) -> None:
    """Classes the model has an output for; names the client that holds another."""
    if program.loss != "cross-entropy":
        return
    with torch.no_grad():
        classes = program.outputs(start.view(-1, program.size)[:1], samples.features[None, :1]).shape[2]
    labels = samples.labels
    if int(labels.min()) >= 0 and int(labels.max()) < classes:
        return
    for job in jobs:
        mine = labels[torch.from_numpy(job.samples)]
        bad = mine[(mine < 0) | (mine >= classes)]
        if bad.numel():
            name = f"label of client {job.client} in round {round_number}"
            raise InvalidValue(name, f"must be in 0..{classes - 1}", int(bad[0]))


class _Run:
    """A job with its batches drawn."""

    __slots__ = ("batches", "job", "noise", "place")

    def __init__(self, place: int, job: Job, spec: LocalTraining, seed: int, round_number: int) -> None:
        rng = job_rng(seed, round_number, job)
        self.place, self.job = place, job
        self.batches = batches(job, spec, rng)
        self.noise = (
            torch.Generator().manual_seed(int(rng.integers(2**63))) if job.noise_multiplier else None
        )


def _train_group(
    program: Program, start: Tensor, samples: Samples, group: list[_Run], spec: LocalTraining, most: int
) -> list[tuple[int, Update]]:
    places = [run.place for run in group]
    before = start[places] if start.dim() == 2 else start.expand(len(group), -1)
    weights = before.clone()
    state = _OptimizerState(weights, spec)
    losses = torch.zeros(len(group), dtype=torch.float64)
    plain = (
        spec.optimizer == "sgd"
        and not spec.weight_decay
        and not any(run.job.noise_multiplier for run in group)
    )
    for step in range(len(group[0].batches)):  # the longest comes first
        active = sum(len(run.batches) > step for run in group)
        lengths = [group[k].batches[step].size for k in range(active)]
        for rows in _calls(lengths, most):
            index, importance = _padded([group[k].batches[step] for k in rows])
            where = _as_slice(rows)
            x, y = _take(samples.features, index), _take(samples.labels, index)
            if plain:
                current = weights[where]
                loss = program.descend(current, x, y, importance, spec.clip, spec.learning_rate)
                if not isinstance(where, slice):  # a slice is a view, an index a copy
                    weights[where] = current
            else:
                loss, grad = program.gradients(weights[where], x, y, importance, spec.clip)
                _add_noise(grad, [group[k] for k in rows], importance, spec)
                state.step(weights, where, grad)
            losses[where] += loss.double()
    weights -= before
    return [
        (
            run.place,
            Update(
                run.job.client,
                weights[k],
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


def _add_noise(grad: Tensor, runs: list[_Run], importance: Tensor, spec: LocalTraining) -> None:
    """Gaussian noise of the job's multiplier times the sensitivity 2 clip / batch (theory B5)."""
    if spec.clip is None:
        return
    sizes = importance.sum(1)
    for k, run in enumerate(runs):
        if run.job.noise_multiplier:
            sd = run.job.noise_multiplier * 2 * spec.clip / float(sizes[k])
            grad[k] += sd * torch.randn(grad.shape[1], generator=run.noise)


class _OptimizerState:
    """Momentum or Adam state of a group of jobs; plain SGD keeps none."""

    def __init__(self, weights: Tensor, spec: LocalTraining) -> None:
        self._spec = spec
        self._mean = torch.zeros_like(weights) if spec.optimizer != "sgd" else None
        self._square = torch.zeros_like(weights) if spec.optimizer == "adam" else None
        self._count = torch.zeros(weights.shape[0], 1, dtype=torch.float64)

    def step(self, weights: Tensor, where: slice | Tensor, grad: Tensor) -> None:
        spec = self._spec
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
