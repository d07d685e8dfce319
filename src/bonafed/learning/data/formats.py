"""Read data sets from files in their original formats, checking everything that can be wrong.

Each reader returns arrays under the names `features`, `labels`, `test_features`, `test_labels` and, where
the format has them, `groups`, `vocabulary` and `columns`, the names of the features;
`datasets.from_arrays` makes a `Dataset` of them. A file that violates its format raises an `UnreadableFile`
with the file, the rule and, for text, the line.
"""

from __future__ import annotations

import math
import struct
from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bonafed.errors import UnreadableFile
from bonafed.learning.data.archives import Header, opened, read_arrays, read_bytes, read_up_to
from bonafed.presentation.documents import counted
from bonafed.reports import cell_name, csv_rows, require_distinct
from bonafed.text import numeral

Arrays = dict[str, NDArray[Any]]
Bytes = NDArray[np.uint8]

IDX_FILES = {
    "features": "train-images-idx3-ubyte",
    "labels": "train-labels-idx1-ubyte",
    "test_features": "t10k-images-idx3-ubyte",
    "test_labels": "t10k-labels-idx1-ubyte",
}
EMNIST_CLASSES = {"byclass": 62, "bymerge": 47, "balanced": 47, "letters": 26, "digits": 10, "mnist": 10}
EMNIST_FOLDER = "gzip"  # what the official archive unpacks to
CIFAR_FILES = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")
CIFAR_FOLDER = "cifar-10-batches-bin"  # what the official archive unpacks to
SST_FILES = ("stsa.fine.train", "stsa.fine.test")
ARRAYS = ("features", "labels", "test_features", "test_labels", "groups", "vocabulary")
_MOST_IMAGES = 700_000  # in an idx file; the largest official one, of EMNIST, has 697,932
_LONGEST_NAME = 1_000  # characters, of an owner or a class
_LONGEST_TEXT = 2**26  # bytes of sentences
_NAMED = 5  # columns that an error names
_REMEDY = (
    "drop these rows or columns, fill in what is missing, or write text as numbers "
    "(a column of 0 and 1 per word)"
)
PADDING, UNKNOWN = 0, 1  # token numbers that stand for no word of the vocabulary


def locate(folder: Path, file: str) -> Path | None:
    """The file in the folder, also compressed (.gz) or, for idx, with a dot in its name; None if absent."""
    for name in (file, file.replace("-idx", ".idx")):
        for candidate in (folder / name, folder / f"{name}.gz"):
            if candidate.is_file():
                return candidate
    return None


def read_idx(
    path: Path, dimensions: int, require: Callable[[tuple[int, ...]], None] = lambda shape: None
) -> Bytes:
    """An array of bytes in the idx format: magic number 0x0000080d, d sizes (big-endian), the data.

    The sizes are read first: `require` may refuse them, and no more data are read than they say.
    """
    length, expected = 4 * (1 + dimensions), 0x0800 + dimensions
    with opened(path) as stream:
        header = read_up_to(path, stream, length)
        if len(header) < length:
            raise UnreadableFile(path, f"an idx header must have {length} bytes, got {len(header)}")
        magic, *shape = struct.unpack(f">{1 + dimensions}I", header)
        if magic != expected:
            raise UnreadableFile(path, f"idx magic number must be 0x{expected:08x}, got 0x{magic:08x}")
        require(tuple(shape))
        data = read_up_to(path, stream, math.prod(shape) + 1)
    if len(data) != math.prod(shape):
        size = " x ".join(map(str, shape))
        more = " or more" if len(data) > math.prod(shape) else ""
        raise UnreadableFile(path, f"must hold {size} bytes after its header, got {len(data)}{more}")
    return np.frombuffer(data, np.uint8).reshape(shape)


def read_idx_images(files: Mapping[str, Path]) -> Arrays:
    """MNIST and its likes: 28 x 28 grey images and labels 0..9, for training and for testing."""
    return _read_idx_set({name: files[file] for name, file in IDX_FILES.items()}, 0, 10)


def emnist_files(split: str) -> dict[str, str]:
    """The official files of a split of EMNIST, by what they hold.

    >>> emnist_files("letters")["test_labels"]
    'emnist-letters-test-labels-idx1-ubyte'
    """
    return {name: f"emnist-{split}-{file.replace('t10k', 'test')}" for name, file in IDX_FILES.items()}


def read_emnist(split: str, files: Mapping[str, Path]) -> Arrays:
    """A split of EMNIST, upright, with labels from 0.

    Its files hold every image mirrored along its diagonal, a row where MNIST's have a column; and the
    labels of `letters` are 1 to 26.
    """
    first, classes = (1 if split == "letters" else 0), EMNIST_CLASSES[split]
    paths = {name: files[file] for name, file in emnist_files(split).items()}
    arrays = _read_idx_set(paths, first, first + classes)
    for name in ("features", "test_features"):
        arrays[name] = np.ascontiguousarray(arrays[name].swapaxes(2, 3))
    for name in ("labels", "test_labels"):
        arrays[name] = arrays[name] - np.uint8(first)
    return arrays


def _read_idx_set(paths: Mapping[str, Path], lowest: int, end: int) -> Arrays:
    """Images and labels, lowest <= label < end, from the paths of what `IDX_FILES` names."""
    arrays: Arrays = {}
    for name, path in paths.items():
        if name.endswith("features"):
            arrays[name] = read_idx(path, 3, partial(_require_images, path))[:, None]
        else:
            images = len(arrays[name.replace("labels", "features")])
            arrays[name] = read_idx(path, 1, partial(_require_a_label_each, path, images))
            check_classes(path, arrays[name], end, lowest)
    return arrays


def _require_images(path: Path, shape: tuple[int, ...]) -> None:
    if shape[1:] != (28, 28):
        raise UnreadableFile(path, f"images must be 28 x 28, got {shape[1:]}")
    if shape[0] > _MOST_IMAGES:
        raise UnreadableFile(path, f"must hold at most {_MOST_IMAGES:,} images, got {shape[0]:,}")


def _require_a_label_each(path: Path, images: int, shape: tuple[int, ...]) -> None:
    if shape != (images,):
        raise UnreadableFile(path, f"must hold a label for each of {images} images, got {shape[0]}")


def read_cifar(files: Mapping[str, Path], records: int = 10_000) -> Arrays:
    """CIFAR-10, binary version: per record a label 0..9, then 32 x 32 bytes each of red, green and blue."""
    images, labels = [], []
    for file in CIFAR_FILES:
        data = np.frombuffer(read_bytes(files[file], records * 3073), np.uint8)
        if data.size != records * 3073:
            size = "more" if data.size > records * 3073 else f"{data.size} bytes"
            raise UnreadableFile(files[file], f"must hold {records} records of 3073 bytes, got {size}")
        table = data.reshape(records, 3073)
        check_classes(files[file], table[:, 0], 10)
        labels.append(table[:, 0])
        images.append(table[:, 1:].reshape(records, 3, 32, 32))
    return {
        "features": np.concatenate(images[:-1]),
        "labels": np.concatenate(labels[:-1]),
        "test_features": images[-1],
        "test_labels": labels[-1],
    }


def read_sst(files: Mapping[str, Path], length: int = 56, minimum_count: int = 2) -> Arrays:
    """Stanford Sentiment Treebank, 5 classes, one "label sentence" per line (UTF-8) in `stsa.fine.*`.

    Tokens are the lower-case words between white space. Words that occur at least `minimum_count` times in
    the training sentences get the numbers 2, 3, ... by falling frequency, then by alphabet; 0 is padding,
    1 any other word. Sentences are padded, or cut, at the end to `length` tokens (the longest has 56). The
    dev file is used neither for training nor for testing.
    """
    train_labels, train = _read_sentences(files[SST_FILES[0]])
    test_labels, test = _read_sentences(files[SST_FILES[1]])
    numbers = word_numbers(train, minimum_count)
    return {
        "features": token_rows(train, numbers, length),
        "labels": train_labels,
        "test_features": token_rows(test, numbers, length),
        "test_labels": test_labels,
        "vocabulary": np.array(UNKNOWN + 1 + len(numbers)),
    }


def read_npz(path: Path) -> Arrays:
    """A NumPy archive with `features` and `labels`, perhaps the other `ARRAYS`, and nothing else."""
    return read_arrays(path, len(ARRAYS), lambda headers: _require_data_set(path, headers))


def _require_data_set(path: Path, headers: Mapping[str, Header]) -> None:
    """Refuse by their headers arrays that are no data set, before they are inflated."""
    for name in headers:
        if name not in ARRAYS:
            raise UnreadableFile(path, f"arrays must be among {', '.join(ARRAYS)}, got {name[:60]!r}")
    for name in ("features", "labels"):
        if name not in headers:
            raise UnreadableFile(path, f"must hold an array {name!r}, got {', '.join(headers) or 'none'}")
    for name, header in headers.items():
        if header.dtype.kind in "US" and header.dtype.itemsize > 4 * _LONGEST_NAME:
            rule = f"{name} must be numbers, or words of at most {_LONGEST_NAME:,} characters"
            raise UnreadableFile(path, f"{rule}, got {header.dtype}")
    for name in (name for name in ("features", "test_features") if name in headers):
        header = headers[name]
        if header.dtype.kind not in "iuf":
            raise UnreadableFile(path, f"{name} must be an array of numbers, got type {header.dtype}")
    if "vocabulary" in headers and math.prod(headers["vocabulary"].shape) != 1:
        shape = headers["vocabulary"].shape
        raise UnreadableFile(path, f"vocabulary must be one number, got shape {shape}")
    rows = {"labels": "features", "groups": "features", "test_labels": "test_features"}
    for name, other in rows.items():
        if name in headers and other in headers:
            samples = headers[other].shape[:1]
            if headers[name].shape != samples:
                rule = f"{name} must be one for each of {samples[0] if samples else 1} samples"
                raise UnreadableFile(path, f"{rule}, got shape {headers[name].shape}")


def read_csv(path: Path, *, labelled: bool = True) -> Arrays:
    """A table with a header: `label`, perhaps `client` (any name) and `test` (0 or 1).

    Labels are whole numbers from 0, or all of them names. All other columns are features. Rows with
    test = 1 are for testing; their client is ignored. Clients are numbered in the order of their names
    (whole numbers: by value). Where only features are asked for, `labelled` is False, and there need be no
    labels.
    """
    lines: list[int] = []
    labels, tests, owners = array("q"), array("b"), list[str]()
    words, people = _Labels(path), _Names(path, "client")
    values = array("d")
    unread = _Unread(path)
    rows = csv_rows(path)
    first, header = next(rows, (1, []))
    features = _csv_features(path, first, header, labelled)
    special = {name: header.index(name) for name in ("label", "client", "test") if name in header}
    for line, row in rows:
        if len(row) != len(header):
            raise UnreadableFile(path, f"must have {len(header)} columns, got {len(row)}", line)
        lines.append(line)
        label = row[special["label"]] if "label" in special else "0"
        if label.strip(" "):
            labels.append(words.number(line, label))
        else:
            unread.add(line, "label", label, "a whole number from 0, or a name")
        tests.append(_csv_bit(path, line, "test", row[special["test"]]) if "test" in special else 0)
        if "client" in special:
            owners.append(people.name(line, row[special["client"]]))
        try:
            values.extend([numeral(row[column]) for column in features])
        except ValueError:
            values.extend([unread.number(line, header[column], row[column]) for column in features])
    unread.refuse(len(lines))
    if not lines:
        raise UnreadableFile(path, "must hold at least one row below its header, got none")
    table = np.frombuffer(values).reshape(len(lines), len(features))
    bad = np.argwhere(~(np.abs(table) <= np.finfo(np.float32).max))  # also true for NaN
    if bad.size:
        row_number, column = bad[0]
        name, value = header[features[column]], table[row_number, column]
        if np.isfinite(value):
            rule = f"must not exceed {np.finfo(np.float32).max:.3g} in size"
            raise UnreadableFile(path, f"{name} {rule}, got {value:g}", lines[row_number])
        rows_hit = counted(np.unique(bad[:, 0]).size, "row")
        columns_hit = ", ".join(sorted({repr(header[features[k]]) for k in bad[:, 1]})[:_NAMED])
        where = f"in all {rows_hit} of {len(lines):,}, columns {columns_hit}"
        rule = f"must be a finite number, got {value:g} ({where}): {_REMEDY}"
        raise UnreadableFile(path, f"{name} {rule}", lines[row_number])
    people.require_distinct()
    is_test, classes = np.frombuffer(tests, np.int8) == 1, words.of(np.frombuffer(labels, np.int64))
    result = {
        "features": table[~is_test],
        "labels": classes[~is_test],
        "test_features": table[is_test],
        "test_labels": classes[is_test],
        "columns": np.array([header[column] for column in features]),
    }
    if owners:
        result["groups"] = np.array([owner for owner, test in zip(owners, tests, strict=True) if not test])
    return result


class _Unread:
    """The cells of a table that hold no number: how many there are, in which columns, and what to do."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._first: tuple[int, str] | None = None  # the line of the first one, and what is wrong there
        self._rows: set[int] = set()  # lines with such a cell
        self._columns: dict[str, Counter[bool]] = {}  # how many of a column's are empty, and are text

    def add(self, line: int, column: str, cell: str, rule: str = "a finite number") -> None:
        """A cell that cannot be read."""
        if self._first is None:
            self._first = line, f"{column} must be {rule}, got {cell[:20]!r}"
        self._rows.add(line)
        self._columns.setdefault(column, Counter())[not cell.strip(" ")] += 1

    def number(self, line: int, column: str, cell: str) -> float:
        """The number in a cell; NaN, and kept in mind, if there is none."""
        if _is_number(cell, numeral):
            return numeral(cell)
        self.add(line, column, cell)
        return math.nan

    def refuse(self, rows: int) -> None:
        """Say all that is wrong at once, if anything is."""
        if self._first is None:
            return
        each = [f"{column!r} ({_counts(counts)})" for column, counts in self._columns.items()]
        listed = ", ".join(each[:_NAMED])
        listed += f" and {len(each) - _NAMED:,} more" if len(each) > _NAMED else ""
        line, first = self._first
        columns = "column" if len(each) == 1 else "columns"
        where = f"in all {len(self._rows):,} of {counted(rows, 'row')}, {columns} {listed}"
        raise UnreadableFile(self._path, f"{first} ({where}): {_REMEDY}", line)


def _counts(counts: Counter[bool]) -> str:
    """How many cells are empty and how many hold text."""
    kinds = {"empty": counts[True], "text": counts[False]}
    return ", ".join(f"{number:,} {kind}" for kind, number in kinds.items() if number)


class _Names:
    """The names in a column, which may occur many times; each is checked where it occurs first."""

    def __init__(self, path: Path, what: str) -> None:
        self._path, self._what = path, what
        self._cells: dict[str, tuple[int, str]] = {}  # the line in which a cell came first, and its name

    def name(self, line: int, cell: str) -> str:
        """The name in a cell."""
        if cell not in self._cells:
            self._cells[cell] = line, cell_name(self._path, line, self._what, cell)
        return self._cells[cell][1]

    def require_distinct(self) -> None:
        """Refuse two names that read alike."""
        require_distinct(self._path, self._what, self._cells.values(), once=False)


class _Labels:
    """The labels in a column: all whole numbers, or all names."""

    def __init__(self, path: Path) -> None:
        self._path, self._names = path, _Names(path, "label")
        self._cells: dict[str, int] = {}  # every cell, numbered as they come
        self._labels: list[int | str] = []  # what each stands for
        self._first = 0  # the line of the first one

    def number(self, line: int, cell: str) -> int:
        """The number of a cell among those that differ."""
        if cell not in self._cells:
            self._first = self._first or line
            self._labels.append(self._checked(line, cell))
            self._cells[cell] = len(self._cells)
        return self._cells[cell]

    def of(self, numbers: NDArray[np.int64]) -> NDArray[Any]:
        """(n,) the labels behind the numbers: whole numbers or text."""
        self._names.require_distinct()
        return np.array(self._labels)[numbers]

    def _checked(self, line: int, cell: str) -> int | str:
        label = self._label(line, cell)
        if self._labels and type(label) is not type(self._labels[0]):
            kind = "a name" if isinstance(label, int) else "a whole number from 0"
            rule = f"label must be {kind} as in line {self._first}, got {cell[:20]!r}"
            raise UnreadableFile(self._path, rule, line)
        return label

    def _label(self, line: int, cell: str) -> int | str:
        word = cell.strip(" ")
        if word.isascii() and word.isdigit() and len(word) < 19:
            return int(word)
        if not word or _is_number(word, float):  # also as only Python spells it, 0_1 or 1 at full width
            rule = f"label must be a whole number from 0, or a name, got {cell[:20]!r}"
            raise UnreadableFile(self._path, rule, line)
        return self._names.name(line, cell)


def _is_number(word: str, read: Callable[[str], float]) -> bool:
    try:
        read(word)
    except ValueError:
        return False
    return True


def check_classes(path: Path, labels: Bytes, classes: int, lowest: int = 0) -> None:
    """Refuse labels that are no class."""
    bad = np.flatnonzero((labels >= classes) | (labels < lowest))
    if bad.size:
        rule = f"below {classes}" if lowest == 0 else f"in {lowest}..{classes - 1}"
        raise UnreadableFile(path, f"labels must be {rule}, got {labels[bad[0]]} for sample {bad[0]}")


def _read_sentences(path: Path) -> tuple[NDArray[np.int64], list[list[str]]]:
    try:
        whole = read_bytes(path, _LONGEST_TEXT)
        if len(whole) > _LONGEST_TEXT:
            raise UnreadableFile(path, f"must hold at most {_LONGEST_TEXT:,} bytes of text, got more")
        text = whole.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UnreadableFile(path, f"not UTF-8 text ({error})") from error
    labels, sentences = [], []
    for line, content in enumerate(text.removesuffix("\n").split("\n"), start=1):
        label, *words = content.lower().split() or [""]
        if label not in ("0", "1", "2", "3", "4"):
            raise UnreadableFile(path, f"label must be 0, 1, 2, 3 or 4, got {label[:20]!r}", line)
        if not words:
            raise UnreadableFile(path, "must have a sentence after the label, got none", line)
        labels.append(int(label))
        sentences.append(words)
    return np.array(labels, dtype=np.int64), sentences


def word_numbers(
    sentences: Sequence[Sequence[str]], minimum_count: int, most: int | None = None
) -> dict[str, int]:
    """2, 3, ... for the words that occur often enough, the most frequent first, then by alphabet."""
    counts = Counter(word for sentence in sentences for word in sentence)
    often = (word for word, count in counts.items() if count >= minimum_count)
    words = sorted(often, key=lambda word: (-counts[word], word))[:most]
    return {word: UNKNOWN + 1 + rank for rank, word in enumerate(words)}


def token_rows(
    sentences: Sequence[Sequence[str]], numbers: Mapping[str, int], length: int
) -> NDArray[np.int64]:
    """(n, length) the numbers of the words of every sentence, padded or cut at its end."""
    tokens = np.full((len(sentences), length), PADDING, dtype=np.int64)
    for row, sentence in zip(tokens, sentences, strict=True):
        numbered = [numbers.get(word, UNKNOWN) for word in sentence[:length]]
        row[: len(numbered)] = numbered
    return tokens


def _csv_features(path: Path, line: int, header: list[str], labelled: bool) -> list[int]:
    """The places of the feature columns."""
    header[:] = [name.strip(" ") for name in header]
    if labelled and "label" not in header:
        raise UnreadableFile(
            path, f"header must have a column 'label', got {', '.join(header)[:200] or 'none'}", line
        )
    for name in header:
        if not name or header.count(name) > 1:
            raise UnreadableFile(path, f"columns must have distinct names, got {name!r}", line)
        cell_name(path, line, "column", name)
    features = [number for number, name in enumerate(header) if name not in ("label", "client", "test")]
    if not features:
        raise UnreadableFile(path, "header must have at least one feature column, got none", line)
    return features


def _csv_bit(path: Path, line: int, name: str, text: str) -> int:
    if text.strip(" ") in ("0", "1"):
        return int(text)
    raise UnreadableFile(path, f"{name} must be 0 or 1, got {text[:20]!r}", line)
