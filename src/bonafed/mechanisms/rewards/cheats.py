"""Free riders and cheats: clients that upload something other than what they learned.

A cheat is a function of (client, models (N, P), honest updates (N, P), round) that returns the upload (P,)
of that client. Most see their own row only; a copy sees another's. `CheatingFederation` is a federation
some of whose clients cheat, so they act on model rewards and on every baseline alike. Strategic agents that
see their own models and gradients only, such as those of `mechanisms.faithful`, fit through `as_cheat`.

    free_ride        zeros: no work at all
    send_noise       random numbers as long as an honest update: no work, but it looks like some
    amplify(f)       f times the honest update
    copy_update(j)   what client j uploads in the same round
    stale            the first honest update, forever

`examine` runs a federation once honestly and once with each cheat, and reports what the cheat receives and
whether the contribution measure sees it. Its accuracy is that of the model it is handed; what it trains at
home is its own affair. Contributions fixed before training detect nothing, whatever is uploaded: the reward
then falls only by what the missing update would have taught the federation.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from bonafed import checks
from bonafed.checks import Floats, finite_or_none
from bonafed.economics.findings import Finding, Kind, Witness
from bonafed.errors import InvalidValue, MissingValue
from bonafed.learning.federation import (
    Failure,
    Federation,
    Question,
    Reply,
    Roster,
    Task,
    Total,
    Train,
)
from bonafed.mechanisms.deviations import Deviation, parse_deviation
from bonafed.mechanisms.rewards.measures import Models
from bonafed.mechanisms.rewards.training import RewardsState
from bonafed.presentation.documents import JSONObject
from bonafed.randomness import Purpose, generator

Cheat = Callable[[int, Models, Models, int], Models]
# (client, models (N, P), honest updates (N, P), round number) -> (P,) what the client uploads
Agent = Callable[[Floats, Floats], Floats | None]  # (models (1, P), honest (1, P)) -> sent (1, P)
NO_CHEAT_PAYS = "no cheat pays"
CHEATS_ARE_SEEN = "cheats are seen"
SEEN = 0.1  # a cheat is seen if its share of all contributions falls by more than this part


def as_cheat(agent: Agent) -> Cheat:
    """An agent that maps (models, gradients) row by row, as a cheat.

    One that has a memory (`stale`) starts afresh when a run is resumed.
    """

    def upload(client: int, models: Models, updates: Models, round_number: int) -> Models:
        row = slice(client, client + 1)
        report = agent(np.array(models[row], dtype=np.float64), np.array(updates[row], dtype=np.float64))
        if report is None:
            name = f"upload of client {client} in round {round_number}"
            raise MissingValue(name, "is required: absences are stated by participation")
        values: Models = np.asarray(report)[0]
        return values

    return upload


def free_ride() -> Cheat:
    """Uploads zeros, whatever it was sent."""
    return as_cheat(lambda _models, updates: np.zeros_like(updates))


def amplify(factor: float) -> Cheat:
    """The honest update times a factor; negative: the opposite."""
    gamma = checks.number("factor", factor)
    return as_cheat(lambda _models, updates: gamma * updates)


def stale() -> Cheat:
    """The first honest update, every round."""
    first: list[Floats] = []

    def repeat(_models: Floats, updates: Floats) -> Floats:
        first[:] = first or [updates]
        return first[0]

    return as_cheat(repeat)


def send_noise(seed: int, scale: float = 1.0) -> Cheat:
    """Gaussian numbers `scale` times as long as the honest update, and otherwise unrelated to it.

    `as_cheat(agents.add_noise(...))` adds noise to the honest update instead.
    """
    size = checks.non_negative("scale", scale)
    number = checks.seed("seed", seed)

    def upload(client: int, _models: Models, updates: Models, round_number: int) -> Models:
        rng = generator(number, Purpose.CHEAT, round_number, client)
        noise = rng.standard_normal(updates.shape[1])
        return np.asarray(size * np.linalg.norm(updates[client]) / np.linalg.norm(noise) * noise)

    return upload


def copy_update(other: int) -> Cheat:
    """Client `other`'s update of the same round, zeros if that one has none."""
    return lambda _client, _models, updates, _round_number: updates[other]


_KINDS: Mapping[str, tuple[str, Callable[[float, int], Cheat]]] = {
    "free-ride": ("", lambda _x, _seed: free_ride()),
    "noise": ("SCALE", lambda x, seed: send_noise(seed, x)),
    "amplify": ("FACTOR", lambda x, _seed: amplify(x)),
    "copy": ("CLIENT", lambda x, _seed: copy_update(checks.whole("client", x, at_least=0))),
}  # what follows the kind, and its maker


def parse_cheat(name: str, text: object) -> Deviation:
    """Client, kind and argument of a text such as "3 free-ride"; refused under `name`."""
    return parse_deviation(
        name, text, {kind: follows for kind, (follows, _) in _KINDS.items()}, "3 free-ride"
    )


def cheats_from(texts: Sequence[str], names: Sequence[str], seed: int) -> dict[str, Cheat]:
    """By client, from texts such as "3 free-ride"; the number is the client's place in the federation."""
    clients, cheats = len(names), {}
    for text in texts:
        client, kind, argument = parse_cheat("agents", text)
        if client >= clients or (kind == "copy" and not 0 <= argument < clients):
            raise InvalidValue("agents", f"must be clients 0..{clients - 1}", repr(text))
        if kind == "copy" and argument == client:
            raise InvalidValue("agents", "must copy another client", repr(text))
        cheats[names[client]] = _KINDS[kind][1](argument, seed)
    return cheats


@dataclass(frozen=True, slots=True, eq=False)
class CheatingFederation:
    """A federation in which some clients, by name, send something other than what they learned.

    What a client sends is replaced on its side of the seam; a client that fails fails all the same.
    """

    inner: Federation
    cheats: Mapping[str, Cheat]
    world: str = ""  # put before the identifiers of tasks where the same clients are asked more than once

    def __post_init__(self) -> None:
        for name in self.cheats:
            if name not in self.inner.members.index:
                names = ", ".join(self.inner.members.names[:10])
                raise InvalidValue("cheats", f"must be clients of the federation: {names}", repr(name))

    @property
    def members(self) -> Roster:
        """Who is in it."""
        return self.inner.members

    @property
    def vouched(self) -> Collection[str]:
        """The honest ones, if they were vouched for."""
        return [name for name in self.inner.vouched if name not in self.cheats]

    def report(self, question: Question) -> Mapping[str, float]:
        """As without cheats: they lie about updates only."""
        return self.inner.report(question)

    def total(self, tasks: Sequence[Task], shares: Floats, noise: float | Floats = 0.0) -> Total:
        """Not available: copying another client's update needs the replies."""
        raise InvalidValue("cheats", "must be in a federation that shows replies", "a total")

    def replies(self, tasks: Sequence[Task]) -> Mapping[str, Reply | Failure]:
        """The honest answers, except those of the cheats."""
        if not tasks:
            return {}
        honest = self._honest(tasks)
        models, updates = self._rows(tasks, honest)
        answers = dict(honest)
        for task in tasks:
            answer, cheat = honest.get(task.identifier), self.cheats.get(task.client)
            if cheat is not None and isinstance(answer, Reply) and isinstance(task.work, Train):
                number = self.members.index[task.client]
                upload = np.asarray(cheat(number, models, updates, task.work.round_number))
                answers[task.identifier] = replace(answer, values=upload[None])
        return answers

    def _honest(self, tasks: Sequence[Task]) -> Mapping[str, Reply | Failure]:
        """By the identifiers of the tasks, in whichever world."""
        if not self.world:
            return self.inner.replies(tasks)
        begin = f"{self.world}/"
        answers = self.inner.replies([task._replace(identifier=begin + task.identifier) for task in tasks])
        return {name.removeprefix(begin): answer for name, answer in answers.items()}

    def _rows(self, tasks: Sequence[Task], honest: Mapping[str, Reply | Failure]) -> tuple[Models, Models]:
        """(N, P) models and honest updates by client; zeros of those who are not asked or failed."""
        shape = (len(self.members), tasks[0].models.shape[1])
        models, updates = (np.zeros(shape, dtype=tasks[0].models.dtype) for _ in range(2))
        for task in tasks:
            number, answer = self.members.index[task.client], honest.get(task.identifier)
            models[number] = task.models[0]
            if isinstance(answer, Reply):
                updates[number] = answer.values[0]
        return models, updates


@dataclass(frozen=True, slots=True)
class CheatOutcome:
    """What a cheat did to one client, compared with the same federation if everybody is honest.

    Numbers only; the verdicts are `cheating_pays` and `cheats_are_seen`.
    """

    client: str  # its name
    cheat: str
    accuracy: float  # of the model it ends up with
    honest_accuracy: float  # of the one it would have had
    standalone_accuracy: float  # of the one it has without a federation
    reward_rate: float  # mean over the rounds it was in
    honest_reward_rate: float
    share: float  # its share of all contributions, mean over rounds
    honest_share: float
    seen: bool  # its share fell by more than the tolerance
    others_accuracy: float  # mean over the other clients
    others_honest_accuracy: float

    @property
    def gain(self) -> float:
        """Accuracy won by cheating: above 0, honesty was not its best choice here."""
        return self.accuracy - self.honest_accuracy

    def to_json(self) -> JSONObject:
        """Plain data; the rate of a client that never took part is None."""
        numbers = {name: getattr(self, name) for name in self.__dataclass_fields__}
        plain = {k: finite_or_none(v) if isinstance(v, float) else v for k, v in numbers.items()}
        return {**plain, "gain": finite_or_none(self.gain)}


class ClientResults(NamedTuple):
    """How the clients of a federation stand at its end."""

    accuracy: Floats  # (N,)
    reward_rate: Floats  # (N,)
    share: Floats  # (N,) of all contributions


def outcome(
    names: Sequence[str],
    client: str,
    cheat: str,
    now: ClientResults,
    honest: ClientResults,
    standalone: Floats,
    tolerance: float = SEEN,
) -> CheatOutcome:
    """The client compared with itself in the honest federation; `standalone` (N,) are accuracies alone."""
    number = list(names).index(client)
    others = np.arange(standalone.size) != number
    return CheatOutcome(
        client=client,
        cheat=cheat,
        accuracy=float(now.accuracy[number]),
        honest_accuracy=float(honest.accuracy[number]),
        standalone_accuracy=float(standalone[number]),
        reward_rate=float(now.reward_rate[number]),
        honest_reward_rate=float(honest.reward_rate[number]),
        share=float(now.share[number]),
        honest_share=float(honest.share[number]),
        seen=bool(now.share[number] < (1 - tolerance) * honest.share[number]),
        others_accuracy=float(now.accuracy[others].mean()),
        others_honest_accuracy=float(honest.accuracy[others].mean()),
    )


def cheating_pays(outcomes: Sequence[CheatOutcome], samples: int) -> Finding:
    """Whether a cheat ended with a better model than honesty would have given it, on so many samples."""
    best, tries = max(outcomes, key=lambda one: one.gain), len(outcomes)
    case = (
        f"client {best.client} cheats by {best.cheat} and has {best.accuracy:.2%} instead of "
        f"{best.honest_accuracy:.2%} of {samples:,} samples right"
    )
    if best.gain > 0:
        witness = Witness(case, gain=best.gain)
        text = f"VIOLATED, {case}"
        return Finding(
            NO_CHEAT_PAYS, False, text, best.gain, witness, tries, kind=Kind.LIE, unit="accuracy"
        )
    text = f"none of {tries} did; the best: {case}"
    return Finding(NO_CHEAT_PAYS, True, text, best.gain, tries=tries, kind=Kind.LIE, unit="accuracy")


def cheats_are_seen(outcomes: Sequence[CheatOutcome], measured: bool) -> Finding:
    """Whether the measure saw every cheat; not claimed where contributions are fixed before training."""
    misses = [f"client {one.client} ({one.cheat})" for one in outcomes if not one.seen]
    count = len(outcomes) - len(misses)
    if not measured:
        text = "contributions are fixed before training: nothing that is uploaded changes them"
        return Finding(CHEATS_ARE_SEEN, None, text, count, tries=len(outcomes))
    if not misses:
        text = f"{count} of {count}: each lost more than {SEEN:.0%} of its share of contributions"
        return Finding(CHEATS_ARE_SEEN, True, text, count, tries=count)
    text = f"{count} of {len(outcomes)}, not " + ", ".join(misses)
    return Finding(CHEATS_ARE_SEEN, False, text, count, Witness(text), len(outcomes))


def examine(
    train: Callable[[Federation], RewardsState],
    federation: Federation,
    cheats: Mapping[str, Callable[[], Cheat]],
    client: str,
    *,
    accuracy: Callable[[Models], Floats],
    standalone: ArrayLike,
    tolerance: float = SEEN,
    honest: RewardsState | None = None,
) -> list[CheatOutcome]:
    """One outcome per cheat, all by the same client; the honest run is made once, unless it is given.

    `train` runs the rules on a federation (`train_with_rewards`, all else fixed), `cheats` are makers by
    name (a cheat may have a memory, so each run gets a new one), `accuracy` scores models (m, P),
    `standalone` (N,) are the accuracies without a federation. `seen` asks whether the client's share of all
    contributions fell by more than the `tolerance`, relative to its share when honest.
    """
    limit = checks.between("tolerance", tolerance, 0.0, 1.0)
    names = federation.members.names
    if client not in federation.members.index:
        raise InvalidValue("client", "must be one of " + ", ".join(names[:10]), repr(client))

    def results(state: RewardsState) -> ClientResults:
        scores = np.asarray(accuracy(state.models))
        return ClientResults(scores, state.average_rates, contribution_shares(state))

    alone = checks.vector("standalone", standalone, length=len(names))
    base = results(train(federation) if honest is None else honest)
    outcomes = []
    for name, make in cheats.items():
        world = CheatingFederation(federation, {client: make()}, f"{client} {name}")
        outcomes.append(outcome(names, client, name, results(train(world)), base, alone, limit))
    return outcomes


def contribution_shares(state: RewardsState) -> Floats:
    """(N,) each client's share of all contributions, mean over the rounds that had any, if one had."""
    rounds = state.contributions[np.isfinite(state.contributions).all(1)]
    if not rounds.size:
        raise InvalidValue("state", "must have a round that somebody attended", "none")
    some = rounds[rounds.any(1)]
    if not some.size:
        return np.zeros(rounds.shape[1])
    return np.asarray((some / some.sum(1, keepdims=True)).mean(0))
