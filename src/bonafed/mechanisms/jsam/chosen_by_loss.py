"""BBM: clients chosen by the losses of the first model, which they send in clear (theory B4).

The terms are settled in the first round, when the losses have come in. Whoever gives no answer then is not
chosen; if fewer tell their loss than are to be chosen, the run ends before it has begun.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from bonafed.checks import Floats
from bonafed.contracts.published import Agreement
from bonafed.contracts.terms import Reports
from bonafed.economics.statement import Statement
from bonafed.errors import AskFailed, InvalidValue
from bonafed.learning.federation import Federation, Losses, Need, Objective, Question, Reply, Roster, Task
from bonafed.mechanisms.averaging import Averaging, AveragingState
from bonafed.mechanisms.left_open import Chosen, chosen_for
from bonafed.mechanisms.protocol import Answers, Arrays, Config, Round

if TYPE_CHECKING:
    from bonafed.mechanisms.jsam.mechanism import BoughtPrivacy


@dataclass(frozen=True, slots=True, eq=False)
class LossesState:
    """What passes from round to round where clients are chosen by their losses."""

    agreement: Agreement
    start: NDArray[Any]  # (P,) the first model
    losses: Floats  # (N,) of the first model; (0,) before the first round
    rounds: AveragingState | None  # None before the first round

    @property
    def round_number(self) -> int:
        return 0 if self.rounds is None else self.rounds.round_number

    def arrays(self) -> Arrays:
        inner: Mapping[str, NDArray[Any]] = {} if self.rounds is None else self.rounds.arrays()
        return {**inner, "start": self.start, "losses": self.losses}


@dataclass(frozen=True, slots=True, eq=False)
class ByLosses(Answers):
    """BBM: the clients with the largest losses of the first model, which they send in clear."""

    needs: ClassVar[Need] = "replies"

    averaging: Averaging
    rules: BoughtPrivacy

    @property
    def config(self) -> Config:
        return self.averaging.config

    @property
    def rounds(self) -> int:
        return self.averaging.rounds

    @property
    def question(self) -> Question:
        return self.rules.question

    @property
    def contract(self) -> None:
        return None

    def agree(self, members: Roster, reports: Reports) -> Agreement:
        return self.rules.agree(members, reports)

    def lottery(self, agreement: Agreement) -> None:
        return None

    def chosen(self, agreement: Agreement) -> Chosen | None:
        """Batch and steps; the rate follows once clients are chosen."""
        if agreement.terms is None:
            return chosen_for(self.config, None)
        return self.averaging.chosen(agreement)

    def begin(self, agreement: Agreement, start: NDArray[Any]) -> LossesState:
        return LossesState(agreement, np.array(start), np.empty(0), None)

    def restore(self, agreement: Agreement, arrays: Arrays) -> LossesState:
        start, losses = arrays["start"], arrays["losses"]
        if not losses.size:
            return self.begin(agreement, start)
        members = self._chosen(agreement, losses)
        return LossesState(members, start, losses, self.averaging.restore(members, arrays))

    def _chosen(self, agreement: Agreement, losses: Floats) -> Agreement:
        terms = self.rules.terms(agreement.members, agreement.reports, losses)
        return replace(agreement, terms=terms)

    def advance(self, state: LossesState, federation: Federation) -> tuple[LossesState, Round]:
        if state.rounds is None:
            members = self.rules.section.members
            assert members is not None  # by the section's own rules
            losses = ask_losses(federation, state.start, members)
            agreement = self._chosen(state.agreement, losses)
            began = self.averaging.begin(agreement, state.start)
            state = LossesState(agreement, state.start, losses, began)
        assert state.rounds is not None  # begun
        rounds, row = self.averaging.advance(state.rounds, federation)
        return replace(state, rounds=rounds), row

    def models(self, state: LossesState) -> NDArray[Any]:
        return state.start[None] if state.rounds is None else self.averaging.models(state.rounds)

    def final(self, state: LossesState) -> NDArray[Any]:
        return state.start if state.rounds is None else state.rounds.model

    def settle(self, state: LossesState, federation: Federation) -> Statement:
        assert state.rounds is not None  # at least one round
        return self.averaging.settle(state.rounds, federation)


def ask_losses(federation: Federation, model: NDArray[Any], members: int) -> Floats:
    """(N,) the loss of a model on each client's records, without noise; of the absent, just below all."""
    work, models = Losses(Objective(0.0, kind="module")), model[None]
    names: Sequence[str] = federation.members.names
    replies = federation.replies([Task(f"loss of {name}", name, models, work) for name in names])
    told: dict[str, float] = {}
    for name in names:
        reply = replies[f"loss of {name}"]
        if isinstance(reply, Reply):
            told[name] = float(reply.values[0, 0])
        elif not reply.absent:
            raise InvalidValue(f"loss of client {name}", "must be told", reply.reason)
    if len(told) < members:
        raise AskFailed(f"{len(told)} of {len(names)} told their loss, and {members} are to be chosen")
    below = math.nextafter(min(told.values()), -math.inf)
    return np.array([told.get(name, below) for name in names])
