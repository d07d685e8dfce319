"""Faithful learning as a mechanism: rounds are exchanges, the statement is what everybody owes.

Above the seam the server knows names, numbers of samples, and what was agreed on: a bound on the length of
features, from which the smoothness follows (theory C0), and the regulariser. It asks for gradients and, in
the last exchange, for slopes; if an agent contradicts itself and is left out, exchanges go on without it.
Their number is not known beforehand: the state says when there is nothing left to ask.

By steps rounds are training steps; after the last, in the same round, payments are asked for, and if
somebody is left out the run starts over: the state's round goes back.

A state can be saved after every round, and noise is keyed by what is asked, so a run that was killed
resumes bit for bit. Simulated agents that cheat have a memory that no state holds: their runs cannot be
saved before they end, and start over.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from bonafed.checks import Floats, finite_or_none
from bonafed.contracts.attendance import Lottery
from bonafed.contracts.published import Agreement, PublishedContract
from bonafed.contracts.terms import Reports
from bonafed.economics.statement import Statement
from bonafed.errors import InvalidValue, MissingValue
from bonafed.learning.federation import (
    Federation,
    Need,
    Objective,
    Question,
    Roster,
)
from bonafed.learning.problems.agreed import FederatedProblem
from bonafed.learning.problems.convex import Problem
from bonafed.mechanisms.faithful.accounts import accounts_from, accounts_of
from bonafed.mechanisms.faithful.adversaries.agents import agent_kind, agents_from
from bonafed.mechanisms.faithful.private.mechanism import PrivateLearning
from bonafed.mechanisms.faithful.protocol.exchanges import ExchangesProgress
from bonafed.mechanisms.faithful.protocol.payments import (
    BadReportPolicy,
    FaithfulOutcome,
    cluster_payments,
    newton_payments,
    random_clusters,
    vcg_payments,
)
from bonafed.mechanisms.faithful.protocol.reports import ReportCheck, Watch
from bonafed.mechanisms.faithful.protocol.requests import deviating
from bonafed.mechanisms.faithful.protocol.stepwise import (
    PaymentRule,
    StepwiseProgress,
)
from bonafed.mechanisms.faithful.protocol.variants import (
    STEPWISE,
    ProtocolRules,
    ProtocolVariant,
    exchanges_of,
    outcome_of,
    require_stepwise,
    steps_of,
    variant_for,
)
from bonafed.mechanisms.faithful.section import Faithful, own_section
from bonafed.mechanisms.faithful.settlement import (
    FaithfulJudges,
    is_softmax,
    linear_model,
    losses_of,
    reported_losses,
    statement,
    weights_of,
)
from bonafed.mechanisms.faithful.state import FaithfulState, exchanges_from, steps_from
from bonafed.mechanisms.protocol import Answers, Arrays, Config, Round
from bonafed.randomness import Purpose, round_generator
from bonafed.sections import named

if TYPE_CHECKING:
    from bonafed.learning.engine.jobs import Samples
    from bonafed.learning.engine.programs import Program


def make(config: Config, members: Roster, parameters: int) -> FaithfulLearning | PrivateLearning:
    """The mechanism of a config, for the clients of a roster and a model of so many parameters."""
    if len(members) < 2:
        raise InvalidValue("partition.clients", "must be at least 2 for faithful learning", len(members))
    section = own_section(config)
    if section.clusters is not None and section.clusters > len(members):
        rule = f"must be at most the number of agents, {len(members)}"
        raise InvalidValue("faithful.clusters", rule, section.clusters)
    for text in section.agents:
        _require_agent(text, len(members))
    if config.privacy is not None:
        return PrivateLearning.of(config, members, parameters)
    return FaithfulLearning.of(config, members, parameters)


def _require_agent(text: str, agents: int) -> None:
    number, kind, argument = agent_kind("faithful.agents", text)
    if number >= agents:
        raise InvalidValue("faithful.agents", f"must be numbered 0..{agents - 1}", repr(text))
    if kind == "copy" and not 0 <= argument < agents:
        raise InvalidValue("faithful.agent", f"must be in 0..{agents - 1}", f"{argument:g}")


def objective_of(config: Config, members: Roster) -> Objective:
    """What agents minimise, without privacy."""
    mu = own_section(config).regulariser
    if config.model.name != "softmax":
        return Objective(mu, "module")
    if members.feature_bound is None:
        rule = "must be agreed on: the smoothness of the loss follows from it"
        raise MissingValue("feature_bound", rule)
    return Objective(mu, scale=members.feature_bound)


@dataclass(frozen=True, slots=True, eq=False)
class FaithfulLearning(Answers):
    """One model for all, and what each owes for it."""

    needs: ClassVar[Need] = "replies"
    config: Config  # resolved
    members: Roster
    problem: FederatedProblem  # what all agreed on
    objective: Objective
    judges: FaithfulJudges | None = None

    @classmethod
    def of(cls, config: Config, members: Roster, parameters: int) -> FaithfulLearning:
        """From what the roster reveals."""
        section = own_section(config)
        weights, mu = weights_of(section, members), section.regulariser
        objective = objective_of(config, members)
        convex = config.model.name == "softmax"
        config = resolved(config, convex)
        if not convex:
            return cls(config, members, _general(config, weights, parameters), objective)
        # features over their bound have norm 1 at most: for the softmax and least squares these follow
        smooth = mu + (0.5 if members.classes else 1.0)
        problem = FederatedProblem(
            weights, size=parameters, regulariser=mu, smoothness=smooth, bounded=bool(members.classes),
            gradient_bound=math.sqrt(2.0) if members.classes else None, precision=1e-9,
            classes=members.classes,
        )  # fmt: skip
        return cls(config, members, problem, objective)

    @property
    def section(self) -> Faithful:
        """The config's table [faithful]."""
        return own_section(self.config)

    @property
    def linear(self) -> bool:
        """Whether the loss is that of a linear model, and so strongly convex."""
        return self.objective.kind == "linear"

    @property
    def rounds(self) -> int | None:
        """T_1; None: exchanges, which end by themselves."""
        return self.section.training_steps

    @property
    def by_exchanges(self) -> bool:
        """Whether the variant is that of few exchanges."""
        return self.section.variant == "exchanges"

    @property
    def question(self) -> Question | None:
        """Nobody is asked to state anything."""
        return None

    @property
    def contract(self) -> PublishedContract | None:
        """Nothing is published but the rules themselves."""
        return None

    def with_judges(self, program: Program, module: object, test: Samples) -> FaithfulLearning:
        """With test samples, on which agents see whether joining paid.

        A module of the user's own is one whose convexity nobody knows.
        """
        judges = FaithfulJudges(program, test)
        if not self.linear or is_softmax(module):
            return replace(self, judges=judges)
        by_default = replace(self.config, own=replace(self.section, variant=None))
        config = resolved(by_default if self.by_exchanges else self.config, convex=False)
        problem = _general(config, self.problem.weights, program.size)
        return replace(
            self, config=config, judges=judges, problem=problem,
            objective=Objective(problem.regulariser, "module"),
        )  # fmt: skip

    def agree(self, members: Roster, reports: Reports) -> Agreement:
        """Everybody is under the same rules."""
        if self.linear and self.section.learning_rate is not None:
            rule = "must not be given for softmax, whose step is 1/L_g"
            raise InvalidValue("faithful.learning_rate", rule, self.section.learning_rate)
        return Agreement(members)

    def lottery(self, agreement: Agreement) -> Lottery | None:
        """Everybody takes part in every round."""
        return None

    def begin(self, agreement: Agreement, start: NDArray[Any]) -> FaithfulState:
        """At 0 where the loss is convex, else at the model's initial weights."""
        first = np.zeros(self.problem.size) if self.linear else np.asarray(start, dtype=np.float64)
        progress = (
            ExchangesProgress(first) if self.by_exchanges else StepwiseProgress(0, first, self._watch())
        )
        return FaithfulState(agreement, first, progress, not self.section.agents)

    def restore(self, agreement: Agreement, arrays: Arrays) -> FaithfulState:
        """Steps are held against those that follow; what was reported before them is not kept."""
        progress = exchanges_from(arrays) if self.by_exchanges else steps_from(arrays, self._watch())
        return FaithfulState(agreement, arrays["start"], progress, resumable=True)

    def finished(self, state: FaithfulState) -> bool:
        """After T_1 steps, or when the exchanges have come to their end."""
        if isinstance(state.progress, ExchangesProgress):
            return state.progress.done
        return state.round_number >= cast(int, self.rounds)

    def _watch(self) -> Watch:
        return Watch(self.problem, cast(ReportCheck, self.section.check_reports))

    @property
    def _rules(self) -> ProtocolRules:
        section = self.section
        return ProtocolRules(
            section.epsilon, cast(ProtocolVariant, section.variant), section.training_steps,
            section.payment_steps, section.step_share, cast(PaymentRule | None, section.rule),
            cast(BadReportPolicy, section.on_bad_report), cast(ReportCheck, section.check_reports),
        )  # fmt: skip

    @property
    def _by_reports(self) -> bool:
        return self.section.payments == "gradients" and self.section.clusters is None

    def advance(self, state: FaithfulState, federation: Federation) -> tuple[FaithfulState, Round]:
        """One exchange; or one training step, and after the last one the payments.

        If somebody is left out, steps are back at round 0, and exchanges go on.
        """
        if isinstance(state.progress, ExchangesProgress):
            return self._exchange(state, state.progress, federation)
        protocol = steps_of(self.problem, federation, self._rules, self.objective)
        progress = protocol.advance(state.progress, state.start)
        if progress.steps == self.rounds and self._by_reports:
            progress = protocol.advance(progress, state.start)
        following = replace(state, progress=progress)
        names = [self.members.names[k] for k in protocol.members(progress)]
        taking_part = set(names)
        loss = self._train_loss(following, federation)
        # whoever is left out failed before the first step of the training without it
        failed = (
            [name for name in self.members.names if name not in taking_part] if progress.steps == 1 else []
        )
        return following, Round(
            [name for name in self.members.names if name in taking_part or name in failed], failed,
            steps=len(names), learning_rate=1 / self.problem.smoothness, train_loss=loss,
        )  # fmt: skip

    def _exchange(
        self, state: FaithfulState, at: ExchangesProgress, federation: Federation
    ) -> tuple[FaithfulState, Round]:
        protocol = exchanges_of(
            self.problem, federation, self._rules, self.objective, pays=self._by_reports
        )
        members, following = protocol.members(at), protocol.advance(at)
        after = replace(state, progress=following)
        names, left = self.members.names, set(protocol.members(following))
        failed = [names[k] for k in members if k not in left]
        return after, Round(
            [names[k] for k in members], failed,
            steps=len(members) if following.training > at.training else 0,
            train_loss=self._train_loss(after, federation), doing=protocol.describe(following),
        )  # fmt: skip

    def _train_loss(self, state: FaithfulState, federation: Federation) -> float | None:
        """Where a simulation knows it, in rounds that are evaluated."""
        rounds, every = state.round_number, self.config.run.evaluate_every
        evaluated = rounds and (rounds % every == 0 or self.finished(state))
        if not evaluated or not hasattr(federation, "oracle"):
            return None
        problem: Problem = federation.oracle(self.objective)
        return finite_or_none(problem.value(state.progress.model, self.problem.weights))

    def to_module(self, model: Floats) -> NDArray[np.float32]:
        """(P,) as parameters of the module that is judged and saved."""
        if not self.linear:
            return model.astype(np.float32)
        return linear_model(model, self.members.classes, self.objective.scale)

    def models(self, state: FaithfulState) -> NDArray[Any]:
        """(1, P) the shared model."""
        return self.to_module(state.progress.model)[None]

    def final(self, state: FaithfulState) -> NDArray[Any]:
        """(P,) the shared model."""
        return self.to_module(state.progress.model)

    def settle(self, state: FaithfulState, federation: Federation) -> Statement:
        """What everybody owes, with the losses that agents disclose, and the four promises."""
        section, problem = self.section, self._oracle(federation)
        outcome = self.outcome(state, federation)
        cheating = [agent_kind("agents", text)[0] for text in section.agents]
        if problem is not None:
            fresh = None if self.judges is None else self.judges.fresh(federation, self.to_module)
            accounts = accounts_of(
                problem, outcome, epsilon=section.epsilon, clustered=section.clusters is not None,
                cheating=cheating, fresh=fresh, start=state.start,
            )  # fmt: skip
        else:
            losses = reported_losses(
                federation, self.objective, outcome, state.start, steps=self.rounds,
                rate=1 / self.problem.smoothness,
            )  # fmt: skip
            accounts = accounts_from(
                self.problem, outcome, losses, outcome.training_error, epsilon=section.epsilon,
                cheating=cheating,
            )  # fmt: skip
        return statement(outcome, accounts, self.members.names, self.problem.weights, self._notes())

    def _oracle(self, federation: Federation) -> Problem | None:
        """The samples themselves, where they are available."""
        if not hasattr(federation, "oracle"):
            return None
        problem: Problem = federation.oracle(self.objective, self.problem.weights)
        return problem

    def outcome(self, state: FaithfulState, federation: Federation) -> FaithfulOutcome:
        """Model, payments and losses of a state after its last round."""
        progress, section = state.progress, self.section
        if progress.ending is not None:
            losses = losses_of(federation, self.objective, progress.model[None])[:, 0]
            return outcome_of(progress, losses)
        problem = self._oracle(federation)
        if problem is None:
            key = "clusters" if section.clusters is not None else "payments"
            rule = "must not be given unless the samples are at hand, as those of simulated clients are"
            raise InvalidValue(f"faithful.{key}", rule, repr(getattr(section, key)))
        w = progress.model
        if section.clusters is not None:
            rng = round_generator(self.config.run.seed, Purpose.CLUSTERS)
            payments = cluster_payments(problem, w, random_clusters(problem.agents, section.clusters, rng))
        else:
            payments = (
                newton_payments(problem, w) if section.payments == "newton" else vcg_payments(problem, w)
            )
        g = problem.gradient(w[None], problem.weights[None])[0]
        gap = float(g @ g) / (2 * problem.regulariser)
        return FaithfulOutcome(w, payments, problem.losses(w[None])[0], state.round_number, 0.0, gap)

    def _notes(self) -> list[str]:
        notes = []
        if not self.linear:
            notes.append(
                f"the loss of {self.config.model.name} is not convex: efficiency, faithfulness, "
                "participation and budget balance are not promised; payments are computed from gradients "
                "all the same"
            )
        if self.section.agents:
            notes.append("not following the protocol: agents " + ", ".join(self.section.agents))
        if self.section.clusters is not None:
            notes.append("payments by clusters may sum to less than zero; one cluster per agent is safe")
        return notes


def resolved(config: Config, convex: bool) -> Config:
    """The config with its variant, and what only steps have, filled in."""
    section = own_section(config)
    with named("faithful"):
        variant = variant_for(section.variant, convex)
    if variant == "exchanges":
        for name in STEPWISE:
            require_stepwise(f"faithful.{name}", getattr(section, name))
        return replace(config, own=replace(section, variant=variant))
    given = {
        name: default if getattr(section, name) is None else getattr(section, name)
        for name, default in STEPWISE.items()
    }
    return replace(config, own=replace(section, variant=variant, **given))


def _general(config: Config, weights: Floats, parameters: int) -> FederatedProblem:
    """The problem of a model whose loss is not convex."""
    section, model = own_section(config), config.model.name
    if section.learning_rate is None:
        rule = f"must be set for {model}, whose smoothness is unknown"
        raise MissingValue("faithful.learning_rate", rule)
    if section.payments != "gradients" or section.clusters is not None:
        name = "payments" if section.payments != "gradients" else "clusters"
        rule = f"must not be given for {model}: it needs minima, the loss is not convex"
        raise InvalidValue(f"faithful.{name}", rule, repr(getattr(section, name)))
    return FederatedProblem(
        weights, size=parameters, regulariser=section.regulariser, smoothness=1 / section.learning_rate,
        strongly_convex=False,
    )  # fmt: skip


def lying(config: Config, federation: Federation) -> Federation:
    """The federation with the agents of the config that cheat; they must be simulated ones."""
    section, members = own_section(config), federation.members
    if not hasattr(federation, "oracle"):
        rule = "must not be given unless clients are simulated"
        raise InvalidValue("faithful.agents", rule, ", ".join(section.agents))
    problem = federation.oracle(objective_of(config, members))
    rng = round_generator(config.run.seed, Purpose.AGENTS)
    with named("faithful"):
        return deviating(federation, agents_from(section.agents, problem, rng))
