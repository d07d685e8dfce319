"""How well a federation rewarded its clients: IPR, correlation with contribution, accuracy (theory D7).

    IPR_accu   share of clients whose model is at least as accurate as their standalone model
    IPR_loss   share whose loss is at most that of their standalone model; ties count as not worse in both
    rho        Pearson correlation of final accuracies with contributions; undefined, None here, when either
               is the same for all clients
    average, best   accuracy over clients
    increase   average of accuracy minus standalone accuracy

All accuracies and losses are on the test set. For rho the choice of what counts as contribution matters
much. The paper takes the standalone accuracy on the *test* set, makes the reward rates from it, and scores
the models on the same set: rho then says that the rule followed the numbers it was given, be they signal or
noise of that set. `Scores` always has both: rho with contributions measured on the test set, and on a
validation set that the scores never see.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue


def participation_incentive(accuracy: ArrayLike, standalone: ArrayLike) -> float:
    """IPR_accu: share of clients with accuracy >= standalone."""
    own = checks.vector("standalone", standalone, sign="any")
    return float(np.mean(checks.vector("accuracy", accuracy, sign="any", length=own.size) >= own))


def participation_incentive_by_loss(loss: ArrayLike, standalone: ArrayLike) -> float:
    """IPR_loss: share of clients with loss <= standalone."""
    own = checks.vector("standalone", standalone, sign="any")
    return float(np.mean(checks.vector("loss", loss, sign="any", length=own.size) <= own))


def correlation(accuracy: ArrayLike, contribution: ArrayLike) -> float | None:
    """rho: Pearson's; None where it is undefined, that is when either side is constant.

    Constant means equal as numbers. Values that differ in the last digit only are not repaired: they have a
    correlation, and it is noise.
    """
    x = checks.vector("accuracy", accuracy, sign="any")
    y = checks.vector("contribution", contribution, sign="any", length=x.size)
    if (x == x[0]).all() or (y == y[0]).all():
        return None
    # Scaled first: squares of tiny differences must not vanish.
    a, b = (v / np.abs(v).max() for v in (x - x.mean(), y - y.mean()))
    return float(np.clip(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)), -1.0, 1.0))


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """What was measured at the end of one run: all on the test set but the last field."""

    accuracy: Floats  # (N,) of the models clients end up with
    loss: Floats  # (N,)
    standalone_accuracy: Floats  # (N,) of models trained alone, with as many local steps
    standalone_loss: Floats  # (N,)
    validation_accuracy: Floats  # (N,) of the standalone models, on data the scores never see

    def __post_init__(self) -> None:
        n = checks.vector("accuracy", self.accuracy).size
        for name in self.__dataclass_fields__:
            value = checks.vector(name, getattr(self, name), sign="any", length=n)
            object.__setattr__(self, name, value)


@dataclass(frozen=True, slots=True)
class Scores:
    """The metrics of one run."""

    ipr_accuracy: float  # IPR_accu, in [0, 1]
    ipr_loss: float  # IPR_loss, in [0, 1]
    rho_test: (
        float | None
    )  # contributions: standalone accuracy on the test set, as in the paper; None: undefined
    rho_validation: float | None  # the same on a validation set; None: undefined, as above
    average: float  # accuracy
    best: float  # accuracy
    increase: float  # mean accuracy above standalone


def scores(run: Evaluation) -> Scores:
    """All metrics of a run, with rho by both ways to measure contribution."""
    return Scores(
        ipr_accuracy=participation_incentive(run.accuracy, run.standalone_accuracy),
        ipr_loss=participation_incentive_by_loss(run.loss, run.standalone_loss),
        rho_test=correlation(run.accuracy, run.standalone_accuracy),
        rho_validation=correlation(run.accuracy, run.validation_accuracy),
        average=float(run.accuracy.mean()),
        best=float(run.accuracy.max()),
        increase=float((run.accuracy - run.standalone_accuracy).mean()),
    )


class Summary(NamedTuple):
    """A metric over seeds."""

    mean: float | None  # over the seeds where it is defined; None if there is none
    error: float | None  # standard error of the mean; None with fewer than two such seeds
    defined: int  # seeds in which the metric has a value
    seeds: int  # all

    def __str__(self) -> str:
        if self.mean is None:
            return "undefined"
        text = f"{self.mean:.3f}" + ("" if self.error is None else f" +- {self.error:.3f}")
        return text if self.defined == self.seeds else f"{text} (defined in {self.defined} of {self.seeds})"


def summarise(runs: Sequence[Scores]) -> dict[str, Summary]:
    """Each metric's mean and standard error over the seeds in which it is defined."""
    if not runs:
        raise InvalidValue("runs", "must not be empty", "0 runs")
    summaries = {}
    for name in Scores.__dataclass_fields__:
        values = [value for run in runs if (value := getattr(run, name)) is not None]
        mean = float(np.mean(values)) if values else None
        error = float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else None
        summaries[name] = Summary(mean, error, len(values), len(runs))
    return summaries
