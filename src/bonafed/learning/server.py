"""The server's step of a round: from what clients sent to the next model, and what is kept for later ones.

    (a)  change      plain    the sum over who is in of w_n update_n
                     memory   g sum over all of p_n y_n + sum over who is in of w_n (update_n - g y_n),
                              p_n the expected weight of client n, y_n the last update received from it,
                              0 before the first (theory A5)
    (b)  optimizer   sgd       x <- x + eta change
                     momentum  v <- beta v + change                         x <- x + eta v
                     adam      m <- beta m + (1 - beta) change
                               v <- beta_2 v + (1 - beta_2) change^2        x <- x + eta m/(sqrt(v) + tau)

Momentum is FedAvgM (Hsu et al. 2019), adam FedAdam as printed (Algorithm 2 of Reddi et al. 2021: no bias
correction, v begins at tau^2). A round in which nobody delivers is one with a change of 0; with memory, of
g sum of p_n y_n. A client that was asked and fails counts, with memory, as one that was not asked: y_n
stays, and nothing is corrected.

Everything here is a function of what clients sent and of public numbers: where that is hidden in noise, it
is post-processing and gives nothing more away.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bonafed.checks import Floats
from bonafed.errors import BadModel, InvalidValue
from bonafed.learning.federation import Failure, Reply, Task, Total
from bonafed.learning.rounds import Participation

Aggregation = Literal["plain", "memory"]
ServerOptimizer = Literal["sgd", "momentum", "adam"]
Update = NDArray[Any]  # (P,)
HALF = 0.5  # g


@dataclass(frozen=True, slots=True)
class Server:
    """What the server does with updates."""

    aggregation: Aggregation = "plain"
    memory_weight: float = HALF  # g, in [0, 1]
    optimizer: ServerOptimizer = "sgd"
    learning_rate: float = 1.0  # eta
    momentum: float = 0.9  # beta
    beta_2: float = 0.99
    tau: float = 1e-3

    @property
    def remembers(self) -> bool:
        """Whether it needs single updates."""
        return self.aggregation == "memory"

    def begin(self, clients: int, size: int) -> ServerState:
        """Before the first round, with so many clients and weights."""
        nothing = np.zeros(size)
        return ServerState(
            (None,) * clients if self.remembers else (),
            None if self.optimizer == "sgd" else nothing,
            np.full(size, self.tau**2) if self.optimizer == "adam" else None,
        )

    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> ServerState:
        """The state that was written as these arrays."""
        kept = [
            *(["received", "received_from"] if self.remembers else []),
            *(["server_first"] if self.optimizer != "sgd" else []),
            *(["server_second"] if self.optimizer == "adam" else []),
        ]
        for name in kept:
            if name not in arrays:
                rule = f"must hold {name}, of a server that goes on as it began"
                raise InvalidValue("checkpoint", rule, ", ".join(arrays))
        rows = iter(arrays["received"] if self.remembers else ())
        received = tuple(
            np.array(next(rows)) if there else None
            for there in (arrays["received_from"] if self.remembers else ())
        )
        return ServerState(received, arrays.get("server_first"), arrays.get("server_second"))


@dataclass(frozen=True, slots=True, eq=False)
class ServerState:
    """What the server keeps from round to round."""

    received: tuple[Update | None, ...]  # (N,) y_n, in the precision of the model; None: 0; () if plain
    first: Floats | None  # (P,) v of momentum, m of adam
    second: Floats | None  # (P,) v of adam

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Everything; clients of whom nothing was received take no room."""
        kept = {"server_first": self.first, "server_second": self.second}
        arrays = {name: values for name, values in kept.items() if values is not None}
        if self.received:
            there = [update for update in self.received if update is not None]
            arrays["received_from"] = np.array([update is not None for update in self.received])
            arrays["received"] = np.stack(there) if there else np.zeros((0, 0))
        return arrays


def plain_change(who: Participation, total: Total, *, fill_in: bool) -> Floats:
    """(a), plain. `fill_in`: in a mean, the shares of those who did not deliver go to the others; else they
    are lost."""
    change: Floats = total.values[0]
    if fill_in and who.is_mean and not all(total.delivered):
        in_order = np.argsort(who.clients, kind="stable")
        shares = who.weights[in_order][np.array(total.delivered, dtype=bool)[in_order]].tolist()
        if left := sum(shares):
            change = change / left
    return change


def corrections(
    tasks: Sequence[Task],
    replies: Mapping[str, Reply | Failure],
    who: Participation,
    server: Server,
    state: ServerState,
    size: int,
) -> Total:
    """The second sum of (a) with memory, and who delivered; added by client, in double precision."""
    answers = [replies[task.identifier] for task in tasks]
    usable = [
        (index, answer)
        for index in np.argsort(who.clients, kind="stable").tolist()
        if isinstance(answer := answers[index], Reply)
    ]
    change = np.zeros(size)
    for index, reply in usable:
        weight, before = float(who.weights[index]), state.received[who.clients[index]]
        change += weight * np.asarray(reply.values[0], dtype=np.float64)
        if before is not None:
            change -= weight * server.memory_weight * before.astype(np.float64)
    losses = [reply.loss for _, reply in usable]
    return Total(
        change[None],
        tuple(isinstance(answer, Reply) for answer in answers),
        {
            task.identifier: answer
            for task, answer in zip(tasks, answers, strict=True)
            if isinstance(answer, Failure)
        },
        sum(losses) / len(losses) if losses else math.nan,
        sum(reply.steps for _, reply in usable),
        tuple(release for _, reply in usable for release in reply.releases),
    )


def expected_change(expected: Floats, server: Server, state: ServerState, size: int) -> Floats:
    """(P,) g sum over all of p_n y_n."""
    change = np.zeros(size)
    for share, update in zip(expected.tolist(), state.received, strict=True):
        if update is not None:
            change += server.memory_weight * share * update.astype(np.float64)
    return change


def remembering(
    state: ServerState,
    tasks: Sequence[Task],
    replies: Mapping[str, Reply | Failure],
    who: Participation,
) -> ServerState:
    """The state in which y_n is what was received in this round, of those who delivered."""
    received = list(state.received)
    for task, client in zip(tasks, who.clients.tolist(), strict=True):
        reply = replies[task.identifier]
        if isinstance(reply, Reply):
            received[client] = np.array(reply.values[0], dtype=task.models.dtype)
    return replace(state, received=tuple(received))


def stepped(
    model: NDArray[Any], change: Floats, server: Server, state: ServerState, round_number: int
) -> tuple[NDArray[Any], ServerState]:
    """(b): (P,) the shared model after a round, which must be finite, and the optimizer's state."""
    with np.errstate(over="ignore", invalid="ignore"):  # reported below
        direction, state = _direction(change, server, state)
        # the change is of double precision
        after: NDArray[Any] = (model + server.learning_rate * direction).astype(model.dtype)
        finite = math.isfinite(float(after.sum(dtype=np.float64)))
    if not finite:
        raise BadModel(round_number)
    return after, state


def _direction(change: Floats, server: Server, state: ServerState) -> tuple[Floats, ServerState]:
    if server.optimizer == "sgd":
        return change, state
    assert state.first is not None  # begun with this optimizer
    if server.optimizer == "momentum":
        velocity = server.momentum * state.first + change
        return velocity, replace(state, first=velocity)
    assert state.second is not None
    first = server.momentum * state.first + (1 - server.momentum) * change
    second = server.beta_2 * state.second + (1 - server.beta_2) * change**2
    return first / (np.sqrt(second) + server.tau), replace(state, first=first, second=second)
