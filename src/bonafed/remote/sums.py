"""Sums of answers that come one by one: what each client is asked for, and in how much noise of its own.

(1) A client is sent only the rows of a sum in which its share is not 0. Of the others nothing leaves it,
    neither bare nor in noise of its own, which would be a further release.
(2) Without secure sums the server sees every answer, and nobody is there to add noise to their sum. Noise
    of standard deviation s on a sum over n clients is then what they add to their answers, each

        s/(sqrt(n) |share|),

    which adds up to s. A client counts its answer as a release in just this noise. So a mechanism whose
    promise is to hold against the server asks for sqrt(n) times what a sum alone would need.
(3) They are added in the order of the roster: it does not matter who answered first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bonafed.checks import Floats
from bonafed.errors import InvalidValue
from bonafed.learning.federation import (
    Failure,
    Ints,
    Reply,
    Roster,
    Task,
    Total,
    Train,
    answer_shape,
    checked_noise,
    checked_shares,
    some_rows,
)
from bonafed.remote.tasks import Asked

NOT_SECURE = (
    'must be "client" without secure sums: the server sees single answers, which noise on their sum does '
    "not hide"
)


class Part(NamedTuple):
    """A client's part in sums."""

    asked: Asked
    place: int  # of its task
    rows: Ints  # of the sums that its answer is in
    shares: Floats  # in each of them


def parts_of(tasks: Sequence[Task], shares: Floats, noise: float | Floats) -> list[Part]:
    """What every client is asked for; who has no part in any sum, nothing."""
    given, sds = checked_shares(tasks, shares), checked_noise(tasks[0], noise)
    hidden = bool(sds.any())
    if hidden and isinstance(tasks[0].work, Train):
        raise InvalidValue("noise_at", NOT_SECURE, '"sum"')
    each = np.broadcast_to(given.reshape(len(tasks), -1), (len(tasks), sds.size))
    crowds, parts = np.count_nonzero(each, axis=0), list[Part]()
    for place, task in enumerate(tasks):
        rows = np.flatnonzero(each[place]) if hidden or given.ndim == 2 else np.arange(sds.size)  # (1)
        if not rows.size:
            continue
        mine = each[place, rows]
        own = sds[rows] / (np.sqrt(crowds[rows]) * np.abs(mine)) if hidden else np.zeros(1)  # (2)
        asked = Asked(some_rows(task, rows), float(own[0]) if own.size == 1 else tuple(own.tolist()))
        parts.append(Part(asked, place, rows, mine))
    return parts


def add_up(
    tasks: Sequence[Task], parts: Sequence[Part], replies: Mapping[str, Reply | Failure], members: Roster
) -> Total:
    """Answers times shares, each in its rows."""
    values, usable = np.zeros(answer_shape(tasks[0])), list[Reply]()
    for part in sorted(parts, key=lambda part: members.index[tasks[part.place].client]):  # (3)
        reply = replies[part.asked.task.identifier]
        if isinstance(reply, Reply):
            values[part.rows] += np.asarray(reply.values, dtype=np.float64) * part.shares[:, None]
            usable.append(reply)
    failures = {name: reply for name, reply in replies.items() if isinstance(reply, Failure)}
    losses = [reply.loss for reply in usable]
    return Total(
        values,
        tuple(task.identifier not in failures for task in tasks),
        failures,
        sum(losses) / len(losses) if losses else float("nan"),
        sum(reply.steps for reply in usable),
        tuple(release for reply in usable for release in reply.releases),
    )
