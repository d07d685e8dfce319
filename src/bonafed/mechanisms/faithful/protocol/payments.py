"""What agents owe: exact payments, cheaper ones by clusters, and the outcome of a protocol (theory C1, C4).

An agent pays what its presence costs the others, equation (10):

    P_k = [f_-k(w*) - min f_-k]/p_k >= 0,      f_-k = sum_{j != k} p_j F_j

An agent's overall loss is then J_k = P_k + F_k(w) = [F(w) - min f_-k]/p_k. The last term does not depend on
what k reports, so k wants what the federation wants, and reporting the truth is its best choice.

    exact         Newton's method for every f_-k, started at w*, all in one batch (`newton`), to rounding or
                  to a certified error
    two steps     two Newton steps, each with its own Hessian; the LOSS DIFFERENCE at the end, not the
                  quadratic model. A model that is off by delta makes the payment off by delta^2,
                  so that the linear systems need not be solved exactly either
    ridge         one linear solve per agent

Every payment carries a certified error: strong convexity bounds what is left of f_-k by its gradient,
0 <= f_-k(W) - min f_-k <= |grad f_-k(W)|^2/(2 (1 - p_k) mu).

Fewer models suffice where agents are in clusters (Definition 5, Theorem 2). With clusters C_1..C_L, all
agents of C_l are measured against the model trained without the whole cluster:

    P_k = [f_-k(w*) - f_-k(w_l)]/p_k,   w_l = argmin of the sum over agents NOT in C_l.

The pivot term still does not depend on k's report, so incentives survive for any L (Groves). Budget balance
does not: w_l is not the best model for f_-k, so P_k is at most the VCG payment and becomes negative; with
few clusters the server pays everybody (erratum F-D11). The safe choice is L = K, the default everywhere.

`FaithfulOutcome` is what every variant of the protocol ends with: a model, payments, and their errors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue
from bonafed.learning.problems.agreed import require_others
from bonafed.learning.problems.convex import Problem, RidgeRegression
from bonafed.learning.problems.minima import Descent, descend, descents, minima


@dataclass(frozen=True, slots=True, eq=False)
class Payments:
    """What each agent owes; money in units of loss."""

    amount: Floats  # (K,)
    error: Floats  # (K,) the VCG payment is between `amount` and `amount` + this, unless stated otherwise
    models: Floats  # (K, P) the leave-one-out models they were computed from
    steps: int  # largest number of steps any of them took

    @property
    def total(self) -> float:
        """What the server collects; >= 0 for exact payments (budget balance)."""
        return float(self.amount.sum())


def vcg_payments(
    problem: Problem, model: Floats, tolerance: float = 1e-12, epsilon: float | None = None
) -> Payments:
    """The payments (10) for a shared model, exactly (to rounding), or to a certified error `epsilon`.

    `tolerance` is the norm of the gradient of f_-k at which the model without k counts as found; `epsilon`,
    in units of loss, takes its place with the norm that certifies it.
    """
    require_others(problem)
    mixes = problem.without_each()
    if isinstance(problem, RidgeRegression):
        return payments_from(problem, model, minima(problem, mixes), steps=1)
    norms = np.full(problem.agents, checks.positive("tolerance", tolerance))
    if epsilon is not None:
        norms = np.sqrt(checks.positive("epsilon", epsilon) / _certificate(problem))
    return _payments(problem, model, descents(problem, mixes, model, norms))


def newton_payments(problem: Problem, model: Floats, steps: int = 2, tolerance: float = 1e-10) -> Payments:
    """A few Newton steps per agent by conjugate gradients: products with the Hessian only.

    `tolerance` is the relative residual at which a step's linear system counts as solved.
    """
    require_others(problem)
    turns, close = checks.whole("steps", steps), checks.positive("tolerance", tolerance)
    mixes, never = problem.without_each(), np.zeros(problem.agents)
    return _payments(
        problem, model, descend(problem, mixes, model, steps=turns, tolerance=never, accuracy=close)
    )


def payments_from(problem: Problem, model: Floats, models: Floats, steps: int) -> Payments:
    """What the others lose by the shared model against the one without each agent, with a certificate."""
    gradients = problem.gradient(models, problem.without_each())
    return _payments(problem, model, Descent(models, problem.losses(models), gradients, steps, 0, True))


def _payments(problem: Problem, model: Floats, descent: Descent) -> Payments:
    mixes, p = problem.without_each(), problem.weights
    losses = problem.losses(model[None])[0]
    amount = ((losses - descent.losses) * mixes).sum(1) / p
    return Payments(
        amount, _certificate(problem) * (descent.gradients**2).sum(1), descent.models, descent.steps
    )


def _certificate(problem: Problem) -> Floats:
    """(K,) what a squared gradient norm of f_-k leaves of a payment at most."""
    p = problem.weights
    return np.asarray(1 / (2 * (1 - p) * problem.regulariser * p))


Clusters = Sequence[NDArray[np.int64]]


def random_clusters(agents: int, clusters: int, rng: np.random.Generator) -> list[NDArray[np.int64]]:
    """A random partition of the agents into clusters of about equal size."""
    k, count = checks.whole("agents", agents), checks.whole("clusters", clusters)
    if count > k:
        raise InvalidValue("clusters", f"must be at most the number of agents, {k}", count)
    order = rng.permutation(k)
    return [order[start::count] for start in range(count)]


def cluster_of(clusters: Clusters, agents: int) -> NDArray[np.int64]:
    """(K,) the cluster of every agent; refuses what is not a partition."""
    numbers = np.full(agents, -1, dtype=np.int64)
    for number, members in enumerate(clusters):
        if (np.asarray(members) < 0).any() or (np.asarray(members) >= agents).any():
            raise InvalidValue("clusters", f"must hold agents 0..{agents - 1}", list(map(int, members)))
        if (numbers[members] >= 0).any():
            raise InvalidValue("clusters", "must not share an agent", list(map(int, members)))
        numbers[members] = number
    if (numbers < 0).any():
        raise InvalidValue(
            "clusters", "must hold every agent", f"agent {int(np.argmin(numbers))} is missing"
        )
    return numbers


def cluster_payments(
    problem: Problem, model: Floats, clusters: Clusters, tolerance: float = 1e-12
) -> Payments:
    """Definition 5 with exactly minimised cluster models; `total` may be negative (F-D11)."""
    of = cluster_of(clusters, problem.agents)
    if len(clusters) == 1:
        raise InvalidValue("clusters", "must be at least 2: without everybody there is no model", 1)
    mixes = np.where(of == np.arange(len(clusters))[:, None], 0.0, problem.weights)
    return payments_from(problem, model, minima(problem, mixes, model, tolerance)[of], steps=0)


def cluster_count(
    agents: int, smoothness: float, gradient_bound: float, strong_convexity: float, epsilon: float
) -> int:
    """Theorem 2, (46): clusters that keep payments within epsilon of VCG; a whole number, so rounded up.

    >>> cluster_count(10, smoothness=1.0, gradient_bound=1.0, strong_convexity=0.5, epsilon=1.0)
    5
    """
    k = checks.whole("agents", agents)
    l_g, l_f = checks.positive("smoothness", smoothness), checks.positive("gradient_bound", gradient_bound)
    mu, eps = checks.positive("strong_convexity", strong_convexity), checks.positive("epsilon", epsilon)
    return min(k, math.ceil(math.sqrt(l_g * (k - 1) / (2 * eps)) * l_f / mu - 1e-9))


BadReportPolicy = Literal["raise", "leave out"]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """An agent the protocol went on without: its data are not in the model, and it owes nothing."""

    agent: int
    where: str  # the step of its bad report
    problem: str
    due: float  # what it owes instead if it keeps the last model it was sent, the first of its message


@dataclass(frozen=True, slots=True, eq=False)
class FaithfulOutcome:
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
