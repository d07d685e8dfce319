"""Proposition 1: what a sampling profile does to the loss, and the step sizes it is stated for.

For L-smooth and mu-strongly convex losses, E local steps, stochastic gradients of squared norm at most
G_n^2 and variance at most sigma_n^2, and independent sampling with probabilities q_n,

    E[F(w^R)] - F* <= (1/R) (sum_n s_n/q_n + beta),

    s_n  = 8 L E G_n^2 / (mu^2 N^2)
    beta = 2L/(mu^2 E) D + 12 L^2/(mu^2 E) Gamma + 4 L^2/(mu E) |w_0 - w*|^2
    D    = sum_n (sigma_n/N)^2 + 8 E^2 (1/N) sum_n G_n^2

with learning rate 2/(max(8L, mu E) + mu (E r + i)) in local step i = 0, ..., E - 1 of round r = 0, 1, ...

Erratum S-E8: (2) has G for G_n, p_n is 1/N, and the bound uses 1/q where the proof has (1 - q)/q, which
drops a constant. Erratum S-E11: the bound is that of iterations t = E r + i, the printed rate is by rounds,

    printed    2/(max(8L, mu E) + mu r), the same in all steps of a round,

with which the terms of D and Gamma come out E^2/(2E - 1) times as large as stated, about E/2. A rate that
counts iterations and is kept constant within a round, 2/(max(8L, mu E) + mu E r), lies between: the
induction that proves the bound goes through a round if max(8 L/mu, E) + E r is at least E^2/3, about. That
is every round where E <= 4 and all but the first E/3 in any case; with those, the terms are at most 1.19
times as large as stated (`docs/theory/sampling.md`, A5).

With memory (`learning.server`) what sampling adds is the variance of update_n - g y_n, so that H_n stands
for G_n in s_n: E|update_n - g y_n|^2 <= 4 eta^2 E^2 H_n^2. Whatever clients send, H_n = (1 + g kappa_n) G_n
will do, kappa_n^2 = 1 + 2/q_n + (2 - q_n)/q_n^2 (A5); the more alike a client's updates are, the less.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue

RateVariant = Literal["corrected", "printed"]


@dataclass(frozen=True, slots=True, eq=False, init=False)
class ConvergenceModel:
    """The constants of Proposition 1 for a federation of N clients."""

    smoothness: float  # L
    strong_convexity: float  # mu, 0 < mu <= L
    local_steps: int  # E
    gradient_bounds: Floats  # (N,) G_n
    gradient_noise: Floats  # (N,) sigma_n
    heterogeneity: float  # Gamma = F* - mean of the clients' own minima, >= 0
    initial_distance: float  # |w_0 - w*|
    correction_bounds: Floats  # (N,) H_n; without memory G_n

    def __init__(
        self,
        smoothness: float,
        strong_convexity: float,
        local_steps: int,
        gradient_bounds: ArrayLike,
        gradient_noise: ArrayLike | None = None,
        heterogeneity: float = 0.0,
        initial_distance: float = 0.0,
        correction_bounds: ArrayLike | None = None,
    ) -> None:
        def put(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        put("smoothness", checks.positive("smoothness", smoothness))
        put("strong_convexity", checks.positive("strong_convexity", strong_convexity))
        if self.strong_convexity > self.smoothness:
            raise InvalidValue(
                "strong_convexity",
                f"must not exceed smoothness = {self.smoothness:g}",
                self.strong_convexity,
            )
        put("local_steps", checks.whole("local_steps", local_steps))
        put("gradient_bounds", checks.vector("gradient_bounds", gradient_bounds, sign="positive"))
        n = self.gradient_bounds.size
        noise = np.zeros(n) if gradient_noise is None else gradient_noise
        put("gradient_noise", checks.vector("gradient_noise", noise, length=n))
        put("heterogeneity", checks.non_negative("heterogeneity", heterogeneity))
        put("initial_distance", checks.non_negative("initial_distance", initial_distance))
        bounds = self.gradient_bounds if correction_bounds is None else correction_bounds
        put("correction_bounds", checks.vector("correction_bounds", bounds, sign="positive", length=n))

    @property
    def clients(self) -> int:
        """N."""
        return self.gradient_bounds.size

    @property
    def data_weights(self) -> Floats:
        """(N,) s_n = 8 L E H_n^2/(mu^2 N^2): what a missing client costs; give it to `plan`."""
        scale = 8 * self.smoothness * self.local_steps / self.strong_convexity**2
        return scale * (self.correction_bounds / self.clients) ** 2

    @property
    def constant(self) -> float:
        """beta: the part of the bound that sampling cannot change."""
        lip, mu, steps = self.smoothness, self.strong_convexity, self.local_steps
        spread = float(np.sum((self.gradient_noise / self.clients) ** 2)) + 8 * steps**2 * float(
            np.mean(self.gradient_bounds**2)
        )
        return (
            2 * lip / (mu**2 * steps) * spread
            + 12 * lip**2 / (mu**2 * steps) * self.heterogeneity
            + 4 * lip**2 / (mu * steps) * self.initial_distance**2
        )

    def bound(self, probability: ArrayLike, rounds: int) -> float:
        """The bound of Proposition 1 after `rounds` rounds for sampling probabilities q_n."""
        q = checks.vector("probability", probability, sign="positive", length=self.clients)
        if q.max() > 1:
            raise InvalidValue("probability", "must not exceed 1", float(q.max()))
        return self.bound_for(float(np.sum(self.data_weights / q)), rounds)

    def bound_for(self, sampling_term: float, rounds: int) -> float:
        """The bound for a given sum (or expected sum) of s_n/q_n."""
        term = checks.non_negative("sampling_term", sampling_term)
        return (term + self.constant) / checks.whole("rounds", rounds)

    def learning_rate(
        self, round_number: ArrayLike, step: ArrayLike = 0, variant: RateVariant = "corrected"
    ) -> Floats:
        """2/(max(8L, mu E) + mu (E r + i)) of local step i = 0, ..., E - 1 in round r = 0, 1, ...

        "printed" is 2/(max(8L, mu E) + mu r) whatever the step: the bound does not hold with it (S-E11).
        """
        checks.literal("variant", variant, RateVariant)
        r, i = np.asarray(round_number, dtype=np.float64), np.asarray(step, dtype=np.float64)
        mu, steps = self.strong_convexity, self.local_steps
        if i.size and not (i.min() >= 0 and i.max() < steps):
            raise InvalidValue("step", f"must be in 0..{steps - 1}, the local steps", step)
        counted = steps * r + i if variant == "corrected" else r + 0 * i
        return np.asarray(2 / (max(8 * self.smoothness, mu * steps) + mu * counted))


def remembered_bounds(gradient_bounds: ArrayLike, probability: ArrayLike, memory_weight: float) -> Floats:
    """(N,) H_n = (1 + g kappa_n) G_n: bounds on corrections that hold whatever clients send (A5).

    >>> remembered_bounds([1.0, 1.0], [1.0, 0.5], memory_weight=0.5).round(3)
    array([2.   , 2.658])
    """
    bounds = checks.vector("gradient_bounds", gradient_bounds, sign="positive")
    q = checks.vector("probability", probability, sign="positive", length=bounds.size)
    kappa = np.sqrt(1 + 2 / q + (2 - q) / q**2)
    return np.asarray((1 + checks.between("memory_weight", memory_weight, 0.0, 1.0) * kappa) * bounds)


def proposition_1_rates(
    smoothness: float,
    strong_convexity: float,
    local_steps: int,
    round_number: int,
    variant: RateVariant = "corrected",
) -> Floats:
    """(E,) learning rates of Proposition 1 in the local steps of round 1, 2, ...

    Corrected (S-E11) 2/(max(8L, mu E) + mu (E r + i)), i = 0, ..., E - 1; printed 2/(max(8L, mu E) + mu r)
    in all of them; with r = 0 in the first round.

    >>> proposition_1_rates(smoothness=1.0, strong_convexity=0.5, local_steps=4, round_number=2).round(4)
    array([0.2   , 0.1905, 0.1818, 0.1739])
    >>> proposition_1_rates(1.0, 0.5, 4, 2, variant="printed").round(4)
    array([0.2353, 0.2353, 0.2353, 0.2353])
    """
    # the rate does not depend on the gradient bounds, which the model also holds
    model = ConvergenceModel(smoothness, strong_convexity, local_steps, gradient_bounds=[1.0])
    before = checks.whole("round_number", round_number) - 1
    return model.learning_rate(before, np.arange(model.local_steps), variant)
