"""Readers of larger data sets in the formats that their authors publish: SVHN, CIFAR-100, Tiny-ImageNet,
Sentiment140.

Like those in `formats` they return arrays by name and refuse whatever violates the format with the file and
the rule; nothing is read before its size is known to fit.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from bonafed.errors import UnreadableFile
from bonafed.learning.archives import opened, read_bytes
from bonafed.learning.formats import Arrays, Bytes, check_classes, token_rows, word_numbers
from bonafed.reports import rows_in

if TYPE_CHECKING:
    from types import ModuleType

SVHN_FILES = ("train_32x32.mat", "test_32x32.mat")
CIFAR100_FILES = ("train.bin", "test.bin")
CIFAR100_FOLDER = "cifar-100-binary"  # what the official archive unpacks to
TINY_FILES = ("wnids.txt", "val/val_annotations.txt")
TINY_FOLDER = "tiny-imagenet-200"
SENTIMENT_FILES = ("training.1600000.processed.noemoticon.csv", "testdata.manual.2009.06.14.csv")
_TINY_SIDE = 64  # pixels
_LONGEST_IMAGE = 2**20  # bytes of a JPEG of that size
_LONGEST_LIST = 2**24  # bytes of a list of classes or of annotations
_POLARITY = {"0": 0, "4": 1}  # and 2, neutral, which is among the test sentences only
_SENTENCE = 5  # the column of the text
# what SciPy raises on damaged files, beside its own
_MAT_ERRORS = (OSError, ValueError, TypeError, KeyError, IndexError, NotImplementedError, zlib.error)


def read_svhn(files: Mapping[str, Path]) -> Arrays:
    """Street View House Numbers, cropped digits: bytes X (32, 32, 3, n), and y (n, 1), where 10 is a 0."""
    arrays: Arrays = {}
    for prefix, file in zip(("", "test_"), SVHN_FILES, strict=True):
        images, labels = _mat(files[file])
        bad = np.flatnonzero((labels < 1) | (labels > 10))
        if bad.size:
            rule = f"labels must be 1 to 10, got {labels[bad[0]]} for sample {bad[0]}"
            raise UnreadableFile(files[file], rule)
        arrays[f"{prefix}features"] = images.transpose(3, 2, 0, 1)
        arrays[f"{prefix}labels"] = (labels % 10).astype(np.int64)
    return arrays


def _mat(path: Path) -> tuple[Bytes, NDArray[np.integer]]:
    from scipy.io import loadmat, whosmat
    from scipy.io.matlab import MatReadError

    try:
        shapes = {name: shape for name, shape, _ in whosmat(str(path))}
        if not {"X", "y"} <= shapes.keys():
            raise UnreadableFile(path, f"must hold X and y, got {', '.join(shapes) or 'nothing'}")
        x = shapes["X"]
        if len(x) != 4 or x[:3] != (32, 32, 3) or shapes["y"] != (x[3], 1):
            rule = "must hold X of shape 32 x 32 x 3 x n and y of n x 1"
            raise UnreadableFile(path, f"{rule}, got {x} and {shapes['y']}")
        content = loadmat(str(path), variable_names=["X", "y"])
    except (*_MAT_ERRORS, MatReadError) as error:
        reason = getattr(error, "strerror", None) or f"not a MATLAB file: {error}"
        raise UnreadableFile(path, " ".join(str(reason).split())[:200]) from error
    images, labels = content["X"], content["y"]
    if images.dtype != np.uint8 or labels.dtype.kind not in "iu":
        rule = "must hold bytes in X and whole numbers in y"
        raise UnreadableFile(path, f"{rule}, got {images.dtype} and {labels.dtype}")
    return images, labels[:, 0]


def read_cifar100(files: Mapping[str, Path], records: Sequence[int] = (50_000, 10_000)) -> Arrays:
    """CIFAR-100, binary version: per record a coarse label, a fine one 0..99, then 32 x 32 bytes each of
    red, green and blue. Classes are the fine labels."""
    arrays: Arrays = {}
    for prefix, file, count in zip(("", "test_"), CIFAR100_FILES, records, strict=True):
        path, size = files[file], count * 3074
        data = np.frombuffer(read_bytes(path, size), np.uint8)
        if data.size != size:
            got = "more" if data.size > size else f"{data.size} bytes"
            raise UnreadableFile(path, f"must hold {count} records of 3074 bytes, got {got}")
        table = data.reshape(count, 3074)
        check_classes(path, table[:, 0], 20)
        check_classes(path, table[:, 1], 100)
        arrays[f"{prefix}features"] = table[:, 2:].reshape(count, 3, 32, 32)
        arrays[f"{prefix}labels"] = table[:, 1]
    return arrays


def read_tiny_imagenet(
    files: Mapping[str, Path], classes: int = 200, images: int = 500, tests: int = 10_000
) -> Arrays:
    """Tiny-ImageNet-200: JPEGs of 64 x 64 pixels, those in grey as well in three channels.

    Classes are numbered in the order of wnids.txt. The labels of its test images are not published, so the
    validation images are for testing.
    """
    pictures = _pillow(files[TINY_FILES[0]])
    root = files[TINY_FILES[0]].parent
    names = _lines(files[TINY_FILES[0]])
    if len(names) != classes or len(set(names)) != classes:
        rule = f"must name {classes} classes, each once"
        raise UnreadableFile(files[TINY_FILES[0]], f"{rule}, got {len(set(names))}")
    train, labels = np.empty((classes * images, 3, _TINY_SIDE, _TINY_SIDE), np.uint8), []
    for number, name in enumerate(names):
        folder = root / "train" / name / "images"
        paths = sorted(folder.glob("*.JPEG"), key=_by_number) if folder.is_dir() else []
        if len(paths) != images:
            raise UnreadableFile(folder, f"must hold {images} images, got {len(paths)}")
        for place, path in enumerate(paths, number * images):
            train[place] = _image(pictures, path)
        labels += [number] * images
    test, test_labels = _annotated(pictures, files[TINY_FILES[1]], names, tests)
    return {
        "features": train, "labels": np.array(labels, np.int64), "test_features": test,
        "test_labels": test_labels,
    }  # fmt: skip


def _annotated(
    pictures: ModuleType, path: Path, names: Sequence[str], count: int
) -> tuple[Bytes, NDArray[np.int64]]:
    """The validation images, in the order of their annotations: file, class, and a box per line."""
    numbers = {name: number for number, name in enumerate(names)}
    lines = _lines(path)
    if len(lines) != count:
        raise UnreadableFile(path, f"must have {count} lines, got {len(lines)}")
    images, labels = np.empty((count, 3, _TINY_SIDE, _TINY_SIDE), np.uint8), []
    for place, line in enumerate(lines):
        file, *rest = line.split("\t")
        if not rest or rest[0] not in numbers:
            got = rest[0] if rest else ""
            raise UnreadableFile(path, f"must name a class of wnids.txt, got {got[:20]!r}", place + 1)
        if Path(file).name != file:
            raise UnreadableFile(path, f"must name a file, got {file[:40]!r}", place + 1)
        images[place] = _image(pictures, path.parent / "images" / file)
        labels.append(numbers[rest[0]])
    return images, np.array(labels, np.int64)


def _pillow(path: Path) -> ModuleType:
    try:
        from PIL import Image
    except ModuleNotFoundError as error:
        raise UnreadableFile(path, "its JPEGs need Pillow: pip install pillow") from error
    return Image


def _image(pictures: ModuleType, path: Path) -> Bytes:
    """(3, 64, 64) the pixels of a JPEG."""
    content = read_bytes(path, _LONGEST_IMAGE)
    if len(content) > _LONGEST_IMAGE:
        raise UnreadableFile(path, f"must have at most {_LONGEST_IMAGE:,} bytes, got more")
    try:
        with pictures.open(io.BytesIO(content), formats=["JPEG"]) as picture:
            if picture.size != (_TINY_SIDE, _TINY_SIDE):
                size = " x ".join(map(str, picture.size))
                raise UnreadableFile(path, f"must be {_TINY_SIDE} x {_TINY_SIDE} pixels, got {size}")
            pixels = np.asarray(picture.convert("RGB"))
    except (OSError, ValueError, SyntaxError) as error:  # what Pillow raises on damaged images
        raise UnreadableFile(path, f"not a JPEG that can be read: {str(error)[:100]}") from error
    return np.asarray(pixels.transpose(2, 0, 1))


def _by_number(path: Path) -> tuple[int, str]:
    """n01443537_2.JPEG before n01443537_10.JPEG."""
    digits = path.stem.rpartition("_")[2]
    return (int(digits) if digits.isascii() and digits.isdigit() else -1), path.name


def _lines(path: Path) -> list[str]:
    content = read_bytes(path, _LONGEST_LIST)
    if len(content) > _LONGEST_LIST:
        raise UnreadableFile(path, f"must have at most {_LONGEST_LIST:,} bytes, got more")
    try:
        return content.decode("ascii").split("\n")[: None if content[-1:] != b"\n" else -1]
    except UnicodeDecodeError as error:
        raise UnreadableFile(path, f"not ASCII text ({error})") from error


def read_sentiment140(
    files: Mapping[str, Path], length: int = 40, minimum_count: int = 5, words: int = 20_000
) -> Arrays:
    """Sentiment140, two classes: Latin-1 tables without a header, polarity (0, 2 or 4), id, date, query,
    user, text. Negative (0) is class 0, positive (4) class 1; neutral test sentences (2) are left out.

    Tokens are as for SST, of the `words` most frequent words that occur at least `minimum_count` times;
    sentences are padded, or cut, at the end to `length` tokens.
    """
    train, labels = _posts(files[SENTIMENT_FILES[0]], neutral=False)
    test, test_labels = _posts(files[SENTIMENT_FILES[1]], neutral=True)
    numbers = word_numbers(train, minimum_count, words)
    return {
        "features": token_rows(train, numbers, length),
        "labels": labels,
        "test_features": token_rows(test, numbers, length),
        "test_labels": test_labels,
        "vocabulary": np.array(2 + len(numbers)),
    }


def _posts(path: Path, *, neutral: bool) -> tuple[list[list[str]], NDArray[np.int64]]:
    """The words of every sentence that is not neutral, and its class."""
    sentences, labels = [], []
    for line, row in _table(path):
        if len(row) != 6:
            raise UnreadableFile(path, f"must have 6 columns, got {len(row)}", line)
        if row[0] == "2" and neutral:
            continue
        if row[0] not in _POLARITY:
            allowed = "0, 2 or 4" if neutral else "0 or 4"
            raise UnreadableFile(path, f"polarity must be {allowed}, got {row[0][:20]!r}", line)
        labels.append(_POLARITY[row[0]])
        sentences.append(row[_SENTENCE].lower().split())
    if not sentences:
        raise UnreadableFile(path, "must hold sentences, got none")
    return sentences, np.array(labels, np.int64)


def _table(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Lines and rows of a table in Latin-1."""
    with opened(path) as stream, io.TextIOWrapper(stream, "latin-1", newline="") as text:
        try:
            yield from rows_in(text, path)
        except (OSError, EOFError, zlib.error) as error:
            raise UnreadableFile(path, getattr(error, "strerror", None) or str(error)) from error
