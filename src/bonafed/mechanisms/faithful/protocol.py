"""Faithful federated learning: training and payments by gradient reports alone (Algorithm 1, theory C3).

    phase I    w <- w - eta_1 sum_k p_k report_k(w), the shared model w*
    phase II   for every k at once, from W = w*:  W <- W - eta_2 G,  G = sum_{j != k} p_j report_j(W),
               adding to k's payment  (W - W')'(G + G')/2 / p_k   (trapezoid, exact for quadratics)
                                or    (W - W')'G / p_k            (left)
               until at least T_2 steps are done AND |G|^2/(2 (1 - p_k) mu) <= p_k epsilon.

The residual test makes 0 <= VCG - [f_-k(w*) - f_-k(W)]/p_k <= epsilon (theory C3.1). The printed
algorithm has the sign of the payment wrong (F-E1), a step K times too small for its rate (F-E3) and stops
after T_2 steps; with it an agent gains by overstating its gradient. `variant="printed"` is that one with
the sign corrected.

The server asks a federation (`learning.federation`) and holds no sample; all it knows of the losses is
what was agreed on (`Agreed`). Of clients that are vouched for it sees weighted sums only, what a deployment
aggregates securely; the others it asks one by one. Agents see only the models they are sent.

Reports are held against what honest ones can be (`reports`). If all pass, the norm of their sum shrinks by
1 - mu/L_g in every step of training, up to rounding, and by 1 - theta mu/L_g in every step of a payment
(theory C3.6): nobody can make the protocol diverge. `check_reports="numbers"` believes anything finite
instead, for studies of what lies lead to.

An agent whose report is not a gradient of its loss stops the protocol or, with `on_bad_report="leave out"`,
is left out and training starts over without it; two must remain. It owes nothing and may use the others'
model, which is never better for it than the truth: F_k(w_-k) >= J_k(truth) (theory C1.4). It has seen
models on the way, though. If it keeps the last one, w, it owes what the protocol charges for it, P_k(w)
from the others' reports: its overall loss is then [F(w) - min f_-k]/p_k, never better than the truth
either. `LeftOut.due` is that amount.

For a problem that is not strongly convex the payments are the same line integrals of reports, stopped after
T_2 steps. Nothing is certified then: a gradient says nothing about how far a minimum is.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import AskFailed, BadReport, Diverged, InvalidValue, MissingValue, UnusableReport
from bonafed.learning.federation import Federation, Gradients, Objective, Task
from bonafed.learning.problems.agreed import Agreed, Members, require_others
from bonafed.learning.problems.convex import Ints, Problem
from bonafed.learning.problems.federation import ProblemFederation
from bonafed.mechanisms.faithful.agents import Agent
from bonafed.mechanisms.faithful.deviating import Deviating
from bonafed.mechanisms.faithful.reports import FAR, GROWTH, ReportCheck, Request, Watch
from bonafed.mechanisms.faithful.vcg import Payments

PaymentRule = Literal["trapezoid", "left"]
ProtocolVariant = Literal["corrected", "printed"]
BadReportPolicy = Literal["raise", "leave out"]
OnStep = Callable[[int, Floats, float], None]  # step 1, 2, ..., the model after it, norm of the sum before
OnLeftOut = Callable[[BadReport], None]
_BILL = 1e-9  # of the first residual: what an agent left out owes is not computed more accurately


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An agent the protocol went on without: its data are not in the model, and it owes nothing."""

    agent: int
    where: str  # the step of its bad report
    problem: str
    due: float  # what it owes instead if it keeps the last model it was sent


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """The result of the protocol."""

    model: Floats  # (P,) w*
    payments: Payments
    losses: Floats  # (K,) F_k(w*), with the true losses
    training_steps: int  # of phase I
    integration_error: float  # largest |left - trapezoid|: bounds what the rule adds to the certified error
    training_error: float  # F(w*) is at most this above its minimum, by the reports; NaN: not certified
    left_out: tuple[LeftOut, ...] = ()  # their rows of payments are 0

    @property
    def overall(self) -> Floats:
        """(K,) J_k = F_k(w*) + P_k."""
        return self.losses + self.payments.amount


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
        watch: Watch | None = None,
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
        self._watch = watch or Watch(problem)
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
        total = np.zeros((mix.shape[0], self._problem.size))
        try:
            members = [k for k in self._trusted if mix[:, k].any()]
            if members:
                tasks = [self._task(k, models, where) for k in members]
                answer = self._federation.total(tasks, mix.T[members])
                for task, k in zip(tasks, members, strict=True):
                    if task.identifier in answer.failures:
                        raise self._bad(k, where, answer.failures[task.identifier].reason)
                total = answer.values.copy() if self._others else answer.values
            self._add_others(total, Request.at(models, runs), mix, where)
        except AskFailed as failed:
            raise AskFailed(failed.reason, where, self._seen, self._steps) from failed.__cause__
        return total

    def _task(self, k: int, models: Floats, where: str) -> Task:
        """Named by the step and by what is sent: asked again after a failure, it is the same task."""
        content = hashlib.blake2b(np.ascontiguousarray(models).data, digest_size=8).hexdigest()
        name = f"{self._label}{where}, {self._names[k]}, {content}"
        return Task(name, self._names[k], models, self._work)

    def _bad(self, k: int, where: str, problem: str) -> BadReport:
        return BadReport(int(self._numbers[k]), where, problem, self._seen, name=self._names[k])

    def _add_others(self, total: Floats, request: Request, mix: Floats, where: str) -> None:
        """Add the reports of agents that might lie, if an honest agent could have sent them."""
        rows_of = {k: rows for k in self._others if (rows := np.flatnonzero(mix[:, k])).size}
        tasks = {k: self._task(k, request.models[rows], where) for k, rows in rows_of.items()}
        answers = self._federation.replies(list(tasks.values()))
        doubt: UnusableReport | None = None
        for k, rows in rows_of.items():
            try:
                reply = answers[tasks[k].identifier]
                report = self._watch.accept(int(self._numbers[k]), reply, request, rows)
            except UnusableReport as bad:
                if bad.certain:
                    raise self._bad(k, where, bad.problem) from bad
                doubt = bad
                continue
            total[rows] += mix[rows, k][:, None] * report
        if doubt is not None:
            raise Diverged(
                f"the reports lead astray in {where}: agent {doubt.agent} sends {doubt.problem}, but at a "
                "model so far away that an honest one could as well; who led there cannot be told without "
                "a bound on gradients that all agree on"
            ) from doubt


class Terms(NamedTuple):
    """The parameters of phase II, as `pay` takes them."""

    payment_steps: int = 20  # T_2, a minimum
    epsilon: float = 1e-3  # certified error of a payment, in units of loss
    step_share: float = 1.0  # theta in (0, 1] of the largest safe step
    rule: PaymentRule = "trapezoid"
    variant: ProtocolVariant = "corrected"


@dataclass(frozen=True, slots=True, eq=False)
class Ending:
    """The payments, and how accurate they are."""

    payments: Payments  # of all agents; rows of those left out are 0
    integration_error: float
    training_error: float
    left_out: tuple[LeftOut, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Progress:
    """How far the protocol has come."""

    steps: int  # of training, with these members
    model: Floats  # (P,) after them
    watch: Watch  # the memory of reports
    first: float | None = None  # norm of the first sum of reports
    norm: float = math.nan  # of the last one
    bad_reports: tuple[BadReport, ...] = ()  # who was left out, and why
    ending: Ending | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Course:
    """The protocol, step by step: what was agreed on, and who is asked."""

    problem: Agreed
    federation: Federation
    training_steps: int  # T_1
    terms: Terms
    objective: Objective | None = None
    on_bad_report: BadReportPolicy = "raise"
    check_reports: ReportCheck = "gradients"

    def begin(self, start: Floats | None = None) -> Progress:
        """Before the first step."""
        w = np.zeros(self.problem.size) if start is None else np.array(start, dtype=np.float64)
        return Progress(0, w, Watch(self.problem, self.check_reports))

    def members(self, progress: Progress) -> list[int]:
        """Who is left."""
        absent = {bad.agent for bad in progress.bad_reports}
        return [k for k in range(self.problem.agents) if k not in absent]

    def advance(self, progress: Progress, start: Floats | None = None) -> Progress:
        """One step of training, or the payments after the last; back to `start` if somebody is left out."""
        progress = replace(progress, watch=progress.watch.copy())
        try:
            if progress.steps < self.training_steps:
                return self._step(progress)
            return replace(progress, ending=self._end(progress))
        except BadReport as bad:
            if self.on_bad_report == "raise":
                raise
            if len(self.members(progress)) <= 2:
                advice = "leaving it out would leave one agent alone"
                raise bad.advised(advice) from bad
            return replace(
                self.begin(start), watch=progress.watch, bad_reports=(*progress.bad_reports, bad)
            )
        except AskFailed as failed:
            without = tuple(bad.agent for bad in progress.bad_reports)
            raise AskFailed(
                failed.reason, failed.where, failed.model, failed.steps, without
            ) from failed.__cause__

    def _part(self, members: Sequence[int]) -> Agreed:
        return self.problem if len(members) == self.problem.agents else Members(self.problem, members)

    def _reports(self, progress: Progress, part: Agreed, label: str = "") -> Aggregation:
        names = self.federation.members.names
        without = "".join(f"without {names[bad.agent]}, " for bad in progress.bad_reports)
        return Aggregation(
            part, None, progress.watch, federation=self.federation, objective=self.objective,
            label=without + label,
        )  # fmt: skip

    def _step(self, progress: Progress) -> Progress:
        part = self._part(self.members(progress))
        reports = self._reports(progress, part)
        w, norm = _step(part, reports, progress.model, progress.steps, progress.first)
        first = norm if progress.first is None else progress.first
        return replace(progress, steps=progress.steps + 1, model=w, first=first, norm=norm)

    def _end(self, progress: Progress) -> Ending:
        members = self.members(progress)
        part, w = self._part(members), progress.model
        reports = self._reports(progress, part)
        reports.send(w, self.training_steps)
        payments, gap = pay(part, w, reports, **self.terms._asdict())
        rest = reports.sum(w[None], part.weights[None], "the last step")[0]
        left_out = tuple(self._left_out(progress, members, bad) for bad in progress.bad_reports)
        training_error = float(rest @ rest) / (2 * part.regulariser) if part.strongly_convex else math.nan
        if progress.bad_reports:
            payments = _for_all(payments, members, self.problem.agents, nothing=0.0)
        return Ending(payments, gap, training_error, left_out)

    def _left_out(self, progress: Progress, members: list[int], bad: BadReport) -> LeftOut:
        """The record of an agent left out; its payment is made of the members' reports alone.

        It may have led the last model it was sent astray, where no absolute accuracy can be reached.
        """
        with_it = sorted([*members, bad.agent])
        place = with_it.index(bad.agent)
        part = self._part(with_it)
        label = f"bill of {self.federation.members.names[bad.agent]}, "
        reports = self._reports(progress, part, label)
        payments, _ = pay(part, bad.model, reports, **self.terms._asdict(), payers=[place], relative=_BILL)
        return LeftOut(bad.agent, bad.where, bad.problem, float(payments.amount[place]))


def faithful(
    problem: Agreed,
    federation: Federation | None = None,
    *,
    agents: Mapping[int, Agent] | None = None,
    training_steps: int = 1500,
    payment_steps: int = 20,
    epsilon: float = 1e-3,
    step_share: float = 1.0,
    rule: PaymentRule = "trapezoid",
    variant: ProtocolVariant = "corrected",
    start: Floats | None = None,
    on_bad_report: BadReportPolicy = "raise",
    check_reports: ReportCheck = "gradients",
    on_step: OnStep | None = None,
    on_left_out: OnLeftOut | None = None,
) -> Outcome:
    """Train by reports and compute what each agent owes.

    The reports are those of a `federation`, whose clients agreed on what `problem` says of their losses, or
    of the problem's own samples. `agents` holds those who deviate, by number.

    `training_steps` is T_1, `payment_steps` is T_2 (a minimum), `epsilon` the certified error of a payment
    in units of loss, `step_share` theta in (0, 1] of the largest safe step. `variant="printed"` takes the
    paper's step 1/(K L_g) and stops after T_2 steps, whatever the residual. `on_step` is called
    after every step of phase I; once an agent is left out, which calls `on_left_out`, they restart at 1.
    """
    checks.literal("on_bad_report", on_bad_report, BadReportPolicy)
    turns = checks.whole("training_steps", training_steps, 0)
    terms = Terms(payment_steps, epsilon, step_share, rule, variant)
    clients = federation_of(problem, agents) if federation is None else deviating(federation, agents)
    course = Course(problem, clients, turns, terms, None, on_bad_report, check_reports)
    progress = course.begin(start)
    while progress.ending is None:
        before, progress = progress, course.advance(progress, start)
        if len(progress.bad_reports) > len(before.bad_reports):
            if on_left_out is not None:
                on_left_out(progress.bad_reports[-1])
        elif progress.steps > before.steps and on_step is not None:
            on_step(progress.steps, progress.model, progress.norm)
    losses = np.full(problem.agents, np.nan)  # they stay with the agents
    if isinstance(problem, Problem):
        losses = problem.losses(progress.model[None])[0]
    return outcome_of(progress, turns, losses)


def outcome_of(progress: Progress, training_steps: int, losses: Floats) -> Outcome:
    """The result after the payments, with the losses (K,) of the model."""
    end = progress.ending
    assert end is not None  # `Course.advance` has come to the end
    return Outcome(
        progress.model, end.payments, losses, training_steps, end.integration_error, end.training_error,
        end.left_out,
    )  # fmt: skip


def train(
    problem: Agreed,
    agents: Mapping[int, Agent] | None,
    steps: int,
    start: Floats | None = None,
    on_step: OnStep | None = None,
    watch: Watch | None = None,
) -> tuple[Floats, Aggregation]:
    """Phase I; `watch` decides which reports are believed, by default those that can be gradients."""
    reports = Aggregation(problem, agents, watch)
    w, first = np.zeros(problem.size) if start is None else start, None
    for t in range(steps):
        w, norm = _step(problem, reports, w, t, first)
        first = norm if first is None else first
        if on_step is not None:
            on_step(t + 1, w, norm)
    reports.send(w, steps)
    return w, reports


def _step(
    problem: Agreed, reports: Aggregation, model: Floats, steps: int, first: float | None
) -> tuple[Floats, float]:
    """The model after one more step, and the norm of the sum of reports before it."""
    reports.send(model, steps)
    g = reports.sum(model[None], problem.weights[None], f"training step {steps + 1}")
    norm = float(np.linalg.norm(g))
    initial = norm if first is None else first
    if not math.isfinite(norm) or norm > GROWTH * max(initial, 1.0):
        raise Diverged(
            f"training diverges at step {steps + 1}: the reports grow from {initial:.3g} to {norm:.3g}; "
            "an agent that multiplies its gradient by more than 1 + 1/p_k does that (theory C3)"
            + _nobody(problem, reports)
        )
    return model - g[0] / problem.smoothness, norm


def _nobody(problem: Agreed, reports: Aggregation) -> str:
    """Why the message names nobody."""
    if not problem.strongly_convex:
        return "; who does it here cannot be told: where the loss is not convex any gradient can be honest"
    if not reports.names_liars:
        return '; nobody is named, as reports are believed: check_reports = "gradients" does'
    text = "; nobody can be named: within the agreed precision all reports are gradients of some loss"
    if math.isinf(problem.gradient_bound):
        text += ", of any size, as no bound on gradients is agreed on"
    return text


def pay(
    problem: Agreed,
    model: Floats,
    reports: Aggregation,
    *,
    payment_steps: int = 20,
    epsilon: float = 1e-3,
    step_share: float = 1.0,
    rule: PaymentRule = "trapezoid",
    variant: ProtocolVariant = "corrected",
    payers: Sequence[int] | None = None,
    relative: float = 0.0,
) -> tuple[Payments, float]:
    """Phase II for all agents in one batch; the payments and the largest difference of the two rules.

    With `payers`, only theirs are computed; the others' amounts are NaN. `relative` also ends a payment at
    that fraction of its first residual.
    """
    checks.literal("rule", rule, PaymentRule)
    checks.literal("variant", variant, ProtocolVariant)
    least = checks.whole("payment_steps", payment_steps, at_least=0)
    target = checks.positive("epsilon", epsilon)
    theta = checks.between("step_share", checks.positive("step_share", step_share), 0.0, 1.0)
    require_others(problem)
    who = _payers(payers, problem.agents)
    k, p = who.size, problem.weights[who]
    rest, mixes = 1 - p, problem.without_each()[who]
    printed = variant == "printed"
    by_steps = np.bool_(printed or not problem.strongly_convex)  # whether their number alone decides
    small = 1 / (problem.agents * problem.smoothness)
    eta = np.full(k, small) if printed else theta / (rest * problem.smoothness)
    models = np.tile(model, (k, 1))
    reports.send(model)
    g = reports.sum(models, mixes, "payment step 0", who)
    left, trapezoid, steps = np.zeros(k), np.zeros(k), 0
    counts = np.zeros(k, dtype=np.int64)
    residual = (g**2).sum(1) / (2 * rest * problem.regulariser) / p
    close = np.maximum(target, relative * residual)
    window = _halving(problem, theta)
    mark, standing = window, residual.copy()
    while (active := np.flatnonzero((counts < least) | (~by_steps & (residual > close)))).size:
        steps += 1
        if steps > mark:
            open_ones = active[
                residual[active] > close[active]
            ]  # the others have arrived, if only at rounding
            if not by_steps and (residual[open_ones] > standing[open_ones] / 2).any():
                raise Diverged(
                    f"payments do not converge to epsilon = {target:g}: true gradients halve their "
                    f"residual in {window:,} steps; some agent reports something else, such as noise or a "
                    f"multiple{_nobody(problem, reports)}"
                )
            mark, standing = steps + window, residual.copy()
        candidates = models[active] - eta[active, None] * g[active]
        following = reports.sum(candidates, mixes[active], f"payment step {steps}", who[active])
        way = models[active] - candidates
        left[active] += (way * g[active]).sum(1) / p[active]
        trapezoid[active] += (way * (g[active] + following)).sum(1) / 2 / p[active]
        models[active], g[active] = candidates, following
        counts[active] += 1
        if not np.abs(following).max() < FAR:
            text = f"payments diverge at step {steps}: the reports grow beyond all bounds"
            raise Diverged(text + _nobody(problem, reports))
        residual[active] = (following**2).sum(1) / (2 * rest[active] * problem.regulariser) / p[active]
    amount = trapezoid if rule == "trapezoid" else left
    gap = float(np.abs(left - trapezoid).max())
    if not problem.strongly_convex:
        residual = np.full(k, np.nan)
    payments = Payments(amount, residual, models, int(counts.max(initial=0)))
    return (payments if payers is None else _for_all(payments, who, problem.agents, np.nan)), gap


def _for_all(
    some: Payments, who: Sequence[int] | NDArray[np.int64], agents: int, nothing: float
) -> Payments:
    """Payments of some agents as rows among all of them."""
    everyone = []
    for part in (some.amount, some.error, some.models):
        whole = np.full((agents, *part.shape[1:]), nothing)
        whole[np.asarray(who)] = part
        everyone.append(whole)
    return Payments(everyone[0], everyone[1], everyone[2], some.steps)


def _halving(problem: Agreed, theta: float) -> int:
    """Steps in which the residual of true gradients at least halves.

    The gap f_-k - min f_-k is at most the residual, shrinks by 1 - theta mu/L_g in a step, and the residual
    is at most L_g/mu times the gap (compare theory C3.2). Doubled, for reports that are gradients of
    something a little less convex.
    """
    mu, l_g = problem.regulariser, problem.smoothness
    shrinking = theta * mu / l_g
    if shrinking >= 1:  # a single step suffices; problems that are not convex may state any L_g
        return 2
    return 2 * math.ceil(math.log(2 * l_g / mu) / -math.log1p(-shrinking))


def _payers(payers: Sequence[int] | None, agents: int) -> NDArray[np.int64]:
    if payers is None:
        return np.arange(agents)
    who = np.asarray(payers, dtype=np.int64)
    if not who.size or who.min() < 0 or who.max() >= agents:
        raise InvalidValue("payers", f"must be agents 0..{agents - 1}", list(payers))
    return who
