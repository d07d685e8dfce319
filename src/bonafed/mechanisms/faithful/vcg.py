"""Exact payments: what each agent's presence costs the others (equation (10), spec A.1, A.3).

    P_k = [f_-k(w*) - min f_-k]/p_k >= 0,      f_-k = sum_{j != k} p_j F_j

An agent's overall loss is then J_k = P_k + F_k(w) = [F(w) - min f_-k]/p_k. The last term does not depend on
what k reports, so k wants what the federation wants, and reporting the truth is its best choice.

    exact         Newton's method for every f_-k, started at w*
    two steps     two Newton steps with conjugate gradients, for models whose Hessian is too large to form;
                  the LOSS DIFFERENCE at the end, not the quadratic model (spec A.3)
    ridge         one linear solve per agent

Every payment carries a certified error: strong convexity bounds what is left of f_-k by its gradient,
0 <= f_-k(W) - min f_-k <= |grad f_-k(W)|^2/(2 (1 - p_k) mu).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import NoSolution
from bonafed.mechanisms.faithful.problems import Problem, RidgeRegression

_STEPS = 100


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


def minimise(
    problem: Problem, mix: Floats, start: Floats | None = None, tolerance: float = 1e-12
) -> Floats:
    """(P,) the model that minimises sum_j mix_j F_j, by Newton's method with halved steps."""
    if isinstance(problem, RidgeRegression):
        return problem.minimiser(mix)
    w = np.zeros(problem.size) if start is None else start.copy()
    value, g = problem.value(w, mix), problem.gradient(w[None], mix[None])[0]
    for _ in range(_STEPS):
        if float(np.linalg.norm(g)) <= tolerance:
            return w
        direction = np.linalg.solve(problem.hessian(w, mix), g)
        step, slope = 1.0, float(g @ direction)
        at_rounding = slope <= 1e-13 * (1 + abs(value))  # values cannot tell any more, gradients can
        found = problem.value(w - direction, mix)
        while not at_rounding and found > value - 1e-4 * step * slope:
            step /= 2
            found = problem.value(w - step * direction, mix)
        moved = w - step * direction
        following = problem.gradient(moved[None], mix[None])[0]
        if at_rounding and np.linalg.norm(following) >= np.linalg.norm(g):
            return w
        w, value, g = moved, found, following
    raise NoSolution(f"Newton's method did not converge in {_STEPS} steps")


def vcg_payments(problem: Problem, model: Floats, tolerance: float = 1e-12) -> Payments:
    """The payments (10) for a shared model, exactly (to rounding)."""
    mixes = problem.without_each()
    models = np.stack([minimise(problem, mix, model, tolerance) for mix in mixes])
    return payments_from(problem, model, models, steps=_STEPS)


def newton_payments(problem: Problem, model: Floats, steps: int = 2, tolerance: float = 1e-10) -> Payments:
    """A few Newton steps per agent by conjugate gradients: products with the Hessian only."""
    from scipy.sparse.linalg import LinearOperator, cg

    turns = checks.whole("steps", steps)
    models = np.tile(model, (problem.agents, 1))
    mixes = problem.without_each()
    for _ in range(turns):
        gradients = problem.gradient(models, mixes)
        for k, mix in enumerate(mixes):
            at = models[k].copy()

            def product(x: Floats, at: Floats = at, mix: Floats = mix) -> Floats:
                return problem.hessian_product(at, mix, np.ravel(x))

            operator = LinearOperator((problem.size, problem.size), matvec=product, dtype=np.float64)
            direction, _ = cg(operator, gradients[k], rtol=tolerance, maxiter=problem.size)
            models[k] -= direction
    return payments_from(problem, model, models, turns)


def payments_from(problem: Problem, model: Floats, models: Floats, steps: int) -> Payments:
    """What the others lose by the shared model against the one without each agent, with a certificate."""
    mixes, p = problem.without_each(), problem.weights
    shared = problem.losses(model[None])[0]
    alone = problem.losses(models)
    amount = ((shared - alone) * mixes).sum(1) / p
    gradients = problem.gradient(models, mixes)
    left = (gradients**2).sum(1) / (2 * (1 - p) * problem.regulariser) / p
    return Payments(amount, left, models, steps)
