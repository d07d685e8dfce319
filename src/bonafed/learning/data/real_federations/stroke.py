"""The International Stroke Trial: 19,435 patients in 466 hospitals of 36 countries, 1991 to 1996.

The outcome is the trial's own, six months later: dead or dependent (OCCODE 1 or 2) or not (3 or 4). The 150
patients whose outcome is not known (0, 8, 9) are left out, and with them two hospitals: 19,285 patients in
464 hospitals are left. Features are what was known at randomisation, and the two treatments that were
drawn by lot. Every fifth patient of a hospital, in the order of the file, is for testing, whoever the
clients are.
"""

from __future__ import annotations

from collections.abc import Mapping
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

FILE = "IST.csv"
COUNTRIES = {
    "ARGE": "Argentina", "AUSL": "Australia", "AUST": "Austria", "BELG": "Belgium", "BRAS": "Brazil",
    "CANA": "Canada", "CHIL": "Chile", "CZEC": "Czech Republic", "DENM": "Denmark", "EIRE": "Ireland",
    "FINL": "Finland", "FRAN": "France", "GREE": "Greece", "HONG": "Hong Kong", "HUNG": "Hungary",
    "INDI": "India", "ISRA": "Israel", "ITAL": "Italy", "JAPA": "Japan", "NETH": "Netherlands",
    "NEW": "New Zealand", "NORW": "Norway", "POLA": "Poland", "PORT": "Portugal", "ROMA": "Romania",
    "SING": "Singapore", "SLOK": "Slovakia", "SLOV": "Slovenia", "SOUT": "South Africa", "SPAI": "Spain",
    "SRI": "Sri Lanka", "SWED": "Sweden", "SWIT": "Switzerland", "TURK": "Turkey", "UK": "United Kingdom",
    "USA": "United States",
}  # fmt: skip
_DEFICITS = (
    "face deficit", "arm deficit", "leg deficit", "dysphasia", "hemianopia", "visuospatial disorder",
    "brainstem signs", "other deficit",
)  # fmt: skip
_OUTCOME = "OCCODE"
_BAD, _GOOD, _UNKNOWN = ("1", "2"), ("3", "4"), ("0", "8", "9", "")
_MOST_HOSPITALS = 999  # in the numbers of hospitals, which then have three digits
_DIGITS = 9  # that a file may write such a number in


def _yes(column: str, name: str, optional: bool = False) -> Answer:
    return Answer(column, {"N": "", "Y": name}, f"{name} not recorded" if optional else "")


_FIELDS: tuple[Field, ...] = (
    Measure("RDELAY", "hours of delay", 20, 12, 0, 1000),
    Answer("RCONSC", {"F": "", "D": "drowsy", "U": "unconscious"}),
    Answer("SEX", {"F": "", "M": "male"}),
    Measure("AGE", "age", 70, 10, 0, 120),
    _yes("RSLEEP", "symptoms on waking"),
    _yes("RATRIAL", "atrial fibrillation", True),  # not asked in the pilot, nor was RASP3
    _yes("RCT", "scan before randomisation"),
    _yes("RVISINF", "infarct visible"),
    _yes("RHEP24", "heparin in the last day", True),
    _yes("RASP3", "aspirin in the last three days", True),
    Measure("RSBP", "systolic blood pressure", 160, 30, 0, 400),
    *(
        Answer(f"RDEF{number}", {"N": "", "Y": name, "C": f"{name} not assessable"})
        for number, name in enumerate(_DEFICITS, start=1)
    ),
    Answer(
        "STYPE",
        {
            "LACS": "", "PACS": "partial anterior syndrome", "TACS": "total anterior syndrome",
            "POCS": "posterior syndrome", "OTH": "other syndrome",
        },
    ),
    _yes("RXASP", "aspirin given"),
    # the pilot's H is the dose that the trial calls M
    Answer(
        "RXHEP",
        {
            "N": "", "L": "low heparin given", "M": "medium heparin given", "H": "medium heparin given",
        },
    ),
)  # fmt: skip


def read_ist(files: Mapping[str, Path], *, clients: str = "hospitals", minimum_rows: int = 1) -> Arrays:
    """The table of the trial; `clients` is "hospitals" or "countries"."""
    path = files[FILE]
    features, labels, hospitals, countries = [], [], list[str](), list[str]()
    used = [*(field.column for field in _FIELDS), _OUTCOME, "HOSPNUM", "COUNTRY"]
    for line, row in rows_of(path, used):
        outcome = row[_OUTCOME].strip(" ")
        if outcome in _UNKNOWN:
            continue
        if outcome not in (*_BAD, *_GOOD):
            rule = f"{_OUTCOME} must be one of {', '.join((*_BAD, *_GOOD, *_UNKNOWN[:-1]))}"
            raise UnreadableFile(path, f"{rule}, got {outcome[:20]!r}", line)
        labels.append(int(outcome in _BAD))
        features.append([value for field in _FIELDS for value in read(path, line, field, row)])
        hospitals.append(_hospital(path, line, row["HOSPNUM"].strip(" ")))
        countries.append(_country(path, line, row["COUNTRY"].strip(" ")))
    if not labels:
        raise UnreadableFile(path, "must hold at least one patient whose outcome is known, got none")
    return arrays_of(
        np.array(features), np.array(labels, dtype=np.int64),
        hospitals if clients == "hospitals" else countries, every_fifth(hospitals),
        [name for field in _FIELDS for name in field.names], minimum_rows,
    )  # fmt: skip


def _hospital(path: Path, line: int, cell: str) -> str:
    if not (
        cell.isascii() and cell.isdigit() and len(cell) <= _DIGITS and 0 < int(cell) <= _MOST_HOSPITALS
    ):
        rule = f"HOSPNUM must be a whole number from 1 to {_MOST_HOSPITALS}, got {cell[:20]!r}"
        raise UnreadableFile(path, rule, line)
    return f"hospital {int(cell):03d}"


def _country(path: Path, line: int, cell: str) -> str:
    if cell not in COUNTRIES:
        rule = f"COUNTRY must be one of {', '.join(COUNTRIES)}, got {cell[:20]!r}"
        raise UnreadableFile(path, rule, line)
    return COUNTRIES[cell]
