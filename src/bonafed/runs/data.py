"""The data of a run and who holds them: loaded, scaled, split and digested, the same way for every run.

`data.standardise` says whose constants scale which records (`bonafed.learning.data.scaling`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from bonafed.errors import InvalidValue, MissingValue, refuse
from bonafed.learning.architectures import FARTHEST, parameter_count, require_fit
from bonafed.learning.data import datasets, scaling
from bonafed.learning.data import partition as partitions
from bonafed.learning.data.datasets import Dataset
from bonafed.learning.data.scaling import Scaling
from bonafed.learning.federation import UNNAMED, Roster
from bonafed.learning.problems.convex import largest_norm
from bonafed.mechanisms.protocol import Config
from bonafed.randomness import Purpose, round_generator
from bonafed.sections import named, told_at_once
from bonafed.text import natural_order

if TYPE_CHECKING:
    from torch import nn

    from bonafed.learning.engine.jobs import Samples
    from bonafed.learning.engine.programs import Loss, Program


@dataclass(frozen=True, slots=True, eq=False)
class Holdings:
    """Data and who holds them, as returned by `hold`."""

    config: Config  # with paths and the number of clients filled in
    dataset: Dataset
    features: NDArray[Any]  # (n, ...) of all clients, standardised and with the noise of the partition
    test_features: NDArray[Any]  # (m, ...) standardised
    parts: list[NDArray[np.int64]]  # (N,) the samples of each client
    digest: str  # of data and partition

    @property
    def samples(self) -> Samples:
        """The samples of all clients."""
        return _tensors(self.features, self.dataset.labels)

    @property
    def test(self) -> Samples:
        """The test samples, perhaps none."""
        return _tensors(self.test_features, self.dataset.test_labels)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know about the data; of private records nothing is computed for it."""
        if self.config.noise is not None or self.dataset.vocabulary or self.features.ndim != 2:
            return ()
        return tuple(filter(None, [scaling.far_apart(self.features, self.dataset.columns)]))

    @property
    def owner(self) -> NDArray[np.int64]:
        """(n,) the client of each sample."""
        return partitions.owners(self.parts)

    def roster(self, clients: Collection[str] = ()) -> Roster:
        """What a real federation would reveal. Clients are named as in the data, or as in their reports.

        Where the data name no owners, the parts go to the names in the reports in their natural order,
        whatever the order of the reports; without reports, clients are numbered from 0. Where fewer report
        than there are parts, the last parts belong to clients of which nobody knows the name.
        """
        names = self.dataset.owners if self.config.partition.kind == "natural" else ()
        if not names and 0 < len(clients) <= len(self.parts):
            unknown = (f"{UNNAMED} {number + 1}" for number in range(len(self.parts) - len(clients)))
            names = (*sorted(clients, key=natural_order), *unknown)
        if not names:
            names = tuple(str(number) for number in range(len(self.parts)))
        noisy = self.config.partition.kind == "feature_noise"  # makes features longer than stated
        is_public = not noisy and self.config.noise is None  # otherwise it would reveal the longest record
        is_raw = (
            self.config.data.standardise is None
        )  # what the data say of their loss is for them as they are
        return Roster(
            names=names,
            sizes=np.array([part.size for part in self.parts], dtype=np.int64),
            shape=tuple(self.features.shape[1:]),
            classes=self.dataset.classes,
            vocabulary=self.dataset.vocabulary,
            smoothness=self.dataset.smoothness if is_public and is_raw else None,
            strong_convexity=self.dataset.strong_convexity,
            feature_bound=self._feature_bound,
            class_names=self.dataset.class_names,
        )

    @property
    def _feature_bound(self) -> float | None:
        """The norm of the longest record; private records must not set a scale."""
        if self.config.noise is not None or self.dataset.vocabulary:
            return None
        return largest_norm(self.features)


@dataclass(frozen=True, slots=True, eq=False)
class Outside:
    """What a server has of a federation that answers for itself: a roster, and test samples of its own."""

    config: Config  # with the number of clients filled in
    members: Roster
    test_features: NDArray[Any]  # (m, ...) perhaps none
    test_labels: NDArray[Any]  # (m,)
    digest: str  # of the roster and the test samples
    notes: tuple[str, ...] = ()  # nothing is known about records that nobody here holds

    @property
    def test(self) -> Samples:
        """The test samples, perhaps none."""
        return _tensors(self.test_features, self.test_labels)


def outside(config: Config, members: Roster, dataset: Dataset | None = None) -> Outside:
    """A federation whose records nobody here holds; of `dataset` only the test samples are looked at."""
    features: NDArray[Any]
    labels: NDArray[Any]
    if config.data.standardise is not None:
        rule = "must be left out: clients that answer for themselves standardise what they hold"
        raise InvalidValue("data.standardise", rule, repr(config.data.standardise)[:60])
    if dataset is not None and members.class_names:
        dataset = _named_classes(dataset, members.class_names)
    if dataset is None:
        kind = np.int64 if members.vocabulary else np.float32
        features, labels = np.zeros((0, *members.shape), kind), np.zeros(0, np.int64)
    else:
        _require_test_data(dataset)
        features, labels = dataset.test_features, dataset.test_labels
        if dataset.classes != members.classes or features.shape[1:] != members.shape:
            rule = f"must be like the clients': shape {members.shape}, {members.classes} classes"
            value = f"shape {features.shape[1:]}, {dataset.classes} classes"
            raise InvalidValue("test samples", rule, value)
    config = replace(config, partition=replace(config.partition, clients=len(members)))
    told = f"{members.names} {members.sizes.tolist()} {members.shape} {members.classes}"
    digest = hashlib.sha256(told.encode())
    for array in (features, labels):
        _update(digest, array)
    return Outside(config, members, features, labels, digest.hexdigest())


def require_model(config: Config, members: Roster) -> int:
    """The number of weights of the config's model; refused if the clients' samples do not go into it."""
    name = config.model.name
    with named("model", model="name", image="name"):
        require_fit(name, members.shape, members.vocabulary)
    return parameter_count(name, members.shape, members.classes or 1, members.vocabulary)


def build_module(config: Config, members: Roster) -> nn.Module:
    """The model of the config with its initial weights."""
    from bonafed.learning import models

    with named("model", model="name", image="name"):
        return models.build(
            config.model.name, members.shape, members.classes or 1, config.run.seed, members.vocabulary
        )


def build_program(module: nn.Module, members: Roster, test: Samples) -> Program:
    """The model as a program that runs on the clients' samples and has an output for every class."""
    import torch

    from bonafed.learning.engine.programs import flat_parameters, program_for

    loss: Loss = "cross-entropy" if members.classes else "squared"
    sample = torch.ones((1, *members.shape), dtype=test.features.dtype)
    program = program_for(module, loss, sample)
    try:
        with torch.no_grad():
            outputs = program.outputs(flat_parameters(module)[None], sample[None]).shape[2]
    except InvalidValue:
        raise
    except (RuntimeError, IndexError, ValueError) as error:
        raise InvalidValue("model", f"must run on samples of shape {members.shape}", error) from error
    classes = members.classes
    if not classes and outputs != 1:
        rule = "must have 1 output, as labels are real numbers (whole ones are classes)"
        raise InvalidValue("model", rule, outputs)
    if outputs < classes:
        rule = f"must have {classes} outputs, as the largest label is {classes - 1}"
        raise InvalidValue("model", rule, outputs)
    return program


def hold(
    config: Config, dataset: Dataset | None = None, on_progress: Callable[[str], None] | None = None
) -> Holdings:
    """Load the data (unless they are passed in) and split them."""
    config = with_path(config)
    if dataset is None:
        config, dataset = _load(config, on_progress)
    dataset = _require_private_facts(config, dataset)
    parts = _split(config, dataset)
    config = replace(config, partition=replace(config.partition, clients=len(parts)))
    _require_labels(dataset, parts)
    _require_test_data(dataset)
    features, test_features = standardised(config, dataset, parts)
    features = _with_noise(config, dataset, features, parts)
    if config.training is not None and config.training.augmentation != "none":
        _require_images(features)
    digest = _digest(features, test_features, dataset, parts)
    return Holdings(config, dataset, features, test_features, parts, digest)


def in_another_run(held: Holdings, config: Config) -> Holdings | None:
    """What is held, in a run of another config about the same data and split; None: about others.

    The rules of that run are checked; nothing is split, scaled or digested again.
    """
    config = with_path(config)
    known = held.config
    split = replace(config.partition, clients=known.partition.clients)
    if config.data != known.data:
        config = _located(config)
    same = (config.data, split, config.run.seed) == (known.data, known.partition, known.run.seed)
    if not same or config.partition.clients not in (None, known.partition.clients):
        return None
    _require_private_facts(config, held.dataset)
    if config.training is not None and config.training.augmentation != "none":
        _require_images(held.features)
    return replace(held, config=replace(config, partition=split))


def _require_private_facts(config: Config, dataset: Dataset) -> Dataset:
    """A private run infers nothing from private records: neither the classes nor a scale."""
    problems: list[InvalidValue] = []
    with told_at_once(problems):
        dataset = _with_classes(config, dataset)
    with told_at_once(problems):
        require_private_scale(config)
    refuse(problems)
    return dataset


def _require_images(features: NDArray[Any]) -> None:
    """What is moved and mirrored must be images that are larger than the move."""
    if features.ndim != 4 or min(features.shape[2:]) <= FARTHEST:
        rule = f"must be none unless samples are images of more than {FARTHEST} pixels a side"
        raise InvalidValue("training.augmentation", rule, f"samples of shape {features.shape[1:]}")


def _with_classes(config: Config, dataset: Dataset) -> Dataset:
    """The number of classes, as the config states it; a private run must not infer it from the labels."""
    classes = config.data.classes
    if classes is None:
        if config.noise is not None and dataset.classes and not dataset.classes_stated:
            rule = (
                "is required in a private run: that of the data follows from the largest private label; "
                "state what everybody may know, such as classes = 10"
            )
            raise MissingValue("data.classes", rule)
        return dataset
    if not dataset.classes:
        raise InvalidValue("data.classes", "must be left out: labels are real numbers", classes)
    if isinstance(classes, tuple):
        return _named_classes(dataset, classes)
    if dataset.class_names:
        rule = "must list the names of the classes in their order, as labels are names"
        raise InvalidValue("data.classes", rule, classes)
    if dataset.classes_stated and classes != dataset.classes:
        raise InvalidValue("data.classes", f"must be {dataset.classes} for these data", classes)
    return replace(dataset, classes=classes, classes_stated=True)


def _named_classes(dataset: Dataset, names: tuple[str, ...]) -> Dataset:
    """The data with classes of these names, in this order; numbers from 0 get them in turn."""
    if not dataset.class_names:
        if len(names) < dataset.classes or (dataset.classes_stated and len(names) != dataset.classes):
            rule = f"must name {dataset.classes} classes for these data"
            raise InvalidValue("data.classes", rule, len(names))
        return replace(dataset, classes=len(names), classes_stated=True, class_names=names)
    known = {name: label for label, name in enumerate(names)}
    for name in dataset.class_names:
        if name not in known:
            rule = f"must name every class of the data, also {name!r}"
            raise InvalidValue("data.classes", rule, repr(list(names))[:200])
    labels = np.array([known[name] for name in dataset.class_names], dtype=np.int64)
    return replace(
        dataset, labels=labels[dataset.labels], test_labels=labels[dataset.test_labels], classes=len(names),
        classes_stated=True, class_names=names,
    )  # fmt: skip


def _load(config: Config, on_progress: Callable[[str], None] | None) -> tuple[Config, Dataset]:
    """The data, and the config with paths that are valid from any folder."""
    config = _located(config)
    section = config.data
    folder = Path(section.folder) if section.folder else None
    with named("data", dataset="name"):
        dataset = datasets.load(
            section.name, folder=folder, seed=config.run.seed, on_progress=on_progress,
            choices=section.choices,
        )  # fmt: skip
    return config, dataset


def _located(config: Config) -> Config:
    """The config with paths of data that are valid from any folder."""
    section = config.data
    folder = Path(section.folder).expanduser().absolute() if section.folder else None
    name = section.name
    if datasets.is_own_file(name):
        with named("data", dataset="name"):
            name, folder = str(datasets.own_file(name, folder).absolute()), None
    return replace(config, data=replace(section, name=name, folder=str(folder or "")))


def _split(config: Config, dataset: Dataset) -> list[NDArray[np.int64]]:
    kind, options = config.partition.kind, dict(config.partition.options)
    clients = config.partition.clients
    if kind == "natural":
        if dataset.groups is None:
            raise InvalidValue("partition.kind", "must not be natural: the data name no owners", kind)
        options["groups"] = dataset.groups
        clients = clients or int(np.unique(dataset.groups).size)
    try:
        with named("partition"):
            return partitions.partition(
                kind,
                dataset.labels,
                clients or 0,
                round_generator(config.run.seed, Purpose.PARTITION),
                **options,
            )
    except InvalidValue as error:
        if dataset.classes or error.name != "partition.labels" or not np.isfinite(dataset.labels).all():
            raise
        rule = f"must not be {kind}: it needs classes, and labels are real numbers"
        raise InvalidValue("partition.kind", rule, kind) from error


def _with_noise(
    config: Config, dataset: Dataset, features: NDArray[Any], parts: list[NDArray[np.int64]]
) -> NDArray[Any]:
    """The training features, with noise under a partition that asks for it."""
    if config.partition.kind != "feature_noise":
        return features
    if dataset.vocabulary:
        raise InvalidValue("partition.kind", "must not add noise to text", config.partition.kind)
    levels = partitions.feature_noise_levels(len(parts), config.partition.options["sigma"])
    return partitions.add_feature_noise(
        cast(NDArray[np.float32], features),
        parts,
        levels,
        round_generator(config.run.seed, Purpose.FEATURE_NOISE),
    )


def _require_labels(dataset: Dataset, parts: list[NDArray[np.int64]]) -> None:
    """Require classes in range, also of data sets not made by `datasets`; the error names the client."""
    if not dataset.classes:
        return
    bad = (dataset.labels < 0) | (dataset.labels >= dataset.classes)
    for client, part in enumerate(parts):
        if bad[part].any():
            sample = int(part[bad[part]][0])
            rule = f"must be in 0..{dataset.classes - 1}"
            value = f"{dataset.labels[sample]} in sample {sample}"
            raise InvalidValue(f"labels of client {client}", rule, value)


def _require_test_data(dataset: Dataset) -> None:
    """Require valid test data: nobody trains on them, so nothing else would notice a wrong accuracy."""
    labels, features = dataset.test_labels, dataset.test_features
    if dataset.classes and labels.size and not 0 <= labels.min() <= labels.max() < dataset.classes:
        bad = int(np.flatnonzero((labels < 0) | (labels >= dataset.classes))[0])
        value = f"{labels[bad]} in sample {bad}"
        raise InvalidValue("test_labels", f"must be in 0..{dataset.classes - 1}", value)
    bad_rows = np.unique(np.argwhere(~np.isfinite(features))[:, 0])
    if bad_rows.size:
        raise InvalidValue("test_features", "must be finite", f"NaN or inf in sample {bad_rows[0]}")


def _tensors(features: NDArray[Any], labels: NDArray[Any]) -> Samples:
    import torch

    from bonafed.learning.engine.jobs import Samples

    return Samples(torch.tensor(features), torch.tensor(labels))


def _digest(
    features: NDArray[Any], test_features: NDArray[Any], dataset: Dataset, parts: list[NDArray[np.int64]]
) -> str:
    """Changes when a sample, its scale, a label or the owner of one changes."""
    digest = hashlib.sha256()
    for array in (features, dataset.labels, test_features, dataset.test_labels, *parts):
        _update(digest, array)
    return digest.hexdigest()


def digest_of_test(test: Samples, judging: Samples) -> str:
    """Tells test samples apart, "" if there are none: `test` as loaded, and those of them that judge a run.

    Test samples are the server's own and under nobody's promise of privacy, so the digest is a plain one.
    """
    if not len(judging.labels):
        return ""
    digest = hashlib.sha256()
    for array in (test.features.numpy(), test.labels.numpy(), judging.labels.numpy()):
        _update(digest, array)
    return digest.hexdigest()


def _update(digest: hashlib._Hash, array: NDArray[Any]) -> None:
    digest.update(f"{array.dtype}{array.shape}".encode())
    digest.update(np.ascontiguousarray(array).data)


def with_path(config: Config) -> Config:
    """The config with a path of constants or public data that is valid from any folder.

    A file without a path is looked for where the data are, in `data.folder` or the current folder.
    """
    how = config.data.standardise
    if not isinstance(how, Mapping) or "mean" in how:
        return config
    ((kind, name),) = how.items()
    path = (Path(config.data.folder).expanduser() / Path(name).expanduser()).absolute()
    return replace(config, data=replace(config.data, standardise={kind: str(path)}))


def require_private_scale(config: Config) -> None:
    """A private run has no scale that follows from private records."""
    how = config.data.standardise
    if config.noise is not None and isinstance(how, str):
        rule = (
            f'must not be "{how}" in a private run, as one record moves the scale of all others: '
            "state constants, such as standardise = {mean = 0.0, scale = 10.0}, or name public data"
        )
        raise InvalidValue("data.standardise", rule, repr(how))


def standardised(
    config: Config, dataset: Dataset, parts: list[NDArray[np.int64]]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Features and test features as `data.standardise` says."""
    how, features, test = config.data.standardise, dataset.features, dataset.test_features
    if how is None:
        return features, test
    if dataset.vocabulary:
        raise InvalidValue("data.standardise", "must be left out: features are words", repr(how)[:60])
    with named("data"):
        if isinstance(how, Mapping):
            shared = _constants(how, dataset)
            return shared.apply(features), shared.apply(test)
        own = scaling.per_client(features, parts)
        return own, Scaling.of(test).apply(test) if len(test) else test


def _constants(how: Mapping[str, Any], dataset: Dataset) -> Scaling:
    """Of everybody, the test samples included."""
    width = dataset.features.shape[1]
    if "constants" in how:
        return scaling.read_constants(Path(how["constants"]), dataset.columns, width)
    if "public" not in how:
        return scaling.stated(how, width)
    path = Path(how["public"])
    if not datasets.is_own_file(str(path)):
        raise InvalidValue("standardise.public", "must be a path ending in .npz or .csv", path)
    public, columns = datasets.read_features(path)
    shared = scaling.of_public(path, public, columns, dataset.features, dataset.columns)
    known = scaling.rows_among(public, columns, dataset.features, dataset.columns)
    if 2 * known >= len(public):
        rule = "must not be the records of the run: fewer than half of its rows may be among them"
        value = f"{known:,} of {len(public):,} in {path}"
        raise InvalidValue("standardise.public", rule, value)
    return shared
