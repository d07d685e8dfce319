"""Faithful learning as a mechanism: rounds are training steps, the statement is what everybody owes.

Above the seam the server knows names, numbers of samples, and what was agreed on: a bound on the length of
features, from which the smoothness follows (theory C0), and the regulariser. It asks for gradients, and
after the last step, in the same round, for those that payments are made of. If an agent reports something
that is not a gradient and is left out, the run starts over without it: the state's round goes back.

A state can be saved after every step, and noise is keyed by what is asked, so a run that was killed resumes
bit for bit. Simulated agents that cheat have a memory that no state holds: their runs cannot be saved
before they end, and start over.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from bonafed.checks import Floats, finite_or_none
from bonafed.economics.claims import Statement, within_error
from bonafed.economics.money import charged
from bonafed.errors import BadReport, InvalidValue, MissingValue
from bonafed.learning.federation import (
    Alone,
    Federation,
    Losses,
    Need,
    Objective,
    Question,
    Reply,
    Roster,
    Task,
)
from bonafed.learning.problems.agreed import FederatedProblem
from bonafed.learning.problems.convex import Problem
from bonafed.mechanisms.faithful.agents import agent_kind, agents_from
from bonafed.mechanisms.faithful.clusters import cluster_payments, random_clusters
from bonafed.mechanisms.faithful.common import (
    DECIMALS,
    FORMS,
    Judges,
    columns_of,
    is_softmax,
    linear_model,
    payment_steps_of,
    weights_of,
)
from bonafed.mechanisms.faithful.private_mechanism import PrivateLearning
from bonafed.mechanisms.faithful.protocol import (
    BadReportPolicy,
    Course,
    Ending,
    LeftOut,
    Outcome,
    PaymentRule,
    Progress,
    ProtocolVariant,
    Terms,
    deviating,
    outcome_of,
)
from bonafed.mechanisms.faithful.reports import ReportCheck, Watch
from bonafed.mechanisms.faithful.section import Faithful, own_section, with_steps
from bonafed.mechanisms.faithful.statement import Statement as Accounts
from bonafed.mechanisms.faithful.statement import accounts, statement
from bonafed.mechanisms.faithful.vcg import Payments, newton_payments, vcg_payments
from bonafed.mechanisms.protocol import (
    Agreement,
    Answers,
    Arrays,
    Config,
    Contract,
    Lottery,
    Reports,
    Round,
)
from bonafed.randomness import Purpose, round_generator
from bonafed.sections import named
from bonafed.shown import Cell

if TYPE_CHECKING:
    from bonafed.learning.engine.jobs import Samples
    from bonafed.learning.engine.programs import Program

TRAINING_STEPS = 1500  # unless configured


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
class FaithfulState:
    """How far training and payments have come."""

    agreement: Agreement
    start: Floats  # (P,) before the first step
    progress: Progress
    resumable: bool  # False: some agent cheats, and has a memory

    @property
    def round_number(self) -> int:
        """Steps, with those who are left."""
        return self.progress.steps

    def arrays(self) -> Arrays:
        """Everything except the memory of reports."""
        if not self.resumable:
            return {}
        at = self.progress
        bad_reports = [
            {"agent": b.agent, "where": b.where, "problem": b.problem, "name": b.name}
            for b in at.bad_reports
        ]
        arrays: dict[str, NDArray[Any]] = {
            "steps": np.array(at.steps), "model": at.model, "start": self.start,
            "first": np.array(math.nan if at.first is None else at.first),
            "bad_reports": _text(bad_reports),
            "bad_report_models": np.array([bad.model for bad in at.bad_reports]).reshape(-1, at.model.size),
        }  # fmt: skip
        if at.ending is not None:
            end = at.ending
            arrays |= {
                "amount": end.payments.amount, "error": end.payments.error, "models": end.payments.models,
                "payment_steps": np.array(end.payments.steps),
                "errors": np.array([end.integration_error, end.training_error]),
                "left_out": _text([asdict(out) for out in end.left_out]),
            }  # fmt: skip
        return arrays


def _text(data: object) -> NDArray[np.uint8]:
    return np.frombuffer(json.dumps(data).encode(), dtype=np.uint8)


def _data(text: NDArray[np.uint8]) -> Any:
    return json.loads(text.tobytes().decode())


def _ending(arrays: Arrays) -> Ending | None:
    if "amount" not in arrays:
        return None
    payments = Payments(arrays["amount"], arrays["error"], arrays["models"], int(arrays["payment_steps"]))
    gap, training_error = arrays["errors"].tolist()
    return Ending(payments, gap, training_error, tuple(LeftOut(**out) for out in _data(arrays["left_out"])))


@dataclass(frozen=True, slots=True, eq=False)
class FaithfulLearning(Answers):
    """One model for all, and what each owes for it."""

    needs: ClassVar[Need] = "replies"
    config: Config  # resolved
    members: Roster
    problem: FederatedProblem  # what all agreed on
    objective: Objective
    judges: Judges | None = None

    @classmethod
    def of(cls, config: Config, members: Roster, parameters: int) -> FaithfulLearning:
        """From what the roster reveals."""
        section = own_section(config)
        weights, mu = weights_of(section, members), section.regulariser
        objective = objective_of(config, members)
        steps = TRAINING_STEPS if section.training_steps is None else section.training_steps
        config = with_steps(config, steps, payment_steps_of(section))
        if config.model.name != "softmax":
            return cls(config, members, _general(config, weights, parameters), objective)
        # features over their bound have norm 1 at most: for the softmax and least squares these follow
        smooth = mu + (0.5 if members.classes else 1.0)
        problem = FederatedProblem(
            weights, size=parameters, regulariser=mu, smoothness=smooth, bounded=bool(members.classes),
            gradient_bound=math.sqrt(2.0) if members.classes else None, precision=1e-9,
        )  # fmt: skip
        return cls(config, members, problem, objective)

    @property
    def section(self) -> Faithful:
        """[faithful]."""
        return own_section(self.config)

    @property
    def linear(self) -> bool:
        """Whether the loss is that of a linear model, and so strongly convex."""
        return self.objective.kind == "linear"

    @property
    def rounds(self) -> int:
        """T_1."""
        return cast(int, self.section.training_steps)

    @property
    def question(self) -> Question | None:
        """Nobody is asked to state anything."""
        return None

    @property
    def contract(self) -> Contract | None:
        """Nothing is published but the rules themselves."""
        return None

    def with_judges(self, program: Program, module: object, test: Samples) -> FaithfulLearning:
        """With test samples, on which agents see whether joining paid.

        A module of the user's own is one whose convexity nobody knows.
        """
        judges = Judges(program, test)
        if not self.linear or is_softmax(module):
            return replace(self, judges=judges)
        problem = _general(self.config, self.problem.weights, program.size)
        return replace(
            self, judges=judges, problem=problem, objective=Objective(problem.regulariser, "module")
        )

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
        progress = Progress(0, first, self._watch())
        return FaithfulState(agreement, first, progress, not self.section.agents)

    def restore(self, agreement: Agreement, arrays: Arrays) -> FaithfulState:
        """Reports are held against those that follow; what was reported before is not kept."""
        first = float(arrays["first"])
        bad_reports = tuple(
            BadReport(bad["agent"], bad["where"], bad["problem"], model, name=bad["name"])
            for bad, model in zip(_data(arrays["bad_reports"]), arrays["bad_report_models"], strict=True)
        )
        progress = Progress(
            int(arrays["steps"]), arrays["model"], self._watch(), None if math.isnan(first) else first,
            bad_reports=bad_reports, ending=_ending(arrays),
        )  # fmt: skip
        return FaithfulState(agreement, arrays["start"], progress, resumable=True)

    def _watch(self) -> Watch:
        return Watch(self.problem, cast(ReportCheck, self.section.check_reports))

    def _course(self, federation: Federation) -> Course:
        section = self.section
        terms = Terms(
            cast(int, section.payment_steps), section.epsilon, section.step_share,
            cast(PaymentRule, section.rule), cast(ProtocolVariant, section.variant),
        )  # fmt: skip
        return Course(
            self.problem, federation, self.rounds, terms, self.objective,
            cast(BadReportPolicy, section.on_bad_report), cast(ReportCheck, section.check_reports),
        )  # fmt: skip

    @property
    def _by_reports(self) -> bool:
        return self.section.payments == "gradients" and self.section.clusters is None

    def advance(self, state: FaithfulState, federation: Federation) -> tuple[FaithfulState, Round]:
        """One training step; after the last one the payments. Back to round 0 if somebody is left out."""
        course = self._course(federation)
        progress = course.advance(state.progress, state.start)
        if progress.steps == self.rounds and self._by_reports:
            progress = course.advance(progress, state.start)
        following = replace(state, progress=progress)
        names = [self.members.names[k] for k in course.members(progress)]
        loss = self._train_loss(progress, federation)
        # whoever is left out failed before the first step of the training without it
        failed = [name for name in self.members.names if name not in names] if progress.steps == 1 else []
        return following, Round(
            [name for name in self.members.names if name in {*names, *failed}], failed,
            steps=len(names), learning_rate=1 / self.problem.smoothness, train_loss=loss,
        )  # fmt: skip

    def _train_loss(self, progress: Progress, federation: Federation) -> float | None:
        """Where a simulation knows it, in rounds that are evaluated."""
        every = self.config.run.evaluate_every
        looked_at = progress.steps and (progress.steps % every == 0 or progress.steps == self.rounds)
        if not looked_at or not hasattr(federation, "oracle"):
            return None
        problem: Problem = federation.oracle(self.objective)
        return finite_or_none(problem.value(progress.model, self.problem.weights))

    def to_module(self, model: Floats) -> NDArray[np.float32]:
        """(P,) as parameters of the module that is judged and saved."""
        if not self.linear:
            return model.astype(np.float32)
        return linear_model(model, self.members.classes, self.objective.scale)

    def models(self, state: FaithfulState) -> NDArray[Any]:
        """The shared one."""
        return self.to_module(state.progress.model)[None]

    def final(self, state: FaithfulState) -> NDArray[Any]:
        """The shared one."""
        return self.to_module(state.progress.model)

    def settle(self, state: FaithfulState, federation: Federation) -> Statement:
        """What everybody owes, with the losses that agents disclose, and the four promises."""
        section, problem = self.section, self._oracle(federation)
        outcome = self.outcome(state, federation)
        cheating = [agent_kind("agents", text)[0] for text in section.agents]
        if problem is not None:
            fresh = None if self.judges is None else self.judges.fresh(federation, self.to_module)
            settlement = statement(
                problem, outcome, epsilon=section.epsilon, clustered=section.clusters is not None,
                cheating=cheating, fresh=fresh, start=state.start,
            )  # fmt: skip
        else:
            others, alone = _reported_losses(federation, self, state, outcome)
            settlement = accounts(
                self.problem, outcome, others, alone, outcome.training_error, epsilon=section.epsilon,
                cheating=cheating,
            )  # fmt: skip
        return self._statement(outcome, settlement)

    def _oracle(self, federation: Federation) -> Problem | None:
        """The samples themselves, where they are available."""
        if not hasattr(federation, "oracle"):
            return None
        problem: Problem = federation.oracle(self.objective, self.problem.weights)
        return problem

    def outcome(self, state: FaithfulState, federation: Federation) -> Outcome:
        """Model, payments and losses of a state after its last round."""
        progress, section = state.progress, self.section
        if progress.ending is not None:
            losses = _losses(federation, self.objective, progress.model[None])[:, 0]
            return outcome_of(progress, self.rounds, losses)
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
        return Outcome(w, payments, problem.losses(w[None])[0], self.rounds, 0.0, gap)

    def _statement(self, outcome: Outcome, settlement: Accounts) -> Statement:
        names = self.members.names
        left_out = [{**asdict(out), "agent": names[out.agent]} for out in outcome.left_out]
        notes = [
            f"agent {out['agent']} was left out: in {out['where']} it reported {out['problem']}. The model "
            "was trained without it, and it owes nothing; if it keeps the last model it was sent, it "
            f"owes {out['due']:.4g}"
            for out in left_out
        ]
        error = finite_or_none(float(np.max(settlement.error)))
        totals: dict[str, Cell] = {"payments in all": float(settlement.payment.sum())}
        if error is not None:
            totals["payments below VCG by at most"] = error
        return Statement(
            "faithful", names, charged(settlement.payment, DECIMALS), unit="loss", decimals=DECIMALS,
            columns=columns_of(settlement, self.problem.weights), forms=FORMS, totals=totals,
            findings=settlement.checks,
            notes=(*notes, *within_error(names, settlement.payment, settlement.error), *self._notes()),
            facts={
                "payments": settlement.payment.tolist(), "payment_steps": outcome.payments.steps,
                "certified_error": error, "integration_error": outcome.integration_error,
                "training_error": finite_or_none(outcome.training_error), "left_out": left_out,
            },
        )  # fmt: skip

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


def _losses(federation: Federation, objective: Objective, models: Floats) -> Floats:
    """(K, m) of all clients under the same models; NaN where a client does not answer."""
    names, count = federation.members.names, len(models)
    tasks = [Task(f"losses of {count} models, {name}", name, models, Losses(objective)) for name in names]
    return _ask_losses(federation, tasks, count)


def _ask_losses(federation: Federation, tasks: Sequence[Task], count: int) -> Floats:
    answers = federation.replies(tasks)
    replies = [answers[task.identifier] for task in tasks]
    return np.array([r.values[:, 0] if isinstance(r, Reply) else np.full(count, math.nan) for r in replies])


def _reported_losses(
    federation: Federation, mechanism: FaithfulLearning, state: FaithfulState, outcome: Outcome
) -> tuple[Floats, Floats]:
    """(K,) losses with the others' model, and alone, as clients report them."""
    names, objective = federation.members.names, mechanism.objective
    start = state.start[None]
    work = Alone(objective, steps=mechanism.rounds, rate=1 / mechanism.problem.smoothness)
    training = [Task(f"alone, {name}", name, start, work) for name in names]
    answers = federation.replies(training)
    own = [answers[task.identifier] for task in training]
    tasks = []
    for k, name in enumerate(names):
        reply = own[k]
        alone = reply.values[0] if isinstance(reply, Reply) else outcome.payments.models[k]
        models = np.stack([outcome.payments.models[k], alone])
        tasks.append(Task(f"losses without and alone, {name}", name, models, Losses(objective)))
    losses = _ask_losses(federation, tasks, 2)
    missing = [not isinstance(reply, Reply) for reply in own]
    return losses[:, 0], np.where(missing, math.nan, losses[:, 1])


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
