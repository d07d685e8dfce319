"""Softmax regression of K agents, and a cheap stand-in for the inverse of its Hessian.

The stand-in lets conjugate gradients need few products. With x_i the features, s_i the predicted class
probabilities and v_i the weight of sample i, the Hessian is

    H = sum_i v_i (diag(s_i) - s_i s_i') (x) x_i x_i'  +  mu I.

In the basis V of the eigenvectors of sum_i v_i x_i x_i', whose eigenvalues lambda of real data fall fast:

    (top)    on the first r directions H is computed exactly and factorised, a matrix of r C rows;
    (rest)   on the others, where mu outweighs most of the curvature, it is taken for a product: lambda_i
             times the eigenvalues sigma_c of S = sum_i v_i (diag(s_i) - s_i s_i'), plus mu;
    (mixed)  what couples the two is dropped.

Where r is the number of features this is H itself. It only affects how fast a result is reached, never the
result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
import scipy  # its submodules load on first use
from numpy.typing import ArrayLike

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue
from bonafed.learning.problems import convex
from bonafed.learning.problems.agreed import spread
from bonafed.learning.problems.convex import (
    CLIP_MARGIN,
    Expansion,
    Ints,
    Precondition,
    Problem,
    agent_data,
    agent_weights,
    norms,
    one_thread,
    rows_of_one,
    tiles,
)

_ROWS = 4096  # samples at a time
_KEPT = 1 << 24  # numbers an expansion keeps


@dataclass(frozen=True, slots=True, eq=False)
class Basis:
    """Directions of the features, by how much they vary."""

    values: Floats  # (d,) lambda, falling
    vectors: Floats  # (d, d) columns


@dataclass(frozen=True, slots=True, eq=False)
class TwoLevel:
    """The inverse of the matrix above."""

    basis: Basis
    factor: tuple[Floats, bool]  # Cholesky of the top, (r C, r C), feature by feature
    turn: Floats  # (C, C) eigenvectors of S, columns
    scale: Floats  # (d - r, C) lambda_i sigma_c + mu
    classes: int  # C

    def __call__(self, residuals: Floats) -> Floats:
        m, c = residuals.shape[0], self.classes
        v = self.basis.vectors
        d, r = v.shape[0], v.shape[0] - self.scale.shape[0]
        rotated = v.T @ residuals.reshape(m, d, c).transpose(1, 2, 0).reshape(d, c * m)
        top = scipy.linalg.cho_solve(self.factor, rotated[:r].reshape(r * c, m), check_finite=False)
        rest = np.einsum("ab,iam->ibm", self.turn, rotated[r:].reshape(-1, c, m)) / self.scale[:, :, None]
        back = np.einsum("ab,ibm->iam", self.turn, rest)
        full = np.concatenate([top.reshape(r, c * m), back.reshape(-1, c * m)])
        return np.asarray((v @ full).reshape(d, c, m).transpose(2, 0, 1).reshape(m, d * c))


def basis_of(features: Floats, weights: Floats) -> Basis:
    """The eigenvectors of sum_i weights_i x_i x_i'."""
    second = np.zeros((features.shape[1], features.shape[1]))
    for i in range(0, len(features), _ROWS):
        scaled = features[i : i + _ROWS] * np.sqrt(weights[i : i + _ROWS])[:, None]
        second += scaled.T @ scaled
    values, vectors = np.linalg.eigh(second)
    return Basis(np.maximum(values[::-1], 0.0), np.ascontiguousarray(vectors[:, ::-1]))


def two_level(basis: Basis, top: Floats, chances: Floats, weights: Floats, mu: float) -> TwoLevel:
    """From the features in the first r directions (n, r), the chances of the classes (n, C) and v (n,)."""
    (n, r), c = top.shape, chances.shape[1]
    # sum v (diag(s) - s s') (x) x x' = diagonal blocks - Y'Y with the rows of Y = sqrt(v) x (x) s
    h, root = np.zeros((r * c, r * c)), np.sqrt(weights)[:, None] * chances
    for i in range(0, n, _ROWS):
        y = (top[i : i + _ROWS, :, None] * root[i : i + _ROWS, None, :]).reshape(-1, r * c)
        h -= y.T @ y
    blocks = h.reshape(r, c, r, c)
    for a in range(c):
        blocks[:, a, :, a] += (top * (weights * chances[:, a])[:, None]).T @ top
    h[np.diag_indices(r * c)] += mu
    s = np.diag(weights @ chances) - (chances * weights[:, None]).T @ chances
    sigma, turn = np.linalg.eigh(s)
    scale = basis.values[r:, None] * np.maximum(sigma, 0.0) + mu
    return TwoLevel(basis, scipy.linalg.cho_factor(h, lower=True), turn, scale, c)


@final
class SoftmaxRegression(Problem):
    """Multinomial logistic regression: mean cross-entropy + mu/2 |W|^2, W of shape (d, classes)."""

    @one_thread()
    def __init__(
        self,
        features: ArrayLike,
        labels: ArrayLike,
        owner: ArrayLike,
        classes: int,
        regulariser: float,
        weights: ArrayLike | None = None,
        agents: int | None = None,
        longest: float | None = None,
    ) -> None:
        """`longest` is an agreed bound on the norm of a sample's features."""
        self._data = agent_data(features, owner, agents)
        y = np.asarray(labels)
        self.classes = checks.whole("classes", classes, at_least=2)
        if y.shape != self._data.owner.shape or y.min() < 0 or y.max() >= self.classes:
            raise InvalidValue(
                "labels", f"must be one per sample in 0..{self.classes - 1}", f"shape {y.shape}"
            )
        self._labels = y.astype(np.int64)
        self.regulariser = checks.positive("regulariser", regulariser)
        self.weights = agent_weights(weights, self._data.counts.size)
        self.size = self._data.features.shape[1] * self.classes
        # the Hessian of cross-entropy in the logits is at most 1/2
        self._norms = norms(self._data.features)
        self._longest = float(self._norms.max()) if longest is None else longest
        self._smooth = self.regulariser + 0.5 * self._longest**2

    @property
    def smoothness(self) -> float:
        return self._smooth

    @property
    def gradient_bound(self) -> float:
        return math.sqrt(2.0) * self._longest  # |p - y| <= sqrt(2), at every model

    def largest_gradient(self, norms: Floats) -> Floats:
        return np.full(norms.shape, self.gradient_bound)

    def third_derivative(self, directions: Floats) -> Floats:
        return self._longest * spread(directions, self.classes)

    @property
    def counts(self) -> Ints:
        """(K,) samples of each agent."""
        return self._data.counts

    @property
    def models_per_batch(self) -> int:
        return max(1, _KEPT // (self._data.owner.size * self.classes))

    def _stacked(self, models: Floats) -> Floats:
        """(d, C m) models (m, P) side by side, class by class: sums over classes run along long rows."""
        m, c = models.shape[0], self.classes
        return models.reshape(m, -1, c).transpose(1, 2, 0).reshape(-1, c * m)

    def _flat(self, stacked: Floats) -> Floats:
        """(m, P) from (d, C m)."""
        d, c = stacked.shape[0], self.classes
        return stacked.reshape(d, c, -1).transpose(2, 0, 1).reshape(-1, d * c)

    def _logits(self, stacked: Floats, rows: slice | Ints) -> Floats:
        """(n, C, m) scores of the classes for every sample and model."""
        x = self._data.features[rows]
        return (x @ stacked).reshape(x.shape[0], self.classes, -1)

    def _tiles(self, models: int, samples: int | None = None) -> list[slice]:
        """So many samples, or all, a tile at a time."""
        step = max(1, convex.TILE // (models * self.classes))
        return tiles(self._data.owner.size if samples is None else samples, step)

    def _tiles_of(self, mix: Floats) -> Sequence[slice | Ints]:
        """All samples, or only its own where the mixes (m, K) are about one agent alone."""
        rows = rows_of_one(mix, self._data.counts, self._data.order)
        if rows is None:
            return self._tiles(mix.shape[0])
        return [rows[tile] for tile in self._tiles(mix.shape[0], rows.size)]

    def _back(self, total: Floats, z: Floats, rows: slice | Ints) -> None:
        """Add X'z of these samples, z (n, C, m), to total (d, C m)."""
        total += self._data.features[rows].T @ z.reshape(z.shape[0], -1)

    def _chances(self, stacked: Floats, rows: slice | Ints) -> tuple[Floats, Floats]:
        """(n, C, m) the models' predictions, (n, m) the cross-entropy."""
        z = self._logits(stacked, rows)
        z -= z.max(1, keepdims=True)
        right = z[np.arange(z.shape[0]), self._labels[rows]]
        np.exp(z, out=z)
        sums = z.sum(1)
        z /= sums[:, None]
        return z, np.log(sums) - right

    def _regularised(self, data: Floats, models: Floats, mix: Floats) -> Floats:
        return np.asarray(data + self.regulariser * mix.sum(1)[:, None] * models)

    @one_thread()
    def gradient(self, models: Floats, mix: Floats) -> Floats:
        stacked = self._stacked(models)
        total = np.zeros_like(stacked)
        for rows in self._tiles_of(mix):
            z, _ = self._chances(stacked, rows)
            z[np.arange(z.shape[0]), self._labels[rows]] -= 1
            z *= self._data.share(mix, rows)[:, None]
            self._back(total, z, rows)
        return self._regularised(self._flat(total), models, mix)

    @one_thread()
    def slopes(self, starts: Floats, end: Floats, nodes: Floats, agent: int) -> Floats:
        # the logits are those of the start plus t times those of the way: two products, however many nodes
        ways = end - starts
        rows = self._data.of(agent)
        total, (stacked, along) = np.zeros((len(starts), nodes.size)), map(self._stacked, (starts, ways))
        for tile in self._tiles(len(starts), rows.size):
            some = rows[tile]
            own = np.arange(some.size), self._labels[some]
            first, change = (
                (logits - logits[own][:, None]).transpose(1, 0, 2).copy()  # (C, n, m), 0 for the label
                for logits in (self._logits(stacked, some), self._logits(along, some))
            )
            z = np.empty_like(first)
            for at, t in enumerate(nodes.tolist()):
                np.multiply(change, t, out=z)
                z += first
                z -= z.max(0)
                np.exp(z, out=z)
                sums = z.sum(0)
                z *= change
                total[:, at] += (z.sum(0) / sums).sum(0)
        regular = (starts * ways).sum(1)[:, None] + nodes * (ways**2).sum(1)[:, None]
        return np.asarray(total / rows.size + self.regulariser * regular)

    @one_thread()
    def losses(self, models: Floats) -> Floats:
        stacked = self._stacked(models)
        each = [self._chances(stacked, rows)[1] for rows in self._tiles(models.shape[0])]
        return self._mean_losses(np.concatenate(each), models)

    @one_thread()
    def losses_of(self, models: Floats, agent: int) -> Floats:
        rows, stacked = self._data.of(agent), self._stacked(models)
        total = np.zeros(len(models))
        for tile in self._tiles(len(models), rows.size):
            total += self._chances(stacked, rows[tile])[1].sum(0)
        return np.asarray(total / rows.size + self.regulariser / 2 * (models**2).sum(1))

    def only(self, agent: int) -> SoftmaxRegression:
        """The problem of one agent alone."""
        rows = self._data.of(agent)
        own = np.zeros(rows.size, dtype=np.int64)
        return SoftmaxRegression(
            self._data.features[rows], self._labels[rows], own, self.classes, self.regulariser,
            longest=self._longest,
        )  # fmt: skip

    def _mean_losses(self, each: Floats, models: Floats) -> Floats:
        """(m, K) from cross-entropies (n, m)."""
        return np.asarray(self._data.by_agent(each) + self.regulariser / 2 * (models**2).sum(1)[:, None])

    @one_thread()
    def expand(self, models: Floats, mix: Floats) -> Expansion:
        m, stacked = models.shape[0], self._stacked(models)
        shared = m == 1 < mix.shape[0]  # one model: its gradients agent by agent, then mixed
        n = self._data.owner.size
        chances, each = np.empty((n, self.classes, m)), np.empty((n, m))
        total = np.zeros_like(stacked)
        for rows in self._tiles(m):
            z, each[rows] = self._chances(stacked, rows)
            chances[rows] = z
            if not shared:
                z[np.arange(z.shape[0]), self._labels[rows]] -= 1
                z *= self._data.share(mix, rows)[:, None]
                self._back(total, z, rows)
        data = mix @ self._each_gradient(chances[:, :, 0]) if shared else self._flat(total)
        losses = np.broadcast_to(self._mean_losses(each, models), mix.shape)

        def product(directions: Floats, which: Ints) -> Floats:
            return self._product(chances, mix, directions, which)

        return Expansion(losses, self._regularised(data, models, mix), product)

    @one_thread()
    def _product(self, chances: Floats, mix: Floats, directions: Floats, which: Ints) -> Floats:
        """(a, P) Hessians of the mixes `which` times directions, from the predictions (n, C, 1 or m)."""
        some, part = self._stacked(directions), mix[which]
        total = np.zeros_like(some)
        whole = chances.shape[2] == 1 or np.array_equal(which, np.arange(chances.shape[2]))
        for rows in self._tiles(which.size):
            r, s = self._logits(some, rows), chances[rows] if whole else chances[rows][:, :, which]
            r -= (s * r).sum(1, keepdims=True)
            r *= s
            r *= self._data.share(part, rows)[:, None]
            self._back(total, r, rows)
        return self._regularised(self._flat(total), directions, part)

    def _each_gradient(self, chances: Floats) -> Floats:
        """(K, P) every agent's own data gradient, from the predictions of one model (n, C)."""
        z = chances.copy()
        z[np.arange(z.shape[0]), self._labels] -= 1
        ends = np.cumsum(self._data.counts)
        own = np.split(self._data.order, ends[:-1])
        return np.stack([
            (self._data.features[rows].T @ z[rows]).ravel() / rows.size for rows in own
        ])  # fmt: skip

    @cached_property
    def _basis(self) -> Basis:
        return basis_of(self._data.features, self._data.share(self.weights[None])[:, 0])

    @cached_property
    def _top(self) -> Floats:
        """(n, r) the features along their first directions; along all where the Hessian is small."""
        r = min(self._data.features.shape[1], max(1, convex.TOP // self.classes))
        return self._data.features @ self._basis.vectors[:, :r]

    @one_thread()
    def preconditioner(self, model: Floats, mix: Floats) -> Precondition:
        chances, _ = self._chances(self._stacked(model[None]), slice(None))
        weights, mu = self._data.share(mix[None])[:, 0], self.regulariser * float(mix.sum())
        return two_level(self._basis, self._top, chances[:, :, 0], weights, mu)

    @one_thread()
    def sample_losses(self, models: Floats) -> Floats:
        """(n, m) cross-entropy of every sample, without the regulariser."""
        return self._chances(self._stacked(models), slice(None))[1]

    @one_thread()
    def clipped_gradient(self, models: Floats, mix: Floats, clip: float) -> Floats:
        """Like `gradient`, with each sample's data gradient scaled to norm `clip` at most, even rounded.

        A sample whose gradient has no finite norm counts as zero, as in the engine.
        """
        stacked, most = self._stacked(models), clip * (1 - CLIP_MARGIN)
        total = np.zeros_like(stacked)
        for rows in self._tiles_of(mix):
            with np.errstate(over="ignore", invalid="ignore"):
                z, _ = self._chances(stacked, rows)
                z[np.arange(z.shape[0]), self._labels[rows]] -= 1
                # one sample's gradient is the outer product of x and z: its norm is the product of norms
                norms = self._norms[rows, None] * np.linalg.norm(z, axis=1)
            finite = np.isfinite(norms)
            scale = np.minimum(1.0, most / np.maximum(norms, 1e-300))
            z *= (self._data.share(mix, rows) * np.where(finite, scale, 0.0))[:, None]
            self._back(total, np.where(finite[:, None], z, 0.0), rows)
        return self._regularised(self._flat(total), models, mix)

    @one_thread()
    def clipped_differences(self, first: Floats, second: Floats, limit: float) -> Floats:
        """(K,) mean over each agent's samples of loss(first) - loss(second), each within +-limit."""
        with np.errstate(over="ignore", invalid="ignore"):
            each = self.sample_losses(np.stack([first, second]))
            change = each[:, 0] - each[:, 1]
        most = limit * (1 - CLIP_MARGIN)
        change = np.where(np.isnan(change), 0.0, np.clip(change, -most, most))
        return np.asarray(self._data.by_agent(change[:, None])[0])

    @one_thread()
    def hessian(self, model: Floats, mix: Floats) -> Floats:
        x, c = self._data.features, self.classes
        p = self._chances(self._stacked(model[None]), slice(None))[0][:, :, 0]
        share = self._data.share(mix[None])[:, 0]
        out = np.zeros((x.shape[1], c, x.shape[1], c))
        for a in range(c):
            for b in range(a, c):
                bend = share * p[:, a] * ((a == b) - p[:, b])
                out[:, a, :, b] = (x * bend[:, None]).T @ x
                out[:, b, :, a] = out[:, a, :, b]
        flat = out.reshape(self.size, self.size)
        flat[np.diag_indices(self.size)] += self.regulariser * mix.sum()
        return flat

    @one_thread()
    def hessian_product(self, model: Floats, mix: Floats, direction: Floats) -> Floats:
        chances, _ = self._chances(self._stacked(model[None]), slice(None))
        return np.asarray(self._product(chances, mix[None], direction[None], np.arange(1))[0])
