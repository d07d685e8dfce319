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

Named files are looked for in `folder` or $BONAFED_DATA, in the subfolder <name> (`emnist` for all splits of
EMNIST), then in the user's cache ($XDG_CACHE_HOME or ~/.cache)/bonafed/<name>; missing ones are downloaded,
checked by checksum and saved to the cache. Every data set is checked: all features are finite, no label is
missing or out of range.
"""

from __future__ import annotations

import gzip
import io
import logging
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed import checks, files
from bonafed.errors import InvalidValue, MissingValue, UnreadableFile
from bonafed.extras import explained
from bonafed.learning.data import formats
from bonafed.learning.data import official_formats as official
from bonafed.learning.data.arrays import (
    NAMED,
    Features,
    Labels,
    are_pixels,
    checked_columns,
    checked_features,
    checked_groups,
    checked_labels,
    class_names,
    is_text,
    numbered,
)
from bonafed.learning.data.formats import Arrays
from bonafed.learning.data.partition import owner_names
from bonafed.learning.data.real_federations import choices as natural
from bonafed.learning.data.real_federations import hospitals, schools
from bonafed.presentation.documents import counted
from bonafed.text import printable

Progress = Callable[[str], None]

STALLED = 10.0  # seconds without an answer after which a download is abandoned
_DIGITS = Path("datasets", "data", "digits.csv.gz")  # of scikit-learn: 64 pixels, and the digit
_BROKEN = (OSError, ValueError)  # what a failed download raises


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


@dataclass(frozen=True, slots=True)
class _Source:
    """Where a named data set comes from."""

    files: tuple[str, ...]  # that a folder must hold
    read: Callable[[Mapping[str, Path]], Arrays]
    classes: int | None  # None: real targets
    home: str = ""  # the address to download from
    checksums: Mapping[str, str] = field(default_factory=dict)  # MD5 of each file there; empty: no download
    unpacked: str = ""  # the folder that its archive unpacks to
    folder: str = ""  # subfolder of its files, if it is not called like the data set
    as_published: bool = False  # the cache keeps its files, which can be read in several ways


_IDX = tuple(formats.IDX_FILES.values())
_SOURCES = {
    "mnist": _Source(
        _IDX,
        formats.read_idx_images,
        10,
        "https://ossci-datasets.s3.amazonaws.com/mnist/",
        {
            "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
            "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
            "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
            "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
        },
    ),
    "fashion-mnist": _Source(
        _IDX,
        formats.read_idx_images,
        10,
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
        {
            "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
            "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
            "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
            "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
        },
    ),
    "cifar10": _Source(
        formats.CIFAR_FILES,
        formats.read_cifar,
        10,
        "https://www.cs.toronto.edu/~kriz/",
        {"cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530"},
        formats.CIFAR_FOLDER,
    ),
    "sst": _Source(formats.SST_FILES, formats.read_sst, 5),
    **{
        f"emnist-{split}": _Source(
            tuple(formats.emnist_files(split).values()),
            partial(formats.read_emnist, split),
            classes,
            "https://www.nist.gov/itl/products-and-services/emnist-dataset",
            unpacked=formats.EMNIST_FOLDER,
            folder="emnist",
        )
        for split, classes in formats.EMNIST_CLASSES.items()
    },
    "svhn": _Source(
        official.SVHN_FILES,
        official.read_svhn,
        10,
        "http://ufldl.stanford.edu/housenumbers/",
        {
            "train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
            "test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
        },
    ),
    "cifar100": _Source(
        official.CIFAR100_FILES,
        official.read_cifar100,
        100,
        "https://www.cs.toronto.edu/~kriz/",
        {"cifar-100-binary.tar.gz": "03b5dce01913d631647c71ecec9e9cb8"},
        official.CIFAR100_FOLDER,
    ),
    "tiny-imagenet": _Source(
        official.TINY_FILES, official.read_tiny_imagenet, 200, unpacked=official.TINY_FOLDER
    ),
    "sentiment140": _Source(official.SENTIMENT_FILES, official.read_sentiment140, 2),
    "heart": _Source(
        tuple(hospitals.HOSPITALS),
        hospitals.read_heart,
        2,
        "https://archive.ics.uci.edu/ml/machine-learning-databases/heart-disease/",
        {
            "processed.cleveland.data": "2d91a8ff69cfd9616aa47b59d6f843db",
            "processed.hungarian.data": "22e96bee155b5973568101c93b3705f6",
            "processed.switzerland.data": "9a87f7577310b3917730d06ba9349e20",
            "processed.va.data": "4249d03ca7711e84f4444768c9426170",
        },
        as_published=True,
    ),
    "ist": _Source(
        (hospitals.STROKE_FILE,), hospitals.read_ist, 2, "https://doi.org/10.7488/ds/104", as_published=True
    ),
    "schools": _Source(
        (schools.FILES["mathachieve"],),
        schools.read_schools,
        None,
        "the R packages nlme and mlmRev",
        as_published=True,
    ),
}
NAMES = ("digits", *_SOURCES, "synthetic", "synthetic-ridge")


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
    if name not in NAMES:
        rule = f"must be one of {', '.join(NAMES)}, or a path ending in .npz or .csv"
        raise InvalidValue("dataset", rule, repr(name))
    if name == "digits":
        return _digits()
    if name.startswith("synthetic"):
        return synthetic("ridge" if name.endswith("ridge") else "logistic", seed=number)
    return _look_up(name, _source(name, chosen), folder, on_progress or (lambda message: None))


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


def _source(name: str, chosen: Mapping[str, str | int]) -> _Source:
    """Where a named data set comes from, read as chosen."""
    source = _SOURCES[name]
    if not chosen:
        return source
    files = (schools.FILES[str(chosen["study"])],) if "study" in chosen else source.files
    words = natural.FEDERATIONS[name].choices  # of which a single one is no choice
    open_ones = {key: value for key, value in chosen.items() if len(words.get(key, chosen)) > 1}
    return replace(source, files=files, read=partial(source.read, **open_ones))


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


def _look_up(name: str, source: _Source, folder: Path | None, say: Progress) -> Dataset:
    own = source.folder or name
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bonafed" / own
    root = os.environ.get("BONAFED_DATA")
    if folder is not None:
        if not folder.is_dir():
            raise UnreadableFile(folder, f"no such folder, looking for {name}")
        places = [folder / own, folder, cache]
    else:
        places = [Path(root) / own, cache] if root else [cache]
    for place in places:
        match = _in_folder(name, source, place)
        if match is not None:
            return _checked(name, *match, source.classes)
    reason = "not offered for download" + (f", they come from {source.home}" if source.home else "")
    if source.checksums:
        try:
            arrays = _download(name, source, cache, say)
        except _BROKEN as error:
            message = " ".join(str(error).split())
            reason = f"the download failed, {type(error).__name__}: {message}".rstrip(": ")
        else:
            return _checked(name, cache, arrays, source.classes)
    needed = ", ".join(f"{file}[.gz]" for file in source.files)
    elsewhere = "or set $BONAFED_DATA or `folder` to where they are"
    raise UnreadableFile(places[0], f"{name} not found: put {needed} there, {elsewhere} ({reason})")


def _in_folder(name: str, source: _Source, folder: Path) -> tuple[Path, Arrays] | None:
    """A data set in a folder, original files before an archive; an incomplete one is refused."""
    for place in dict.fromkeys((folder, folder / source.unpacked)):
        paths = {file: path for file in source.files if (path := formats.locate(place, file))}
        if paths:
            missing = [file for file in source.files if file not in paths]
            if missing:
                raise UnreadableFile(place, f"{name} is incomplete: {', '.join(missing)} missing")
            return place, source.read(paths)
    archive = folder / f"{name}.npz"
    if source.as_published or not archive.is_file():
        return None
    return archive, formats.read_npz(archive)


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


def _download(name: str, source: _Source, cache: Path, say: Progress) -> Arrays:
    """Fetch a data set from its home and save it to the cache, completely or not at all."""
    with explained():
        import pooch

    pooch.get_logger().setLevel(logging.WARNING)  # `say` reports progress
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        for file, checksum in source.checksums.items():
            say(f"fetching {file} of {name} from {source.home}")
            pooch.retrieve(
                source.home + file,
                known_hash=f"md5:{checksum}",
                fname=file,
                path=scratch,
                processor=pooch.Untar(extract_dir=".") if file.endswith(".tar.gz") else None,
                downloader=pooch.HTTPDownloader(timeout=STALLED, progressbar=_DownloadProgress(say)),
            )
        match = _in_folder(name, source, Path(scratch))
        if match is None:
            raise ValueError(f"{source.home} does not hold the files of {name}")
        arrays = match[1]
        if source.as_published:
            kept = {cache / file: (Path(scratch) / file).read_bytes() for file in source.checksums}
        else:
            buffer = io.BytesIO()
            np.savez(buffer, allow_pickle=False, **arrays)
            kept = {cache / f"{name}.npz": buffer.getvalue()}
    files.write_together(kept)
    say(f"saved {name} to {cache}")
    return arrays


class _DownloadProgress:
    """Says once a second how much of a file has arrived, with the interface of pooch's progress bars."""

    def __init__(self, say: Progress) -> None:
        self._say, self._received, self._reported = say, 0, time.monotonic()
        self.total = 0  # bytes; 0: unknown

    def update(self, count: int) -> None:
        """Count this many more bytes."""
        self._received += count
        if time.monotonic() - self._reported >= 1.0:
            self._reported = time.monotonic()
            self._say(f"{self._received / 1e6:.1f} MB received")

    def reset(self) -> None:
        """Start over."""
        self._received = 0

    def close(self) -> None:
        """Nothing to do."""
