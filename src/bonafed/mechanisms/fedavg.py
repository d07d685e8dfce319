"""Plain federated averaging (McMahan et al. 2017): nobody is asked for anything, nobody is paid.

Nothing is promised either. Whoever sends its update several times as large pulls the model towards its own
data; `audit` says what that brings it, as the other mechanisms say it of the best lie against them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bonafed.checks import Floats
from bonafed.economics.findings import Finding, Witness
from bonafed.errors import InvalidValue
from bonafed.learning.federation import (
    Failure,
    Federation,
    Losses,
    Objective,
    Question,
    Reply,
    Roster,
    Task,
    Total,
)
from bonafed.mechanisms.averaging import Averaging, Unpaid
from bonafed.mechanisms.protocol import Attack, Common, Config, Slice
from bonafed.mechanisms.server_rules import require_memory_possible

_FACTORS = (1.5, 2.0, 5.0)  # of an update that is overstated
_CLIENTS = 3  # that are tried; all of them where there is time


def _make(config: Config, members: Roster, parameters: int) -> Averaging:
    return Averaging.of(config, members, parameters, Unpaid)


def _check(config: Config) -> Config:
    """Memory stands in for clients that are not in a round."""
    config = require_memory_possible(config)
    if config.local.aggregation == "memory" and config.local.participation == 1:
        rule = "must be plain where all clients are in every round: nothing is left to remember"
        raise InvalidValue("training.aggregation", rule, repr("memory"))
    return config


def _compare(common: Common) -> Mapping[str, Any]:
    """Applies to every federation."""
    return {}


@dataclass(frozen=True, slots=True, eq=False)
class Overstated:
    """A federation in which one client sends its update several times as large."""

    honest: Federation
    client: str
    factor: float

    @property
    def members(self) -> Roster:
        return self.honest.members

    @property
    def vouched(self) -> Collection[str]:
        return [name for name in self.honest.vouched if name != self.client]

    def report(self, question: Question) -> Mapping[str, float]:
        return self.honest.report(question)

    def total(self, tasks: Sequence[Task], shares: Floats, noise: float | Floats = 0.0) -> Total:
        """A sum in which its answer counts several times."""
        factors = np.array([self.factor if task.client == self.client else 1.0 for task in tasks])
        return self.honest.total(tasks, shares * factors, noise)

    def replies(self, tasks: Sequence[Task]) -> Mapping[str, Reply | Failure]:
        replies = dict(self.honest.replies(tasks))
        for task in tasks:
            reply = replies[task.identifier]
            if task.client == self.client and isinstance(reply, Reply):
                replies[task.identifier] = replace(reply, values=self.factor * reply.values)
        return replies


def _loss(attack: Attack, federation: Federation, client: str, world: str) -> float:
    """Of the final model on the client's own records, trained in this federation."""
    mechanism: Averaging = attack.mechanism
    assert attack.start is not None  # an audit of a run has one
    state = mechanism.begin(attack.agreement, attack.start)
    while state.round_number < mechanism.rounds:
        state, _ = mechanism.advance(state, federation)
    work = Losses(Objective(0.0, kind="module"))
    task = Task(f"audit {world}, {client}", client, state.model[None].astype(np.float64), work)
    reply = attack.federation.replies([task])[task.identifier]
    return float(reply.values[0, 0]) if isinstance(reply, Reply) else float("nan")


def _audit(attack: Attack) -> list[Finding]:
    """What the most profitable overstatement brings a client: its own loss, with the truth and without."""
    if attack.config.noise is not None:  # no client may be asked for an exact loss
        return []
    names = attack.agreement.members.names
    clients = names[:: max(1, len(names) // _CLIENTS)][:_CLIENTS] if attack.quick else names
    best, tries = Witness("", gain=-np.inf), 0
    for client in clients:
        honest = _loss(attack, attack.federation, client, "honest")
        for factor in _FACTORS:
            liar = Overstated(attack.federation, client, factor)
            gain = honest - _loss(attack, liar, client, f"{factor:g}")
            tries += 1
            if gain > best.gain:
                text = f"client {client} sends {factor:g} times its update: its loss falls by {gain:.4g}"
                best = Witness(text, true_cost=1.0, report=factor, gain=gain)
    witness = best if best.gain > 0 else None
    return [Finding.searched("truthful", tries, float(best.gain), witness, unit="loss")] if tries else []


SLICE = Slice("fedavg", _make, check=_check, compare=_compare, audit=_audit)
