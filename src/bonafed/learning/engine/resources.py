"""Threads and memory of PyTorch: one thread where digits must not depend on cores, and reused memory.

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


@contextmanager
def single_threaded() -> Iterator[None]:
    """Inside, every PyTorch call runs on one thread, so that digits do not depend on the number of cores.

    Nor does the time: for a small product, threads wait for each other longer than the product takes, and
    a hundred times as long if the other cores are busy.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


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
