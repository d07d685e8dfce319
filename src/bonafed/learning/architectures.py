"""Models by name and the samples that each takes: known without PyTorch (`models` builds them)."""

from __future__ import annotations

from collections.abc import Sequence

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
