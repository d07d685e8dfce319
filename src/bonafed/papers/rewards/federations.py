"""The federations of the rewards paper: who holds what, and a run that trains them, as a cell.

A setting is a data set, a way to split it among clients and a seed. Samples for validation are held out of
the training samples, the rest is split, images are standardised by what clients hold, and noise is added
where the split says so (section 6 and appendix E.1 of the paper).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bonafed.errors import InvalidValue
from bonafed.papers.cells import Cell, trained, training_cell
from bonafed.presentation.documents import JSONObject
from bonafed.randomness import RewardsStudy, generator

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bonafed.learning.data.datasets import Dataset


class Split(NamedTuple):
    """A way to split data, as the paper names it."""

    label: str
    kind: str  # a name in `learning.partition`
    options: dict[str, Any]


PARTITIONS = {
    "dirichlet": Split("Dir(0.5)", "label_dirichlet", {"beta": 0.5}),
    "classes": Split("#C = 3", "label_count", {"k": 3}),
    "noise": Split("N(0.1)", "feature_noise", {"sigma": 0.1}),
    "quantity": Split("quantity Dir(0.5)", "quantity_dirichlet", {"beta": 0.5}),
    "iid": Split("IID", "iid", {}),
}
_CLASSES = {"cifar100": 30, "tiny-imagenet": 60, "sentiment140": 1}  # #C, where the paper has not 3


class Sizes(NamedTuple):
    """How much of a data set is used."""

    clients: int
    validation: int  # training samples that are held out
    samples: int = 0  # training samples that the clients share; 0: all that are left
    tested: int = 0  # test samples; 0: all


def split_of(data: str, partition: str) -> Split:
    """The split as it is for a data set: #C depends on how many classes there are."""
    split = PARTITIONS[partition]
    if partition == "classes" and data in _CLASSES:
        return Split(f"#C = {_CLASSES[data]}", split.kind, {"k": _CLASSES[data]})
    return split


@lru_cache(maxsize=1)
def federation(data: str, split: str, sizes: Sizes, seed: int) -> Dataset:
    """Hold out, split, standardise, perhaps add noise; the samples held out follow the test samples."""
    from bonafed.learning.data import datasets
    from bonafed.learning.data.partition import add_feature_noise, feature_noise_levels, owners, partition

    whole = datasets.load(data)
    if sizes.validation >= len(whole.labels):
        raise InvalidValue("validation", f"must be below {len(whole.labels)} samples", sizes.validation)
    order = generator(seed, RewardsStudy.VALIDATION).permutation(len(whole.labels))
    last = sizes.validation + sizes.samples if sizes.samples else None
    reserved, training_rows = np.sort(order[: sizes.validation]), np.sort(order[sizes.validation : last])
    _, kind, options = split_of(data, split)
    labels = whole.labels[training_rows]
    train: NDArray[Any] = whole.features[training_rows]
    parts = partition(kind, labels, sizes.clients, generator(seed, RewardsStudy.PARTITION), **options)
    tested = slice(sizes.tested or None)
    test = np.concatenate([whole.test_features[tested], whole.features[reserved]])
    if not whole.vocabulary:  # words have no scale
        mean, sd = _scale(train)
        train, test = (train - mean) / sd, (test - mean) / sd
    if kind == "feature_noise":
        levels = feature_noise_levels(sizes.clients, **options)
        train = add_feature_noise(train, parts, levels, generator(seed, RewardsStudy.FEATURE_NOISE))
    return replace(
        whole,
        features=train,
        labels=labels,
        test_features=test,
        test_labels=np.concatenate([whole.test_labels[tested], whole.labels[reserved]]),
        groups=owners(parts),
    )


def _scale(images: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Mean and standard deviation, of each channel where there are several."""
    axes = (0, 2, 3) if images.ndim == 4 else None
    mean = images.mean(axes, dtype=np.float64, keepdims=True)
    return mean.astype(np.float32), images.std(axes, dtype=np.float64, keepdims=True).astype(np.float32)


class SettingPoint(NamedTuple):
    """Where a run stands in a grid."""

    data: str
    partition: str
    seed: int
    variant: str = ""


def setting_cell(
    point: SettingPoint,
    sizes: Sizes,
    model: str,
    training: Mapping[str, Any],
    rewards: Mapping[str, Any],
    *,
    evaluate_every: int | None = None,
    weight: float = 1.0,
) -> Cell:
    """A run that trains every client alone, the rewards, and the baselines of `rewards`.

    Every client's accuracy is recorded at the end of each phase, or every so many rounds.
    """
    rounds = training["rounds"]
    tables = {
        "data": {"name": point.data},
        "partition": {"kind": "natural", "clients": sizes.clients},
        "model": {"name": model},
        "training": dict(training),
        "rewards": {"validation": sizes.validation, **rewards},
        "run": {
            "seed": point.seed, "evaluate_every": evaluate_every or rounds, "checkpoint_every": 5,
            "cores": 1,
        },
    }  # fmt: skip
    arguments = {"partition": point.partition, "sizes": sizes._asdict(), "tables": tables}
    name = f"rewards {point.data.rpartition('/')[2]}, {point.partition}, seed {point.seed}"
    phases = 2 + len(rewards.get("baselines", ()))
    named = f"{name}, {point.variant}" if point.variant else name
    return training_cell(named, train_setting, arguments, tables, weight * phases * rounds)


def train_setting(arguments: JSONObject, folder: Path) -> JSONObject:
    """Train a setting, or resume it: scores and accuracies by method, contributions, rates, curves."""
    tables = arguments["tables"]
    data = federation(
        tables["data"]["name"], arguments["partition"], Sizes(**arguments["sizes"]), tables["run"]["seed"]
    )
    done = trained(tables, folder, dataset=data)
    facts, columns = done.statement.facts, done.statement.columns
    return {
        "accuracies": facts["accuracies"],
        "methods": facts["methods"],
        "contribution": list(columns["contribution"]),
        "rate": list(columns["reward_rate"]),
        "curves": curves(done.metrics),
    }


def curves(records: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, list[Any]]]:
    """By phase: the rounds in which it was evaluated, and every client's accuracy in them."""
    by_phase: dict[str, dict[str, list[Any]]] = {}
    inside = dict[str, int]()
    for record in records:
        phase = record["phase"] or "rewards"
        inside[phase] = inside.get(phase, 0) + 1
        if record["accuracies"] is not None:
            own = by_phase.setdefault(phase, {"rounds": [], "accuracies": []})
            own["rounds"].append(inside[phase])
            own["accuracies"].append(record["accuracies"])
    return by_phase
