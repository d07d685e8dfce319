"""What every agent learns at the end, and whether the mechanism kept its four promises.

An agent's row: its loss F_k under the shared model, its payment, the sum of both, and two losses to compare
them with: F_k(w_-k), had it only used the others' model, and F_k(w_k), had it stayed alone. On its own
samples staying alone always looks better, since w_k is made for them (theory C1.5), so where fresh samples
are at hand the comparison is made on those.

    efficiency      F(w*) - min F <= |grad F(w*)|^2/(2 mu)
    faithfulness    with P_k within epsilon below VCG and delta the error of the integration, any report
                    leaves J_k >= [min F - min f_-k]/p_k - epsilon - delta, and the truth gives at most
                    [F(w*) - min f_-k]/p_k + delta: no report gains more than (F(w*) - min F)/p_k +
                    epsilon + 2 delta, as long as the integration errs for its model as it does here
                    By exchanges at most half of epsilon is left of the search and half is integration,
                    whatever k reports: no report gains more than (F(w*) - min F)/p_k + epsilon + delta
    no worse than without paying
                    J_k <= F_k(w_-k), up to the same slack: the paper's participation. An agent that may
                    choose between joining and the others' model for nothing joins
    budget balance  sum of payments >= 0: the server does not pay for what it organises

Each is checked for this run from its numbers, and says what it rests on. F is the true loss of the
members: if somebody cheats, training minimises something else, and efficiency is lost; what is promised to
agents is promised to those who follow the protocol.

Beside them the statement counts who is no worse than alone: F_k(w*) + P_k <= F_k(w_k) on fresh samples.
The mechanism does not promise that: an agent with enough data of its own may be better off alone.

In a private run only what was released may be looked at. What holds does so on average over the noise,
and follows from how much of it there was and from the number of steps (theory C6.2, C6.3): with G(T) the
bound on what T steps leave of a loss,

    efficiency      E F(w*) - min F <= G(T_1)
    faithfulness    no report gains an agent more than G(T_1)/p_k; whoever gains, lowers F
    no worse than without paying    E J_k <= F_k(w_-k) + G(T_1)/p_k
    budget balance  E sum P_k >= -sum (1 - p_k) G(T_2)/p_k, if every agent is a cluster of its own

A bound above the loss of a model that knows nothing, ln(classes), says nothing: no promise then.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from bonafed.checks import Floats
from bonafed.economics.findings import Finding, Kind
from bonafed.economics.statement import NO_WORSE_ALONE
from bonafed.learning.problems.agreed import Agreed
from bonafed.learning.problems.convex import Problem
from bonafed.learning.problems.minima import models_alone
from bonafed.learning.problems.softmax import SoftmaxRegression
from bonafed.mechanisms.faithful.private.noise import PublicFacts
from bonafed.mechanisms.faithful.private.plan import training_gap
from bonafed.mechanisms.faithful.private.schedule import PrivateOutcome
from bonafed.mechanisms.faithful.protocol.payments import FaithfulOutcome
from bonafed.mechanisms.faithful.section import NAMES, NO_WORSE_UNPAID

_KINDS = dict(zip(NAMES, (Kind.MODEL, Kind.LIE, Kind.PARTICIPATION, Kind.BUDGET), strict=True))
FreshLosses = Callable[[Floats], Floats]  # models (m, P) -> (m, K) every agent's loss on fresh samples


class ComparedLosses(NamedTuple):
    """Losses that an agent may hold its own against; NaN where nobody tells."""

    others: Floats  # (K,) F_k(w_-k): with the model of the others
    alone: Floats  # (K,) F_k(w_k): with a model of its own
    fresh: Floats | None = None  # (K,) loss of the shared model on fresh samples of the agent's kind
    fresh_alone: Floats | None = None  # (K,) and of its own model


@dataclass(frozen=True, slots=True, eq=False)
class AgentAccounts:
    """The accounts of a run; all losses in units of the loss, as the payments."""

    loss: Floats  # (K,) F_k(w*)
    payment: Floats  # (K,) P_k, owed to the server
    error: Floats  # (K,) the payment is at most this below VCG, integration included; NaN: not certified
    others: Floats  # (K,) F_k(w_-k): with the model of the others
    alone: Floats  # (K,) F_k(w_k): with a model of its own
    fresh: Floats | None  # (K,) loss of the shared model on fresh samples of the agent's kind
    fresh_alone: Floats | None  # (K,) and of its own model
    checks: tuple[Finding, ...]

    @property
    def overall(self) -> Floats:
        """(K,) J_k = F_k(w*) + P_k."""
        return self.loss + self.payment

    @property
    def no_worse_alone(self) -> list[bool] | None:
        """Whether loss and payment are at most the loss alone, on fresh samples."""
        if self.fresh is None or self.fresh_alone is None:
            return None
        return [bool(fine) for fine in self.fresh + self.payment <= self.fresh_alone]


def accounts_of(
    problem: Problem,
    outcome: FaithfulOutcome,
    *,
    epsilon: float,
    clustered: bool = False,
    cheating: Collection[int] = (),
    fresh: FreshLosses | None = None,
    start: Floats | None = None,
) -> AgentAccounts:
    """The accounts of what the protocol came to.

    `clustered` says that payments are by clusters, which give up balance and VCG but no incentive, and
    `cheating` who does not follow the protocol. Models alone are trained from `start` with as many steps
    as the shared one if the problem is not strongly convex.
    """
    # of a strongly convex loss there is one minimum, and the shared model is nearer to it
    begin = outcome.model if problem.strongly_convex else start
    own = models_alone(problem, steps=outcome.training_steps, start=begin)
    compared = _compared(problem, outcome.model, outcome.payments.models, own, fresh)
    absent = [out.agent for out in outcome.left_out]
    compared.others[absent] = outcome.losses[absent]  # the shared model is that of the others
    return accounts_from(
        problem, outcome, compared, _gap(problem, outcome), epsilon=epsilon, clustered=clustered,
        cheating=cheating,
    )  # fmt: skip


def _compared(
    problem: Problem, shared: Floats, without: Floats, own: Floats, fresh: FreshLosses | None
) -> ComparedLosses:
    """From the shared model (P,), and those without each agent and of each alone, (K, P)."""
    others, alone = problem.own_losses(without), problem.own_losses(own)
    if fresh is None:
        return ComparedLosses(others, alone)
    return ComparedLosses(others, alone, fresh(shared[None])[0], fresh(own).diagonal())


def accounts_from(
    problem: Agreed,
    outcome: FaithfulOutcome,
    compared: ComparedLosses,
    gap: float,
    *,
    epsilon: float,
    clustered: bool = False,
    cheating: Collection[int] = (),
) -> AgentAccounts:
    """The accounts from losses that agents reported, NaN if missing; `gap` bounds F(w*) - min F."""
    smallest = _smallest(problem, outcome)
    allowed = _allowed(outcome, epsilon)
    slack = gap / smallest + allowed
    honest = [k for k in range(problem.agents) if k not in cheating]
    findings = (
        _efficiency(problem, gap, epsilon * smallest),
        _faithfulness(problem, outcome, epsilon, slack, gap <= epsilon * smallest, clustered),
        _participation(
            problem,
            outcome,
            compared.others,
            epsilon,
            allowed if outcome.exchanges is None else slack,
            honest,
        ),
        _balance(problem, outcome, clustered),
    )
    amount, error = outcome.payments.amount, outcome.payments.error + outcome.integration_error
    return _counting_alone(AgentAccounts(outcome.losses, amount, error, *compared, findings))


def _counting_alone(accounts: AgentAccounts) -> AgentAccounts:
    """The accounts with a finding about who is no worse than alone, where fresh samples tell."""
    fine = accounts.no_worse_alone
    if fine is None:
        return accounts
    assert accounts.fresh is not None  # it follows from them
    assert accounts.fresh_alone is not None
    text = f"{sum(fine):,} of {len(fine):,} agents, on fresh samples and with their payments"
    if not all(fine):
        text += "; it is not promised"
    worst = float((accounts.fresh + accounts.payment - accounts.fresh_alone).max())
    finding = Finding(
        NO_WORSE_ALONE, True if all(fine) else None, text, worst, kind=Kind.PARTICIPATION, unit="loss"
    )
    return replace(accounts, checks=(*accounts.checks, finding))


def _finding(
    name: str, holds: bool | None, text: str, number: float = math.nan, allowed: float = 0.0
) -> Finding:
    """About one of the four promises; numbers are in units of loss."""
    return Finding(name, holds, text, number, allowed=allowed, kind=_KINDS[name], unit="loss")


def _allowed(outcome: FaithfulOutcome, epsilon: float) -> float:
    """What the errors of payments alone let a report gain."""
    delta = outcome.integration_error
    if outcome.exchanges is None:
        return epsilon + 2 * delta
    # either may be above its half of epsilon: nodes were too many, or gradients too coarse
    residual = max(epsilon / 2, float(outcome.payments.error.max()))
    return residual + max(epsilon / 2, delta) + delta


def private_accounts(
    problem: SoftmaxRegression,
    outcome: PrivateOutcome,
    *,
    clusters: int,
    longest: float | None = None,
    fresh: FreshLosses | None = None,
) -> AgentAccounts:
    """The accounts of a private run; losses are what only the simulation knows.

    `longest` is a bound on the norm of a sample's features that is known without looking at them. Without
    one, gradients may have been clipped for all that is known, and nothing is promised.
    """
    own, k = models_alone(problem), problem.agents
    losses = problem.losses(outcome.model[None])[0]
    compared = _compared(problem, outcome.model, outcome.models, own, fresh)
    unknown = np.full(k, np.nan)
    counts = problem.counts.astype(np.float64)
    facts = PublicFacts(
        counts, problem.weights, (), problem.regulariser, outcome.clip, problem.size, problem.classes
    )
    findings = private_checks(facts, outcome, clusters, longest)
    return _counting_alone(AgentAccounts(losses, outcome.payments, unknown, *compared, findings))


def private_checks(
    problem: PublicFacts, outcome: PrivateOutcome, clusters: int, longest: float | None
) -> tuple[Finding, ...]:
    """The four promises by what is public: noise, steps, weights, models and payments."""
    names, server_pays = NAMES, -float(outcome.payments.sum())
    total = f"payments sum to {-server_pays:.4g}, with noise"
    broken = _why_nothing(outcome, longest, problem.regulariser)
    if broken:
        return (*(_finding(name, None, f"not promised: {broken}") for name in names[:3]),
                _finding(names[3], None, f"{total}; {broken}", server_pays))  # fmt: skip

    def gap(steps: int) -> float:
        return training_gap(
            steps, outcome.noise.gradient, problem.regulariser, outcome.smoothness, problem.size,
            problem.classes,
        )  # fmt: skip

    p, nothing = problem.weights, math.log(problem.classes)
    excess = gap(outcome.training_steps)
    gain = excess / float(p.min())
    short = float(((1 - p) / p).sum()) * gap(outcome.payment_steps)
    average = "on average over the noise"

    def check(name: str, bound: float, text: str, besides: str = "") -> Finding:
        if bound < nothing:
            return _finding(name, True, text)
        vacuous = f"the bound, {bound:.2g}, says nothing: a model that knows nothing loses {nothing:.2g}"
        return _finding(name, None, vacuous + besides)

    gains = f"no report gains an agent more than {gain:.2g} {average}"
    common_interest = "; what a false report gains an agent, it gains for the federation"
    balance = _finding(names[3], None, f"{total}; clusters may make the server pay", server_pays)
    if clusters == p.size:
        text = f"{total}; {average} not below {-short:.2g}"
        balance = _finding(names[3], None, text, server_pays)
    return (
        check(
            names[0], excess, f"the federation's loss is at most {excess:.2g} above its minimum, {average}"
        ),
        check(names[1], gain, gains, common_interest),
        check(names[2], gain, f"nobody is worse off than with the others' model by {gain:.2g}, {average}"),
        balance,
    )


def _why_nothing(outcome: PrivateOutcome, longest: float | None, mu: float) -> str:
    """Why the theorems do not cover a run; empty if they do."""
    if outcome.variant != "corrected":
        return "the models without an agent begin where it brought the shared one, so overstating may pay"
    if longest is None or outcome.clip < math.sqrt(2) * longest:
        return "gradients may have been clipped, and then are those of no loss"
    if outcome.smoothness < mu + longest**2 / 2:
        return "the steps may be too long"
    if outcome.differences_clipped:
        return f"loss differences may have been clipped to {outcome.loss_bound:g}"
    return ""


def _members(problem: Agreed, outcome: FaithfulOutcome) -> Floats:
    """(K,) weights of those in the model, sum 1."""
    weights = problem.weights.copy()
    weights[[out.agent for out in outcome.left_out]] = 0.0
    return np.asarray(weights / weights.sum())


def _gap(problem: Problem, outcome: FaithfulOutcome) -> float:
    """F(w*) - min F at most, F the true loss of the members; means nothing without convexity."""
    g = problem.gradient(outcome.model[None], _members(problem, outcome)[None])[0]
    return float(g @ g) / (2 * problem.regulariser)


def _smallest(problem: Agreed, outcome: FaithfulOutcome) -> float:
    """Least weight of a member: what is left of F counts for it the most, divided by its weight."""
    weights = _members(problem, outcome)
    return float(weights[weights > 0].min())


def _efficiency(problem: Agreed, gap: float, allowed: float) -> Finding:
    if not problem.strongly_convex:
        text = "not promised: the loss is not convex, training ends at some stationary point"
        return _finding("efficiency", None, text)
    text = f"the federation's loss is at most {gap:.2g} above its minimum"
    if gap > allowed:
        why = "too few steps, coarse gradients, or somebody does not report the truth"
        text += f", more than {allowed:.2g}: {why}"
    return _finding("efficiency", gap <= allowed, text, gap, allowed)


def _faithfulness(
    problem: Agreed,
    outcome: FaithfulOutcome,
    epsilon: float,
    slack: float,
    efficient: bool,
    clustered: bool,
) -> Finding:
    if not problem.strongly_convex:
        text = "not promised: without convexity the steps without an agent may end in another valley"
        return _finding("faithfulness", None, text)
    if not efficient:
        text = f"without efficiency a report may gain an agent up to {slack:.2g}"
        return _finding("faithfulness", False, text)
    if clustered:
        text = f"payments are below VCG, but no report gains an agent more than {slack:.2g}"
        return _finding("faithfulness", True, text)
    short = float(outcome.payments.error.max())
    if short <= epsilon * (1 + 1e-9):
        return _finding("faithfulness", True, f"no report gains an agent more than {slack:.2g}")
    text = f"payments may be {short:.2g} below VCG, more than {epsilon:g}: overstating may pay"
    return _finding("faithfulness", False, text)


def _participation(
    problem: Agreed,
    outcome: FaithfulOutcome,
    others: Floats,
    epsilon: float,
    slack: float,
    honest: list[int],
) -> Finding:
    better = outcome.overall - others
    if np.isnan(better[honest]).any():
        text = "not checked: agents keep their losses to themselves; each compares its own"
        return _finding(NO_WORSE_UNPAID, None, text)
    worst = max(honest, key=lambda k: float(better[k]), default=0)
    if not problem.strongly_convex:
        count = int((better <= 0).sum())
        text = f"not promised; here joining beats using the others' model for {count} of {problem.agents}"
        return _finding(NO_WORSE_UNPAID, None, text)
    if float(better[worst]) <= slack:
        who = "nobody" if len(honest) == problem.agents else "nobody who follows the protocol"
        text = f"{who} does better with the others' model and no payment"
        if float(better[worst]) > 2.5 * epsilon:  # (C9.7), if all is as accurate as asked for
            text += f" by more than {slack:.2g}, the errors of model and payments"
        return _finding(NO_WORSE_UNPAID, True, text, float(better[worst]), slack)
    text = f"agent {worst} would do better by {better[worst]:.2g} with the others' model"
    return _finding(NO_WORSE_UNPAID, False, text, float(better[worst]), slack)


def _balance(problem: Agreed, outcome: FaithfulOutcome, clustered: bool) -> Finding:
    total = outcome.payments.total
    if not problem.strongly_convex:
        return _finding(NAMES[3], None, f"not promised; here payments sum to {total:.4g}", -total)
    rounding = 1e-9 * float(np.abs(outcome.payments.amount).sum())
    holds = total >= -rounding
    text = f"payments sum to {total:.4g}"
    if not holds:
        text += ": the server pays"
        if clustered:
            text += ", which clusters do not exclude"
    return _finding(NAMES[3], holds, text, -total, rounding)
