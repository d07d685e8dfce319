"""Rounds of federated averaging with any participation pattern.

A round is told in four steps: who takes part and with what weight; local training of all of them as one
program; the weighted sum of the changes; where that is not finite, a look at who sent what. Participation
may repeat a client (drawn with replacement) and weights are free, so that the same round serves

    weighted mean       weights n_k / sum of n_k over the participants
    unbiased sampling   weights 1 / (N q_n): the expected change is the mean change of all N clients
    a single step       one client, weight 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Literal

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import BadModel, BadUpdate, InvalidValue
from bonafed.learning.engine.crew import Crew
from bonafed.learning.engine.jobs import Job, Samples, Update
from bonafed.learning.engine.programs import Program
from bonafed.learning.engine.running import problems, run_jobs
from bonafed.learning.engine.threads import single_threaded
from bonafed.learning.noise import Source
from bonafed.learning.privacy import Release
from bonafed.learning.work import LocalTraining, sampling_rate

BadUpdatePolicy = Literal["raise", "skip", "zero"]  # "zero": it stays in the mean, and nobody is told


@dataclass(frozen=True, slots=True, eq=False)
class Participation:
    """Who takes part in a round."""

    clients: NDArray[np.int64]  # (m,) client numbers, repeated if drawn more than once
    weights: Floats  # (m,) weight of each one's change in the sum
    is_mean: bool = False  # weights are shares of a mean: those of skipped clients go to the others

    def __post_init__(self) -> None:
        _require_array("clients", self.clients, "iu")
        _require_array("weights", self.weights, "iuf")
        if self.weights.size != self.clients.size:
            raise InvalidValue("weights", f"must have {self.clients.size} values", self.weights.size)
        if not np.isfinite(self.weights).all():
            raise InvalidValue("weights", "must be finite", repr(self.weights)[:60])


def _require_array(name: str, values: object, kinds: str) -> None:
    """A one-dimensional array of NumPy's, of whole numbers ("iu") or of any ("iuf")."""
    if not isinstance(values, np.ndarray) or values.ndim != 1 or values.dtype.kind not in kinds:
        numbers = "numbers" if "f" in kinds else "whole numbers"
        raise InvalidValue(name, f"must be a one-dimensional array of {numbers}", repr(values)[:60])


def _require_known(clients: list[int], number: int) -> None:
    """Client numbers below so many; one below 0 would be counted from the end."""
    if clients and (min(clients) < 0 or max(clients) >= number):
        unknown = next(client for client in clients if not 0 <= client < number)
        raise InvalidValue("clients", f"must be in 0..{number - 1}", unknown)


def weighted_mean(clients: Sequence[int] | NDArray[np.int64], sizes: ArrayLike) -> Participation:
    """The given clients, weighted by their number of samples."""
    who = np.asarray(clients) if len(clients) else np.zeros(0, dtype=np.int64)
    _require_array("clients", who, "iu")
    everyone = checks.vector("sizes", sizes)
    _require_known(who.tolist(), everyone.size)
    n = everyone[who]
    if who.size and n.sum() <= 0:
        raise InvalidValue("sizes", "must not be 0 for all clients that take part", who.tolist()[:10])
    return Participation(who, n / n.sum() if who.size else n, is_mean=True)


def unbiased(rng: np.random.Generator, probability: ArrayLike) -> Participation:
    """Each client independently with its probability; weights 1/(N q_n) (Proposition 1)."""
    q = checks.vector("probability", probability)
    if q.max() > 1:
        raise InvalidValue("probability", "must not exceed 1", float(q.max()))
    who = np.flatnonzero(rng.random(q.size) < q)
    return Participation(who, 1 / (q.size * q[who]))


@dataclass(frozen=True, slots=True, eq=False)
class RoundResult:
    """What a round did."""

    weights: Tensor  # (P,) the model after the round
    loss: float  # mean training loss over the participants; NaN if nobody took part
    steps: int  # gradient steps, all participants together
    skipped: tuple[int, ...]  # clients left out: update not finite, no samples, or an unknown class
    releases: tuple[Release, ...]  # private data given away, to be written into the ledger


@single_threaded()
def run_round(
    program: Program,
    weights: Tensor,
    samples: Samples,
    parts: Sequence[NDArray[np.int64]],
    participation: Participation,
    spec: LocalTraining,
    *,
    seed: int,
    round_number: int,
    noise_multipliers: ArrayLike | None = None,
    noise: Source | None = None,
    crew: Crew | None = None,
    on_bad_update: BadUpdatePolicy = "raise",
) -> RoundResult:
    """One round from one shared model, on the cores of the crew; `parts[n]` are client n's samples.

    Noise comes from its own source; see `run_jobs`.
    """
    checks.literal("on_bad_update", on_bad_update, BadUpdatePolicy)
    order = np.argsort(participation.clients, kind="stable")  # the sum does not depend on it
    jobs = make_jobs(parts, participation.clients[order], noise_multipliers)
    shares, skipped = participation.weights[order].tolist(), list[int]()
    if on_bad_update != "raise":
        bad = problems(program, weights, samples, jobs, round_number)
        skipped = [jobs[place].client for place in bad]
        jobs = [job for place, job in enumerate(jobs) if place not in bad]
        shares = [share for place, share in enumerate(shares) if place not in bad]
    updates = list(
        run_jobs(
            program,
            weights,
            samples,
            jobs,
            spec,
            seed=seed,
            round_number=round_number,
            noise=noise,
            crew=crew,
        )
    )
    change, good = _sum(updates, shares, weights), [True] * len(jobs)
    if not _finite(change):  # then an update is not; to look at each in every round would take longer
        good = [_finite(update.change) for update in updates]
        if on_bad_update == "raise" and not all(good):
            raise BadUpdate(jobs[good.index(False)].client, round_number)
        skipped += [job.client for job, used in zip(jobs, good, strict=True) if not used]
        shares = list(compress(shares, good))
        change = _sum(compress(updates, good), shares, weights)
    if on_bad_update == "zero":
        skipped = []
    if participation.is_mean and skipped and shares:
        change /= sum(shares)
    after = (weights.double() + change).to(weights.dtype)
    if not _finite(after):
        raise BadModel(round_number)
    losses = [update.loss for update in compress(updates, good)]
    return RoundResult(
        after,
        sum(losses) / len(losses) if losses else float("nan"),
        sum(update.steps for update in updates),
        tuple(sorted(skipped)),
        tuple(  # given away whether or not it can be used
            Release(
                job.client,
                round_number,
                job.noise_multiplier,
                update.releases,
                update.steps,
                sampling_rate(job.samples.size, spec),
            )
            for job, update in zip(jobs, updates, strict=True)
            if update.releases
        ),
    )


def _sum(updates: Iterable[Update], shares: Sequence[float], weights: Tensor) -> Tensor:
    """Changes times shares, added one by one in double precision; of none, zeros like `weights`."""
    total = torch.zeros(weights.shape, dtype=torch.float64)
    for update, share in zip(updates, shares, strict=True):
        total.add_(update.change, alpha=share)
    return total


def _finite(change: Tensor) -> bool:
    """Whether all numbers are; one pass, as the sum of so many singles cannot overflow a double."""
    return math.isfinite(float(change.sum(dtype=torch.float64)))


def make_jobs(
    parts: Sequence[NDArray[np.int64]],
    clients: NDArray[np.int64],
    noise_multipliers: ArrayLike | None = None,
) -> list[Job]:
    """One job per participation; repeated clients get numbered copies."""
    noise = np.zeros(len(parts))
    if noise_multipliers is not None:
        noise = checks.vector("noise_multipliers", noise_multipliers, length=len(parts))
    _require_array("clients", clients, "iu")
    numbers = clients.tolist()
    _require_known(numbers, len(parts))
    seen: dict[int, int] = {}
    jobs = []
    for client in numbers:
        copy = seen.get(client, 0)
        seen[client] = copy + 1
        jobs.append(Job(client, parts[client], copy, float(noise[client])))
    return jobs
