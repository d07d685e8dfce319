"""Runs of softmax regression whose first weights are drawn."""

from __future__ import annotations

from pathlib import Path

from bonafed.papers.cells import train_module
from bonafed.presentation.documents import JSONObject

_SPREAD = 0.05  # of the first weights


def train_from_drawn_weights(arguments: JSONObject, folder: Path) -> JSONObject:
    """A run of softmax regression whose first weights are drawn, not 0: with weights of 0 all clients have
    the same loss, by which BBM chooses."""
    import torch

    from bonafed.learning import models
    from bonafed.learning.data import datasets

    told = arguments["tables"]
    data = datasets.load(told["data"]["name"])
    module = models.build("softmax", data.features.shape[1:], data.classes, told["run"]["seed"])
    rng = torch.Generator().manual_seed(told["run"]["seed"])
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0.0, _SPREAD, generator=rng)
    return train_module(arguments, folder, module)
