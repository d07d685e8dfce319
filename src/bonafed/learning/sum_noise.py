"""Noise once on the sum of a round, instead of on every client's gradients (theory P8).

Every client takes one step, clipped, and the sum of the changes times their weights is all that anybody is
shown. A record of client k moves it by

    (1)  S_k = c w_k (rate 2C/d_k + rounding),    c how often k was drawn for the round, w_k its weight

at most. With noise of standard deviation s, the round is one release to k's records at multiplier s/S_k. It
is calibrated for multiplier sigma_k at c = 1, with which the squares of c over all rounds add up to k's
promise, so

    (2)  s = max over the participants of sigma_k S_k/c,

which depends on no record and on nobody's failure. Everybody but the one at the maximum gets more noise
than it needs; the ledger has the actual multipliers.

(3) Rounding: weights move in the precision of the model, u for short. The change of a step is off by at
most 4 u (|w| + rate C), w the model everybody starts from; both of two neighbours are, hence twice that.
The sum is in double precision. Weight decay does not look at records, so the server applies it.

(4) Reach: the sum is at most sum w_j (rate C + 4 u |w|) long, and s is at least sigma_k w_k (rate 2C/d_k +
8 u |w|) for every k, so that |sum|/s <= sum w_j/max(2 sigma_k w_k/d_k), known before the first round.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from bonafed.checks import Floats
from bonafed.errors import InvalidValue, refuse
from bonafed.learning.privacy.ledger import Release
from bonafed.learning.rounds import Participation
from bonafed.learning.work import LocalTraining, sensitivity

Ints = NDArray[np.int64]


class SumNoise(NamedTuple):
    """The noise of a round, and what the round gives away."""

    sd: float  # of the noise on every number of the sum
    releases: tuple[Release, ...]  # of every client that takes part, at its actual noise


_EVERYBODY = 'with noise_at = "sum", for every client'
_WHY = "later steps would look at records again"


class StatedSteps(Protocol):
    """What decides how many steps a client takes in a round, and which: of a config, or of its training."""

    @property
    def batch_size(self) -> int | None: ...

    @property
    def epochs(self) -> int | None: ...

    @property
    def steps(self) -> int | None: ...

    @property
    def optimizer(self) -> str: ...


def require_one_step(training: StatedSteps, names: Sequence[str], sizes: Ints) -> None:
    """Refuse what the noise on a sum does not cover, by the key of the config."""
    refuse([*never_one_step(training), *batches_too_small(training, names, sizes)][:1])


def never_one_step(training: StatedSteps) -> Iterator[InvalidValue]:
    """What is refused whatever clients hold."""
    if training.optimizer != "sgd":
        rule = 'must be "sgd" with noise_at = "sum": the steps of others are not bounded by the clip'
        yield InvalidValue("training.optimizer", rule, repr(training.optimizer))
    if training.steps is not None and training.steps != 1:
        yield InvalidValue("training.steps", f"must be 1 {_EVERYBODY}: {_WHY}", training.steps)
    if training.epochs is not None and training.epochs != 1:
        rule = f"must be 1 {_EVERYBODY}: {_WHY}; or set training.steps = 1"
        yield InvalidValue("training.epochs", rule, training.epochs)


def batches_too_small(training: StatedSteps, names: Sequence[str], sizes: Ints) -> Iterator[InvalidValue]:
    """A batch that does not hold all records of the client with the most, where an epoch is a pass."""
    if training.batch_size is None or training.epochs is None or not sizes.size:
        return  # a batch that is left open holds all records
    if (most := int(sizes.max())) <= training.batch_size:
        return
    instead = f"set training.batch_size = {most}, or training.steps = 1"
    rule = f"must hold all records {_EVERYBODY}: {_WHY}; {instead}"
    of_client = f"{training.batch_size} for {most} of client {names[int(sizes.argmax())]}"
    yield InvalidValue("training.batch_size", rule, of_client)


def draws(who: Participation, clients: int) -> tuple[Ints, Floats]:
    """(N,) how often each client is in the round, and the weight of all its changes together."""
    times = np.bincount(who.clients, minlength=clients)
    weights = np.bincount(who.clients, np.abs(who.weights), minlength=clients)
    return times.astype(np.int64), weights.astype(np.float64)


def squared_turns(rounds: Sequence[Participation], clients: int) -> Ints:
    """(N,) over all rounds, the squares of how often each client is in one."""
    total = np.zeros(clients, dtype=np.int64)
    for who in rounds:
        total += draws(who, clients)[0] ** 2
    return total


def rounds_in(rounds: Sequence[Participation], clients: int) -> Ints:
    """(N,) rounds that each client takes part in."""
    total = np.zeros(clients, dtype=np.int64)
    for who in rounds:
        total[np.unique(who.clients)] += 1
    return total


def reaches(
    rounds: Sequence[Participation], multipliers: Floats, sizes: Ints, spec: LocalTraining
) -> Floats:
    """(4): (N,) the largest |sum|/s of any round that each client takes part in."""
    longest, batch = np.zeros(sizes.size), np.minimum(sizes, spec.batch_size)
    for who in rounds:
        here = np.unique(who.clients[sizes[who.clients] > 0])
        times, weights = draws(who, sizes.size)
        needed = 2 * multipliers[here] * weights[here] / (times[here] * batch[here])
        if needed.size and needed.max() > 0:
            longest[here] = np.maximum(longest[here], weights.sum() / needed.max())
    return longest


def rounding(model: NDArray[Any], spec: LocalTraining) -> float:
    """(3): how much further than in exact arithmetic a record may move the change of one step."""
    assert spec.clip is not None  # it is private
    unit = float(np.finfo(model.dtype).eps) / 2
    length = float(np.linalg.norm(model.astype(np.float64)))
    return 8 * unit * (length + spec.learning_rate * spec.clip)


def round_noise(
    who: Participation,
    multipliers: Floats,
    sizes: Ints,
    spec: LocalTraining,
    model: NDArray[Any],
    round_number: int,
) -> SumNoise:
    """(2) for a round that begins at `model`; multipliers (N,) are those that keep the promises."""
    times, weights = draws(who, sizes.size)
    here = np.flatnonzero((weights > 0) & (sizes > 0))
    own = np.array([sensitivity(size, spec) for size in sizes[here].tolist()])
    moved = weights[here] * (spec.learning_rate * own + rounding(model, spec))  # (1)
    sd = float((multipliers[here] * moved / times[here]).max(initial=0.0))
    releases = (
        Release(client, round_number, sd / distance, 1, int(times[client]))
        for client, distance in zip(here.tolist(), moved.tolist(), strict=True)
    )
    return SumNoise(sd, tuple(releases) if sd else ())
