"""What a server knows about the agents' losses without any sample: what all agreed on beforehand.

Agent k has the loss F_k, mu-strongly convex and L_g-smooth, and a weight p_k > 0; the weights sum to 1. No
sample's gradient is longer than B at w = 0. Asking agents for gradients requires no more than this.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue

LEAST_REST = 1e-9  # of 1 - p_k: what the others weigh is divided by, and must not be rounding
SINGLE, DOUBLE = 1e-5, 1e-12  # precision of gradients in single floats; the best that doubles allow


class Agreed(ABC):
    """Constants of K agents' losses on one model of P numbers."""

    weights: Floats  # (K,) p, sum 1
    regulariser: float  # mu: every F_k is mu-strongly convex
    size: int  # P
    strongly_convex: bool = True  # otherwise nothing is certified
    precision: float = 1e-9  # tau: honest gradients are computed to tau (B + L_g |w|), here in doubles

    @property
    def agents(self) -> int:
        """K, the number of agents."""
        return int(self.weights.size)

    @property
    @abstractmethod
    def smoothness(self) -> float:
        """L_g: the gradient of every F_k is this Lipschitz."""

    @property
    def gradient_bound(self) -> float:
        """B: at w = 0 no sample's gradient is longer, whoever holds it; inf if unknown."""
        return math.inf

    def largest_gradient(self, norms: Floats) -> Floats:
        """(m,) the largest |grad F_k(w) - mu w| of any agent for models of these norms (C3.5)."""
        if not self.strongly_convex:  # the smoothness is the inverse of a step, and bounds nothing
            return np.full(norms.shape, self.gradient_bound)
        return np.asarray(self.gradient_bound + (self.smoothness - self.regulariser) * norms)

    def third_derivative(self, directions: Floats) -> Floats:
        """(m,) R: along d, no agent's third derivative is larger than R times its second; inf if unknown.

        The regulariser has no part in the third and may only enlarge the second.
        """
        return np.full(len(directions), math.inf)

    def one(self, agent: int) -> Floats:
        """(K,) the mix that selects one agent's own loss."""
        mix = np.zeros(self.agents)
        mix[agent] = 1.0
        return mix

    def without_each(self) -> Floats:
        """(K, K) the mixes f_-k = sum_{j != k} p_j F_j."""
        return self.without(np.arange(self.agents))

    def without(self, agents: NDArray[np.int64]) -> Floats:
        """(m, K) the mixes f_-k of these agents."""
        mixes = np.tile(self.weights, (agents.size, 1))
        mixes[np.arange(agents.size), agents] = 0.0
        return mixes


@final
class FederatedProblem(Agreed):
    """K agents whose samples are not here."""

    def __init__(
        self,
        weights: ArrayLike,
        *,
        size: int,
        regulariser: float,
        smoothness: float,
        strongly_convex: bool = True,
        gradient_bound: float | None = None,
        bounded: bool = False,
        precision: float = SINGLE,
        classes: int | None = None,
    ) -> None:
        """`smoothness` is L_g, or the inverse of the training step where the loss is not convex.

        `gradient_bound` is B; where the loss is not convex, or is `bounded`, it bounds gradients at any
        model, mu w aside. `precision` is tau, to which honest agents compute: in doubles 1e-9 is plenty,
        and catches more. `classes` says that the loss is that of a linear model on features of norm 1 at
        most: softmax regression, or least squares for 0; then more is known about it along a way.
        """
        self.weights = checks.shares("weights", weights)
        self.size = checks.whole("size", size)
        self.regulariser = checks.positive("regulariser", regulariser)
        self.strongly_convex, self._bounded = strongly_convex, bounded
        self._smooth = checks.positive("smoothness", smoothness)
        self._bound = (
            math.inf if gradient_bound is None else checks.positive("gradient_bound", gradient_bound)
        )
        self.precision = checks.between("precision", precision, DOUBLE, 0.1)
        self._classes = None if classes is None else checks.whole("classes", classes, at_least=0)
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

    def largest_gradient(self, norms: Floats) -> Floats:
        if self._bounded:
            return np.full(norms.shape, self._bound)
        return super().largest_gradient(norms)

    def third_derivative(self, directions: Floats) -> Floats:
        if self._classes is None:
            return super().third_derivative(directions)
        return spread(directions, self._classes) if self._classes else np.zeros(len(directions))


@final
class Members(Agreed):
    """Some of the agents, with their weights scaled to sum to 1; everything else is as for all."""

    def __init__(self, whole: Agreed, members: Sequence[int]) -> None:
        self._whole, self.members = whole, members_of(whole, members)
        self.weights = whole.weights[self.members] / whole.weights[self.members].sum()
        self.regulariser, self.size = whole.regulariser, whole.size
        self.strongly_convex, self.precision = whole.strongly_convex, whole.precision

    @property
    def smoothness(self) -> float:
        return self._whole.smoothness

    @property
    def gradient_bound(self) -> float:
        return self._whole.gradient_bound

    def largest_gradient(self, norms: Floats) -> Floats:
        return self._whole.largest_gradient(norms)

    def third_derivative(self, directions: Floats) -> Floats:
        return self._whole.third_derivative(directions)


def spread(directions: Floats, classes: int) -> Floats:
    """(m,) the largest distance between two classes' parts of each direction (m, d classes).

    Along d the logits of features x change by x·d_c for class c, so for |x| <= 1 no two of them drift apart
    faster than this. The second derivative of the cross-entropy is the variance of these numbers under the
    model's predictions, the third their third central moment: at most their range times the variance.
    """
    parts = directions.reshape(len(directions), -1, classes)
    apart = [((parts - parts[:, :, [c]]) ** 2).sum(1).max(1) for c in range(classes)]
    return np.asarray(np.sqrt(np.max(apart, axis=0)))


def members_of(whole: Agreed, members: Sequence[int]) -> NDArray[np.int64]:
    """The members in order; refuses fewer than two different ones."""
    who = np.array(sorted(members), dtype=np.int64)
    if who.size < 2 or np.unique(who).size != who.size or who[0] < 0 or who[-1] >= whole.agents:
        rule = f"must be two different agents or more in 0..{whole.agents - 1}"
        raise InvalidValue("members", rule, list(members))
    return who


def require_others(problem: Agreed) -> None:
    """Require at least two agents, and that no weight is all but 1."""
    if problem.agents < 2:
        raise InvalidValue(
            "problem", "must have two agents or more, for there to be others", problem.agents
        )
    if not others_count(problem):
        rule = f"must leave the others of every agent {LEAST_REST:g} or more of 1"
        raise InvalidValue("weights", rule, float(problem.weights.max()))


def others_count(problem: Agreed) -> bool:
    """Whether the others of every agent have a weight that can be computed with."""
    return bool((1 - problem.weights >= LEAST_REST).all())
