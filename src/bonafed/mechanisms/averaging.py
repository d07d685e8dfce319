"""Federated averaging under rules: the family of mechanisms that differ in participation, noise and money.

A round has four steps:

    (1)  the rules say who takes part and with what weight
    (2)  each trains from the shared model, in noise where privacy was promised
    (3)  the weighted sum of the changes; failures are handled by policy
    (4)  the account: participations, releases, money

`Rules` is all that plain averaging, paid participation, bought privacy or a mechanism of your own have to
say; `Averaging` is the `Mechanism` made of them. A sum is all it needs, so that it also runs where nobody
may see a single update.

Privacy (theory P3): who takes part when does not depend on the data, so how often each client releases is
known before the first round, and its noise is calibrated for just that. In a private run a client that
fails counts as one that changes nothing, and nobody is told: no noise hides anybody in a list of failures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any, ClassVar, Literal, Protocol, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed import checks
from bonafed.checks import Floats, finite_or_none
from bonafed.economics.claims import Statement
from bonafed.errors import BadModel, BadUpdate, InvalidValue, MissingValue
from bonafed.learning.federation import Federation, Need, Question, Roster, Task, Total, Train
from bonafed.learning.participation import Participation, require_known, weighted_mean
from bonafed.learning.privacy import (
    REPLACE,
    Adjacency,
    Batches,
    Calibration,
    Ledger,
    Release,
    covering,
    noise_multiplier,
    sampled_multiplier,
)
from bonafed.learning.sections import (
    BY_THEOREM,
    PROPOSITION_1,
    REPRODUCIBLE,
    NoiseSource,
    Privacy,
    Training,
)
from bonafed.learning.work import LocalTraining, largest_sum, record_steps, sampling_rate, step_count
from bonafed.mechanisms.protocol import Agreement, Arrays, Config, Contract, Lottery, Reports, Round
from bonafed.randomness import Purpose, round_generator
from bonafed.sections import named

HARDLY_A_PROMISE = 10.0  # an epsilon above this protects hardly anybody
Ints = NDArray[np.int64]
Rates = Callable[[int], Floats]  # of round 1, 2, ...: (1,) for all its local steps, or one for each
Ideal = Callable[[float, float], float]  # (epsilon, delta) -> noise multiplier, in exact arithmetic


@dataclass(frozen=True, slots=True, eq=False)
class Promise:
    """What every client was promised about its records, over the whole run."""

    epsilon: Floats  # (N,) 0: nothing is released
    delta: float
    clip: float  # largest norm of one record's gradient
    batches: Batches = "passes"
    calibration: Calibration = "exact"
    noise: NoiseSource = "secret"
    adjacency: Adjacency = REPLACE
    table: str = "privacy"  # of the config, under which bad values are refused


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
        return weighted_mean(np.sort(rng.choice(len(members), count, replace=False)), members.sizes)

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

    def arrays(self) -> Arrays:
        """Everything that changes."""
        return {
            "round": np.array(self.round_number), "model": self.model, "spend": np.array(self.spend),
            "participations": self.participations, "delivered": self.delivered, "releases": self.releases,
        }  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Averaging:
    """The mechanism made of rules."""

    needs: ClassVar[Need] = "total"

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
        self._noise_multipliers(agreement)
        return agreement

    def lottery(self, agreement: Agreement) -> Lottery | None:
        return self.rules.lottery(agreement)

    def begin(self, agreement: Agreement, start: NDArray[Any]) -> AveragingState:
        none = np.zeros(len(agreement.members), dtype=np.int64)
        multipliers = self._noise_multipliers(agreement)
        return AveragingState(agreement, multipliers, 0, np.array(start), none, none, none, 0.0)

    def restore(self, agreement: Agreement, arrays: Arrays) -> AveragingState:
        return AveragingState(
            agreement, self._noise_multipliers(agreement), int(arrays["round"]), arrays["model"],
            arrays["participations"], arrays["delivered"], arrays["releases"], float(arrays["spend"]),
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
        total = federation.total(tasks, who.weights)  # (2)
        if self.config.local.on_bad_update == "raise":
            require_all(tasks, total, number)
        after = averaged(state.model, who, total, number, fill_in=not self.private)  # (3)
        spend = self.rules.spend(agreement, number, who)  # (4)
        releases = self._releases(state, who, spec, total.releases, federation)
        following = self._counted(state, after, who, total.delivered, releases, spend)
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
        if promise is None or epsilon is None:
            return statement
        facts = {"delta": promise.delta, "adjacency": promise.adjacency, "noise": promise.noise}
        return replace(
            statement,
            columns={**statement.columns, "epsilon": epsilon.tolist()},
            forms={"epsilon": ".4g", **statement.forms},
            totals={**statement.totals, "largest_epsilon": float(epsilon.max())},
            facts={**statement.facts, **facts},
            notes=(*_privacy_notes(promise, float(epsilon.max())), *statement.notes),
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


def training_tasks(
    names: Sequence[str],
    model: NDArray[Any],
    who: Participation,
    spec: LocalTraining,
    *,
    round_number: int,
    seed: int,
    noise_multipliers: ArrayLike | None = None,
) -> list[Task]:
    """A task per participation, from one shared model (P,); a client drawn again gets another copy.

    `noise_multipliers` are those of all clients, (N,).
    """
    clients = who.clients.tolist()
    require_known(clients, len(names))
    noise = None
    if noise_multipliers is not None:
        noise = checks.vector("noise_multipliers", noise_multipliers, length=len(names)).tolist()
    models, copies, works = model[None], dict[int, int](), dict[tuple[int, float], Train]()
    tasks, prefix = list[Task](), f"round {round_number}, "
    for client in clients:
        copy = copies.get(client, 0)
        copies[client] = copy + 1
        kind = copy, 0.0 if noise is None else noise[client]
        work = works.get(kind)
        if work is None:
            work = works[kind] = Train(spec, round_number, seed, *kind)
        name = names[client]
        tasks.append(Task(f"{prefix}{name}, {copy}", name, models, work))
    return tasks


def require_all(tasks: Sequence[Task], total: Total, round_number: int) -> None:
    """Everybody delivered."""
    if all(total.delivered):
        return
    for task, fine in zip(tasks, total.delivered, strict=True):
        if not fine:
            raise BadUpdate(task.client, round_number, total.failures[task.identifier].reason)


def failures(who: Participation, total: Total) -> list[int]:
    """Clients that did not deliver, in the order of the roster, with multiplicity."""
    return sorted(who.clients[~np.array(total.delivered, dtype=bool)].tolist())


def averaged(
    model: NDArray[Any], who: Participation, total: Total, round_number: int, *, fill_in: bool
) -> NDArray[Any]:
    """(P,) the shared model after a round; it must be finite.

    `fill_in`: in a mean, the shares of those who did not deliver go to the others; else they are lost.
    """
    change = total.values[0]
    if fill_in and who.is_mean and not all(total.delivered):
        in_order = np.argsort(who.clients, kind="stable")
        shares = who.weights[in_order][np.array(total.delivered, dtype=bool)[in_order]].tolist()
        if left := sum(shares):
            change = change / left
    with np.errstate(over="ignore", invalid="ignore"):  # reported below
        after: NDArray[Any] = (model + change).astype(model.dtype)  # the change is of double precision
        finite = math.isfinite(float(after.sum(dtype=np.float64)))
    if not finite:
        raise BadModel(round_number)
    return after


def learning_rates(config: Config, members: Roster) -> tuple[Config, Rates]:
    """The learning rates of every round, and the config with the constants they came from.

    Proposition 1 is about clients that all make E local steps in a round. Where their numbers differ,
    E is the largest: a round counts as E iterations, and clients that finish early rest.
    """
    training = config.local
    if training.learning_rate in BY_THEOREM:
        return _rates_by_theorem(config, training, members)
    powers = np.power(training.learning_rate_decay, np.arange(training.rounds, dtype=np.float64))
    rates = float(training.learning_rate) * powers[:, None]
    if rates[-1, 0] <= 0:
        rule = f"must leave a learning rate above 0 after {training.rounds} rounds"
        raise InvalidValue("training.learning_rate_decay", rule, training.learning_rate_decay)
    resolved = replace(training, weight_decay=training.weight_decay or 0.0)
    return replace(config, training=resolved), lambda number: rates[number - 1]


def _rates_by_theorem(config: Config, training: Training, members: Roster) -> tuple[Config, Rates]:
    from bonafed.mechanisms.sampling.convergence import proposition_1_rates

    rate = training.learning_rate
    smooth = training.smoothness or members.smoothness
    convex = training.strong_convexity or members.strong_convexity
    for name, value in (("smoothness", smooth), ("strong_convexity", convex)):
        if value is None:
            rule = f"must be set for {rate}: no bound has been agreed on"
            if config.noise is not None:
                rule = f"must be set for {rate} in private training: one computed from the data leaks"
            raise MissingValue(f"training.{name}", rule)
    assert smooth is not None
    assert convex is not None
    decay = convex if training.weight_decay is None else training.weight_decay
    resolved = replace(training, smoothness=smooth, strong_convexity=convex, weight_decay=decay)
    variant: Literal["corrected", "printed"] = "corrected" if rate == PROPOSITION_1 else "printed"
    steps = max(training.local_steps(int(size)) for size in members.sizes)
    with named("training"):
        proposition_1_rates(smooth, convex, steps, training.rounds)  # refuses bad constants
    return replace(config, training=resolved), lambda number: proposition_1_rates(
        smooth, convex, steps, number, variant
    )


def noise_multipliers(
    promise: Promise, turns: Ints, sizes: Ints, spec: LocalTraining, parameters: int
) -> Floats:
    """(N,) for each client the noise that just keeps its promise over the releases its records are in.

    `turns` is how often each takes part. Noise of a secret is computed with a margin for its arithmetic
    (decision 0010); noise that a seed takes off promises nothing, and has none.
    """
    longest = max((largest_sum(int(n), spec) for n in sizes if n), default=0.0)
    if promise.epsilon.size and promise.epsilon.max() > 0:  # bad values are refused even if nobody releases
        noise_multiplier(float(promise.epsilon.max()), promise.delta)
    multipliers = np.zeros(sizes.size)
    for client, (epsilon, count, size) in enumerate(
        zip(promise.epsilon.tolist(), turns.tolist(), sizes.tolist(), strict=True)
    ):
        times = count * record_steps(size, spec) if size else 0
        if times:
            reach = longest if promise.noise == "secret" else None
            multipliers[client] = _calibrated(
                promise.calibration, epsilon, promise.delta, times, sampling_rate(size, spec),
                parameters * times, reach,
            )  # fmt: skip
    return multipliers


@lru_cache(maxsize=4096)  # many clients are alike, and batches drawn by coins take tenths of a second
def _calibrated(
    calibration: Calibration,
    epsilon: float,
    delta: float,
    times: int,
    rate: float | None,
    numbers: int,
    reach: float | None,
) -> float:
    """The noise multiplier for so many releases of so many `numbers` together; reach None: no margin."""
    ideal = _ideal(calibration, times, rate)
    return ideal(epsilon, delta) if reach is None else covering(ideal, epsilon, delta, numbers, reach)


def _ideal(calibration: Calibration, times: int, rate: float | None) -> Ideal:
    """Calibration for so many releases that a record is in, or in by a coin at this rate."""
    if rate is not None:
        return lambda epsilon, delta: sampled_multiplier(epsilon, delta, rate, times)
    return lambda epsilon, delta: noise_multiplier(epsilon, delta, times, calibration)


def _privacy_notes(promise: Promise, loss: float) -> list[str]:
    """What the user should know about the privacy of a run."""
    notes = []
    epsilon = float(promise.epsilon.max())
    if promise.noise == "reproducible":
        notes.append(REPRODUCIBLE)
    if promise.calibration == "printed":
        outcome = "was broken" if loss > epsilon else "was kept here, with more noise than it needs"
        notes.append(
            f"the printed calibration need not keep its promise (erratum J-13): "
            f"epsilon {epsilon:.4g} was asked for, {loss:.4g} was spent, so it {outcome}"
        )
    if promise.table == "privacy" and epsilon > HARDLY_A_PROMISE:
        notes.append(f"an epsilon of {epsilon:.4g} is hardly a promise of privacy")
    return notes
