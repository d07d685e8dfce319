"""The models of the four papers, as ordinary PyTorch modules; any other module works the same way."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from bonafed import checks
from bonafed.learning.architectures import TEXT_MODEL, image_side, padding_of, require_fit, side_left
from bonafed.learning.data.formats import PADDING


def softmax_regression(shape: Sequence[int], outputs: int) -> nn.Sequential:
    """Linear model for features of any shape; strongly convex with weight decay."""
    size = int(torch.Size(shape).numel())
    model = nn.Sequential(nn.Flatten(), nn.Linear(size, outputs))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    return model


def small_cnn(shape: Sequence[int], outputs: int) -> nn.Sequential:
    """The rewards paper's CNN: 6 and 16 filters of 5 x 5, each pooled, then 120, 84, outputs."""
    channels, side = shape[0], image_side(shape)
    padding, left = padding_of("small-cnn", side), side_left("small-cnn", side)
    return nn.Sequential(
        nn.Conv2d(channels, 6, 5, padding=padding), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5, padding=padding), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * left * left, 120), nn.ReLU(),
        nn.Linear(120, 84), nn.ReLU(),
        nn.Linear(84, outputs),
    )  # fmt: skip


def mnist_cnn(shape: Sequence[int], outputs: int) -> nn.Sequential:
    """The JSAM paper's CNN: two convolutions (16, 32 filters of 5 x 5), 2 x 2 pools, two dense layers."""
    channels, left = shape[0], side_left("mnist-cnn", image_side(shape))
    return nn.Sequential(
        nn.Conv2d(channels, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * left * left, 64), nn.ReLU(),
        nn.Linear(64, outputs),
    )  # fmt: skip


def cifar_cnn(shape: Sequence[int], outputs: int) -> nn.Sequential:
    """After Tramer and Boneh: three pairs of 3 x 3 convolutions (32, 64, 128), tanh, then 128, outputs."""
    channels, left = shape[0], side_left("cifar-cnn", image_side(shape))
    parts: list[nn.Module] = []
    for filters in (32, 64, 128):
        parts += [
            nn.Conv2d(channels, filters, 3, padding=1), nn.Tanh(),
            nn.Conv2d(filters, filters, 3, padding=1), nn.Tanh(),
            nn.MaxPool2d(2),
        ]  # fmt: skip
        channels = filters
    parts += [nn.Flatten(), nn.Linear(128 * left * left, 128), nn.Tanh(), nn.Linear(128, outputs)]
    return nn.Sequential(*parts)


class _Block(nn.Module):
    """Two 3 x 3 convolutions with group norm and a shortcut."""

    def __init__(self, channels: int, filters: int, stride: int, groups: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, filters, 3, stride, 1, bias=False)
        self.norm1 = nn.GroupNorm(groups, filters)
        self.second = nn.Conv2d(filters, filters, 3, 1, 1, bias=False)
        self.norm2 = nn.GroupNorm(groups, filters)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != filters:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels, filters, 1, stride, bias=False), nn.GroupNorm(groups, filters)
            )

    def forward(self, x: Tensor) -> Tensor:
        inner = torch.relu(self.norm1(self.first(x)))
        return torch.relu(self.norm2(self.second(inner)) + self.shortcut(x))


def resnet18(shape: Sequence[int], outputs: int) -> nn.Sequential:
    """ResNet-18 for small images, group norm with 4, 8, 16, 32 groups in its four stages."""
    image_side(shape)
    parts: list[nn.Module] = [
        nn.Conv2d(shape[0], 64, 3, 1, 1, bias=False), nn.GroupNorm(4, 64), nn.ReLU()
    ]  # fmt: skip
    channels = 64
    for filters, stride, groups in ((64, 1, 4), (128, 2, 8), (256, 2, 16), (512, 2, 32)):
        parts += [_Block(channels, filters, stride, groups), _Block(filters, filters, 1, groups)]
        channels = filters
    parts += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, outputs)]
    return nn.Sequential(*parts)


class _Direction(nn.Module):
    """A plain LSTM over (B, T, inputs), step by step, so that vmap can run it."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        self.into = nn.Linear(inputs, 4 * hidden)
        self.back = nn.Linear(hidden, 4 * hidden, bias=False)

    def forward(self, x: Tensor, is_word: Tensor) -> Tensor:
        """The hidden state (B, hidden) after the last word; padding leaves it unchanged."""
        gates = self.into(x)
        h = torch.zeros_like(gates[:, 0, : self.hidden])
        c = h
        for t in range(x.shape[1]):
            i, f, g, o = (gates[:, t] + self.back(h)).chunk(4, dim=1)
            cell = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            taken = is_word[:, t, None]
            h = torch.where(taken, torch.sigmoid(o) * torch.tanh(cell), h)
            c = torch.where(taken, cell, c)
        return h


class TextLSTM(nn.Module):
    """The rewards paper's text model: embedding 300, bidirectional LSTM of 120, three dense layers."""

    def __init__(self, vocabulary: int, outputs: int, embedding: int = 300, hidden: int = 120) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.forwards = _Direction(embedding, hidden)
        self.backwards = _Direction(embedding, hidden)
        self.dense = nn.Sequential(
            nn.Linear(2 * hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, 84),
            nn.ReLU(),
            nn.Linear(84, outputs),
        )

    def forward(self, tokens: Tensor) -> Tensor:
        x, is_word = self.embedding(tokens), tokens != PADDING
        both = torch.cat([self.forwards(x, is_word), self.backwards(x.flip(1), is_word.flip(1))], dim=1)
        result: Tensor = self.dense(both)
        return result


_IMAGE_MODELS: dict[str, Callable[[Sequence[int], int], nn.Module]] = {
    "softmax": softmax_regression,
    "small-cnn": small_cnn,
    "mnist-cnn": mnist_cnn,
    "cifar-cnn": cifar_cnn,
    "resnet18": resnet18,
}


def build(name: str, shape: Sequence[int], outputs: int, seed: int, vocabulary: int = 0) -> nn.Module:
    """A model by name for features of this shape; its initial weights depend only on the seed."""
    require_fit(name, shape, vocabulary)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_for_pytorch(checks.seed("seed", seed)))
        if name == TEXT_MODEL:
            return TextLSTM(vocabulary, outputs)
        return _IMAGE_MODELS[name](shape, outputs)


def _for_pytorch(seed: int) -> int:
    """PyTorch's generators use the last 32 bits of a seed; a longer seed is mixed into as many."""
    return seed if seed < 2**32 else int(np.random.SeedSequence(seed).generate_state(1)[0])
