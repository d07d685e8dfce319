"""The work of a client in a round, and its arithmetic: steps, passes, shares, sensitivity.

All of it follows from the number of a client's records, not from their content, so a run can be planned
before anybody trains, and without PyTorch.

>>> spec = LocalTraining(batch_size=4, learning_rate=0.1, epochs=2, clip=1.0)
>>> step_count(9, spec), record_steps(9, spec), sensitivity(9, spec)
(6, 2, 0.5)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from bonafed import checks
from bonafed.errors import InvalidValue
from bonafed.learning.privacy import Batches

Optimizer = Literal["sgd", "momentum", "adam"]
Augmentation = Literal["none", "crop-and-flip"]  # of images (`engine/jobs.py`)
LEAST_CLIP = 1e-9


@dataclass(frozen=True, slots=True)
class LocalTraining:
    """What every client does in a round."""

    batch_size: int
    learning_rate: float  # of every local step, or of the first
    epochs: int | None = 1  # passes over the own data; or
    steps: int | None = None  # this many batches, cycling through the own data
    optimizer: Optimizer = "sgd"  # made anew each round
    momentum: float = 0.9
    weight_decay: float = 0.0  # adds weight_decay * w to the gradient
    clip: float | None = None  # largest L2 norm of one sample's gradient; None: not private
    batches: Batches = "passes"  # over the own data, in random order; or "poisson", by secret coins
    later_rates: tuple[float, ...] | None = None  # of the second local step, ...; None: as the first
    # how images are varied from pass to pass; not in the text that noise depends on, as it excludes a clip
    augmentation: Augmentation = field(default="none", repr=False)

    def __post_init__(self) -> None:
        checks.whole("batch_size", self.batch_size)
        _single("learning_rate", checks.positive("learning_rate", self.learning_rate))
        checks.literal("optimizer", self.optimizer, Optimizer)
        checks.between("momentum", self.momentum, 0.0, 1.0)
        _single("weight_decay", checks.non_negative("weight_decay", self.weight_decay))
        if (self.epochs is None) == (self.steps is None):
            raise InvalidValue("epochs", "or steps must be set, not both", (self.epochs, self.steps))
        if self.epochs is not None:
            checks.whole("epochs", self.epochs)
        if self.steps is not None:
            checks.whole("steps", self.steps)
        if self.clip is not None:
            _single("clip", checks.positive("clip", self.clip))
            if self.clip < LEAST_CLIP:  # norms in single precision cannot resolve such gradients
                raise InvalidValue("clip", f"must be at least {LEAST_CLIP:g}", self.clip)
        if checks.literal("batches", self.batches, Batches) == "poisson" and self.clip is None:
            raise InvalidValue("batches", 'must be "passes" unless clip is given', repr(self.batches))
        checks.literal("augmentation", self.augmentation, Augmentation)
        if self.augmentation != "none" and self.clip is not None:
            raise InvalidValue("augmentation", 'must be "none" if clip is given', repr(self.augmentation))
        if self.later_rates:
            rates = checks.vector("later_rates", self.later_rates, sign="positive")
            _single("later_rates", float(rates.max()))

    def rate(self, step: int) -> float:
        """The learning rate of local step 0, 1, ..."""
        return self.learning_rate if step == 0 or self.later_rates is None else self.later_rates[step - 1]


def _single(name: str, value: float) -> None:
    """Refuse what exceeds single precision, which most models use."""
    most = float(np.finfo(np.float32).max)
    if value > most:
        raise InvalidValue(
            name, f"must not exceed {most:.3g}, the largest number of single precision", value
        )


def local_steps(records: int, batch_size: int, epochs: int | None, steps: int | None) -> int:
    """Steps of a client in a round: `steps`, or those of `epochs` passes over its records."""
    if epochs is None:
        assert steps is not None
        return steps
    return epochs * math.ceil(records / batch_size)


def step_count(records: int, spec: LocalTraining) -> int:
    """How many steps a client takes; an epoch of poisson batches has as many steps as a pass."""
    return local_steps(records, spec.batch_size, spec.epochs, spec.steps)


def pass_count(records: int, spec: LocalTraining) -> int:
    """Passes over its records that a client begins."""
    return math.ceil(step_count(records, spec) / math.ceil(records / spec.batch_size))


def record_steps(records: int, spec: LocalTraining) -> int:
    """The most steps that any one record can be in: one of every pass (theory P2), or all (P6)."""
    return pass_count(records, spec) if spec.batches == "passes" else step_count(records, spec)


def sampling_rate(records: int, spec: LocalTraining) -> float | None:
    """Probability with which a record is in a step, by a secret coin; None where passes decide."""
    return None if spec.batches == "passes" else min(1.0, spec.batch_size / records)


def batch_share(records: int, spec: LocalTraining, length: int) -> float:
    """The share of a sample in a batch of this length.

    Without privacy batches are averaged. Clipped gradients are added up and divided by the size of a full
    batch, however many there are: the noise is divided likewise, and the mean of a last batch of one record
    would have that of a full batch times its size (theory P4).
    """
    return 1 / (length if spec.clip is None else min(spec.batch_size, records))


def sensitivity(records: int, spec: LocalTraining) -> float:
    """How far one record moves the clipped gradient of a step (theory P1, P6).

    By 2 clip / batch if it is replaced, by half as much if it is added or removed, which is what the
    promise refers to where batches are drawn by coins.
    """
    assert spec.clip is not None  # the engine refuses noise without it
    return (2 if spec.batches == "passes" else 1) * spec.clip * batch_share(records, spec, 0)


def largest_sum(records: int, spec: LocalTraining) -> float:
    """The largest norm of the clipped gradient of a step, in units of its `sensitivity`.

    A batch that is drawn by coins can contain all records of a client.
    """
    full = min(spec.batch_size, records)
    return full / 2 if spec.batches == "passes" else float(records)
