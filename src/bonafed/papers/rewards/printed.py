"""Tables 1, 2 and 4 to 10 of the rewards paper, as it prints them: the numbers are those of `printed.toml`.

Its rho takes contributions on the test set; so there is none to put beside the rho with contributions on
validation data.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import Any

_ORDER = ("fedavg", "lg-fedavg", "cgsv", "rank", "iafl")  # columns of the paper's tables

PERCENT = ("average", "best", "increase")  # of the columns
LARGE = ("tiny-imagenet", "sentiment140")  # data sets of tables 8 to 10
Key = tuple[str, str, str]  # data, partition, method


def printed_scores() -> dict[Key, dict[str, float]]:
    """The paper's numbers by data, partition and method; accuracies as shares like ours.

    >>> printed_scores()["mnist", "classes", "iafl"]["average"]
    0.93
    """
    numbers: dict[Key, dict[str, float]] = {}
    tables = _tables()
    for name in ("ipr_accuracy", "rho_test", "ipr_loss", "increase"):
        for key, (value,) in _entries(tables[name], 1):
            if value is not None:
                numbers.setdefault(key, {})[name] = value / 100 if name in PERCENT else value
    for key, (average, best) in _entries(tables["average_and_best"], 2):
        assert average is not None  # all are printed
        assert best is not None
        numbers[key] |= {"average": average / 100, "best": best / 100}
    return numbers


def printed_wins(metric: str) -> tuple[int, int]:
    """In how many settings of tables 1 to 6 the printed number of IAFL is the highest, ties counted, and
    how many settings there are.

    >>> printed_wins("ipr_accuracy"), printed_wins("rho_test")  # the text says 24 and 16: erratum R-11
    ((24, 29), (15, 29))
    """
    paper, settings = printed_scores(), _settings()
    best = [max(paper[data, split, method][metric] for method in _ORDER) for data, split in settings]
    own = [paper[data, split, "iafl"][metric] for data, split in settings]
    return sum(ours >= most for ours, most in zip(own, best, strict=True)), len(settings)


def printed_mean(metric: str, data: str = "") -> float:
    """The mean of IAFL's printed numbers over the settings of tables 1 to 6, or over those of one data set.

    >>> round(printed_mean("ipr_accuracy"), 3), printed_mean("ipr_accuracy", "sst")
    (0.918, 0.92)
    """
    paper = printed_scores()
    settings = [setting for setting in _settings() if data in ("", setting[0])]
    return sum(paper[*setting, "iafl"][metric] for setting in settings) / len(settings)


def printed_cosine() -> dict[str, tuple[float, float]]:
    """Table 7, CIFAR-10, by partition: rho of CGSV, and of IAFL with CGSV's measure."""
    return {partition: (cgsv, iafl) for partition, (cgsv, iafl) in _tables()["cosine"].items()}


@cache
def _tables() -> dict[str, Any]:
    return tomllib.loads((resources.files(__package__) / "printed.toml").read_text("utf-8"))


def _settings() -> list[tuple[str, str]]:
    """Data and partition of tables 1 to 6."""
    return [key[:2] for key in printed_scores() if key[2] == "iafl" and key[0] not in LARGE]


def _entries(text: str, each: int) -> Iterator[tuple[Key, list[float | None]]]:
    """The numbers of each method in a transcribed table; None where it has none."""
    for line in text.strip().splitlines():
        data, partition, *values = line.split()
        numbers = [None if value == "-" else float(value) for value in values]
        for k, method in enumerate(_ORDER):
            yield (data, partition, method), numbers[each * k : each * (k + 1)]
