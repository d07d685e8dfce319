"""Agents that try to gain by reporting something other than their gradient, and a federation with them.

An agent is a function (models (m, P), true gradients (m, P)) -> reports (m, P), or None for no report: it
sees what the protocol sends it and its own data, nothing else. Each function below makes one; `collude`
makes two that act together. They fit `faithful(..., agents={number: agent})`, and any mechanism that asks
for gradients. Asked for slopes, an agent answers those of what it would report there; `OnTheWay` answers
something else.

`Deviating` is a federation in which some clients are such agents and the others answer as before. Whoever
deviates is not vouched for. About losses, and when it trains for itself, an agent has no reason to deceive
itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import scipy

from bonafed import checks
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
from bonafed.learning.function_federation import usable_answer
from bonafed.learning.problems.convex import Problem
from bonafed.mechanisms.deviations import Deviation, parse_deviation

Agent = Callable[[Floats, Floats], Floats | None]  # None: no report


def truthful(_models: Floats, gradients: Floats) -> Floats:
    """Reports its gradient as it is."""
    return gradients


def amplify(factor: float) -> Agent:
    """Reports its gradient times a factor: above 1 it pulls the model towards its own data."""
    gamma = checks.number("factor", factor)
    return lambda _models, gradients: gamma * gradients


def shrink(factor: float) -> Agent:
    """Reports a part of its gradient."""
    return amplify(checks.between("factor", factor, 0.0, 1.0))


def flip_sign() -> Agent:
    """Reports the opposite of its gradient."""
    return amplify(-1.0)


def free_ride() -> Agent:
    """Reports zeros, whatever the model."""
    return lambda _models, gradients: np.zeros_like(gradients)


class _Stale:
    """Repeats its first report."""

    def __init__(self) -> None:
        self._first: Floats | None = None

    def __call__(self, _models: Floats, gradients: Floats) -> Floats:
        if self._first is None:
            self._first = gradients[:1].copy()
        return np.repeat(self._first, gradients.shape[0], axis=0)


def stale() -> Agent:
    """Computes one gradient and reports it forever."""
    return _Stale()


def add_noise(scale: float, rng: np.random.Generator) -> Agent:
    """Adds Gaussian noise of `scale` times the norm of its gradient."""
    size = checks.non_negative("scale", scale)

    def report(_models: Floats, gradients: Floats) -> Floats:
        noise = rng.standard_normal(gradients.shape) / np.sqrt(gradients.shape[1])
        return np.asarray(gradients + size * np.linalg.norm(gradients, axis=1, keepdims=True) * noise)

    return report


class _Alternate:
    def __init__(self, factor: float) -> None:
        self._factor, self._requests = factor, 0

    def __call__(self, _models: Floats, gradients: Floats) -> Floats:
        self._requests += 1
        return gradients if self._requests % 2 else self._factor * gradients


def alternate(factor: float) -> Agent:
    """Reports its gradient, then its gradient times a factor, and so on."""
    return _Alternate(checks.number("factor", factor))


def huge(size: float) -> Agent:
    """Reports this number in every place."""
    number = checks.number("size", size)
    return lambda _models, gradients: np.full_like(gradients, number)


def random_numbers(scale: float, rng: np.random.Generator) -> Agent:
    """Reports Gaussian numbers of this standard deviation, whatever the model."""
    size = checks.non_negative("scale", scale)
    return lambda _models, gradients: size * rng.standard_normal(gradients.shape)


def on_other_data(problem: Problem, number: int) -> Agent:
    """Reports the gradient of agent `number` of another problem, e.g. with its labels flipped."""
    mix = _one(problem, number)
    return lambda models, _gradients: problem.gradient(models, np.tile(mix, (models.shape[0], 1)))


def copy_of(problem: Problem, other: int) -> Agent:
    """Reports another agent's gradient as its own; it must have seen that agent's data."""
    return on_other_data(problem, other)


class _DropOut:
    def __init__(self, after: int) -> None:
        self._left = after

    def __call__(self, _models: Floats, gradients: Floats) -> Floats | None:
        self._left -= 1
        return gradients if self._left >= 0 else None


def drop_out(after: int) -> Agent:
    """Truthful for so many requests, then silent."""
    return _DropOut(checks.whole("after", after, at_least=0))


class _Later:
    def __init__(self, first: Agent, then: Agent, after: int) -> None:
        self._first, self._then, self._left = first, then, after

    def __call__(self, models: Floats, gradients: Floats) -> Floats | None:
        self._left -= 1
        return (self._first if self._left >= 0 else self._then)(models, gradients)


def later(first: Agent, then: Agent, after: int) -> Agent:
    """Does one thing for so many requests, another from then on."""
    return _Later(first, then, checks.whole("after", after, at_least=0))


def bend(curvature: float) -> Agent:
    """Adds the gradient of curvature/2 |w|^2: its loss seems to bend that much more than it does."""
    size = checks.number("curvature", curvature)
    return lambda models, gradients: gradients + size * models


def per_trial(factor: float) -> Agent:
    """Reports its gradient at the first model of every message, and this multiple at the others."""
    gamma = checks.number("factor", factor)
    return lambda _models, gradients: np.concatenate([gradients[:1], gamma * gradients[1:]])


def circulate(speed: float) -> Agent:
    """Adds a field that is the gradient of nothing: it turns models round, pair by pair of parameters."""
    size = checks.number("speed", speed)

    def report(models: Floats, gradients: Floats) -> Floats:
        pairs = models.shape[1] // 2 * 2
        turned = np.zeros_like(models)
        turned[:, 0:pairs:2], turned[:, 1:pairs:2] = models[:, 1:pairs:2], -models[:, 0:pairs:2]
        return np.asarray(gradients + size * turned)

    return report


@dataclass(frozen=True, slots=True)
class OnTheWay:
    """Reports as another agent does, and makes something else of its slopes along a way."""

    agent: Agent
    lie: Callable[[Floats, Floats], Floats]  # nodes (t,), true slopes (m, t) -> what it answers instead

    def __call__(self, models: Floats, gradients: Floats) -> Floats | None:
        """What the other reports."""
        return self.agent(models, gradients)

    def slopes(self, _models: Floats, nodes: Floats, truth: Floats) -> Floats:
        """What it answers along the ways."""
        return self.lie(nodes, truth)


def inflate_slopes(factor: float) -> Agent:
    """Reports its gradient, and its slopes times a factor."""
    gamma = checks.number("factor", factor)
    return OnTheWay(truthful, lambda _nodes, slopes: gamma * slopes)


def collude(problem: Problem, first: int, second: int, factor: float = 1.0) -> dict[int, Agent]:
    """Two agents that both report the gradient of their joint loss, times a factor."""
    if first == second:
        raise InvalidValue("second", "must be another agent", second)
    gamma = checks.number("factor", factor)
    mix = (_one(problem, first) + _one(problem, second)) / 2

    def report(models: Floats, _gradients: Floats) -> Floats:
        return gamma * problem.gradient(models, np.tile(mix, (models.shape[0], 1)))

    return {first: report, second: report}


def _one(problem: Problem, number: int) -> Floats:
    if not 0 <= number < problem.agents:
        raise InvalidValue("agent", f"must be in 0..{problem.agents - 1}", number)
    return problem.one(number)


class BestResponse(NamedTuple):
    """The factor an agent would choose."""

    factor: float
    overall_loss: float  # at that factor
    gain: float  # over reporting the truth, in units of loss; not above the search's tolerance if faithful


def best_response(
    overall_loss: Callable[[float], float], low: float = 0.25, high: float = 10.0, points: int = 9
) -> BestResponse:
    """The best factor in [low, high]: a geometric grid, then Brent's search around its best point."""
    bottom, top = checks.positive("low", low), checks.positive("high", high)
    if bottom >= top:
        raise InvalidValue("low", f"must be below high = {top:g}", bottom)
    grid = np.unique(np.append(np.geomspace(bottom, top, checks.whole("points", points, 3)), 1.0))
    grid = grid[(grid >= bottom) & (grid <= top)]
    values = [overall_loss(float(g)) for g in grid]
    at = int(np.argmin(values))
    a, b = float(grid[max(at - 1, 0)]), float(grid[min(at + 1, grid.size - 1)])
    best, factor = min(values), float(grid[at])
    within = scipy.optimize.minimize_scalar(
        overall_loss, bounds=(a, b), method="bounded", options={"xatol": 1e-3 * b}
    )
    if within.fun < best:
        best, factor = float(within.fun), float(within.x)
    truth = overall_loss(1.0)
    return BestResponse(factor, best, truth - best)


_KINDS: dict[str, tuple[str, Callable[[float, Problem, np.random.Generator], Agent]]] = {
    "amplify": ("FACTOR", lambda x, _problem, _rng: amplify(x)),
    "shrink": ("FACTOR", lambda x, _problem, _rng: shrink(x)),
    "flip-sign": ("", lambda _x, _problem, _rng: flip_sign()),
    "free-ride": ("", lambda _x, _problem, _rng: free_ride()),
    "stale": ("", lambda _x, _problem, _rng: stale()),
    "add-noise": ("SCALE", lambda x, _problem, rng: add_noise(x, rng)),
    "alternate": ("FACTOR", lambda x, _problem, _rng: alternate(x)),
    "huge": ("SIZE", lambda x, _problem, _rng: huge(x)),
    "random": ("SCALE", lambda x, _problem, rng: random_numbers(x, rng)),
    "bend": ("CURVATURE", lambda x, _problem, _rng: bend(x)),
    "per-trial": ("FACTOR", lambda x, _problem, _rng: per_trial(x)),
    "circulate": ("SPEED", lambda x, _problem, _rng: circulate(x)),
    "inflate-slopes": ("FACTOR", lambda x, _problem, _rng: inflate_slopes(x)),
    "copy": ("AGENT", lambda x, problem, _rng: copy_of(problem, checks.whole("agent", x, at_least=0))),
    "drop-out": ("REQUESTS", lambda x, _problem, _rng: drop_out(checks.whole("requests", x, at_least=0))),
}  # what follows the kind, and its maker


def agent_kind(name: str, text: object) -> Deviation:
    """Agent, kind and argument of a text such as "3 amplify 5"; refused under `name`."""
    return parse_deviation(
        name, text, {kind: follows for kind, (follows, _) in _KINDS.items()}, "3 amplify 5"
    )


def agents_from(texts: Sequence[str], problem: Problem, rng: np.random.Generator) -> dict[int, Agent]:
    """Deviating agents from texts such as "3 amplify 5"; noise comes from one stream per agent."""
    agents = {}
    for text, stream in zip(texts, rng.spawn(len(texts)), strict=True):
        number, kind, argument = agent_kind("agents", text)
        if number >= problem.agents:
            raise InvalidValue("agents", f"must be numbered 0..{problem.agents - 1}", repr(text))
        if kind == "copy" and argument == number:
            raise InvalidValue("agents", "must copy another agent", repr(text))
        agents[number] = _KINDS[kind][1](argument, problem, stream)
    return agents


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
        # each is asked for its part of a sum only
        rows_of = {row: np.flatnonzero(parts[row]) for row in lying}
        own_tasks = {row: some_rows(tasks[row], rows_of[row]) for row in lying if rows_of[row].size}
        own = self.honest.replies(list(own_tasks.values()))
        for row, task in own_tasks.items():
            before = own[task.identifier]
            after = self._answer(task, before)
            if isinstance(before, Reply):
                lie = after.values if isinstance(after, Reply) else np.zeros_like(before.values)
                values = values.copy()
                values[rows_of[row]] += parts[row][rows_of[row]] * (lie - before.values)
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
