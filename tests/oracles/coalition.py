"""The problem of some of the agents, such as those that remain when one is left out.

The members' weights are scaled to sum to 1; everything else is computed from the whole problem, with the
others' share set to zero. Members have their numbers of the whole problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import final

import numpy as np

from bonafed.checks import Floats
from bonafed.learning.problems.agreed import members_of
from bonafed.learning.problems.convex import Expansion, Precondition, Problem


@final
class Coalition(Problem):
    """The members of a problem, by themselves."""

    def __init__(self, problem: Problem, members: Sequence[int]) -> None:
        who = members_of(problem, members)
        self._whole, self.members = problem, who
        self.weights = problem.weights[who] / problem.weights[who].sum()
        self.regulariser, self.size = problem.regulariser, problem.size
        self.strongly_convex, self.precision = problem.strongly_convex, problem.precision

    @property
    def smoothness(self) -> float:
        return self._whole.smoothness

    @property
    def gradient_bound(self) -> float:
        return self._whole.gradient_bound

    def largest_gradient(self, norms: Floats) -> Floats:
        return self._whole.largest_gradient(norms)

    def _spread(self, mix: Floats) -> Floats:
        """Weights of the members as weights of all, (..., K)."""
        everyone = np.zeros((*mix.shape[:-1], self._whole.agents))
        everyone[..., self.members] = mix
        return everyone

    def gradient(self, models: Floats, mix: Floats) -> Floats:
        return self._whole.gradient(models, self._spread(mix))

    @property
    def models_per_batch(self) -> int:
        return self._whole.models_per_batch

    def expand(self, models: Floats, mix: Floats) -> Expansion:
        expansion = self._whole.expand(models, self._spread(mix))
        return replace(expansion, losses=expansion.losses[:, self.members])

    def preconditioner(self, model: Floats, mix: Floats) -> Precondition | None:
        return self._whole.preconditioner(model, self._spread(mix))

    def losses(self, models: Floats) -> Floats:
        return np.asarray(self._whole.losses(models)[:, self.members])

    def hessian(self, model: Floats, mix: Floats) -> Floats:
        return self._whole.hessian(model, self._spread(mix))

    def hessian_product(self, model: Floats, mix: Floats, direction: Floats) -> Floats:
        return self._whole.hessian_product(model, self._spread(mix), direction)
