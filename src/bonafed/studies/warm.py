"""What the server that forks the processes of cells imports beforehand, so that none has to wait for it."""

from contextlib import suppress

with suppress(ModuleNotFoundError):  # cells that train say what is missing
    import torch

    torch.set_num_threads(1)  # cells have the cores, one each
