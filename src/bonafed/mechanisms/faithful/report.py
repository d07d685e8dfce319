"""What `bonafed audit faithful` says: agents cheat, and what that brings them with and without payments."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from bonafed import checks
from bonafed.checks import finite_or_none
from bonafed.economics.findings import Finding, all_hold, findings_table
from bonafed.economics.statement import within_error
from bonafed.errors import InvalidValue
from bonafed.learning.privacy import checked_delta
from bonafed.learning.problems.convex import scaled_features
from bonafed.learning.problems.softmax import SoftmaxRegression
from bonafed.learning.sections import NoiseAt
from bonafed.mechanisms.faithful.adversaries.claims import Collusion, alone, collusion, verdicts
from bonafed.mechanisms.faithful.adversaries.private_search import (
    PrivateAttempt,
    private_attack,
    private_verdicts,
)
from bonafed.mechanisms.faithful.adversaries.search import (
    FACTORS,
    AgentData,
    Attempt,
    AuditCase,
    AuditTerms,
    attack,
    gain_curve,
    prepare,
    safe_factor,
)
from bonafed.mechanisms.faithful.adversaries.search import Variant as AttackedVariant
from bonafed.mechanisms.faithful.private.noise import PrivateTerms, PublicFacts
from bonafed.mechanisms.faithful.private.plan import PrivateFaithfulPlan, plan_private, plan_warning
from bonafed.mechanisms.faithful.protocol.payments import random_clusters
from bonafed.mechanisms.faithful.section import PRIVATE_VARIANTS, FaithfulAuditOptions
from bonafed.presentation.documents import Block, Cell, Column, Document, JSONObject, Table
from bonafed.randomness import FaithfulAudit, numbered_generator

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from bonafed.learning.data.datasets import Dataset

_AGENTS, _DELTA, _AGENT = 10, 0.5, 3
_ALPHA, _BETA, _TRIALS = 10.0, 1e-5, 16
_ADDED = {"sum": "", "client": ", of which every agent adds its own"}
_NOTES: Mapping[str, str] = {
    "left": "The left rule charges a little more than the VCG payment, so understating by a few per "
    "cent gains a little; that is within what its integration error allows.",
    "printed": "The paper's step and T_2 = 20 payment steps (sign corrected) collect only part of the "
    "VCG payment, so overstating the gradient pays.",
    "fedavg": "Plain averaging: nobody pays, and an agent that overstates its gradient pulls the model "
    "towards its own data.",
    "clusters": "Measured against a model without the whole cluster, payments are below VCG and may be "
    "negative: incentives survive, budget balance does not.",
}
_PRIVATE_NOTES: Mapping[str, str] = {
    "corrected": "What an agent gains by a lie lowers the federation's loss: it shortens training that "
    "noise or too few steps left unfinished.",
    "printed": "The models without an agent begin at the shared one, which it has shaped, and go on "
    "training: it is charged for what was left to do, and overstating leaves less.",
}
_SILENCE = (
    "Silence does not pay for an agent that discards the models it was sent. If it keeps the last one, it "
    "owes the payment for that model (bonafed train says how much), to be secured before training."
)


def audit(options: FaithfulAuditOptions) -> Document:
    """Let agents cheat, and report whether it pays."""
    agent_data = holdings(options)
    who = _agents(options.agent, int(agent_data.owner.max()) + 1)
    if options.variant in PRIVATE_VARIANTS:
        return _private(options, agent_data, who)
    return _plain(options, agent_data, who)


def _agents(agent: str | None, count: int) -> list[int]:
    if agent is None:
        return [min(_AGENT, count - 1)]
    if agent == "all":
        return list(range(count))
    if not (agent.isascii() and agent.isdecimal() and len(agent) < 10) or int(agent) >= count:
        raise InvalidValue("agent", f"must be in 0..{count - 1}, or all", agent)
    return [int(agent)]


def holdings(options: FaithfulAuditOptions) -> AgentData:
    """Samples with their owners: those named in the data, or by label to the extent of delta."""
    from bonafed.learning.data import datasets, partition

    agents, delta, seed = options.agents, options.delta, options.seed
    count = _AGENTS if agents is None else agents
    source = datasets.load(options.data, seed=seed)
    rows = numbered_generator(seed, FaithfulAudit.SAMPLES).permutation(source.labels.size)[
        : options.samples
    ]
    y, names = source.labels[rows], source.groups
    if names is not None and agents is None and delta is None:
        parts = partition.natural(names[rows])
    elif source.classes == 0:
        rule = "must have classes, or owners and neither --agents nor --delta"
        raise InvalidValue("data", rule, options.data)
    else:
        present = np.unique(y).size
        if count < present:
            raise InvalidValue("agents", f"must be at least the number of classes, {present}", count)
        rng = numbered_generator(seed, FaithfulAudit.PARTITION)
        parts = partition.typicality(y, count, rng, _DELTA if delta is None else delta)
    targets = y.astype(np.int64) if source.classes else y.astype(np.float64)
    x = _features(source, rows, options.side)
    return AgentData(x, targets, partition.owners(parts), source.classes, options.regulariser)


def _features(source: Dataset, rows: NDArray[np.int64], side: int) -> checks.Floats:
    """(n, d) of some samples: pooled, with a constant, the largest row of norm 1."""
    if source.vocabulary:
        raise InvalidValue("data", "must be images or numbers, not text", source.name)
    x = source.features[rows].astype(np.float64)
    if x.ndim == 4:
        n, channels, height, width = x.shape
        if height % side or width % side:
            raise InvalidValue("side", f"must divide {height} and {width}", side)
        x = x.reshape(n, channels, side, height // side, side, width // side).mean((3, 5))
    return scaled_features(x)[0]


def _plain(options: FaithfulAuditOptions, agent_data: AgentData, who: Sequence[int]) -> Document:
    groups, count = [], int(agent_data.owner.max()) + 1
    if options.variant == "clusters":
        number = max(2, count // 2) if options.clusters is None else options.clusters
        rng = numbered_generator(options.seed, FaithfulAudit.CLUSTERS)
        groups = random_clusters(count, number, rng)
    case = prepare(
        agent_data, AuditTerms(cast(AttackedVariant, options.variant), options.epsilon, clusters=groups)
    )
    attempts = [attempt for k in who for attempt in attack(case, k, options.seed)]
    pairs = [collusion(case, k) for k in who]
    findings = verdicts(case, attempts)
    subject = f"faithful learning ({options.variant})"
    notes = _notes(case, attempts)
    blocks: list[Block] = [
        _claims(subject, findings),
        f"{case.problem.agents} agents, {agent_data.owner.size:,} samples of {options.data}, "
        f"{case.problem.size} parameters; {_length(case)}. Losses and payments are in units of loss. "
        f"{_limit(case)}",
    ]
    if len(pairs) == 1:
        blocks += [_attempts_table(case, attempts), *_recognised(attempts)]
        blocks.append(_pair_text(pairs[0], options.variant))
    else:
        blocks.append(_best_table(attempts, pairs))
    return Document(
        (*blocks, *notes),
        _data(subject, case, findings, attempts, pairs, notes),
        lambda: _figure(case, attempts, options.variant),
        holds=all_hold(findings),
    )


def _claims(subject: str, findings: Sequence[Finding]) -> Table:
    """The findings; those that fail say so."""
    return findings_table(
        f"Audit of {subject}",
        [f if f.holds is not False else replace(f, text=f"VIOLATED, {f.text}") for f in findings],
    )


def _length(case: AuditCase) -> str:
    if case.truth is None:
        return f"{case.steps} training steps"
    return f"{case.truth.exchanges} exchanges, {case.steps} of them for training"


def _limit(case: AuditCase) -> str:
    """Above what a gain counts."""
    epsilon = case.terms.epsilon
    if case.truth is None:
        return f"A gain counts above 2 epsilon = {2 * epsilon:g} and the integration error of the payments."
    return (
        f"A gain counts above the certified errors of both runs, 2.5 epsilon = {2.5 * epsilon:g} at most."
    )


def _recognised(attempts: Sequence[Attempt]) -> list[Block]:
    """Which lies the protocol by exchanges recognised, and what they would bring if it did not."""
    named, believed = (
        [a for a in attempts if a.where and not a.believed],
        [a for a in attempts if a.believed],
    )
    if not named:
        return []
    columns = (Column("", left=True), Column("recognised in", left=True), Column("left with", left=True))
    rows = tuple((a.name, a.where, "the last model" if a.payment else "the others' model") for a in named)
    most = max(0.0, *(a.gain for a in believed))
    return [
        Table("Lies that are recognised; the protocol goes on without the agent", columns, rows),
        f"Had they been believed, the best of them would have gained {most:.2g}.",
    ]


def _attempts_table(case: AuditCase, attempts: Sequence[Attempt]) -> Table:
    agent = attempts[0].agent
    columns = (
        Column("", left=True), Column("loss", ".4f"), Column("payment", ".4f"), Column("gain"),
        Column("pays"), Column("FedAvg gain"), Column("FedAvg pays"),
    )  # fmt: skip
    truth = ("the truth", float(case.losses[agent]), case.honest[agent].amount, None, None, None, None)
    rows: list[tuple[Cell, ...]] = [truth]
    for a in attempts:
        if a.believed:
            continue
        if math.isnan(a.loss):
            rows.append((a.name, "none", "none", None, "no", None, "no"))
            continue
        unpaid = a.gain_unpaid > case.terms.epsilon
        rows.append((
            a.name, a.loss, a.payment, _signed(a.gain), _yes(a.pays),
            _signed(a.gain_unpaid) if math.isfinite(a.gain_unpaid) else None, _yes(unpaid),
        ))  # fmt: skip
    return Table(f"What agent {agent} reports", columns, tuple(rows))


def _best_table(attempts: Sequence[Attempt], pairs: Sequence[Collusion]) -> Table:
    columns = (
        Column("agent"), Column("here", left=True), Column("gain"), Column("allowed", ".4f"),
        Column("FedAvg", left=True), Column("FedAvg gain"), Column("best partner"), Column("gain together"),
    )  # fmt: skip
    rows: list[tuple[Cell, ...]] = []
    for pair in pairs:
        k = pair.agents[0]
        own_attempts = [a for a in attempts if a.agent == k and not a.believed]
        here, there = (
            max(own_attempts, key=lambda a: a.gain),
            max(own_attempts, key=lambda a: a.gain_unpaid),
        )
        rows.append((
            k, here.name, _signed(here.gain), here.allowed, there.name, _signed(there.gain_unpaid),
            pair.agents[1], _signed(pair.gain),
        ))  # fmt: skip
    return Table("Best deviation of every agent", columns, tuple(rows))


def _pair_text(pair: Collusion, variant: str) -> str:
    first, second = pair.agents
    what = (
        f"Agents {first} and {second}, if both report {pair.factor:g} x the gradient of their joint loss,"
    )
    if pair.gain <= 0:
        return f"{what} lose {-pair.gain:.4f} together, and no other partner does better."
    if variant == "fedavg":
        return f"{what} gain {pair.gain:.4f} together."
    return (
        f"{what} gain {pair.gain:.4f} together. That breaks no claim: such payments make the lies of one "
        "agent unprofitable, not those of several."
    )


def _notes(case: AuditCase, attempts: Sequence[Attempt]) -> list[str]:
    notes = [_NOTES[case.terms.variant]] if case.terms.variant in _NOTES else []
    if case.truth is None:  # else there is a table of them
        notes += [f"Agent {a.agent}, {a.name}: {a.end}." for a in attempts if a.end]
    notes += _within_error(case, sorted({a.agent for a in attempts}))
    if case.terms.variant != "fedavg":
        notes.append(_SILENCE)
    own, k = alone(case), attempts[0].agent
    overall = float(case.losses[k] + case.honest[k].amount)
    notes.append(
        "Participation is judged against using the others' model. Nobody beats learning alone on its own "
        f"samples, whatever the mechanism: agent {k} has {overall:.4f} here and {own[k]:.4f} alone. What a "
        "federation adds shows on fresh samples."
    )
    return notes


def _within_error(case: AuditCase, agents: Sequence[int]) -> list[str]:
    """Of these agents, whose payment for the truth is no larger than what it may be off by."""
    errors = [case.terms.epsilon + max(charge.above, charge.below, 0.0) for charge in case.honest]
    small = within_error(
        [str(k) for k in agents], [case.honest[k].amount for k in agents], [errors[k] for k in agents]
    )
    return [f"For the truth, {note}." for note in small]


def _signed(gain: float) -> str:
    return f"{round(gain, 4) + 0.0:+.4f}"  # never -0.0000


def _yes(pays: bool) -> str:
    return "YES" if pays else "no"


def _figure(case: AuditCase, attempts: Sequence[Attempt], variant: str) -> Figure:
    """The gains of the agent that gains most, if several were tried."""
    from bonafed.mechanisms.faithful.figures import cheating_figure

    agent = max(attempts, key=lambda attempt: attempt.gain).agent
    high = min(FACTORS[-1], safe_factor(case.problem, agent))
    factors = np.unique(np.append(np.geomspace(FACTORS[0], high, 25), 1.0))
    own = [attempt for attempt in attempts if attempt.agent == agent and not attempt.believed]
    title = f"Faithful learning ({variant}), agent {agent}"
    return cheating_figure(gain_curve(case, agent, list(factors)), own, title)


def _data(
    subject: str,
    case: AuditCase,
    findings: Sequence[Finding],
    attempts: Sequence[Attempt],
    pairs: Sequence[Collusion],
    notes: Sequence[str],
) -> JSONObject:
    return {
        "subject": subject,
        "passed": all_hold(findings),
        "agents": case.problem.agents,
        "samples": int(case.holdings.owner.size),
        "parameters": case.problem.size,
        "training_steps": case.steps,
        "exchanges": None if case.truth is None else case.truth.exchanges,
        "epsilon": case.terms.epsilon,
        "findings": [finding.to_json() for finding in findings],
        "truth": [
            {"agent": k, "loss": float(case.losses[k]), "payment": charge.amount}
            for k, charge in enumerate(case.honest)
        ],
        "deviations": [
            {
                "agent": a.agent, "name": a.name, "factor": a.factor, "loss": finite_or_none(a.loss),
                "payment": finite_or_none(a.payment), "gain": finite_or_none(a.gain), "allowed": a.allowed,
                "pays": a.pays, "gain_under_fedavg": finite_or_none(a.gain_unpaid),
                "pays_under_fedavg": a.gain_unpaid > case.terms.epsilon, "end": a.end or None,
                "recognised_in": a.where or None, "believed": a.believed, "exchanges": a.exchanges,
            }
            for a in attempts
        ],
        "pairs": [
            {
                "agents": list(c.agents), "factor": c.factor, "gain": c.gain,
                "gain_under_fedavg": c.gain_unpaid, "payments": list(c.payments),
            }
            for c in pairs
        ],
        "notes": list(notes),
    }  # fmt: skip


def _private(options: FaithfulAuditOptions, agent_data: AgentData, who: Sequence[int]) -> Document:
    """Gains over the noise, with a confidence limit."""
    problem, variant = agent_data.problem(), PRIVATE_VARIANTS[options.variant]
    if not isinstance(problem, SoftmaxRegression):
        raise InvalidValue("data", "must have classes for a private variant", options.data)
    at: NoiseAt = options.noise_at or "sum"
    terms = PrivateTerms(options.alpha or _ALPHA, options.beta or _BETA, variant, noise_at=at)
    sizes = np.bincount(agent_data.owner).tolist()
    cautions = checked_delta("beta", terms.beta, sizes)
    count = options.trials or _TRIALS
    groups = [np.array([k]) for k in range(problem.agents)]
    plan, warning = None, None
    if variant == "corrected":
        facts = PublicFacts.of(problem, groups, terms.clip, at)
        plan = plan_private(facts, PrivateTerms(alpha=terms.alpha, beta=terms.beta))
        warning = plan_warning(facts, plan, alpha=terms.alpha, beta=terms.beta)
    attempts = [a for k in who for a in private_attack(problem, groups, k, terms, seeds=count)]
    findings = private_verdicts(problem, attempts)
    subject = f"private faithful learning ({variant})"
    blocks: list[Block] = [
        _claims(subject, findings),
        f"Samples of {options.data}, epsilon {terms.alpha:g} at delta {terms.beta:g}, {count} draws of the "
        f"noise{_ADDED[at]}, the same for truth and lie. Gains are in units of loss; a gain counts if its "
        "lower confidence limit is above what is allowed.",
        _private_table(attempts),
        _PRIVATE_NOTES[variant],
    ]
    for warning_text in filter(None, [*cautions, warning]):
        blocks.insert(0, f"warning: {warning_text}")
    data = _private_data(subject, terms, count, plan, warning, findings, attempts)
    return Document(
        tuple(blocks), data, lambda: _private_figure(attempts, subject), holds=all_hold(findings)
    )


def _private_figure(attempts: Sequence[PrivateAttempt], subject: str) -> Figure:
    from bonafed.mechanisms.faithful.figures import private_figure

    return private_figure(attempts, f"{subject.capitalize()}: mean gains over the truth")


def _private_table(attempts: Sequence[PrivateAttempt]) -> Table:
    columns = (
        Column("agent"), Column("", left=True), Column("mean gain", "+.4f"), Column("at least", "+.4f"),
        Column("allowed", ".2g"), Column("federation", "+.4f"), Column("pays"),
    )  # fmt: skip
    rows = tuple((a.agent, a.name, a.gain, a.lower, a.allowed, a.fall, _yes(a.pays)) for a in attempts)
    caption = "federation: by how much its loss falls, divided by the agent's weight"
    return Table("What agents report", columns, rows, caption)


def _private_data(
    subject: str,
    terms: PrivateTerms,
    count: int,
    plan: PrivateFaithfulPlan | None,
    warning: str | None,
    findings: Sequence[Finding],
    attempts: Sequence[PrivateAttempt],
) -> dict[str, Any]:
    plan_data = None
    if plan is not None:
        plan_data = {
            "training_steps": plan.training_steps, "payment_steps": plan.payment_steps, "split": plan.split,
            "payment_error": float(plan.payment_error.max()), "model_error": plan.model_error,
            "usable": plan.usable,
        }  # fmt: skip
    return {
        "subject": subject,
        "passed": all_hold(findings),
        "alpha": terms.alpha,
        "beta": terms.beta,
        "noise_at": terms.noise_at,
        "trials": count,
        "plan": plan_data,
        "warning": warning,
        "findings": [finding.to_json() for finding in findings],
        "deviations": [
            {
                "agent": a.agent, "name": a.name, "factor": a.factor, "gain": a.gain, "at_least": a.lower,
                "allowed": a.allowed, "federation_gain_over_weight": a.fall, "pays": a.pays,
            }
            for a in attempts
        ],
    }  # fmt: skip
