"""Patients in hospitals: heart disease in four of them, and the International Stroke Trial in 466.

Heart disease is prepared as in the federated literature (FLamby, Fed-Heart-Disease). The columns slope, ca
and thal are dropped, as three of the hospitals hardly recorded them; then, unless all patients are wanted,
incomplete rows: 303, 261, 46 and 130 patients are left, 740 in all. Chest pain and the electrocardiogram at
rest become a feature for every category but the first. Disease is num > 0. In every hospital 66 % of the
patients are for training and 34 % for testing, the same ones as in FLamby: scikit-learn's split with its
seed 43, stratified by disease where each class has more than two patients.

Two things differ from FLamby: features are in fixed units instead of being standardised by each hospital's
training records, which `data.standardise = "per client"` does, and hospitals have names.

The International Stroke Trial had 19,435 patients in 466 hospitals of 36 countries, 1991 to 1996. The
outcome is the trial's own, six months later: dead or dependent (OCCODE 1 or 2) or not (3 or 4). The 150
patients whose outcome is not known (0, 8, 9) are left out, and with them two hospitals: 19,285 patients in
464 hospitals are left. Features are what was known at randomisation, and the two treatments that were drawn
by lot. Every fifth patient of a hospital, in the order of the file, is for testing, whoever the clients
are.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bonafed.errors import UnreadableFile
from bonafed.extras import explained
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

HOSPITALS = {
    "processed.cleveland.data": "Cleveland",
    "processed.hungarian.data": "Hungary",
    "processed.switzerland.data": "Switzerland",
    "processed.va.data": "Long Beach",
}
_HEADER = (
    "age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak", "slope", "ca",
    "thal", "num",
)  # fmt: skip
_TRAINING, _SEED = 0.66, 43  # FLamby's share of training records, and the seed of its split
_FEWEST = 2  # of a class, up to which its split is not stratified


def _fields(optional: bool) -> tuple[Field, ...]:
    """The columns that become features; `optional`: a value may be missing."""

    def measure(column: str, name: str, centre: float, unit: float, low: float, high: float) -> Measure:
        return Measure(column, name, centre, unit, low, high, optional)

    def answer(column: str, missing: str, **words: str) -> Answer:
        names = {word[1:]: name for word, name in words.items()}
        return Answer(column, names, f"{missing} not recorded" if optional else "", numbers=True)

    pain = {"_1": "", "_2": "atypical angina", "_3": "other chest pain", "_4": "no chest pain"}
    ecg = {"_0": "", "_1": "ST-T wave abnormality", "_2": "left ventricular hypertrophy"}
    return (
        Measure("age", "age", 50, 10, 0, 120),
        Answer("sex", {"0": "", "1": "male"}, numbers=True),
        measure("trestbps", "blood pressure", 130, 20, 0, 400),
        measure("chol", "cholesterol", 200, 100, 0, 2000),  # 0 in hospitals that did not measure it
        answer("fbs", "fasting blood sugar", _0="", _1="high fasting blood sugar"),
        measure("thalach", "largest heart rate", 140, 25, 0, 400),
        answer("exang", "exercise angina", _0="", _1="exercise angina"),
        measure("oldpeak", "ST depression", 1, 1, -20, 20),
        answer("cp", "chest pain", **pain),
        answer("restecg", "electrocardiogram", **ecg),
    )


def read_heart(files: Mapping[str, Path], *, patients: str = "complete", minimum_rows: int = 1) -> Arrays:
    """The four files of the UCI repository; `patients` is "complete" or "all"."""
    fields = _fields(optional=patients == "all")
    used = [*(field.column for field in fields), "num"]
    features, labels, tests, clients = [], [], [], list[str]()
    for file, hospital in HOSPITALS.items():
        own, ill = [], []
        for line, row in rows_of(files[file], used, _HEADER):
            if patients == "complete" and any(cell.strip(" ") == "?" for cell in row.values()):
                continue
            own.append([value for field in fields for value in read(files[file], line, field, row)])
            (value,) = read(files[file], line, _DISEASE, row)
            ill.append(int(value))
        disease = np.array(ill, dtype=np.int64)
        features.append(np.array(own))
        labels.append(disease)
        tests.append(_test(files[file], disease))
        clients += [hospital] * len(ill)
    return arrays_of(
        np.concatenate(features), np.concatenate(labels), clients, np.concatenate(tests),
        [name for field in fields for name in field.names], minimum_rows,
    )  # fmt: skip


_DISEASE = Answer("num", {"0": "", "1": "ill", "2": "ill", "3": "ill", "4": "ill"}, numbers=True)


def _test(path: Path, disease: NDArray[np.int64]) -> NDArray[np.bool_]:
    """(n,) whether a patient is for testing."""
    if len(disease) < 2:
        raise UnreadableFile(path, f"must hold at least two patients that can be used, got {len(disease)}")
    with explained():
        from sklearn.model_selection import train_test_split  # heavy, only needed here
    counts = np.bincount(disease)
    stratified = np.count_nonzero(counts) > 1 and counts[counts > 0].min() > _FEWEST
    _, test = train_test_split(
        np.arange(len(disease)), test_size=1.0 - _TRAINING, train_size=_TRAINING, random_state=_SEED,
        stratify=disease if stratified else None,
    )  # fmt: skip
    result = np.zeros(len(disease), dtype=np.bool_)
    result[test] = True
    return result


STROKE_FILE = "IST.csv"
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
    path = files[STROKE_FILE]
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
