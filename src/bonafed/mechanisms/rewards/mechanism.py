"""Model rewards as a mechanism: standalone models, the federation, and every baseline, one after another.

A run has phases, and its rounds are numbered consecutively across them:

    standalone    everybody alone: what joining must beat and, by default, the contributions
    (rewards)     the mechanism itself; its rounds are logged without a phase
    honest        the same without cheats, if the config has some
    fedavg-ft, lg-fedavg, cgsv, rank    the baselines asked for

With `measure = "standalone"` accuracies of the first phase are the contributions. As in the paper they are
measured on the test set, on which the models are judged as well; rho is therefore shown a second time with
accuracies on the validation set (theory D7).

Cheats (`agents` in the config) act in some phases only: not where everybody is alone or honest. So the
mechanism, not the run, wraps the federation it is given; fine-tuning happens at home, where nobody is
cheated.

What passes from round to round is a frozen value: the results of finished phases, a few vectors each, and
the state of the current phase. A phase is finished at the beginning of the next one, or at settlement; so
after every round the models are those that its clients held then.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from bonafed.checks import Floats, finite_or_none
from bonafed.contracts.attendance import Lottery
from bonafed.contracts.published import Agreement, PublishedContract
from bonafed.contracts.terms import Reports
from bonafed.economics.statement import Statement
from bonafed.errors import InvalidValue
from bonafed.learning.federation import Federation, Need, Question, Roster
from bonafed.learning.sections import BadUpdatePolicy
from bonafed.mechanisms.protocol import Answers, Arrays, Config, Round
from bonafed.mechanisms.rewards import measures
from bonafed.mechanisms.rewards.baselines import (
    Baseline,
    BaselineState,
    CosineRewards,
    FederatedAveraging,
    LocalGlobal,
    RankRewards,
    Standalone,
)
from bonafed.mechanisms.rewards.cheats import CheatingFederation, cheats_from, contribution_shares
from bonafed.mechanisms.rewards.local import LocalRounds
from bonafed.mechanisms.rewards.measures import Models, running_cosine
from bonafed.mechanisms.rewards.section import HONEST, REWARDS, STANDALONE, Rewards, check, rewards_of
from bonafed.mechanisms.rewards.server import Own, Reference
from bonafed.mechanisms.rewards.settlement import settlement
from bonafed.mechanisms.rewards.training import Contributions, ModelRewards, RewardsState
from bonafed.sections import named

if TYPE_CHECKING:
    from torch import nn

    from bonafed.learning.engine.jobs import Samples
    from bonafed.learning.engine.programs import Program
    from bonafed.mechanisms.rewards.judges import RewardsJudges

Vectors = Mapping[str, NDArray[Any]]  # results of a phase, by name
PhaseState = RewardsState | BaselineState
CLIENTS = "clients.npz"  # every client's final model


@dataclass(frozen=True, slots=True, eq=False)
class RewardsRunState:
    """What passes from round to round, of all phases."""

    start: Models  # (P,) everybody's first model, in every phase
    rounds: int  # of a phase
    results: Mapping[str, Vectors]  # by phase, in order
    inside: PhaseState  # of the phase after these

    @property
    def round_number(self) -> int:
        """Rounds of all phases so far."""
        return self.rounds * len(self.results) + self.inside.round_number

    def arrays(self) -> Arrays:
        """Finished phases under "phase/name", the current one under "state/name"."""
        more = {f"{phase}/{k}": v for phase, vectors in self.results.items() for k, v in vectors.items()}
        inside = {f"state/{name}": values for name, values in self.inside.arrays().items()}
        return {"start": self.start, **more, **inside}


@dataclass(frozen=True, slots=True, eq=False)
class RewardsMechanism(Answers):
    """Model rewards and their baselines; made by `mechanism`, then given judges."""

    needs: ClassVar[Need] = "replies"

    config: Config  # resolved
    members: Roster
    judges: RewardsJudges | None = None  # the server's test samples; `with_judges`

    @property
    def section(self) -> Rewards:
        """The config's table [rewards]."""
        return rewards_of(self.config)

    @property
    def rounds(self) -> int:
        """Of all phases together."""
        return self.config.local.rounds * len(self.section.phases)

    @property
    def question(self) -> Question | None:
        return None

    @property
    def contract(self) -> PublishedContract | None:
        return None

    def test_samples(self, test: Samples | None = None) -> Samples:
        """What is left of the test samples to judge models by; the rest is for validation."""
        return self._judges.test

    @property
    def _judges(self) -> RewardsJudges:
        if self.judges is None:
            raise InvalidValue("rewards", "must have test samples to judge models by", "none")
        return self.judges

    def with_judges(self, program: Program, module: nn.Module, test: Samples) -> RewardsMechanism:
        """The mechanism of a server that has these samples; refuses what cannot be judged."""
        from bonafed.mechanisms.rewards.judges import judges

        section, run = self.section, self.config.run
        own_judges = judges(
            program, module, test, validation=section.validation, seed=run.seed, cores=run.cores_here,
            ranking=section.ranking,
        )  # fmt: skip
        if "lg-fedavg" in section.baselines and own_judges.shared is None:
            rule = "must not have lg-fedavg, which needs a model of two layers or more that train"
            raise InvalidValue("rewards.baselines", rule, "one layer")
        return replace(self, judges=own_judges)

    def agree(self, members: Roster, reports: Reports) -> Agreement:
        return Agreement(members, dict(reports))

    def lottery(self, agreement: Agreement) -> Lottery | None:
        return None

    def begin(self, agreement: Agreement, start: NDArray[Any]) -> RewardsRunState:
        first = self.method(STANDALONE, None).begin(start)
        return RewardsRunState(np.array(start), self.config.local.rounds, {}, first)

    def restore(self, agreement: Agreement, arrays: Arrays) -> RewardsRunState:
        results: dict[str, dict[str, NDArray[Any]]] = {}
        inside: dict[str, NDArray[Any]] = {}
        for name, values in arrays.items():
            phase, _, entry = name.partition("/")
            if phase == "state":
                inside[entry] = values
            elif entry:
                results.setdefault(phase, {})[entry] = values
        phases = self.section.phases
        kind = RewardsState if phases[len(results)] in (REWARDS, HONEST) else BaselineState
        in_order = {phase: results[phase] for phase in phases[: len(results)]}
        return RewardsRunState(
            arrays["start"], self.config.local.rounds, in_order, kind.from_arrays(inside)
        )

    def advance(self, state: RewardsRunState, federation: Federation) -> tuple[RewardsRunState, Round]:
        state = self._next_phase(state, federation)
        phase = self._phase(state)
        method = self.method(phase, state.results.get(STANDALONE))
        inside, uploads = method.advance(state.inside, self._clients(federation, phase))
        names = self.members.names
        return replace(state, inside=inside), Round(
            participants=[names[i] for i in np.flatnonzero(uploads.present | uploads.failed)],
            failed=[names[i] for i in np.flatnonzero(uploads.failed)],
            steps=uploads.steps,
            learning_rate=method.local.learning_rate(inside.round_number),
            train_loss=finite_or_none(uploads.loss),
            phase="" if phase == REWARDS else phase,
            ends_phase=inside.round_number == state.rounds,
        )

    def models(self, state: RewardsRunState) -> NDArray[Any]:
        """(N, P) what the clients hold in the current phase."""
        return state.inside.models

    def final(self, state: RewardsRunState) -> NDArray[Any]:
        """(P,) the reference model of the rewards, which the server keeps."""
        return np.array(self._rewards_so_far(state, "reference"))

    def extra_files(self, state: RewardsRunState) -> Mapping[str, bytes]:
        """Every client's final model, a row each."""
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, rewards=self._rewards_so_far(state, "models"))
        return {CLIENTS: buffer.getvalue()}

    def settle(self, state: RewardsRunState, federation: Federation) -> Statement:
        """No money is owed; what each client was given, next to what it would have had alone."""
        if state.round_number < self.rounds:
            raise InvalidValue("state", f"must have all {self.rounds} rounds", state.round_number)
        phases = {**state.results, self._phase(state): self._finish(state, federation)}
        judges = self._judges
        samples = len(judges.test.labels), len(judges.validation.labels)
        return settlement(self.section, self.members, phases, samples)

    def _phase(self, state: RewardsRunState) -> str:
        """The phase that is being trained."""
        return self.section.phases[len(state.results)]

    def _next_phase(self, state: RewardsRunState, federation: Federation) -> RewardsRunState:
        """The state itself; at the end of a phase, the state before the next one."""
        if state.inside.round_number < state.rounds:
            return state
        if state.round_number >= self.rounds:
            raise InvalidValue("state", f"must have fewer than {self.rounds} rounds", state.round_number)
        results = {**state.results, self._phase(state): self._finish(state, federation)}
        following = self.section.phases[len(results)]
        inside = self.method(following, results[STANDALONE]).begin(state.start)
        return replace(state, results=results, inside=inside)

    def _finish(self, state: RewardsRunState, federation: Federation) -> Vectors:
        """What is kept of the current phase, all of whose rounds are over."""
        phase, inside, judges = self._phase(state), state.inside, self._judges
        method = self.method(phase, state.results.get(STANDALONE))
        models = method.finish(inside, federation)  # fine-tuning happens at home, where nobody is cheated
        scores = judges.judge(models)
        vectors: dict[str, NDArray[Any]] = {"accuracy": scores.accuracy, "loss": scores.loss}
        if phase == STANDALONE:
            vectors["validation"] = judges.score(models)
        if isinstance(inside, RewardsState):
            nothing = np.zeros(len(self.members))  # was contributed if nobody ever attended
            attended = bool(inside.present.any())
            vectors["contribution"] = _last(inside.contributions) if attended else nothing
            vectors["share"] = contribution_shares(inside) if attended else nothing
            vectors["rate"] = inside.average_rates
            vectors["reference"] = inside.reference
        if phase == REWARDS:
            vectors["models"] = models
        return vectors

    def _rewards_so_far(self, state: RewardsRunState, name: str) -> NDArray[Any]:
        """The models or the reference of the rewards; the first model before there are any."""
        if REWARDS in state.results:
            return state.results[REWARDS][name]
        if self._phase(state) == REWARDS:
            return np.asarray(getattr(state.inside, name))
        rows = (len(self.members), 1) if name == "models" else (1,)
        return np.tile(state.start, rows)

    def _clients(self, federation: Federation, phase: str) -> Federation:
        """As the server sees them; cheats act wherever there is something to gain."""
        if phase in (STANDALONE, HONEST) or not self.section.agents:
            return federation
        cheats = cheats_from(self.section.agents, self.members.names, self.config.run.seed)
        return CheatingFederation(federation, cheats)

    def _local(self, phase: str) -> LocalRounds:
        training, seed = self.config.local, self.config.run.seed
        assert training.learning_rate is not None  # nothing is hidden in noise here
        return LocalRounds(
            training.local_training(float(training.learning_rate)),
            seed,
            training.learning_rate_decay,
            "rewards" if phase == REWARDS else f"rewards/{phase}",
            cast(BadUpdatePolicy, training.on_bad_update),
        )

    @property
    def presence(self) -> Floats | None:
        """(N,) rates at which clients take part: p_i = a + (1 - a) i/N; None: always."""
        least, clients = self.section.presence, len(self.members)
        if least == 1:
            return None
        rates = least + (1 - least) * np.arange(1, clients + 1) / clients
        return np.asarray(np.minimum(rates, 1.0))  # rounding may end above

    def method(self, phase: str, alone: Vectors | None) -> Any:
        """The `Method` of a phase; `alone` is the result of the first one."""
        sizes = self.members.sizes.astype(np.float64)
        common: dict[str, Any] = {
            "sizes": sizes, "participation": self.presence, "seed": self.config.run.seed,
            "local": self._local(phase),
        }  # fmt: skip
        if phase == STANDALONE:
            return Standalone(**{**common, "participation": None})  # by itself a client misses no round
        if phase in (REWARDS, HONEST):
            return self._rewards(common, alone)
        return self._baseline(phase, common)

    def _baseline(self, phase: str, common: Mapping[str, Any]) -> Baseline:
        if phase == "fedavg-ft":
            local: LocalRounds = common["local"]
            first = self.section.fine_tuning == "first"
            return FederatedAveraging(**common, tuning=replace(local, decay=1.0) if first else local)
        if phase == "lg-fedavg":
            shared = self._judges.shared
            assert shared is not None  # refused by `with_judges`
            return LocalGlobal(**common, shared=shared)
        if phase == "cgsv":
            return CosineRewards(**common, layers=self._judges.layers)
        return RankRewards(**common, score=self._judges.rank)

    def _rewards(self, common: Mapping[str, Any], alone: Vectors | None) -> ModelRewards:
        section = self.section
        with named("rewards"):
            return ModelRewards(
                self._measure(alone),
                sharing=section.sharing,
                recovery=section.recovery,
                ceiling=section.ceiling,
                reference=cast(Reference, section.reference),
                own=cast(Own, section.own),
                score=self._judges.score,
                **common,
            )

    def _measure(self, alone: Vectors | None) -> Contributions:
        section = self.section
        if section.measure == "standalone":
            assert alone is not None  # trained first
            return alone["accuracy"]
        if section.measure == "validation":
            assert alone is not None  # likewise
            return alone["validation"]
        if section.measure == "data size":
            return measures.data_size
        if section.measure == "participation":
            return measures.participation_rate
        if section.measure == "presence":
            return np.ones(len(self.members)) if self.presence is None else self.presence
        if section.measure == "cosine":
            return running_cosine()  # nothing to keep of earlier rounds
        if section.measure == "leave one out":
            return measures.at_least_zero(measures.leave_one_out)
        given = {"orders": section.shapley_orders, "seed": self.config.run.seed}
        if section.measure == "completed shapley":
            return measures.at_least_zero(measures.completed_shapley(**given))
        shapley = measures.federated_shapley(**given)
        return measures.at_least_zero(shapley)


def _last(contributions: Floats) -> Floats:
    """(N,) as measured in the last round that somebody attended; measures look back at all before."""
    return np.asarray(contributions[np.isfinite(contributions).all(1)][-1])


def mechanism(config: Config, members: Roster, parameters: int) -> RewardsMechanism:
    """The mechanism of a config, for these clients; refuses what cannot be run."""
    config = check(config)
    if not members.classes:
        rule = "must name data with classes: rewards are judged by accuracy"
        raise InvalidValue("data.name", rule, config.data.name)
    if len(members) < 2:
        raise InvalidValue("partition.clients", "must be at least 2 for rewards", len(members))
    with named("rewards"):
        cheats_from(rewards_of(config).agents, members.names, config.run.seed)  # refuses bad ones
    return RewardsMechanism(config, members)
