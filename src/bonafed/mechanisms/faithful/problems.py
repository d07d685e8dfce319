"""What K agents want to minimise together, and what each of them does.

Agent k holds n_k samples and the loss F_k: the mean over its samples of a convex loss, plus mu/2 |w|^2. The
federation minimises F = sum p_k F_k with weights p_k > 0 that sum to 1. All a mechanism asks is asked
for many models at once, W of shape (m, P), and for weighted sums over agents, v of shape (m, K):

    gradient(W, v)   sum_j v_ij grad F_j(W_i),  (m, P)
    losses(W)        F_j(W_i),                  (m, K)
    curvature(w, v)  sum_j v_j times the Hessian of F_j at one model, as a matrix or as products

so that the K leave-one-out problems of a payment are one batch: v_ij = p_j for j != i and 0 for j = i. For
the softmax there is one pass over the samples per call, whatever the number of agents (spec A.3).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue

Ints = NDArray[np.int64]
_CELLS = 1 << 24  # numbers of an intermediate result held at a time


class Problem(ABC):
    """K agents' losses on one model of P numbers."""

    weights: Floats  # (K,) p, sum 1
    regulariser: float  # mu: every F_k is mu-strongly convex
    size: int  # P
    strongly_convex: bool = True  # else the regulariser does not outweigh the loss: nothing is certified

    @property
    def agents(self) -> int:
        """K."""
        return int(self.weights.size)

    @property
    @abstractmethod
    def smoothness(self) -> float:
        """L_g: the gradient of every F_k is this Lipschitz."""

    @abstractmethod
    def gradient(self, models: Floats, mix: Floats) -> Floats:
        """(m, P) sum_j mix_ij grad F_j(models_i)."""

    @abstractmethod
    def losses(self, models: Floats) -> Floats:
        """(m, K) every agent's loss under every model."""

    @abstractmethod
    def hessian(self, model: Floats, mix: Floats) -> Floats:
        """(P, P) sum_j mix_j times the Hessian of F_j at one model."""

    @abstractmethod
    def hessian_product(self, model: Floats, mix: Floats, direction: Floats) -> Floats:
        """(P,) the same times a vector, without forming it."""

    def one(self, agent: int) -> Floats:
        """(K,) the mix that is one agent's own loss."""
        return np.asarray(np.eye(self.agents)[agent])

    def without_each(self) -> Floats:
        """(K, K) the mixes f_-k = sum_{j != k} p_j F_j."""
        return np.tile(self.weights, (self.agents, 1)) * (1 - np.eye(self.agents))

    def value(self, model: Floats, mix: Floats) -> float:
        """sum_j mix_j F_j(model)."""
        return float(self.losses(model[None])[0] @ mix)


@dataclass(frozen=True, eq=False)
class _Data:
    """Samples of all agents, those of one agent together."""

    features: Floats  # (n, d)
    owner: Ints  # (n,) 0..K-1
    counts: Ints  # (K,)

    def share(self, mix: Floats) -> Floats:
        """(n, m) weight of each sample in the mixes (m, K)."""
        return np.asarray((mix / self.counts).T[self.owner])

    def by_agent(self, values: Floats) -> Floats:
        """(m, K) means over each agent's samples of values (n, m)."""
        total = np.zeros((self.counts.size, values.shape[1]))
        np.add.at(total, self.owner, values)
        return np.asarray((total / self.counts[:, None]).T)


def _data(features: ArrayLike, owner: ArrayLike, agents: int | None) -> _Data:
    x = np.asarray(features, dtype=np.float64)
    if x.ndim != 2 or not x.size:
        raise InvalidValue("features", "must be a table with a row per sample", f"shape {x.shape}")
    if not np.isfinite(x).all():
        raise InvalidValue("features", "must be finite", "NaN or inf")
    a = np.asarray(owner)
    if a.shape != (x.shape[0],) or not np.issubdtype(a.dtype, np.integer):
        raise InvalidValue(
            "owner", f"must be {x.shape[0]} whole numbers, one per sample", f"shape {a.shape}"
        )
    k = int(a.max()) + 1 if agents is None else checks.whole("agents", agents)
    if a.min() < 0 or a.max() >= k:
        raise InvalidValue("owner", f"must be in 0..{k - 1}", f"{a.min()}..{a.max()}")
    counts = np.bincount(a, minlength=k)
    if (counts == 0).any():
        raise InvalidValue(f"agent {int(np.argmin(counts))}", "must have samples", 0)
    return _Data(x, a.astype(np.int64), counts.astype(np.int64))


def _weights(weights: ArrayLike | None, agents: int) -> Floats:
    if weights is None:
        return np.full(agents, 1 / agents)
    return checks.shares("weights", weights, length=agents)


@final
class SoftmaxRegression(Problem):
    """Multinomial logistic regression: mean cross-entropy + mu/2 |W|^2, W of shape (d, classes)."""

    def __init__(
        self,
        features: ArrayLike,
        labels: ArrayLike,
        owner: ArrayLike,
        classes: int,
        regulariser: float,
        weights: ArrayLike | None = None,
        agents: int | None = None,
    ) -> None:
        self._data = _data(features, owner, agents)
        y = np.asarray(labels)
        self.classes = checks.whole("classes", classes, at_least=2)
        if y.shape != self._data.owner.shape or y.min() < 0 or y.max() >= self.classes:
            raise InvalidValue(
                "labels", f"must be one per sample in 0..{self.classes - 1}", f"shape {y.shape}"
            )
        self._labels = y.astype(np.int64)
        self.regulariser = checks.positive("regulariser", regulariser)
        self.weights = _weights(weights, self._data.counts.size)
        self.size = self._data.features.shape[1] * self.classes
        # the Hessian of cross-entropy in the logits is at most 1/2
        self._smooth = self.regulariser + 0.5 * float((self._data.features**2).sum(1).max())

    @property
    def smoothness(self) -> float:
        return self._smooth

    @property
    def counts(self) -> Ints:
        """(K,) samples of each agent."""
        return self._data.counts

    def _logits(self, models: Floats, rows: slice) -> Floats:
        """(n, m, C)."""
        x, c = self._data.features[rows], self.classes
        stacked = models.reshape(-1, x.shape[1], c).transpose(1, 0, 2).reshape(x.shape[1], -1)
        return (x @ stacked).reshape(x.shape[0], -1, c)

    def _chunks(self, models: int) -> list[slice]:
        n = self._data.owner.size
        step = max(1, _CELLS // (models * self.classes))
        return [slice(i, min(i + step, n)) for i in range(0, n, step)]

    def gradient(self, models: Floats, mix: Floats) -> Floats:
        share, m = self._data.share(mix), models.shape[0]
        total = np.zeros((self._data.features.shape[1], m * self.classes))
        for rows in self._chunks(m):
            z = _softmax(self._logits(models, rows))
            z[np.arange(z.shape[0]), :, self._labels[rows]] -= 1
            z *= share[rows][:, :, None]
            total += self._data.features[rows].T @ z.reshape(z.shape[0], -1)
        back = total.reshape(-1, m, self.classes).transpose(1, 0, 2).reshape(m, self.size)
        return np.asarray(back + self.regulariser * mix.sum(1)[:, None] * models)

    def losses(self, models: Floats) -> Floats:
        m = models.shape[0]
        each = np.empty((self._data.owner.size, m))
        for rows in self._chunks(m):
            z = self._logits(models, rows)
            top = z.max(2)
            log_sum = top + np.log(np.exp(z - top[:, :, None]).sum(2))
            each[rows] = log_sum - z[np.arange(z.shape[0]), :, self._labels[rows]]
        return np.asarray(self._data.by_agent(each) + self.regulariser / 2 * (models**2).sum(1)[:, None])

    def sample_losses(self, models: Floats) -> Floats:
        """(n, m) cross-entropy of every sample, without the regulariser."""
        z = self._logits(models, slice(None))
        top = z.max(2)
        log_sum = top + np.log(np.exp(z - top[:, :, None]).sum(2))
        return np.asarray(log_sum - z[np.arange(z.shape[0]), :, self._labels])

    def clipped_gradient(self, models: Floats, mix: Floats, clip: float) -> Floats:
        """Like `gradient`, with each sample's data gradient scaled to norm `clip` at most."""
        share, m = self._data.share(mix), models.shape[0]
        x = self._data.features
        z = _softmax(self._logits(models, slice(None)))
        z[np.arange(z.shape[0]), :, self._labels] -= 1
        # one sample's gradient is the outer product of x and z: its norm is the product of norms
        norms = np.linalg.norm(x, axis=1)[:, None] * np.linalg.norm(z, axis=2)
        z *= (share * np.minimum(1.0, clip / np.maximum(norms, 1e-300)))[:, :, None]
        total = (x.T @ z.reshape(z.shape[0], -1)).reshape(-1, m, self.classes)
        back = total.transpose(1, 0, 2).reshape(m, self.size)
        return np.asarray(back + self.regulariser * mix.sum(1)[:, None] * models)

    def clipped_differences(self, first: Floats, second: Floats, limit: float) -> Floats:
        """(K,) mean over each agent's samples of loss(first) - loss(second), each within +-limit."""
        each = self.sample_losses(np.stack([first, second]))
        change = np.clip(each[:, 0] - each[:, 1], -limit, limit)
        return np.asarray(self._data.by_agent(change[:, None])[0])

    def hessian(self, model: Floats, mix: Floats) -> Floats:
        x, c = self._data.features, self.classes
        p = _softmax(self._logits(model[None], slice(None)))[:, 0]
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

    def hessian_product(self, model: Floats, mix: Floats, direction: Floats) -> Floats:
        x = self._data.features
        p = _softmax(self._logits(model[None], slice(None)))[:, 0]
        r = self._logits(direction[None], slice(None))[:, 0]
        bent = p * (r - (p * r).sum(1, keepdims=True)) * self._data.share(mix[None])
        return np.asarray((x.T @ bent).ravel() + self.regulariser * float(mix.sum()) * direction)


def _softmax(z: Floats) -> Floats:
    z = z - z.max(-1, keepdims=True)
    np.exp(z, out=z)
    z /= z.sum(-1, keepdims=True)
    return z


@final
class RidgeRegression(Problem):
    """Mean squared error/2 + mu/2 |w|^2; everything follows from X'X, X'y and y'y of each agent."""

    def __init__(
        self,
        features: ArrayLike,
        targets: ArrayLike,
        owner: ArrayLike,
        regulariser: float,
        weights: ArrayLike | None = None,
        agents: int | None = None,
    ) -> None:
        data = _data(features, owner, agents)
        y = checks.vector("targets", targets, sign="any", length=data.owner.size)
        self.regulariser = checks.positive("regulariser", regulariser)
        self.weights = _weights(weights, data.counts.size)
        self.size = data.features.shape[1]
        moments = []
        for k in range(data.counts.size):
            x, t = data.features[data.owner == k], y[data.owner == k]
            moments.append((x.T @ x / t.size, x.T @ t / t.size, float(t @ t) / t.size))
        eye = self.regulariser * np.eye(self.size)
        self.second = np.stack([a + eye for a, _, _ in moments])  # (K, d, d) Hessians of F_k
        self.cross = np.stack([b for _, b, _ in moments])  # (K, d)
        self._square = np.array([s for _, _, s in moments])
        self._smooth = float(max(np.linalg.eigvalsh(a)[-1] for a in self.second))

    @property
    def smoothness(self) -> float:
        return self._smooth

    def gradient(self, models: Floats, mix: Floats) -> Floats:
        bent = np.einsum("kde,me->mkd", self.second, models) - self.cross
        return np.asarray(np.einsum("mk,mkd->md", mix, bent))

    def losses(self, models: Floats) -> Floats:
        quadratic = np.einsum("md,kde,me->mk", models, self.second, models) / 2
        return np.asarray(quadratic - models @ self.cross.T + self._square / 2)

    def hessian(self, model: Floats, mix: Floats) -> Floats:
        return np.asarray(np.einsum("k,kde->de", mix, self.second))

    def hessian_product(self, model: Floats, mix: Floats, direction: Floats) -> Floats:
        return np.asarray(np.einsum("k,kde,e->d", mix, self.second, direction))

    def minimiser(self, mix: Floats) -> Floats:
        """The model that minimises sum_j mix_j F_j, exactly."""
        return np.asarray(np.linalg.solve(self.hessian(self.cross[0], mix), mix @ self.cross))
