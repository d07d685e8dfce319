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

The server sees reports only, and of those only weighted sums (`Aggregation`): what a deployment aggregates
securely. Agents see only the models they are sent.

Reports are held against what honest ones can be (`reports`). If all pass, the norm of their sum shrinks by
1 - mu/L_g in every step of training, up to rounding, and by 1 - theta mu/L_g in every step of a payment
(theory C3.6): nobody can make the protocol diverge. `check_reports="numbers"` believes anything finite
instead, for studies of what lies lead to.

An agent whose report is not a gradient of its loss stops the protocol or, with `on_bad_report="leave out"`,
is left out and training begins again without it; two must remain. It owes nothing and may use the others'
model, which is never better for it than the truth: F_k(w_-k) >= J_k(truth) (theory C1.4). It has seen
models on the way, though. Should it keep the last one, w, it owes what the protocol asks for that, P_k(w)
from the others' reports: its overall loss is then [F(w) - min f_-k]/p_k, never better than the truth
either. `LeftOut.due` says it.

For a problem that is not strongly convex the payments are the same line integrals of reports, stopped after
T_2 steps. Nothing is certified then: a gradient says nothing about how far a minimum is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import AskFailed, BadReport, Diverged, InvalidValue, UnusableReport
from bonafed.mechanisms.faithful.agents import Agent
from bonafed.learning.problems.coalition import Coalition
from bonafed.learning.problems.convex import Ints, Problem, SoftmaxRegression, require_others
from bonafed.mechanisms.faithful.reports import FAR, GROWTH, Asked, ReportCheck, Watch
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
    due: float  # what it owes instead, should it keep the last model it was sent


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """What the protocol came to."""

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


class Aggregation:
    """Weighted sums over agents; the only thing the server sees, of gradients and of losses.

    This is where a deployment puts its secure aggregation: everything the protocol and its private form ask
    agents for goes through `sum`, `clipped_sum` and `loss_change`, and nothing leaves them agent by agent.
    Here the sums are computed. Agents that follow the protocol are computed in one pass over all samples;
    the others are asked one by one. `agents` holds the deviating ones by number.

    Whoever forms a sum is the last to see single reports, so it is here that they are checked (`watch`),
    and what leaves is the number of an agent and what is wrong, not its report. Sums of ciphertexts cannot
    be formed and checked so: there the check belongs beside the agent, where its report is still in the
    open, in code that it cannot change or with a proof. Sums alone tell that somebody deviates, never who,
    and asking for two that differ by one agent would be asking for its report.
    """

    def __init__(
        self, problem: Problem, agents: Mapping[int, Agent] | None = None, watch: Watch | None = None
    ) -> None:
        self._problem, self._agents = problem, dict(agents or {})
        self._seen, self._steps = np.zeros(problem.size), 0
        self._watch = watch or Watch(problem)
        # errors name agents by their numbers in the whole problem
        self._numbers = problem.members if isinstance(problem, Coalition) else np.arange(problem.agents)
        for k in self._agents:
            if not 0 <= k < problem.agents:
                raise InvalidValue("agents", f"must be in 0..{problem.agents - 1}", k)

    @property
    def names_liars(self) -> bool:
        """Whether reports that make a sum diverge would have been named."""
        return self._watch.names_liars

    def send(self, model: Floats, steps: int | None = None) -> None:
        """Everybody is sent this model of the training next, after so many steps; errors remember it."""
        self._seen, self._steps = model, self._steps if steps is None else steps

    def sum(self, models: Floats, mix: Floats, where: str, runs: Ints | None = None) -> Floats:
        """(m, P) sum_j mix_ij report_j(models_i); each row is the next of one of several runs of models."""
        honest = mix.copy()
        honest[:, list(self._agents)] = 0.0
        asked = Asked.at(models, runs)
        try:
            answers = self._problem.answers(models, honest)
            if answers is None:
                total, answers = self._problem.gradient(models, honest), {}
            else:
                total = np.zeros((mix.shape[0], self._problem.size))
            self._add(total, answers, asked, mix, where)
        except AskFailed as failed:
            raise AskFailed(failed.reason, where, self._seen, self._steps) from failed.__cause__
        return total

    def _add(
        self, total: Floats, answers: Mapping[int, object], asked: Asked, mix: Floats, where: str
    ) -> None:
        """Add what everybody reports who can lie, if it can be honest."""
        doubt: UnusableReport | None = None
        for k in (*answers, *self._agents):
            rows = np.flatnonzero(mix[:, k])
            if not rows.size:
                continue
            try:
                said = answers[k] if k in answers else self._ask(k, asked.models[rows])
                report = self._watch.accept(int(self._numbers[k]), said, asked, rows)
            except UnusableReport as bad:
                if bad.certain:
                    raise BadReport(bad.agent, where, bad.problem, self._seen) from bad
                doubt = bad
                continue
            total[rows] += mix[rows, k][:, None] * report
        if doubt is not None:
            raise Diverged(
                f"the reports lead astray in {where}: agent {doubt.agent} sends {doubt.problem}, but at a "
                "model so far away that an honest one could as well; who led there cannot be told without "
                "a bound on gradients that all agree on"
            ) from doubt

    def clipped_sum(self, model: Floats, mix: Floats, clip: float) -> Floats:
        """(P,) sum_j mix_j times j's gradient, every sample's part scaled to norm `clip` at most."""
        return np.asarray(self._clipping().clipped_gradient(model[None], mix[None], clip)[0])

    def loss_change(self, first: Floats, second: Floats, mix: Floats, limit: float) -> float:
        """sum_j mix_j times the mean change of j's losses from `second` to `first`, each within +-limit."""
        return float(mix @ self._clipping().clipped_differences(first, second, limit))

    def _clipping(self) -> SoftmaxRegression:
        if not isinstance(self._problem, SoftmaxRegression) or self._agents:
            rule = (
                "must be softmax regression with agents that follow the protocol where samples are clipped"
            )
            raise InvalidValue("problem", rule, type(self._problem).__name__)
        return self._problem

    def _ask(self, k: int, models: Floats) -> object:
        own = np.tile(self._problem.one(k), (models.shape[0], 1))
        gradient = self._problem.gradient(models, own)
        try:
            return self._agents[k](models.copy(), gradient)
        except OSError as error:  # no answer in time, say: one like any other that is no gradient
            return error


def faithful(
    problem: Problem,
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

    `training_steps` is T_1, `payment_steps` is T_2 (a minimum), `epsilon` the certified error of a payment
    in units of loss, `step_share` theta in (0, 1] of the largest safe step. `variant="printed"` takes the
    paper's step 1/(K L_g) and stops after T_2 steps, whatever the residual. `on_step` hears of every step
    of phase I; after an agent was left out, which `on_left_out` hears of, they begin again with step 1.
    """
    checks.literal("on_bad_report", on_bad_report, BadReportPolicy)
    turns = checks.whole("training_steps", training_steps, 0)
    acting, gone = dict(agents or {}), dict[int, BadReport]()
    terms = _Terms(payment_steps, epsilon, step_share, rule, variant)
    watch = Watch(problem, check_reports)
    while True:
        members = [k for k in range(problem.agents) if k not in gone]
        part = Coalition(problem, members) if gone else problem
        try:
            mine = _of_members(acting, members) if gone else acting
            w, reports = train(part, mine, turns, start, on_step, watch)
            payments, gap = pay(part, w, reports, **terms._asdict())
            rest = reports.sum(w[None], part.weights[None], "the last step")[0]
            left = tuple(_left_out(problem, acting, members, bad, terms, watch) for bad in gone.values())
            break
        except BadReport as bad:
            if on_bad_report == "raise":
                raise
            if len(members) <= 2:
                advice = "leaving it out would leave one agent alone"
                raise BadReport(bad.agent, bad.where, bad.problem, bad.model, advice) from bad
            gone[bad.agent] = bad
            if on_left_out is not None:
                on_left_out(bad)
        except AskFailed as failed:
            without = tuple(gone)
            raise AskFailed(
                failed.reason, failed.where, failed.model, failed.steps, without
            ) from failed.__cause__
    certified = float(rest @ rest) / (2 * part.regulariser) if part.strongly_convex else math.nan
    if gone:
        payments = _for_all(payments, members, problem.agents, nothing=0.0)
    return Outcome(w, payments, problem.losses(w[None])[0], turns, gap, certified, left)


class _Terms(NamedTuple):
    """Of phase II, as `pay` takes them."""

    payment_steps: int
    epsilon: float
    step_share: float
    rule: PaymentRule
    variant: ProtocolVariant


def _of_members(agents: Mapping[int, Agent], members: Sequence[int]) -> dict[int, Agent]:
    """Agents by their place among the members."""
    return {place: agents[k] for place, k in enumerate(members) if k in agents}


def _left_out(
    problem: Problem,
    agents: Mapping[int, Agent],
    members: list[int],
    bad: BadReport,
    terms: _Terms,
    watch: Watch,
) -> LeftOut:
    """What is said of an agent left out; its payment is made of the members' reports alone.

    The last model it was sent can be one it led astray, for which no absolute accuracy is to be had.
    """
    with_it = sorted([*members, bad.agent])
    place = with_it.index(bad.agent)
    part = Coalition(problem, with_it) if len(with_it) < problem.agents else problem
    reports = Aggregation(part, _of_members(agents, with_it), watch)
    owed, _ = pay(part, bad.model, reports, **terms._asdict(), payers=[place], relative=_BILL)
    return LeftOut(bad.agent, bad.where, bad.problem, float(owed.amount[place]))


def train(
    problem: Problem,
    agents: Mapping[int, Agent] | None,
    steps: int,
    start: Floats | None = None,
    on_step: OnStep | None = None,
    watch: Watch | None = None,
) -> tuple[Floats, Aggregation]:
    """Phase I; `watch` decides which reports are believed, those that can be gradients if not given."""
    reports = Aggregation(problem, agents, watch)
    w = np.zeros((1, problem.size)) if start is None else start[None].copy()
    mix, first = problem.weights[None], None
    for t in range(steps):
        reports.send(w[0], t)
        g = reports.sum(w, mix, f"training step {t + 1}")
        norm = float(np.linalg.norm(g))
        first = norm if first is None else first
        if not math.isfinite(norm) or norm > GROWTH * max(first, 1.0):
            raise Diverged(
                f"training diverges at step {t + 1}: the reports grow from {first:.3g} to {norm:.3g}; "
                "an agent that multiplies its gradient by more than 1 + 1/p_k does that (theory C3)"
                + _nobody(problem, reports)
            )
        w = w - g / problem.smoothness
        if on_step is not None:
            on_step(t + 1, w[0], norm)
    reports.send(w[0], steps)
    return w[0], reports


def _nobody(problem: Problem, reports: Aggregation) -> str:
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
    problem: Problem,
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

    With `payers` only theirs are computed; the others' amounts are NaN. `relative` ends a payment also at
    that part of its first residual.
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
    taken = np.zeros(k, dtype=np.int64)
    residual = (g**2).sum(1) / (2 * rest * problem.regulariser) / p
    close = np.maximum(target, relative * residual)
    window = _halving(problem, theta)
    mark, standing = window, residual.copy()
    while (active := np.flatnonzero((taken < least) | (~by_steps & (residual > close)))).size:
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
        moved = models[active] - eta[active, None] * g[active]
        following = reports.sum(moved, mixes[active], f"payment step {steps}", who[active])
        way = models[active] - moved
        left[active] += (way * g[active]).sum(1) / p[active]
        trapezoid[active] += (way * (g[active] + following)).sum(1) / 2 / p[active]
        models[active], g[active] = moved, following
        taken[active] += 1
        if not np.abs(following).max() < FAR:
            text = f"payments diverge at step {steps}: the reports grow beyond all bounds"
            raise Diverged(text + _nobody(problem, reports))
        residual[active] = (following**2).sum(1) / (2 * rest[active] * problem.regulariser) / p[active]
    amount = trapezoid if rule == "trapezoid" else left
    gap = float(np.abs(left - trapezoid).max())
    if not problem.strongly_convex:
        residual = np.full(k, np.nan)
    found = Payments(amount, residual, models, int(taken.max(initial=0)))
    return (found if payers is None else _for_all(found, who, problem.agents, np.nan)), gap


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


def _halving(problem: Problem, theta: float) -> int:
    """Steps in which the residual of true gradients at least halves.

    The gap f_-k - min f_-k is at most the residual, shrinks by 1 - theta mu/L_g in a step, and the residual
    is at most L_g/mu times the gap (compare theory C3.2). Doubled, for reports that are gradients of
    something a little less convex.
    """
    mu, l_g = problem.regulariser, problem.smoothness
    shrinking = theta * mu / l_g
    if shrinking >= 1:  # one step and it is there; problems that are not convex state any L_g
        return 2
    return 2 * math.ceil(math.log(2 * l_g / mu) / -math.log1p(-shrinking))


def _payers(payers: Sequence[int] | None, agents: int) -> NDArray[np.int64]:
    if payers is None:
        return np.arange(agents)
    who = np.asarray(payers, dtype=np.int64)
    if not who.size or who.min() < 0 or who.max() >= agents:
        raise InvalidValue("payers", f"must be agents 0..{agents - 1}", list(payers))
    return who
