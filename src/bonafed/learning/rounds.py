"""Who takes part in a round and with what weight, what they are asked, and who failed.

A client may be repeated (drawn with replacement) and weights are free, so that one round serves as

    weighted mean       weights n_k / sum of n_k over the participants
    unbiased sampling   weights 1 / (N q_n): the expected change is the mean change of all N clients
    a single step       one client, weight 1.

Where the expected weights of all clients are known in advance, p_n = the probability that n is in times its
weight then, a server that remembers updates can take the drawing out of them (`learning.server`). In a
weighted mean a client's weight depends on who else is in, so that p_n is nobody's to say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import BadUpdate, InvalidValue
from bonafed.learning.federation import Task, Total, Train
from bonafed.learning.work import LocalTraining


@dataclass(frozen=True, slots=True, eq=False)
class Participation:
    """Who takes part in a round."""

    clients: NDArray[np.int64]  # (m,) client numbers, repeated if drawn more than once
    weights: Floats  # (m,) weight of each one's change in the sum
    is_mean: bool = False  # weights are shares of a mean; those of skipped clients go to the others
    expected: Floats | None = None  # (N,) p_n: mean weight of each client over the draws; None: not known

    def __post_init__(self) -> None:
        _require_array("clients", self.clients, "iu")
        _require_array("weights", self.weights, "iuf")
        if self.weights.size != self.clients.size:
            raise InvalidValue("weights", f"must have {self.clients.size} values", self.weights.size)
        if not np.isfinite(self.weights).all():
            raise InvalidValue("weights", "must be finite", repr(self.weights)[:60])
        if self.expected is not None:
            _require_array("expected", self.expected, "iuf")


def _require_array(name: str, values: object, kinds: str) -> None:
    """Require a one-dimensional NumPy array of whole numbers ("iu") or of any numbers ("iuf")."""
    if not isinstance(values, np.ndarray) or values.ndim != 1 or values.dtype.kind not in kinds:
        numbers = "numbers" if "f" in kinds else "whole numbers"
        raise InvalidValue(name, f"must be a one-dimensional array of {numbers}", repr(values)[:60])


def require_known(clients: list[int], number: int) -> None:
    """Require client numbers in 0..number - 1; a negative one would count from the end."""
    if clients and (min(clients) < 0 or max(clients) >= number):
        unknown = next(client for client in clients if not 0 <= client < number)
        raise InvalidValue("clients", f"must be in 0..{number - 1}", unknown)


def weighted_mean(clients: Sequence[int] | NDArray[np.int64], sizes: ArrayLike) -> Participation:
    """The given clients, weighted by their number of samples."""
    who = np.asarray(clients) if len(clients) else np.zeros(0, dtype=np.int64)
    _require_array("clients", who, "iu")
    everyone = checks.vector("sizes", sizes)
    require_known(who.tolist(), everyone.size)
    n = everyone[who]
    if who.size and n.sum() <= 0:
        raise InvalidValue("sizes", "must not be 0 for all clients that take part", who.tolist()[:10])
    return Participation(who, n / n.sum() if who.size else n, is_mean=True)


def drawn_share(clients: NDArray[np.int64], sizes: ArrayLike) -> Participation:
    """Of N clients these, as likely as any others; weights N/m n_k / sum of n_k over all N.

    The expected change is the mean over all clients, weighted by their samples, exactly; in `weighted_mean`
    it is so only where all have as many.
    """
    _require_array("clients", clients, "iu")
    everyone = checks.vector("sizes", sizes)
    require_known(clients.tolist(), everyone.size)
    if everyone.sum() <= 0:
        raise InvalidValue("sizes", "must not be 0 for all clients", everyone.tolist()[:10])
    expected = everyone / everyone.sum()
    return Participation(clients, everyone.size / clients.size * expected[clients], expected=expected)


def unbiased(rng: np.random.Generator, probability: ArrayLike) -> Participation:
    """Each client independently with its probability; weights 1/(N q_n) (Proposition 1)."""
    q = checks.vector("probability", probability)
    if q.max() > 1:
        raise InvalidValue("probability", "must not exceed 1", float(q.max()))
    who = np.flatnonzero(rng.random(q.size) < q)
    return Participation(who, 1 / (q.size * q[who]), expected=(q > 0) / q.size)


def training_tasks(
    names: Sequence[str],
    model: NDArray[Any],
    who: Participation,
    spec: LocalTraining,
    *,
    round_number: int,
    seed: int,
    noise_multipliers: ArrayLike | None = None,
) -> list[Task]:
    """A task per participation, from one shared model (P,); a client drawn again gets another copy.

    `noise_multipliers` are those of all clients, (N,).
    """
    clients = who.clients.tolist()
    require_known(clients, len(names))
    noise = None
    if noise_multipliers is not None:
        noise = checks.vector("noise_multipliers", noise_multipliers, length=len(names)).tolist()
    models, copies, works = model[None], dict[int, int](), dict[tuple[int, float], Train]()
    tasks, prefix = list[Task](), f"round {round_number}, "
    for client in clients:
        copy = copies.get(client, 0)
        copies[client] = copy + 1
        kind = copy, 0.0 if noise is None else noise[client]
        work = works.get(kind)
        if work is None:
            work = works[kind] = Train(spec, round_number, seed, *kind)
        name = names[client]
        tasks.append(Task(f"{prefix}{name}, {copy}", name, models, work))
    return tasks


def require_all(tasks: Sequence[Task], total: Total, round_number: int) -> None:
    """Everybody delivered who was there: no answer at all is nobody's mistake, and ends no run."""
    if all(total.delivered):
        return
    for task, fine, gone in zip(tasks, total.delivered, absences(tasks, total).tolist(), strict=True):
        if not fine and not gone:
            raise BadUpdate(task.client, round_number, total.failures[task.identifier].reason)


def absences(tasks: Sequence[Task], total: Total) -> NDArray[np.bool_]:
    """(tasks,) whose client gave no answer at all."""
    failures = (total.failures.get(task.identifier) for task in tasks)
    return np.array([failure is not None and failure.absent for failure in failures], dtype=bool)


def failures(who: Participation, delivered: Sequence[bool] | NDArray[np.bool_]) -> list[int]:
    """Clients that did not deliver, in the order of the roster, with multiplicity."""
    return sorted(who.clients[~np.asarray(delivered, dtype=bool)].tolist())
