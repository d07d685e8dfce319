"""What the server that forks the processes of cells imports beforehand, so that none has to wait for it."""

from contextlib import suppress
from importlib import import_module

with suppress(ModuleNotFoundError):  # cells that train say what is missing
    import torch

    torch.set_num_threads(1)  # cells have the cores, one each

    from bonafed.mechanisms import catalogue

    for module in (
        "bonafed.runs.training",
        "bonafed.runs.prepare",
        "bonafed.learning.local",
        "dp_accounting",
        *(entry.module for entry in catalogue.CATALOGUE.values()),
    ):
        import_module(module)
