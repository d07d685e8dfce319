"""Does cheating pay? Agents deviate from the protocol in many ways, and the outcomes are compared.

What agent k minimises is J_k = F_k(w) + P_k. If the others report the truth, its payment is made of their
reports alone, whatever k does, so that for ANY deviation, leading to ANY model w (theory C1)

    J_k = [F(w) - f_-k*]/p_k + (P_k - VCG_k(w)),

and deviating from w* to w gains  [F(w*) - F(w)]/p_k + (P - VCG)(w*) - (P - VCG)(w). What the mechanism
allows therefore follows from three promises:

    training     [F(w*) - min F]/p_k <= |grad F(w*)|^2/(2 mu p_k) <= epsilon, the residual test of phase I
    truncation   VCG - epsilon <= D <= VCG, D the loss difference that is integrated (theory C3.1)
    integration  trapezoid |P - D| <= I; the left rule asks more by what it differs from the trapezoid

A gain is a violation only above 2 epsilon + I(w*) + I(w); for the left rule plus what it asks more at w*
than at w, if it does. |left - trapezoid| is such an I, but a wide one: it does not see that the two rules
are of different order. For the softmax, along a step of length |s|, the third derivative is a third
cumulant of the logits, at most sqrt(2) |x| |s| times the second derivative; the trapezoid's error is the
integral of t(1 - t)/2 times the third derivative, hence

    I = sqrt(2) max|x| |s_0|/4 * |left - trapezoid|,

s_0 the first step: gradients do not grow on the way down. For quadratics I = 0.

That is for payments by plain steps ("stepwise", "left"). By exchanges the certificates are those of the run
itself, and a gain is a violation above

    training_error/p_k + g + r' + g',

g the certified error of the integration, r' and g' residual and error where k lies (theory C9.7; 2.5
epsilon at most). There the protocol itself is run for every lie (`one_against_all`), with more of them:
agents that aim at the searches and at the segment. Whoever is recognised is tried once more with every
number believed.

Deviations that reach a fixed point may be studied at that fixed point (`response`); `attack` goes through
the gradient protocol, by plain steps several deviations of an agent side by side, believing every number:
what the protocol would name (`reports`) must not gain anything either. `cheating_claims` judges the
outcome and looks at pairs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import Literal, NamedTuple, cast

import numpy as np

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import Diverged, InvalidValue
from bonafed.learning.problems.convex import Ints, Problem, RidgeRegression
from bonafed.learning.problems.minima import minima, minimise
from bonafed.learning.problems.softmax import SoftmaxRegression
from bonafed.mechanisms.faithful.adversaries import agents as cheats
from bonafed.mechanisms.faithful.adversaries.agents import Agent
from bonafed.mechanisms.faithful.adversaries.one_against_all import Trick, aimed, play
from bonafed.mechanisms.faithful.protocol.exchanges import Exchanges
from bonafed.mechanisms.faithful.protocol.payments import Clusters, FaithfulOutcome, cluster_payments
from bonafed.mechanisms.faithful.protocol.reports import GROWTH, ReportCheck
from bonafed.mechanisms.faithful.protocol.requests import Aggregation, federation_of
from bonafed.mechanisms.faithful.protocol.stepwise import StepwiseTerms, pay, train
from bonafed.mechanisms.faithful.protocol.variants import ProtocolRules, faithful

Variant = Literal["exchanges", "stepwise", "left", "printed", "fedavg", "clusters"]
FACTORS = (0.25, 0.5, 1.5, 2.0, 3.0, 5.0, 10.0)  # of the gradient, those that keep training stable
_AT_ONCE = 4  # deviations trained in one batch: more would not fit the processor's cache
_LOOK = 10  # steps of the truthful training between two looks at its residual
_MOST_STEPS = 100_000
CLOSE = 1e-8  # gradient at which a search takes a minimum for reached: its loss is off by CLOSE^2/(2 mu)


@dataclass(frozen=True, slots=True, eq=False)
class AgentData:
    """Who holds which samples, and what they want to learn from them."""

    features: Floats  # (n, d)
    targets: Floats | Ints  # (n,) classes, or real numbers if `classes` is 0
    owner: Ints  # (n,) 0..K-1
    classes: int  # 0: ridge regression
    regulariser: float  # mu
    weights: Floats | None = None  # (K,) p, sum 1; equal if None

    def problem(self) -> Problem:
        """The problem of all agents."""
        return self._problem(self.features, self.targets, self.owner, self.weights)

    def of(self, *agents: int, tampered: bool = False) -> Problem:
        """The problem of these agents alone, as agents 0, 1, ..; with flipped labels if tampered with."""
        rows = [np.flatnonzero(self.owner == k) for k in agents]
        owner = np.repeat(np.arange(len(agents)), [part.size for part in rows])
        index = np.concatenate(rows)
        y = self.targets[index]
        if tampered:
            y = self.classes - 1 - y if self.classes else -y
        return self._problem(self.features[index], y, owner, None)

    def _problem(self, x: Floats, y: Floats | Ints, owner: Ints, weights: Floats | None) -> Problem:
        if self.classes:
            return SoftmaxRegression(x, y, owner, self.classes, self.regulariser, weights)
        return RidgeRegression(x, y, owner, self.regulariser, weights)

    @property
    def bend(self) -> float:
        """Bounds the third derivative by the second, per unit of a step's length."""
        return math.sqrt(2) * float(np.linalg.norm(self.features, axis=1).max()) if self.classes else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class AuditTerms:
    """The mechanism under attack."""

    variant: Variant = "exchanges"
    epsilon: float = 1e-3  # certified error of training and of payments, each, in units of loss
    payment_steps: int = 20  # T_2: the least number of payment steps; for "printed" the number
    clusters: Clusters = ()  # for "clusters" only

    def __post_init__(self) -> None:
        checks.literal("variant", self.variant, Variant)
        checks.positive("epsilon", self.epsilon)
        checks.whole("payment_steps", self.payment_steps, at_least=1)
        if (self.variant == "clusters") != bool(len(self.clusters)):
            raise InvalidValue("clusters", "must be set for variant clusters and no other", self.variant)


class Charge(NamedTuple):
    """A payment, and how far integration may have put it off."""

    amount: float
    above: float  # at most this much above the loss difference it stands for,
    below: float  # and at most this much below; negative: at least so much above


@dataclass(frozen=True, eq=False)  # no slots: `honest` is cached
class AuditCase:
    """A federation after truthful training, ready to be attacked."""

    holdings: AgentData
    terms: AuditTerms
    problem: Problem
    steps: int  # of training until the residual test holds; T_1 of deviating runs, or exchanges
    model: Floats  # (P,) w*, trained by truthful reports
    losses: Floats  # (K,) F_k(w*)
    without: Floats  # (K, P) the minimisers of f_-k
    pivots: Floats  # (K, P) what payments are measured against: `without`, or the models without a cluster
    truth: FaithfulOutcome | None = None  # of the protocol by exchanges

    def course(self, agents: Mapping[int, Agent], check: ReportCheck = "gradients") -> Exchanges:
        """The protocol by exchanges with agents that deviate; whoever is recognised is left out."""
        clients = federation_of(self.problem, agents)
        return Exchanges(self.problem, clients, self.terms.epsilon, None, "leave out", check)

    def charge(self, agent: int, model: Floats, reports: Aggregation | None = None) -> Charge:
        """What an agent owes for a model, if the others report what `reports` says (None: the truth)."""
        variant = self.terms.variant
        if variant == "fedavg":
            return Charge(0.0, 0.0, 0.0)
        if variant == "clusters":
            return Charge(self.difference(agent, model, self.pivots[agent]), 0.0, 0.0)
        rule: Literal["trapezoid", "left"] = "trapezoid" if variant == "stepwise" else "left"
        payments, gap = pay(
            self.problem,
            model,
            reports or Aggregation(self.problem),
            StepwiseTerms(
                payment_steps=self.terms.payment_steps,
                epsilon=self.terms.epsilon,
                rule=rule,
                variant="printed" if variant == "printed" else "stepwise",
            ),
            payers=[agent],
        )
        others = self.problem.without_each()[agent]
        slope = float(np.linalg.norm(self.problem.gradient(model[None], others[None])))
        rate = self.problem.agents if variant == "printed" else float(others.sum())
        first_step = slope / (rate * self.problem.smoothness)
        error = min(1.0, self.holdings.bend * first_step / 4) * gap
        more = gap if rule == "left" else 0.0
        return Charge(float(payments.amount[agent]), more + error, error - more)

    @cached_property
    def honest(self) -> tuple[Charge, ...]:
        """(K,) what everybody owes for the model of truthful training."""
        if self.truth is not None:
            error = self.truth.integration_error
            return tuple(Charge(float(x), error, error) for x in self.truth.payments.amount)
        return tuple(self.charge(k, self.model) for k in range(self.problem.agents))

    def difference(self, agent: int, model: Floats, other: Floats) -> float:
        """What the others lose by `model` against `other`, per weight of the agent."""
        change = np.subtract(*self.problem.losses(np.stack([model, other])))
        return float(self.problem.without_each()[agent] @ change / self.problem.weights[agent])


def prepare(holdings: AgentData, terms: AuditTerms) -> AuditCase:
    """Truthful training until [F(w) - min F]/p_k <= epsilon for all k, certified by the gradient."""
    problem = holdings.problem()
    if problem.agents < 2:
        raise InvalidValue("agents", "must be at least 2", problem.agents)
    if terms.variant == "exchanges":
        return _prepare_exchanges(holdings, terms, problem)
    limit = 2 * problem.regulariser * float(problem.weights.min()) * terms.epsilon
    w, steps = np.zeros(problem.size), 0
    while float((problem.gradient(w[None], problem.weights[None]) ** 2).sum()) > limit:
        if steps >= _MOST_STEPS:
            raise Diverged(f"training does not reach epsilon = {terms.epsilon:g} in {_MOST_STEPS:,} steps")
        w, steps = train(problem, None, _LOOK, w)[0], steps + _LOOK
    without = pivots = minima(problem, problem.without_each(), w)
    if terms.variant == "clusters":
        pivots = cluster_payments(problem, w, terms.clusters).models
    return AuditCase(holdings, terms, problem, steps, w, problem.losses(w[None])[0], without, pivots)


def _prepare_exchanges(holdings: AgentData, terms: AuditTerms, problem: Problem) -> AuditCase:
    truth = faithful(problem, rules=ProtocolRules(epsilon=terms.epsilon, variant="exchanges"))
    without = minima(problem, problem.without_each(), truth.model)
    return AuditCase(
        holdings, terms, problem, truth.training_steps, truth.model, truth.losses, without, without, truth
    )


@dataclass(frozen=True, slots=True)
class Attempt:
    """One way to cheat and its outcome; losses and payments in units of loss."""

    agent: int
    name: str
    factor: float | None  # of the gradient, if that is all the deviation is
    loss: float  # F_k of the model it leads to; NaN if there is none
    payment: float  # NaN if there is no model
    gain: float  # what F_k + P_k falls by, against the truth; -inf if there is no model
    gain_unpaid: float  # what F_k falls by: the gain if nobody paid
    allowed: float  # what the certificate allows a gain to be
    end: str = ""  # what happened, if training did not come to its regular end
    outside: float = -math.inf  # how far a payment is outside its certificate; negative: inside
    exchanges: int | None = None  # where the protocol counts them
    where: str = ""  # the protocol recognised it there, and went on without the agent
    believed: bool = False  # recognised by the protocol, and tried once more as if it were not

    @property
    def pays(self) -> bool:
        """Whether it is a violation."""
        return self.gain > self.allowed


def safe_factor(problem: Problem, agent: int) -> float:
    """Training with step 1/L_g is sure to converge for factors up to this (theory C3)."""
    return 1 + 1 / float(problem.weights[agent])


def deviations(case: AuditCase, agent: int, seed: int = 0) -> list[Trick]:
    """The ways to cheat that `attack` tries, besides the best factor."""
    limit, data = safe_factor(case.problem, agent), case.holdings
    other = (agent + 1) % case.problem.agents
    factors = [f for f in FACTORS if f <= limit] + [3 * limit]
    special = aimed(case.problem, case.steps, seed) if case.terms.variant == "exchanges" else []
    flipped_data, other_data = data.of(agent, tampered=True), data.of(other)
    return [
        *(Trick(f"{f:g} x its gradient", partial(cheats.amplify, f), f) for f in factors),
        Trick("minus its gradient", cheats.flip_sign, -1.0),
        Trick("zeros", cheats.free_ride, 0.0),
        Trick("its first gradient", cheats.stale),
        Trick("1 and 3 x its gradient in turn", lambda: cheats.alternate(3.0)),
        Trick("random numbers", lambda: cheats.random_numbers(0.1, np.random.default_rng(seed))),
        Trick("gradient plus noise", lambda: cheats.add_noise(1.0, np.random.default_rng(seed))),
        Trick("flipped labels", lambda: cheats.on_other_data(flipped_data, 0)),
        Trick(f"agent {other}'s gradient", lambda: cheats.on_other_data(other_data, 0)),
        Trick("silent half-way on", lambda: cheats.drop_out(case.steps // 2)),
        *special,
    ]


def response(case: AuditCase, agent: int) -> Callable[[float], tuple[float, float]]:
    """factor -> (J_k, F_k) when the agent multiplies its gradient, at the fixed point of training.

    The fixed point minimises the reported mix of losses. Payments are those of the variant; where that
    certifies them the exact VCG payment, which the protocol's is within epsilon of.
    """
    problem = case.problem

    @cache
    def losses(factor: float) -> tuple[float, float]:
        mix = problem.weights.copy()
        mix[agent] *= factor
        model = minimise(problem, mix, case.model, CLOSE)
        own = problem.value(model, problem.one(agent))
        if case.terms.variant in ("exchanges", "stepwise"):
            return own + case.difference(agent, model, case.without[agent]), own
        return own + case.charge(agent, model).amount, own

    return losses


class GainCurve(NamedTuple):
    """What an agent gains by multiplying its gradient."""

    factor: Floats  # (m,)
    gain: Floats  # (m,) what F_k + P_k falls by, against the truth
    gain_unpaid: Floats  # (m,) what F_k falls by


def gain_curve(case: AuditCase, agent: int, factors: Sequence[float]) -> GainCurve:
    """Gains at the fixed points of training."""
    losses = response(case, agent)
    gains = np.array(losses(1.0)) - [losses(float(factor)) for factor in factors]
    return GainCurve(np.array(factors, dtype=np.float64), gains[:, 0], gains[:, 1])


def best_factor(case: AuditCase, agent: int) -> float:
    """The factor that serves the agent best, between 1/4 and 10, as far as is safe."""
    losses = response(case, agent)
    high = min(FACTORS[-1], safe_factor(case.problem, agent))
    return cheats.best_response(lambda factor: losses(factor)[0], FACTORS[0], high).factor


def attack(case: AuditCase, agent: int, seed: int = 0) -> list[Attempt]:
    """Everything agent k tries, through the gradient protocol."""
    k = checks.whole("agent", agent, at_least=0)
    if k >= case.problem.agents:
        raise InvalidValue("agent", f"must be in 0..{case.problem.agents - 1}", k)
    best = best_factor(case, k)
    tricks = [
        Trick(f"best to 10, {best:.4g} x", lambda: cheats.amplify(best), best),
        *deviations(case, k, seed),
    ]
    return attempts(case, k, tricks)


def attempts(case: AuditCase, agent: int, tricks: Sequence[Trick]) -> list[Attempt]:
    """The outcomes of these deviations of one agent, with the others truthful."""
    if case.truth is not None:
        return [attempt for trick in tricks for attempt in _by_exchanges(case, case.truth, agent, trick)]
    honest, own = case.honest[agent], float(case.losses[agent])
    outcomes = []
    for start in range(0, len(tricks), _AT_ONCE):
        group = tricks[start : start + _AT_ONCE]
        for deviation, end in zip(group, train_each(case, agent, [d.make() for d in group]), strict=True):
            loss, charge, text = _settle(case, agent, end)
            gain, unpaid = own + honest.amount - loss - charge.amount, own - loss
            if math.isnan(loss):
                gain = unpaid = -math.inf
            outcomes.append(
                Attempt(
                    agent, deviation.name, deviation.factor, loss, charge.amount, gain, unpaid,
                    2 * case.terms.epsilon + max(0.0, honest.above + charge.below), text,
                    -math.inf if text else _outside(case, agent, end.model, charge),
                )
            )  # fmt: skip
    return outcomes


def _outside(case: AuditCase, agent: int, model: Floats, charge: Charge) -> float:
    """How far a payment by plain steps is outside its certificate; negative: inside."""
    exact = case.difference(agent, model, case.without[agent])
    above, below = charge.amount - exact, exact - charge.amount
    return max(above - charge.above, below - charge.below - case.terms.epsilon)


def _by_exchanges(case: AuditCase, truth: FaithfulOutcome, agent: int, trick: Trick) -> list[Attempt]:
    """The protocol with this agent; if it is recognised, once more with everything believed."""
    outcomes = []
    for check, remark in (("gradients", ""), ("numbers", ", believed")):
        course = case.course({agent: trick.make()}, cast(ReportCheck, check))
        result = play(case.problem, agent, course, trick.loss if not remark else None)
        gain = float(truth.overall[agent]) - result.loss - result.payment
        unpaid = float(truth.losses[agent]) - result.loss
        if math.isnan(result.loss):
            gain = unpaid = -math.inf
        allowed = truth.training_error / float(case.problem.weights[agent])
        outcomes.append(
            Attempt(
                agent, trick.name + remark, trick.factor, result.loss, result.payment, gain, unpaid,
                allowed + truth.integration_error + result.doubt, result.end, result.outside,
                result.exchanges, result.where, bool(remark),
            )
        )  # fmt: skip
        if not result.where:
            break
    # under plain averaging nobody would have recognised it
    return [replace(outcomes[0], gain_unpaid=outcomes[-1].gain_unpaid), *outcomes[1:]]


def _settle(case: AuditCase, agent: int, end: RunEnd) -> tuple[float, Charge, str]:
    """Loss and payment of a deviating agent, and a remark if there is one."""
    loss = float(case.problem.losses(end.model[None])[0, agent])
    if end.how == "diverged":
        return math.nan, Charge(math.nan, 0.0, 0.0), f"training diverges at step {end.step}"
    if end.how == "silent":
        text = (
            f"no report at training step {end.step}; the run stops, or goes on without it: then it owes "
            f"nothing and has the others' model at best. The last model it was sent has loss {loss:.4f}"
        )
        outside = float(case.problem.losses(case.without[agent][None])[0, agent])
        return outside, Charge(0.0, 0.0, 0.0), text
    return loss, case.charge(agent, end.model), ""


class RunEnd(NamedTuple):
    """Where a run with a deviating agent ended."""

    model: Floats  # (P,) the last one
    how: Literal["regular", "silent", "diverged"]
    step: int  # of the end


def train_each(case: AuditCase, agent: int, deviating: Sequence[Agent]) -> list[RunEnd]:
    """Phase I once per deviating agent, side by side; each as `protocol.train` that believes it would.

    The agent's own gradient is taken from its own samples, not from a pass over everybody's.
    """
    problem, own_data, p = case.problem, case.holdings.of(agent), float(case.problem.weights[agent])
    others = problem.without_each()[agent]
    models = np.zeros((len(deviating), problem.size))
    first, ends = np.zeros(len(deviating)), dict[int, RunEnd]()
    for t in range(case.steps):
        active = [i for i in range(len(deviating)) if i not in ends]
        if not active:
            break
        at = models[active]
        total = problem.gradient(at, np.tile(others, (len(active), 1)))
        own = own_data.gradient(at, np.ones((len(active), 1)))
        for row, i in enumerate(active):
            report = deviating[i](at[row : row + 1].copy(), own[row : row + 1].copy())
            if report is None:
                ends[i] = RunEnd(at[row], "silent", t + 1)
                continue
            g = total[row] + p * report[0]
            norm = float(np.linalg.norm(g))
            first[i] = norm if t == 0 else first[i]
            if not math.isfinite(norm) or norm > GROWTH * max(first[i], 1.0):
                ends[i] = RunEnd(at[row], "diverged", t + 1)
                continue
            models[i] = at[row] - g / problem.smoothness
    return [ends.get(i, RunEnd(models[i], "regular", case.steps)) for i in range(len(deviating))]
