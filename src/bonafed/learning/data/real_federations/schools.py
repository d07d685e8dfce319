"""Pupils in schools, the standard examples of multilevel regression.

    mathachieve   7,185 pupils of 160 schools, United States 1982: the score in mathematics from social
                  status, the school's mean of it, minority and sex (Raudenbush and Bryk 2002)
    chem97        31,022 pupils of 2,410 schools of 131 authorities, England 1997: the A-level score in
                  chemistry from the mean GCSE score, age and gender (Fielding, Yang and Goldstein 2003)

Targets are in fixed units: (score - 13)/7 and (score - 6)/3, about the mean and the standard deviation that
these studies print, so that a mean squared error of 1 is about as good as the mean. Every fifth pupil of a
school, in the order of the file, is for testing, whoever the clients are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bonafed.errors import UnreadableFile
from bonafed.learning.data.formats import Arrays
from bonafed.learning.data.real_federations.tables import (
    Answer,
    Field,
    Measure,
    arrays_of,
    every_fifth,
    read,
    rows_of,
)

FILES = {"mathachieve": "MathAchieve.csv", "chem97": "Chem97.csv"}
_DIGITS = 4  # in the number of a school


@dataclass(frozen=True, slots=True)
class _Study:
    fields: tuple[Field, ...]
    target: Measure
    clients: Mapping[str, tuple[str, str]]  # the column that names a client, and what it is called


_STUDIES = {
    "mathachieve": _Study(
        (
            Measure("SES", "social status", 0, 1, -10, 10),
            Measure("MEANSES", "mean social status", 0, 1, -10, 10),
            Answer("Minority", {"No": "", "Yes": "minority"}),
            Answer("Sex", {"Female": "", "Male": "male"}),
        ),
        Measure("MathAch", "score", 13, 7, -100, 100),
        {"schools": ("School", "school")},
    ),
    "chem97": _Study(
        (
            Measure("gcsescore", "mean GCSE score", 6, 1, 0, 10),
            Measure("age", "months beyond 18.5 years", 0, 6, -120, 120),
            Answer("gender", {"M": "", "F": "female"}),
        ),
        Measure("score", "score", 6, 3, 0, 10),
        {"schools": ("school", "school"), "authorities": ("lea", "authority")},
    ),
}


def read_schools(
    files: Mapping[str, Path],
    *,
    study: str = "mathachieve",
    clients: str = "schools",
    minimum_rows: int = 1,
) -> Arrays:
    """The table of one study; `clients` is "schools" or, of chem97, "authorities"."""
    path, content = files[FILES[study]], _STUDIES[study]
    fields, named = content.fields, content.clients
    used = [
        *(field.column for field in fields),
        content.target.column,
        *(column for column, _ in named.values()),
    ]
    features, targets = [], []
    owners: dict[str, list[str]] = {kind: [] for kind in named}
    for line, row in rows_of(path, used):
        features.append([value for field in fields for value in read(path, line, field, row)])
        targets.append(read(path, line, content.target, row)[0])
        for kind, (column, word) in named.items():
            owners[kind].append(_client(path, line, column, word, row[column].strip(" ")))
    return arrays_of(
        np.array(features), np.array(targets), owners[clients], every_fifth(owners["schools"]),
        [name for field in fields for name in field.names], minimum_rows,
    )  # fmt: skip


def _client(path: Path, line: int, column: str, word: str, cell: str) -> str:
    if not (cell.isascii() and cell.isdigit() and len(cell) <= _DIGITS):
        rule = f"{column} must be a whole number of at most {_DIGITS} digits, got {cell[:20]!r}"
        raise UnreadableFile(path, rule, line)
    return f"{word} {int(cell):0{_DIGITS}d}"
