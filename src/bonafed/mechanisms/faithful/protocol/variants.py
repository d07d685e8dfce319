"""Faithful federated learning: training and payments by gradient reports alone (theory C3).

Three variants of one protocol, which trains a shared model w* and computes what every agent owes for it:

    exchanges    training and payments by quasi-Newton searches, some twenty messages (`exchanges`); for
                 losses that are strongly convex, and the default there
    stepwise     plain gradient steps, one message each (`stepwise`); also for losses that are not convex,
                 where nothing is certified
    printed      as in the paper but for the sign of the payments: an agent gains by overstating (F-E3)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import BadReport, InvalidValue
from bonafed.learning.federation import Federation, Objective
from bonafed.learning.problems.agreed import Agreed
from bonafed.learning.problems.convex import Problem
from bonafed.mechanisms.faithful.adversaries.agents import Agent
from bonafed.mechanisms.faithful.protocol.exchanges import Exchanges, ExchangesProgress
from bonafed.mechanisms.faithful.protocol.payments import BadReportPolicy, FaithfulOutcome
from bonafed.mechanisms.faithful.protocol.reports import ReportCheck
from bonafed.mechanisms.faithful.protocol.requests import deviating, federation_of
from bonafed.mechanisms.faithful.protocol.stepwise import (
    OnStep,
    PaymentRule,
    StepVariant,
    StepwiseProgress,
    StepwiseProtocol,
    StepwiseTerms,
)

ProtocolVariant = Literal["exchanges", "stepwise", "printed"]
OnLeftOut = Callable[[BadReport], None]
TRAINING_STEPS = 1500  # T_1 of the stepwise variants
# what only the stepwise variants have, with their defaults
STEPWISE: Mapping[str, Any] = {
    "training_steps": TRAINING_STEPS, "payment_steps": 20, "step_share": 1.0, "rule": "trapezoid"
}  # fmt: skip


def variant_for(variant: str | None, strongly_convex: bool) -> ProtocolVariant:
    """The variant that was asked for, or the default."""
    if variant is None:
        return "exchanges" if strongly_convex else "stepwise"
    checks.literal("variant", variant, ProtocolVariant)
    if variant == "exchanges" and not strongly_convex:
        rule = "must be stepwise or printed where the loss is not strongly convex"
        raise InvalidValue("variant", rule, repr(variant))
    return cast(ProtocolVariant, variant)


def require_stepwise(name: str, value: object) -> None:
    """Refuse what the exchanges have no use for."""
    if value is not None:
        rule = 'must not be given with variant = "exchanges", which ends by itself'
        raise InvalidValue(name, rule, repr(value) if isinstance(value, str) else value)


@dataclass(frozen=True, slots=True)
class ProtocolRules:
    """What the protocol is run with.

    Training steps, payment steps, step share and rule are those of the stepwise variants; left out they are
    as in `STEPWISE`. `variant="printed"` takes the paper's step 1/(K L_g) and stops after T_2 steps,
    whatever the residual.
    """

    epsilon: float = 1e-3  # certified error of a payment, in units of loss
    variant: ProtocolVariant | None = None  # None: exchanges where the loss is strongly convex
    training_steps: int | None = None  # T_1
    payment_steps: int | None = None  # T_2, a minimum
    step_share: float | None = None  # theta in (0, 1] of the largest safe step
    rule: PaymentRule | None = None  # how payments are integrated
    on_bad_report: BadReportPolicy = "raise"
    check_reports: ReportCheck = "gradients"


def exchanges_of(
    problem: Agreed, federation: Federation, rules: ProtocolRules, objective: Objective | None = None,
    *, pays: bool = True,
) -> Exchanges:  # fmt: skip
    """The protocol by exchanges; refuses rules that only steps have."""
    for name in STEPWISE:
        require_stepwise(name, getattr(rules, name))
    accuracy = checks.positive("epsilon", rules.epsilon)
    return Exchanges(
        problem, federation, accuracy, objective, rules.on_bad_report, rules.check_reports, pays
    )


def steps_of(
    problem: Agreed, federation: Federation, rules: ProtocolRules, objective: Objective | None = None
) -> StepwiseProtocol:
    """The protocol step by step, with what the rules leave out filled in."""
    values: dict[str, Any] = {
        name: default if getattr(rules, name) is None else getattr(rules, name)
        for name, default in STEPWISE.items()
    }
    steps = checks.whole("training_steps", values.pop("training_steps"), 0)
    variant: StepVariant = "printed" if rules.variant == "printed" else "stepwise"
    terms = StepwiseTerms(**values, epsilon=rules.epsilon, variant=variant)
    return StepwiseProtocol(
        problem, federation, steps, terms, objective, rules.on_bad_report, rules.check_reports
    )


def faithful(
    problem: Agreed,
    federation: Federation | None = None,
    rules: ProtocolRules | None = None,
    *,
    agents: Mapping[int, Agent] | None = None,
    start: Floats | None = None,
    resume: ExchangesProgress | None = None,
    on_step: OnStep | None = None,
    on_left_out: OnLeftOut | None = None,
) -> FaithfulOutcome:
    """Train by reports and compute what each agent owes.

    The reports are those of a `federation`, whose clients agreed on what `problem` says of their losses, or
    of the problem's own samples. `agents` holds those who deviate, by number. `on_step` is called after
    every exchange, or step of phase I, and `on_left_out` once an agent is left out. Exchanges that were
    interrupted (`AskFailed.progress`) can be resumed, and end with the same bits. In the stepwise variants
    steps restart at 1 once an agent is left out.
    """
    rules = ProtocolRules() if rules is None else rules
    checks.literal("on_bad_report", rules.on_bad_report, BadReportPolicy)
    checks.literal("check_reports", rules.check_reports, ReportCheck)
    variant = variant_for(rules.variant, problem.strongly_convex)
    clients = federation_of(problem, agents) if federation is None else deviating(federation, agents)
    if variant == "exchanges":
        exchanges = exchanges_of(problem, clients, rules)
        begin = exchanges.begin(start) if resume is None else resume
        return _by_exchanges(exchanges, begin, on_step, on_left_out)
    if resume is not None:
        reason = f'must not be given with variant = "{variant}", whose steps go on from start'
        raise InvalidValue("resume", reason, "the progress of exchanges")
    return _by_steps(steps_of(problem, clients, rules), start, on_step, on_left_out)


def _by_exchanges(
    protocol: Exchanges, at: ExchangesProgress, on_step: OnStep | None, on_left_out: OnLeftOut | None
) -> FaithfulOutcome:
    while not at.done:
        before, at = at, protocol.advance(at)
        for bad in at.bad_reports[len(before.bad_reports) :]:
            if on_left_out is not None:
                on_left_out(bad)
        if on_step is not None:
            assert at.search is not None  # there was an exchange
            on_step(at.exchanges, at.model, at.search.norm)
    return outcome_of(at, _losses(protocol.problem, at.model))


def _by_steps(
    protocol: StepwiseProtocol, start: Floats | None, on_step: OnStep | None, on_left_out: OnLeftOut | None
) -> FaithfulOutcome:
    progress = protocol.begin(start)
    while progress.ending is None:
        before, progress = progress, protocol.advance(progress, start)
        if len(progress.bad_reports) > len(before.bad_reports):
            if on_left_out is not None:
                on_left_out(progress.bad_reports[-1])
        elif progress.steps > before.steps and on_step is not None:
            on_step(progress.steps, progress.model, progress.norm)
    return outcome_of(progress, _losses(protocol.problem, progress.model))


def _losses(problem: Agreed, model: Floats) -> Floats:
    """(K,) where the samples are here; NaN where losses stay with the agents."""
    if isinstance(problem, Problem):
        return np.asarray(problem.losses(model[None])[0])
    return np.full(problem.agents, np.nan)


def outcome_of(at: StepwiseProgress | ExchangesProgress, losses: Floats) -> FaithfulOutcome:
    """The result after the payments, with the losses (K,) of the model."""
    end = at.ending
    assert end is not None  # the protocol has come to its end
    training, exchanges = (
        (at.training, at.exchanges) if isinstance(at, ExchangesProgress) else (at.steps, None)
    )
    return FaithfulOutcome(
        at.model, end.payments, losses, training, end.integration_error, end.training_error, end.left_out,
        exchanges, end.gauss_distance,
    )  # fmt: skip
