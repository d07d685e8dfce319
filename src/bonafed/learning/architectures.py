"""Models by name and the samples that each takes: known without PyTorch (`models` builds them)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from bonafed import checks
from bonafed.errors import InvalidValue

IMAGE_MODELS = ("softmax", "small-cnn", "mnist-cnn", "cifar-cnn", "resnet18")
TEXT_MODEL = "text-lstm"
MODELS = (*IMAGE_MODELS, TEXT_MODEL)
FARTHEST = 4  # pixels by which augmentation moves an image


def require_fit(name: str, shape: Sequence[int], vocabulary: int = 0) -> None:
    """Refuse a model that is unknown, or that samples of this shape do not go into."""
    checks.one_of("model", name, MODELS)
    if name == TEXT_MODEL:
        if not vocabulary:
            raise InvalidValue("model", "text-lstm must be used on text", "other features")
    elif vocabulary:
        raise InvalidValue("model", "must be text-lstm on text", name)
    elif name != "softmax":
        side = image_side(shape)
        if name != "resnet18":
            side_left(name, side)


def image_side(shape: Sequence[int]) -> int:
    """The width of square images."""
    if len(shape) != 3 or shape[1] != shape[2]:
        rule = "must be softmax unless features are square images"
        if len(shape) == 3 and shape[0] == shape[1]:
            rule += f", channels first as in {(shape[2], *shape[:2])}"
        raise InvalidValue("model", rule, tuple(shape))
    return int(shape[1])


def padding_of(name: str, side: int) -> int:
    """Of each convolution; with that of small-cnn, digits of 8 x 8 keep their size."""
    return {"small-cnn": 0 if side >= 16 else 2, "mnist-cnn": 2, "cifar-cnn": 1}[name]


def side_left(name: str, side: int) -> int:
    """The width of an image after the convolutions, each stage of them followed by a 2 x 2 pool."""
    kernel, stages = (3, 3) if name == "cifar-cnn" else (5, 2)
    padding = padding_of(name, side)
    for _ in range(stages):
        side = (side + 2 * padding - kernel + 1) // 2
    if side < 1:
        raise InvalidValue("image", "must be larger for this model", side)
    return side


def parameter_count(name: str, shape: Sequence[int], outputs: int, vocabulary: int = 0) -> int:
    """The weights of a model for samples that fit it, as `models.build` makes it."""
    if name == TEXT_MODEL:
        embedding, hidden = 300, 120
        direction = 4 * hidden * (embedding + 1 + hidden)
        return vocabulary * embedding + 2 * direction + _dense(2 * hidden, hidden, 84, outputs)
    if name == "softmax":
        return _dense(math.prod(shape), outputs)
    channels = shape[0]
    if name == "resnet18":
        total, before = _convolutions(3, channels, 64, bias=False) + 2 * 64, 64
        for filters in (64, 128, 256, 512):
            total += _convolutions(3, before, filters, filters, filters, filters, bias=False) + 8 * filters
            if before != filters:  # a shortcut of another width
                total += before * filters + 2 * filters
            before = filters
        return total + _dense(512, outputs)
    area = side_left(name, image_side(shape)) ** 2
    if name == "small-cnn":
        return _convolutions(5, channels, 6, 16) + _dense(16 * area, 120, 84, outputs)
    if name == "mnist-cnn":
        return _convolutions(5, channels, 16, 32) + _dense(32 * area, 64, outputs)
    return _convolutions(3, channels, 32, 32, 64, 64, 128, 128) + _dense(128 * area, 128, outputs)


def _dense(*widths: int) -> int:
    """Weights and biases of dense layers."""
    return sum((before + 1) * after for before, after in pairwise(widths))


def _convolutions(kernel: int, *channels: int, bias: bool = True) -> int:
    """Weights of convolutions, and biases."""
    return sum((kernel**2 * before + bias) * after for before, after in pairwise(channels))
