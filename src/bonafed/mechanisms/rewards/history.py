"""What the server has seen of a federation, which is all that a contribution measure may look at.

A measure is a function (history) -> (N,) contributions. It sees uploads, who was there, and the models
handed out; never a client's data. `History.score` is the server's own: how good models are on its
validation set.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue

Models = NDArray[np.floating[Any]]  # (m, P) parameters of m models, in the precision they were trained in


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """One round, as the server saw it."""

    updates: Models  # (N, P) g_i, what each client uploaded; zeros where it was absent
    present: NDArray[np.bool_]  # (N,) who sent an update
    models: Models  # (N, P) theta_i, what each client held before it trained
    reference: Models  # (P,) theta_ref, the server's own model before this round's updates

    def __post_init__(self) -> None:
        shape = self.updates.shape
        if len(shape) != 2:
            raise InvalidValue("updates", "must be (clients, parameters)", f"shape {shape}")
        for name, actual, expected in (
            ("present", self.present.shape, shape[:1]),
            ("models", self.models.shape, shape),
            ("reference", self.reference.shape, shape[1:]),
        ):
            if actual != expected:
                raise InvalidValue(name, f"must have shape {expected}", actual)
        if self.present.dtype != np.bool_:
            raise InvalidValue("present", "must be true or false for each client", self.present.dtype)


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """The rounds so far, oldest first."""

    sizes: Floats  # (N,) records each client says it trains on, > 0
    rounds: Sequence[Round]
    score: Callable[[Models], Floats] | None = (
        None  # (m, P) models -> (m,) validation accuracy, if there is one
    )

    def __post_init__(self) -> None:
        sizes = checks.vector("sizes", self.sizes, sign="positive")
        for t, one in enumerate(self.rounds):
            if one.present.size != sizes.size:
                raise InvalidValue(f"round {t}", f"must have {sizes.size} clients", one.present.size)
        object.__setattr__(self, "sizes", sizes)

    @property
    def clients(self) -> int:
        """N."""
        return self.sizes.size


Measure = Callable[[History], Floats]  # history -> (N,) contributions
