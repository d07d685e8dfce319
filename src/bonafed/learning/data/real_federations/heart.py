"""Heart disease in four hospitals, as the federated literature prepares it (FLamby, Fed-Heart-Disease).

The columns slope, ca and thal are dropped, as three of the hospitals hardly recorded them; then, unless all
patients are wanted, incomplete rows: 303, 261, 46 and 130 patients are left, 740 in all. Chest pain and
the electrocardiogram at rest become a feature for every category but the first. Disease is num > 0. In
every hospital 66 % of the patients are for training and 34 % for testing, the same ones as in FLamby:
scikit-learn's split with its seed 43, stratified by disease where each class has more than two patients.

Two things differ from FLamby: features are in fixed units instead of being standardised by each hospital's
training records, which `data.standardise = "per client"` does, and hospitals have names.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bonafed.errors import UnreadableFile
from bonafed.extras import explained
from bonafed.learning.data.formats import Arrays
from bonafed.learning.data.real_federations.tables import Answer, Field, Measure, arrays_of, read, rows_of

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
