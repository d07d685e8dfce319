"""Packages that come with an extra of bonafed: whoever lacks one is told what to install, in one line."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from bonafed.errors import MissingExtra

# by package: what it is needed for, and the extra
EXTRAS = {
    "torch": ("training", "train"),
    "sklearn": ("training", "train"),
    "pooch": ("training", "train"),
    "flwr": ("a Flower federation", "flower"),
}


@contextmanager
def explained() -> Iterator[None]:
    """Inside, or in a function decorated with it, a missing package is a `MissingExtra`."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        raise MissingExtra(*EXTRAS[package]) from error


@contextmanager
def importing() -> Iterator[None]:
    """Imports inside take a fifth less time: nobody looks for garbage in what stays."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
