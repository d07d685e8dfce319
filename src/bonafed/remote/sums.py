"""Sums of answers: what both sides say about a sum, and sums of answers that come one by one.

(1) A client is sent only the rows of a sum in which its share is not 0. Of the others nothing leaves it,
    neither bare nor in noise of its own, which would be a further release.
(2) Without secure sums the server sees every answer, and nobody is there to add noise to their sum. Noise
    of standard deviation s on a sum over n clients is then what they add to their answers, each

        s/(sqrt(n) |share|),

    which adds up to s. A client counts its answer as a release in just this noise. So a mechanism whose
    promise is to hold against the server asks for sqrt(n) times what a sum alone would need.
(3) They are added in the order of the roster: it does not matter who answered first.

In a secure sum (theory M), `about_sum` is what all members must have been told alike, and `contributing`
says who adds something to it: the masks of a sum come off only if enough contributors are left.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bonafed.checks import Floats
from bonafed.contracts.attendance import IN_A_SUM
from bonafed.errors import InvalidValue
from bonafed.learning.federation import (
    Failure,
    Ints,
    Reply,
    Roster,
    Task,
    Total,
    Train,
    Work,
    answer_shape,
    checked_noise,
    checked_shares,
    some_rows,
)
from bonafed.remote.messages import digest_of
from bonafed.remote.tasks import Asked, work_to_json

EXTRAS: Final = 2  # numbers after those of the answers: training loss, and whether there is one
LEAST: Final = IN_A_SUM  # contributors besides colluders in a sum that is opened
_TINY: Final = 1e-300  # a share that is none
NEXT_TO_NOTHING: Final = 0.01  # of the largest share: whoever has less hides nobody
NOT_SECURE = (
    'must be "client" without secure sums: the server sees single answers, which noise on their sum does '
    "not hide"
)


class ClientPart(NamedTuple):
    """A client's part in sums."""

    asked: Asked
    task: int  # index of its task
    rows: Ints  # of the sums that its answer is in
    shares: Floats  # in each of them


def parts_of(tasks: Sequence[Task], shares: Floats, noise: float | Floats) -> list[ClientPart]:
    """What every client is asked for; who has no part in any sum, nothing."""
    given, sds = checked_shares(tasks, shares), checked_noise(tasks[0], noise)
    hidden = bool(sds.any())
    if hidden and isinstance(tasks[0].work, Train):
        raise InvalidValue("noise_at", NOT_SECURE, '"sum"')
    each = np.broadcast_to(given.reshape(len(tasks), -1), (len(tasks), sds.size))
    crowds, parts = np.count_nonzero(each, axis=0), list[ClientPart]()
    for at, task in enumerate(tasks):
        rows = np.flatnonzero(each[at]) if hidden or given.ndim == 2 else np.arange(sds.size)  # (1)
        if not rows.size:
            continue
        own_shares = each[at, rows]
        own_noise = (
            sds[rows] / (np.sqrt(crowds[rows]) * np.abs(own_shares)) if hidden else np.zeros(1)
        )  # (2)
        asked = Asked(
            some_rows(task, rows), float(own_noise[0]) if own_noise.size == 1 else tuple(own_noise.tolist())
        )
        parts.append(ClientPart(asked, at, rows, own_shares))
    return parts


def add_up(
    tasks: Sequence[Task],
    parts: Sequence[ClientPart],
    replies: Mapping[str, Reply | Failure],
    members: Roster,
) -> Total:
    """Answers times shares, each in its rows."""
    values, usable = np.zeros(answer_shape(tasks[0])), list[Reply]()
    for part in sorted(parts, key=lambda part: members.index[tasks[part.task].client]):  # (3)
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


def about_sum(content: Mapping[str, Any]) -> bytes:
    """What all members must have been told alike about a sum: with others, nothing cancels.

    Models and work that differ from member to member, or shares of which all but one are nothing, would
    make a sum of one of them.
    """
    told = [content.get(key) for key in ("batch", "which", "parts", "unit", "shape", "models", "work")]
    return digest_of(told).encode()


def common_work(work: Work) -> str:
    """Digest of work that all members do alike, each with noise of its own and as often as it was drawn."""
    data = work_to_json(work)
    return digest_of({key: value for key, value in data.items() if key not in ("copy", "noise_multiplier")})


def digest_of_models(models: NDArray[Any]) -> str:
    """Of the numbers that all members are sent alike."""
    kind = models.dtype.newbyteorder("<")
    return hashlib.sha256(np.ascontiguousarray(models, dtype=kind).tobytes()).hexdigest()


def contributing(parts: Mapping[str, Sequence[Floats]]) -> list[list[str]]:
    """Who adds something to each row of a sum: a share that is not next to nothing beside the largest."""
    totals = {
        name: np.sum([np.abs(share_of) for share_of in shares], axis=0) for name, shares in parts.items()
    }
    if not totals:
        return [[]]
    largest = np.max(list(totals.values()), axis=0)
    return [
        sorted(name for name, own in totals.items() if own[row] >= max(NEXT_TO_NOTHING * most, _TINY))
        for row, most in enumerate(largest.tolist())
    ]


def fewest(contributors: Sequence[Collection[str]], survivors: Collection[str]) -> int:
    """Contributors among the survivors, in the row that has the fewest of them."""
    return min(len(set(row) & set(survivors)) for row in contributors)
