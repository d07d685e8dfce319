"""From a model to a program that runs many clients' copies of it at once.

A program maps flat parameters (K, P), one row per client, and a batch per client to the loss and the
flat gradient of each client. `program_for(module)` chooses

    layer program    nn.Sequential of exactly Linear, Conv2d (stride 1), ReLU, Tanh, MaxPool2d(2), Flatten:
                     written out by hand (`stacks.py`, `layers.py`), the fastest;
    module program   any other module, through torch.func (`ModuleProgram`).

Parameters that train are flattened in the order of `module.named_parameters()`. Samples have shares in the
loss of their client, one over their number for a mean; a client with fewer of them than its neighbours in
a batch is padded with samples whose share is zero. With a clipping norm, each gradient is scaled to that
norm at most before its share is taken.

For a module program vmap runs many copies of a module as one, which saves the overhead between short
operations. Where they are long there is nothing to save, and vmap itself costs a third more: modules with
large intermediate results, and those vmap cannot run, are differentiated client by client and, for
clipping, sample by sample. The choice depends only on the module and the shape of a batch.
"""

from __future__ import annotations

import copy
import hashlib
import io
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Literal, final

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from bonafed.errors import InvalidValue

Loss = Literal["cross-entropy", "squared"]
MOST_SAMPLES = 512  # per call; more gain nothing
CALL_NUMBERS = 1 << 22  # of intermediate results per call (16 MB in single precision)
BATCH_NUMBERS = 1 << 26  # of those of one client's batch (256 MB); a longer one is computed in pieces
DROPOUT = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
CLIPPED_PIECE = 64  # samples whose clipped gradients are added up in the precision of the model
# of norms: above what rounding adds to them, and to the sum of a piece, m (m + 2) u for each of m samples
CLIP_MARGIN = {torch.float32: 3e-4, torch.float64: 1e-12}


class Program(ABC):
    """K copies of a model, run as one."""

    size: int  # P, parameters of one model
    loss: Loss
    uses_autograd: bool  # rather than gradients written out by hand

    def __init__(self) -> None:
        self._counts: dict[tuple[torch.Size, torch.dtype, bool], int] = {}

    @abstractmethod
    def gradients(
        self, weights: Tensor, x: Tensor, y: Tensor, share: Tensor, clip: float | None
    ) -> tuple[Tensor, Tensor]:
        """Losses times shares, summed (K,), and their gradient (K, P); x (K, B, ...), share (K, B).

        Shares have the precision of the weights.
        """

    def views(self, weights: Tensor) -> list[Tensor]:
        """Flat parameters (K, P) as the arrays (K, ...) that `descend` works on, without a copy."""
        return [weights]

    def descend(
        self,
        arrays: list[Tensor],
        x: Tensor,
        y: Tensor,
        share: Tensor,
        clip: float | None,
        rate: float,
    ) -> Tensor:
        """One plain gradient step in place; the loss (K,) before it.

        The arrays are shaped like `views`, each in one piece. A clipped gradient is made by itself before
        it moves the weights: then its rounding is its own, and what moving them adds to it is bounded
        (`sum_noise.rounding`).
        """
        [weights] = arrays
        loss, grad = self.gradients(weights, x, y, share, clip)
        weights.sub_(grad, alpha=rate)
        return loss

    def numbers_kept(self, sample: Tensor, clip: bool) -> int:
        """Numbers of intermediate results that one more sample adds to a call."""
        key = sample.shape, sample.dtype, clip
        if key not in self._counts:  # counted once, in a trial run
            self._counts[key] = self._count_kept(sample, clip)
        return self._counts[key]

    @abstractmethod
    def _count_kept(self, sample: Tensor, clip: bool) -> int:
        """The value of `numbers_kept` for samples like this one."""

    def samples_per_call(self, sample: Tensor, clip: bool) -> int:
        """How many samples like this one to compute at once: more would exceed the cache, or memory."""
        return max(1, min(MOST_SAMPLES, CALL_NUMBERS // self.numbers_kept(sample, clip)))

    def samples_in_memory(self, sample: Tensor, clip: bool) -> int:
        """How many samples like this one of a single batch to compute at a time, limited by memory."""
        fits = BATCH_NUMBERS // self.numbers_kept(sample, clip)
        return max(fits, self.samples_per_call(sample, clip))

    @abstractmethod
    def outputs(self, weights: Tensor, x: Tensor) -> Tensor:
        """Model outputs (K, B, outputs) for samples (K, B, ...) of each client."""


def clip_scale(norms: Tensor, clip: float) -> Tensor:
    """What gradients of these norms are multiplied by, so that none is longer than `clip`, even rounded.

    Zero where a norm is not finite: such a gradient has no direction, and the sensitivity of a private
    release must hold for every possible sample. The caller has to take care of 0 times infinity.
    """
    scale = (clip * (1 - CLIP_MARGIN[norms.dtype]) / norms.clamp_min(1e-12)).clamp_max(1.0)
    return torch.where(norms.isfinite(), scale, 0.0)


def trainable(module: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that train, by name; the others are the same for every client and never change."""
    return {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}


def flat_parameters(module: nn.Module) -> Tensor:
    """(P,) a module's parameters in one vector."""
    return torch.cat([p.detach().flatten() for p in trainable(module).values()]).clone()


def joined_rows(arrays: list[Tensor]) -> Tensor:
    """(K, P) flat parameters of a program's `views`, copied."""
    return torch.cat([each.flatten(1) for each in arrays], 1)


def load_parameters(module: nn.Module, flat: Tensor) -> nn.Module:
    """A copy of the module with the parameters of the vector."""
    result = copy.deepcopy(module)
    start = 0
    with torch.no_grad():
        for parameter in trainable(result).values():
            parameter.copy_(flat[start : start + parameter.numel()].view_as(parameter))
            start += parameter.numel()
    return result


def saved_model(module: nn.Module, flat: Tensor) -> bytes:
    """A file for `module.load_state_dict(torch.load(...))`, with the parameters of the vector."""
    buffer = io.BytesIO()
    torch.save(load_parameters(module, flat).state_dict(), buffer)
    return buffer.getvalue()


def architecture(module: nn.Module) -> str:
    """SHA-256 of everything in a module but its trainable weights: parts, their options, constants."""
    hasher = hashlib.sha256(repr(module).encode())
    frozen = {name: p for name, p in module.named_parameters() if not p.requires_grad}
    for name, values in sorted({**frozen, **dict(module.named_buffers())}.items()):
        hasher.update(f"{name} {values.dtype} {tuple(values.shape)}".encode())
        hasher.update(values.detach().contiguous().numpy().tobytes())
    return hasher.hexdigest()


def program_for(module: nn.Module, loss: Loss = "cross-entropy", sample: Tensor | None = None) -> Program:
    """The fastest program for a module, on samples like this one (1, ...)."""
    from bonafed.learning.engine.stacks import LayerProgram, stacked_layers  # it imports this file

    _require_trainable(module, sample)
    layers = stacked_layers(module)
    # a layer that is used twice has its parameters once, and frozen ones do not train
    if layers is not None and sum(layer.size for layer in layers) == flat_parameters(module).numel():
        program = LayerProgram(layers, loss)
        if sample is None or _runs(program, module, sample):  # PyTorch's layers accept more shapes
            return program
    stacked = ModuleProgram(module, loss)
    # vmap runs PyTorch's recurrent layers slowly or not at all, and no `if` on values
    recurrent = any(isinstance(part, nn.RNNBase) for part in module.modules())
    if not recurrent and (sample is None or _runs(stacked, module, sample)):
        return stacked
    return ModuleProgram(module, loss, one_by_one=True)


def _runs(program: Program, module: nn.Module, sample: Tensor) -> bool:
    """Whether a step for two clients works."""
    weights = flat_parameters(module).expand(2, -1)
    x = sample.expand(2, *sample.shape)
    y = torch.zeros(2, 1, dtype=torch.int64 if program.loss == "cross-entropy" else weights.dtype)
    try:
        program.gradients(weights, x, y, torch.ones(2, 1, dtype=weights.dtype), None)
    except (RuntimeError, IndexError, ValueError):
        return False
    return True


def _require_trainable(module: nn.Module, sample: Tensor | None) -> None:
    """Clients train and send the vector of parameters: nothing else may change, at random or otherwise.

    Nor may the samples of a batch affect each other, as some of them are padding.
    """
    if not isinstance(module, nn.Module):
        raise InvalidValue("model", "must be a torch.nn.Module", type(module).__name__)
    if not trainable(module):
        raise InvalidValue("model", "must have parameters that train", type(module).__name__)
    parts = [(f"{type(part).__name__} ({name})", part) for name, part in module.named_modules()]
    violations = {
        "must not mix the samples of a batch (use group norm instead of batch norm)": [
            name for name, part in parts if isinstance(part, _BatchNorm) and part.training
        ],
        "must draw no random numbers while it trains": [
            name for name, part in parts if isinstance(part, DROPOUT) and part.training and part.p
        ],
        "must not change its buffers while it trains": _changed_buffers(module, sample),
    }
    for rule, names in violations.items():
        if names:
            raise InvalidValue("model", rule, names[0])


def _changed_buffers(module: nn.Module, sample: Tensor | None) -> list[str]:
    """Names of buffers that change when a sample is run; constants (positions, scales) do not."""
    if sample is None or not any(True for _ in module.buffers()):
        return []
    trial = copy.deepcopy(module)
    try:
        with torch.no_grad():
            trial(sample)
    except (RuntimeError, IndexError, ValueError):
        return []  # a module that does not run at all is refused elsewhere
    return [
        name
        for (name, before), after in zip(module.named_buffers(), trial.buffers(), strict=True)
        if not torch.equal(before, after)
    ]


def numbers_in(nested: object) -> int:
    """Numbers in all tensors of nested tuples and lists."""
    if isinstance(nested, Tensor):
        return nested.numel()
    return sum(map(numbers_in, nested)) if isinstance(nested, tuple | list) else 0


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
