"""Contribution measures, which the reward rates are made from (theory D6), and the history they look at.

A measure is a function (history) -> (N,) contributions. It sees uploads, who was there, and the models
handed out; never a client's data. `History.score` is the server's own: how good models are on its
validation set.

    measure                   what it sees                       who can fool it
    data_size                 the sizes clients state            whoever states more
    standalone_accuracy(a)    accuracies the caller measured     whoever measures
    participation_rate        who was there                      whoever sends anything at all
    individual_effort(e, c)   effort over own capacity           whoever understates its capacity
    cosine_gradient(...)      directions of the updates (CGSV)   whoever copies the mean
    leave_one_out             worth of updates on a validation set
    federated_shapley(...)    the same, for all coalitions       (copies share what the original was worth)
    completed_shapley(...)    the same, with rounds missed made up for (ComFedSV)

The last three value the updates of every round t by v_t(S) = score(theta_ref + mean over S of g_j) and
v_t(nobody) = score(theta_ref), among those present in the round, and sum over rounds (Wang et al., 2020).
The mean is equally weighted, as in the aggregation of rewards. They can be negative: an update may do harm.
Reward rates need contributions of at least 0; `at_least_zero` turns a measure into one that counts harm as
nothing.

`contributions` is the one door: it calls a measure, the user's own included, and checks what comes back.

A measure of the whole history needs every round to be kept: N P numbers twice per round,
read again after each. A `RunningMeasure` continues from its value in the previous round by a step

    p_t = step(p_{t-1}, round t, sizes),   p_0 = None,

and needs the last round only: nothing is kept, and a checkpoint stays small. Rounds that nobody attended
are skipped. `running_cosine` is CGSV in this form, the same numbers as `cosine_gradient`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.economics import contribution
from bonafed.economics.contribution import Masks, ShapleyValues, cosine_step
from bonafed.errors import InvalidValue, MissingValue
from bonafed.randomness import numbered_generator

Models = NDArray[np.floating[Any]]  # (m, P) parameters of m models, in the precision they were trained in


@dataclass(frozen=True, slots=True, eq=False)
class ObservedRound:
    """One round, as the server saw it."""

    updates: Models  # (N, P) g_i, what each client uploaded; zeros where it was absent
    present: NDArray[np.bool_]  # (N,) who sent an update
    models: Models  # (N, P) theta_i, what each client held before it trained
    reference: Models  # (P,) theta_ref, the server's own model before this round's updates

    def __post_init__(self) -> None:
        shape = self.updates.shape
        if len(shape) != 2:
            raise InvalidValue("updates", "must be (clients, parameters)", f"shape {shape}")
        for name, actual, expected in (
            ("present", self.present.shape, shape[:1]),
            ("models", self.models.shape, shape),
            ("reference", self.reference.shape, shape[1:]),
        ):
            if actual != expected:
                raise InvalidValue(name, f"must have shape {expected}", actual)
        if self.present.dtype != np.bool_:
            raise InvalidValue("present", "must be true or false for each client", self.present.dtype)


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """The rounds so far, oldest first."""

    sizes: Floats  # (N,) records each client says it trains on, > 0
    rounds: Sequence[ObservedRound]
    score: Callable[[Models], Floats] | None = (
        None  # (m, P) models -> (m,) validation accuracy, if there is one
    )

    def __post_init__(self) -> None:
        sizes = checks.vector("sizes", self.sizes, sign="positive")
        for t, one in enumerate(self.rounds):
            if one.present.size != sizes.size:
                raise InvalidValue(f"round {t}", f"must have {sizes.size} clients", one.present.size)
        object.__setattr__(self, "sizes", sizes)

    @property
    def clients(self) -> int:
        """N, the number of clients."""
        return self.sizes.size


Measure = Callable[[History], Floats]  # history -> (N,) contributions
_AT_ONCE = 64  # models scored in one call: bounds the memory for large models


def contributions(history: History, measure: Measure) -> Floats:
    """(N,) what the measure says, refused unless it is one finite number per client."""
    return checks.vector("contributions", measure(history), sign="any", length=history.clients)


def at_least_zero(measure: Measure) -> Measure:
    """The measure with harm counted as nothing."""
    return lambda history: np.maximum(contributions(history, measure), 0.0)


def data_size(history: History) -> Floats:
    """Records each client says it trains on."""
    return history.sizes


def standalone_accuracy(accuracies: ArrayLike) -> Measure:
    """Accuracies of the clients' own models, fixed before training.

    Which data they were measured on is part of the result (see `settlement`): the paper takes the test set.
    """
    return _constant("accuracies", accuracies)


def participation_rate(history: History) -> Floats:
    """Share of the rounds so far in which each client was present."""
    if not history.rounds:
        raise InvalidValue("history", "must have a round to count participation", "0 rounds")
    return np.asarray(np.mean([one.present for one in history.rounds], axis=0))


def individual_effort(effort: ArrayLike, capacity: ArrayLike) -> Measure:
    """Effort as a share of what the client could do at most: equal for all that do their best.

    The paper's answer to Question 4 of its appendix F, whether rewards are fair to small clients.
    """
    most = checks.vector("capacity", capacity, sign="positive")
    efforts = checks.vector("effort", effort, length=most.size)
    if (efforts > most).any():
        who = int(np.flatnonzero(efforts > most)[0])
        raise InvalidValue("effort", "must not exceed capacity", f"{efforts[who]:g} at position {who}")
    return _constant("effort", efforts / most)


def _constant(name: str, values: ArrayLike) -> Measure:
    numbers = checks.vector(name, values)

    def measure(history: History) -> Floats:
        return checks.vector(name, numbers, length=history.clients)

    return measure


def cosine_gradient(*, scale: float = 0.5, memory: float = 0.95, least: float = 1e-3) -> Measure:
    """CGSV: importance after all rounds so far, from the cosine of each update with the weighted mean.

    An absent client counts as one that sent zeros (cosine 0).
    """

    def measure(history: History) -> Floats:
        importance: Floats | None = None
        for one in history.rounds:
            importance = contribution.cosine_step(
                one.updates, importance, history.sizes, scale=scale, memory=memory, least=least
            ).importance
        if importance is None:
            raise InvalidValue("history", "must have a round to compare updates", "0 rounds")
        return importance

    return measure


def leave_one_out(history: History) -> Floats:
    """How much the validation score of the reference model loses without a client's update, over rounds."""
    total = np.zeros(history.clients)
    for one in history.rounds:
        who = np.flatnonzero(one.present)
        if who.size:
            total[who] += contribution.leave_one_out(_RoundValue(history, one), who.size)
    return total


def shapley_over_rounds(history: History, *, orders: int = 100, seed: int = 0) -> ShapleyValues:
    """Federated Shapley values with standard errors; exact in rounds with at most 10 clients present.

    Every round has its own generator, from the seed and its number, so a longer history does not change
    what was found for its beginning; the errors of rounds are independent and add in squares.
    """
    total, variance = np.zeros(history.clients), np.zeros(history.clients)
    evaluations, exact = 0, True
    for t, one in enumerate(history.rounds):
        who = np.flatnonzero(one.present)
        if who.size:
            shapley = contribution.shapley(
                _RoundValue(history, one), who.size, orders=orders, rng=numbered_generator(seed, t)
            )
            total[who] += shapley.value
            variance[who] += shapley.error**2
            evaluations, exact = evaluations + shapley.evaluations, exact and shapley.exact
    return ShapleyValues(total, np.sqrt(variance), evaluations, exact)


def federated_shapley(*, orders: int = 100, seed: int = 0) -> Measure:
    """`shapley_over_rounds` as a measure."""
    return lambda history: shapley_over_rounds(history, orders=orders, seed=seed).value


def completed_shapley(*, rank: int = 3, ridge: float = 1e-3, orders: int = 100, seed: int = 0) -> Measure:
    """ComFedSV: Shapley values of worths completed over the rounds that clients missed (`completion`).

    Exact for at most 10 clients, else from sampled orders of all of them.
    """

    def measure(history: History) -> Floats:
        n = history.clients
        drawn = None
        if n > contribution.EXACT_UP_TO:
            rng = numbered_generator(seed, n)
            drawn = rng.permuted(np.tile(np.arange(n), (checks.whole("orders", orders), 1)), axis=1)
        masks = contribution.coalitions_of(n, drawn)
        rounds = [one for one in history.rounds if one.present.any()]
        if not rounds:
            raise InvalidValue("history", "must have a round to value updates", "0 rounds")
        known = np.array([~(masks & ~one.present).any(1) for one in rounds])
        worths = np.zeros(known.shape)
        for row, seen, one in zip(worths, known, rounds, strict=True):
            within = np.vstack([np.zeros((1, n), dtype=bool), masks[seen]])[:, one.present]
            value = _RoundValue(history, one)(within)
            row[seen] = value[1:] - value[0]
        factors = contribution.complete(worths, known, rank=rank, ridge=ridge)
        return contribution.shares(factors.matrix.sum(0), masks, drawn)

    return measure


class _RoundValue:
    """v_t: the validation score of the reference model after the mean update of a coalition."""

    def __init__(self, history: History, one: ObservedRound) -> None:
        if history.score is None:
            raise MissingValue("history.score", "is required: this measure needs a validation set")
        self._score, self._reference = history.score, one.reference
        self._updates = one.updates[one.present]

    def __call__(self, coalitions: Masks) -> Floats:
        scores = np.empty(coalitions.shape[0])
        for start in range(0, coalitions.shape[0], _AT_ONCE):
            part = coalitions[start : start + _AT_ONCE]
            share = part / np.maximum(part.sum(1, keepdims=True), 1)  # nobody: no change
            # einsum, not `@`: BLAS splits sums by threads and kernels, and contributions decide rewards.
            change = np.einsum("ij,jp->ip", share.astype(self._updates.dtype), self._updates)
            models = self._reference + change
            worth = np.asarray(self._score(models), dtype=np.float64)
            if worth.shape != (part.shape[0],):
                raise InvalidValue(
                    "history.score", f"must return {part.shape[0]} scores", f"shape {worth.shape}"
                )
            scores[start : start + _AT_ONCE] = worth
        return scores


Step = Callable[[Floats | None, ObservedRound, Floats], Floats]


# (contributions (N,) of the last round or None, this round, sizes (N,)) -> (N,) contributions


@dataclass(frozen=True, slots=True)
class RunningMeasure:
    """A measure of one round after the other."""

    step: Step


def running_cosine(*, scale: float = 0.5, memory: float = 0.95, least: float = 1e-3) -> RunningMeasure:
    """CGSV: importance from the cosine of each update with the weighted mean of all."""

    def step(before: Floats | None, one: ObservedRound, sizes: Floats) -> Floats:
        return cosine_step(one.updates, before, sizes, scale=scale, memory=memory, least=least).importance

    return RunningMeasure(step)
