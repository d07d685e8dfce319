"""The models that minimise weighted sums of the agents' losses: min_w sum_j mix_ij F_j(w), i = 1..m.

A step is W - d, where d is close to the Newton step, H d = G. It is found in one of two ways:

    (free)   by a stand-in for the inverse Hessian, one for the whole batch, corrected for each problem by
             what its last steps did to its gradient (limited-memory BFGS); no product with a Hessian
    (CG)     by conjugate gradients that the stand-in preconditions, to a relative residual; a product with
             the Hessians of all m problems is one pass over the samples (`Expansion.product`)

Unless an accuracy is required, steps are free as long as they pay: while at most _PACE of the gradient
remains. The pass that measures losses and gradients at the new models is then the only one of a step.

A step is halved until it descends (Armijo, _ENOUGH), so any start will do. Problems that are solved leave
the batch. Through the stand-in, problems in a batch affect each other's results, but within tolerance only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import NoSolution
from bonafed.learning.problems.convex import Precondition, Problem, RidgeRegression, one_thread
from bonafed.learning.problems.softmax import SoftmaxRegression

Ints = NDArray[np.int64]
_PACE = 0.3  # share of the gradient's norm that a free step may leave for the next one to be free
_LOOSE = 0.1  # share of the residual that conjugate gradients may leave if no accuracy is required
_PAIRS = 8  # past steps that correct the stand-in
_STRAIGHT = 1e-6  # cosine of a step and its change of gradient below which the pair is just rounding
_WORN = 8  # products after which the stand-in is renewed
_ENOUGH = 1e-4  # of the promised descent
_ROUNDING = 1e-13  # relative: a promised descent below this does not show in values any more


@dataclass(frozen=True, slots=True, eq=False)
class Descent:
    """Where m descents ended."""

    models: Floats  # (m, P)
    losses: Floats  # (m, K) F_j there
    gradients: Floats  # (m, P) of each one's own sum
    steps: int  # the most Newton steps any of them took
    products: int  # passes over the samples for products with Hessians
    converged: bool  # all of them: gradient within the tolerance, or at rounding


@one_thread()
def descend(
    problem: Problem,
    mixes: Floats,
    start: Floats,
    *,
    steps: int,
    tolerance: Floats,
    accuracy: float | None = None,
) -> Descent:
    """At most `steps` Newton steps for every row of mixes (m, K), from one start (P,).

    A problem is done when its gradient's norm is at most its `tolerance`, (m,). `accuracy` is the relative
    residual at which a step counts as solved; without one, steps are only as accurate as pays off.
    """
    size = problem.models_per_batch
    parts = [
        _Batch(problem, mixes[i : i + size], start, tolerance[i : i + size]).run(steps, accuracy)
        for i in range(0, len(mixes), size)
    ]
    if len(parts) == 1:
        return parts[0]
    return Descent(
        np.concatenate([part.models for part in parts]),
        np.concatenate([part.losses for part in parts]),
        np.concatenate([part.gradients for part in parts]),
        max(part.steps for part in parts),
        sum(part.products for part in parts),
        all(part.converged for part in parts),
    )


class _Batch:
    """The state of a few descents; rows are problems."""

    def __init__(self, problem: Problem, mixes: Floats, start: Floats, tolerance: Floats) -> None:
        self.problem, self.mixes, self.tolerance = problem, mixes, tolerance
        self.models = np.tile(start, (len(mixes), 1))
        self.here = problem.expand(start[None], mixes)  # around the models of these rows
        self.rows = np.arange(len(mixes))
        self.losses, self.gradients = self.here.losses.copy(), self.here.gradients.copy()
        self.norms = np.linalg.norm(self.gradients, axis=1)
        self.fall = np.zeros(len(mixes))  # norm after the last step over norm before
        self.stuck = np.zeros(len(mixes), dtype=bool)  # at rounding: no step improves
        self.stand_in: Precondition | None = None
        self.scale = 1.0  # total weight of the mix it was made for
        self.worn = _WORN + 1
        self.pairs: list[tuple[Floats, Floats, Floats]] = []  # steps (m, P), changes (m, P), 1/product (m,)

    def run(self, steps: int, accuracy: float | None) -> Descent:
        """Step until every row is solved, or `steps` are taken."""
        count = products = 0
        while True:
            open_rows = (self.norms > self.tolerance) & ~self.stuck
            which = np.flatnonzero(open_rows[self.rows])
            if not which.size or count == steps:
                break
            if self.worn > _WORN:
                self._renew(self.rows[which])
            directions = self._directions(which, accuracy)
            products += self.worn
            self._move(self.rows[which], directions)
            count += 1
        return Descent(self.models, self.losses, self.gradients, count, products, not which.size)

    def _renew(self, rows: Ints) -> None:
        """Make a new stand-in at the mean of the models."""
        mix = self.mixes[rows].mean(0)
        try:
            self.stand_in = self.problem.preconditioner(self.models[rows].mean(0), mix)
        except np.linalg.LinAlgError:  # so flat that, once rounded, it is not positive definite
            self.stand_in = None
        self.scale = float(mix.sum())

    def _directions(self, which: Ints, accuracy: float | None) -> Floats:
        """(a, P) for places `which` of the expansion; counts its products in `worn`."""
        rows = self.rows[which]
        right, norms = self.gradients[rows], self.norms[rows]
        result, self.worn = np.empty_like(right), 0
        free = np.zeros(rows.size, dtype=bool)
        if accuracy is None and self.stand_in is not None:
            free = self.fall[rows] <= _PACE
            if free.any():
                result[free] = self._free(rows[free], self.stand_in)
        hard = np.flatnonzero(~free)
        if hard.size:
            goal = np.full(hard.size, accuracy) if accuracy is not None else self._goal(rows[hard])

            def product(directions: Floats, live: Ints) -> Floats:
                return self.here.product(directions, which[hard[live]])

            result[hard], self.worn = solve(product, self.stand_in, right[hard], goal * norms[hard])
        return result

    def _free(self, rows: Ints, stand_in: Precondition) -> Floats:
        """The two loops of limited-memory BFGS around the stand-in; pairs of factor 0 change nothing."""
        q, corrections = self.gradients[rows], []
        for s, y, factor in reversed(self.pairs):
            a = factor[rows] * (s[rows] * q).sum(1)
            q = q - a[:, None] * y[rows]
            corrections.append(a)
        z = (self.scale / self.mixes[rows].sum(1))[:, None] * stand_in(q)
        for (s, y, factor), a in zip(self.pairs, reversed(corrections), strict=True):
            b = factor[rows] * (y[rows] * z).sum(1)
            z = z + (a - b)[:, None] * s[rows]
        return np.asarray(z)

    def _remember(self, rows: Ints, models: Floats, gradients: Floats) -> None:
        """What the step of these rows did to their gradients."""
        s, y = np.zeros_like(self.models), np.zeros_like(self.models)
        s[rows], y[rows] = models - self.models[rows], gradients - self.gradients[rows]
        product = (s * y).sum(1)
        good = product > _STRAIGHT * np.linalg.norm(s, axis=1) * np.linalg.norm(y, axis=1)
        self.pairs.append((s, y, np.where(good, 1 / np.where(good, product, 1.0), 0.0)))
        del self.pairs[:-_PAIRS]

    def _goal(self, rows: Ints) -> Floats:
        """Relative residuals: the root of the gradient's norm, but no more accurate than needed."""
        norms = self.norms[rows]
        return np.asarray(
            np.maximum(np.minimum(_LOOSE, np.sqrt(norms)), 0.5 * self.tolerance[rows] / norms)
        )

    def _move(self, rows: Ints, directions: Floats) -> None:
        """One step along -directions, halved where it does not descend."""
        mixes, problem = self.mixes[rows], self.problem
        values = (self.losses[rows] * mixes).sum(1)
        slopes = (self.gradients[rows] * directions).sum(1)
        rounding = slopes <= _ROUNDING * (1 + np.abs(values))  # values no longer tell, gradients do
        lengths, models, halved = np.ones(rows.size), self.models[rows] - directions, False
        there = problem.expand(models, mixes)
        new_values = (there.losses * mixes).sum(1)
        while (far := ~rounding & ~(new_values <= values - _ENOUGH * lengths * slopes)).any():
            lengths[far] /= 2
            models[far] = self.models[rows[far]] - lengths[far, None] * directions[far]
            new_values[far] = (problem.losses(models[far]) * mixes[far]).sum(1)
            halved = True
        if halved:
            there = problem.expand(models, mixes)
        norms = np.linalg.norm(there.gradients, axis=1)
        self.fall[rows] = norms / self.norms[rows]
        better = ~rounding | (norms < self.norms[rows])
        self.stuck[rows[~better]] = True
        moved = rows[better]
        self._remember(moved, models[better], there.gradients[better])
        self.models[moved], self.losses[moved] = models[better], there.losses[better]
        self.gradients[moved], self.norms[moved] = there.gradients[better], norms[better]
        self.here, self.rows = there, rows


def solve(
    product: Callable[[Floats, Ints], Floats],
    precondition: Precondition | None,
    right: Floats,
    residual: Floats,
) -> tuple[Floats, int]:
    """Conjugate gradients for m systems at once until |right_i - H_i x_i| <= residual_i; and the products.

    `product(x, rows)` is H_i x_i for the given rows. Where H is not positive along a direction (the problem
    is not convex), the solution so far is kept, or the direction itself if there is none yet.
    """
    x, turns = np.zeros_like(right), 0
    live = np.flatnonzero(np.linalg.norm(right, axis=1) > residual)
    r = right[live]
    z = r if precondition is None else precondition(r)
    d, power = z, (r * z).sum(1)
    while live.size and turns < 2 * right.shape[1]:  # rounding may cost more than one turn per number
        h = product(d, live)
        bend = (d * h).sum(1)
        turns += 1
        flat = bend <= 0
        if turns == 1:
            x[live[flat]] = d[flat]
        live, r, d, h, power, bend = (a[~flat] for a in (live, r, d, h, power, bend))
        step = (power / bend)[:, None]
        x[live] += step * d
        r = r - step * h
        on = np.linalg.norm(r, axis=1) > residual[live]
        live, r, d, power = live[on], r[on], d[on], power[on]
        if live.size:
            z = r if precondition is None else precondition(r)
            following = (r * z).sum(1)
            d, power = z + (following / power)[:, None] * d, following
    return x, turns


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
