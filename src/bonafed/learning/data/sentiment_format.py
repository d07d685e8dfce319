"""The reader of Sentiment140 in the format that its authors publish.

Like those in `bonafed.learning.data.formats` it returns arrays by name and refuses whatever violates the
format with the file, the line and the rule. No more than a bounded piece of a file is ever read at a time.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bonafed.errors import UnreadableFile
from bonafed.learning.data.archives import opened
from bonafed.learning.data.formats import UNKNOWN, Arrays, token_rows, word_numbers
from bonafed.reports import Row, rows_in

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
