"""Readers of the formats that authors publish: SVHN, CIFAR-100, Tiny-ImageNet, Sentiment140.

Like those in `bonafed.learning.data.formats` they return arrays by name and refuse whatever violates the
format with the file, the rule and, for text, the line. Nothing is read before its size is known to fit, and
no file but those that the format has, wherever a name or a link in it points.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import stat
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy  # its submodules load on first use
from numpy.typing import NDArray

from bonafed.errors import UnreadableFile
from bonafed.learning.data.archives import opened, read_bytes
from bonafed.learning.data.formats import UNKNOWN, Arrays, Bytes, check_classes, token_rows, word_numbers
from bonafed.reports import Row, rows_in

if TYPE_CHECKING:
    from types import ModuleType


class KnownFile(NamedTuple):
    """A file as its authors publish it."""

    size: int  # in bytes
    digest: str  # SHA-256, in hex


SVHN_PUBLISHED = {
    "train_32x32.mat": KnownFile(
        182_040_794, "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8"
    ),
    "test_32x32.mat": KnownFile(
        64_275_384, "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b"
    ),
}
SVHN_FILES = tuple(SVHN_PUBLISHED)
CIFAR100_FILES = ("train.bin", "test.bin")
CIFAR100_FOLDER = "cifar-100-binary"  # what the official archive unpacks to
TINY_FILES = ("wnids.txt", "val/val_annotations.txt")
TINY_FOLDER = "tiny-imagenet-200"
_TINY_SIDE = 64  # pixels
_LONGEST_IMAGE = 2**20  # bytes of a JPEG of that size
_LONGEST_LIST = 2**22  # bytes of a list of classes or of annotations; the official ones have 0.4 million
_CLASS = re.compile(r"n[0-9]{8}")  # a number of WordNet
_TEST_IMAGE = re.compile(r"val_[0-9]{1,9}\.JPEG")


def read_svhn(files: Mapping[str, Path]) -> Arrays:
    """Street View House Numbers, cropped digits: bytes X (32, 32, 3, n), and y (n, 1), where 10 is a 0.

    A few damaged bytes can crash SciPy's reader, so it sees the published files only, known by SHA-256.
    """
    arrays: Arrays = {}
    for prefix, file in zip(("", "test_"), SVHN_FILES, strict=True):
        stream: Any = io.BytesIO(_published(files[file], SVHN_PUBLISHED[file]))  # SciPy's types want a path
        content = scipy.io.loadmat(stream)
        arrays[f"{prefix}features"] = content["X"].transpose(3, 2, 0, 1)
        arrays[f"{prefix}labels"] = (content["y"][:, 0] % 10).astype(np.int64)
    return arrays


def _published(path: Path, known: KnownFile) -> bytes:
    """The content of a file that must be the published one."""
    content = read_bytes(path, known.size)
    digest = hashlib.sha256(content).hexdigest()
    if digest != known.digest:
        size = f"{len(content):,} bytes" if len(content) <= known.size else "more"
        rule = f"must be the published file, {known.size:,} bytes with the SHA-256 {known.digest}"
        raise UnreadableFile(path, f"{rule}, got {size}" + f" with {digest}" * (len(content) == known.size))
    return content


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
    path = files[TINY_FILES[0]]
    reader = _Pictures(path)
    for file in TINY_FILES:
        reader.require_inside(files[file])
    names = _class_names(path, classes)
    train, labels = np.empty((classes * images, 3, _TINY_SIDE, _TINY_SIDE), np.uint8), []
    for number, name in enumerate(names):
        for row, picture in enumerate(_pictures_of(reader, name, images), number * images):
            train[row] = reader.read(picture)
        labels += [number] * images
    test, test_labels = _annotated(reader, files[TINY_FILES[1]], names, tests)
    return {
        "features": train, "labels": np.array(labels, np.int64), "test_features": test,
        "test_labels": test_labels,
    }  # fmt: skip


def _class_names(path: Path, count: int) -> list[str]:
    """The classes in wnids.txt; they are names of folders too, so nothing else may be among them."""
    names = _lines(path)
    for line, name in enumerate(names, start=1):
        if not _CLASS.fullmatch(name):
            raise UnreadableFile(path, f"a class must be n and 8 digits, got {name[:20]!r}", line)
    if len(names) != count or len(set(names)) != count:
        raise UnreadableFile(path, f"must name {count} classes, each once, got {len(set(names))}")
    return names


def _pictures_of(reader: _Pictures, name: str, count: int) -> list[Path]:
    """The images of a class for training, by number."""
    folder = reader.root / "train" / name / "images"
    reader.require_inside(folder)
    own = re.compile(rf"{name}_([0-9]{{1,9}})\.JPEG")
    files = sorted(path.name for path in folder.glob("*.JPEG")) if folder.is_dir() else []
    numbered = {int(match[1]): file for file in files if (match := own.fullmatch(file))}
    if len(numbered) != len(files):
        odd = next(file for file in files if file not in numbered.values())
        raise UnreadableFile(folder, f"images must be called {name}_NUMBER.JPEG, got {odd[:40]!r}")
    if len(files) != count:
        raise UnreadableFile(folder, f"must hold {count} images, got {len(files)}")
    return [folder / numbered[number] for number in sorted(numbered)]


def _annotated(
    reader: _Pictures, path: Path, names: Sequence[str], count: int
) -> tuple[Bytes, NDArray[np.int64]]:
    """The validation images, in the order of their annotations: file, class, and a box per line."""
    numbers = {name: number for number, name in enumerate(names)}
    lines = _lines(path)
    if len(lines) != count:
        raise UnreadableFile(path, f"must have {count} lines, got {len(lines)}")
    labels: dict[str, int] = {}  # by file, in their order
    for line, content in enumerate(lines, start=1):
        file, _, rest = content.partition("\t")
        name = rest.partition("\t")[0]
        if not _TEST_IMAGE.fullmatch(file):
            raise UnreadableFile(path, f"must name a file val_NUMBER.JPEG, got {file[:40]!r}", line)
        if file in labels:
            raise UnreadableFile(path, f"must name every file once, got {file} again", line)
        if name not in numbers:
            raise UnreadableFile(path, f"must name a class of wnids.txt, got {name[:20]!r}", line)
        labels[file] = numbers[name]
    folder = path.parent / "images"
    reader.require_inside(folder)
    images = np.empty((count, 3, _TINY_SIDE, _TINY_SIDE), np.uint8)
    for row, file in enumerate(labels):
        images[row] = reader.read(folder / file)
    return images, np.array(list(labels.values()), np.int64)


class _Pictures:
    """The images in the folder of a file, and in no other."""

    def __init__(self, path: Path) -> None:
        self.root = path.parent
        self._real_root = Path(os.path.realpath(self.root))
        self._pillow = _pillow(path)

    def require_inside(self, path: Path) -> None:
        """Refuse what a link leads out of the folder."""
        if not Path(os.path.realpath(path)).is_relative_to(self._real_root):
            raise UnreadableFile(path, f"must not be a link that leads out of {self.root}")

    def read(self, path: Path) -> Bytes:
        """(3, 64, 64) the pixels of a JPEG in a folder that is inside."""
        content = self._content(path)
        side = f"{_TINY_SIDE} x {_TINY_SIDE} pixels"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow's, of oddities beside the pixels and of sizes
            try:
                with self._pillow.open(io.BytesIO(content), formats=["JPEG"]) as picture:
                    if picture.size != (_TINY_SIDE, _TINY_SIDE):  # says the header: no pixel is decoded yet
                        size = " x ".join(map(str, picture.size))
                        raise UnreadableFile(path, f"must be {side}, got {size}")
                    pixels: NDArray[Any] = np.asarray(picture.convert("RGB"))
            except UnreadableFile:
                raise
            except self._pillow.DecompressionBombError as error:
                raise UnreadableFile(path, f"must be {side}, got far more") from error
            except Exception as error:  # whatever Pillow stumbles over in damaged images
                reason = " ".join(str(error).split())[:100] or type(error).__name__
                raise UnreadableFile(path, f"not a JPEG that can be read: {reason}") from error
        return pixels.transpose(2, 0, 1)

    def _content(self, path: Path) -> bytes:
        try:
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                self.require_inside(path)
                mode = path.stat().st_mode
        except OSError as error:
            raise UnreadableFile(path, error.strerror or str(error)) from error
        if not stat.S_ISREG(mode):  # to open a pipe would be to wait for somebody to write into it
            raise UnreadableFile(path, "must be a file, got something else")
        content = read_bytes(path, _LONGEST_IMAGE)
        if len(content) > _LONGEST_IMAGE:
            raise UnreadableFile(path, f"must have at most {_LONGEST_IMAGE:,} bytes, got more")
        return content


def _pillow(path: Path) -> ModuleType:
    try:
        from PIL import Image
    except ModuleNotFoundError as error:
        raise UnreadableFile(path, "its JPEGs need Pillow: pip install pillow") from error
    return Image


def _lines(path: Path) -> list[str]:
    content = read_bytes(path, _LONGEST_LIST)
    if len(content) > _LONGEST_LIST:
        raise UnreadableFile(path, f"must have at most {_LONGEST_LIST:,} bytes, got more")
    try:
        return content.decode("ascii").split("\n")[: None if content[-1:] != b"\n" else -1]
    except UnicodeDecodeError as error:
        raise UnreadableFile(path, f"not ASCII text ({error})") from error


SENTIMENT_FILES = ("training.1600000.processed.noemoticon.csv", "testdata.manual.2009.06.14.csv")
_POLARITY = {"0": 0, "4": 1}  # and 2, neutral, which is among the test sentences only
_COLUMNS, _SENTENCE = 6, 5  # how many, and which is the text
_LONGEST_ROW = 2**14  # characters; a post has some hundreds
_LONGEST_TABLE = 2**29  # characters; the larger official one has 239 million


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
        "vocabulary": np.array(UNKNOWN + 1 + len(numbers)),
    }


def _posts(path: Path, *, neutral: bool) -> tuple[list[list[str]], NDArray[np.int64]]:
    """The words of every sentence that is not neutral, and its class."""
    sentences, labels = [], []
    once: dict[str, str] = {}  # a word is kept once, however often it is written
    for line, row in _table(path):
        if len(row) != _COLUMNS:
            raise UnreadableFile(path, f"must have {_COLUMNS} columns, got {len(row)}", line)
        if row[0] == "2" and neutral:
            continue
        if row[0] not in _POLARITY:
            allowed = "0, 2 or 4" if neutral else "0 or 4"
            raise UnreadableFile(path, f"polarity must be {allowed}, got {row[0][:20]!r}", line)
        labels.append(_POLARITY[row[0]])
        sentences.append([once.setdefault(word, word) for word in row[_SENTENCE].lower().split()])
    if not sentences:
        raise UnreadableFile(path, "must hold sentences, got none")
    return sentences, np.array(labels, np.int64)


def _table(path: Path) -> Iterator[Row]:
    """Lines and rows of a table in Latin-1."""
    with opened(path) as stream, io.TextIOWrapper(stream, "latin-1", newline="") as text:
        lines = _Lines(path, text)
        try:
            for row in rows_in(lines, path):
                lines.row_ended()
                yield row
        except (OSError, EOFError, zlib.error) as error:
            raise UnreadableFile(path, getattr(error, "strerror", None) or str(error)) from error


class _Lines:
    """The lines of a text; a row may go over several of them, but not for long."""

    def __init__(self, path: Path, text: io.TextIOWrapper) -> None:
        self._path, self._text = path, text
        self._number = 0  # of the line read last
        self._row = self._table = 0  # characters of the row so far, and of the whole table

    def row_ended(self) -> None:
        """What follows belongs to the next row."""
        self._row = 0

    def __iter__(self) -> Iterator[str]:
        while line := self._text.readline(_LONGEST_ROW + 1):
            self._number += 1
            self._row += len(line)
            self._table += len(line)
            if self._row > _LONGEST_ROW:
                rule = f"a row must have at most {_LONGEST_ROW:,} characters, got more"
                raise UnreadableFile(self._path, rule, self._number)
            if self._table > _LONGEST_TABLE:
                rule = f"must have at most {_LONGEST_TABLE:,} characters, got more"
                raise UnreadableFile(self._path, rule, self._number)
            if "\0" in line:
                rule = "must be text in Latin-1, got a character of code 0"
                raise UnreadableFile(self._path, rule, self._number)
            yield line
