"""Federated averaging under rules: the family of mechanisms that differ in participation, noise and money.

A round has four steps:

    (1)  the rules say who takes part and with what weight
    (2)  each trains from the shared model, in noise where privacy was promised
    (3)  the server's step (`learning.server`): the weighted sum of the changes, with what is remembered of
         those who are not in; the server's optimizer; failures are handled by policy
    (4)  the account: participations, releases, money

`Rules` is all that plain averaging, paid participation, bought privacy or a mechanism of your own have to
say; `Averaging` is the `Mechanism` made of them. A sum is all it needs, so that it also runs where nobody
may see a single update; only with `training.aggregation = "memory"` the server must see each.

Privacy (theory P3): who takes part when does not depend on the data, so how often each client releases is
known before the first round, and its noise is calibrated for just that. In a private run a client that
fails counts as one that changes nothing, and nobody is told: no noise hides anybody in a list of failures.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from bonafed.checks import Floats, finite_or_none
from bonafed.economics.claims import Statement
from bonafed.errors import InvalidValue
from bonafed.learning.federation import Federation, Need, Question, Roster, Task, Total
from bonafed.learning.participation import Participation, drawn_share, weighted_mean
from bonafed.learning.privacy import (
    Adjacency,
    Batches,
    Calibration,
    Ledger,
    Release,
)
from bonafed.learning.rounds import failures, require_all, training_tasks
from bonafed.learning.sections import (
    NoiseSource,
    Privacy,
)
from bonafed.learning.server import (
    Server,
    ServerState,
    corrections,
    expected_change,
    plain_change,
    remembering,
    stepped,
)
from bonafed.learning.work import LocalTraining, record_steps, sampling_rate, step_count
from bonafed.mechanisms.private_training import course_of, noise_note
from bonafed.mechanisms.promises import Promise, noise_multipliers, privacy_notes
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
from bonafed.mechanisms.rates import Rates, learning_rates
from bonafed.mechanisms.server_rules import one_step, too_old
from bonafed.randomness import Purpose, round_generator
from bonafed.sections import named

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Account:
    """The totals over all rounds."""

    agreement: Agreement
    rounds: int
    participations: Ints  # (N,) how often each client took part, with multiplicity
    delivered: (
        Ints  # (N,) and gave a usable update; in a private run failures are not disclosed, so all count
    )
    spend: float  # money that became due, round by round
    epsilon: Floats | None  # (N,) privacy that a record of each client has lost; None: not private


class Rules(Protocol):
    """What an averaging mechanism decides."""

    @property
    def question(self) -> Question | None:
        """What clients are asked to state."""
        ...

    @property
    def contract(self) -> Contract | None:
        """What is published before they do."""
        ...

    def agree(self, members: Roster, reports: Reports) -> Agreement:
        """The terms of every client."""
        ...

    def lottery(self, agreement: Agreement) -> Lottery | None:
        """What verifiable coins are to decide; None: nothing."""
        ...

    def participation(self, agreement: Agreement, round_number: int) -> Participation:
        """Who is in round 1, 2, ..., the same every time; clients are places in the roster."""
        ...

    def spend(self, agreement: Agreement, round_number: int, who: Participation) -> float | None:
        """Money that becomes due in a round; None: nobody is paid."""
        ...

    def promise(self, agreement: Agreement) -> Promise | None:
        """The promise about the clients' records; None: there is none."""
        ...

    def settle(self, account: Account) -> Statement:
        """What each client is owed."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Unpaid:
    """The rules of plain averaging; others can be made of it by changing what they decide."""

    config: Config

    @property
    def question(self) -> Question | None:
        return None

    @property
    def contract(self) -> Contract | None:
        return None

    def agree(self, members: Roster, reports: Reports) -> Agreement:
        return Agreement(members, dict(reports))

    def lottery(self, agreement: Agreement) -> Lottery | None:
        return None

    def participation(self, agreement: Agreement, round_number: int) -> Participation:
        """A share of the clients at random, weighted by their records."""
        members, config = agreement.members, self.config
        count = max(1, round(config.local.participation * len(members)))
        if count == len(members):
            return weighted_mean(range(len(members)), members.sizes)
        rng = round_generator(config.run.seed, Purpose.PARTICIPANTS, round_number)
        drawn = np.sort(rng.choice(len(members), count, replace=False))
        if config.local.server.remembers:
            return drawn_share(drawn, members.sizes)
        return weighted_mean(drawn, members.sizes)

    def spend(self, agreement: Agreement, round_number: int, who: Participation) -> float | None:
        return None

    def promise(self, agreement: Agreement) -> Promise | None:
        """That of [privacy], the same to everybody."""
        section = self.config.privacy
        if not isinstance(section, Privacy):
            return None
        return Promise(
            np.full(len(agreement.members), section.epsilon), section.delta, section.clip,
            cast(Batches, section.batches), cast(Calibration, section.calibration),
            cast(NoiseSource, section.noise), cast(Adjacency, section.adjacency),
        )  # fmt: skip

    def settle(self, account: Account) -> Statement:
        names = account.agreement.members.names
        columns = {"participations": account.participations.tolist()}
        return Statement(self.config.mechanism, names, (0,) * len(names), columns=columns)


@dataclass(frozen=True, slots=True, eq=False)
class AveragingState:
    """What passes from round to round."""

    agreement: Agreement
    noise_multipliers: Floats | None  # (N,) noise over sensitivity; 0: never takes part
    round_number: int
    model: NDArray[Any]  # (P,)
    participations: Ints  # (N,)
    delivered: Ints  # (N,)
    releases: Ints  # (N,) how many a record of each client can be in
    spend: float
    server: ServerState

    def arrays(self) -> Arrays:
        """Everything that changes."""
        return {
            "round": np.array(self.round_number), "model": self.model, "spend": np.array(self.spend),
            "participations": self.participations, "delivered": self.delivered, "releases": self.releases,
            **self.server.arrays(),
        }  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Averaging(Answers):
    """The mechanism made of rules."""

    config: Config  # resolved
    members: Roster
    parameters: int  # P of the model
    rules: Rules
    rates: Rates

    @classmethod
    def of(
        cls, config: Config, members: Roster, parameters: int, rules: Callable[[Config], Rules]
    ) -> Averaging:
        """Rules of the config, with learning rates resolved."""
        config, rates = learning_rates(config, members)
        return cls(config, members, parameters, rules(config), rates)

    @property
    def needs(self) -> Need:
        """Single updates if they are to be remembered, otherwise their sum."""
        return "replies" if self.server.remembers else "total"

    @property
    def server(self) -> Server:
        """What the server does with updates."""
        return self.config.local.server

    @property
    def rounds(self) -> int:
        return self.config.local.rounds

    @property
    def private(self) -> bool:
        """Whether clients hide their records in noise: then nothing else about these is disclosed."""
        return self.config.noise is not None

    @property
    def question(self) -> Question | None:
        return self.rules.question

    @property
    def contract(self) -> Contract | None:
        return self.rules.contract

    def agree(self, members: Roster, reports: Reports) -> Agreement:
        """The terms of every client; a promise that no noise can keep is refused before anybody trains."""
        agreement = self.rules.agree(members, reports)
        self.local_training(1, agreement)
        self._require_expected_weights(agreement)
        self._noise_multipliers(agreement)
        return agreement

    def lottery(self, agreement: Agreement) -> Lottery | None:
        return self.rules.lottery(agreement)

    def begin(self, agreement: Agreement, start: NDArray[Any]) -> AveragingState:
        none = np.zeros(len(agreement.members), dtype=np.int64)
        multipliers = self._noise_multipliers(agreement)
        server = self.server.begin(len(agreement.members), len(start))
        return AveragingState(agreement, multipliers, 0, np.array(start), none, none, none, 0.0, server)

    def restore(self, agreement: Agreement, arrays: Arrays) -> AveragingState:
        return AveragingState(
            agreement, self._noise_multipliers(agreement), int(arrays["round"]), arrays["model"],
            arrays["participations"], arrays["delivered"], arrays["releases"], float(arrays["spend"]),
            self.server.restore(arrays),
        )  # fmt: skip

    def advance(self, state: AveragingState, federation: Federation) -> tuple[AveragingState, Round]:
        number = state.round_number + 1
        agreement, names = state.agreement, state.agreement.members.names
        who = self.rules.participation(agreement, number)  # (1)
        spec = self.local_training(number, agreement)
        tasks = training_tasks(
            names, state.model, who, spec, round_number=number, seed=self.config.run.seed,
            noise_multipliers=state.noise_multipliers,
        )  # fmt: skip
        total, change, server = self._changed(state, federation, tasks, who)  # (2)
        if self.config.local.on_bad_update == "raise":
            require_all(tasks, total, number)
        after, server = stepped(state.model, change, self.server, server, number)  # (3)
        spend = self.rules.spend(agreement, number, who)  # (4)
        releases = self._releases(state, who, spec, total.releases, federation)
        following = self._counted(
            replace(state, server=server), after, who, total.delivered, releases, spend
        )
        return following, Round(
            participants=[names[client] for client in np.sort(who.clients)],
            failed=[] if self.private else [names[client] for client in failures(who, total)],
            steps=total.steps,
            learning_rate=spec.learning_rate,
            train_loss=None if self.private else finite_or_none(total.loss),
            spend=spend,
            epsilon=self._largest_epsilon(following),
            releases=releases,
        )

    def _changed(
        self, state: AveragingState, federation: Federation, tasks: Sequence[Task], who: Participation
    ) -> tuple[Total, Floats, ServerState]:
        """(2), and the change of (3): who delivered, (P,) how weights are to change, what is remembered."""
        if not self.server.remembers:
            total = federation.total(tasks, who.weights)
            return total, plain_change(who, total, fill_in=not self.private), state.server
        replies, size = federation.replies(tasks), state.model.size
        total = corrections(tasks, replies, who, self.server, state.server, size)
        assert who.expected is not None  # `agree` refuses rules that do not know them
        before = expected_change(who.expected, self.server, state.server, size)
        return total, before + total.values[0], remembering(state.server, tasks, replies, who)

    def _require_expected_weights(self, agreement: Agreement) -> None:
        if self.server.remembers and self.rules.participation(agreement, 1).expected is None:
            rule = 'must be "plain": the expected weight of a client in a round is not known beforehand'
            raise InvalidValue("training.aggregation", rule, '"memory"')

    def _releases(
        self,
        state: AveragingState,
        who: Participation,
        spec: LocalTraining,
        reported: Sequence[Release],
        federation: Federation,
    ) -> Sequence[Release]:
        """What was given away: as the federation counts it where it vouches for a client, else as asked.

        Whoever says that it released nothing may have; the account is for its records, not for it.
        """
        multipliers, members = state.noise_multipliers, state.agreement.members
        if multipliers is None or len(vouched := {*federation.vouched}) == len(members):
            return reported
        counted = [release for release in reported if members.names[release.client] in vouched]
        assumed = [
            Release(
                client, state.round_number + 1, float(multipliers[client]),
                record_steps(size := int(members.sizes[client]), spec), step_count(size, spec),
                sampling_rate(size, spec),
            )
            for client in who.clients.tolist()
            if members.names[client] not in vouched and multipliers[client] and members.sizes[client]
        ]  # fmt: skip
        return [*counted, *assumed]

    def warnings(self, agreement: Agreement) -> Sequence[str]:
        local, sizes = self.config.local, agreement.members.sizes
        told = [one_step(local.optimizer)] if max(map(local.local_steps, sizes.tolist())) == 1 else []
        if self.server.remembers:
            turns = sum(self.rules.participation(agreement, r + 1).clients.size for r in range(self.rounds))
            told.append(too_old(turns / self.rounds))
        return [text for text in (*told, self._noise_note(agreement)) if text]

    def _noise_note(self, agreement: Agreement) -> str | None:
        """What to say about the noise of a run of plain steps to which [privacy] promises something."""
        promise = self.rules.promise(agreement)
        if promise is None or promise.table != "privacy" or self.config.local.optimizer != "sgd":
            return None
        multipliers = self._noise_multipliers(agreement)
        assert multipliers is not None  # something was promised
        rounds = [
            (self.rules.participation(agreement, number), self.local_training(number, agreement))
            for number in range(1, self.rounds + 1)
        ]
        course = course_of(rounds, agreement.members.sizes, multipliers, self.parameters)
        return noise_note(course, float(promise.epsilon.max()), promise.delta, promise.clip)

    def _counted(
        self,
        state: AveragingState,
        model: NDArray[Any],
        who: Participation,
        delivered: Sequence[bool],
        releases: Sequence[Release],
        spend: float | None,
    ) -> AveragingState:
        clients = len(state.participations)
        # in a private run failures are not disclosed, not even to the checkpoint: as if all had delivered
        usable = who.clients if self.private else who.clients[np.array(delivered, dtype=bool)]
        given_away = state.releases.copy()
        for release in releases:
            given_away[release.client] += release.times
        return replace(
            state,
            round_number=state.round_number + 1,
            model=model,
            participations=state.participations + np.bincount(who.clients, minlength=clients),
            delivered=state.delivered + np.bincount(usable, minlength=clients),
            releases=given_away,
            spend=state.spend + (spend or 0.0),
        )

    def models(self, state: AveragingState) -> NDArray[Any]:
        return state.model[None]

    def final(self, state: AveragingState) -> NDArray[Any]:
        return state.model

    def settle(self, state: AveragingState, federation: Federation) -> Statement:
        promise = self.rules.promise(state.agreement)
        epsilon = None if promise is None else self._epsilons(state, promise)
        account = Account(
            state.agreement, state.round_number, state.participations, state.delivered, state.spend, epsilon
        )
        statement = self.rules.settle(account)
        told = [remembered(state)] if self.server.remembers else []
        notes = (*statement.notes, *self.warnings(state.agreement), *told)
        statement = replace(statement, notes=notes)
        if promise is None or epsilon is None:
            return statement
        facts = {"delta": promise.delta, "adjacency": promise.adjacency, "noise": promise.noise}
        return replace(
            statement,
            columns={**statement.columns, "epsilon": epsilon.tolist()},
            forms={"epsilon": ".4g", **statement.forms},
            totals={
                **statement.totals,
                "largest_epsilon": float(epsilon.max()),
                "delta": promise.delta,
                "adjacency": promise.adjacency,
            },
            facts={**statement.facts, **facts},
            notes=(*privacy_notes(promise, float(epsilon.max())), *statement.notes),
        )

    def local_training(self, number: int, agreement: Agreement) -> LocalTraining:
        """What clients do in round 1, 2, ..."""
        first, *later = self.rates(number).tolist()
        promise = self.rules.promise(agreement)
        if promise is None:
            plain = self.config.local.local_training(first)
        else:
            key = f"{promise.table}.clip"
            plain = self.config.local.local_training(first, promise.clip, key, promise.batches)
        return replace(plain, later_rates=tuple(later)) if later else plain

    def _noise_multipliers(self, agreement: Agreement) -> Floats | None:
        promise = self.rules.promise(agreement)
        if promise is None:
            return None
        turns = np.zeros(len(agreement.members), dtype=np.int64)
        for number in range(1, self.rounds + 1):
            np.add.at(turns, self.rules.participation(agreement, number).clients, 1)
        spec = self.local_training(1, agreement)
        with named(promise.table):
            return noise_multipliers(promise, turns, agreement.members.sizes, spec, self.parameters)

    def _epsilons(self, state: AveragingState, promise: Promise) -> Floats:
        """(N,) what the ledger says."""
        multipliers, spec = state.noise_multipliers, self.local_training(1, state.agreement)
        assert multipliers is not None  # something was promised

        @cache
        def spent(multiplier: float, times: int, rate: float | None) -> float:  # many clients are alike
            return Ledger((Release(0, 0, multiplier, times, rate=rate),)).epsilon(0, promise.delta)

        return np.array([
            spent(float(sigma), int(times), sampling_rate(int(size), spec)) if times else 0.0
            for sigma, times, size in zip(
                multipliers, state.releases, state.agreement.members.sizes, strict=True
            )
        ])  # fmt: skip

    def _largest_epsilon(self, state: AveragingState) -> float | None:
        """The largest loss of any client; with Poisson batches only where the model is evaluated, as their
        accounting takes longer than a round."""
        promise = self.rules.promise(state.agreement)
        if promise is None or state.noise_multipliers is None:
            return None
        every, number = self.config.run.evaluate_every, state.round_number
        if promise.batches == "poisson":
            looked = number % every == 0 or number == self.rounds
            return float(self._epsilons(state, promise).max()) if looked else None
        released = np.flatnonzero(state.releases)
        if not released.size:
            return 0.0
        lost = state.releases[released] / state.noise_multipliers[released] ** 2
        worst = int(released[lost.argmax()])
        sigma, times = float(state.noise_multipliers[worst]), int(state.releases[worst])
        return Ledger((Release(0, 0, sigma, times),)).epsilon(0, promise.delta)


def remembered(state: AveragingState) -> str:
    """How much the server remembers."""
    there = [update for update in state.server.received if update is not None]
    megabytes = sum(update.nbytes for update in there) / 1e6
    return (
        f"the server remembers the last update of {len(there):,} of {len(state.server.received):,} "
        f"clients, {state.model.size:,} numbers each, {megabytes:,.3g} MB"
    )
