"""What private rounds gave away, and what that comes to: from releases to the epsilon of a statement.

Where every client adds its own noise, all its releases have one multiplier, and their number says all.
Noise on sums has another multiplier for everybody in every round (theory P8); then the inverse squares are
added up as they come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from bonafed.checks import Floats
from bonafed.economics.statement import Statement
from bonafed.learning.federation import Roster
from bonafed.learning.privacy import Ledger, Release
from bonafed.learning.rounds import Participation
from bonafed.learning.work import LocalTraining, record_steps, sampling_rate, step_count
from bonafed.mechanisms.promises import PROTECTS, Promise, privacy_notes

Ints = NDArray[np.int64]


def given_away(
    members: Roster, multipliers: Floats, who: Participation, spec: LocalTraining, round_number: int
) -> Sequence[Release]:
    """Releases of the clients' own who answered, as they were asked for, whatever came of it.

    Whoever says that it released nothing may have. And a ledger without those who failed would name them.
    Those who gave no answer at all are named in any case, and nothing of theirs was received.
    """
    return [
        Release(
            client, round_number, float(multipliers[client]),
            record_steps(size := int(members.sizes[client]), spec), step_count(size, spec),
            sampling_rate(size, spec),
        )
        for client in np.sort(who.clients).tolist()
        if multipliers[client] and members.sizes[client]
    ]  # fmt: skip


def steps_asked(members: Roster, who: Participation, spec: LocalTraining) -> int:
    """Local steps of those who answered if nobody fails; how many were taken would tell how many did."""
    return sum(step_count(size, spec) for size in members.sizes[who.clients].tolist() if size)


def epsilons(multipliers: Floats, releases: Ints, sizes: Ints, spec: LocalTraining, delta: float) -> Floats:
    """(N,) of so many releases of each client with noise of its own."""

    @cache
    def spent(multiplier: float, times: int, rate: float | None) -> float:  # many clients are alike
        return Ledger((Release(0, 0, multiplier, times, rate=rate),)).epsilon(0, delta)

    return np.array([
        spent(float(sigma), int(times), sampling_rate(int(size), spec)) if times else 0.0
        for sigma, times, size in zip(multipliers, releases, sizes, strict=True)
    ])  # fmt: skip


def largest_epsilon(multipliers: Floats, releases: Ints, delta: float) -> float:
    """The largest of them, where records are in releases for certain."""
    released = np.flatnonzero(releases)
    if not released.size:
        return 0.0
    worst = int(released[(releases[released] / multipliers[released] ** 2).argmax()])
    return Ledger((Release(0, 0, float(multipliers[worst]), int(releases[worst])),)).epsilon(0, delta)


def epsilon_of(lost: float, delta: float) -> float:
    """Of releases whose inverse squared multipliers add up to this."""
    return Ledger((Release(0, 0, lost**-0.5, 1),)).epsilon(0, delta) if lost else 0.0


def with_privacy(statement: Statement, promise: Promise, epsilon: Floats) -> Statement:
    """A statement with what was lost (N,), and against whom that holds beside it."""
    largest = float(epsilon.max())
    return replace(
        statement,
        columns={**statement.columns, "epsilon": epsilon.tolist()},
        forms={"epsilon": ".4g", **statement.forms},
        totals={
            **statement.totals,
            "largest_epsilon": largest,
            "delta": promise.delta,
            "adjacency": promise.adjacency,
            "protects_against": PROTECTS[promise.noise_at],
        },
        facts={
            **statement.facts,
            "delta": promise.delta,
            "adjacency": promise.adjacency,
            "noise": promise.noise,
            "noise_at": promise.noise_at,
        },
        notes=(*privacy_notes(promise, largest), *statement.notes),
    )
