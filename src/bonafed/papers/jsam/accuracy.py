"""Test accuracy against money for JSAM and its baselines, trained (VI-C, figure 6, tables II and III).

A cell is a run: a mechanism, a sum of money, a data similarity s and a seed. The seed fixes the partition,
the clients' costs, the schedule's coins and the noise, so that the mechanisms of one seed face the same
clients. Each buys as much privacy as the payments for these costs allow, so money is what is actually paid,
but for the small jumps where one more client comes in.

Clients take one step on the clipped gradient of all their records, with noise of sensitivity 2C/M; learning
rate and clip are the same for every mechanism. Noise comes from the seed, so that a cell can be repeated:
the epsilon of such a run protects nobody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Literal, NamedTuple

import numpy as np

from bonafed import checks
from bonafed.mechanisms.jsam.schemes import LARGEST_LOSSES, WITH_MEMBERS, Scheme
from bonafed.papers.cells import Cell, run_cell
from bonafed.papers.claim import Results, Row, Settings, number, over_seeds, where
from bonafed.papers.jsam.training import train_from_drawn_weights
from bonafed.papers.tables import several
from bonafed.presentation.documents import JSONObject
from bonafed.sections import key, one_of, word

Sums = Literal["small", "large", "both"]
Read = Literal["as they are", "exchanged", "one for all"]
Name = Literal["JSAM", "JSAM-CI", "USBM", "FSBM-50", "FSBM-75", "BBM"]
SCHEMES: Mapping[
    str, tuple[Scheme, float]
] = {  # and the share of the clients that it takes, if it is fixed
    "JSAM": ("jsam", 1.0),
    "JSAM-CI": ("complete information", 1.0),
    "USBM": ("unbiased", 1.0),
    "FSBM-50": ("cheapest", 0.5),
    "FSBM-75": ("cheapest", 0.75),
    "BBM": ("largest losses", 0.5),  # the paper names no number: half fits its money (table II and III)
}
BASELINES = ("USBM", "FSBM-50", "FSBM-75", "BBM")
# tables II and III; BBM's differs from row to row, and is the mean of table III's here
LARGE_SUMS: Mapping[str, float] = {
    "JSAM": 590.5221, "USBM": 590.5437, "JSAM-CI": 417.5662, "FSBM-50": 341.3135, "FSBM-75": 471.2816,
    "BBM": fmean([478.2449, 485.7700, 511.2514, 512.2826]),
}  # fmt: skip
_ALL = 1_000_000  # a batch holds all records of a client
_DECIMALS = 9  # money is hardly rounded, so that all of it is spent


@dataclass(frozen=True)
class Accuracy(Settings):
    """The grid, and what all its runs have in common."""

    data: str = key(word, "mnist", help="A data set of images, or your own .npz or .csv file.")
    mechanisms: tuple[str, ...] = key(
        several(one_of(Name)), tuple(SCHEMES), help="Of " + ", ".join(SCHEMES) + "."
    )
    money: tuple[float, ...] = key(
        several(checks.positive), (1.0, 3.0, 10.0), help="Payments to all clients together."
    )
    similarity: tuple[float, ...] = key(
        several(lambda name, value: checks.between(name, value, 0, 100)),
        (100.0, 70.0, 30.0, 0.0),
        help="s, percent of the data that are spread uniformly.",
    )
    sums: str = key(
        one_of(Sums), "small", help='Those of money; or "large": those of tables II and III; or "both".'
    )
    part: float = key(checks.positive, 1.0, help="Of the large sums; control: next to nothing of them.")
    model: str = key(word, "softmax", help="A model that bonafed knows.")
    clients: int = key(checks.whole, 100, help="N.")
    clients_per_round: int = key(checks.whole, 10, help="Drawn per round.")
    rounds: int = key(checks.whole, 30, help="T.")
    learning_rate: float = key(checks.positive, 0.3, help="The same for every mechanism.")
    clip: float = key(checks.positive, 1.0, help="C, largest norm of one record's gradient.")
    delta: float = key(checks.positive, 1e-5, help="Of differential privacy.")
    noise_scale: float = key(checks.positive, 9.0, help="Q; observation 6 implies 8 to 10.")
    read: str = key(
        one_of(Read), "as they are", help='Controls: "exchanged" mechanisms; "one for all": USBM\'s runs.'
    )


# Section VI-A; the learning rate is not printed
PAPER = Accuracy(
    model="mnist-cnn", rounds=1000, clip=6.0, money=(0.5, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0), learning_rate=0.1
)
QUICK = Accuracy(money=(3.0, 10.0))
CIFAR = replace(
    QUICK, data="cifar10", learning_rate=1.0, money=(10.0,), sums="both", similarity=(100.0, 0.0)
)
CIFAR_PAPER = replace(PAPER, data="cifar10", model="cifar-cnn")
SMOKE = Accuracy(
    data="digits", clients=10, clients_per_round=5, rounds=15, learning_rate=2.0, money=(1.0, 10.0),
    seeds=1, similarity=(100.0, 0.0),
)  # fmt: skip


class AccuracyPoint(NamedTuple):
    """Where a cell stands in the grid."""

    mechanism: str
    money: float  # payments to all clients together, at most; 0: that of `LARGE_SUMS`
    similarity: float  # s
    seed: int


def cells(settings: Accuracy) -> dict[AccuracyPoint, Cell]:
    """All combinations, seed by seed."""
    small_ones = settings.money if settings.sums != "large" else ()
    sums = small_ones if settings.sums == "small" else (*small_ones, 0.0)
    points = [
        AccuracyPoint(mechanism, money, s, seed)
        for seed in settings.all_seeds
        for s in settings.similarity
        for money in sums
        for mechanism in settings.mechanisms
    ]
    return {point: _cell(settings, point) for point in points}


def _cell(settings: Accuracy, point: AccuracyPoint) -> Cell:
    name = f"jsam s {point.similarity:g}, money {point.money:g}, {point.mechanism}, seed {point.seed}"
    cell = run_cell(name, tables(settings, point), weight=settings.rounds * settings.clients_per_round)
    return replace(cell, compute=train_from_drawn_weights) if settings.model == "softmax" else cell


def tables(settings: Accuracy, point: AccuracyPoint) -> JSONObject:
    """The config of a run."""
    scheme, share = SCHEMES[point.mechanism]
    own: JSONObject = {
        "prior": "uniform:0,1",
        "scheme": scheme,
        "budget": point.money or settings.part * LARGE_SUMS[point.mechanism],
        "cost_seed": point.seed,
        "clip": settings.clip,
        "delta": settings.delta,
        "clients_per_round": settings.clients_per_round,
        "noise_scale": settings.noise_scale,
        "decimals": _DECIMALS,
        "noise": "reproducible",
        "clear_losses": scheme == LARGEST_LOSSES,
    }
    if scheme in WITH_MEMBERS:
        own["members"] = max(1, round(share * settings.clients))
    return {
        "data": {"name": settings.data},
        "partition": {"kind": "similarity", "clients": settings.clients, "s": point.similarity},
        "model": {"name": settings.model},
        "training": {
            "rounds": settings.rounds,
            "learning_rate": settings.learning_rate,
            "batch_size": _ALL,
            "steps": 1,
        },
        "jsam": own,
        "run": {"seed": point.seed, "evaluate_every": settings.rounds, "checkpoint_every": settings.rounds},
    }


# The table of all claims that train


def rows(settings: Accuracy, results: Results) -> list[Row]:
    """Accuracy and differences to the other mechanisms of the same seed, by s, money and mechanism."""
    by_point = _read(results, settings.read)
    groups: dict[tuple[float, float, str], list[AccuracyPoint]] = {}
    for point in by_point:
        groups.setdefault((point.similarity, point.money, point.mechanism), []).append(point)
    return [_row(points, by_point) for points in groups.values()]


def _read(results: Results, how: str) -> dict[AccuracyPoint, JSONObject]:
    """Every mechanism's runs; in a control, some mechanism's under another's name."""
    exchanged = {"JSAM": "USBM", "USBM": "JSAM", "JSAM-CI": "BBM", "BBM": "JSAM-CI"}
    names = {
        "as they are": {}, "exchanged": exchanged, "one for all": dict.fromkeys(SCHEMES, "USBM"),
    }[how]  # fmt: skip
    return {
        point: results[point._replace(mechanism=names.get(point.mechanism, point.mechanism))]
        for point in results
    }


def _row(points: Sequence[AccuracyPoint], results: Mapping[AccuracyPoint, JSONObject]) -> Row:
    """`over_...` are differences in accuracy, seed by seed."""

    def accuracy(mechanism: str) -> list[float]:
        return [results[point._replace(mechanism=mechanism)]["test_accuracy"] for point in points]

    first = points[0]
    facts = [results[point]["statement"]["facts"] for point in points]
    there = {point.mechanism for point in results}
    own = np.array(accuracy(first.mechanism))
    row: Row = {
        "s": first.similarity,
        "sums": "large" if first.money == 0 else "small",
        "money": fmean(results[point]["spend"] for point in points),
        "mechanism": first.mechanism,
        "selected": fmean(fact["clients_selected"] for fact in facts),
        "largest_epsilon": max(max(fact["epsilon_sold"]) for fact in facts),
        **over_seeds("accuracy", own.tolist()),
        **over_seeds("deviation", np.abs(own - own.mean()).tolist()),  # from the mean of the seeds
    }
    others = {
        "usbm": [["USBM"]],
        "ci": [["JSAM-CI"]],
        "best": [[name] for name in BASELINES if name != first.mechanism],
        "mean": [[name for name in SCHEMES if name != first.mechanism]],
    }
    for label, choices in others.items():
        known = [names for names in choices if set(names) <= there]
        if known and len(known) == len(choices):
            each = np.array([np.mean([accuracy(name) for name in names], axis=0) for names in known])
            row |= over_seeds(f"over_{label}", (own - each.max(0)).tolist())
    if "JSAM-CI" in there:
        row |= over_seeds("ahead_of_ci", (own > accuracy("JSAM-CI")).astype(float).tolist())
    return row


def levels(table: Sequence[Row]) -> list[float]:
    """The similarities of a table, descending."""
    return sorted({number(row, "s") for row in table}, reverse=True)


def small(table: Sequence[Row], mechanism: str, s: float) -> list[Row]:
    """The rows of a mechanism at sums of up to 10, ascending."""
    return [row for row in all_sums(table, mechanism, s) if row["sums"] == "small"]


def all_sums(table: Sequence[Row], mechanism: str, s: float) -> list[Row]:
    """The rows of a mechanism, ascending."""
    return sorted(where(table, mechanism=mechanism, s=s), key=lambda row: number(row, "money"))
