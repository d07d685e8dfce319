"""On how many threads PyTorch computes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def single_threaded() -> Iterator[None]:
    """Inside, every PyTorch call computes on one thread, so that digits do not depend on the cores.

    Nor does the time: several threads for a small product wait for each other longer than it takes, with
    the other cores busy a hundred times as long.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
