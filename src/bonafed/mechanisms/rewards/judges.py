"""The samples by which the server judges models: test and validation, held by no client. Needs PyTorch.

The test samples of the data are split by the run's seed. Models are judged on one part, and whatever the
server looks at while it trains (a measure of contributions, the ranking of Rank) comes from the other, so
that no model is judged by what selected it (theory D7).

The layers of a module are found in its flat parameters here too (`layer_slices`, `last_layers`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue
from bonafed.learning.engine.jobs import Samples
from bonafed.learning.engine.programs import Program, trainable
from bonafed.learning.evaluate import ModelScores, evaluate_models
from bonafed.mechanisms.rewards.baselines import SHARED_LAYERS
from bonafed.mechanisms.rewards.measures import Models
from bonafed.randomness import Purpose, round_generator


@dataclass(frozen=True, slots=True, eq=False)
class RewardsJudges:
    """The server's own samples, the program that scores models on them, and the layers of the model."""

    program: Program
    test: Samples  # on which models are judged
    validation: Samples  # on which the server may score models while it trains
    layers: Sequence[slice]  # of the flat parameters
    shared: slice | None  # of these what LG-FedAvg averages; None: the model has too few layers
    cores: int = 1
    ranking: int | None = None  # of the validation samples, how many Rank looks at; None: all

    def judge(self, models: Models) -> ModelScores:
        """(m,) loss and accuracy on the test samples."""
        return evaluate_models(self.program, models, self.test, cores=self.cores)

    def score(self, models: Models) -> Floats:
        """(m,) accuracy on the validation samples."""
        return evaluate_models(self.program, models, self.validation, cores=self.cores).accuracy

    def rank(self, models: Models) -> Floats:
        """(m,) accuracy on those of them by which Rank orders clients."""
        some = Samples(self.validation.features[: self.ranking], self.validation.labels[: self.ranking])
        return evaluate_models(self.program, models, some, cores=self.cores).accuracy


def judges(
    program: Program,
    module: nn.Module,
    samples: Samples,
    *,
    validation: float,
    seed: int,
    cores: int = 1,
    ranking: int | None = None,
) -> RewardsJudges:
    """Split what is kept for testing; `validation` is the share that may be looked at while training, by
    the seed, or from 1 on the number of the last samples that may."""
    n = len(samples.labels)
    if not n:
        rule = "must have test samples, by which models are judged (a column `test` of a CSV)"
        raise InvalidValue("data.name", rule, "none")
    count = int(validation) if validation >= 1 else round(validation * n)
    if not 0 < count < n:
        rule = f"must leave both test and validation samples of the {n} test samples"
        raise InvalidValue("rewards.validation", rule, validation)
    if ranking is not None and ranking > count:
        raise InvalidValue("rewards.ranking", f"must be at most the {count} validation samples", ranking)
    order = torch.from_numpy(round_generator(seed, Purpose.VALIDATION).permutation(n))
    if validation >= 1:
        order = torch.arange(n).flip(0)
    test, held_out = (
        Samples(samples.features[rows], samples.labels[rows])
        for rows in (order[count:].sort().values, order[:count].sort().values)
    )
    return RewardsJudges(program, test, held_out, layer_slices(module), _shared(module), cores, ranking)


def _shared(module: nn.Module) -> slice | None:
    """The layers that LG-FedAvg averages: the last three as in the paper, fewer if nothing else is left."""
    count = layers_that_train(module)
    return None if count < 2 else last_layers(module, min(SHARED_LAYERS, count - 1))


def layer_slices(module: nn.Module) -> list[slice]:
    """Where each parameter array of a module (a weight, a bias) lies in the flat vector."""
    ends = np.cumsum([p.numel() for p in trainable(module).values()]).tolist()
    return [slice(start, end) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def last_layers(module: nn.Module, count: int) -> slice:
    """Where the last `count` layers that have parameters lie in the flat vector."""
    own = [
        [p.numel() for p in part.parameters(recurse=False) if p.requires_grad] for part in module.modules()
    ]
    sizes = [sum(numbers) for numbers in own if numbers]
    if checks.whole("count", count) >= len(sizes):
        raise InvalidValue("count", f"must be below the number of layers, {len(sizes)}", count)
    return slice(sum(sizes[:-count]), sum(sizes))


def layers_that_train(module: nn.Module) -> int:
    """How many layers have parameters of their own that train."""
    return sum(any(p.requires_grad for p in part.parameters(recurse=False)) for part in module.modules())
