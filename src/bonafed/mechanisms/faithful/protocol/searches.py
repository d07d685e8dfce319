"""The minimum of a convex function from its gradients, in few requests (L-BFGS without function values).

A function f is mu-strongly convex and L-smooth; a request is one or several models, the answers are the
gradients there. Steps and the changes of the gradient along them, (s, y), make up an approximate inverse H
of the Hessian (Nocedal 1980), and the next model is x - H g. There are no values to compare, so

    accepted     a step s counts as progress if g+·s <= 0.9 |g·s|: for a convex f, along the step, either
                 f still falls at its end or most of the fall is kept. A step that is not accepted leaves
                 the model where it is, but its pair (s, y) is known now, and the next one differs
    first        without a pair the scale is unknown: plain steps 1/L, 4/L, 16/L and 64/L in one request
    near         no step is longer than |g|/mu: the minimum is not farther away
    careful      if |g| has not halved in twelve requests, every further one holds, until it has, the plain
                 step x - g/L from the model of the smallest |g| so far as well, and every twelve requests
                 the search goes back to that model

A plain step shrinks |g| by 1 - mu/L at least, even if the answers are sums of reports that are gradients of
nothing but pass the checks of theory C3.4 (C3.6). So a search of which nothing can be said falls back to
plain steps by itself, and whoever answers consistently cannot keep it from its end: the smallest |g| halves
within 12 + ln 2 L/mu requests. If it does not in twice that, the search is `stuck`.

A search is a frozen value; `trials` are the models of the next request and `after` the search that follows.

`TrainingLog` keeps what agents reported in training; from it searches without each agent begin warm. Its
weighted sums are added one by one, which gives the same digits on any machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from bonafed.checks import Floats
from bonafed.learning.problems.convex import Ints, tiles

MEMORY = 30  # pairs
FIRST = (1.0, 4.0, 16.0, 64.0)  # lengths of the first step, over L
PATIENCE = 12  # requests in which |g| halves, or the search becomes careful
_KEEPS = 0.9  # an accepted step: its slope at the end is at most this part of that at its beginning


class Curvature(NamedTuple):
    """What is known of the function."""

    convexity: float  # mu
    smoothness: float  # L


@dataclass(frozen=True, slots=True, eq=False)
class QuasiNewtonSearch:
    """How far the search has come."""

    model: Floats  # (P,) x
    gradient: Floats  # (P,) g
    best_model: Floats  # (P,) of the smallest |g| so far
    best_gradient: Floats  # (P,)
    steps: Floats  # (n, P) s of the pairs, the last ones at the end
    changes: Floats  # (n, P) y
    mark: float  # |g| when it last halved
    since: int = 0  # requests since then

    @classmethod
    def at(
        cls, model: Floats, gradient: Floats, steps: Floats | None = None, changes: Floats | None = None
    ) -> QuasiNewtonSearch:
        """From a model whose gradient is known, with pairs (n, P) if some are."""
        none = np.zeros((0, model.size))
        s, y = (none, none) if steps is None or changes is None else (steps, changes)
        return cls(model, gradient, model, gradient, s[-MEMORY:], y[-MEMORY:], norm(gradient))

    @property
    def norm(self) -> float:
        """The smallest |g| so far."""
        return norm(self.best_gradient)

    @property
    def careful(self) -> bool:
        """Whether requests hold a plain step as well."""
        return self.since >= PATIENCE

    def stuck(self, curvature: Curvature) -> bool:
        """Whether |g| takes longer to halve than it can with consistent answers."""
        return self.since > 2 * (PATIENCE + math.log(2) * curvature.smoothness / curvature.convexity)

    def trials(self, curvature: Curvature) -> Floats:
        """(t, P) the models of the next request."""
        if not len(self.steps):
            plain = -self.gradient / curvature.smoothness
            return np.stack([self.model + length * plain for length in FIRST])
        step = _direction(self.gradient, self.steps, self.changes)
        most = norm(self.gradient) / curvature.convexity
        step = step * min(1.0, most / max(norm(step), math.ulp(0.0)))
        trials = [self.model + step]
        if self.careful:
            trials.append(self.best_model - self.best_gradient / curvature.smoothness)
        return np.stack(trials)

    def after(
        self, models: Floats, gradients: Floats, target: float
    ) -> tuple[QuasiNewtonSearch, Sequence[int]]:
        """The search after an answer, and which trials make pairs with the model they began at.

        The answer is the gradients (t, P) of the trials; at a norm of `target` the search would end.
        """
        norms = [norm(g) for g in gradients]
        least = int(np.argmin(norms))
        known = self
        if norms[least] < self.norm:
            known = replace(known, best_model=models[least], best_gradient=gradients[least])
        own = len(models) - self.careful  # the last one is the plain step from elsewhere
        chosen, accepted = self._choose(models[:own], gradients[:own], target)
        known = replace(
            known, steps=np.concatenate([self.steps, models[[chosen]] - self.model])[-MEMORY:],
            changes=np.concatenate([self.changes, gradients[[chosen]] - self.gradient])[-MEMORY:],
        )  # fmt: skip
        if accepted:
            known = replace(known, model=models[chosen], gradient=gradients[chosen])
        halved = known.norm <= self.mark / 2
        since = 0 if halved else self.since + 1
        known = replace(known, mark=known.norm if halved else self.mark, since=since)
        if since and since % PATIENCE == 0:
            known = replace(known, model=known.best_model, gradient=known.best_gradient)
        return known, [chosen]

    def _choose(self, models: Floats, gradients: Floats, target: float) -> tuple[int, bool]:
        """Which trial to go on with, and whether it is accepted as the next model."""
        norms = [norm(g) for g in gradients]
        least = int(np.argmin(norms))
        if norms[least] <= target:
            return least, True
        ways = models - self.model
        ends, begins = (gradients * ways).sum(1), (ways * self.gradient).sum(1)
        kept = np.abs(ends) / np.maximum(np.linalg.norm(ways, axis=1), math.ulp(0.0))
        chosen = int(np.argmin(kept))
        return chosen, bool(begins[chosen] < 0 and ends[chosen] <= -_KEEPS * begins[chosen])


def norm(vector: Floats) -> float:
    """|v|, by sums that do not depend on the number of threads."""
    return math.sqrt(float((vector * vector).sum()))


def _direction(gradient: Floats, steps: Floats, changes: Floats) -> Floats:
    """-H g by the two loops over the pairs; pairs without curvature say nothing, and are left out."""
    bends = (steps * changes).sum(1)
    useful = bends > 0
    s, y, bend = steps[useful], changes[useful], bends[useful]
    q, shares = -gradient, np.zeros(len(s))
    for i in range(len(s) - 1, -1, -1):
        shares[i] = float((s[i] * q).sum()) / bend[i]
        q = q - shares[i] * y[i]
    if len(s):
        q = q * (bend[-1] / float((y[-1] * y[-1]).sum()))
    for i in range(len(s)):
        q = q + s[i] * (shares[i] - float((y[i] * q).sum()) / bend[i])
    return q


def mixed(mix: Floats, reports: Floats) -> Floats:
    """(m, P) sum_j mix_j reports_ij of reports (m, K, P)."""
    total = np.zeros((reports.shape[0], reports.shape[2]))
    for k in np.flatnonzero(mix):
        total += mix[k] * reports[:, k]
    return total


def without_each(weights: Floats, reports: Floats) -> Floats:
    """(k, m, P) the same sums without each of the agents that have a weight, digit for digit.

    What comes before an agent is added up once for all agents behind it, so that K sums of K - 1 reports
    are K steps.
    """
    who = np.flatnonzero(weights)
    sums, before = np.empty((who.size, reports.shape[0], reports.shape[2])), np.zeros_like(reports[:, 0])
    for row, k in enumerate(who.tolist()):
        part = weights[k] * reports[:, k]
        sums[row] = before
        sums[:row] += part
        before += part
    return sums


_LONG = 4 * MEMORY  # models of the training whose reports are kept
_AT_ONCE = 1 << 22  # numbers of sums without each agent that are formed at a time


@dataclass(frozen=True, slots=True, eq=False)
class TrainingLog:
    """What was asked and answered in training."""

    models: Floats  # (m, P)
    reports: Floats  # (m, K, P) of every agent
    origins: Ints  # (m,) the model a step began at; -1: the row makes no pair

    def row_of(self, model: Floats) -> int:
        """The row of a model."""
        return int(np.flatnonzero((self.models == model).all(1))[0])

    def trimmed(self, needed: Sequence[int]) -> TrainingLog:
        """Of a long training the first row, those that are needed, the last ones and their origins."""
        if len(self.models) <= _LONG:
            return self
        last = np.arange(len(self.models) - _LONG // 2, len(self.models))
        rows = np.union1d(np.union1d(last, self.origins[last][self.origins[last] >= 0]), [0, *needed])
        places = np.full(len(self.models), -1)
        places[rows] = np.arange(rows.size)
        origins = self.origins[rows]
        return TrainingLog(
            self.models[rows], self.reports[rows], np.where(origins >= 0, places[origins], -1)
        )

    def search(self, mix: Floats, row: int | None = None) -> QuasiNewtonSearch:
        """For the minimum of sum_j mix_j F_j, warm; from the model of a row, by default of the best."""
        gradients = mixed(mix, self.reports)
        if row is None:
            row = int(np.argmin((gradients**2).sum(1)))
        rows = np.flatnonzero(self.origins >= 0)
        before = self.origins[rows]
        return QuasiNewtonSearch.at(
            self.models[row], gradients[row], self.models[rows] - self.models[before],
            gradients[rows] - gradients[before],
        )  # fmt: skip

    def searches_without_each(self, weights: Floats, row: int) -> tuple[QuasiNewtonSearch, ...]:
        """`search` from the model of a row without each of the agents that have a weight."""
        rows = np.flatnonzero(self.origins >= 0)[-MEMORY:]
        before, size = self.origins[rows], self.models.shape[1]
        needed, count = np.concatenate([[row], rows, before]), int(np.count_nonzero(weights))
        gradients, changes = np.empty((count, size)), np.empty((count, rows.size, size))
        for part in tiles(size, max(1, _AT_ONCE // (count * needed.size))):
            sums = without_each(weights, self.reports[needed][:, :, part])
            gradients[:, part] = sums[:, 0]
            changes[:, :, part] = sums[:, 1 : 1 + rows.size] - sums[:, 1 + rows.size :]
        model, steps = self.models[row], self.models[rows] - self.models[before]
        return tuple(
            QuasiNewtonSearch.at(model, gradient, steps, change)
            for gradient, change in zip(gradients, changes, strict=True)
        )
