"""Packages that come with an extra of bonafed: whoever lacks one is told what to install, in one line."""

from __future__ import annotations

import atexit
import gc
import sys
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

_ONE_COMMAND = False  # whether this process runs one, and ends with it


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
    was_on, first = gc.isenabled(), "torch" not in sys.modules
    gc.disable()
    try:
        yield
    finally:
        if _ONE_COMMAND and first:
            gc.freeze()
        if was_on:
            gc.enable()


def runs_one_command() -> None:
    """Say that this process ends with its command: what it imports is never looked through for garbage."""
    global _ONE_COMMAND
    _ONE_COMMAND = True
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)  # or Python would look through all of PyTorch at its end, for 0.4 s
