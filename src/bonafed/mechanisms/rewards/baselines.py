"""What model rewards are compared with (paper, appendix E.1; theory D7), driven by the same loop.

    FederatedAveraging   one model, moved by the mean of updates weighted by n_i/n; at the end every client
                         trains it once more on its own data (fine-tuning)
    LocalGlobal          LG-FedAvg: the last layers are averaged like that, the others stay a client's own
    CosineRewards        CGSV: rewards are the aggregate with all but its largest entries removed, layer by
                         layer, the more the less a client's updates point the way of the others'
    RankRewards          the mean of the updates of i and of all whose validation accuracy is lower
    Standalone           no federation: each client on its own data, with as many local steps

Every one asks for the same local training and has `begin`, `advance` and `finish`. Those absent in a round
send nothing and get no reward; what FedAvg and LG-FedAvg share is one model, which waits for them, and CGSV
counts them as having sent zeros, so that their importance fades. In LG-FedAvg the layers that stay a
client's own move by what it uploads, also if that is made up.

CGSV as its authors' program runs it, with Gamma `scale`, alpha `memory`, beta `sharpness`: after the step
of `economics.contribution.cosine_step`, q_i = tanh(beta r_i)/max_j tanh(beta r_j), and of every layer of n
parameters the ceil(n q_i) largest in size are kept. `repo_quirk` also repeats that it keeps n - 1 at most,
even at q_i = 1. Rank is our implementation of what the rewards paper says of it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.economics.contribution import cosine_step
from bonafed.errors import InvalidValue
from bonafed.learning.federation import Federation
from bonafed.mechanisms.rewards.local import USUAL, LocalRounds, Uploads, ask
from bonafed.mechanisms.rewards.measures import Models
from bonafed.mechanisms.rewards.server import Bools, checked_participation, combine, mean_weights
from bonafed.mechanisms.rewards.training import Arrays, checked_start, presence, read_only, require_clients

SHARED_LAYERS = 3  # of LG-FedAvg: "the last 3 fully connected layers" (E.1)
_ROUNDING = 1e-9  # a count above a whole number by less than this is that whole number


@dataclass(frozen=True, slots=True, eq=False)
class BaselineState:
    """All that passes from round to round."""

    models: Models  # (N, P) what each client holds
    round_number: int = 0  # rounds done
    importance: Floats | None = None  # (N,) r_i of CGSV after its first round, sum 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "models", read_only(self.models))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The state as named arrays, for a checkpoint (`numpy.savez`)."""
        arrays = {"models": self.models, "round_number": np.array(self.round_number)}
        return arrays if self.importance is None else {**arrays, "importance": self.importance}

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> BaselineState:
        """The state that `arrays` came from, to the bit."""
        return cls(arrays["models"], int(arrays["round_number"]), arrays.get("importance"))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Baseline(ABC):
    """A round: who is there, what they send, what they are given."""

    sizes: ArrayLike  # (N,) records of each client
    participation: ArrayLike | None = None  # (N,) rates in (0, 1], or (rounds, N) booleans; None: everybody
    seed: int = 0  # of participation: with the same one, the same clients are there as with model rewards
    local: LocalRounds = USUAL  # what clients are asked to do

    def __post_init__(self) -> None:
        n = checks.vector("sizes", self.sizes, sign="positive")
        object.__setattr__(self, "sizes", n)
        object.__setattr__(self, "participation", checked_participation(self.participation, n.size))
        checks.seed("seed", self.seed)

    @property
    def clients(self) -> int:
        """N, the number of clients."""
        return np.asarray(self.sizes).size

    def begin(self, start: Models) -> BaselineState:
        """Everybody at `start` (P,)."""
        return BaselineState(np.tile(checked_start(start), (self.clients, 1)))

    def advance(self, state: BaselineState, federation: Federation) -> tuple[BaselineState, Uploads]:
        """The state after one more round, and what was uploaded in it."""
        require_clients(state.models, self.clients)
        t = state.round_number + 1
        uploads = ask(federation, self.local, state.models, t, self.present(t))
        after = self._deliver(state, uploads.updates, uploads.present) if uploads.present.any() else state
        return replace(after, round_number=t), uploads

    def present(self, round_number: int) -> Bools:
        """(N,) who is asked."""
        return presence(self.participation, self.clients, self.seed, round_number)

    @abstractmethod
    def _deliver(self, state: BaselineState, updates: Models, present: Bools) -> BaselineState:
        """The models after the updates (zeros where absent) have been shared."""

    def finish(self, state: BaselineState, federation: Federation) -> Models:
        """(N, P) the models the clients end up with."""
        return state.models

    def _mean(self, updates: Models, present: Bools) -> Models:
        """(1, P) mean of the updates of those present, weighted by their records."""
        weights = np.where(present, np.asarray(self.sizes), 0.0)
        return combine((weights / weights.sum())[None], updates)


@final
@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class FederatedAveraging(Baseline):
    """FedAvg, then fine-tuning: one more round of local training, each client for itself."""

    fine_tuning: bool = True  # False: everybody ends with the same model
    tuning: LocalRounds | None = None  # what clients are asked to do then; None: as in the rounds before

    def _deliver(self, state: BaselineState, updates: Models, present: Bools) -> BaselineState:
        return replace(state, models=state.models + self._mean(updates, present))

    def finish(self, state: BaselineState, federation: Federation) -> Models:
        if not self.fine_tuning:
            return state.models
        everybody = np.ones(self.clients, dtype=bool)
        local = self.tuning or self.local
        uploads = ask(federation, local, state.models, state.round_number + 1, everybody)
        return np.asarray(state.models + uploads.updates)


@final
@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LocalGlobal(Baseline):
    """LG-FedAvg: some layers for all, the rest each client's own."""

    shared: slice  # of the flat parameters: the last layers (`last_layers`)

    def begin(self, start: Models) -> BaselineState:
        size = checked_start(start).size
        count = len(range(size)[self.shared])
        if not 0 < count < size:
            raise InvalidValue("shared", f"must leave some of {size} parameters shared, some local", count)
        return Baseline.begin(self, start)

    def _deliver(self, state: BaselineState, updates: Models, present: Bools) -> BaselineState:
        models = state.models + updates
        models[:, self.shared] = (state.models + self._mean(updates, present))[:, self.shared]
        return replace(state, models=models)


@final
@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CosineRewards(Baseline):
    """CGSV: rewards by masking the aggregate, layer by layer."""

    layers: Sequence[slice]  # of the flat parameters; together all of them, none twice
    scale: float = 0.5  # Gamma > 0: length of the normalised updates, in units of parameters
    sharpness: float = 1.0  # beta > 0: large gives everybody everything
    memory: float = 0.95  # alpha in [0, 1]: of importance, from round to round
    repo_quirk: bool = False  # keep all but one entry of a layer at most, as the authors' program does

    def __post_init__(self) -> None:
        Baseline.__post_init__(self)
        checks.positive("scale", self.scale)
        checks.positive("sharpness", self.sharpness)
        checks.between("memory", self.memory, 0.0, 1.0)

    def begin(self, start: Models) -> BaselineState:
        _require_layers(self.layers, checked_start(start).size, 2 if self.repo_quirk else 1)
        return Baseline.begin(self, start)

    def _deliver(self, state: BaselineState, updates: Models, present: Bools) -> BaselineState:
        step = cosine_step(updates, state.importance, self.sizes, scale=self.scale, memory=self.memory)
        quality = model_quality(step.importance, self.sharpness)
        rewards = masked_rewards(step.aggregate, quality, self.layers, repo_quirk=self.repo_quirk)
        candidates = state.models + rewards.astype(state.models.dtype)
        models = np.where(present[:, None], candidates, state.models)
        return replace(state, models=models, importance=step.importance)


@final
@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RankRewards(Baseline):
    """Rank: the updates of those that do worse on a validation set, and the own one."""

    score: Callable[[Models], Floats]  # (m, P) models -> (m,) validation accuracy

    def _deliver(self, state: BaselineState, updates: Models, present: Bools) -> BaselineState:
        who = np.flatnonzero(present)
        name = f"score in round {state.round_number + 1}"
        accuracy = checks.vector(
            name, self.score(state.models[who] + updates[who]), sign="any", length=who.size
        )
        sets = np.zeros((present.size, present.size), dtype=bool)
        sets[np.ix_(who, who)] = rank_sets(accuracy)
        return replace(state, models=state.models + combine(mean_weights(sets), updates))


@final
@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Standalone(Baseline):
    """Every client by itself: local training goes on from its own result."""

    def _deliver(self, state: BaselineState, updates: Models, present: Bools) -> BaselineState:
        return replace(state, models=state.models + updates)


def rank_sets(accuracy: ArrayLike) -> Bools:
    """(N, N) row i: S_i = {i} + {j: accuracy_j < accuracy_i}.

    >>> [np.flatnonzero(row).tolist() for row in rank_sets([0.5, 0.7, 0.7, 0.2])]
    [[0, 3], [0, 1, 3], [0, 2, 3], [3]]
    """
    a = checks.vector("accuracy", accuracy, sign="any")
    return (a[None, :] < a[:, None]) | np.eye(a.size, dtype=bool)


def model_quality(importance: Floats, sharpness: float) -> Floats:
    """(N,) q_i = tanh(beta r_i)/max_j tanh(beta r_j), the share of the aggregate each client is given."""
    height = np.tanh(sharpness * importance)
    return np.asarray(height / height.max())


def masked_rewards(
    aggregate: Floats, quality: Floats, layers: Sequence[slice], *, repo_quirk: bool = False
) -> Floats:
    """(N, P) the aggregate with the ceil(n q_i) largest entries of every layer of n kept, the rest zero.

    Of entries of the same size the first is kept.
    """
    rewards = np.zeros((quality.size, aggregate.size))
    for layer in layers:
        values = aggregate[layer]
        counts = np.ceil(values.size * quality - _ROUNDING).astype(np.int64)
        if repo_quirk:
            counts = np.minimum(counts, values.size - 1)
        rank = np.empty(values.size, dtype=np.int64)  # 0 for the largest
        rank[np.argsort(-np.abs(values), kind="stable")] = np.arange(values.size)
        rewards[:, layer] = np.where(rank < counts[:, None], values, 0.0)
    return rewards


def _require_layers(layers: Sequence[slice], size: int, least: int) -> None:
    """Every parameter in exactly one layer, and no layer below `least` parameters."""
    times = np.zeros(size, dtype=np.int64)
    for layer in layers:
        times[layer] += 1
        count = len(range(size)[layer])
        if count < least:
            raise InvalidValue("layers", f"must have at least {least} parameters each", count)
    if (times != 1).any():
        at = int(np.flatnonzero(times != 1)[0])
        raise InvalidValue("layers", f"must hold each of {size} parameters once", f"{times[at]} for {at}")
