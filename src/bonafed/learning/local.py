"""A federation on this machine: all tasks of a round as one program.

The samples of all clients are here, below the seam; `members` says about them what a real federation would
reveal. Answers are computed from each client's own samples, so everybody is vouched for.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import TracebackType

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bonafed.checks import Floats
from bonafed.errors import InvalidValue, MissingValue
from bonafed.learning.data.partition import owners
from bonafed.learning.engine.crew import Crew
from bonafed.learning.engine.jobs import Job, Samples, Update
from bonafed.learning.engine.programs import Program
from bonafed.learning.engine.resources import single_threaded
from bonafed.learning.engine.training import try_jobs
from bonafed.learning.federation import (
    NOT_FINITE,
    Failure,
    Models,
    Objective,
    Question,
    Reply,
    Roster,
    Task,
    Total,
    Train,
    checked_noise,
    checked_shares,
)
from bonafed.learning.noise import Secret, Source, digest
from bonafed.learning.privacy import Release
from bonafed.learning.problems.convex import Problem, RidgeRegression, scaled_features, shortened_features
from bonafed.learning.problems.federation import ProblemFederation, request_text
from bonafed.learning.problems.modules import ModuleProblem
from bonafed.learning.problems.softmax import SoftmaxRegression
from bonafed.learning.work import sampling_rate

TaskUpdate = tuple[int, Job, Update]  # the place of the task, its job, and the update it led to


@dataclass(frozen=True, slots=True, eq=False)
class EngineFederation:
    """Clients whose samples are on this machine; as a context, it ends its crew of processes when left."""

    members: Roster
    program: Program
    samples: Samples  # of all clients
    parts: Sequence[NDArray[np.int64]]  # (N,) which of them are each client's
    noise: Source = field(default_factory=Secret.fresh)  # of the noise that hides their records
    cores: int = 1
    # (N,) what randomness and releases know each client by; None: its place in `members`
    numbers: Sequence[int] | None = None
    crew: Crew = field(init=False)
    _problems: dict[Objective, Problem] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        if len(self.parts) != len(self.members):
            raise InvalidValue("parts", f"must be {len(self.members)}, one per client", len(self.parts))
        object.__setattr__(self, "crew", Crew(self.program, self.samples, self.cores))

    @property
    def vouched(self) -> Collection[str]:
        """Everybody is vouched for: answers are computed here."""
        return self.members.names

    def with_noise(self, noise: Source) -> EngineFederation:
        """The same clients with another source of noise."""
        return replace(self, noise=noise)

    def report(self, question: Question) -> Mapping[str, float]:
        """What simulated clients know about themselves."""
        if question.simulate is None:
            rule = "are required: simulated clients do not know their own"
            raise MissingValue(f"reports of {question.name}", rule)
        values = question.simulate(len(self.members)).tolist()
        return dict(zip(self.members.names, values, strict=True))

    def oracle(self, objective: Objective, weights: Floats | None = None) -> Problem:
        """All the samples as a problem: for what cannot be computed from answers."""
        if objective not in self._problems:
            self._problems[objective] = self._problem(objective)
        problem = self._problems[objective]
        if weights is None or np.array_equal(weights, problem.weights):
            return problem
        return problem.weighted(weights)

    def class_shares(self) -> Floats | None:
        """(N, classes) shares in every client's samples; None for real targets. For simulations only."""
        classes = self.members.classes
        if not classes:
            return None
        labels = self.samples.labels.numpy()
        counts = [np.bincount(labels[part], minlength=classes) for part in self.parts]
        return np.asarray(np.array(counts) / np.array([part.size for part in self.parts])[:, None])

    def _problem(self, objective: Objective) -> Problem:
        """The samples of all clients as a problem in which every client weighs the same."""
        rows, owner = _owners(self.parts, len(self.samples.labels))
        if objective.kind == "module":
            some = self.samples
            if rows is not None:
                some = Samples(some.features[rows], some.labels[rows])
            return ModuleProblem(
                self.program, some, owner, objective.regulariser, 1.0, loss=self.program.loss
            )
        features, labels = self.samples.features.numpy(), self.samples.labels.numpy()
        if rows is not None:
            features, labels = features[rows], labels[rows]
        if objective.shorten:
            features = shortened_features(features)
        x, _ = scaled_features(features, objective.scale)
        if self.members.classes:
            return SoftmaxRegression(
                x, labels, owner, self.members.classes, objective.regulariser, longest=1.0
            )
        targets = np.asarray(labels, dtype=np.float64).ravel()
        return RidgeRegression(x, targets, owner, objective.regulariser)

    def _answering(self, tasks: Sequence[Task]) -> ProblemFederation:
        """The federation that answers tasks without training."""
        work = tasks[0].work
        assert not isinstance(work, Train)
        return ProblemFederation(self.oracle(work.objective), self.members, self.noise.noisy)

    @single_threaded()
    def total(self, tasks: Sequence[Task], shares: Floats, noise: float | Floats = 0.0) -> Total:
        if not tasks:
            return Total(np.zeros((1, self.program.size)), ())
        shares = checked_shares(tasks, shares)
        if not isinstance(tasks[0].work, Train):
            return self._answering(tasks).total(tasks, shares, noise)
        sd = float(checked_noise(tasks[0], noise)[0])  # of the only row
        if sd:
            _require_bare(tasks)
        updates, failures = self._train(tasks)
        change = self._sum(updates, shares)
        if not _finite(change):  # then some update is not; checking each one every time would take longer
            bad = {task_number for task_number, _, update in updates if not _finite(update.change)}
            failures |= dict.fromkeys(bad, NOT_FINITE)
            change = self._sum([answer for answer in updates if answer[0] not in bad], shares)
        values = self._hidden(change.numpy()[None], sd, tasks, shares) if sd else change.numpy()[None]
        losses = [update.loss for task_number, _, update in updates if task_number not in failures]
        return Total(
            values,
            tuple(task_number not in failures for task_number in range(len(tasks)))
            if failures
            else (True,) * len(tasks),
            {tasks[task_number].identifier: failure for task_number, failure in sorted(failures.items())},
            sum(losses) / len(losses) if losses else math.nan,
            sum(update.steps for _, _, update in updates),
            tuple(
                _release(tasks[task_number], job, update)
                for task_number, job, update in updates
                if update.releases
            ),
        )

    @single_threaded()
    def replies(self, tasks: Sequence[Task]) -> Mapping[str, Reply | Failure]:
        if not tasks:
            return {}
        if not isinstance(tasks[0].work, Train):
            return self._answering(tasks).replies(tasks)
        updates, failures = self._train(tasks)
        replies: dict[str, Reply | Failure] = {
            tasks[task_number].identifier: failure for task_number, failure in failures.items()
        }
        for task_number, job, update in updates:
            answer: Reply | Failure = NOT_FINITE
            if _finite(update.change):
                values: Models = update.change.numpy()[None]
                releases = (_release(tasks[task_number], job, update),) if update.releases else ()
                answer = Reply(values, update.loss, update.steps, releases)
            replies[tasks[task_number].identifier] = answer
        return replies

    def _train(self, tasks: Sequence[Task]) -> tuple[list[TaskUpdate], dict[int, Failure]]:
        """Place, job and update of each task that could be trained, and why the others could not."""
        work = _shared_work(tasks)
        indices, jobs = self._jobs(tasks)
        answers = try_jobs(
            self.crew, _start(tasks, indices), jobs, work.training,
            seed=work.seed, round_number=work.round_number, noise=self.noise,
        )  # fmt: skip
        updates, failures = list[TaskUpdate](), dict[int, Failure]()
        for task_number, job, answer in zip(indices, jobs, answers, strict=True):
            if isinstance(answer, Update):
                updates.append((task_number, job, answer))
            else:
                failures[task_number] = Failure(f"{answer.rule}, got {answer.value}")
        return updates, failures

    def _jobs(self, tasks: Sequence[Task]) -> tuple[Sequence[int], Sequence[Job]]:
        """The place of each task, and its job, by client: the sum does not depend on who is asked first."""
        index, jobs = self.members.index, list[Job]()
        numbers = range(len(self.members)) if self.numbers is None else self.numbers
        for task in tasks:
            client, work = index.get(task.client), task.work
            if client is None:
                raise InvalidValue("clients", "must be in the federation", repr(task.client))
            assert isinstance(work, Train)  # `_shared_work` refuses the others
            jobs.append(Job(numbers[client], self.parts[client], work.copy, work.noise_multiplier))
        if all(before.client < after.client for before, after in pairwise(jobs)):
            return range(len(jobs)), jobs
        indices = sorted(
            range(len(jobs)), key=lambda task_number: (jobs[task_number].client, jobs[task_number].copy)
        )
        return indices, [jobs[task_number] for task_number in indices]

    def _hidden(self, values: Floats, sd: float, tasks: Sequence[Task], shares: Floats) -> Floats:
        """A sum with noise that is keyed by everything it depends on, whoever is missing in it."""
        work, model = _shared_work(tasks), _start(tasks, range(len(tasks)))
        text = request_text(tasks) + digest(model) + shares.tobytes() + self.crew.digest_of_samples
        own = b"".join(part.astype(np.int64).tobytes() for part in self.parts)
        before = (work.round_number - 1) * values.size
        return self.noise.noisy(values, sd, text + hashlib.sha256(own).digest(), before)

    def _sum(self, answers: Sequence[TaskUpdate], shares: Floats) -> Tensor:
        """Changes times shares, added one by one in double precision."""
        total, alphas = torch.zeros(self.program.size, dtype=torch.float64), shares.ravel().tolist()
        for task_number, _, update in answers:
            total.add_(update.change, alpha=alphas[task_number])
        return total

    def __enter__(self) -> EngineFederation:
        self.crew.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.crew.__exit__(kind, error, trace)


def _owners(
    parts: Sequence[NDArray[np.int64]], samples: int
) -> tuple[NDArray[np.int64] | None, NDArray[np.int64]]:
    """The samples that somebody holds (None: all, in their order) and the client of each."""
    indices = np.concatenate(parts)
    if indices.size == samples and np.array_equal(np.sort(indices), np.arange(samples)):
        return None, owners(list(parts))
    return indices, np.repeat(np.arange(len(parts)), [part.size for part in parts])


def _shared_work(tasks: Sequence[Task]) -> Train:
    """The work of all tasks, which may differ only in copies and noise: one program, one kind of work."""
    first = tasks[0].work
    if not isinstance(first, Train):
        raise InvalidValue("work", "must be local training", type(first).__name__)
    same, models = (first.training, first.round_number, first.seed), None
    for task in tasks:
        work = task.work
        if work is not first and (
            not isinstance(work, Train) or (work.training, work.round_number, work.seed) != same
        ):
            raise InvalidValue("tasks", "must be of one kind of work", task.identifier)
        if task.models is not models:
            models = task.models
            if models.shape[0] != 1:
                raise InvalidValue("models", "must be one for local training", models.shape[0])
    return first


def _require_bare(tasks: Sequence[Task]) -> None:
    """Noise on a sum hides steps that are clipped, one each, and have no noise of their own."""
    for task in tasks:
        work = task.work
        assert isinstance(work, Train)  # `_shared_work` refuses the others
        if work.noise_multiplier:
            rule = "must be 0 where the sum has noise"
            raise InvalidValue("noise_multiplier", rule, work.noise_multiplier)
        if work.training.clip is None:
            raise MissingValue("clip", "is required where noise is added")


def _start(tasks: Sequence[Task], indices: Sequence[int]) -> Tensor:
    """(P,) one model for all, or (tasks, P) one for each."""
    first = tasks[0].models
    if all(task.models is first for task in tasks):
        return torch.from_numpy(np.array(first[0]))
    return torch.from_numpy(np.concatenate([tasks[task_number].models for task_number in indices]))


def _release(task: Task, job: Job, update: Update) -> Release:
    """What the update gave away, whether or not it can be used."""
    work = task.work
    assert isinstance(work, Train)
    rate = sampling_rate(job.samples.size, work.training)
    return Release(job.client, work.round_number, job.noise_multiplier, update.releases, update.steps, rate)


def _finite(change: Tensor) -> bool:
    """Whether all numbers are finite; one pass, as a sum of singles cannot overflow a double."""
    return math.isfinite(float(change.sum(dtype=torch.float64)))
