"""A round of federated averaging before the server's step: its tasks, and who failed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed import checks
from bonafed.errors import BadUpdate
from bonafed.learning.federation import Task, Total, Train
from bonafed.learning.participation import Participation, require_known
from bonafed.learning.work import LocalTraining


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
    found = (total.failures.get(task.identifier) for task in tasks)
    return np.array([failure is not None and failure.absent for failure in found], dtype=bool)


def failures(who: Participation, delivered: Sequence[bool] | NDArray[np.bool_]) -> list[int]:
    """Clients that did not deliver, in the order of the roster, with multiplicity."""
    return sorted(who.clients[~np.asarray(delivered, dtype=bool)].tolist())
