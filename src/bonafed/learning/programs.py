"""From a model to a program that runs many clients' copies of it at once.

A program maps flat parameters (K, P), one row per client, and a batch per client to the loss and the
flat gradient of each client. `program_for(module)` chooses

    layer program   nn.Sequential of exactly Linear, Conv2d (stride 1), ReLU, Tanh, MaxPool2d(2), Flatten:
                    written out by hand (`layers.py`), the fastest;
    vmap program    any other module, through torch.func.

Parameters are flattened in the order of `module.named_parameters()`. Samples have shares in the loss of
their client, one over their number for a mean; a client with fewer of them than its neighbours in a batch
is padded with samples whose share is zero. With a clipping norm, each gradient is scaled to that norm at
most before its share is taken.
"""

from __future__ import annotations

import copy
import io
import math
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import islice
from typing import Any, Literal, final

import torch
from torch import Tensor, nn

from bonafed.errors import InvalidValue
from bonafed.learning import layers as stacked
from bonafed.learning.workspace import array

Loss = Literal["cross-entropy", "squared"]
MOST_SAMPLES = 512  # per call; beyond, nothing is gained
CALL_NUMBERS = 1 << 22  # of intermediate results per call (16 MB in single precision)
BATCH_NUMBERS = 1 << 26  # of those of one client's batch (256 MB); a longer one is computed in pieces
DROPOUT = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
GRADIENT_NUMBERS = 1 << 26  # of samples' gradients kept at once (256 MB), where a sample's fits


class Program(ABC):
    """K copies of a model, run as one."""

    size: int  # P, parameters of one model
    loss: Loss
    uses_autograd: bool  # or has its gradients written out

    def __init__(self) -> None:
        self._kept: dict[tuple[torch.Size, torch.dtype, bool], int] = {}

    @abstractmethod
    def gradients(
        self, weights: Tensor, x: Tensor, y: Tensor, share: Tensor, clip: float | None
    ) -> tuple[Tensor, Tensor]:
        """Losses times shares, summed (K,), and their gradient (K, P); x (K, B, ...), share (K, B).

        Shares have the precision of the weights.
        """

    def views(self, weights: Tensor) -> list[Tensor]:
        """Flat parameters (K, P) as the arrays (K, ...) that `descend` works on; none is copied."""
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

        The arrays are shaped like `views`, each in one piece.
        """
        [weights] = arrays
        loss, grad = self.gradients(weights, x, y, share, clip)
        weights.sub_(grad, alpha=rate)
        return loss

    def numbers_kept(self, sample: Tensor, clip: bool) -> int:
        """Numbers of intermediate results that one more sample adds to a call."""
        key = sample.shape, sample.dtype, clip
        if key not in self._kept:  # counted in a trial, once
            self._kept[key] = self._count_kept(sample, clip)
        return self._kept[key]

    @abstractmethod
    def _count_kept(self, sample: Tensor, clip: bool) -> int:
        """What `numbers_kept` says of samples like this one."""

    def samples_per_call(self, sample: Tensor, clip: bool) -> int:
        """Samples like this one worth computing at once: more fall out of the cache, or of memory."""
        return max(1, min(MOST_SAMPLES, CALL_NUMBERS // self.numbers_kept(sample, clip)))

    def samples_in_memory(self, sample: Tensor, clip: bool) -> int:
        """Samples like this one of one client's batch that are computed at a time: more take memory."""
        fits = BATCH_NUMBERS // self.numbers_kept(sample, clip)
        return max(fits, self.samples_per_call(sample, clip))

    @abstractmethod
    def outputs(self, weights: Tensor, x: Tensor) -> Tensor:
        """Model outputs (K, B, outputs) for samples (K, B, ...) of each client."""


def flat_parameters(module: nn.Module) -> Tensor:
    """(P,) a module's parameters in one vector."""
    return torch.cat([p.detach().flatten() for p in module.parameters()]).clone()


def together(arrays: list[Tensor]) -> Tensor:
    """(K, P) flat parameters of a program's `views`, copied."""
    return torch.cat([each.flatten(1) for each in arrays], 1)


def load_parameters(module: nn.Module, flat: Tensor) -> nn.Module:
    """A copy of the module with the parameters of the vector."""
    result = copy.deepcopy(module)
    start = 0
    with torch.no_grad():
        for parameter in result.parameters():
            parameter.copy_(flat[start : start + parameter.numel()].view_as(parameter))
            start += parameter.numel()
    return result


def saved_model(module: nn.Module, flat: Tensor) -> bytes:
    """A file for `module.load_state_dict(torch.load(...))`, with the parameters of the vector."""
    buffer = io.BytesIO()
    torch.save(load_parameters(module, flat).state_dict(), buffer)
    return buffer.getvalue()


def program_for(module: nn.Module, loss: Loss = "cross-entropy", sample: Tensor | None = None) -> Program:
    """The fastest program for a module, on samples like this one (1, ...)."""
    _require_trainable(module)
    found = _stack(module)
    if found is None or sum(layer.size for layer in found) != sum(p.numel() for p in module.parameters()):
        return VmapProgram(module, loss)  # a layer used twice has its parameters once
    program = LayerProgram(found, loss)
    if sample is None or _runs(program, flat_parameters(module), sample):
        return program
    return VmapProgram(module, loss)  # PyTorch's layers take more shapes than those written out


def _runs(program: Program, weights: Tensor, sample: Tensor) -> bool:
    try:
        with torch.no_grad():
            program.outputs(weights[None], sample[None])
    except (RuntimeError, IndexError, ValueError):
        return False
    return True


def _require_trainable(module: nn.Module) -> None:
    """What clients train and send is the vector of all parameters, and nothing else may change."""
    if not isinstance(module, nn.Module):
        raise InvalidValue("model", "must be a torch.nn.Module", type(module).__name__)
    if not any(True for _ in module.parameters()):
        raise InvalidValue("model", "must have parameters", type(module).__name__)
    broken = {
        "must have no buffers (use group norm instead of batch norm)": [
            n for n, _ in module.named_buffers()
        ],
        "must draw no random numbers while it trains": [
            f"{type(part).__name__} ({name})"
            for name, part in module.named_modules()
            if isinstance(part, DROPOUT) and part.training and part.p
        ],
        "must train all its parameters": [
            f"{name} with requires_grad=False"
            for name, parameter in module.named_parameters()
            if not parameter.requires_grad
        ],
    }
    for rule, found in broken.items():
        if found:
            raise InvalidValue("model", rule, found[0])


def _stack(module: nn.Module) -> list[stacked.Layer] | None:
    """The module as stacked layers, or None if one of them is not known."""
    if type(module) is not nn.Sequential or _has_hooks(module):
        return None
    found: list[stacked.Layer] = []
    for part in module:
        layer = _layer(part)
        if layer is None:
            return None
        found.append(layer)
    return _pooled_in_blocks(found) if isinstance(found[-1], stacked.Linear) else None


def _pooled_in_blocks(parts: list[stacked.Layer]) -> list[stacked.Layer]:
    """Convolution, activation, 2 x 2 pool as convolution by blocks, maximum, activation.

    The activations grow with their input, so the maximum may be taken first; they then run on a quarter.
    """
    found = list(parts)
    for k, part in enumerate(found[:-2]):
        activation, pool = found[k + 1 : k + 3]
        if (
            isinstance(part, stacked.Conv2d)
            and part.kernel % 2
            and isinstance(activation, stacked.Relu | stacked.Tanh)
            and isinstance(pool, stacked.MaxPool2)
        ):
            blocks = stacked.BlockConv2d(part.channels, part.filters, part.kernel, part.padding)
            found[k : k + 3] = blocks, stacked.BlockMax(), activation
    return found


def _layer(part: nn.Module) -> stacked.Layer | None:
    """Only what is exactly the layer: a subclass may compute something else."""
    if _has_hooks(part):
        return None
    if type(part) is nn.Linear and part.bias is not None:
        return stacked.Linear(part.in_features, part.out_features)
    if type(part) is nn.Conv2d and _plain_convolution(part):
        assert isinstance(part.padding[0], int)
        return stacked.Conv2d(part.in_channels, part.out_channels, part.kernel_size[0], part.padding[0])
    if type(part) is nn.MaxPool2d and _plain_pool(part):
        return stacked.MaxPool2()
    if type(part) is nn.Flatten and (part.start_dim, part.end_dim) == (1, -1):
        return stacked.Flatten()
    simple: dict[type[nn.Module], type[stacked.Layer]] = {nn.ReLU: stacked.Relu, nn.Tanh: stacked.Tanh}
    kind = simple.get(type(part))
    return None if kind is None else kind()


def _has_hooks(part: nn.Module) -> bool:
    """Whether something is computed before or after the layer (older weight norm, for one)."""
    return bool(part._forward_pre_hooks or part._forward_hooks)


def _plain_pool(part: nn.MaxPool2d) -> bool:
    return (
        part.kernel_size in (2, (2, 2))
        and part.stride in (2, (2, 2))
        and part.padding in (0, (0, 0))
        and part.dilation in (1, (1, 1))
        and not part.ceil_mode
        and not part.return_indices
    )


def _plain_convolution(part: nn.Conv2d) -> bool:
    return (
        part.bias is not None
        and part.groups == 1
        and part.stride == (1, 1)
        and part.dilation == (1, 1)
        and part.kernel_size[0] == part.kernel_size[1]
        and not isinstance(part.padding, str)
        and part.padding[0] == part.padding[1]
        and part.padding_mode == "zeros"
    )


def output_gradient(loss: Loss, z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Loss (K, B) and its gradient (K, B, outputs) for each sample's output."""
    if loss == "squared":
        error = z - y.view(z.shape)
        return error.square().sum(2) / 2, error
    log_p, at = torch.log_softmax(z, 2), y.unsqueeze(2)
    losses = log_p.gather(2, at).squeeze(2).neg_()
    return losses, log_p.exp_().scatter_(2, at, -1.0, reduce="add")


@final
class LayerProgram(Program):
    """Stacked layers with their gradients written out."""

    uses_autograd = False

    def __init__(self, parts: list[stacked.Layer], loss: Loss) -> None:
        super().__init__()
        self.loss = loss
        self._parts = parts
        self._shapes = [shape for part in parts for shape in part.shapes]
        self.size = sum(part.size for part in parts)
        self._first = next(k for k, part in enumerate(parts) if part.size)

    def views(self, weights: Tensor) -> list[Tensor]:
        found, start = [], 0
        for shape in self._shapes:
            end = start + math.prod(shape)
            found.append(weights[:, start:end].view(-1, *shape))
            start = end
        return found

    def _by_layer(self, arrays: list[Tensor]) -> list[stacked.Weights]:
        """Each layer's parameters."""
        rest = iter(arrays)
        return [list(islice(rest, len(part.shapes))) for part in self._parts]

    def _forward(self, weights: list[stacked.Weights], x: Tensor) -> tuple[Tensor, list[stacked.Cache]]:
        if isinstance(self._parts[0], stacked.Flatten):
            value = x.flatten(2)
        else:
            value = _batch_last(self, x) if x.dim() == 5 else x
        caches: list[stacked.Cache] = []
        for part, own in zip(self._parts, weights, strict=True):
            if isinstance(part, stacked.Flatten) and value.dim() == 3:
                caches.append(None)  # vectors are flat already
                continue
            value, cache = part.forward(own, value)
            caches.append(cache)
        return value, caches

    def outputs(self, weights: Tensor, x: Tensor) -> Tensor:
        return self._forward(self._by_layer(self.views(weights)), x)[0]

    def gradients(
        self, weights: Tensor, x: Tensor, y: Tensor, share: Tensor, clip: float | None
    ) -> tuple[Tensor, Tensor]:
        views = self.views(weights)
        grads = [array(self, f"gradient {k}", v.shape, weights).zero_() for k, v in enumerate(views)]
        loss = self._accumulate(views, x, y, share, clip, grads, 1.0)
        return loss, together(grads)

    def descend(
        self,
        arrays: list[Tensor],
        x: Tensor,
        y: Tensor,
        share: Tensor,
        clip: float | None,
        rate: float,
    ) -> Tensor:
        return self._accumulate(arrays, x, y, share, clip, arrays, -rate)

    def _count_kept(self, sample: Tensor, clip: bool) -> int:
        weights = self._by_layer(self.views(torch.zeros(1, self.size, dtype=sample.dtype)))

        def kept(samples: int) -> int:
            return _numbers(self._forward(weights, sample.expand(1, samples, *sample.shape)))

        per_sample = sum(part.size for part in self._parts if isinstance(part, stacked.Convolution))
        return kept(2) - kept(1) + per_sample * clip

    def _accumulate(
        self,
        arrays: list[Tensor],
        x: Tensor,
        y: Tensor,
        share: Tensor,
        clip: float | None,
        out: list[Tensor],
        alpha: float,
    ) -> Tensor:
        """Add alpha times the gradient to `out`, which may be the weights; the loss (K,)."""
        weights, targets = self._by_layer(arrays), self._by_layer(out)
        z, caches = self._forward(weights, x)
        losses, d = output_gradient(self.loss, z, y)
        signals = self._backward(weights, caches, d if clip is not None else d * share[:, :, None])
        owners = [
            (part, target, cache, signal)
            for part, target, cache, signal in zip(self._parts, targets, caches, signals, strict=True)
            if isinstance(part, stacked.WeightedLayer) and signal is not None
        ]
        if clip is None:
            for part, target, cache, signal in owners:
                part.accumulate(cache, signal, target, alpha)
        else:
            norms, kept = zip(*(part.sample_gradients(c, s) for part, _, c, s in owners), strict=True)
            scale = share * (clip / sum(norms).sqrt().clamp_min(1e-12)).clamp_max(1.0)
            for (part, target, cache, signal), keep in zip(owners, kept, strict=True):
                part.accumulate_scaled(cache, signal, keep, scale, target, alpha)
        return (losses * share).sum(1)

    def _backward(
        self, weights: list[stacked.Weights], caches: list[stacked.Cache], d: Tensor
    ) -> list[Tensor | None]:
        """The gradient for each layer's output, layers before the first parameters left out."""
        signals: list[Tensor | None] = [None] * len(self._parts)
        signal: Tensor | None = d
        for k in range(len(self._parts) - 1, self._first - 1, -1):
            signals[k] = signal
            if caches[k] is None:
                continue
            assert signal is not None
            signal = self._parts[k].backward(weights[k], caches[k], signal, want_input=k > self._first)
        return signals


def _batch_last(owner: Program, x: Tensor) -> Tensor:
    """Images (K, B, C, H, W) as (K, C, H, W, B)."""
    view = x.permute(0, 2, 3, 4, 1)
    return array(owner, "images", view.shape, x).copy_(view)


def _numbers(kept: object) -> int:
    """Numbers in all tensors of nested tuples and lists."""
    if isinstance(kept, Tensor):
        return kept.numel()
    return sum(map(_numbers, kept)) if isinstance(kept, tuple | list) else 0


@final
class VmapProgram(Program):
    """Any module through torch.func: gradients of K models by vmap."""

    uses_autograd = True

    def __init__(self, module: nn.Module, loss: Loss) -> None:
        super().__init__()
        self.loss = loss
        self._original = copy.deepcopy(module)
        self._copies = threading.local()
        self._shapes = [(name, p.shape, p.numel()) for name, p in module.named_parameters()]
        self.size = sum(n for _, _, n in self._shapes)
        one = torch.func.grad_and_value(self._mean_loss)
        self._batched: Callable[..., Any] = torch.func.vmap(one)
        sample = torch.func.grad_and_value(self._sample_loss)
        self._per_sample: Callable[..., Any] = torch.func.vmap(
            torch.func.vmap(sample, in_dims=(None, 0, 0))
        )
        self._run: Callable[..., Any] = torch.func.vmap(self._call)

    @property
    def _module(self) -> nn.Module:
        """A copy of this thread's own: while it runs, it holds the parameters of the call."""
        found: nn.Module | None = getattr(self._copies, "module", None)
        if found is None:
            found = self._copies.module = copy.deepcopy(self._original)
        return found

    def _count_kept(self, sample: Tensor, clip: bool) -> int:
        found = [0]

        def count(_module: nn.Module, _inputs: object, output: object) -> None:
            found[0] += _numbers(output)

        watched = [m.register_forward_hook(count) for m in self._module.modules()]
        kind = sample.dtype if sample.is_floating_point() else next(self._module.parameters()).dtype
        try:
            with torch.no_grad():
                self._call(torch.zeros(self.size, dtype=kind), sample[None])
        finally:
            for hook in watched:
                hook.remove()
        return found[0] + self.size * clip

    def _call(self, flat: Tensor, x: Tensor) -> Tensor:
        named, start = {}, 0
        for name, shape, n in self._shapes:
            named[name] = flat[start : start + n].view(shape)
            start += n
        result: Tensor = torch.func.functional_call(self._module, named, (x,))
        return result if result.dim() > 1 else result[:, None]

    def _losses(self, flat: Tensor, x: Tensor, y: Tensor) -> Tensor:
        z = self._call(flat, x)
        if self.loss == "squared":
            squared: Tensor = (z - y.view(z.shape)).square().sum(1) / 2
            return squared
        return nn.functional.cross_entropy(z, y, reduction="none")

    def _mean_loss(self, flat: Tensor, x: Tensor, y: Tensor, share: Tensor) -> Tensor:
        return (self._losses(flat, x, y) * share).sum()

    def _sample_loss(self, flat: Tensor, x: Tensor, y: Tensor) -> Tensor:
        return self._losses(flat, x[None], y[None])[0]

    def outputs(self, weights: Tensor, x: Tensor) -> Tensor:
        result: Tensor = self._run(weights, x)
        return result

    def gradients(
        self, weights: Tensor, x: Tensor, y: Tensor, share: Tensor, clip: float | None
    ) -> tuple[Tensor, Tensor]:
        if clip is None:
            grad, value = self._batched(weights, x, y, share)
            return value.detach(), grad
        at_once = max(1, GRADIENT_NUMBERS // weights.numel())  # samples of each client
        value, grad = torch.zeros_like(share[:, 0]), torch.zeros_like(weights)
        for first in range(0, x.shape[1], at_once):
            some = (slice(None), slice(first, first + at_once))
            each, losses = self._per_sample(weights, x[some], y[some])  # (K, b, P), (K, b)
            scale = share[some] * (clip / each.norm(dim=2).clamp_min(1e-12)).clamp_max(1.0)
            value += (losses.detach() * share[some]).sum(1)
            grad += torch.einsum("kb,kbp->kp", scale, each)
        return value, grad
