"""Agents that are asked: the protocol in a federation of one's own, whose data the server never sees.

What a server has to know is what the agents agree on beforehand: their weights, the regulariser mu, and a
bound L_g on how fast any agent's gradient can change (theory C0; for the softmax on features of norm 1 at
most, mu + 1/2). They should also agree on a bound B on how long a sample's gradient is at w = 0 (sqrt(2)
for that softmax, the largest |x| |y| for least squares), without which data of any size have to be
believed, and on how accurately gradients are computed. The rest it asks for. `ask` is handed the models
every agent is sent, (m, P) each, and returns what they report, the gradients of their own F_k at those
models, mu w included; an agent that does not answer is None, missing, or the exception that came instead.
It is called once per step, so that all agents can be asked at the same time.

What an agent sends is its own affair, and it is named for it (`reports`). What `ask` itself does is not: if
it fails as a whole, `AskFailed` ends the protocol and keeps what was reached. Trying again is for `ask` to
do, which knows what is worth it.

Losses stay with the agents: those of an `Outcome` are NaN, and each agent adds its payment to its own.
Payments need no losses, only reports (theory C3). The server sees every report, and checks it; one that
must not needs a secure sum in the place of `ask` for each of the mixes, which is what `Aggregation` is the
place for, and then the check has to be made where reports are still seen one by one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NoReturn, final

import numpy as np
from numpy.typing import ArrayLike

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import AskFailed, InvalidValue
from bonafed.learning.problems.convex import Problem
from bonafed.mechanisms.faithful.reports import usable_report

Ask = Callable[[dict[int, Floats]], Mapping[int, ArrayLike | BaseException | None]]
# models (m, P) by agent -> their gradients (m, P) by agent


SINGLE, DOUBLE = 1e-5, 1e-12  # precision of gradients in single floats; the most that doubles have


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
        gradient_bound: float | None = None,
        precision: float = SINGLE,
    ) -> None:
        """`smoothness` is L_g, or the inverse of the training step where the loss is not convex.

        `gradient_bound` is B; where the loss is not convex it bounds gradients at any model, mu w aside.
        `precision` is tau, to which honest agents compute: in doubles 1e-9 is plenty, and catches more.
        """
        self._ask = ask
        self.weights = checks.shares("weights", weights)
        self.size = checks.whole("size", size)
        self.regulariser = checks.positive("regulariser", regulariser)
        self.strongly_convex = strongly_convex
        self._smooth = checks.positive("smoothness", smoothness)
        self._bound = (
            math.inf if gradient_bound is None else checks.positive("gradient_bound", gradient_bound)
        )
        self.precision = checks.between("precision", precision, DOUBLE, 0.1)
        if strongly_convex and self._smooth < self.regulariser:
            raise InvalidValue(
                "smoothness", f"must be at least the regulariser {regulariser:g}", smoothness
            )

    @property
    def smoothness(self) -> float:
        return self._smooth

    @property
    def gradient_bound(self) -> float:
        return self._bound

    def answers(self, models: Floats, mix: Floats) -> Mapping[int, object]:
        asked = {k: rows for k in range(self.agents) if (rows := np.flatnonzero(mix[:, k])).size}
        if not asked:
            return {}
        try:
            found = self._ask({k: models[rows].copy() for k, rows in asked.items()})
        except OSError as error:  # timeouts and lost connections are
            said = f": {error}" if str(error) else ""
            raise AskFailed(type(error).__name__ + said) from error
        if not isinstance(found, Mapping):
            raise AskFailed(f"ask must return a mapping of reports by agent, got {type(found).__name__}")
        if unknown := [k for k in found if k not in asked]:
            raise AskFailed(
                f"ask must answer for agents it was handed, got {', '.join(map(repr, unknown))}"
            )
        return {k: found.get(k) for k in asked}

    def gradient(self, models: Floats, mix: Floats) -> Floats:
        total = np.zeros((mix.shape[0], self.size))
        for k, answer in self.answers(models, mix).items():
            rows = np.flatnonzero(mix[:, k])
            total[rows] += mix[rows, k][:, None] * usable_report(k, answer, (rows.size, self.size))
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
