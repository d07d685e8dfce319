"""`data.standardise` in a run: whose constants, for which records (`bonafed.learning.data.scaling`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bonafed.errors import InvalidValue
from bonafed.learning.data import datasets, scaling
from bonafed.learning.data.datasets import Dataset
from bonafed.learning.data.scaling import Scaling
from bonafed.mechanisms.protocol import Config
from bonafed.sections import named


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
