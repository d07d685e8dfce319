"""What attempts to cheat say about a mechanism: its four claims, and pairs, about which it claims nothing.

    faithfulness    no single deviation gains more than the certificate allows (see `cheating`)
    efficiency      F(w*) - min F <= epsilon min p_k, so no overall loss is off by more than epsilon
    participation   J_k <= F_k(w_-k): joining is not worse than using the others' model (theory C1.4)
    budget balance  sum P_k >= 0; with one leave-one-out model per agent every P_k >= 0. Clusters lose it
                    (erratum F-D11)
    certificates    whatever an agent does, every payment that can be compared with an exact one is as close
                    to it as it is certified to be (theory C9.6); only where payments are certified

A limit of all of them (theory C1.5): J_k >= F_k(w*) >= F_k(alone), so on its
own samples nobody ever gains against learning alone.

VCG payments are not proof against groups. If k and j both report the mean of their two gradients, training
is as before (for equal weights), but j now speaks for k where k's payment is computed: the model without k
stays closer to the shared one and k is charged less, and the other way round. `collusion` searches for the
best partner with exact payments and settles that pair through the protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bonafed.checks import Floats
from bonafed.economics.findings import Finding, Kind
from bonafed.learning.problems.convex import Problem
from bonafed.learning.problems.minima import minima, minimise
from bonafed.mechanisms.faithful.adversaries import agents as cheats
from bonafed.mechanisms.faithful.adversaries.agents import Agent
from bonafed.mechanisms.faithful.adversaries.one_against_all import run_out
from bonafed.mechanisms.faithful.adversaries.search import CLOSE, Attempt, AuditCase
from bonafed.mechanisms.faithful.protocol.payments import cluster_of
from bonafed.mechanisms.faithful.protocol.reports import Watch
from bonafed.mechanisms.faithful.protocol.stepwise import train
from bonafed.mechanisms.faithful.section import NO_WORSE_UNPAID

_PAIR_FACTORS = (1.0, 2.0)  # of the joint gradient
_ROUNDING = 1e-9
_CERTIFIED = ("exchanges", "stepwise", "left")


def verdicts(case: AuditCase, attempts: Sequence[Attempt]) -> list[Finding]:
    """The four properties: of the attempts, and of the truthful run for all agents."""
    payments = np.array([charge.amount for charge in case.honest])
    findings = [
        _faithful(attempts),
        _efficient(case),
        _participation(case, payments, max(charge.above for charge in case.honest)),
        _budget(case, payments),
    ]
    return [*findings, _certified(attempts)] if case.terms.variant in _CERTIFIED else findings


def _faithful(attempts: Sequence[Attempt]) -> Finding:
    caught = [attempt for attempt in attempts if attempt.pays]
    best = max(caught or attempts, key=lambda attempt: attempt.gain)
    allowed = f"(allowed {best.allowed:.2g})"
    if caught:
        text = f"agent {best.agent} gains {best.gain:.4g} over the truth {allowed}; its report: {best.name}"
    else:
        most = max(0.0, best.gain)
        text = f"no deviation pays in {len(attempts)} tries, largest gain {most:.2g} {allowed}"
    return Finding(
        "faithfulness", not caught, text, best.gain, tries=len(attempts), allowed=best.allowed,
        kind=Kind.LIE, unit="loss",
    )  # fmt: skip


def _certified(attempts: Sequence[Attempt]) -> Finding:
    worst = max(attempts, key=lambda attempt: attempt.outside)
    holds = worst.outside <= _ROUNDING
    text = f"payments are within their certificates of exact ones in {len(attempts)} runs"
    if not holds:
        text = (
            f"a payment is {worst.outside:.4g} outside its certificate; agent {worst.agent}: {worst.name}"
        )
    return Finding("certificates", holds, text, worst.outside, tries=len(attempts), allowed=_ROUNDING)


def _efficient(case: AuditCase) -> Finding:
    problem, p = case.problem, case.problem.weights
    best = problem.value(minimise(problem, p, case.model), p)
    excess, allowed = problem.value(case.model, p) - best, case.terms.epsilon * float(p.min())
    text = f"the total loss is {max(excess, 0.0):.2g} above its minimum {best:.6f} (allowed {allowed:.2g})"
    return Finding(
        "efficiency",
        excess <= allowed,
        text,
        excess,
        tries=1,
        allowed=allowed,
        kind=Kind.MODEL,
        unit="loss",
    )


def _participation(case: AuditCase, payments: Floats, integration: float) -> Finding:
    outside = np.diag(case.problem.losses(case.without))
    excess, allowed = case.losses + payments - outside, case.terms.epsilon + integration
    at = int(np.argmax(excess))
    holds = bool(excess[at] <= allowed)
    text = (
        f"joining beats using the others' model for all {excess.size} agents, by {-excess[at]:.4g} or more"
    )
    if excess[at] > 0:
        text = f"agent {at} loses {excess[at]:.4g} against using the others' model (allowed {allowed:.2g})"
    return Finding(
        NO_WORSE_UNPAID, holds, text, float(excess[at]), tries=excess.size, allowed=allowed,
        kind=Kind.PARTICIPATION, unit="loss",
    )  # fmt: skip


def _budget(case: AuditCase, payments: Floats) -> Finding:
    # exact payments, and those of both rules (co-coercivity), are >= 0 each: no tolerance but rounding
    least, total = float(payments.min()), float(payments.sum())
    short = -total if case.terms.variant == "clusters" else -least
    text = f"payments sum to {total:.4f}, the least is {least:.4f}"
    if short > _ROUNDING:
        text = f"the server pays: {text}, of agent {int(payments.argmin())}"
    return Finding(
        "budget balance", short <= _ROUNDING, text, short, tries=payments.size, allowed=_ROUNDING,
        kind=Kind.BUDGET, unit="loss",
    )  # fmt: skip


def alone(case: AuditCase) -> Floats:
    """(K,) F_k of the model each agent would learn alone: never above F_k(w*), so never above J_k."""
    own = minima(case.problem, np.eye(case.problem.agents), case.model)
    return np.asarray(case.problem.losses(own).diagonal())


@dataclass(frozen=True, slots=True)
class Collusion:
    """Two agents that both report the gradient of their joint loss, times a factor."""

    agents: tuple[int, int]
    factor: float
    gain: float  # what their overall losses fall by, together
    gain_unpaid: float  # what their losses fall by, together
    payments: tuple[float, float]  # colluding
    honest_payments: tuple[float, float]


def collusion(case: AuditCase, agent: int) -> Collusion:
    """The agent with its best partner: searched with exact payments, settled through the protocol."""
    truth = case.losses + [charge.amount for charge in case.honest]

    def change(other: int, factor: float) -> float:
        return _exact_joint_loss(case, agent, other, factor) - float(truth[agent] + truth[other])

    def factors(other: int) -> list[float]:
        return [f for f in _PAIR_FACTORS if _stable(case.problem, agent, other, f)]

    partners = [k for k in range(case.problem.agents) if k != agent]
    other = min(partners, key=lambda k: change(k, factors(k)[-1]))
    factor = min(factors(other), key=lambda f: change(other, f))
    joint = cheats.collude(case.holdings.of(agent, other), 0, 1, factor)
    both, reporting = (agent, other), {agent: joint[0], other: joint[1]}
    honest = tuple(case.honest[k].amount for k in both)
    model, payments = _settled(case, reporting, _joint_mixes(case, agent, other, factor))
    lighter = float((case.losses - case.problem.losses(model[None])[0])[list(both)].sum())
    gain = lighter + sum(honest) - sum(payments)
    return Collusion(both, factor, gain, lighter, (payments[0], payments[1]), (honest[0], honest[1]))


def _settled(
    case: AuditCase, reporting: dict[int, Agent], mixes: Floats
) -> tuple[Floats, tuple[float, ...]]:
    """The model that such reports lead to, and what the reporting agents owe for it, all being believed."""
    if case.truth is not None:
        outcome = run_out(case.problem, case.course(reporting, "numbers"))
        return outcome.model, tuple(float(outcome.payments.amount[k]) for k in reporting)
    watch = Watch(case.problem, "numbers")
    model, reports = train(case.problem, reporting, case.steps, watch=watch)
    if case.terms.variant == "clusters":
        return model, tuple(_exact_payment(case, k, model, mixes) for k in reporting)
    return model, tuple(case.charge(k, model, reports).amount for k in reporting)


def _stable(problem: Problem, first: int, second: int, factor: float) -> bool:
    """Whether the steps of both phases converge for their reports: no sum of them is twice as smooth."""
    p, q = float(problem.weights[first]), float(problem.weights[second])
    return (factor - 1) * max(p + q, p / (1 - q), q / (1 - p)) < 0.99


def _joint_mixes(case: AuditCase, first: int, second: int, factor: float) -> Floats:
    """(K, K) whose losses each agent's reports are gradients of."""
    mixes = np.eye(case.problem.agents)
    mixes[[first, second]] = factor / 2 * (mixes[first] + mixes[second])
    return mixes


def _exact_joint_loss(case: AuditCase, first: int, second: int, factor: float) -> float:
    mixes, problem = _joint_mixes(case, first, second, factor), case.problem
    model = minimise(problem, problem.weights @ mixes, case.model, CLOSE)
    own = problem.losses(model[None])[0, [first, second]].sum()
    if case.terms.variant == "fedavg":
        return float(own)
    return float(own + sum(_exact_payment(case, k, model, mixes) for k in (first, second)))


def _exact_payment(case: AuditCase, agent: int, model: Floats, mixes: Floats) -> float:
    """Payment (10), or that of the clusters, computed from reports instead of losses."""
    p, reporters = case.problem.weights, np.ones(case.problem.agents, dtype=np.bool_)
    reporters[agent] = False
    others = (p * reporters) @ mixes
    if case.terms.variant == "clusters":
        of = cluster_of(case.terms.clusters, case.problem.agents)
        reporters &= of != of[agent]
    pivot = minimise(case.problem, (p * reporters) @ mixes, model, CLOSE)
    return (case.problem.value(model, others) - case.problem.value(pivot, others)) / float(p[agent])
