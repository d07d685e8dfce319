"""Model rewards beside their baselines: runs and rows of tables 1, 2, 4, 5 and 6, and of 8 to 10.

A run trains all methods of a setting (`federations.py`). First every client is alone: these models say what
joining must beat, and their accuracies are the contributions. All methods then start from the same model,
with the same clients, batches and learning rates. The five claims share their runs.

What the paper says (section 6, appendix E.1) and is done here: 50 clients, the small CNN (an LSTM for
text), standardised pixels, 50 rounds of one local epoch (100 for CIFAR and SST), a learning rate of 0.01
for MNIST and 0.001 for all else that falls by 0.977 per round, crops and flips for CIFAR, kappa = q = 0,
LG-FedAvg shares the last three layers, p_i is the standalone accuracy on the TEST set. What it does not say
and is chosen here: batches of 64, Adam made anew each round, the ceiling max p_i, weights n_i/n in the
averages of the baselines, Gamma = 0.5 and beta = 1 of CGSV; feature noise is added to standardised pixels;
and some training samples are held out to validate on. Rank orders clients by the first `ranking` of these,
and on all of them contributions are measured a second time for rho, since the accuracy on the test set that
scores the models is in both sides of the correlation (theory D7).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue
from bonafed.papers import tables
from bonafed.papers.cells import Cell
from bonafed.papers.claim import (
    Check,
    Estimate,
    Results,
    Row,
    Settings,
    at_least,
    estimate,
    number,
    only,
    printed,
    where,
)
from bonafed.papers.rewards.federations import PARTITIONS, SettingPoint, Sizes, setting_cell, split_of
from bonafed.papers.rewards.printed import printed_scores, printed_wins
from bonafed.presentation.documents import JSONObject
from bonafed.sections import Check as Rule
from bonafed.sections import flag, key, word


class Method(NamedTuple):
    """What is compared: a phase of a run."""

    label: str
    phase: str
    variant: str = ""  # of the run: a key of VARIANTS
    printed: str | None = None  # the column of the paper's tables


METHODS = {
    "fedavg": Method("FedAvg-FT", "fedavg-ft", printed="fedavg"),
    "lg-fedavg": Method("LG-FedAvg", "lg-fedavg", printed="lg-fedavg"),
    "cgsv": Method("CGSV", "cgsv", printed="cgsv"),
    "rank": Method("Rank", "rank", printed="rank"),
    "iafl": Method("IAFL", "rewards", printed="iafl"),
    "fedavg-first-rate": Method(
        "FedAvg-FT, at the first learning rate", "fedavg-ft", "first rate", "fedavg"
    ),
    "iafl-defaults": Method("IAFL, kappa 0.5, q 0.01", "rewards", "defaults"),
    "iafl-validation": Method("IAFL, rewards by validation accuracy", "rewards", "validation"),
}
ALONE = "standalone"
TABLES = ("fedavg", "lg-fedavg", "cgsv", "rank", "iafl")  # the methods of the paper's tables
VARIANTS: Mapping[str, JSONObject] = {
    "": {},
    "first rate": {"fine_tuning": "first"},
    "defaults": {"sharing": 0.5, "recovery": 0.01},
    "validation": {"measure": "validation"},
}  # of the table [rewards]
COLUMNS = {
    "ipr_accuracy": "IPR_accu",
    "ipr_loss": "IPR_loss",
    "rho_test": "rho",
    "rho_validation": "rho, contributions on validation data",
    "average": "mean accuracy",
    "best": "best accuracy",
    "increase": "increase over standalone",
}
DATA = ("mnist", "fashion-mnist", "svhn", "cifar10", "cifar100", "sst")  # of tables 1 to 6
_TEXT = ("sst", "sentiment140")
_AUGMENTED = ("cifar10", "cifar100")
_SHORT = ("mnist", "fashion-mnist", "svhn")  # 50 rounds
BY_DATA = "by-data"  # as the paper has it for each data set
ALL = "all settings"  # in place of a data set: the mean over all settings


def several(check: Rule) -> Rule:
    """The rule of a key that holds one or more values, each once; in text, with commas between them."""
    rule = tables.several(check)

    def with_commas(name: str, value: Any) -> Any:
        return rule(name, [item.strip() for item in value.split(",")] if isinstance(value, str) else value)

    return with_commas


def _name_of(choices: Mapping[str, Any]) -> Rule:
    return several(lambda name, value: checks.one_of(name, str(value), tuple(choices)))


def _or_by_data(check: Rule) -> Rule:
    return lambda name, value: value if value == BY_DATA else check(name, value)


@dataclass(frozen=True)
class Federated(Settings):
    """What all runs of the rewards paper have in common."""

    data: tuple[str, ...] = key(several(word), DATA, help="Data sets.")
    partitions: tuple[str, ...] = key(
        _name_of(PARTITIONS), tuple(PARTITIONS), help="Of " + ", ".join(PARTITIONS) + "."
    )
    model: str = key(word, BY_DATA, help="A model that bonafed knows, or as the paper has it for the data.")
    clients: int = key(checks.whole, 50, help="N.")
    rounds: int | str = key(_or_by_data(checks.whole), BY_DATA, help="T, one local epoch each.")
    batch_size: int = key(checks.whole, 64, help="Records of a step.")
    optimizer: str = key(word, "adam", help="A new one each round.")
    learning_rate: float | str = key(_or_by_data(checks.positive), BY_DATA, help="Of the first round.")
    decay: float = key(checks.positive, 0.977, help="Factor on it per round.")
    validation: int = key(checks.whole, 5000, help="Training samples that are held out.")
    ranking: int = key(checks.whole, 500, help="Of those, how many Rank looks at in every round.")
    samples: int = key(lambda name, value: checks.whole(name, value, 0), 0, help="To train on; 0: all.")
    tested: int = key(lambda name, value: checks.whole(name, value, 0), 0, help="To test on; 0: all.")

    def _agree(self) -> None:
        if self.ranking > self.validation:
            raise InvalidValue("ranking", f"must be at most validation, {self.validation}", self.ranking)

    @property
    def sizes(self) -> Sizes:
        """How many clients and samples a run has."""
        return Sizes(self.clients, self.validation, self.samples, self.tested)

    def model_for(self, data: str) -> str:
        """The model that a data set is learnt with."""
        usual = "text-lstm" if data in _TEXT else "small-cnn"
        return usual if self.model == BY_DATA else self.model

    def training_for(self, data: str) -> JSONObject:
        """The table [training] of a config for a data set."""
        table: JSONObject = {
            "rounds": _rounds(data) if self.rounds == BY_DATA else self.rounds,
            "batch_size": self.batch_size,
            "optimizer": self.optimizer,
            "learning_rate": _rate(data) if self.learning_rate == BY_DATA else self.learning_rate,
            "learning_rate_decay": self.decay,
        }
        return {**table, "augmentation": "crop-and-flip"} if data in _AUGMENTED else table

    def is_the_papers(self, data: str) -> bool:
        """Whether the paper's numbers for a data set can be expected."""
        plain = Federated()
        same = ("clients", "decay", "batch_size", "optimizer", "samples", "tested")
        return (
            all(getattr(self, name) == getattr(plain, name) for name in same)
            and self.model_for(data) == plain.model_for(data)
            and self.training_for(data) == plain.training_for(data)
        )


def _rounds(data: str) -> int:
    return 50 if data in _SHORT else 100


def _rate(data: str) -> float:
    return 0.01 if data == "mnist" else 0.001


@dataclass(frozen=True)
class Tables(Federated):
    """Which settings and methods."""

    methods: tuple[str, ...] = key(_name_of(METHODS), TABLES, help="Of " + ", ".join(METHODS) + ".")
    noise: float = key(
        checks.non_negative, 0.0, help="Control: all clients send noise of so many times their updates."
    )
    reversed: bool = key(
        flag, False, help="Control: contributions are read backwards, the largest as the smallest."
    )


def cells(options: Tables) -> dict[SettingPoint, Cell]:
    """The runs of all settings, one setting after the other."""
    variants = dict.fromkeys(METHODS[name].variant for name in options.methods)
    return {
        point: _cell(options, point)
        for seed in options.all_seeds
        for data in options.data
        for partition in options.partitions
        if not (partition == "noise" and data in _TEXT)  # words cannot be blurred
        for variant in variants
        for point in (SettingPoint(data, partition, seed, variant),)
    }


def _cell(options: Tables, point: SettingPoint) -> Cell:
    methods = [METHODS[name] for name in options.methods if METHODS[name].variant == point.variant]
    baselines = [method.phase for method in methods if method.phase != "rewards"]
    cheats = [f"{i} noise {options.noise:g}" for i in range(options.clients)] if options.noise else []
    rewards = {
        "sharing": 0.0,
        "recovery": 0.0,
        "baselines": baselines,
        "ranking": options.ranking,
        "agents": cheats,
        **VARIANTS[point.variant],
    }
    return setting_cell(
        point, options.sizes, options.model_for(point.data), options.training_for(point.data), rewards
    )


# Rows: a method in a setting, over all seeds; then every method over all settings


def table(options: Tables, results: Results, *metrics: str) -> list[Row]:
    """By setting and method, then by method over all settings.

    Beside the first of the metrics stand the paper's number; `lead`, how far it is ahead of the best other
    method, seed by seed; and `highest`, the share of seeds (over all settings: of settings) in which none
    is above it.
    """
    settings = list(dict.fromkeys((point.data, point.partition) for point in results))
    values = {name: _values(options, results, settings, name) for name in metrics}
    first = values[metrics[0]]
    won = _lead(first) >= 0
    paper, rows = printed_scores(), list[Row]()
    for s, (data, split) in enumerate(settings):
        for m, method in enumerate(options.methods):
            printed = paper.get((data, split, METHODS[method].printed or ""), {}).get(metrics[0])
            rows.append(
                {
                    "data": data, "partition": split_of(data, split).label, "split": split,
                    "method": METHODS[method].label, "seeds": options.seeds,
                    **_over({name: each[m, s] for name, each in values.items()}),
                    **_over({"lead": _lead(first)[m, s], "highest": won[m, s]}),
                    "paper": printed, "as_in_the_paper": options.is_the_papers(data),
                }
            )  # fmt: skip
    means = {name: np.nan_to_num(each).mean(1, keepdims=True) for name, each in values.items()}
    for m, method in enumerate(options.methods):
        rows.append(
            {
                "data": ALL, "partition": "", "split": "", "method": METHODS[method].label,
                "seeds": options.seeds, **_over({name: each[m, 0] for name, each in means.items()}),
                **_over({"lead": _lead(means[metrics[0]])[m, 0], "highest": won[m].mean(0)}),
                "paper": None, "as_in_the_paper": False,
            }
        )  # fmt: skip
    return rows


def _values(options: Tables, results: Results, settings: Sequence[tuple[str, str]], metric: str) -> Floats:
    """(methods, settings, seeds) a metric; NaN where it is undefined."""
    sign = -1.0 if options.reversed and metric.startswith("rho") else 1.0
    values = np.full((len(options.methods), len(settings), options.seeds), np.nan)
    for m, name in enumerate(options.methods):
        kind = METHODS[name]
        for s, setting in enumerate(settings):
            for k, seed in enumerate(options.all_seeds):
                value = results[SettingPoint(*setting, seed, kind.variant)]["methods"][kind.phase][metric]
                values[m, s, k] = np.nan if value is None else sign * value
    return values


def _lead(values: Floats) -> Floats:
    """(methods, settings, seeds) ahead of the best of the others; models that are all alike reward nothing,
    so an undefined correlation counts as 0. NaN if there is no other method."""
    known = np.nan_to_num(values)
    others = [np.delete(known, m, 0) for m in range(len(known))]
    best = [each.max(0) if len(each) else np.full(known.shape[1:], np.nan) for each in others]
    return np.asarray(known - np.array(best))


def _over(columns: Mapping[str, Floats]) -> Row:
    """Means over the seeds in which a value is defined, with standard errors; None where it never is."""
    row: Row = {}
    for name, each in columns.items():
        defined = each[~np.isnan(each.astype(np.float64))].astype(np.float64)
        alone = defined.size == 1 < each.size  # its error is not known
        mean = Estimate.over(defined.tolist()) if defined.size and not alone else None
        row[name] = None if mean is None else mean.value
        row[f"{name}_se"] = None if mean is None else mean.error
    return row


# What claims of these tables have in common


def own_row(rows: Sequence[Row], method: str = "IAFL") -> Row:
    """A method over all settings."""
    return only(rows, data=ALL, method=method)


def printed_checks(rows: Sequence[Row], metric: str, tolerance: float) -> list[Check]:
    """The paper's numbers of IAFL, where they were measured as the paper does."""
    return [
        printed(
            f"{COLUMNS[metric]} of IAFL, {row['data']}, {row['partition']}", estimate(row, metric),
            number(row, "paper"), tolerance,
        )
        for row in where(rows, method="IAFL", as_in_the_paper=True)
        if row["paper"] is not None
    ]  # fmt: skip


def highest_check(rows: Sequence[Row], metric: str) -> Check:
    """In as large a share of settings as in print, IAFL's number is the highest."""
    wins, settings = printed_wins(metric)
    what = f"share of settings in which IAFL's {COLUMNS[metric]} is the highest"
    what += f" (in print {wins} of {settings})"
    return at_least(what, estimate(own_row(rows), "highest"), wins / settings)


SMOKE: JSONObject = {
    "data": ("digits",), "partitions": ("quantity",), "clients": 5, "rounds": 5, "seeds": 1, "samples": 500,
    "learning_rate": 0.01, "batch_size": 32, "validation": 600, "ranking": 100,
}  # fmt: skip
QUICK: JSONObject = {
    "data": ("mnist", "fashion-mnist", "cifar10"), "clients": 10, "rounds": 15, "samples": 3000,
    "tested": 2000, "validation": 1000, "ranking": 500, "learning_rate": 0.003, "batch_size": 32,
}  # fmt: skip
