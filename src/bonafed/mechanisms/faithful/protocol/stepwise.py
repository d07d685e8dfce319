"""Faithful learning by plain gradient steps, one message each (Algorithm 1, theory C3).

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

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import AskFailed, BadReport, Diverged, InvalidValue
from bonafed.learning.federation import Federation, Objective
from bonafed.learning.problems.agreed import Agreed, Members, require_others
from bonafed.mechanisms.faithful.adversaries.agents import Agent
from bonafed.mechanisms.faithful.protocol.payments import (
    BadReportPolicy,
    Ending,
    LeftOut,
    Payments,
    for_all,
)
from bonafed.mechanisms.faithful.protocol.reports import FAR, GROWTH, ReportCheck, Watch
from bonafed.mechanisms.faithful.protocol.requests import Aggregation

PaymentRule = Literal["trapezoid", "left"]
StepVariant = Literal["stepwise", "printed"]
OnStep = Callable[[int, Floats, float], None]  # step 1, 2, ..., the model after it, norm of the sum before
_BILL = 1e-9  # of the first residual: what an agent left out owes is not computed more accurately


@dataclass(frozen=True, slots=True)
class StepwiseTerms:
    """What phase II of the stepwise variants is run with."""

    payment_steps: int = 20  # T_2, a minimum
    epsilon: float = 1e-3  # certified error of a payment, in units of loss
    step_share: float = 1.0  # theta in (0, 1] of the largest safe step
    rule: PaymentRule = "trapezoid"
    variant: StepVariant = "stepwise"


@dataclass(frozen=True, slots=True, eq=False)
class StepwiseProgress:
    """How far the protocol has come."""

    steps: int  # of training, with these members
    model: Floats  # (P,) after them
    watch: Watch  # the memory of reports
    first: float | None = None  # norm of the first sum of reports
    norm: float = math.nan  # of the last one
    bad_reports: tuple[BadReport, ...] = ()  # who was left out, and why
    ending: Ending | None = None


@dataclass(frozen=True, slots=True, eq=False)
class StepwiseProtocol:
    """The protocol, step by step: what was agreed on, and who is asked."""

    problem: Agreed
    federation: Federation
    training_steps: int  # T_1
    terms: StepwiseTerms
    objective: Objective | None = None
    on_bad_report: BadReportPolicy = "raise"
    check_reports: ReportCheck = "gradients"

    def begin(self, start: Floats | None = None) -> StepwiseProgress:
        """Before the first step."""
        w = np.zeros(self.problem.size) if start is None else np.array(start, dtype=np.float64)
        return StepwiseProgress(0, w, Watch(self.problem, self.check_reports))

    def members(self, progress: StepwiseProgress) -> list[int]:
        """The numbers of the agents that were not left out."""
        absent = {bad.agent for bad in progress.bad_reports}
        return [k for k in range(self.problem.agents) if k not in absent]

    def advance(self, progress: StepwiseProgress, start: Floats | None = None) -> StepwiseProgress:
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

    def _reports(self, progress: StepwiseProgress, part: Agreed, label: str = "") -> Aggregation:
        names = self.federation.members.names
        without = "".join(f"without {names[bad.agent]}, " for bad in progress.bad_reports)
        return Aggregation(
            part, None, progress.watch, federation=self.federation, objective=self.objective,
            label=without + label,
        )  # fmt: skip

    def _step(self, progress: StepwiseProgress) -> StepwiseProgress:
        part = self._part(self.members(progress))
        reports = self._reports(progress, part)
        w, norm = _step(part, reports, progress.model, progress.steps, progress.first)
        first = norm if progress.first is None else progress.first
        return replace(progress, steps=progress.steps + 1, model=w, first=first, norm=norm)

    def _end(self, progress: StepwiseProgress) -> Ending:
        members = self.members(progress)
        part, w = self._part(members), progress.model
        reports = self._reports(progress, part)
        reports.send(w, self.training_steps)
        payments, gap = pay(part, w, reports, self.terms)
        rest = reports.sum(w[None], part.weights[None], "the last step")[0]
        left_out = tuple(self._left_out(progress, members, bad) for bad in progress.bad_reports)
        training_error = float(rest @ rest) / (2 * part.regulariser) if part.strongly_convex else math.nan
        if progress.bad_reports:
            payments = for_all(payments, members, self.problem.agents, nothing=0.0)
        return Ending(payments, gap, training_error, left_out)

    def _left_out(self, progress: StepwiseProgress, members: list[int], bad: BadReport) -> LeftOut:
        """The record of an agent left out; its payment is made of the members' reports alone.

        It may have led the last model it was sent astray, where no absolute accuracy can be reached.
        """
        with_it = sorted([*members, bad.agent])
        position = with_it.index(bad.agent)
        part = self._part(with_it)
        label = f"bill of {self.federation.members.names[bad.agent]}, "
        reports = self._reports(progress, part, label)
        payments, _ = pay(part, bad.model, reports, self.terms, payers=[position], relative=_BILL)
        return LeftOut(bad.agent, bad.where, bad.problem, float(payments.amount[position]))


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
    terms: StepwiseTerms | None = None,
    *,
    payers: Sequence[int] | None = None,
    relative: float = 0.0,
) -> tuple[Payments, float]:
    """Phase II for all agents in one batch; the payments and the largest difference of the two rules.

    With `payers`, only theirs are computed; the others' amounts are NaN. `relative` also ends a payment at
    that fraction of its first residual.
    """
    terms = StepwiseTerms() if terms is None else terms
    checks.literal("rule", terms.rule, PaymentRule)
    checks.literal("variant", terms.variant, StepVariant)
    least = checks.whole("payment_steps", terms.payment_steps, at_least=0)
    target = checks.positive("epsilon", terms.epsilon)
    theta = checks.between("step_share", checks.positive("step_share", terms.step_share), 0.0, 1.0)
    require_others(problem)
    who = _payers(payers, problem.agents)
    k, p = who.size, problem.weights[who]
    rest, mixes = 1 - p, problem.without_each()[who]
    printed = terms.variant == "printed"
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
    mark, reference = window, residual.copy()
    while (active := np.flatnonzero((counts < least) | (~by_steps & (residual > close)))).size:
        steps += 1
        if steps > mark:
            # the others have arrived, if only at rounding
            open_ones = active[residual[active] > close[active]]
            if not by_steps and (residual[open_ones] > reference[open_ones] / 2).any():
                raise Diverged(
                    f"payments do not converge to epsilon = {target:g}: true gradients halve their "
                    f"residual in {window:,} steps; some agent reports something else, such as noise or a "
                    f"multiple{_nobody(problem, reports)}"
                )
            mark, reference = steps + window, residual.copy()
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
    amount = trapezoid if terms.rule == "trapezoid" else left
    gap = float(np.abs(left - trapezoid).max())
    if not problem.strongly_convex:
        residual = np.full(k, np.nan)
    payments = Payments(amount, residual, models, int(counts.max(initial=0)))
    return (payments if payers is None else for_all(payments, who, problem.agents, np.nan)), gap


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
