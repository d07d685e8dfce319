"""Exact payments: what each agent's presence costs the others (equation (10), theory C1, C4).

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
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bonafed import checks
from bonafed.checks import Floats
from bonafed.learning.problems.agreed import require_others
from bonafed.learning.problems.convex import Problem, RidgeRegression
from bonafed.learning.problems.minima import Descent, descend, descents, minima, minimise

__all__ = ["Payments", "minima", "minimise", "newton_payments", "payments_from", "vcg_payments"]


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
