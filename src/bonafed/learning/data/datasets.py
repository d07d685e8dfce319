"""Data sets: frozen arrays, looked up by name or read from the user's own file.

    digits             1,797 images 8 x 8, shipped with scikit-learn; every fifth of a class is for testing
    mnist, fashion-mnist, cifar10, sst    their original files (see `bonafed.learning.data.formats`)
    emnist-SPLIT       a split of EMNIST: byclass, bymerge, balanced, letters, digits or mnist
    svhn, cifar100, tiny-imagenet    likewise (`bonafed.learning.data.official_formats`)
    sentiment140       likewise (`bonafed.learning.data.official_formats`)
    heart, ist, schools    federations of hospitals and schools (`bonafed.learning.data.real_federations`)
    synthetic          logistic regression with known smoothness and strong convexity, from the seed
    synthetic-ridge    the same for ridge regression
    *.npz, *.csv       the user's own

`sources.py` says where named files are looked for. Every data set is checked: all features are finite, no
label is missing or out of range.

Arrays that users hand over: features, labels, owners, each checked as it enters.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed import checks
from bonafed.errors import InvalidValue, MissingValue, UnreadableFile
from bonafed.extras import explained
from bonafed.learning.data import formats
from bonafed.learning.data.formats import Arrays
from bonafed.learning.data.partition import owner_names, owner_numbers
from bonafed.learning.data.real_federations import choices as natural
from bonafed.learning.data.sources import SOURCES, Progress, look_up
from bonafed.presentation.documents import counted
from bonafed.text import printable

_DIGITS = Path("datasets", "data", "digits.csv.gz")  # of scikit-learn: 64 pixels, and the digit


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Dataset:
    """Samples for training and for testing. `from_arrays` makes one from arrays and checks them.

    >>> from_arrays("pets", [[4.0, 30.0], [5.5, 35.0], [30.0, 60.0]], ["cat", "cat", "dog"])
    <Dataset pets: 3 samples of shape (2,), 0 for testing, 2 classes (cat, dog)>
    """

    name: str
    features: Features  # (n, channels, height, width) in [0, 1], (n, d), or tokens (n, length), 0 = padding
    labels: Labels  # (n,) classes 0..classes - 1; real targets if classes is 0
    test_features: Features  # like features; perhaps (0, ...)
    test_labels: Labels  # like labels
    classes: int  # 0 for regression
    vocabulary: int = 0  # tokens only: how many there are, padding included
    groups: NDArray[np.int64] | None = None  # (n,) the natural owner of each training sample
    owners: tuple[str, ...] = ()  # their names, in the order of `partition.natural`; none without groups
    smoothness: float | None = None  # L of the regularised loss of any part of the data, see `synthetic`
    strong_convexity: float | None = None  # mu of the same loss, which includes mu/2 |w|^2
    classes_stated: bool = True  # False: inferred from the labels, which are in somebody's record
    class_names: tuple[str, ...] = ()  # (classes,) where labels are names
    columns: tuple[str, ...] = ()  # (d,) names of the features, where they have any

    def __repr__(self) -> str:
        parts = [
            f"{counted(len(self.labels), 'sample')} of shape {self.features.shape[1:]}",
            f"{len(self.test_labels):,} for testing",
            counted(self.classes, "class", "classes") if self.classes else "real targets",
        ]
        if self.class_names:
            more = ", ..." if len(self.class_names) > NAMED else ""
            parts[-1] += f" ({', '.join(self.class_names[:NAMED])}{more})"
        if self.vocabulary:
            parts.append(f"{self.vocabulary:,} tokens")
        if self.groups is not None:
            parts.append(counted(len(self.owners) or int(np.unique(self.groups).size), "owner"))
        return f"<Dataset {printable(self.name)}: {', '.join(parts)}>"


NAMES = ("digits", *SOURCES, "synthetic", "synthetic-ridge")


def load(
    name: str,
    *,
    folder: Path | None = None,
    seed: int = 0,
    on_progress: Progress | None = None,
    choices: Mapping[str, object] = MappingProxyType({}),
) -> Dataset:
    """The data set of that name (`NAMES`), or of the user's own file, a path ending in .npz or .csv.

    `folder` replaces $BONAFED_DATA (the files may also be directly in it) and is where the user's own file
    is looked for; `seed` is for synthetic data; `on_progress` is called, perhaps from another thread, with
    the progress of a download; `choices` are those of a federation
    (`bonafed.learning.data.real_federations.choices`).

    >>> load("digits").features.shape
    (1442, 1, 8, 8)
    """
    number = checks.seed("seed", seed)
    chosen = natural.chosen(name, choices)
    if is_own_file(name):
        return read_file(own_file(name, folder))
    require_known(name)
    if name == "digits":
        return _digits()
    if name.startswith("synthetic"):
        return synthetic("ridge" if name.endswith("ridge") else "logistic", seed=number)
    path, arrays = look_up(name, chosen, folder, on_progress or (lambda message: None))
    return _checked(name, path, arrays, SOURCES[name].classes)


def require_known(name: str) -> None:
    """Refuse a name that is neither one of `NAMES` nor the path of the user's own file."""
    if name not in NAMES and not is_own_file(name):
        rule = f"must be one of {', '.join(NAMES)}, or a path ending in .npz or .csv"
        raise InvalidValue("dataset", rule, repr(name))


def is_own_file(name: str) -> bool:
    """Whether `load` treats the name as the path of the user's own file."""
    return Path(name).suffix.lower() in (".npz", ".csv")


def own_file(name: str, folder: Path | None = None) -> Path:
    """The path of the user's own file: in the folder, if there is one, or in the current one."""
    path = Path(name).expanduser()
    if folder is None:
        return path
    if path.is_absolute():
        raise InvalidValue("folder", f"must not be given with an absolute name, {name}", folder)
    return folder / path


def read_file(path: Path) -> Dataset:
    """The user's own data: an .npz archive or a .csv table (see `formats.read_npz` and `read_csv`)."""
    location = path.expanduser()
    read = formats.read_npz if path.suffix.lower() == ".npz" else formats.read_csv
    return _checked(location.stem, location, read(location))


def read_features(path: Path) -> tuple[Features, tuple[str, ...]]:
    """The features in such a file, and their names; a .csv table need have no labels."""
    if path.suffix.lower() == ".npz":
        data = read_file(path)
        return data.features, data.columns
    arrays = formats.read_csv(path, labelled=False)
    try:
        return checked_features("features", arrays["features"], 0), tuple(arrays["columns"].tolist())
    except InvalidValue as error:
        raise UnreadableFile(path, str(error)) from error


def from_arrays(
    name: str,
    features: ArrayLike,
    labels: ArrayLike,
    *,
    test_features: ArrayLike | None = None,
    test_labels: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    vocabulary: int = 0,
    classes: int | Sequence[str] | None = None,
    columns: Sequence[str] = (),
) -> Dataset:
    """A checked data set from arrays, copied.

    Features of type uint8 are pixels: divided by 255, with a channel axis if there is none. Other features
    are taken as they are, as tokens if `vocabulary` is given. Labels of a whole-number type are classes,
    one more than the largest if `classes` is not given; labels of a real type are regression targets.
    Labels that are text are classes too, in the order of `classes`, which names them, or else of the
    alphabet. `groups` are whole numbers or text, one for each sample; `columns` names the features.
    """
    size = checks.whole("vocabulary", vocabulary, at_least=0)
    inputs = checked_features("features", features, size)
    names = class_names(labels, classes)
    if names and is_text(labels):
        labels = numbered("labels", labels, names)
        test_labels = None if test_labels is None else numbered("test_labels", test_labels, names)
    count = len(names) if names else checks.whole("classes", classes) if classes is not None else None
    outputs, class_count = checked_labels("labels", labels, len(inputs), count)
    test_inputs, test_outputs = inputs[:0], outputs[:0]
    if test_features is None or test_labels is None:
        if test_features is not test_labels:
            missing = "test_features" if test_features is None else "test_labels"
            raise MissingValue(missing, "is required with the other half of the test data")
    elif np.size(test_features) + np.size(test_labels):
        if not size and are_pixels(features) != are_pixels(test_features):
            kind = "uint8" if are_pixels(features) else "not uint8"
            rule = f"must be {kind} like the features: only pixels of that type are divided by 255"
            raise InvalidValue("test_features", rule, np.asarray(test_features).dtype)
        test_inputs = checked_features("test_features", test_features, size)
        if test_inputs.shape[1:] != inputs.shape[1:]:
            rule = f"must have samples of the shape of features, {inputs.shape[1:]}"
            raise InvalidValue("test_features", rule, test_inputs.shape[1:])
        test_outputs, _ = checked_labels("test_labels", test_labels, len(test_inputs), class_count)
    return Dataset(
        name=name,
        features=inputs,
        labels=outputs,
        test_features=test_inputs,
        test_labels=test_outputs,
        classes=class_count,
        classes_stated=classes is not None,
        class_names=names,
        columns=checked_columns(columns, inputs),
        vocabulary=size,
        groups=None if groups is None else checked_groups(groups, len(inputs)),
        owners=() if groups is None else owner_names(groups),
    )


def synthetic(
    kind: Literal["logistic", "ridge"] = "logistic",
    *,
    samples: int = 2000,
    dimension: int = 20,
    clients: int = 20,
    heterogeneity: float = 0.5,
    regularisation: float = 0.01,
    seed: int = 0,
) -> Dataset:
    """A strongly convex problem with known constants, its samples owned by `clients` (in `groups`).

    Client k draws features around its own mean, of size `heterogeneity`, and labels from its own weights
    w + heterogeneity u_k: two classes with the logistic probability, or a linear target with noise of 0.1.
    All features are scaled to norm at most 1; a fifth as many samples again are for testing.

    The constants hold for the mean loss over ANY of the training samples (so for every client and batch) of
    a linear model with intercept, plus (mu/2)|w|^2 over all its parameters, mu = `regularisation`. With x~
    the features and the constant 1, the Hessian of one sample's loss is
        softmax cross-entropy    (diag(p) - p p^T) (x) x~ x~^T,  at most |x~|^2/2  (two classes or more)
        squared error / 2        x~ x~^T,                        at most |x~|^2
    so L = c (max |x|^2 + 1) + mu with c = 1/2 or 1, and at least 0, so strong convexity mu.
    """
    checks.literal("kind", kind, Literal["logistic", "ridge"])
    owners = checks.whole("clients", clients)
    training = checks.whole("samples", samples, at_least=owners)
    width, spread = (
        checks.whole("dimension", dimension),
        checks.non_negative("heterogeneity", heterogeneity),
    )
    mu = checks.positive("regularisation", regularisation)
    rng = np.random.default_rng(checks.seed("seed", seed))
    owner = np.arange(training + max(1, training // 5)) % owners
    means = spread * rng.standard_normal((owners, width))
    weights = rng.standard_normal(width) + spread * rng.standard_normal((owners, width))
    x = means[owner] + rng.standard_normal((owner.size, width))
    x /= np.linalg.norm(x, axis=1).max()
    score = np.einsum("nd,nd->n", x, weights[owner])
    if kind == "logistic":
        chance = 1 / (1 + np.exp(-4 * score / score.std()))
        y: Labels = (rng.random(owner.size) < chance).astype(np.int64)
    else:
        y = (score + 0.1 * rng.standard_normal(owner.size)).astype(np.float32)
    features = x.astype(np.float32)
    largest = float(np.square(features[:training].astype(np.float64)).sum(axis=1).max())
    curvature = 0.5 if kind == "logistic" else 1.0
    return Dataset(
        name="synthetic" if kind == "logistic" else "synthetic-ridge",
        features=features[:training],
        labels=y[:training],
        test_features=features[training:],
        test_labels=y[training:],
        classes=2 if kind == "logistic" else 0,
        groups=owner[:training],
        smoothness=curvature * (largest * (1 + 1e-12) + 1) + mu,  # rounded up: the bound holds
        strong_convexity=mu,
    )


def _digits() -> Dataset:
    """The digits of scikit-learn; every fifth sample of a class, in their order, is for testing."""
    pixels, labels = _pixels_of_digits()
    images = (pixels / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    test = np.zeros(labels.size, dtype=np.bool_)
    for digit in range(10):
        test[np.flatnonzero(labels == digit)[4::5]] = True
    return from_arrays(
        "digits",
        images[~test],
        labels[~test],
        test_features=images[test],
        test_labels=labels[test],
        classes=10,
    )


@cache
def _pixels_of_digits() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Read once: every data set is made of copies."""
    with explained():
        package = find_spec("sklearn") or import_module("sklearn")  # which says what to install
    # importing scikit-learn takes half a second of processor time, reading its file hardly any
    assert package.origin is not None
    lines = gzip.decompress((Path(package.origin).parent / _DIGITS).read_bytes()).split()
    table = np.array([line.split(b",") for line in lines], dtype=np.float64)
    return table[:, :-1], table[:, -1].astype(np.int64)


def _checked(name: str, path: Path, arrays: Arrays, classes: int | None = None) -> Dataset:
    """`from_arrays`, with errors that name the file."""
    try:
        return from_arrays(
            name,
            arrays["features"],
            arrays["labels"],
            test_features=arrays.get("test_features"),
            test_labels=arrays.get("test_labels"),
            groups=arrays.get("groups"),
            vocabulary=arrays.get("vocabulary", np.array(0)).item(),
            classes=classes,
            columns=arrays.get("columns", np.array([])).tolist(),
        )
    except InvalidValue as error:
        raise UnreadableFile(path, str(error)) from error


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
    numbers = {label: number for number, label in enumerate(names)}
    array = _array(name, labels)
    words, inverse = np.unique(array, return_inverse=True)
    for word in words.tolist():
        if word not in numbers:
            known = ", ".join(map(repr, names[:NAMED])) + (", ..." if len(names) > NAMED else "")
            raise InvalidValue(name, f"must be classes by name: {known}", repr(word))
    return np.array([numbers[word] for word in words.tolist()], dtype=np.int64)[inverse].reshape(
        array.shape
    )


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
