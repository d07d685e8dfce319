"""What the protocol of faithful learning comes to, by whichever course: a model, payments, their errors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bonafed.checks import Floats
from bonafed.mechanisms.faithful.vcg import Payments

BadReportPolicy = Literal["raise", "leave out"]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An agent the protocol went on without: its data are not in the model, and it owes nothing."""

    agent: int
    where: str  # the step of its bad report
    problem: str
    due: float  # what it owes instead if it keeps the last model it was sent, the first of its message


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """The result of the protocol."""

    model: Floats  # (P,) w*
    payments: Payments
    losses: Floats  # (K,) F_k(w*), with the true losses
    training_steps: int  # of phase I, or exchanges of it
    integration_error: float  # bounds what the integration adds to the certified error
    training_error: float  # F(w*) is at most this above its minimum, by the reports; NaN: not certified
    left_out: tuple[LeftOut, ...] = ()  # their rows of payments are 0
    exchanges: int | None = None  # in all; None: not by exchanges
    gauss_distance: float = math.nan  # of the payments to their values by Gauss and Legendre, at most

    @property
    def overall(self) -> Floats:
        """(K,) J_k = F_k(w*) + P_k."""
        return self.losses + self.payments.amount


@dataclass(frozen=True, slots=True, eq=False)
class Ending:
    """The payments, and how accurate they are."""

    payments: Payments  # of all agents; rows of those left out are 0
    integration_error: float
    training_error: float
    left_out: tuple[LeftOut, ...]
    gauss_distance: float = math.nan  # where payments are integrated along a segment


def for_all(
    some: Payments, who: Sequence[int] | NDArray[np.int64], agents: int, nothing: float
) -> Payments:
    """Payments of some agents as rows among all of them."""
    everyone = []
    for part in (some.amount, some.error, some.models):
        whole = np.full((agents, *part.shape[1:]), nothing)
        whole[np.asarray(who)] = part
        everyone.append(whole)
    return Payments(everyone[0], everyone[1], everyone[2], some.steps)
