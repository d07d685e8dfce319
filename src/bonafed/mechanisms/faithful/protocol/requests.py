"""Asking the agents: weighted sums of reports, reports one by one, slopes on the way between models.

The server asks a federation (`learning.federation`) and holds no sample; all it knows of the losses is
what was agreed on (`Agreed`). Agents see only the models they are sent.

An agent that gives no answer is one whose report is no gradient: the error names it, or it is left out and
stays out, as what follows is made without it. Trying again is for the federation to do. If nobody at all
answers, that is no agent's fault: asking failed as a whole, and the protocol can go on from there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from bonafed.checks import Floats
from bonafed.errors import AskFailed, BadReport, Diverged, InvalidValue, MissingValue, UnusableReport
from bonafed.learning.federation import Failure, Federation, Gradients, Objective, Reply, Slopes, Task
from bonafed.learning.problems.agreed import Agreed, Members
from bonafed.learning.problems.convex import Ints, Problem
from bonafed.learning.problems.federation import ProblemFederation
from bonafed.mechanisms.faithful.adversaries.agents import Agent, Deviating
from bonafed.mechanisms.faithful.protocol.reports import Hearing, Request, Watch

CheckSlopes = Callable[[int, Ints, Floats], None]  # agent, its rows, its answer: refuses it, or not


def federation_of(problem: Agreed, agents: Mapping[int, Agent] | None = None) -> Federation:
    """The agents of a problem that holds their samples; some of them deviate."""
    if not isinstance(problem, Problem):
        raise MissingValue("federation", "is required where the problem holds no samples")
    for k in agents or ():
        if not 0 <= k < problem.agents:
            raise InvalidValue("agents", f"must be in 0..{problem.agents - 1}", k)
    return deviating(ProblemFederation.of(problem), agents)


def deviating(federation: Federation, agents: Mapping[int, Agent] | None) -> Federation:
    """The federation with agents, by number, that do not follow the protocol."""
    if not agents:
        return federation
    names = federation.members.names
    return Deviating(federation, {names[k]: agent for k, agent in agents.items()})


class Aggregation:
    """Weighted sums over agents, asked of a federation.

    Of agents that are vouched for only the sum is asked for: there a deployment puts its secure
    aggregation. The others are asked for their reports, which are checked (`watch`): what leaves is the
    number of an agent and what is wrong, not its report. Sums of ciphertexts cannot be formed and checked
    so: there the check belongs beside the agent, where its report is still in the open, in code that it
    cannot change or with a proof. Sums alone tell that somebody deviates, never who, and asking for two
    that differ by one agent would be asking for its report.
    """

    def __init__(
        self,
        problem: Agreed,
        agents: Mapping[int, Agent] | None = None,
        watch: Watch | Hearing | None = None,
        *,
        federation: Federation | None = None,
        objective: Objective | None = None,
        label: str = "",
    ) -> None:
        """Without a `federation` the problem's own samples answer, and `agents` holds who deviates.

        With one, the problem is what its clients agreed on, or `Members` of that. `label` tells these
        questions from others about the same step.
        """
        self._problem = problem
        self._federation = federation_of(problem, agents) if federation is None else federation
        self._work = Gradients(objective or Objective(problem.regulariser))
        self._seen, self._steps, self._label = np.zeros(problem.size), 0, label
        self._sent: tuple[Floats, str] | None = None  # models that were named last, and their digest
        self._watch = Watch(problem) if watch is None else watch
        whole, roster = np.arange(problem.agents), self._federation.members
        # errors name agents by their numbers in the federation
        self._numbers = problem.members if isinstance(problem, Members) else whole
        self._names = [roster.names[k] for k in self._numbers]
        vouched = set(self._federation.vouched)
        self._trusted = [k for k, name in enumerate(self._names) if name in vouched]
        self._others = [k for k, name in enumerate(self._names) if name not in vouched]

    @property
    def names_liars(self) -> bool:
        """Whether reports that make a sum diverge would have been named."""
        return self._watch.names_liars

    def send(self, model: Floats, steps: int | None = None) -> None:
        """Everybody is sent this model of the training next, after so many steps; errors remember it."""
        self._seen, self._steps = model, self._steps if steps is None else steps

    def sum(self, models: Floats, mix: Floats, where: str, runs: Ints | None = None) -> Floats:
        """(m, P) sum_j mix_ij report_j(models_i); each row is the next of one of several runs of models."""
        request = Request.at(models, runs)

        def accept(k: int, reply: Reply | Failure, rows: Ints) -> Floats:
            return self._watch.accept(int(self._numbers[k]), reply, request, rows)

        return self._collect(
            self._work, mix, where, lambda rows: request.models[rows], accept, self._problem.size
        )

    def each(self, models: Floats, where: str) -> tuple[Floats, list[BadReport]]:
        """(m, K, P) report_j(models_i) of everybody, for what no sum can tell; 0 and a `BadReport` of those
        whose reports are no gradients."""
        request, rows = Request.at(models), np.arange(len(models))
        out = np.zeros((len(models), len(self._names), self._problem.size))
        with self._asking(where):
            tasks = [self._task(k, request.models, where, self._work) for k in range(len(self._names))]
            answers = self._federation.replies(tasks)
            require_somebody(answers.values())
        bad_reports, doubt = list[BadReport](), None
        for k, task in enumerate(tasks):
            reply = answers[task.identifier]
            try:
                if k in self._trusted and isinstance(reply, Reply):
                    out[:, k] = reply.values
                else:
                    out[:, k] = self._watch.accept(int(self._numbers[k]), reply, request, rows)
            except UnusableReport as bad:
                if bad.certain:
                    bad_reports.append(self._bad(k, where, bad.problem))
                else:
                    doubt = bad
        if doubt is not None and not bad_reports:
            raise _led_astray(where, doubt) from doubt
        return out, bad_reports

    def slopes(
        self, starts: Floats, end: Floats, nodes: Floats, mix: Floats, where: str, check: CheckSlopes
    ) -> Floats:
        """(m, t) sum_j mix_ij grad F_j(W_i + t d)·d at the nodes t, on the ways d = end - W_i."""
        work = Slopes(self._work.objective, tuple(nodes.tolist()))

        def accept(k: int, reply: Reply | Failure, rows: Ints) -> Floats:
            if isinstance(reply, Failure):
                raise UnusableReport(int(self._numbers[k]), reply.reason)
            check(k, rows, reply.values)
            return reply.values

        return self._collect(
            work, mix, where, lambda rows: np.concatenate([starts[rows], end[None]]), accept, nodes.size
        )

    def _collect(
        self,
        work: Gradients | Slopes,
        mix: Floats,
        where: str,
        sent: Callable[[Ints], Floats],
        accept: Callable[[int, Reply | Failure, Ints], Floats],
        width: int,
    ) -> Floats:
        """(m, width) the sum over agents: at once of those vouched for, one by one of the others.

        `sent` are the models for the rows of an agent, `accept` its answer to them if it can be honest.
        """
        total, failures = np.zeros((mix.shape[0], width)), dict[int, Failure | None]()
        rows_of = {k: rows for k in self._others if (rows := np.flatnonzero(mix[:, k])).size}
        others = {k: self._task(k, sent(rows), where, work) for k, rows in rows_of.items()}
        with self._asking(where):
            members = [k for k in self._trusted if mix[:, k].any()]
            if members:
                whole = sent(np.arange(mix.shape[0]))
                tasks = [self._task(k, whole, where, work) for k in members]
                answer = self._federation.total(tasks, mix.T[members])
                failures = {
                    k: answer.failures.get(task.identifier) for k, task in zip(members, tasks, strict=True)
                }
                total = answer.values.copy() if self._others else answer.values
            answers = self._federation.replies(list(others.values()))
            require_somebody([*failures.values(), *answers.values()])
        for k, failure in failures.items():
            if failure is not None:
                raise self._bad(k, where, failure.reason)
        replies = {k: (rows, answers[others[k].identifier]) for k, rows in rows_of.items()}
        self._add_others(total, mix, where, replies, accept)
        return total

    @contextmanager
    def _asking(self, where: str) -> Iterator[None]:
        """Where asking fails as a whole, the error says how far training had come."""
        try:
            yield
        except AskFailed as failed:
            raise AskFailed(failed.reason, where, self._seen, self._steps) from failed.__cause__

    def _task(self, k: int, models: Floats, where: str, work: Gradients | Slopes) -> Task:
        """Named by the step and by what is sent: asked again after a failure, it is the same task."""
        if self._sent is None or self._sent[0] is not models:  # everybody may be sent the same
            content = hashlib.blake2b(np.ascontiguousarray(models).data, digest_size=8).hexdigest()
            self._sent = models, content
        name = f"{self._label}{where}, {self._names[k]}, {self._sent[1]}"
        return Task(name, self._names[k], models, work)

    def _bad(self, k: int, where: str, problem: str) -> BadReport:
        return BadReport(int(self._numbers[k]), where, problem, self._seen, name=self._names[k])

    def _add_others(
        self,
        total: Floats,
        mix: Floats,
        where: str,
        replies: Mapping[int, tuple[Ints, Reply | Failure]],
        accept: Callable[[int, Reply | Failure, Ints], Floats],
    ) -> None:
        """Add the answers of agents that might lie, if an honest agent could have sent them."""
        doubt: UnusableReport | None = None
        for k, (rows, reply) in replies.items():
            try:
                report = accept(k, reply, rows)
            except UnusableReport as bad:
                if bad.certain:
                    raise self._bad(k, where, bad.problem) from bad
                doubt = bad
                continue
            total[rows] += mix[rows, k][:, None] * report
        if doubt is not None:
            raise _led_astray(where, doubt) from doubt


def require_somebody(answers: Collection[Reply | Failure | None], where: str = "") -> None:
    """Refuse an exchange that nobody answered: that is no agent's fault, and may be asked again."""
    if len(answers) > 1 and all(isinstance(answer, Failure) and answer.absent for answer in answers):
        raise AskFailed(f"nobody answered in {where}" if where else "nobody answered")


def _led_astray(where: str, doubt: UnusableReport) -> Diverged:
    return Diverged(
        f"the reports lead astray in {where}: agent {doubt.agent} sends {doubt.problem}, but at a "
        "model so far away that an honest one could as well; who led there cannot be told without "
        "a bound on gradients that all agree on"
    )
