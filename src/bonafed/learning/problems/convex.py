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
nothing (`one_thread`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from functools import cache
from typing import Self, final

import numpy as np
import scipy  # its submodules load on first use
from numpy.typing import ArrayLike, NDArray
from threadpoolctl import ThreadpoolController

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue
from bonafed.learning.problems.agreed import Agreed

Ints = NDArray[np.int64]
Precondition = Callable[[Floats], Floats]  # (m, P) -> (m, P), close to the inverse Hessian times each row
TILE = 1 << 19  # numbers of an intermediate result at a time: what fits into a processor's cache
CLIP_MARGIN = 1e-12  # of norms, well above their rounding errors: that of the engine in double precision
TOP = 600  # rows of the part of a Hessian that is factorised where the whole is too large


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
    return tiles(len(samples), max(1, TILE * len(samples) // max(1, samples.size)))


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
    def models_per_batch(self) -> int:
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
        if self.strongly_convex and self.size <= TOP:
            return dense(self.hessian(model, mix))
        return None

    def value(self, model: Floats, mix: Floats) -> float:
        """The weighted loss sum_j mix_j F_j(model)."""
        return float(self.losses(model[None])[0] @ mix)


@dataclass(frozen=True, eq=False)
class AgentSamples:
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


def agent_data(features: ArrayLike, owner: ArrayLike, agents: int | None) -> AgentSamples:
    """The samples of all agents, checked; without a number of agents the largest owner is the last."""
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
    return AgentSamples(x, a.astype(np.int64), counts.astype(np.int64), np.argsort(a, kind="stable"))


def agent_weights(weights: ArrayLike | None, agents: int) -> Floats:
    """(K,) the weights of the agents, alike if none are given."""
    if weights is None:
        return np.full(agents, 1 / agents)
    return checks.shares("weights", weights, length=agents)


def dense(hessian: Floats) -> Precondition:
    """The inverse itself, where the Hessian is small."""
    factor = scipy.linalg.cho_factor(hessian, lower=True)
    return lambda residuals: np.asarray(scipy.linalg.cho_solve(factor, residuals.T).T)


@cache
def _libraries() -> ThreadpoolController:
    """Those that are loaded; found once, as that takes milliseconds."""
    return ThreadpoolController()


@contextmanager
def one_thread() -> Iterator[None]:
    """Inside, or in a function decorated with it, products are computed on one thread.

    On some processors the way a product is cut into pieces for threads decides how its sums are rounded:
    digits would depend on the number of cores.
    """
    with _libraries().limit(limits=1, user_api="blas"):
        yield


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
        data = agent_data(features, owner, agents)
        y = checks.vector("targets", targets, sign="any", length=data.owner.size)
        self.counts = data.counts
        self.regulariser = checks.positive("regulariser", regulariser)
        self.weights = agent_weights(weights, data.counts.size)
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
        for rows in tiles(len(models), max(1, TILE // max(1, k * d))):
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
        for rows in tiles(len(mixes), max(1, TILE // flat.shape[1])):
            bends = (mixes[rows] @ flat).reshape(-1, self.size, self.size)
            out[rows] = np.linalg.solve(bends, (mixes[rows] @ self.cross)[:, :, None])[:, :, 0]
        return out
