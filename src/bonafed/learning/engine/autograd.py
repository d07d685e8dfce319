"""Programs of any module, through automatic differentiation.

vmap runs many copies of a module as one, which saves the overhead between short operations. Where they are
long there is nothing to save, and vmap itself costs a third more: modules with large intermediate results,
and those vmap cannot run, are differentiated client by client and, for clipping, sample by sample. The
choice depends only on the module and the shape of a batch.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from torch import Tensor, nn

from bonafed.errors import InvalidValue
from bonafed.learning.engine.programs import Loss, Program, clip_scale, numbers_in, trainable

GRADIENT_NUMBERS = 1 << 26  # of sample gradients kept at once (256 MB), if one sample's fits
STACKED_BATCH = 1 << 19  # most numbers that a batch keeps for stacking to be worthwhile; with clipping:
STACKED_SAMPLE = 1 << 18  # the same for one sample with its gradient


@final
class ModuleProgram(Program):
    """Gradients of K copies of a module, by vmap or one after another."""

    uses_autograd = True

    def __init__(self, module: nn.Module, loss: Loss, one_by_one: bool = False) -> None:
        super().__init__()
        self.loss = loss
        self._one_by_one = one_by_one
        self._original = copy.deepcopy(module)
        self._copies = threading.local()
        parameters = trainable(module)
        self._names, self._shapes = list(parameters), [p.shape for p in parameters.values()]
        self._sizes = [shape.numel() for shape in self._shapes]
        self.size = sum(self._sizes)
        self._of_many: Callable[..., Any] = torch.func.vmap(torch.func.grad_and_value(self._summed_loss))
        own = torch.func.vmap(torch.func.grad_and_value(self._sample_loss), in_dims=(None, 0, 0))
        self._of_samples: Callable[..., Any] = torch.func.vmap(own)
        self._run: Callable[..., Any] = torch.func.vmap(self._one_output)

    @property
    def _module(self) -> nn.Module:
        """This thread's own copy: while it runs, it holds the parameters of the call."""
        module: nn.Module | None = getattr(self._copies, "module", None)
        if module is None:
            module = self._copies.module = copy.deepcopy(self._original)
        return module

    def _count_kept(self, sample: Tensor, clip: bool) -> int:
        total = [0]

        def count(_module: nn.Module, _inputs: object, output: object) -> None:
            total[0] += numbers_in(output)

        hooks = [m.register_forward_hook(count) for m in self._module.modules()]
        kind = sample.dtype if sample.is_floating_point() else next(self._module.parameters()).dtype
        try:
            with torch.no_grad():
                self._call(self._arrays(torch.zeros(self.size, dtype=kind)), sample[None])
        finally:
            for hook in hooks:
                hook.remove()
        return total[0] + self.size * clip

    def _alone(self, x: Tensor, clip: bool) -> bool:
        """Whether batches (K, B, ...) are computed one after another."""
        if self._one_by_one:
            return True
        per_sample = self.numbers_kept(x[0, 0], clip)
        return per_sample > STACKED_SAMPLE if clip else x.shape[1] * per_sample > STACKED_BATCH

    def _arrays(self, flat: Tensor) -> list[Tensor]:
        """Parameters (P,) in their shapes."""
        # the derivative of split writes the vector once, that of slices once per slice
        pieces = torch.split(flat, self._sizes)
        return [piece.view(shape) for piece, shape in zip(pieces, self._shapes, strict=True)]

    def _call(self, arrays: list[Tensor], x: Tensor) -> Tensor:
        result = torch.func.functional_call(self._module, dict(zip(self._names, arrays, strict=True)), (x,))
        if not isinstance(result, Tensor) or result.dim() not in (1, 2):
            description = tuple(result.shape) if isinstance(result, Tensor) else type(result).__name__
            raise InvalidValue("outputs of the model", "must be one tensor (samples, outputs)", description)
        return result if result.dim() == 2 else result[:, None]

    def _one_output(self, flat: Tensor, x: Tensor) -> Tensor:
        return self._call(self._arrays(flat), x)

    def _losses(self, arrays: list[Tensor], x: Tensor, y: Tensor) -> Tensor:
        z = self._call(arrays, x)
        if self.loss == "squared":
            squared: Tensor = (z - y.view(z.shape)).square().sum(1) / 2
            return squared
        return nn.functional.cross_entropy(z, y, reduction="none")

    def _summed_loss(self, flat: Tensor, x: Tensor, y: Tensor, share: Tensor) -> Tensor:
        return (self._losses(self._arrays(flat), x, y) * share).sum()

    def _sample_loss(self, flat: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return self._losses(self._arrays(flat), x[None], y[None])[0]

    def outputs(self, weights: Tensor, x: Tensor) -> Tensor:
        if self._alone(x, clip=False):
            return torch.stack(
                [self._call(self._arrays(w), own) for w, own in zip(weights, x, strict=True)]
            )
        result: Tensor = self._run(weights, x)
        return result

    def gradients(
        self, weights: Tensor, x: Tensor, y: Tensor, share: Tensor, clip: float | None
    ) -> tuple[Tensor, Tensor]:
        if self._alone(x, clip is not None):
            each = [self._one(*own, clip) for own in zip(weights, x, y, share, strict=True)]
            values, grads = zip(*each, strict=True)
            return torch.stack(values), torch.stack(grads)
        if clip is None:
            grad, value = self._of_many(weights, x, y, share)
            return value.detach(), grad
        at_once = max(1, GRADIENT_NUMBERS // weights.numel())  # samples of each client
        value, grad = torch.zeros_like(share[:, 0]), torch.zeros_like(weights)
        for first in range(0, x.shape[1], at_once):
            some = (slice(None), slice(first, first + at_once))
            each, losses = self._of_samples(weights, x[some], y[some])  # (K, b, P), (K, b)
            its_value, its_grad = _clipped(each, losses.detach(), share[some], clip)
            value += its_value
            grad += its_grad
        return value, grad

    def _one(
        self, weights: Tensor, x: Tensor, y: Tensor, share: Tensor, clip: float | None
    ) -> tuple[Tensor, Tensor]:
        """One client's loss and gradient (P,)."""
        arrays = [each.detach().requires_grad_() for each in self._arrays(weights)]
        if clip is None:
            value = (self._losses(arrays, x, y) * share).sum()
            return value.detach(), _flat(torch.autograd.grad(value, arrays, materialize_grads=True))
        total, sums = torch.zeros_like(share[0]), [torch.zeros_like(each) for each in arrays]
        for k in share.nonzero().flatten().tolist():
            loss = self._losses(arrays, x[k : k + 1], y[k : k + 1])[0]
            grads = torch.autograd.grad(loss, arrays, materialize_grads=True)
            norm = torch.stack([torch.linalg.vector_norm(grad) for grad in grads]).norm()
            if not norm.isfinite():
                continue  # as in `clip_scale`
            scale = float(share[k] * clip_scale(norm, clip))
            for sum_of, grad in zip(sums, grads, strict=True):
                sum_of.add_(grad, alpha=scale)
            total += loss.detach() * share[k]
        return total, _flat(sums)


def _flat(arrays: Sequence[Tensor]) -> Tensor:
    return torch.cat([each.flatten() for each in arrays])


def _clipped(each: Tensor, losses: Tensor, share: Tensor, clip: float) -> tuple[Tensor, Tensor]:
    """Sums of losses (K, b) and of clipped gradients (K, b, P), times their shares."""
    norms = each.norm(dim=2)
    good = norms.isfinite()
    if not bool(good.all()):  # as 0 times infinity is not 0
        each, losses = torch.where(good[:, :, None], each, 0.0), torch.where(good, losses, 0.0)
    scale = share * clip_scale(norms, clip)
    return (losses * share).sum(1), torch.einsum("kb,kbp->kp", scale, each)
