"""What clients are promised about their records, and the noise that keeps it (theory P3).

Who takes part when does not depend on the data, so how often each client releases is known before the first
round, and its noise is calibrated for just that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from bonafed.checks import Floats
from bonafed.learning.privacy import (
    REPLACE,
    Adjacency,
    Batches,
    Calibration,
    covering,
    noise_multiplier,
    sampled_multiplier,
)
from bonafed.learning.rounds import Participation
from bonafed.learning.sections import REPRODUCIBLE, NoiseAt, NoiseSource
from bonafed.learning.sum_noise import reaches, rounds_in, squared_turns
from bonafed.learning.work import LocalTraining, largest_sum, record_steps, sampling_rate

# whom the epsilon holds against, by where noise is added (theory P8)
PROTECTS = {
    "client": "whoever sees models or single updates, the server included",
    "sum": "whoever sees models or sums of rounds, not a server that sees single updates",
}
ON_SUM = f"noise is added once to the sum: the epsilon holds against {PROTECTS['sum']}"
HARDLY_A_PROMISE = 10.0  # epsilon: one record may change the odds of what is seen by e^10, 22,000
Ints = NDArray[np.int64]
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
    noise_at: NoiseAt = "client"
    table: str = "privacy"  # of the config, under which bad values are refused


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


def sum_multipliers(
    promise: Promise, rounds: Sequence[Participation], sizes: Ints, spec: LocalTraining, parameters: int
) -> Floats:
    """(N,) the multiplier of each client with which noise on the sums of all rounds keeps its promise.

    A client that is drawn c times for a round moves its sum c times as far, which counts c squared (theory
    P8). Arithmetic has a share of the promise as in `noise_multipliers`.
    """
    turns, count = squared_turns(rounds, sizes.size), rounds_in(rounds, sizes.size)
    turns[sizes == 0] = 0

    def calibrated(client: int, reach: float | None) -> float:
        return _calibrated(
            promise.calibration, float(promise.epsilon[client]), promise.delta, int(turns[client]), None,
            parameters * int(count[client]), reach,
        )  # fmt: skip

    ideal, releasing = np.zeros(sizes.size), np.flatnonzero(turns).tolist()
    for client in releasing:
        ideal[client] = calibrated(client, None)
    if promise.noise != "secret":
        return ideal
    multipliers, reach = np.zeros(sizes.size), reaches(rounds, ideal, sizes, spec)
    for client in releasing:
        multipliers[client] = calibrated(client, float(reach[client] * ideal[client]))
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


def privacy_notes(promise: Promise, loss: float) -> list[str]:
    """What the user should know about the privacy of a run."""
    notes = [ON_SUM] if promise.noise_at == "sum" else []
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
