"""The arithmetic of a round of federated averaging: tasks, who failed, the model after it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed import checks
from bonafed.errors import BadModel, BadUpdate
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
    """Everybody delivered."""
    if all(total.delivered):
        return
    for task, fine in zip(tasks, total.delivered, strict=True):
        if not fine:
            raise BadUpdate(task.client, round_number, total.failures[task.identifier].reason)


def failures(who: Participation, total: Total) -> list[int]:
    """Clients that did not deliver, in the order of the roster, with multiplicity."""
    return sorted(who.clients[~np.array(total.delivered, dtype=bool)].tolist())


def averaged(
    model: NDArray[Any], who: Participation, total: Total, round_number: int, *, fill_in: bool
) -> NDArray[Any]:
    """(P,) the shared model after a round; it must be finite.

    `fill_in`: in a mean, the shares of those who did not deliver go to the others; else they are lost.
    """
    change = total.values[0]
    if fill_in and who.is_mean and not all(total.delivered):
        in_order = np.argsort(who.clients, kind="stable")
        shares = who.weights[in_order][np.array(total.delivered, dtype=bool)[in_order]].tolist()
        if left := sum(shares):
            change = change / left
    with np.errstate(over="ignore", invalid="ignore"):  # reported below
        after: NDArray[Any] = (model + change).astype(model.dtype)  # the change is of double precision
        finite = math.isfinite(float(after.sum(dtype=np.float64)))
    if not finite:
        raise BadModel(round_number)
    return after
