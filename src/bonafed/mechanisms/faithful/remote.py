"""Agents that are asked: the protocol in a federation of one's own, whose data the server never sees.

What a server has to know is what the agents agree on beforehand: their weights, the regulariser mu, and a
bound L_g on how fast any agent's gradient can change (theory C0; for the softmax on features of norm 1 at
most, mu + 1/2). The rest it asks for. `ask` is handed the models every agent is sent, (m, P) each, and
returns what they report, the gradients of their own F_k at those models, mu w included; an agent that does
not answer is None or missing. It is called once per step, so that all agents can be asked at the same time.

Losses stay with the agents: those of an `Outcome` are NaN, and each agent adds its payment to its own.
Payments need no losses, only reports (theory C3). The server sees every report; one that must not needs a
secure sum in the place of `ask` for each of the mixes, which is what `Aggregation` is the place for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NoReturn, final

import numpy as np
from numpy.typing import ArrayLike

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue
from bonafed.mechanisms.faithful.agents import usable_report
from bonafed.mechanisms.faithful.problems import Problem

Ask = Callable[[dict[int, Floats]], Mapping[int, ArrayLike | None]]
# models (m, P) by agent -> their gradients (m, P) by agent


@final
class RemoteAgents(Problem):
    """K agents whose gradients are asked for.

    >>> targets = np.array([[0.0], [1.0], [5.0]])  # F_k(w) = |w - target_k|^2/2, so mu = L_g = 1
    >>> def ask(sent):
    ...     return {k: models - targets[k] for k, models in sent.items()}
    >>> from bonafed.mechanisms.faithful import faithful
    >>> found = faithful(RemoteAgents(ask, np.full(3, 1 / 3), size=1, regulariser=1.0, smoothness=1.0))
    >>> found.model.round(6).tolist(), found.payments.amount.round(3).tolist()
    ([2.0], [1.0, 0.25, 2.25])
    """

    def __init__(
        self,
        ask: Ask,
        weights: ArrayLike,
        *,
        size: int,
        regulariser: float,
        smoothness: float,
        strongly_convex: bool = True,
    ) -> None:
        """`smoothness` is L_g, or the inverse of the training step where the loss is not convex."""
        self._ask = ask
        self.weights = checks.shares("weights", weights)
        self.size = checks.whole("size", size)
        self.regulariser = checks.positive("regulariser", regulariser)
        self.strongly_convex = strongly_convex
        self._smooth = checks.positive("smoothness", smoothness)
        if strongly_convex and self._smooth < self.regulariser:
            raise InvalidValue(
                "smoothness", f"must be at least the regulariser {regulariser:g}", smoothness
            )

    @property
    def smoothness(self) -> float:
        return self._smooth

    def gradient(self, models: Floats, mix: Floats) -> Floats:
        total = np.zeros((mix.shape[0], self.size))
        asked = {k: rows for k in range(self.agents) if (rows := np.flatnonzero(mix[:, k])).size}
        if not asked:
            return total
        answers = self._ask({k: models[rows].copy() for k, rows in asked.items()})
        for k, rows in asked.items():
            report = usable_report(k, answers.get(k), (rows.size, self.size))
            total[rows] += mix[rows, k][:, None] * report
        return total

    def losses(self, models: Floats) -> Floats:
        return np.full((models.shape[0], self.agents), np.nan)

    def hessian(self, model: Floats, mix: Floats) -> Floats:
        self._refuse()

    def hessian_product(self, model: Floats, mix: Floats, direction: Floats) -> Floats:
        self._refuse()

    def _refuse(self) -> NoReturn:
        rule = "must hold the samples where payments are not made of reports"
        raise InvalidValue("problem", rule, type(self).__name__)
