"""Memory for intermediate results that is reused from step to step.

A step of a group of clients writes some 20 arrays of megabytes each. Allocating and freeing them in every
step costs more in page faults than in arithmetic. Inside `reused_memory()` the same owner gets the same
memory again for the same role, which overwrites what was there; outside, every array is new. The state
is the thread's own, like that of any allocator, and has no effect on results.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

_Arrays = dict[tuple[int, str], tuple[Tensor, Tensor]]  # the memory, and the last array made from it
_thread = threading.local()


@contextmanager
def reused_memory() -> Iterator[None]:
    """Inside, in this thread, `array` reuses memory."""
    start_reuse()
    try:
        yield
    finally:
        _thread.arrays = None


def start_reuse() -> None:
    """The same for the rest of the thread's life."""
    _thread.arrays = {}


def array(owner: object, role: str, shape: Sequence[int], like: Tensor) -> Tensor:
    """An array with undefined content, valid until the same owner asks for the same role again."""
    arrays: _Arrays | None = getattr(_thread, "arrays", None)
    dimensions = tuple(shape)
    if arrays is None:
        return torch.empty(dimensions, dtype=like.dtype)
    key = id(owner), role
    entry = arrays.get(key)
    if entry is None or entry[0].dtype != like.dtype or entry[0].numel() < math.prod(dimensions):
        memory = torch.empty(math.prod(dimensions), dtype=like.dtype)
    else:
        memory, last = entry
        if last.shape == dimensions:
            return last
    result = memory[: math.prod(dimensions)].view(dimensions)
    arrays[key] = memory, result
    return result
