"""The models that minimise weighted sums of the agents' losses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import NoSolution
from bonafed.learning.problems.convex import Problem, RidgeRegression, SoftmaxRegression
from bonafed.learning.problems.newton import Descent, descend

_STEPS = 100


def minimise(
    problem: Problem, mix: Floats, start: Floats | None = None, tolerance: float = 1e-12
) -> Floats:
    """(P,) the model that minimises sum_j mix_j F_j, by Newton's method with halved steps.

    It stops when the norm of the gradient is at most `tolerance`, or when rounding ends progress.
    """
    return np.asarray(minima(problem, mix[None], start, tolerance)[0])


def minima(
    problem: Problem, mixes: Floats, start: Floats | None = None, tolerance: float = 1e-12
) -> Floats:
    """(m, P) the same for every row of mixes (m, K), all in one batch."""
    if isinstance(problem, RidgeRegression):
        return problem.minimisers(mixes)
    begin = np.zeros(problem.size) if start is None else start
    return descents(problem, mixes, begin, np.full(len(mixes), tolerance)).models


def descents(problem: Problem, mixes: Floats, start: Floats, tolerance: Floats) -> Descent:
    """Newton's method for every row of mixes, until gradients are within the tolerance."""
    descent = descend(problem, mixes, start, steps=_STEPS, tolerance=tolerance)
    if not descent.converged:
        raise NoSolution(f"Newton's method did not converge in {_STEPS} steps")
    return descent


def models_alone(
    problem: Problem,
    tolerance: float = 1e-6,
    *,
    steps: int = 1000,
    start: Floats | None = None,
    agents: Sequence[int] | None = None,
    rate: float | None = None,
) -> Floats:
    """(a, P) the model of each of these agents on its own, by default of all.

    Strongly convex: F_k is certified to be within `tolerance` of its minimum. Otherwise `steps` plain
    gradient steps from `start`, of length 1/L_g or `rate`.
    """
    who = range(problem.agents) if agents is None else agents
    if problem.strongly_convex:
        norm = float(np.sqrt(2 * problem.regulariser * checks.positive("tolerance", tolerance)))
        if isinstance(problem, SoftmaxRegression):  # an agent's loss takes no pass over others' samples
            alone = np.ones((1, 1))
            return np.concatenate([minima(problem.only(k), alone, start, norm) for k in who])
        return minima(problem, np.stack([problem.one(k) for k in who]), start, norm)
    mix = np.stack([problem.one(k) for k in who])
    w = np.tile(np.zeros(problem.size) if start is None else start, (len(mix), 1))
    for _ in range(steps):
        g = problem.gradient(w, mix)
        w = w - g / problem.smoothness if rate is None else w - rate * g
    return np.asarray(w)
