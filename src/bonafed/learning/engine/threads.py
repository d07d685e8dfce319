"""How many threads PyTorch uses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


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
