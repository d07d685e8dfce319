"""What K agents minimise together, and the loss of each.

Agent k holds n_k samples and the loss F_k: the mean over its samples of a convex loss, plus mu/2 |w|^2. The
federation minimises F = sum p_k F_k with weights p_k > 0 that sum to 1. All a mechanism needs is computed
for many models at once, W of shape (m, P), and for weighted sums over agents, v of shape (m, K):

    gradient(W, v)   sum_j v_ij grad F_j(W_i),  (m, P); of one agent, only its samples are read
    losses(W)        F_j(W_i),                  (m, K)
    expand(W, v)     both at once, and products of sum_j v_ij Hessian of F_j(W_i) with vectors

so that the K leave-one-out problems of a payment are one batch: v_ij = p_j for j != i and 0 for j = i. For
the softmax a call is one pass over the samples, whatever the number of agents: a product of the features
with the models side by side, (n, d) x (d, C m), and one back, tile by tile of samples. Sums are added tile
by tile, so the size of a batch or tile changes results by rounding only; the number of threads changes
nothing (`threads`).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Self, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue
from bonafed.learning.problems import precondition
from bonafed.learning.problems.agreed import Agreed, spread
from bonafed.learning.problems.precondition import Basis, Precondition
from bonafed.learning.problems.threads import one_thread

Ints = NDArray[np.int64]
_TILE = 1 << 19  # numbers of an intermediate result at a time: what fits into a processor's cache
_KEPT = 1 << 24  # numbers an expansion keeps
CLIP_MARGIN = 1e-12  # of norms, well above their rounding errors: that of the engine in double precision
_TOP = 600  # rows of the part of a Hessian that is factorised where the whole is too large


def largest_norm(features: NDArray[np.floating]) -> float:
    """The largest norm of a sample's features with a constant 1 appended."""
    return max(float(norms(_with_constant(features[rows])).max()) for rows in _rows_of(features))


def scaled_features(features: NDArray[np.floating], norm: float | None = None) -> tuple[Floats, float]:
    """(n, d) samples flattened, with a constant, divided by the largest norm or `norm`; and that norm."""
    rows = _with_constant(features)
    largest = float(norms(rows).max()) if norm is None else norm
    rows /= largest
    return rows, largest


def norms(rows: Floats) -> Floats:
    """(n,) norms of the rows (n, d), some rows at a time: squares of all would be a second copy."""
    return np.concatenate([np.linalg.norm(rows[some], axis=1) for some in _rows_of(rows)])


def _rows_of(samples: NDArray[np.floating]) -> list[slice]:
    return tiles(len(samples), max(1, _TILE * len(samples) // max(1, samples.size)))


def _with_constant(features: NDArray[np.floating]) -> Floats:
    """(n, d) the samples flattened, and a constant 1."""
    flat = features.reshape(len(features), -1)
    rows = np.empty((flat.shape[0], flat.shape[1] + 1))
    rows[:, :-1], rows[:, -1] = flat, 1.0
    return rows


def shortened_features(features: NDArray[np.floating]) -> NDArray[np.floating]:
    """Every sample divided by its norm if above 1: for private samples, which must not set a scale."""
    if not len(features):  # no test samples, say
        return features
    flat = features.reshape(len(features), -1)
    norm = np.linalg.norm(flat, axis=1, keepdims=True)
    return np.asarray(flat / np.maximum(norm, 1.0), dtype=features.dtype).reshape(features.shape)


@dataclass(frozen=True, slots=True, eq=False)
class Expansion:
    """m weighted sums of the agents' losses around m models, to second order."""

    losses: Floats  # (m, K) F_j(W_i)
    gradients: Floats  # (m, P) sum_j v_ij grad F_j(W_i)
    product: Callable[[Floats, Ints], Floats]  # directions (a, P), which rows (a,) -> Hessians times them


class Problem(Agreed):
    """K agents' losses on one model of P numbers, with the samples they are computed from."""

    def weighted(self, weights: Floats) -> Self:
        """The same samples, with other weights of the agents."""
        other = copy(self)
        other.weights = checks.shares("weights", weights, length=self.agents)
        other.__dict__.pop("_basis", None)  # depends on the weights, as what follows from it
        other.__dict__.pop("_top", None)
        return other

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

    def slopes(self, starts: Floats, end: Floats, nodes: Floats, agent: int) -> Floats:
        """(m, t) grad F_agent(W + t d)·d at the nodes t, on the ways d = end - W from starts W (m, P)."""
        ways = end - starts
        rows = []
        for start, way in zip(starts, ways, strict=True):
            models = start + nodes[:, None] * way
            mix = np.tile(self.one(agent), (nodes.size, 1))
            rows.append((self.gradient(models, mix) * way).sum(1))
        return np.stack(rows)

    def own_losses(self, models: Floats) -> Floats:
        """(K,) every agent's loss under its own model (K, P)."""
        each = [self.losses_of(model[None], agent)[0] for agent, model in enumerate(models)]
        return np.array(each)

    def losses_of(self, models: Floats, agent: int) -> Floats:
        """(m,) one agent's loss under every model."""
        return self.losses(models)[:, agent]

    @property
    def together(self) -> int:
        """Models worth expanding in one batch."""
        return self.agents

    def expand(self, models: Floats, mix: Floats) -> Expansion:
        """Losses, gradients and curvature at models (m, P), or at one model (1, P) for all mixes (m, K)."""
        each = np.array(np.broadcast_to(models, (mix.shape[0], self.size)))

        def product(directions: Floats, rows: Ints) -> Floats:
            products = [
                self.hessian_product(each[i], mix[i], d) for i, d in zip(rows, directions, strict=True)
            ]
            return np.stack(products)

        losses = np.broadcast_to(self.losses(models), mix.shape)
        return Expansion(losses, self.gradient(each, mix), product)

    def preconditioner(self, model: Floats, mix: Floats) -> Precondition | None:
        """An approximate inverse of `hessian` that is cheap to apply, if there is one."""
        if self.strongly_convex and self.size <= _TOP:
            return precondition.dense(self.hessian(model, mix))
        return None

    def value(self, model: Floats, mix: Floats) -> float:
        """sum_j mix_j F_j(model)."""
        return float(self.losses(model[None])[0] @ mix)


@dataclass(frozen=True, eq=False)
class _Data:
    """The samples of all agents."""

    features: Floats  # (n, d)
    owner: Ints  # (n,) 0..K-1
    counts: Ints  # (K,)

    order: Ints  # (n,) the samples agent by agent

    def share(self, mix: Floats, rows: slice | Ints = slice(None)) -> Floats:
        """(n, m) weight of each sample in the mixes (m, K)."""
        return np.asarray((mix / self.counts).T[self.owner[rows]])

    def of(self, agent: int) -> Ints:
        """The samples of one agent."""
        end = int(self.counts[: agent + 1].sum())
        return self.order[end - int(self.counts[agent]) : end]

    def by_agent(self, values: Floats) -> Floats:
        """(m, K) means over each agent's samples of values (n, m)."""
        starts = np.cumsum(self.counts) - self.counts
        total = np.add.reduceat(values[self.order], starts, axis=0)
        return np.asarray((total / self.counts[:, None]).T)


def rows_of_one(mix: Floats, counts: Ints, order: Ints) -> Ints | None:
    """The samples of the only agent with a weight in the mixes (m, K); None where several have one.

    `counts` (K,) is how many samples each agent has, `order` (n,) the samples agent by agent.
    """
    agents = np.flatnonzero(mix.any(0))
    if agents.size != 1:
        return None
    end = int(counts[: agents[0] + 1].sum())
    return order[end - int(counts[agents[0]]) : end]


def tiles(samples: int, most: int) -> list[slice]:
    """The rows 0..samples - 1 in order, at most so many at a time and none of them empty.

    >>> tiles(5, 2)
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    return [slice(i, min(i + most, samples)) for i in range(0, samples, most)]


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
    return _Data(x, a.astype(np.int64), counts.astype(np.int64), np.argsort(a, kind="stable"))


def _weights(weights: ArrayLike | None, agents: int) -> Floats:
    if weights is None:
        return np.full(agents, 1 / agents)
    return checks.shares("weights", weights, length=agents)


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
    def together(self) -> int:
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
        """(n, C, m)."""
        x = self._data.features[rows]
        return (x @ stacked).reshape(x.shape[0], self.classes, -1)

    def _tiles(self, models: int, samples: int | None = None) -> list[slice]:
        """So many samples, or all, a tile at a time."""
        step = max(1, _TILE // (models * self.classes))
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
        return precondition.basis_of(self._data.features, self._data.share(self.weights[None])[:, 0])

    @cached_property
    def _top(self) -> Floats:
        """(n, r) the features along their first directions; along all where the Hessian is small."""
        r = min(self._data.features.shape[1], max(1, _TOP // self.classes))
        return self._data.features @ self._basis.vectors[:, :r]

    @one_thread()
    def preconditioner(self, model: Floats, mix: Floats) -> Precondition:
        chances, _ = self._chances(self._stacked(model[None]), slice(None))
        weights, mu = self._data.share(mix[None])[:, 0], self.regulariser * float(mix.sum())
        return precondition.two_level(self._basis, self._top, chances[:, :, 0], weights, mu)

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


@final
class RidgeRegression(Problem):
    """Mean squared error/2 + mu/2 |w|^2; everything follows from X'X, X'y and y'y of each agent."""

    @one_thread()
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
        self.counts = data.counts
        self.regulariser = checks.positive("regulariser", regulariser)
        self.weights = _weights(weights, data.counts.size)
        self.size = data.features.shape[1]
        moments = []
        for k in range(data.counts.size):
            x, t = data.features[data.of(k)], y[data.of(k)]
            moments.append((x.T @ x / t.size, x.T @ t / t.size, float(t @ t) / t.size))
        eye = self.regulariser * np.eye(self.size)
        self.second = np.stack([a + eye for a, _, _ in moments])  # (K, d, d) Hessians of F_k
        self.cross = np.stack([b for _, b, _ in moments])  # (K, d)
        self._square = np.array([s for _, _, s in moments])
        self._smooth = float(np.linalg.eigvalsh(self.second)[:, -1].max())
        self._bound = float((norms(data.features) * np.abs(y)).max())

    @property
    def smoothness(self) -> float:
        return self._smooth

    @property
    def gradient_bound(self) -> float:
        return self._bound

    @one_thread()
    def gradient(self, models: Floats, mix: Floats) -> Floats:
        who, out = np.flatnonzero(mix.any(0)), np.empty_like(models)
        some = slice(None) if who.size == mix.shape[1] else who  # of all, nothing is copied
        for rows, bent in self._bent(models, some):
            bent -= self.cross[some]
            out[rows] = np.einsum("mk,mkd->md", mix[rows, some], bent)
        return out

    def _bent(self, models: Floats, who: slice | Ints = slice(None)) -> Iterator[tuple[slice, Floats]]:
        """(t, K, d) the agents' Hessians times each model, a tile of models at a time."""
        second = self.second[who]
        k, d = second.shape[:2]
        flat = second.reshape(k * d, d).T
        for rows in tiles(len(models), max(1, _TILE // max(1, k * d))):
            yield rows, (models[rows] @ flat).reshape(-1, k, d)

    @one_thread()
    def slopes(self, starts: Floats, end: Floats, nodes: Floats, agent: int) -> Floats:
        # of a quadratic they are straight lines
        ways, second = end - starts, self.second[agent]
        begins = ((starts @ second - self.cross[agent]) * ways).sum(1)
        return np.asarray(begins[:, None] + ((ways @ second) * ways).sum(1)[:, None] * nodes)

    def third_derivative(self, directions: Floats) -> Floats:
        return np.zeros(len(directions))

    @one_thread()
    def losses(self, models: Floats) -> Floats:
        quadratic = np.empty((len(models), self.agents))
        for rows, bent in self._bent(models):
            quadratic[rows] = np.einsum("mkd,md->mk", bent, models[rows])
        return np.asarray(quadratic / 2 - models @ self.cross.T + self._square / 2)

    @one_thread()
    def losses_of(self, models: Floats, agent: int) -> Floats:
        quadratic = ((models @ self.second[agent]) * models).sum(1)
        return np.asarray(quadratic / 2 - models @ self.cross[agent] + self._square[agent] / 2)

    @one_thread()
    def hessian(self, model: Floats, mix: Floats) -> Floats:
        return np.asarray(np.einsum("k,kde->de", mix, self.second))

    @one_thread()
    def hessian_product(self, model: Floats, mix: Floats, direction: Floats) -> Floats:
        return np.asarray(np.einsum("k,kde,e->d", mix, self.second, direction))

    def minimiser(self, mix: Floats) -> Floats:
        """The model that minimises sum_j mix_j F_j, exactly."""
        return np.asarray(self.minimisers(mix[None])[0])

    @one_thread()
    def minimisers(self, mixes: Floats) -> Floats:
        """(m, P) the same for every row of mixes (m, K)."""
        out, flat = np.empty((len(mixes), self.size)), self.second.reshape(self.agents, -1)
        for rows in tiles(len(mixes), max(1, _TILE // flat.shape[1])):
            bends = (mixes[rows] @ flat).reshape(-1, self.size, self.size)
            out[rows] = np.linalg.solve(bends, (mixes[rows] @ self.cross)[:, :, None])[:, :, 0]
        return out
