"""How good models are on samples: one model, many models, or sample by sample.

The loss of a sample is computed in double precision from the outputs of the model, and in one place only
(`_losses`), so that it is the same for every caller. Models are run single-threaded, on as many samples at
a time as are worth computing at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue
from bonafed.learning.engine.jobs import Samples
from bonafed.learning.engine.programs import Program
from bonafed.learning.engine.resources import single_threaded

_SAMPLES_AT_ONCE = 1000  # of all models together


class ModelScores(NamedTuple):
    """How good m models are on the same samples."""

    loss: Floats  # (m,) mean over the samples
    accuracy: Floats  # (m,) share of samples classified correctly; NaN for regression


@single_threaded()
def evaluate(program: Program, weights: Tensor, samples: Samples) -> tuple[float, float]:
    """Mean loss and accuracy (NaN for regression) of one model (P,) on samples; NaN without samples."""
    n = samples.features.shape[0]
    if n == 0:
        return float("nan"), float("nan")
    loss, correct = _score(program, weights[None], samples, _at_once(program, samples))
    return float(loss) / n, float(correct) / n if program.loss == "cross-entropy" else float("nan")


@single_threaded()
def evaluate_models(
    program: Program, models: NDArray[np.floating[Any]], samples: Samples, *, cores: int = 1
) -> ModelScores:
    """Loss and accuracy of each row of `models` (m, P); digits do not depend on `cores`."""
    n, m = samples.features.shape[0], models.shape[0]
    if n == 0:
        raise InvalidValue("samples", "must not be empty", "0 samples")
    weights = torch.from_numpy(np.array(models)).to(precision(samples))  # a copy: states are read-only
    most = _at_once(program, samples)
    length = min(n, most)
    models_per_call = max(1, most // length)  # small sets of samples: several models in a call
    groups = [weights[k : k + models_per_call] for k in range(0, m, models_per_call)]

    def score(group: Tensor) -> tuple[Tensor, Tensor]:
        return _score(program, group, samples, length)

    if cores == 1:
        scores = [score(group) for group in groups]
    else:
        with ThreadPoolExecutor(checks.whole("cores", cores)) as pool:
            scores = list(pool.map(score, groups))
    loss, correct = (torch.cat(parts).numpy() / n for parts in zip(*scores, strict=True))
    return ModelScores(loss, correct if program.loss == "cross-entropy" else np.full(m, np.nan))


@single_threaded()
def sample_losses(program: Program, weights: Tensor, samples: Samples) -> Floats:
    """(m, n) the loss of each of n samples under each of m models (m, P)."""
    m = weights.shape[0]
    if samples.features.shape[0] == 0:
        return np.zeros((m, 0))
    most = max(1, program.samples_per_call(samples.features[0], clip=False) // m)
    losses = [_losses(program, z, y) for z, y in _outputs(program, weights, samples, most)]
    return np.asarray(torch.cat(losses, 1).numpy())


def precision(samples: Samples) -> torch.dtype:
    """The precision for models of these samples: that of the features, or single for tokens."""
    kind = samples.features.dtype
    return kind if kind.is_floating_point else torch.float32


def _at_once(program: Program, samples: Samples) -> int:
    """Samples per call, over all its models; nothing is kept for a gradient."""
    return min(_SAMPLES_AT_ONCE, 4 * program.samples_per_call(samples.features[0], clip=False))


def _outputs(
    program: Program, weights: Tensor, samples: Samples, length: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Of (k, P) models: (k, l, o) outputs in double precision and the l labels, for l samples at a time."""
    k = weights.shape[0]
    for start in range(0, samples.features.shape[0], length):
        x, y = samples.features[start : start + length], samples.labels[start : start + length]
        with torch.no_grad():
            z = program.outputs(weights, x.expand(k, *x.shape)).double()
        yield z, y


def _losses(program: Program, z: Tensor, y: Tensor) -> Tensor:
    """(k, l) the loss of every sample under every model."""
    if program.loss == "squared":
        squared: Tensor = (z - y.double().view(z.shape[1:])).square().sum(2) / 2
        return squared
    return -torch.log_softmax(z, 2)[:, torch.arange(y.shape[0]), y]


def _score(program: Program, weights: Tensor, samples: Samples, length: int) -> tuple[Tensor, Tensor]:
    """(k,) summed loss and number of correct answers, in double precision."""
    k = weights.shape[0]
    loss, correct = torch.zeros(k, dtype=torch.float64), torch.zeros(k, dtype=torch.float64)
    for z, y in _outputs(program, weights, samples, length):
        loss += _losses(program, z, y).sum(1)
        if program.loss == "cross-entropy":
            correct += (z.argmax(2) == y).sum(1)
    return loss, correct
