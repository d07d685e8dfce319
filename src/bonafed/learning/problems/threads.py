"""How many threads the linear algebra of NumPy and SciPy uses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from threadpoolctl import ThreadpoolController


@cache
def _libraries() -> ThreadpoolController:
    """Those that are loaded; found once, as that takes milliseconds."""
    return ThreadpoolController()


@contextmanager
def one_thread() -> Iterator[None]:
    """Inside, or in a function decorated with it, products are computed on one thread.

    On some processors the way a product is cut into pieces for threads decides how its sums are rounded:
    digits would depend on the number of cores.
    """
    with _libraries().limit(limits=1, user_api="blas"):
        yield
