"""From a model to a program that runs many clients' copies of it at once.

A program maps flat parameters (K, P), one row per client, and a batch per client to the loss and the
flat gradient of each client. `program_for(module)` chooses

    layer program    nn.Sequential of exactly Linear, Conv2d (stride 1), ReLU, Tanh, MaxPool2d(2), Flatten:
                     written out by hand (`stacks.py`, `layers.py`), the fastest;
    module program   any other module, through torch.func (`autograd.py`).

Parameters that train are flattened in the order of `module.named_parameters()`. Samples have shares in the
loss of their client, one over their number for a mean; a client with fewer of them than its neighbours in
a batch is padded with samples whose share is zero. With a clipping norm, each gradient is scaled to that
norm at most before its share is taken.
"""

from __future__ import annotations

import copy
import hashlib
import io
from abc import ABC, abstractmethod
from typing import Literal

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


def together(arrays: list[Tensor]) -> Tensor:
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
    from bonafed.learning.engine.autograd import ModuleProgram  # they import this file
    from bonafed.learning.engine.stacks import LayerProgram, stacked_layers

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
