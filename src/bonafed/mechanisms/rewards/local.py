"""Local training and evaluation of one model per client, on the client-batched engine.

`EngineLocal` is the local training of the paper's experiments: every client starts each round from its own
model with a new optimizer, at a learning rate that falls by a factor per round. All clients of a round are
one program, whatever their number. `evaluate_models` scores all models on the same samples, many at a
time.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue
from bonafed.learning.crew import Crew
from bonafed.learning.engine import run_jobs, single_threaded
from bonafed.learning.federation import make_jobs
from bonafed.learning.jobs import LocalTraining, Samples
from bonafed.learning.programs import Program, trainable
from bonafed.mechanisms.rewards.history import Models
from bonafed.mechanisms.rewards.server import Bools

DECAY = 0.977  # of the learning rate per round: to a tenth in 100 rounds (paper, appendix E.1)
_SAMPLES_AT_ONCE = 1000  # of all models together


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
            torch.from_numpy(models[who]).to(_precision(self.samples)),
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


def _precision(samples: Samples) -> torch.dtype:
    """Of the features; single where these are tokens."""
    kind = samples.features.dtype
    return kind if kind.is_floating_point else torch.float32


class ModelScores(NamedTuple):
    """How good m models are on the same samples."""

    loss: Floats  # (m,) mean over the samples
    accuracy: Floats  # (m,) share of samples classified rightly; NaN for regression


@single_threaded()
def evaluate_models(program: Program, models: Models, samples: Samples, *, cores: int = 1) -> ModelScores:
    """Loss and accuracy of each row of `models` (m, P); digits do not depend on `cores`."""
    n, m = samples.features.shape[0], models.shape[0]
    if n == 0:
        raise InvalidValue("samples", "must not be empty", "0 samples")
    weights = torch.from_numpy(np.array(models)).to(_precision(samples))  # a copy: states are read-only
    most = min(_SAMPLES_AT_ONCE, 4 * program.samples_per_call(samples.features[0], clip=False))
    length = min(n, most)
    together = max(1, most // length)  # small sets of samples: several models in a call
    groups = [weights[k : k + together] for k in range(0, m, together)]

    def score(group: Tensor) -> tuple[Tensor, Tensor]:
        return _score(program, group, samples, length)

    if cores == 1:
        done = [score(group) for group in groups]
    else:
        with ThreadPoolExecutor(checks.whole("cores", cores)) as pool:
            done = list(pool.map(score, groups))
    loss, correct = (torch.cat(parts).numpy() / n for parts in zip(*done, strict=True))
    return ModelScores(loss, correct if program.loss == "cross-entropy" else np.full(m, np.nan))


def _score(program: Program, weights: Tensor, samples: Samples, length: int) -> tuple[Tensor, Tensor]:
    """(k,) summed loss and number of right answers, in double precision."""
    k = weights.shape[0]
    loss, correct = torch.zeros(k, dtype=torch.float64), torch.zeros(k, dtype=torch.float64)
    for start in range(0, samples.features.shape[0], length):
        x, y = samples.features[start : start + length], samples.labels[start : start + length]
        with torch.no_grad():
            z = program.outputs(weights, x.expand(k, *x.shape)).double()
        if program.loss == "squared":
            loss += (z - y.double().view(z.shape[1:])).square().sum((1, 2)) / 2
        else:
            loss -= torch.log_softmax(z, 2)[:, torch.arange(y.shape[0]), y].sum(1)
            correct += (z.argmax(2) == y).sum(1)
    return loss, correct


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
