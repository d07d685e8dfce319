"""Simulated clients that lie: a federation in which some report what they like, and the rest is unchanged.

Whoever lies is not vouched for. A lie sees what the protocol sends the client and its own true gradient
(`agents`); about losses, and when it trains for itself, a client that lies has no reason to deceive itself.
Asked for slopes, it answers those of what it would report at the nodes, unless its lie has a method
`slopes(models, nodes, truth)` of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bonafed.checks import Floats
from bonafed.errors import InvalidValue
from bonafed.learning.federation import (
    Failure,
    Federation,
    Gradients,
    Question,
    Reply,
    Roster,
    Slopes,
    Task,
    Total,
    some_rows,
)
from bonafed.learning.functions import usable_answer
from bonafed.mechanisms.faithful.adversaries.agents import Agent


@dataclass(frozen=True, slots=True, eq=False)
class Deviating:
    """A federation some of whose clients do not report their gradients."""

    honest: Federation
    agents: Mapping[str, Agent]  # by name; some remember what they were asked

    def __post_init__(self) -> None:
        names = self.honest.members.index
        for name in self.agents:
            if name not in names:
                raise InvalidValue("agents", f"must be in 0..{len(names) - 1}", name)

    def __getattr__(self, name: str) -> Any:
        """Everything else is passed on to the honest federation."""
        return getattr(self.honest, name)

    @property
    def members(self) -> Roster:
        """Those of the federation."""
        return self.honest.members

    @property
    def vouched(self) -> Collection[str]:
        """Those that do not lie."""
        return [name for name in self.honest.vouched if name not in self.agents]

    def report(self, question: Question) -> Mapping[str, float]:
        return self.honest.report(question)

    def total(self, tasks: Sequence[Task], shares: Floats, noise: float | Floats = 0.0) -> Total:
        truth = self.honest.total(tasks, shares, noise)
        values, failures = truth.values, dict(truth.failures)
        lying = [row for row, task in enumerate(tasks) if self._lies(task)]
        parts = {row: np.broadcast_to(np.reshape(shares[row], (-1, 1)), (len(values), 1)) for row in lying}
        mine = {row: np.flatnonzero(parts[row]) for row in lying}  # it is asked for its part of a sum only
        asked = {row: some_rows(tasks[row], mine[row]) for row in lying if mine[row].size}
        own = self.honest.replies(list(asked.values()))
        for row, task in asked.items():
            before = own[task.identifier]
            after = self._answer(task, before)
            if isinstance(before, Reply):
                lie = after.values if isinstance(after, Reply) else np.zeros_like(before.values)
                values = values.copy()
                values[mine[row]] += parts[row][mine[row]] * (lie - before.values)
            if isinstance(after, Failure):
                failures[task.identifier] = after
        delivered = tuple(task.identifier not in failures for task in tasks)
        return replace(truth, values=values, delivered=delivered, failures=failures)

    def replies(self, tasks: Sequence[Task]) -> Mapping[str, Reply | Failure]:
        truth = self.honest.replies(tasks)
        return {
            task.identifier: self._answer(task, truth[task.identifier])
            if self._lies(task)
            else truth[task.identifier]
            for task in tasks
        }

    def _lies(self, task: Task) -> bool:
        return task.client in self.agents and isinstance(task.work, Gradients | Slopes)

    def _answer(self, task: Task, truth: Reply | Failure) -> Reply | Failure:
        if isinstance(truth, Failure):
            return truth
        agent = self.agents[task.client]
        try:
            answer: object
            if isinstance(task.work, Slopes):
                aimed = getattr(agent, "slopes", None)  # a lie of its own about slopes
                answer = (
                    self._slopes(task, task.work, agent)
                    if aimed is None
                    else aimed(task.models.copy(), np.asarray(task.work.nodes), truth.values)
                )
                if isinstance(answer, Failure):
                    return answer
            else:
                answer = agent(task.models.copy(), truth.values)
        except OSError as error:  # no answer in time, say: treated like any answer that is not a gradient
            answer = error
        return usable_answer(answer, truth.values.shape, task.models.dtype)

    def _slopes(self, task: Task, work: Slopes, agent: Agent) -> Floats | Failure:
        """The slopes of what the agent would report at the nodes."""
        ways = task.models[-1] - task.models[:-1]
        models = (task.models[:-1, None] + np.asarray(work.nodes)[:, None] * ways[:, None]).reshape(
            -1, task.models.shape[1]
        )
        at_nodes = Task(f"{task.identifier}, at the nodes", task.client, models, Gradients(work.objective))
        truth = self.honest.replies([at_nodes])[at_nodes.identifier]
        if isinstance(truth, Failure):
            return truth
        lie = usable_answer(agent(models.copy(), truth.values), models.shape, models.dtype)
        if isinstance(lie, Failure):
            return lie
        reports = lie.values.reshape(len(ways), -1, ways.shape[1])
        return np.asarray((reports * ways[:, None]).sum(2))
