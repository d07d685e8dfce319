"""Programs of layers whose gradients are written out by hand.

`stacked_layers(module)` finds the layers of a plain nn.Sequential; `LayerProgram` runs K copies of them.
"""

from __future__ import annotations

import math
from itertools import islice
from typing import final

import torch
from torch import Tensor, nn

from bonafed.learning.engine import layers as stacked
from bonafed.learning.engine.programs import Loss, Program, clip_scale, joined_rows, numbers_in
from bonafed.learning.engine.resources import array

WIDE = 32 * 32  # channels times filters from which PyTorch's convolutions, one by one, are faster


def stacked_layers(module: nn.Module) -> list[stacked.Layer] | None:
    """The module as stacked layers; None if a layer is unknown, or if PyTorch is faster."""
    if type(module) is not nn.Sequential or _has_hooks(module):
        return None
    layers: list[stacked.Layer] = []
    for part in module:
        layer = _layer(part)
        if layer is None:
            return None
        layers.append(layer)
    wide = any(isinstance(one, stacked.Conv2d) and one.channels * one.filters >= WIDE for one in layers)
    return _pooled_in_blocks(layers) if isinstance(layers[-1], stacked.Linear) and not wide else None


def _pooled_in_blocks(parts: list[stacked.Layer]) -> list[stacked.Layer]:
    """Convolution, activation, 2 x 2 pool as convolution by blocks, maximum, activation.

    The activations are increasing, so the maximum may be taken first; they then run on a quarter of it.
    """
    layers = list(parts)
    for k, part in enumerate(layers[:-2]):
        activation, pool = layers[k + 1 : k + 3]
        if (
            isinstance(part, stacked.Conv2d)
            and part.kernel % 2
            and isinstance(activation, stacked.Relu | stacked.Tanh)
            and isinstance(pool, stacked.MaxPool2)
        ):
            blocks = stacked.BlockConv2d(part.channels, part.filters, part.kernel, part.padding)
            layers[k : k + 3] = blocks, stacked.BlockMax(), activation
    return layers


def _layer(part: nn.Module) -> stacked.Layer | None:
    """The stacked layer for exactly this class: a subclass may compute something else."""
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


def _output_gradient(loss: Loss, z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
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
        views, start = [], 0
        for shape in self._shapes:
            end = start + math.prod(shape)
            views.append(weights[:, start:end].view(-1, *shape))
            start = end
        return views

    def _by_layer(self, arrays: list[Tensor]) -> list[stacked.Weights]:
        """The parameters of each layer, as views of the flat ones."""
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
                caches.append(None)  # vectors are already flat
                continue
            value, cache = part.forward(own, value)
            caches.append(cache)
        return value, caches

    def outputs(self, weights: Tensor, x: Tensor) -> Tensor:
        return self._forward(self._by_layer(self.views(weights)), x)[0]

    def gradients(
        self, weights: Tensor, x: Tensor, y: Tensor, share: Tensor, clip: float | None
    ) -> tuple[Tensor, Tensor]:
        loss, grads = self._apart(self.views(weights), x, y, share, clip)
        return loss, joined_rows(grads)

    def _apart(
        self, arrays: list[Tensor], x: Tensor, y: Tensor, share: Tensor, clip: float | None
    ) -> tuple[Tensor, list[Tensor]]:
        """Loss (K,) and gradient, in arrays that the next call overwrites."""
        grads = [array(self, f"gradient {k}", v.shape, v).zero_() for k, v in enumerate(arrays)]
        return self._accumulate(arrays, x, y, share, clip, grads, 1.0), grads

    def descend(
        self,
        arrays: list[Tensor],
        x: Tensor,
        y: Tensor,
        share: Tensor,
        clip: float | None,
        rate: float,
    ) -> Tensor:
        if clip is None:
            return self._accumulate(arrays, x, y, share, clip, arrays, -rate)
        loss, grads = self._apart(arrays, x, y, share, clip)
        for weights, grad in zip(arrays, grads, strict=True):
            weights.sub_(grad, alpha=rate)
        return loss

    def _count_kept(self, sample: Tensor, clip: bool) -> int:
        weights = self._by_layer(self.views(torch.zeros(1, self.size, dtype=sample.dtype)))

        def numbers(samples: int) -> int:
            return numbers_in(self._forward(weights, sample.expand(1, samples, *sample.shape)))

        per_sample = sum(part.size for part in self._parts if isinstance(part, stacked.Convolution))
        return numbers(2) - numbers(1) + per_sample * clip

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
        losses, d = _output_gradient(self.loss, z, y)
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
            squares, saved = zip(*(part.sample_gradients(c, s) for part, _, c, s in owners), strict=True)
            norms = sum(squares).sqrt()
            good = norms.isfinite()
            if not bool(good.all()):  # again without those samples, as 0 times infinity is not 0
                blank = torch.where(good.view(*good.shape, *[1] * (x.dim() - 2)), x, torch.zeros_like(x))
                if not torch.equal(blank, x):  # or the weights themselves overflow
                    return self._accumulate(arrays, blank, y, share * good, clip, out, alpha)
            scale = share * clip_scale(norms, clip)
            for (part, target, cache, signal), own in zip(owners, saved, strict=True):
                part.accumulate_scaled(cache, signal, own, scale, target, alpha)
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
