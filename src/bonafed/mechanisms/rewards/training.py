"""Incentive-aware federated learning: every client is rewarded with a model of its own (Algorithm 1,
theory D1).

A round t = 1..T has five steps:

    (1) A_t, who is present
    (2) each i in A_t trains from its own theta_i and uploads g_i, what changed; theta_i stays
    (3) contributions p_i, given or measured from what the server has seen, become reward rates gamma_i
    (4) the server's step (`server.py`): reward_i for every i in A_t, and theta_ref moves
    (5) each i in A_t: with probability q theta_i = theta_ref (recovery), else theta_i += reward_i

The printed algorithm puts (4) and (5) at the start of the next round, and so never delivers the uploads of
the last one; here a round is complete in itself and the last upload is not lost. A client that is absent
in a round neither sends nor receives; N is then the number of those present, while the ceiling stays the
largest contribution of all. A round in which nobody is present changes nothing, and nothing is measured in
it. Recovery may happen in the last round as in any other: a longer run begins like a shorter one.

Recovery is what makes models converge to the common optimum: with q = 0 they drift to the optimum of each
client's own data (`server.py`). The tables of the paper use kappa = 0 and q = 0 for 50 rounds; the
defaults here are kappa = 0.5 and q = 0.01.

Clients are reached through a `Federation` (`local.py`). All randomness of the server comes from (seed,
round, client), and what passes between rounds is one frozen value, so a run that was stopped resumes as
if it had never stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue, MissingValue
from bonafed.learning.federation import Federation
from bonafed.mechanisms.rewards.local import USUAL, LocalRounds, Uploads, ask
from bonafed.mechanisms.rewards.measures import History, Measure, Models, ObservedRound, RunningMeasure
from bonafed.mechanisms.rewards.server import (
    Bools,
    Own,
    Reference,
    checked_participation,
    reward_rates,
    server_step,
    who_is_present,
    who_recovers,
)

Contributions = ArrayLike | Measure | RunningMeasure  # given, or measured from all rounds or the last
Arrays = Mapping[str, NDArray[Any]]


class MethodState(Protocol):
    """What passes from round to round, whatever the method."""

    @property
    def models(self) -> Models:
        """(N, P) the client models."""

    @property
    def round_number(self) -> int:
        """How many rounds are done."""


S = TypeVar("S", bound=MethodState)


class RewardsMethod(Protocol[S]):
    """A way to train one model per client: IAFL and every baseline, driven by the same loop."""

    def begin(self, start: Models) -> S:
        """The state before round 1; `start` (P,) is everybody's model."""

    def advance(self, state: S, federation: Federation) -> tuple[S, Uploads]:
        """One more round, and what the clients sent in it."""

    def finish(self, state: S, federation: Federation) -> Models:
        """(N, P) the models the clients end up with."""


@dataclass(frozen=True, slots=True, eq=False)
class RewardsState:
    """All that passes from round to round; t rounds are done."""

    models: Models  # (N, P) theta_i
    reference: Models  # (P,) theta_ref
    contributions: Floats  # (t, N) p_i of each round, >= 0; NaN in a round nobody attended
    rates: Floats  # (t, N) gamma_i of each round, in [0, 1]; 0 in a round nobody attended
    present: Bools  # (t, N) A_t: who was there and delivered
    recovered: Bools  # (t, N) who was handed the reference model
    history: tuple[ObservedRound, ...] = ()  # what a measure looks at, oldest first; none if p is given

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            if name != "history":
                object.__setattr__(self, name, read_only(getattr(self, name)))

    @property
    def round_number(self) -> int:
        """How many rounds are done."""
        return int(self.present.shape[0])

    @property
    def average_rates(self) -> Floats:
        """(N,) reward rate of each client, mean over the rounds it was present in; NaN if it never was."""
        there = self.present.sum(0)
        means = np.full(there.size, np.nan)
        np.divide((self.rates * self.present).sum(0), there, out=means, where=there > 0)
        return means

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The state as named arrays, for a checkpoint (`numpy.savez`)."""
        arrays = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "history"}
        for name in _ROUND_FIELDS if self.history else ():
            arrays[f"history_{name}"] = np.stack([getattr(one, name) for one in self.history])
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> RewardsState:
        """The state that `arrays` came from, to the bit."""
        history: tuple[ObservedRound, ...] = ()
        if "history_present" in arrays:
            parts = [arrays[f"history_{name}"] for name in _ROUND_FIELDS]
            history = tuple(ObservedRound(*one) for one in zip(*parts, strict=True))
        names = (f.name for f in fields(cls) if f.name != "history")
        return cls(**{name: arrays[name] for name in names}, history=history)


_ROUND_FIELDS = tuple(f.name for f in fields(ObservedRound))


@dataclass(frozen=True, slots=True, eq=False)
class ModelRewards:
    """IAFL: the rules of a federation that rewards contributions with models."""

    contributions: Contributions  # (N,) p_i fixed before training, or measured after every round
    sizes: ArrayLike | None = None  # (N,) records of each client; a measure needs them
    sharing: float = 0.5  # kappa in [0, 1]: 0 rewards in proportion, 1 gives everybody everything
    recovery: float = 0.01  # q in [0, 1]: probability of being handed the reference model, per round
    ceiling: float | None = None  # p_ceil > 0: what earns everything; None: the largest contribution
    reference: Reference = "max"  # which induced rate the reference model gets
    own: Own = "paper"  # weight of the own update; "unbiased": as much as anybody else's on average
    participation: ArrayLike | None = None  # (N,) rates in (0, 1], or (rounds, N) booleans; None: everybody
    seed: int = 0
    score: Callable[[Models], Floats] | None = None  # (m, P) models -> (m,) validation accuracy
    keep: int | None = (
        None  # a measure sees this many of the last rounds; None: all (N P numbers each, twice)
    )
    local: LocalRounds = USUAL  # what clients are asked to do
    clients: int = field(init=False)  # N

    def __post_init__(self) -> None:
        constant = not (callable(self.contributions) or isinstance(self.contributions, RunningMeasure))
        if not constant and self.sizes is None:
            raise MissingValue("sizes", "is required if contributions are measured")
        sizes = None if self.sizes is None else checks.vector("sizes", self.sizes, sign="positive")
        if constant:
            length = None if sizes is None else sizes.size
            p = checks.vector("contributions", cast("ArrayLike", self.contributions), length=length)
            object.__setattr__(self, "contributions", p)
            sizes = np.ones(p.size) if sizes is None else sizes
            reward_rates(p, sharing=self.sharing, ceiling=self.ceiling)  # refuses what cannot be a rate
        assert sizes is not None
        checks.between("sharing", self.sharing, 0.0, 1.0)
        checks.between("recovery", self.recovery, 0.0, 1.0)
        if self.ceiling is not None:
            checks.positive("ceiling", self.ceiling)
        checks.literal("reference", self.reference, Reference)
        checks.literal("own", self.own, Own)
        checks.seed("seed", self.seed)
        if self.keep is not None:
            checks.whole("keep", self.keep)
        object.__setattr__(self, "sizes", sizes)
        object.__setattr__(self, "clients", sizes.size)
        object.__setattr__(self, "participation", checked_participation(self.participation, sizes.size))

    def begin(self, start: Models) -> RewardsState:
        """Everybody, and the reference, at `start` (P,)."""
        model, n = checked_start(start), self.clients
        none, nobody = np.empty((0, n)), np.empty((0, n), dtype=bool)
        return RewardsState(np.tile(model, (n, 1)), model, none, none, nobody, nobody)

    def advance(self, state: RewardsState, federation: Federation) -> tuple[RewardsState, Uploads]:
        """The state after one more round, and what was uploaded in it."""
        require_clients(state.models, self.clients)
        t = state.round_number + 1
        there = presence(self.participation, self.clients, self.seed, t)  # (1)
        uploads = ask(federation, self.local, state.models, t, there)  # (2)
        updates, present = uploads.updates, uploads.present
        latest = ObservedRound(updates, present, state.models, state.reference)
        history = self._remember(state, latest)
        models, reference = state.models, state.reference
        p, gamma = np.full(self.clients, np.nan), np.zeros(self.clients)
        recoveries = np.zeros(self.clients, dtype=bool)
        if present.any():
            p = self._measure(state, latest, history)  # (3)
            name = f"contributions in round {t}"
            gamma = reward_rates(p, sharing=self.sharing, ceiling=self.ceiling, name=name, measured=True)
            step = server_step(
                updates, gamma, seed=self.seed, round_number=t, own=self.own, reference=self.reference,
                present=present,
            )  # fmt: skip
            reference = reference + step.reference  # (4)
            recoveries = who_recovers(self.recovery, present, seed=self.seed, round_number=t)
            models = np.where(recoveries[:, None], reference, models + step.rewards)  # (5)
        following = RewardsState(
            models,
            reference,
            np.vstack([state.contributions, p]),
            np.vstack([state.rates, gamma]),
            np.vstack([state.present, present]),
            np.vstack([state.recovered, recoveries]),
            history,
        )
        return following, uploads

    def finish(self, state: RewardsState, federation: Federation) -> Models:
        """The models as they are: every upload was delivered in its own round."""
        return state.models

    def _remember(self, state: RewardsState, one: ObservedRound) -> tuple[ObservedRound, ...]:
        if not callable(self.contributions):
            return ()
        rounds = (*state.history, one)
        return rounds if self.keep is None else rounds[-self.keep :]

    def _measure(
        self, state: RewardsState, latest: ObservedRound, history: tuple[ObservedRound, ...]
    ) -> Floats:
        sizes = np.asarray(self.sizes)
        if isinstance(self.contributions, RunningMeasure):
            rounds = np.flatnonzero(state.present.any(1))
            before = state.contributions[rounds[-1]] if rounds.size else None
            contributions = self.contributions.step(before, latest, sizes)
        elif callable(self.contributions):
            contributions = self.contributions(History(sizes, history, self.score))
        else:
            return np.asarray(self.contributions, dtype=np.float64)
        name = f"contributions in round {state.round_number + 1}"
        return checks.vector(name, contributions, length=self.clients)


def run(
    method: RewardsMethod[S],
    federation: Federation,
    start: Models,
    *,
    rounds: int,
    state: S | None = None,
    on_round: Callable[[S], None] | None = None,
) -> tuple[Models, S]:
    """Train for so many rounds in all; returns the clients' models (N, P) and the last state.

    To resume a run, pass the `state` in which it stopped; `start` is then ignored.
    """
    last = checks.whole("rounds", rounds, at_least=0)
    now = method.begin(start) if state is None else state
    for _ in range(now.round_number, last):
        now, _ = method.advance(now, federation)
        if on_round is not None:
            on_round(now)
    return method.finish(now, federation), now


def train_with_rewards(
    federation: Federation,
    start: Models,
    contributions: Contributions,
    *,
    rounds: int,
    state: RewardsState | None = None,
    on_round: Callable[[RewardsState], None] | None = None,
    **rules: Any,
) -> RewardsState:
    """IAFL in one call: the state after all rounds; `rules` are the fields of `ModelRewards`.

    >>> from bonafed.learning.federation import Roster
    >>> from bonafed.learning.function_federation import FunctionFederation
    >>> best = {"ada": -1.0, "ben": 0.0, "cy": 1.0}  # the model that each client's own data would like
    >>> def answers(tasks):
    ...     return {task.identifier: 0.5 * (best[task.client] - task.models) for task in tasks}
    >>> clients = FunctionFederation(Roster(tuple(best), np.array([10, 10, 10])), answers)
    >>> done = train_with_rewards(clients, np.zeros(1), [0.2, 0.6, 1.0], rounds=20, sharing=1.0)
    >>> done.rates[-1].tolist(), done.models.ravel().round(6).tolist()  # kappa = 1: federated averaging
    ([1.0, 1.0, 1.0], [0.0, 0.0, 0.0])
    """
    method = ModelRewards(contributions, **rules)
    return run(method, federation, start, rounds=rounds, state=state, on_round=on_round)[1]


def read_only(values: NDArray[Any]) -> NDArray[Any]:
    """A read-only view: local training and measures look at states."""
    view = values.view()
    view.setflags(write=False)
    return view


def checked_start(start: Models) -> Models:
    """(P,) finite numbers in single or double precision, which all models then have."""
    model = np.array(start)
    if model.ndim != 1 or model.size == 0:
        raise InvalidValue("start", "must be one-dimensional and not empty", f"shape {model.shape}")
    if model.dtype not in (np.float32, np.float64):
        raise InvalidValue("start", "must be in single or double precision", model.dtype)
    if not np.isfinite(model).all():
        raise InvalidValue("start", "must be finite", "NaN or inf")
    return model


def require_clients(models: Models, clients: int) -> None:
    """A state (N, P) is of as many clients as the rules."""
    if models.ndim != 2 or models.shape[0] != clients:
        raise InvalidValue("state", f"must be of {clients} clients", f"models of shape {models.shape}")


def presence(participation: ArrayLike | None, clients: int, seed: int, round_number: int) -> Bools:
    """(N,) A_t from a checked participation."""
    schedule = None if participation is None else np.asarray(participation)
    if schedule is not None and schedule.ndim == 2 and round_number > schedule.shape[0]:
        raise MissingValue("participation", f"must say who is present in round {round_number}")
    return who_is_present(schedule, clients, seed=seed, round_number=round_number)
