"""Layers of many clients' models run as one program, with their gradients written out.

Every client k has its own weights, so a layer is a batch of matrix products, one per client. Where vmap
would use grouped convolutions, one copy into columns and one batched product do here, which is markedly
faster on a CPU and makes it possible to omit the gradient of the first layer's input.

Vectors are laid out (K, B, F), images (K, C, H, W, B): with the batch innermost, every copy runs over
neighbouring numbers. `backward` gets the gradient of the loss for each sample and returns the gradient for
the layer's input (None if not needed); `accumulate` adds the parameter gradient, summed over samples,
straight to the weights (a gradient step) or to an empty gradient, where each parameter is an array of its
own. For private training `sample_gradients` gives each sample's squared gradient norm, without forming a
gradient per sample where that can be avoided, and `accumulate_scaled` adds the gradients after clipping.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, final

import torch
from torch import Tensor

from bonafed.learning.engine.resources import array

Cache = Any  # what a layer keeps from its forward pass for the backward pass
Weights = Sequence[Tensor]  # a layer's parameters, each (K, *shape)


class Layer(ABC):
    """One layer of K models."""

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of its parameters in one model."""
        return ()

    @property
    @final
    def size(self) -> int:
        """How many numbers its parameters hold in one model."""
        return sum(map(math.prod, self.shapes))

    @abstractmethod
    def forward(self, weights: Weights, x: Tensor) -> tuple[Tensor, Cache]:
        """Output, and what backward needs."""

    @abstractmethod
    def backward(self, weights: Weights, cache: Cache, d: Tensor, want_input: bool) -> Tensor | None:
        """Gradient for the input, given the gradient d for the output."""


class WeightedLayer(Layer):
    """A layer with parameters."""

    @abstractmethod
    def accumulate(self, cache: Cache, d: Tensor, out: Weights, alpha: float) -> None:
        """Add alpha times the parameter gradient, summed over samples, to `out` in place."""

    @abstractmethod
    def sample_gradients(self, cache: Cache, d: Tensor) -> tuple[Tensor, Cache]:
        """(K, B) squared norm of each sample's parameter gradient, and what `accumulate_scaled` needs."""

    @abstractmethod
    def accumulate_scaled(
        self, cache: Cache, d: Tensor, saved: Cache, scale: Tensor, out: Weights, alpha: float
    ) -> None:
        """Like `accumulate`, with each sample's gradient multiplied by its `scale` (K, B)."""


def _squared_norms(x: Tensor) -> Tensor:
    """(K, B) of (K, B, n), in one pass."""
    norms: Tensor = torch.linalg.vector_norm(x, dim=2)
    return norms.square()


def _norms_at_least(x: Tensor) -> Tensor:
    """(K, B) of (K, B, n): at least the norms, even where squares underflow."""
    unseen = math.sqrt(x.shape[2] * torch.finfo(x.dtype).tiny)
    norms: Tensor = torch.linalg.vector_norm(x, dim=2)
    return norms + unseen


def _copy(owner: Layer, role: str, view: Tensor) -> Tensor:
    """A contiguous copy of a view."""
    return array(owner, role, view.shape, view).copy_(view)


@final
@dataclass(frozen=True)
class Linear(WeightedLayer):
    """y = x W' + b for each client; torch.nn.Linear's parameter order (weight, bias)."""

    inputs: int
    outputs: int

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return (self.outputs, self.inputs), (self.outputs,)

    def forward(self, weights: Weights, x: Tensor) -> tuple[Tensor, Cache]:
        matrix, bias = weights
        y = array(self, "output", (*x.shape[:2], self.outputs), x)
        if x.shape[1] <= self.outputs:
            return torch.baddbmm(bias[:, None], x, matrix.transpose(1, 2), out=y), x
        # a product with the longer side in its columns takes up to half the time
        turned = array(self, "turned", (x.shape[0], self.outputs, x.shape[1]), x)
        torch.baddbmm(bias[:, :, None], matrix, x.transpose(1, 2), out=turned)
        return y.copy_(turned.transpose(1, 2)), x

    def backward(self, weights: Weights, cache: Cache, d: Tensor, want_input: bool) -> Tensor | None:
        if not want_input:
            return None
        return torch.bmm(d, weights[0], out=array(self, "input", (*d.shape[:2], self.inputs), d))

    def accumulate(self, cache: Cache, d: Tensor, out: Weights, alpha: float) -> None:
        matrix, bias = out
        matrix.baddbmm_(d.transpose(1, 2), cache, alpha=alpha)
        bias.add_(d.sum(1), alpha=alpha)

    def sample_gradients(self, cache: Cache, d: Tensor) -> tuple[Tensor, Cache]:
        # one sample's gradient is the outer product of d and (x, 1), so its norm is a product of norms; the
        # squares would not do: that of a short d is 0 in single precision, whatever x it is multiplied by
        norms = _norms_at_least(d) * torch.hypot(_norms_at_least(cache), torch.ones((), dtype=d.dtype))
        return norms.square(), None

    def accumulate_scaled(
        self, cache: Cache, d: Tensor, saved: Cache, scale: Tensor, out: Weights, alpha: float
    ) -> None:
        self.accumulate(cache, d * scale[:, :, None], out, alpha)


class Convolution(WeightedLayer):
    """What all convolutions share: square kernel, stride 1, zero padding, nn.Conv2d's parameter order."""

    channels: int
    filters: int
    kernel: int
    padding: int

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return (self.filters, self.channels, self.kernel, self.kernel), (self.filters,)

    def _pad(self, x: Tensor) -> Tensor:
        return torch.nn.functional.pad(x, [0, 0, *[self.padding] * 4]) if self.padding else x

    def _cropped(self, x: Tensor) -> Tensor:
        """The image without its padding."""
        p = self.padding
        return x[:, :, p : x.shape[2] - p, p : x.shape[3] - p] if p else x

    def _windows(self, x: Tensor) -> Tensor:
        """(B, C k k, positions) what the kernel sees at each position of padded images (B, C, H, W)."""
        n, c, height, width = x.shape
        shape = (n, c, self.kernel, self.kernel, height - self.kernel + 1, width - self.kernel + 1)
        s = x.stride()
        windows = x.as_strided(shape, (s[0], s[1], s[2], s[3], s[2], s[3]))
        return _copy(self, "windows", windows).view(n, c * self.kernel**2, -1)

    def _sample_gradients(self, x: Tensor, d: Tensor) -> tuple[Tensor, Cache]:
        """From padded images (K, C, H, W, B) and the gradient (K, F, positions, B) of the outputs."""
        k, b = x.shape[0], x.shape[4]
        images = _copy(self, "images", x.permute(0, 4, 1, 2, 3)).flatten(0, 1)
        signal = _copy(self, "signal", d.permute(0, 3, 1, 2)).flatten(0, 1)
        windows = self._windows(images)
        weight = array(self, "gradient", (k * b, windows.shape[1], self.filters), d)
        weight = torch.bmm(windows, signal.transpose(1, 2), out=weight).view(k, b, -1)
        bias = signal.sum(2).view(k, b, -1)
        return _squared_norms(weight) + _squared_norms(bias), (weight, bias)

    def accumulate_scaled(
        self, cache: Cache, d: Tensor, saved: Cache, scale: Tensor, out: Weights, alpha: float
    ) -> None:
        weight, bias = saved  # (K, B, C k k F), (K, B, F)
        matrix, intercept = out
        mixed = torch.bmm(scale[:, None], weight)
        shape = (-1, self.channels, self.kernel, self.kernel, self.filters)
        matrix.add_(mixed.view(shape).permute(0, 4, 1, 2, 3), alpha=alpha)
        intercept.add_(torch.bmm(scale[:, None], bias)[:, 0], alpha=alpha)


@final
@dataclass(frozen=True)
class Conv2d(Convolution):
    """Convolution of images (K, C, H, W, B)."""

    channels: int
    filters: int
    kernel: int
    padding: int = 0

    def forward(self, weights: Weights, x: Tensor) -> tuple[Tensor, Cache]:
        x = self._pad(x)
        k, c, height, width, b = x.shape
        tall, wide = height - self.kernel + 1, width - self.kernel + 1
        s = x.stride()
        windows = x.as_strided(
            (k, c, self.kernel, self.kernel, tall, wide, b), (s[0], s[1], s[2], s[3], s[2], s[3], s[4])
        )
        columns = _copy(self, "columns", windows).view(k, c * self.kernel**2, tall * wide * b)
        matrix, bias = weights
        y = array(self, "output", (k, self.filters, tall * wide * b), x)
        torch.baddbmm(bias[:, :, None], matrix.flatten(2), columns, out=y)
        return y.view(k, self.filters, tall, wide, b), (columns, x)

    def backward(self, weights: Weights, cache: Cache, d: Tensor, want_input: bool) -> Tensor | None:
        if not want_input:
            return None
        shape = cache[1].shape
        k, c, _, _, b = shape
        tall, wide = d.shape[2:4]
        parts = array(self, "parts", (k, c * self.kernel**2, tall * wide * b), d)
        torch.bmm(weights[0].flatten(2).transpose(1, 2), d.flatten(2), out=parts)
        parts = parts.view(k, c, self.kernel, self.kernel, tall, wide, b)
        out = array(self, "input", shape, d).zero_()
        for i in range(self.kernel):
            for j in range(self.kernel):
                out[:, :, i : i + tall, j : j + wide] += parts[:, :, i, j]
        return self._cropped(out)

    def accumulate(self, cache: Cache, d: Tensor, out: Weights, alpha: float) -> None:
        matrix, bias = out
        flat = d.flatten(2)
        matrix.add_(torch.bmm(flat, cache[0].transpose(1, 2)).view(matrix.shape), alpha=alpha)
        bias.add_(flat.sum(2), alpha=alpha)

    def sample_gradients(self, cache: Cache, d: Tensor) -> tuple[Tensor, Cache]:
        return self._sample_gradients(cache[1], d.flatten(2, 3))


@final
@dataclass(frozen=True)
class BlockConv2d(Convolution):
    """A convolution that is followed by 2 x 2 pooling: (K, C, H, W, B) to (K, 4, F, T, W', B).

    Each 2 x 2 block of outputs sees one patch of (kernel + 1)^2 inputs, so the four outputs of a block are
    four filters on that patch, the kernel shifted by one within zeros. Patches overlap less than windows
    do: for a 5 x 5 kernel there is 2.8 times less to copy for 1.4 times the arithmetic, in wider products,
    and the maximum over a block needs no stepping through rows. The kernel is odd.

    Images are first split into four planes (even and odd rows and columns), in which neighbouring blocks
    are neighbours, so that the copying runs over whole rows.
    """

    channels: int
    filters: int
    kernel: int
    padding: int = 0

    @property
    def _patch(self) -> int:
        return self.kernel + 1

    def forward(self, weights: Weights, x: Tensor) -> tuple[Tensor, Cache]:
        x = self._pad(x)
        k, c, height, width, b = x.shape
        tall, wide, half = (height - self.kernel + 1) // 2, (width - self.kernel + 1) // 2, self._patch // 2
        even = x[:, :, : height // 2 * 2, : width // 2 * 2]
        planes = even.view(k, c, height // 2, 2, width // 2, 2, b).permute(0, 1, 3, 5, 2, 4, 6)
        planes = _copy(self, "planes", planes)
        s = planes.stride()
        windows = planes.as_strided(
            (k, c, half, 2, half, 2, tall, wide, b),
            (s[0], s[1], s[4], s[2], s[5], s[3], s[4], s[5], s[6]),
        )
        columns = _copy(self, "columns", windows).view(k, c * self._patch**2, tall * wide * b)
        bias, shifted = weights[1].repeat(1, 4)[:, :, None], self._shifted(weights[0])
        y = array(self, "output", (k, 4 * self.filters, tall * wide * b), x)
        torch.baddbmm(bias, shifted, columns, out=y)
        return y.view(k, 4, self.filters, tall, wide, b), (columns, shifted, x)

    def _shifted(self, matrix: Tensor) -> Tensor:
        """(K, 4 F, C (k+1)^2): the kernel at the four places of its patch."""
        side = self.kernel
        shape = (matrix.shape[0], 4, self.filters, self.channels, self._patch, self._patch)
        out = array(self, "shifted", shape, matrix).zero_()
        for place, (i, j) in enumerate(_PLACES):
            out[:, place, :, :, i : i + side, j : j + side] = matrix
        return out.view(shape[0], 4 * self.filters, -1)

    def backward(self, weights: Weights, cache: Cache, d: Tensor, want_input: bool) -> Tensor | None:
        if not want_input:
            return None
        _, shifted, x = cache
        k, c, height, width, b = x.shape
        tall, wide, half = d.shape[3], d.shape[4], self._patch // 2
        parts = array(self, "parts", (k, c * self._patch**2, tall * wide * b), d)
        torch.bmm(shifted.transpose(1, 2), d.view(k, 4 * self.filters, -1), out=parts)
        parts = parts.view(k, c, half, 2, half, 2, tall, wide, b).permute(0, 1, 3, 5, 2, 4, 6, 7, 8)
        planes = array(self, "gradient planes", (k, c, 2, 2, height // 2, width // 2, b), d).zero_()
        for i in range(half):
            for j in range(half):
                planes[:, :, :, :, i : i + tall, j : j + wide] += parts[:, :, :, :, i, j]
        even = _copy(self, "input", planes.permute(0, 1, 4, 2, 5, 3, 6))
        even = even.view(k, c, height // 2 * 2, width // 2 * 2, b)
        if (height % 2, width % 2) != (0, 0):  # the last odd row and column belong to no block
            even = torch.nn.functional.pad(even, [0, 0, 0, width % 2, 0, height % 2])
        return self._cropped(even)

    def accumulate(self, cache: Cache, d: Tensor, out: Weights, alpha: float) -> None:
        k, side = d.shape[0], self.kernel
        flat = d.view(k, 4 * self.filters, -1)
        shifted = array(self, "gradient", (k, 4 * self.filters, self.channels * self._patch**2), d)
        shifted = torch.bmm(flat, cache[0].transpose(1, 2), out=shifted).view(
            k, 4, self.filters, self.channels, self._patch, self._patch
        )
        matrix, bias = out
        for place, (i, j) in enumerate(_PLACES):
            matrix.add_(shifted[:, place, :, :, i : i + side, j : j + side], alpha=alpha)
        bias.add_(d.flatten(3).sum((1, 3)), alpha=alpha)

    def sample_gradients(self, cache: Cache, d: Tensor) -> tuple[Tensor, Cache]:
        # per sample, either the gradient of all four places is written out, or the windows are
        columns, _, x = cache
        k, _, f, tall, wide, b = d.shape
        if 4 * f * self._patch**2 < self.kernel**2 * 4 * tall * wide:
            return self._by_places(columns, d)
        x = x[:, :, : 2 * tall + self.kernel - 1, : 2 * wide + self.kernel - 1].contiguous()
        rows = d.view(k, 2, 2, f, tall, wide, b).permute(0, 3, 4, 1, 5, 2, 6)
        return self._sample_gradients(x, _copy(self, "rows", rows).view(k, f, 4 * tall * wide, b))

    def _by_places(self, columns: Tensor, d: Tensor) -> tuple[Tensor, Cache]:
        """The four places' gradients from patches, then added up where they belong."""
        k, b, side = d.shape[0], d.shape[5], self.kernel
        patches = columns.view(k, columns.shape[1], -1, b).permute(0, 3, 1, 2)
        patches = _copy(self, "patches by sample", patches).flatten(0, 1)
        signal = _copy(self, "signal", d.flatten(1, 2).flatten(2, 3).permute(0, 3, 1, 2)).flatten(0, 1)
        places = array(self, "places", (k * b, patches.shape[1], 4 * self.filters), d)
        torch.bmm(patches, signal.transpose(1, 2), out=places)
        places = places.view(k, b, self.channels, self._patch, self._patch, 4, self.filters)
        weight = array(self, "gradient", (k, b, self.channels, side, side, self.filters), d).zero_()
        for place, (i, j) in enumerate(_PLACES):
            weight += places[:, :, :, i : i + side, j : j + side, place]
        bias = signal.sum(2).view(k, b, 4, self.filters).sum(2)
        weight = weight.view(k, b, -1)
        return _squared_norms(weight) + _squared_norms(bias), (weight, bias)


_PLACES = ((0, 0), (0, 1), (1, 0), (1, 1))  # of an output in its 2 x 2 block, row by row


@final
@dataclass(frozen=True)
class BlockMax(Layer):
    """Maximum over the four outputs of a block: (K, 4, F, T, W, B) to (K, F, T, W, B).

    The first of equal values gets the gradient, as in PyTorch.
    """

    def forward(self, weights: Weights, x: Tensor) -> tuple[Tensor, Cache]:
        shape = x[:, 0].shape
        upper, lower, y, *wins = (array(self, role, shape, x) for role in _ROLES)
        torch.maximum(x[:, 0], x[:, 1], out=upper)
        torch.maximum(x[:, 2], x[:, 3], out=lower)
        # how much later places win by; differences, as the gradient's kernel reads those fastest
        torch.sub(x[:, 1], x[:, 0], out=wins[0])
        torch.sub(x[:, 3], x[:, 2], out=wins[1])
        torch.sub(lower, upper, out=wins[2])
        return torch.maximum(upper, lower, out=y), wins

    def backward(self, weights: Weights, cache: Cache, d: Tensor, want_input: bool) -> Tensor | None:
        if not want_input:
            return None
        right_above, right_below, below = cache
        out = array(self, "input", (d.shape[0], 4, *d.shape[1:]), d)
        _where_positive(d, below, out[:, 2])
        torch.sub(d, out[:, 2], out=out[:, 0])
        _where_positive(out[:, 0], right_above, out[:, 1])
        out[:, 0] -= out[:, 1]
        _where_positive(out[:, 2], right_below, out[:, 3])
        out[:, 2] -= out[:, 3]
        return out


_ROLES = ("upper", "lower", "output", "right above", "right below", "below")


def _where_positive(d: Tensor, criterion: Tensor, out: Tensor) -> None:
    """out = d where the criterion is positive, else 0, in one vectorised pass."""
    torch.ops.aten.threshold_backward.grad_input(d, criterion, 0, grad_input=out)


@final
@dataclass(frozen=True)
class Relu(Layer):
    """The layer max(x, 0), element by element."""

    def forward(self, weights: Weights, x: Tensor) -> tuple[Tensor, Cache]:
        y = torch.clamp_min(x, 0.0, out=array(self, "output", x.shape, x))
        return y, y

    def backward(self, weights: Weights, cache: Cache, d: Tensor, want_input: bool) -> Tensor | None:
        if not want_input:
            return None
        out = array(self, "input", d.shape, d)
        _where_positive(d, cache, out)
        return out


@final
@dataclass(frozen=True)
class Tanh(Layer):
    """The layer tanh(x), element by element."""

    def forward(self, weights: Weights, x: Tensor) -> tuple[Tensor, Cache]:
        y = torch.tanh(x)
        return y, y

    def backward(self, weights: Weights, cache: Cache, d: Tensor, want_input: bool) -> Tensor | None:
        return d * (1 - cache.square()) if want_input else None


@final
@dataclass(frozen=True)
class MaxPool2(Layer):
    """Maximum over 2 x 2 blocks of images (K, C, H, W, B)."""

    over_blocks: BlockMax = field(default_factory=BlockMax)

    def forward(self, weights: Weights, x: Tensor) -> tuple[Tensor, Cache]:
        tall, wide = x.shape[2] // 2 * 2, x.shape[3] // 2 * 2
        blocks = torch.stack([x[:, :, i:tall:2, j:wide:2] for i, j in _PLACES], 1)
        y, cache = self.over_blocks.forward(weights, blocks)
        return y, (cache, x.shape)

    def backward(self, weights: Weights, cache: Cache, d: Tensor, want_input: bool) -> Tensor | None:
        if not want_input:
            return None
        masks, shape = cache
        blocks = self.over_blocks.backward(weights, masks, d, want_input)
        assert blocks is not None
        tall, wide = shape[2] // 2 * 2, shape[3] // 2 * 2
        out = torch.zeros(shape, dtype=d.dtype)
        for place, (i, j) in enumerate(_PLACES):
            out[:, :, i:tall:2, j:wide:2] = blocks[:, place]
        return out


@final
@dataclass(frozen=True)
class Flatten(Layer):
    """Images (K, C, H, W, B) to vectors (K, B, C H W)."""

    def forward(self, weights: Weights, x: Tensor) -> tuple[Tensor, Cache]:
        return _copy(self, "output", x.flatten(1, 3).transpose(1, 2)), x.shape

    def backward(self, weights: Weights, cache: Cache, d: Tensor, want_input: bool) -> Tensor | None:
        return _copy(self, "input", d.transpose(1, 2)).view(cache) if want_input else None
