"""Where the layers of a module lie in its flat parameters; needs PyTorch."""

from __future__ import annotations

import numpy as np
from torch import nn

from bonafed import checks
from bonafed.errors import InvalidValue
from bonafed.learning.engine.programs import trainable


def layer_slices(module: nn.Module) -> list[slice]:
    """Where each parameter array of a module (a weight, a bias) lies in the flat vector."""
    ends = np.cumsum([p.numel() for p in trainable(module).values()]).tolist()
    return [slice(start, end) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def last_layers(module: nn.Module, count: int) -> slice:
    """Where the last `count` layers that have parameters lie in the flat vector."""
    own = [
        [p.numel() for p in part.parameters(recurse=False) if p.requires_grad] for part in module.modules()
    ]
    sizes = [sum(numbers) for numbers in own if numbers]
    if checks.whole("count", count) >= len(sizes):
        raise InvalidValue("count", f"must be below the number of layers, {len(sizes)}", count)
    return slice(sum(sizes[:-count]), sum(sizes))


def layers_that_train(module: nn.Module) -> int:
    """How many layers have parameters of their own that train."""
    return sum(any(p.requires_grad for p in part.parameters(recurse=False)) for part in module.modules())
