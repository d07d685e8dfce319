"""Local training of one model per client, on the client-batched engine.

`EngineLocal` is the local training of the paper's experiments: every client starts each round from its own
model with a new optimizer, at a learning rate that falls by a factor per round. All clients of a round are
one program, whatever their number. (`learning.evaluate.evaluate_models` scores all their models at once.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bonafed import checks
from bonafed.errors import InvalidValue
from bonafed.learning.engine.crew import Crew
from bonafed.learning.engine.jobs import Samples
from bonafed.learning.engine.programs import Program, trainable
from bonafed.learning.engine.running import run_jobs
from bonafed.learning.evaluate import precision
from bonafed.learning.federation import make_jobs
from bonafed.learning.work import LocalTraining
from bonafed.mechanisms.rewards.history import Models
from bonafed.mechanisms.rewards.server import Bools

DECAY = 0.977  # of the learning rate per round: to a tenth in 100 rounds (paper, appendix E.1)


@dataclass(frozen=True, slots=True, eq=False)
class EngineLocal:
    """Local training by the engine, as a function (models, round, present) -> updates."""

    program: Program
    samples: Samples  # of all clients
    parts: Sequence[NDArray[np.int64]]  # N arrays: each client's samples
    spec: LocalTraining  # what a client does in the first round
    seed: int = 0
    decay: float = DECAY  # factor on the learning rate from round to round, in (0, 1]
    cores: int = 1
    crew: Crew = field(init=False)

    def __post_init__(self) -> None:
        checks.between("decay", checks.positive("decay", self.decay), 0.0, 1.0)
        object.__setattr__(self, "crew", Crew(self.program, self.samples, self.cores))
        checks.seed("seed", self.seed)

    def __call__(self, models: Models, round_number: int, present: Bools) -> Models:
        if models.shape != (len(self.parts), self.program.size):
            rule = f"must have shape {(len(self.parts), self.program.size)}"
            raise InvalidValue("models", rule, f"shape {models.shape}")
        who = np.flatnonzero(present)
        rate = self.spec.learning_rate * self.decay ** (round_number - 1)
        found = np.zeros_like(models)
        done = run_jobs(
            self.program,
            torch.from_numpy(models[who]).to(precision(self.samples)),
            self.samples,
            make_jobs(self.parts, who),
            replace(self.spec, learning_rate=rate),
            seed=self.seed,
            round_number=round_number,
            crew=self.crew,
        )
        for i, update in zip(who, done, strict=True):
            found[i] = update.change.numpy()
        return found


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
