"""What a participant holds, and the work it does with it: below the seam, in its own process.

`Holding` are its records; `Bench` is a run's program on them. Tasks are answered by the engine that
simulates whole federations (`learning.local`), here with a single client, so that both give the same
answers where randomness is shared.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bonafed.errors import InvalidValue, MissingValue
from bonafed.learning.engine.jobs import Samples
from bonafed.learning.federation import (
    Failure,
    Gradients,
    Losses,
    Reply,
    Roster,
    Train,
    answer_shape,
    checked_noise,
    limits_of,
    noisy,
)
from bonafed.learning.local import EngineFederation
from bonafed.learning.noise import Source
from bonafed.learning.privacy.ledger import Release
from bonafed.learning.problems.convex import largest_norm
from bonafed.learning.sections import Data, Model, Partition, Run
from bonafed.learning.work import record_steps, sampling_rate, sensitivity, step_count
from bonafed.mechanisms.protocol import Config
from bonafed.remote.messages import JSONObject
from bonafed.remote.tasks import Answer, Asked, work_to_json
from bonafed.runs.data import build_module, build_program, hold

_REACH = 1000.0  # standard deviations of its noise that an answer may be longer than its clip allows

LEAST_NOISE = 1e-100  # standard deviation; the square of much less is no number


@dataclass(frozen=True, slots=True, eq=False)
class Holding:
    """The records of one participant, and what it says about them."""

    features: NDArray[Any]  # (n, ...)
    labels: NDArray[Any]  # (n,)
    classes: int  # 0: labels are real numbers
    classes_stated: bool = True  # False: inferred from the labels, which are in somebody's record
    class_names: tuple[str, ...] = ()
    vocabulary: int = 0
    smoothness: float | None = None
    strong_convexity: float | None = None
    scaled_by_records: bool = False  # features were standardised by the records themselves

    def __len__(self) -> int:
        return len(self.labels)

    def described(self, config: Config) -> JSONObject:
        """What a run of this config needs to know of these records; of private ones nothing that one of
        them decides."""
        private = config.noise is not None
        holding = self.under(config)
        if private and holding.classes and not holding.classes_stated:
            rule = "is required in a private run: that of the data follows from the largest private label"
            raise MissingValue("data.classes", rule)
        if private and self.scaled_by_records:
            rule = 'must not be "per client" in a private run, as one record moves the scale of all others'
            raise InvalidValue("data.standardise", rule, '"per client"')
        bound = None if private or self.vocabulary else largest_norm(self.features)
        return {
            "records": len(self),
            "shape": list(self.features.shape[1:]),
            "classes": holding.classes,
            "class_names": list(holding.class_names),
            "vocabulary": self.vocabulary,
            "feature_bound": bound,
            "smoothness": None if private else self.smoothness,
            "strong_convexity": self.strong_convexity,
        }

    def under(self, config: Config) -> Holding:
        """With the classes that the config states, in its order."""
        stated = config.data.classes
        if stated is None or not self.classes:
            return self
        if isinstance(stated, int):
            if self.class_names:
                rule = "must be the names of the classes in their order, as labels are names"
                raise InvalidValue("data.classes", rule, stated)
            if stated < self.classes:
                raise InvalidValue(
                    "data.classes", f"must be at least {self.classes} for my records", stated
                )
            return replace(self, classes=stated, classes_stated=True)
        if not self.class_names:
            if len(stated) < self.classes:
                raise InvalidValue("data.classes", f"must name {self.classes} classes", len(stated))
            return replace(self, classes=len(stated), class_names=stated, classes_stated=True)
        known = {name: label for label, name in enumerate(stated)}
        for name in self.class_names:
            if name not in known:
                raise InvalidValue(
                    "data.classes", f"must name {name!r}, a class of my records", len(stated)
                )
        labels = np.array([known[name] for name in self.class_names], dtype=np.int64)
        return replace(
            self, labels=labels[self.labels], classes=len(stated), class_names=stated, classes_stated=True
        )


def open_holding(data: Data, partition: Partition | None = None, number: int = 0, seed: int = 0) -> Holding:
    """The records of a file or a data set that bonafed knows; with a partition, one part of it."""
    split = partition or Partition("iid", 1)
    config = Config("fedavg", data, split, Model("softmax"), run=Run(seed=seed))
    holdings = hold(config)
    if not 0 <= number < len(holdings.parts):
        raise InvalidValue("data.part.number", f"must be in 0..{len(holdings.parts) - 1}", number)
    rows, dataset = holdings.parts[number], holdings.dataset
    if partition is None:
        rows = np.arange(len(dataset.labels))
    raw = data.standardise is None
    return Holding(
        holdings.features[rows], dataset.labels[rows], dataset.classes,
        dataset.classes_stated, dataset.class_names, dataset.vocabulary,
        dataset.smoothness if raw and split.kind != "feature_noise" else None, dataset.strong_convexity,
        data.standardise is not None and not isinstance(data.standardise, Mapping),
    )  # fmt: skip


class Bench:
    """A run's program on a participant's records."""

    def __init__(self, holding: Holding, config: Config, members: Roster, name: str, noise: Source) -> None:
        holding = holding.under(config)
        self.position = members.index[name]
        alone = replace(members, names=(name,), sizes=np.array([len(holding)], dtype=np.int64))
        samples = Samples(torch.tensor(holding.features), torch.tensor(holding.labels))
        module = build_module(config, members)
        self.program = build_program(module, members, samples)
        self.records, self._noise = len(holding), noise.own(self.position)
        self._engine = EngineFederation(
            alone, self.program, samples, [np.arange(len(holding))], noise, numbers=(self.position,)
        )

    def release_of(self, asked: Asked) -> tuple[Release, ...] | None:
        """What an answer will give away; None: the records themselves, as nothing hides them.

        Known before any record is looked at.
        """
        work = asked.task.work
        if isinstance(work, Train):
            spec = work.training
            if spec.clip is None or not work.noise_multiplier:
                return None
            times, steps = record_steps(self.records, spec), step_count(self.records, spec)
            rate = sampling_rate(self.records, spec)
            return (Release(self.position, work.round_number, work.noise_multiplier, times, steps, rate),)
        noise = checked_noise(asked.task, asked.noise)
        if isinstance(work, Gradients) and work.clip is not None:
            bounds = np.full(noise.size, work.clip)
        elif isinstance(work, Losses) and work.limit is not None:
            bounds = np.array(limits_of(asked.task))
        else:
            return None
        if not (noise >= LEAST_NOISE).all():
            return None
        if isinstance(work, Gradients):
            require_near(asked.task.models, work, noise)
        # replacing a record moves a mean of vectors, or numbers, of length bound at most by twice that over
        # their number; the regulariser, which is in a gradient, knows no record
        multipliers = noise * self.records / (2 * bounds)
        return tuple(Release(self.position, 0, multiplier, 1) for multiplier in multipliers.tolist())

    def answers(self, asked: Sequence[Asked]) -> dict[str, Answer]:
        """The work, done; by identifier."""
        groups = dict[str, list[Asked]]()
        for each in asked:  # one program for all of a kind
            work = each.task.work
            key = repr((type(work).__name__, work_to_json(work) if not isinstance(work, Train) else (
                work.training, work.round_number, work.seed)))  # fmt: skip
            groups.setdefault(key, []).append(each)
        answers = dict[str, Answer]()
        for group in groups.values():
            replies = self._engine.replies([each.task for each in group])
            for each in group:
                answers[each.task.identifier] = self._hidden(each, replies[each.task.identifier])
        return {each.task.identifier: answers[each.task.identifier] for each in asked}

    def _hidden(self, asked: Asked, reply: Reply | Failure) -> Reply | Failure:
        """The answer with noise of the client's own, where that is asked for."""
        releases = self.release_of(asked)
        if releases is None:
            return reply
        if isinstance(asked.task.work, Train):
            if isinstance(reply, Reply):  # without its loss, which no noise hides
                return replace(reply, loss=math.nan)
            # whether private records can be trained on is for nobody to know: no change, in the noise of
            # as many plain steps
            work, steps = asked.task.work, releases[0].steps or 0
            rates = sum(work.training.rate(step) ** 2 for step in range(steps))
            sd = work.noise_multiplier * sensitivity(self.records, work.training) * math.sqrt(rates)
            values = np.zeros(answer_shape(asked.task), dtype=asked.task.models.dtype)
            return Reply(self._noisy(asked, values, sd), steps=steps, releases=releases)
        values = reply.values if isinstance(reply, Reply) else np.zeros(answer_shape(asked.task))
        return Reply(self._noisy(asked, values, asked.noise), releases=releases)

    def _noisy(self, asked: Asked, values: NDArray[Any], sd: float | tuple[float, ...]) -> NDArray[Any]:
        request = hashlib.sha256(f"{asked.task.identifier} {asked.digest}".encode()).digest()
        hidden = noisy(values.astype(np.float64), sd, request, asked.task, self._noise.noisy)
        return np.asarray(hidden, dtype=values.dtype)


def require_near(models: NDArray[Any], work: Gradients, noise: NDArray[Any]) -> None:
    """The regulariser must leave a clipped gradient its digits: rounding that comes before the noise would
    move with a record by more than the noise is for."""
    assert work.clip is not None  # there is noise
    longest = work.objective.regulariser * np.abs(models).max(1)
    if not (longest <= 4 * work.clip + _REACH * noise).all():  # as noise is planned for (theory C6)
        rule = "must be so near 0 that the regulariser hides no digit of a gradient"
        raise InvalidValue("models", rule, f"{float(np.abs(models).max()):.3g}")
