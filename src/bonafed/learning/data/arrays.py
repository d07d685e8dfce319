"""Arrays that users hand over: features, labels, owners, each checked as it enters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed import checks
from bonafed.errors import InvalidValue
from bonafed.learning.data.partition import owner_numbers

Features = NDArray[np.float32] | NDArray[np.int64]
Labels = NDArray[np.int64] | NDArray[np.float32]

MOST_CLASSES = 100_000  # a label beyond this is a mistake, not a class
NAMED = 10  # classes that a line of text names


def are_pixels(values: ArrayLike) -> bool:
    """Whether features are bytes."""
    return np.asarray(values).dtype == np.uint8


def checked_features(name: str, values: ArrayLike, vocabulary: int) -> Features:
    """Samples in single precision, pixels divided by 255; or tokens."""
    array = _numbers(name, values)
    if array.ndim < 2 or 0 in array.shape:
        raise InvalidValue(name, "must hold samples of at least one number each", f"shape {array.shape}")
    if vocabulary:
        if array.ndim != 2 or not np.issubdtype(array.dtype, np.integer):
            raise InvalidValue(name, "must be rows of whole-number tokens", f"{array.dtype} {array.shape}")
        _refuse_samples(
            name, f"must be tokens below {vocabulary}", array, (array < 0) | (array >= vocabulary)
        )
        return array.astype(np.int64)
    if array.dtype == np.uint8:
        pixels: NDArray[np.float32] = np.divide(array, np.float32(255), dtype=np.float32)
        return pixels[:, None] if pixels.ndim == 3 else pixels
    with np.errstate(over="ignore"):
        result = array.astype(np.float32)
    _refuse_not_single(name, array, result)
    return result


def _refuse_not_single(name: str, values: NDArray[Any], single: NDArray[np.float32]) -> None:
    """Refuse numbers that are not finite, or not in single precision."""
    _refuse_samples(name, "must be finite", values, ~np.isfinite(values))
    most = np.finfo(np.float32).max
    _refuse_samples(name, f"must not exceed {most:.3g} in size", values, ~np.isfinite(single))


def checked_labels(name: str, values: ArrayLike, samples: int, classes: int | None) -> tuple[Labels, int]:
    """Classes and how many there are, or real targets and 0."""
    array = _numbers(name, values)
    if array.shape != (samples,):
        raise InvalidValue(name, f"must be one for each of {samples} samples", f"shape {array.shape}")
    if np.issubdtype(array.dtype, np.floating):
        if classes:
            raise InvalidValue(name, f"must be whole numbers below {classes}", array.dtype)
        with np.errstate(over="ignore"):
            result = array.astype(np.float32)
        _refuse_not_single(name, array, result)
        return result, 0
    if classes == 0:
        raise InvalidValue(name, "must be real numbers like the other labels", array.dtype)
    limit = classes or MOST_CLASSES
    _refuse_samples(name, f"must be in 0..{limit - 1}", array, (array < 0) | (array >= limit))
    return array.astype(np.int64), classes or int(array.max()) + 1


def is_text(values: ArrayLike) -> bool:
    """Whether labels are names, in an array of text or, as pandas has it, of objects."""
    array = _array("labels", values)
    if array.dtype.kind == "O":
        return bool(array.size) and all(isinstance(label, str) for label in array.ravel().tolist())
    return array.dtype.kind == "U"


def class_names(labels: ArrayLike, classes: int | Sequence[str] | None) -> tuple[str, ...]:
    """The names of the classes in their order; none if they are numbers."""
    if classes is not None and not isinstance(classes, int | np.integer):
        return checks.names("classes", classes, one="name of a class")
    if not is_text(labels):
        return ()
    if classes is not None:
        raise InvalidValue("classes", "must be the names of the classes, as labels are names", classes)
    # a list before NumPy cuts off what ends in NUL
    words = labels if isinstance(labels, list | tuple) else _array("labels", labels).ravel().tolist()
    return checks.names("labels", sorted(checks.one_name("label", word) for word in dict.fromkeys(words)))


def numbered(name: str, labels: ArrayLike, names: Sequence[str]) -> NDArray[np.int64]:
    """(n,) the place of each label among the names of the classes."""
    places = {label: place for place, label in enumerate(names)}
    array = _array(name, labels)
    words, inverse = np.unique(array, return_inverse=True)
    for word in words.tolist():
        if word not in places:
            known = ", ".join(map(repr, names[:NAMED])) + (", ..." if len(names) > NAMED else "")
            raise InvalidValue(name, f"must be classes by name: {known}", repr(word))
    return np.array([places[word] for word in words.tolist()], dtype=np.int64)[inverse].reshape(array.shape)


def checked_columns(columns: Sequence[str], features: Features) -> tuple[str, ...]:
    """Names of the features of a table; none for images and text."""
    if len(columns) and (features.ndim != 2 or len(columns) != features.shape[1]):
        raise InvalidValue("columns", f"must be one for each of {features.shape[1:]}", len(columns))
    return tuple(checks.one_name("column", name) for name in columns)


def checked_groups(values: ArrayLike, samples: int) -> NDArray[np.int64]:
    """Owners: whole numbers unchanged if they fit into 64 bits, others numbered from 0."""
    array = _array("groups", values)
    if array.shape != (samples,):
        raise InvalidValue("groups", f"must be one for each of {samples} samples", f"shape {array.shape}")
    if np.issubdtype(array.dtype, np.integer) and array.max() < 2**63:
        return array.astype(np.int64)
    return owner_numbers(array)


def _numbers(name: str, values: ArrayLike) -> NDArray[Any]:
    array = _array(name, values)
    if not np.issubdtype(array.dtype, np.integer) and not np.issubdtype(array.dtype, np.floating):
        raise InvalidValue(name, "must be an array of numbers", f"type {array.dtype}")
    return array


def _array(name: str, values: ArrayLike) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except ValueError as error:
        raise InvalidValue(name, "must be an array", "rows of different lengths") from error


def _refuse_samples(name: str, rule: str, values: NDArray[Any], bad: NDArray[np.bool_]) -> None:
    """Refuse bad values, naming the first sample with one."""
    if bad.any():
        sample = int(np.flatnonzero(bad.reshape(len(bad), -1).any(axis=1))[0])
        raise InvalidValue(name, rule, f"{values[sample][bad[sample]].flat[0]} in sample {sample}")
