"""A federation whose samples form a problem: gradients, slopes and losses of all clients as one program.

A sum over clients that are sent the same models is one pass over the samples, however many clients there
are; where they are sent different models, or each is to answer for itself, gradients are computed on each
client's own samples. This is how theory, studies and tests run a protocol, and how the engine answers for
simulated clients.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bonafed.checks import Floats
from bonafed.errors import InvalidValue
from bonafed.learning.federation import (
    AddNoise,
    Alone,
    Failure,
    Gradients,
    Losses,
    Objective,
    Question,
    Reply,
    Roster,
    Slopes,
    Task,
    Total,
    Work,
    answer_shape,
    checked_shares,
    limits_of,
    noisy,
    weighted_sum,
)
from bonafed.learning.problems.convex import Problem
from bonafed.learning.problems.minima import models_alone
from bonafed.learning.problems.softmax import SoftmaxRegression


@dataclass(frozen=True, slots=True, eq=False)
class ProblemFederation:
    """Clients whose samples are in a problem; the regulariser is the problem's, whatever the objective."""

    problem: Problem
    members: Roster
    noise: AddNoise | None = None  # hides records in sums

    @classmethod
    def of(cls, problem: Problem, noise: AddNoise | None = None) -> ProblemFederation:
        """The agents of a problem, named "0", "1", ..."""
        sizes = getattr(problem, "counts", np.ones(problem.agents))
        names = tuple(map(str, range(problem.agents)))
        return cls(problem, Roster(names, np.asarray(sizes, dtype=np.int64)), noise)

    @property
    def vouched(self) -> Collection[str]:
        """Everybody is vouched for: answers are computed here."""
        return self.members.names

    def oracle(self, _objective: Objective, _weights: Floats | None = None) -> Problem:
        """All the samples: for what cannot be computed from answers."""
        return self.problem

    def report(self, question: Question) -> Mapping[str, float]:
        """What simulated clients know about themselves."""
        if question.simulate is None:
            return {}
        values = question.simulate(len(self.members)).tolist()
        return dict(zip(self.members.names, values, strict=True))

    def total(self, tasks: Sequence[Task], shares: Floats, noise: float | Floats = 0.0) -> Total:
        if not tasks:
            return Total(np.zeros((1, self.problem.size)), ())
        work = shared_work(tasks)
        for task in tasks:
            if task.models.shape != tasks[0].models.shape:
                raise InvalidValue("models", "must be equally many for every client", task.identifier)
        values = self._sum(work, tasks, checked_shares(tasks, shares))
        if np.any(noise):
            if self.noise is None:
                raise InvalidValue("noise", "must be 0: this federation has no source of it", noise)
            values = noisy(values, noise, request_text(tasks), tasks[0], self.noise)
        return Total(values, (True,) * len(tasks))

    def replies(self, tasks: Sequence[Task]) -> Mapping[str, Reply | Failure]:
        if not tasks:
            return {}
        work = shared_work(tasks)
        if isinstance(work, Gradients):
            values = [self._gradient(work, task.models, self._mix([task], task.models)) for task in tasks]
        elif isinstance(work, Losses):
            values = [*self._losses(work, tasks)]
        elif isinstance(work, Slopes):
            values = [*self._slopes(work, tasks)]
        else:
            values = self._alone(work, tasks)
        return {task.identifier: Reply(answer) for task, answer in zip(tasks, values, strict=True)}

    def _place(self, task: Task) -> int:
        return self.members.index[task.client]

    def _mix(self, tasks: Sequence[Task], models: Floats, shares: Floats | None = None) -> Floats:
        """(m, K) shares of clients that are sent the same models."""
        mix = np.zeros((models.shape[0], self.problem.agents))
        for row, task in enumerate(tasks):
            mix[:, self._place(task)] += 1.0 if shares is None else shares[row]
        return mix

    def _gradient(self, work: Gradients, models: Floats, mix: Floats) -> Floats:
        if work.clip is None:
            return self.problem.gradient(models, mix)
        return _clipping(self.problem).clipped_gradient(models, mix, work.clip)

    def _sum(
        self, work: Gradients | Losses | Alone | Slopes, tasks: Sequence[Task], shares: Floats
    ) -> Floats:
        """(m, P), (m, 1) or (m - 1, nodes)."""
        models = tasks[0].models
        common = all(task.models is models for task in tasks)
        if isinstance(work, Gradients):
            if common and work.clip is not None and shares.ndim == 2:
                # sums over different clients, one by one: every bit is that of each asked for alone
                rows = zip(models, self._mix(tasks, models, shares), strict=True)
                return np.concatenate([self._gradient(work, row[None], mix[None]) for row, mix in rows])
            if common:
                return self._gradient(work, models, self._mix(tasks, models, shares))
            total = np.zeros((len(models), self.problem.size))
            for row, task in enumerate(tasks):
                total += self._gradient(work, task.models, self._mix([task], task.models, shares[[row]]))
            return total
        if isinstance(work, Losses) and common:
            if work.limit is not None:
                mix = self._mix(tasks, models[1:], shares)
                changes = zip(mix, self._changes(tasks[0]), strict=True)
                return np.array([[float(row @ change)] for row, change in changes])
            mix = self._mix(tasks, models, shares)
            return np.asarray((mix * self.problem.losses(models)).sum(1, keepdims=True))
        if isinstance(work, Losses | Slopes):
            each = self._losses(work, tasks) if isinstance(work, Losses) else self._slopes(work, tasks)
            return weighted_sum(each, shares, answer_shape(tasks[0]))
        raise InvalidValue("work", "must be something that can be added up", type(work).__name__)

    def _losses(self, work: Losses, tasks: Sequence[Task]) -> list[Floats]:
        if work.limit is not None:
            return [
                np.array([[change[self._place(task)]] for change in self._changes(task)]) for task in tasks
            ]
        if all(task.models is tasks[0].models for task in tasks):
            each = self.problem.losses(tasks[0].models)
            return [each[:, [self._place(task)]] for task in tasks]
        return [self.problem.losses_of(task.models, self._place(task))[:, None] for task in tasks]

    def _changes(self, task: Task) -> list[Floats]:
        """(K,) of every row of limited losses: the mean change of every client's."""
        clipping, (first, *later) = _clipping(self.problem), task.models
        each = zip(later, limits_of(task), strict=True)
        return [clipping.clipped_differences(first, second, limit) for second, limit in each]

    def _slopes(self, work: Slopes, tasks: Sequence[Task]) -> Iterator[Floats]:
        """One by one: those of all would be agents times models times nodes."""
        nodes = np.asarray(work.nodes)
        for task in tasks:
            yield self.problem.slopes(task.models[:-1], task.models[-1], nodes, self._place(task))

    def _alone(self, work: Alone, tasks: Sequence[Task]) -> list[Floats]:
        agents = [self._place(task) for task in tasks]
        start = tasks[0].models[0]
        if any(not np.array_equal(task.models[0], start) for task in tasks):
            raise InvalidValue("models", "must be the same for all who train alone", "different ones")
        models = models_alone(
            self.problem,
            work.tolerance,
            steps=work.steps,
            start=start,
            agents=agents,
            rate=work.rate or None,
        )
        return list(models[:, None])


def _clipping(problem: Problem) -> SoftmaxRegression:
    if not isinstance(problem, SoftmaxRegression):
        rule = "must be softmax regression where samples are clipped"
        raise InvalidValue("problem", rule, type(problem).__name__)
    return problem


def shared_work(tasks: Sequence[Task]) -> Gradients | Losses | Alone | Slopes:
    """The work that all tasks have in common."""
    first: Work = tasks[0].work
    if not isinstance(first, Gradients | Losses | Alone | Slopes):
        rule = "must be gradients, slopes, losses or models trained alone, as no round is trained here"
        raise InvalidValue("work", rule, type(first).__name__)
    for task in tasks:
        if task.work != first:
            raise InvalidValue("tasks", "must be of one kind of work", task.identifier)
    return first


def request_text(tasks: Sequence[Task]) -> bytes:
    """Identifier, client and work of every task, as bytes."""
    return repr([(task.identifier, task.client, task.work) for task in tasks]).encode()
