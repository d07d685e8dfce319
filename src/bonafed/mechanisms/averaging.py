"""Federated averaging under rules: the family of mechanisms that differ in participation, noise and money.

A round has four steps:

    (1)  the rules say who takes part and with what weight
    (2)  each trains from the shared model, in noise where privacy was promised
    (3)  the server's step (`learning.server`): the weighted sum of the changes, with what is remembered of
         those who are not in; the server's optimizer; failures are handled by policy
    (4)  the account: who delivered, releases, money

`Rules` is all that plain averaging, paid participation, bought privacy or a mechanism of your own have to
say; `Averaging` is the `Mechanism` made of them. A sum is all it needs, so that it also runs where nobody
may see a single update; only with `training.aggregation = "memory"` the server must see each.

Privacy (theory P3): who takes part when does not depend on the data, so how often each client releases is
known before the first round, and its noise is calibrated for just that. In a private run a client that
fails counts as one that changes nothing, and nobody is told: no noise hides anybody in a list of failures.
Steps and releases are those that were asked for.

Absence (`Failure.absent`) is another matter: on a network everybody sees it, and it depends on no record.
Whoever gives no answer at all is left out of the round under every policy, also in a private run, and is
named: it has delivered and released nothing, and in a mean its share goes to the others. (With noise on the
sum the share is lost: that noise does not shrink with the sum, and would be magnified.)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from bonafed.checks import Floats, finite_or_none
from bonafed.contracts.attendance import Lottery
from bonafed.contracts.published import Agreement, PublishedContract
from bonafed.contracts.terms import Reports, Turns
from bonafed.economics.statement import Statement
from bonafed.errors import InvalidValue
from bonafed.learning.federation import (
    UNNAMED,
    Federation,
    Need,
    Question,
    Roster,
    Task,
    Total,
)
from bonafed.learning.privacy import (
    Adjacency,
    Batches,
    Calibration,
    Release,
)
from bonafed.learning.rounds import (
    Participation,
    absences,
    drawn_share,
    failures,
    require_all,
    training_tasks,
    weighted_mean,
)
from bonafed.learning.sections import (
    NoiseAt,
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
from bonafed.learning.sum_noise import SumNoise, require_one_step, round_noise
from bonafed.learning.work import LocalTraining
from bonafed.mechanisms.left_open import Chosen, chosen_for, settled_rate, settled_share, with_steps
from bonafed.mechanisms.privacy_account import (
    epsilon_of,
    epsilons,
    given_away,
    largest_epsilon,
    steps_asked,
    with_privacy,
)
from bonafed.mechanisms.private_training import course_of, noise_note
from bonafed.mechanisms.promises import Promise, noise_multipliers, sum_multipliers
from bonafed.mechanisms.protocol import Answers, Arrays, Config, Ints, Promised, Round
from bonafed.mechanisms.rates import Rates, learning_rates
from bonafed.mechanisms.server_rules import one_step, too_old
from bonafed.presentation.documents import counted
from bonafed.randomness import Purpose, round_generator
from bonafed.sections import named

_NAMED = 5  # clients that a note names


@dataclass(frozen=True, slots=True, eq=False)
class Account:
    """The totals over all rounds."""

    agreement: Agreement
    rounds: int
    turns: Turns  # how often everybody was in a round, and delivered
    spend: float  # money that became due, round by round
    epsilon: Floats | None  # (N,) privacy that a record of each client has lost; None: not private


class Rules(Protocol):
    """What an averaging mechanism decides."""

    @property
    def question(self) -> Question | None:
        """What clients are asked to state."""
        ...

    @property
    def contract(self) -> PublishedContract | None:
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

    def spend(
        self, agreement: Agreement, round_number: int, who: Participation, turns: Turns
    ) -> float | None:
        """Money that becomes due in a round in which these deliver; None: nobody is paid.

        `turns` are those of all rounds up to this one.
        """
        ...

    def promise(self, agreement: Agreement) -> Promise | None:
        """The promise about the clients' records; None: there is none."""
        ...

    def settle(self, account: Account) -> Statement:
        """What each client is owed."""
        ...


@runtime_checkable
class Cautious(Protocol):
    """Rules that have something to say before a run."""

    def cautions(self, agreement: Agreement) -> Sequence[str]:
        """One sentence each: to be heard before the first round, and in the statement."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Unpaid:
    """The rules of plain averaging; others can be made of it by changing what they decide."""

    config: Config

    @property
    def question(self) -> Question | None:
        return None

    @property
    def contract(self) -> PublishedContract | None:
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

    def spend(
        self, agreement: Agreement, round_number: int, who: Participation, turns: Turns
    ) -> float | None:
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
            cast(NoiseAt, section.noise_at),
        )  # fmt: skip

    def settle(self, account: Account) -> Statement:
        names, columns = account.agreement.members.names, account.turns.columns
        return Statement(self.config.mechanism, names, (0,) * len(names), columns=columns)


@dataclass(frozen=True, slots=True, eq=False)
class AveragingState:
    """What passes from round to round."""

    agreement: Agreement
    noise_multipliers: Floats | None  # (N,) noise over sensitivity; 0: never takes part
    round_number: int
    model: NDArray[Any]  # (P,)
    participations: Ints  # (N,) how often each client was in a round, with multiplicity
    delivered: Ints  # (N,) how often it delivered then, as far as that may be told
    releases: Ints  # (N,) how many a record of each client can be in
    spend: float
    server: ServerState
    # (N,) inverse squared multipliers of all releases so far, where noise on sums makes them differ
    lost: Floats | None = None

    def arrays(self) -> Arrays:
        """Everything that changes."""
        lost = {} if self.lost is None else {"lost": self.lost}
        return {
            "round": np.array(self.round_number), "model": self.model, "spend": np.array(self.spend),
            "participations": self.participations, "delivered": self.delivered, "releases": self.releases,
            **self.server.arrays(),
            **lost,
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
        if config.noise is not None:
            epsilon = config.privacy.epsilon if isinstance(config.privacy, Privacy) else None
            config = with_steps(config, members, parameters, epsilon)
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
    def contract(self) -> PublishedContract | None:
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
        lost = np.zeros(none.size) if self._on_sum(agreement) else None
        return AveragingState(
            agreement, multipliers, 0, np.array(start), none, none, none, 0.0, server, lost
        )

    def restore(self, agreement: Agreement, arrays: Arrays) -> AveragingState:
        return AveragingState(
            agreement, self._noise_multipliers(agreement), int(arrays["round"]), arrays["model"],
            arrays["participations"], arrays["delivered"], arrays["releases"], float(arrays["spend"]),
            self.server.restore(arrays),
            arrays["lost"] if self._on_sum(agreement) else None,
        )  # fmt: skip

    def advance(self, state: AveragingState, federation: Federation) -> tuple[AveragingState, Round]:
        number = state.round_number + 1
        agreement, names = state.agreement, state.agreement.members.names
        who = self.rules.participation(agreement, number)  # (1)
        spec = self.local_training(number, agreement)
        noise = self._sum_noise(state, who, spec)
        tasks = training_tasks(
            names, state.model, who, spec if noise is None else replace(spec, weight_decay=0.0),
            round_number=number, seed=self.config.run.seed,
            noise_multipliers=state.noise_multipliers if noise is None else None,
        )  # fmt: skip
        total, change, server = self._changed(state, federation, tasks, who, noise)  # (2)
        if noise is not None:
            change = change - _decay(state.model, who, spec)
        if self.config.local.on_bad_update == "raise":
            require_all(tasks, total, number)
        after, server = stepped(state.model, change, self.server, server, number)  # (3)
        there, members = self._delivered(tasks, total), agreement.members  # (4)
        present = replace(who, clients=who.clients[there], weights=who.weights[there])
        releases: Sequence[Release] = total.releases
        if noise is not None:
            answered = set(present.clients.tolist())
            releases = [release for release in noise.releases if release.client in answered]
        elif state.noise_multipliers is not None:
            releases = given_away(members, state.noise_multipliers, present, spec, number)
        following = self._counted(replace(state, server=server), after, who, present, releases)
        spend = self.rules.spend(agreement, number, present, _turns(following))
        following = replace(following, spend=state.spend + (spend or 0.0))
        return following, Round(
            participants=[names[client] for client in np.sort(who.clients)],
            failed=[names[client] for client in failures(who, there)],
            steps=steps_asked(members, present, spec) if self.private else total.steps,
            learning_rate=spec.learning_rate,
            train_loss=None if self.private else finite_or_none(total.loss),
            spend=spend,
            epsilon=self._largest_epsilon(following),
            releases=releases,
        )

    def _changed(
        self,
        state: AveragingState,
        federation: Federation,
        tasks: Sequence[Task],
        who: Participation,
        noise: SumNoise | None,
    ) -> tuple[Total, Floats, ServerState]:
        """(2), and the change of (3): who delivered, (P,) how weights are to change, what is remembered."""
        if not self.server.remembers:
            total = federation.total(tasks, who.weights, 0.0 if noise is None else noise.sd)
            told = replace(total, delivered=tuple(self._delivered(tasks, total).tolist()))
            return total, plain_change(who, told, fill_in=noise is None), state.server
        replies, size = federation.replies(tasks), state.model.size
        total = corrections(tasks, replies, who, self.server, state.server, size)
        assert who.expected is not None  # `agree` refuses rules that do not know them
        before = expected_change(who.expected, self.server, state.server, size)
        return total, before + total.values[0], remembering(state.server, tasks, replies, who)

    def _delivered(self, tasks: Sequence[Task], total: Total) -> NDArray[np.bool_]:
        """(tasks,) who delivered, as far as that may be told: where privacy is promised, who was there."""
        return ~absences(tasks, total) if self.private else np.array(total.delivered, dtype=bool)

    def _require_expected_weights(self, agreement: Agreement) -> None:
        if self.server.remembers and self.rules.participation(agreement, 1).expected is None:
            rule = 'must be "plain": the expected weight of a client in a round is not known beforehand'
            raise InvalidValue("training.aggregation", rule, '"memory"')

    def warnings(self, agreement: Agreement) -> Sequence[str]:
        local, sizes = self.config.local, agreement.members.sizes
        told = [one_step(local.optimizer)] if max(map(local.local_steps, sizes.tolist())) == 1 else []
        if self.server.remembers:
            turns = sum(self.rules.participation(agreement, r + 1).clients.size for r in range(self.rounds))
            told.append(too_old(turns / self.rounds))
        if isinstance(self.rules, Cautious):
            told += self.rules.cautions(agreement)
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
        course = course_of(
            rounds, agreement.members.sizes, multipliers, self.parameters, on_sum=self._on_sum(agreement)
        )
        return noise_note(course, float(promise.epsilon.max()), promise.delta, promise.clip)

    def _counted(
        self,
        state: AveragingState,
        model: NDArray[Any],
        who: Participation,
        present: Participation,
        releases: Sequence[Release],
    ) -> AveragingState:
        """After a round with these participants, of whom some delivered; but for its money."""
        clients = len(state.participations)
        given_away, lost = state.releases.copy(), None if state.lost is None else state.lost.copy()
        for release in releases:
            given_away[release.client] += release.times
            if lost is not None:
                lost[release.client] += release.times / release.multiplier**2
        return replace(
            state,
            round_number=state.round_number + 1,
            model=model,
            participations=state.participations + np.bincount(who.clients, minlength=clients),
            delivered=state.delivered + np.bincount(present.clients, minlength=clients),
            releases=given_away,
            lost=lost,
        )

    def promised(self, agreement: Agreement) -> Promised | None:
        promise = self.rules.promise(agreement)
        return None if promise is None else Promised(promise.epsilon, promise.delta)

    def models(self, state: AveragingState) -> NDArray[Any]:
        return state.model[None]

    def final(self, state: AveragingState) -> NDArray[Any]:
        return state.model

    def settle(self, state: AveragingState, federation: Federation) -> Statement:
        promise = self.rules.promise(state.agreement)
        epsilon = None if promise is None else self._epsilons(state, promise)
        account = Account(state.agreement, state.round_number, _turns(state), state.spend, epsilon)
        statement = self.rules.settle(account)
        told = [remembered(state)] if self.server.remembers else []
        notes = (*did_not_report(state.agreement), *statement.notes, *self.warnings(state.agreement), *told)
        statement = replace(statement, notes=notes)
        if promise is None or epsilon is None:
            return statement
        return with_privacy(statement, promise, epsilon)

    def local_training(self, number: int, agreement: Agreement) -> LocalTraining:
        """What clients do in round 1, 2, ..."""
        promise = self.rules.promise(agreement)
        rates = self.rates(number)
        if self.config.stated.learning_rate is None:
            rates = rates * self._first_rate(agreement, promise)
        first, *later = rates.tolist()
        if promise is None:
            plain = self.config.local.local_training(first)
        else:
            key = f"{promise.table}.clip"
            plain = self.config.local.local_training(first, promise.clip, key, promise.batches)
        return replace(plain, later_rates=tuple(later)) if later else plain

    def _first_rate(self, agreement: Agreement, promise: Promise | None) -> float:
        """(11.4), where the config leaves it open."""
        if promise is None:  # nothing is hidden in this run
            return float(self.config.stated.without_noise().learning_rate or 0.0)
        share = self._share(agreement, promise)
        return settled_rate(self.config, agreement.members, share, promise.clip)

    def _share(self, agreement: Agreement, promise: Promise) -> float:
        """(11.1)"""
        who = self.rules.participation(agreement, 1)
        return settled_share(self.config, agreement.members, self.parameters, promise, who)

    def chosen(self, agreement: Agreement) -> Chosen | None:
        promise = self.rules.promise(agreement)
        if promise is None:
            return None
        rate = self._first_rate(agreement, promise)
        return chosen_for(self.config, self._share(agreement, promise), rate)

    def _noise_multipliers(self, agreement: Agreement) -> Floats | None:
        promise = self.rules.promise(agreement)
        if promise is None:
            return None
        members, spec = agreement.members, self.local_training(1, agreement)
        rounds = [self.rules.participation(agreement, number + 1) for number in range(self.rounds)]
        if promise.noise_at == "sum":
            require_one_step(spec, members.names, members.sizes)
            with named(promise.table):
                return sum_multipliers(promise, rounds, members.sizes, spec, self.parameters)
        turns = np.zeros(len(members), dtype=np.int64)
        for who in rounds:
            np.add.at(turns, who.clients, 1)
        with named(promise.table):
            return noise_multipliers(promise, turns, members.sizes, spec, self.parameters)

    def _on_sum(self, agreement: Agreement) -> bool:
        promise = self.rules.promise(agreement)
        return promise is not None and promise.noise_at == "sum"

    def _sum_noise(self, state: AveragingState, who: Participation, spec: LocalTraining) -> SumNoise | None:
        """The noise on the sum of the next round; None: clients add their own, or there is none."""
        if state.lost is None:
            return None
        assert state.noise_multipliers is not None  # something was promised
        return round_noise(
            who, state.noise_multipliers, state.agreement.members.sizes, spec, state.model,
            state.round_number + 1,
        )  # fmt: skip

    def _epsilons(self, state: AveragingState, promise: Promise) -> Floats:
        """(N,) what the ledger says."""
        multipliers, spec = state.noise_multipliers, self.local_training(1, state.agreement)
        assert multipliers is not None  # something was promised
        if state.lost is not None:
            return np.array([epsilon_of(lost, promise.delta) for lost in state.lost.tolist()])
        return epsilons(multipliers, state.releases, state.agreement.members.sizes, spec, promise.delta)

    def _largest_epsilon(self, state: AveragingState) -> float | None:
        """The largest loss of any client; with Poisson batches only where the model is evaluated, as their
        accounting takes longer than a round."""
        promise = self.rules.promise(state.agreement)
        if promise is None or state.noise_multipliers is None:
            return None
        if state.lost is not None:
            return epsilon_of(float(state.lost.max()), promise.delta)
        every, number = self.config.run.evaluate_every, state.round_number
        if promise.batches == "poisson":
            looked = number % every == 0 or number == self.rounds
            return float(self._epsilons(state, promise).max()) if looked else None
        return largest_epsilon(state.noise_multipliers, state.releases, promise.delta)


def missing_turns(turns: Turns) -> list[str]:
    """What a statement says about participations that were not delivered; nothing if all were."""
    missing = int((turns.asked - turns.delivered).sum())
    if not missing:
        return []
    whole = int(turns.asked.sum())
    return [f"{missing:,} of {whole:,} participations were not delivered: what was not given is not paid"]


def did_not_report(agreement: Agreement) -> list[str]:
    """Who is not in the run, as it stated nothing; nothing if all did."""
    if not agreement.silent:
        return []
    names, several = agreement.silent, len(agreement.silent) > 1
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    verbs = "do not take part and are" if several else "does not take part and is"
    who = ", ".join(names[:_NAMED]) + more
    if all(re.fullmatch(rf"{UNNAMED} \d+", name) for name in names):  # names that nobody knows say nothing
        who = f"{counted(len(names), 'client')} of the data"
    return [f"{who} did not report, {verbs} owed nothing"]


def _turns(state: AveragingState) -> Turns:
    return Turns(state.delivered, state.participations)


def _decay(model: NDArray[Any], who: Participation, spec: LocalTraining) -> Floats:
    """(P,) the weight decay of a round, which clients leave to the server where noise is on the sum.

    It does not look at records, and is in full whoever failed.
    """
    factor = spec.learning_rate * spec.weight_decay * float(who.weights.sum())
    return factor * model.astype(np.float64)


def remembered(state: AveragingState) -> str:
    """How much the server remembers."""
    there = [update for update in state.server.received if update is not None]
    megabytes = sum(update.nbytes for update in there) / 1e6
    return (
        f"the server remembers the last update of {len(there):,} of {len(state.server.received):,} "
        f"clients, {state.model.size:,} numbers each, {megabytes:,.3g} MB"
    )
