"""Any PyTorch model as a problem of K agents, through the client-batched programs of the engine.

F_k is the mean loss of agent k's samples plus mu/2 |w|^2. If the model is linear in its parameters that is
strongly convex, and everything holds as for the softmax; the user has to say so, and how smooth it is. For
other models it is not: the protocol runs, payments are the same integrals of reports, but these are lost:

    efficiency      training ends at some stationary point, not at the best model
    faithfulness    an agent's overall loss is no longer [F(w) - min f_-k]/p_k: the steps without it may
                    end in another valley, and whether lying pays depends on which
    participation   J_k <= F_k(w_-k) compared minima
    balance         a payment is f_-k(w*) - f_-k(W) over p_k; it is >= 0 only while the steps descend.

Strongly convex problems are computed in double precision, so that Newton's method and certificates work to
rounding; for the others forward and backward passes are in single precision as in the engine, sums over
samples in double.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import final

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue
from bonafed.learning.engine.jobs import Samples
from bonafed.learning.engine.programs import Loss, Program, flat_parameters, program_for, trainable
from bonafed.learning.engine.resources import single_threaded
from bonafed.learning.problems.convex import Problem, rows_of_one, tiles


@final
class ModuleProblem(Problem):
    """K agents who train a PyTorch module together."""

    def __init__(
        self,
        module: nn.Module | Program,
        samples: Samples,
        owner: ArrayLike,
        regulariser: float,
        smoothness: float,
        weights: ArrayLike | None = None,
        *,
        loss: Loss = "cross-entropy",
        strongly_convex: bool = False,
    ) -> None:
        """`smoothness` is the inverse of the training step if the true one is unknown."""
        self._module = None if isinstance(module, Program) else module
        self._program = module if isinstance(module, Program) else program_for(
            module, loss, samples.features[:1]
        )  # fmt: skip
        self._kind = torch.float64 if strongly_convex else torch.float32
        self._samples = Samples(_floats(samples.features, self._kind), _floats(samples.labels, self._kind))
        owners = np.asarray(owner)
        if owners.shape != (len(samples.labels),) or not np.issubdtype(owners.dtype, np.integer):
            rule = f"must be {len(samples.labels)} whole numbers, one per sample"
            raise InvalidValue("owner", rule, f"shape {owners.shape}")
        self.counts = np.bincount(owners)
        if (self.counts == 0).any():
            raise InvalidValue(f"agent {int(np.argmin(self.counts))}", "must have samples", 0)
        self._owner = torch.from_numpy(owners.astype(np.int64))
        self._order = np.argsort(owners, kind="stable")  # the samples agent by agent
        k = self.counts.size
        self.weights = np.full(k, 1 / k) if weights is None else checks.shares("weights", weights, length=k)
        self.regulariser = checks.non_negative("regulariser", regulariser)
        self.size = self._program.size
        self.strongly_convex = strongly_convex
        self._smooth = checks.positive("smoothness", smoothness)

    @property
    def smoothness(self) -> float:
        return self._smooth

    @property
    def gradient_bound(self) -> float:
        """Unknown if convex; otherwise, all that is known is that it is computed in single precision."""
        if self.strongly_convex:
            return math.inf
        largest = float(np.finfo(np.float32).max)
        return largest * len(self._samples.labels) * math.sqrt(self.size)

    @property
    def start(self) -> Floats:
        """(P,) the module's own parameters; at zeros, a network with hidden layers would be stationary."""
        return np.asarray(flat_parameters(self._own()).double().numpy())

    def _chunks(self, models: int, samples: int | None = None) -> list[slice]:
        """So many samples, or all, as many at once as are worth computing for so many models."""
        most = max(1, self._program.samples_per_call(self._samples.features[0], clip=False) // models)
        return tiles(len(self._samples.labels) if samples is None else samples, most)

    def _chunks_of(self, mix: Floats) -> Sequence[slice | Tensor]:
        """All samples, or only its own where the mixes (m, K) are about one agent alone."""
        rows = rows_of_one(mix, self.counts, self._order)
        if rows is None:
            return self._chunks(mix.shape[0])
        return [torch.from_numpy(rows[chunk]) for chunk in self._chunks(mix.shape[0], rows.size)]

    def _batch(self, rows: slice | Tensor, models: int) -> tuple[Tensor, Tensor]:
        x, y = self._samples.features[rows], self._samples.labels[rows]
        return x.expand(models, *x.shape), y.expand(models, *y.shape)

    def gradient(self, models: Floats, mix: Floats) -> Floats:
        m = models.shape[0]
        w = torch.tensor(models, dtype=self._kind)  # a copy: what came in a message is read-only
        shares = torch.from_numpy(mix / self.counts)  # (m, K) of one sample
        total = torch.zeros(m, self.size, dtype=torch.float64)
        with single_threaded():
            for rows in self._chunks_of(mix):
                x, y = self._batch(rows, m)
                share = shares[:, self._owner[rows]].to(self._kind)
                _, g = self._program.gradients(w, x, y, share, None)
                total += g.double()
        return np.asarray(total.numpy() + self.regulariser * mix.sum(1)[:, None] * models)

    def losses(self, models: Floats) -> Floats:
        m = models.shape[0]
        w = torch.tensor(models, dtype=self._kind)  # a copy: what came in a message is read-only
        total = torch.zeros(self.counts.size, m, dtype=torch.float64)
        with torch.no_grad(), single_threaded():
            for rows in self._chunks(m):
                x, y = self._batch(rows, m)
                each = self._each(self._program.outputs(w, x), y)
                total.index_add_(0, self._owner[rows], each.T.double())
        means = (total.numpy() / self.counts[:, None]).T
        return np.asarray(means + self.regulariser / 2 * (models**2).sum(1)[:, None])

    def _each(self, z: Tensor, y: Tensor) -> Tensor:
        """(m, B) losses of outputs (m, B, outputs)."""
        if self._program.loss == "squared":
            return (z - y.view(z.shape)).square().sum(2) / 2
        flat = nn.functional.cross_entropy(z.flatten(0, 1), y.flatten(), reduction="none")
        return flat.view(y.shape)

    def _own(self) -> nn.Module:
        if self._module is None:
            raise InvalidValue("module", "must be a module, not its program, for this", "a program")
        return self._module

    def hessian(self, model: Floats, mix: Floats) -> Floats:
        return np.stack([self.hessian_product(model, mix, e) for e in np.eye(self.size)])

    def hessian_product(self, model: Floats, mix: Floats, direction: Floats) -> Floats:
        share = torch.from_numpy(mix / self.counts)[self._owner]
        module = self._own()
        names = list(trainable(module))
        shapes = [p.shape for p in trainable(module).values()]

        def loss(flat: Tensor, rows: slice) -> Tensor:
            parts = torch.split(flat, [shape.numel() for shape in shapes])
            parameters = {n: p.view(s) for n, p, s in zip(names, parts, shapes, strict=True)}
            z = torch.func.functional_call(
                module, parameters, (_floats(self._samples.features[rows], torch.float64),)
            )
            y = _floats(self._samples.labels[rows], torch.float64)
            total: Tensor = (self._each(z[None], y[None])[0] * share[rows]).sum()
            return total

        at, along = torch.tensor(model, requires_grad=True), torch.tensor(direction)
        product = torch.zeros(self.size, dtype=torch.float64)
        with single_threaded():
            for rows in self._chunks(1):
                (slope,) = torch.autograd.grad(loss(at, rows), at, create_graph=True)
                product += torch.autograd.grad(slope @ along, at)[0]
        return np.asarray(product.numpy() + self.regulariser * float(mix.sum()) * direction)


def _floats(values: Tensor, kind: torch.dtype) -> Tensor:
    """Real numbers in this precision; classes and tokens unchanged."""
    return values.to(kind) if values.is_floating_point() else values
