"""Private faithful learning as a mechanism: rounds are noisy steps with everybody (theory C6).

It needs only sums, and accounts for its promise from what is public. Noise is added once to every sum, or
by every agent to its own report (`noise_at`), which costs variance and protects also against a server that
sees single reports. It is keyed by what is asked, so that a run that was killed, or stopped as an agent was
missing, resumes bit for bit; payments are asked for at settlement. The statement says nothing about losses:
what only a simulation knows of them is kept apart (`simulation`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from bonafed.checks import Floats
from bonafed.contracts.attendance import Lottery
from bonafed.contracts.published import Agreement, PublishedContract
from bonafed.contracts.terms import Reports
from bonafed.economics.findings import Finding
from bonafed.economics.money import charged
from bonafed.economics.statement import Statement, within_error
from bonafed.errors import InvalidValue
from bonafed.learning.federation import Federation, Need, Objective, Question, Roster
from bonafed.learning.privacy import REPLACE, Ledger, Release
from bonafed.learning.problems.convex import shortened_features
from bonafed.learning.problems.softmax import SoftmaxRegression
from bonafed.learning.sections import REPRODUCIBLE, NoiseAt
from bonafed.mechanisms.faithful.accounts import private_accounts, private_checks
from bonafed.mechanisms.faithful.private.algorithm import private_protocol
from bonafed.mechanisms.faithful.private.noise import (
    PAPER_STEPS,
    PrivateCalibration,
    PrivateTerms,
    PublicFacts,
    privacy_loss,
    variance_cost,
)
from bonafed.mechanisms.faithful.private.plan import plan_private, plan_warning
from bonafed.mechanisms.faithful.private.schedule import PrivateProtocol, Walk
from bonafed.mechanisms.faithful.protocol.payments import Clusters, random_clusters
from bonafed.mechanisms.faithful.section import FaithfulPrivacy, own_section, with_steps
from bonafed.mechanisms.faithful.settlement import (
    DECIMALS,
    FORMS,
    FaithfulJudges,
    columns_of,
    linear_model,
    payment_steps_of,
    weights_of,
)
from bonafed.mechanisms.promises import ON_SUM, PROTECTS
from bonafed.mechanisms.protocol import Answers, Arrays, Config, Promised, Round
from bonafed.presentation.documents import JSONObject
from bonafed.randomness import Purpose, round_generator
from bonafed.sections import named

if TYPE_CHECKING:
    from bonafed.learning.engine.jobs import Samples
    from bonafed.learning.engine.programs import Program


LONGEST = 1.0  # norm of a record's features with the constant, at most, as the objective scales them
_SIMULATED = "exact losses of private data: known to the simulation only, covered by no epsilon"


@dataclass(frozen=True, slots=True, eq=False)
class PrivateState:
    """How far private training has come."""

    agreement: Agreement
    walk: Walk

    @property
    def round_number(self) -> int:
        """Training steps made, each with everybody."""
        return self.walk.steps

    def arrays(self) -> Arrays:
        """Everything: noise is keyed by what is asked, and payments are asked for again."""
        return {
            "steps": np.array(self.walk.steps), "model": self.walk.model, "ahead": self.walk.ahead
        }  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class PrivateLearning(Answers):
    """Faithful learning with noise: sums of clipped gradients, and payments from noisy losses."""

    needs: ClassVar[Need] = "total"
    config: Config  # resolved
    members: Roster
    course: PrivateProtocol
    clusters: Clusters
    notes: tuple[str, ...]
    plan_warnings: tuple[str, ...] = ()  # to be shown before the first round
    payment_error: Floats | None = None  # (K,) what payments are expected to be off by; None: not planned
    judges: FaithfulJudges | None = None

    @classmethod
    def of(cls, config: Config, members: Roster, parameters: int) -> PrivateLearning:
        """Planned from sample counts and weights; no sample is looked at."""
        section, promise = own_section(config), cast(FaithfulPrivacy, config.privacy)
        if not members.classes:
            raise InvalidValue("data.name", "must have classes in a private run", config.data.name)
        if section.learning_rate is not None:
            rule = "must not be given for softmax, whose step is 1/L_g"
            raise InvalidValue("faithful.learning_rate", rule, section.learning_rate)
        agents = len(members)
        rng = round_generator(config.run.seed, Purpose.CLUSTERS)
        groups = random_clusters(agents, section.clusters or agents, rng)
        facts = PublicFacts(
            np.asarray(members.sizes, dtype=np.float64), weights_of(section, members), groups,
            section.regulariser, promise.clip, parameters, members.classes,
            cast(NoiseAt, promise.noise_at),
        )  # fmt: skip
        notes, warnings, expected = [], [], None
        with named("privacy", alpha="epsilon", beta="delta"):
            terms = PrivateTerms(
                alpha=promise.epsilon, beta=promise.delta, clip=promise.clip, noise_at=facts.noise_at,
                variant="printed" if section.variant == "printed" else "corrected",
                training_steps=section.training_steps, payment_steps=section.payment_steps,
                split=promise.split, loss_bound=promise.loss_bound,
                calibration=cast(PrivateCalibration, promise.calibration),
            )  # fmt: skip
            if terms.variant == "corrected":
                plan = plan_private(facts, terms)
                config = with_steps(config, plan.training_steps, plan.payment_steps)
                config = replace(config, privacy=replace(promise, split=plan.split))
                warning = plan_warning(facts, plan, alpha=promise.epsilon, beta=promise.delta)
                warnings += [] if warning is None else [warning]
                expected = plan.payment_error
                notes.append(
                    f"payments are expected to be off by about {plan.payment_error.max():.2g} in units of "
                    f"loss, the shared model's loss by {plan.model_error:.2g}, after {plan.training_steps} "
                    f"and {plan.payment_steps} steps"
                )
            else:
                privacy_loss(promise.epsilon, promise.delta)
                first = PAPER_STEPS[0] if section.training_steps is None else section.training_steps
                config = with_steps(config, first, payment_steps_of(section))
            section, promise = own_section(config), cast(FaithfulPrivacy, config.privacy)
            terms = replace(
                terms, training_steps=section.training_steps, payment_steps=section.payment_steps,
                split=promise.split,
            )  # fmt: skip
            course = private_protocol(
                facts, terms, computed=promise.noise == "secret",
                # features of norm 1 at most, each by itself, and a constant
                objective=Objective(section.regulariser, scale=math.sqrt(2), shorten=True),
            )  # fmt: skip
        notes.append(_who_adds_noise(course))
        notes.append("features were shortened to norm 1, each sample by itself, as the model expects")
        if section.clusters is not None:
            notes.append("payments by clusters may sum to less than zero; one cluster per agent is safe")
        if promise.noise == "reproducible":
            notes.append(REPRODUCIBLE)
        return cls(
            config, members, course, groups, (*notes, *warnings), tuple(warnings), payment_error=expected
        )

    @property
    def rounds(self) -> int:
        """T_1, the number of training steps."""
        return self.course.training_steps

    @property
    def exchanges(self) -> int:
        """Those of training, and of the payments at settlement."""
        return self.course.exchanges

    @property
    def question(self) -> Question | None:
        """Nobody is asked to state anything."""
        return None

    @property
    def contract(self) -> PublishedContract | None:
        """Nothing is published but the rules themselves."""
        return None

    def warnings(self, agreement: Agreement) -> Sequence[str]:
        """Whether payments will be more noise than signal."""
        return self.plan_warnings

    def with_judges(self, program: Program, module: object, test: Samples) -> PrivateLearning:
        """With test samples, which only a simulation weighs by the agents' classes."""
        return replace(self, judges=FaithfulJudges(program, test))

    def prepared(self, features: NDArray[Any]) -> NDArray[Any]:
        """Features as the model expects them: of norm at most 1, each record by itself."""
        return shortened_features(features)

    def agree(self, members: Roster, reports: Reports) -> Agreement:
        """Everybody is under the same rules."""
        return Agreement(members)

    def lottery(self, agreement: Agreement) -> Lottery | None:
        """Everybody takes part in every round."""
        return None

    def promised(self, agreement: Agreement) -> Promised:
        """The same to everybody."""
        promise = cast(FaithfulPrivacy, self.config.privacy)
        return Promised(np.full(len(agreement.members), promise.epsilon), promise.delta)

    def begin(self, agreement: Agreement, start: NDArray[Any]) -> PrivateState:
        """At 0, which nobody has influenced."""
        return PrivateState(agreement, self.course.begin())

    def restore(self, agreement: Agreement, arrays: Arrays) -> PrivateState:
        """The state that was saved in these arrays."""
        return PrivateState(agreement, Walk(arrays["model"], arrays["ahead"], int(arrays["steps"])))

    def advance(self, state: PrivateState, federation: Federation) -> tuple[PrivateState, Round]:
        """One noisy step with everybody."""
        walk = self.course.step(state.walk, federation)
        noise, names = self.course.multipliers(), self.members.names
        least = int(noise.argmin())
        so_far = Ledger((Release(least, 1, float(noise[least]), walk.steps),))
        releases = tuple(Release(k, walk.steps, float(m), 1) for k, m in enumerate(noise))
        return replace(state, walk=walk), Round(
            names, steps=len(names), learning_rate=1 / self.course.smoothness,
            epsilon=so_far.epsilon(least, self.course.beta), releases=releases,
        )  # fmt: skip

    def to_module(self, model: Floats) -> NDArray[np.float32]:
        """(P,) as parameters of the module that is judged and saved."""
        return linear_model(model, self.members.classes, self.course.objective.scale)

    def models(self, state: PrivateState) -> NDArray[Any]:
        """(1, P) the shared model."""
        return self.to_module(state.walk.model)[None]

    def final(self, state: PrivateState) -> NDArray[Any]:
        """The shared one, as payments are for it."""
        return self.to_module(state.walk.model)

    def settle(self, state: PrivateState, federation: Federation) -> Statement:
        """Noisy payments, the privacy everybody gave away, and the promises; nothing about losses."""
        outcome = self.course.finish(state.walk, federation)
        names, agents = self.members.names, len(self.members)
        epsilon = [outcome.epsilon(k) for k in range(agents)]
        checks: tuple[Finding, ...] = private_checks(
            self.course.facts, outcome, len(self.clusters), LONGEST
        )
        return Statement(
            "private faithful", names, charged(outcome.payments, DECIMALS), unit="loss", decimals=DECIMALS,
            columns={
                "weight": self.course.facts.weights.tolist(), "payment": outcome.payments.tolist(),
                "epsilon": epsilon,
            },
            forms=FORMS | {"epsilon": ".4g"},
            totals={
                "payments in all": float(outcome.payments.sum()),
                "largest_epsilon": max(epsilon),
                "delta": outcome.beta,
                "adjacency": REPLACE,
                "protects_against": PROTECTS[self.course.facts.noise_at],
            },
            findings=checks, notes=(*self.notes, *self._noisy(outcome.payments)),
            facts={
                "payments": outcome.payments.tolist(), "payment_steps": outcome.payment_steps,
                "epsilon": max(epsilon), "delta": outcome.beta,
                "noise": {"gradient": outcome.noise.gradient, "payment": outcome.noise.payment},
                "noise_at": self.course.facts.noise_at,
                "releases": _releases(outcome.ledger, names),
            },
        )  # fmt: skip

    def _noisy(self, payments: Floats) -> list[str]:
        """Whose payment is no larger than the noise in it."""
        if self.payment_error is None:
            return []
        return within_error(self.members.names, payments, self.payment_error, "expected to have")

    def simulation(self, state: PrivateState, federation: Federation) -> JSONObject | None:
        """Losses of private samples, which nobody but a simulation may know."""
        if not hasattr(federation, "oracle"):
            return None
        problem = federation.oracle(self.course.objective, self.course.facts.weights)
        assert isinstance(problem, SoftmaxRegression)  # there are classes
        outcome = self.course.finish(state.walk, federation)
        fresh = None if self.judges is None else self.judges.fresh(federation, self.to_module)
        accounts = private_accounts(
            problem, outcome, clusters=len(self.clusters), longest=LONGEST, fresh=fresh
        )
        columns = columns_of(accounts, self.course.facts.weights)
        rows = [{"agent": name, **{c: cells[k] for c, cells in columns.items()}}
                for k, name in enumerate(self.members.names)]  # fmt: skip
        return {"note": _SIMULATED, "agents": rows}


def _who_adds_noise(course: PrivateProtocol) -> str:
    """Whom the noise protects against, and what that costs."""
    if course.facts.noise_at == "sum":
        return ON_SUM
    cost = variance_cost(
        course.facts, course.training_steps, course.payment_steps,
        in_proportion=course.variant == "corrected",
    )  # fmt: skip
    return (
        f"each agent adds its own noise: {cost.gradients:.3g} times the variance on every sum of gradients "
        f"and {cost.payments:.3g} times on every payment, which also protects against the server"
    )


def _releases(ledger: Ledger, names: Sequence[str]) -> list[JSONObject]:
    """Every release of every agent's samples, those at equal noise counted together."""
    times: Counter[tuple[int, float]] = Counter()
    for release in ledger.releases:
        times[release.client, release.multiplier] += release.times
    return [
        {"agent": names[agent], "noise_multiplier": noise, "times": count}
        for (agent, noise), count in sorted(times.items())
    ]
