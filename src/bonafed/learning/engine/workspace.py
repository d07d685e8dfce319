"""Memory for intermediate results that is used again from step to step.

A step of a group of clients writes some 20 arrays of megabytes each. Taken from the system and given back
every step, they cost more in page faults than in arithmetic. Inside `reused_memory()` an array asked for by
the same owner in the same role gets the same memory again, and what it held before is gone; outside, every
array is new. The state is the thread's own, like that of any allocator, and has no effect on results.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

_Held = dict[tuple[int, str], tuple[Tensor, Tensor]]  # the memory, and the array made of it last
_thread = threading.local()


@contextmanager
def reused_memory() -> Iterator[None]:
    """Inside, in this thread, `array` uses memory again."""
    start_reuse()
    try:
        yield
    finally:
        _thread.held = None


def start_reuse() -> None:
    """The same for the rest of the thread's life."""
    _thread.held = {}


def array(owner: object, role: str, shape: Sequence[int], like: Tensor) -> Tensor:
    """An array with undefined content, valid until the same owner asks for the same role again."""
    held: _Held | None = getattr(_thread, "held", None)
    wanted = tuple(shape)
    if held is None:
        return torch.empty(wanted, dtype=like.dtype)
    key = id(owner), role
    known = held.get(key)
    if known is None or known[0].dtype != like.dtype or known[0].numel() < math.prod(wanted):
        memory = torch.empty(math.prod(wanted), dtype=like.dtype)
    else:
        memory, last = known
        if last.shape == wanted:
            return last
    found = memory[: math.prod(wanted)].view(wanted)
    held[key] = memory, found
    return found
