"""Layers of many clients' models run as one program, with their gradients written out.

Every client k has its own weights, so a layer is a batch of matrix products, one per client. What vmap
turns into grouped convolutions is done here as one copy into columns and one batched product, which is
markedly faster on a CPU, and lets the gradient of the first layer's input be left out.

Activations are laid out client first and sample late: images (K, C, B, H, W), vectors (K, B, F).
`backward` gets the gradient of the loss for each sample and returns the gradient for the layer's input
(None if not wanted); `accumulate` adds the parameter gradient, summed over samples, straight into the
weights (a gradient step) or into an empty gradient. For private
training `squared_norms` adds each sample's squared gradient norm, from the same quantities, without
ever forming a gradient per sample where that can be avoided.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

Cache = Any  # what a layer keeps from its forward pass for the backward pass


class Layer(ABC):
    """One layer of K models; `weights` is the (K, size) slice of the flat parameters it owns."""

    size: int = 0  # number of its parameters

    @abstractmethod
    def forward(self, weights: Tensor, x: Tensor) -> tuple[Tensor, Cache]:
        """Output, and what backward needs."""

    @abstractmethod
    def backward(self, weights: Tensor, cache: Cache, d: Tensor, want_input: bool) -> Tensor | None:
        """Gradient for the input, given the gradient d for the output."""

    def accumulate(self, cache: Cache, d: Tensor, out: Tensor, alpha: float) -> None:  # noqa: B027
        """Add alpha times the parameter gradient, summed over samples, to `out` (K, size) in place."""

    def squared_norms(self, cache: Cache, d: Tensor) -> Tensor | None:
        """(K, B) squared norm of each sample's parameter gradient; None without parameters."""
        return None


@final
@dataclass(frozen=True)
class Linear(Layer):
    """y = x W' + b for each client; torch.nn.Linear's parameter order (weight, bias)."""

    inputs: int
    outputs: int

    @property
    def size(self) -> int:  # type: ignore[override]
        return self.outputs * (self.inputs + 1)

    def _split(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        cut = self.inputs * self.outputs
        matrix = weights[:, :cut].view(-1, self.outputs, self.inputs)
        return matrix, weights[:, cut:]

    def forward(self, weights: Tensor, x: Tensor) -> tuple[Tensor, Cache]:
        matrix, bias = self._split(weights)
        return torch.baddbmm(bias[:, None], x, matrix.transpose(1, 2)), x

    def backward(self, weights: Tensor, cache: Cache, d: Tensor, want_input: bool) -> Tensor | None:
        return torch.bmm(d, self._split(weights)[0]) if want_input else None

    def accumulate(self, cache: Cache, d: Tensor, out: Tensor, alpha: float) -> None:
        matrix, bias = self._split(out)
        matrix.baddbmm_(d.transpose(1, 2), cache, alpha=alpha)
        bias.add_(d.sum(1), alpha=alpha)

    def squared_norms(self, cache: Cache, d: Tensor) -> Tensor | None:
        # one sample's gradient is the outer product of d and x, so its norm is a product of norms
        norms: Tensor = d.square().sum(2) * (cache.square().sum(2) + 1)
        return norms


@final
@dataclass(frozen=True)
class Conv2d(Layer):
    """Convolution with a square kernel, stride 1 and zero padding."""

    channels: int
    filters: int
    kernel: int
    padding: int = 0

    @property
    def size(self) -> int:  # type: ignore[override]
        return self.filters * (self.channels * self.kernel**2 + 1)

    def _split(self, weights: Tensor) -> tuple[Tensor, Tensor]:
        columns = self.channels * self.kernel**2
        cut = self.filters * columns
        return weights[:, :cut].view(-1, self.filters, columns), weights[:, cut:]

    def forward(self, weights: Tensor, x: Tensor) -> tuple[Tensor, Cache]:
        if self.padding:
            x = torch.nn.functional.pad(x, [self.padding] * 4)
        k, c, b, height, width = x.shape
        tall, wide = height - self.kernel + 1, width - self.kernel + 1
        s = x.stride()
        windows = x.as_strided(
            (k, c, self.kernel, self.kernel, b, tall, wide), (s[0], s[1], s[3], s[4], s[2], s[3], s[4])
        )
        columns = windows.reshape(k, c * self.kernel**2, b * tall * wide)
        matrix, bias = self._split(weights)
        y = torch.baddbmm(bias[:, :, None], matrix, columns)
        return y.view(k, self.filters, b, tall, wide), (columns, x.shape)

    def backward(self, weights: Tensor, cache: Cache, d: Tensor, want_input: bool) -> Tensor | None:
        if not want_input:
            return None
        _, shape = cache
        k, c, b, height, width = shape
        tall, wide = d.shape[3:]
        parts = torch.bmm(self._split(weights)[0].transpose(1, 2), d.flatten(2))
        parts = parts.view(k, c, self.kernel, self.kernel, b, tall, wide)
        out = torch.zeros(shape, dtype=d.dtype)
        for i in range(self.kernel):
            for j in range(self.kernel):
                out[..., i : i + tall, j : j + wide] += parts[:, :, i, j]
        p = self.padding
        return out[..., p : height - p, p : width - p] if p else out

    def accumulate(self, cache: Cache, d: Tensor, out: Tensor, alpha: float) -> None:
        matrix, bias = self._split(out)
        flat = d.flatten(2)
        matrix.baddbmm_(flat, cache[0].transpose(1, 2), alpha=alpha)
        bias.add_(flat.sum(2), alpha=alpha)

    def squared_norms(self, cache: Cache, d: Tensor) -> Tensor | None:
        k, b = d.shape[0], d.shape[2]
        columns = cache[0].view(k, -1, b, d.shape[3] * d.shape[4]).transpose(1, 2).flatten(0, 1)
        flat = d.flatten(3).transpose(1, 2).flatten(0, 1)  # (K B, O, H W)
        per_sample = torch.bmm(flat, columns.transpose(1, 2))
        norms = per_sample.square().sum((1, 2)) + flat.sum(2).square().sum(1)
        return norms.view(k, b)


@final
@dataclass(frozen=True)
class Relu(Layer):
    """max(x, 0)."""

    def forward(self, weights: Tensor, x: Tensor) -> tuple[Tensor, Cache]:
        y = torch.relu(x)
        return y, y

    def backward(self, weights: Tensor, cache: Cache, d: Tensor, want_input: bool) -> Tensor | None:
        return d * (cache > 0) if want_input else None


@final
@dataclass(frozen=True)
class Tanh(Layer):
    """tanh(x)."""

    def forward(self, weights: Tensor, x: Tensor) -> tuple[Tensor, Cache]:
        y = torch.tanh(x)
        return y, y

    def backward(self, weights: Tensor, cache: Cache, d: Tensor, want_input: bool) -> Tensor | None:
        return d * (1 - cache.square()) if want_input else None


@final
@dataclass(frozen=True)
class MaxPool2(Layer):
    """Maximum over 2 x 2 blocks; the first of equal values gets the gradient, as in PyTorch."""

    def forward(self, weights: Tensor, x: Tensor) -> tuple[Tensor, Cache]:
        tall, wide = x.shape[3] // 2 * 2, x.shape[4] // 2 * 2
        a, b = x[..., 0:tall:2, 0:wide:2], x[..., 0:tall:2, 1:wide:2]
        c, d = x[..., 1:tall:2, 0:wide:2], x[..., 1:tall:2, 1:wide:2]
        upper, lower = torch.maximum(a, b), torch.maximum(c, d)
        return torch.maximum(upper, lower), (b > a, d > c, lower > upper, x.shape)

    def backward(self, weights: Tensor, cache: Cache, d: Tensor, want_input: bool) -> Tensor | None:
        if not want_input:
            return None
        right_above, right_below, below, shape = cache
        tall, wide = shape[3] // 2 * 2, shape[4] // 2 * 2
        even = (tall, wide) == tuple(shape[3:])
        out = torch.empty(shape, dtype=d.dtype) if even else torch.zeros(shape, dtype=d.dtype)
        lower = d * below
        upper = d - lower
        part = upper * right_above
        out[..., 0:tall:2, 1:wide:2] = part
        out[..., 0:tall:2, 0:wide:2] = upper - part
        part = lower * right_below
        out[..., 1:tall:2, 1:wide:2] = part
        out[..., 1:tall:2, 0:wide:2] = lower - part
        return out


@final
@dataclass(frozen=True)
class Flatten(Layer):
    """Images (K, C, B, H, W) to vectors (K, B, C H W)."""

    def forward(self, weights: Tensor, x: Tensor) -> tuple[Tensor, Cache]:
        return x.transpose(1, 2).flatten(2), x.shape

    def backward(self, weights: Tensor, cache: Cache, d: Tensor, want_input: bool) -> Tensor | None:
        k, c, b, height, width = cache
        return d.view(k, b, c, height, width).transpose(1, 2) if want_input else None
