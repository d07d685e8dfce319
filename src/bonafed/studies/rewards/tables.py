"""Model rewards beside their baselines on MNIST and Fashion-MNIST (rewards paper, Tables 1, 2, 4, 5, 6).

A setting is a data set, a way to split it among clients and a seed; a run trains all methods of a setting.
First every client is alone: these models say what joining must beat, and their accuracies are the
contributions. All methods then start from the same model, with the same clients, batches and learning
rates.

What the paper says (section 6, appendix E.1) and is done here: 50 clients, the small CNN, standardised
pixels, 50 rounds of one local epoch, a learning rate of 0.01 that falls by 0.977 per round, kappa = 0 and
q = 0, LG-FedAvg shares the last three layers, p_i is the standalone accuracy on the TEST set. What it does
not say and is chosen here: batches of 64, Adam made anew each round, the ceiling max p_i, weights n_i/n in
the averages of the baselines, Gamma = 0.5 and beta = 1 of CGSV; feature noise is added to standardised
pixels; and some training samples are held out to validate on. Rank orders clients by the first `ranking`
of these, and on all of them contributions are measured a second time for rho, since the accuracy on the
test set that scores the models is in both sides of the correlation (theory D7). The paper gives 0.001 as
its learning rate where it says nothing else, so perhaps for Fashion-MNIST: `--learning-rate 0.001`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bonafed import checks
from bonafed.errors import InvalidValue
from bonafed.mechanisms.rewards.metrics import Scores, Summary, summarise
from bonafed.randomness import RewardsStudy, generator
from bonafed.sections import key, word
from bonafed.shown import Cell, Column, Document, JSONObject, Table, counted
from bonafed.studies.grid import (
    Grid,
    Results,
    Row,
    Study,
    StudyCell,
    contents,
    departures,
    report,
    several,
)
from bonafed.studies.rewards.printed import PERCENT, printed_scores

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bonafed.learning.datasets import Dataset


class Split(NamedTuple):
    """A way to split data, as the paper names it."""

    label: str
    kind: str  # a name in `learning.partition`
    options: dict[str, Any]


class Method(NamedTuple):
    """What is compared: a phase of a run."""

    label: str
    phase: str
    variant: str = ""  # of the run: a key of VARIANTS
    printed: str | None = None  # the column of the paper's tables


PARTITIONS = {
    "dirichlet": Split("Dir(0.5)", "label_dirichlet", {"beta": 0.5}),
    "classes": Split("#C = 3", "label_count", {"k": 3}),
    "noise": Split("N(0.1)", "feature_noise", {"sigma": 0.1}),
    "quantity": Split("quantity Dir(0.5)", "quantity_dirichlet", {"beta": 0.5}),
    "iid": Split("IID", "iid", {}),
}
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
ALONE = Method("standalone", "standalone")
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
    "rho_test": "rho, test",
    "rho_validation": "rho, validation",
    "average": "mean accuracy",
    "best": "best accuracy",
    "increase": "increase",
}


# The paper's numbers are for these, and stand beside no others. Fashion-MNIST goes by what it says of all
# data sets for which it says nothing else.
_PAPER: JSONObject = {"model": "small-cnn", "clients": 50, "rounds": 50, "decay": 0.977}
_RATES = {"mnist": 0.01, "fashion-mnist": 0.001}
_SEEDS = 10


def _name_of(choices: Mapping[str, Any]) -> Any:
    return several(lambda name, value: checks.one_of(name, str(value), tuple(choices)))


@dataclass(frozen=True)
class Tables(Grid):
    """Which settings and methods, and what all runs have in common."""

    data: tuple[str, ...] = key(several(word), ("mnist", "fashion-mnist"), help="Data sets.")
    partitions: tuple[str, ...] = key(
        _name_of(PARTITIONS), tuple(PARTITIONS), help="Of " + ", ".join(PARTITIONS) + "."
    )
    methods: tuple[str, ...] = key(_name_of(METHODS), TABLES, help="Of " + ", ".join(METHODS) + ".")
    model: str = key(word, "small-cnn", help="A model that bonafed knows.")
    clients: int = key(checks.whole, 50, help="N.")
    rounds: int = key(checks.whole, 50, help="T, one local epoch each.")
    batch_size: int = key(checks.whole, 64, help="Records of a step.")
    optimizer: str = key(word, "adam", help="A new one each round.")
    learning_rate: float = key(checks.positive, 0.01, help="Of the first round.")
    decay: float = key(checks.positive, 0.977, help="Factor on it per round.")
    validation: int = key(checks.whole, 5000, help="Training samples that are held out.")
    ranking: int = key(checks.whole, 500, help="Of those, how many Rank looks at in every round.")
    checkpoint_every: int = key(
        checks.whole, 5, help="Rounds between checkpoints, from which a stopped run resumes."
    )

    def _agree(self) -> None:
        if self.ranking > self.validation:
            raise InvalidValue("ranking", f"must be at most validation, {self.validation}", self.ranking)


class Place(NamedTuple):
    """Where a run stands in the grid."""

    data: str
    partition: str
    seed: int
    variant: str


def cells(options: Tables) -> dict[Place, StudyCell]:
    """The runs of all settings, one setting after the other."""
    variants = dict.fromkeys(METHODS[name].variant for name in options.methods)
    return {
        place: _cell(options, place)
        for seed in options.all_seeds
        for data in options.data
        for partition in options.partitions
        for variant in variants
        for place in (Place(data, partition, seed, variant),)
    }


def _cell(options: Tables, place: Place) -> StudyCell:
    methods = [METHODS[name] for name in options.methods if METHODS[name].variant == place.variant]
    baselines = [method.phase for method in methods if method.phase != "rewards"]
    name = f"rewards {place.data.rpartition('/')[2]}, {place.partition}, seed {place.seed}"
    tables = {
        "data": {"name": place.data},
        "partition": {"kind": "natural", "clients": options.clients},
        "model": {"name": options.model},
        "training": {
            "rounds": options.rounds,
            "batch_size": options.batch_size,
            "optimizer": options.optimizer,
            "learning_rate": options.learning_rate,
            "learning_rate_decay": options.decay,
        },
        "rewards": {
            "sharing": 0.0,
            "recovery": 0.0,
            "baselines": baselines,
            "validation": options.validation,
            "ranking": options.ranking,
            **VARIANTS[place.variant],
        },
        "run": {
            "seed": place.seed,
            "evaluate_every": options.rounds,
            "checkpoint_every": options.checkpoint_every,
            "cores": options.cores,
        },
    }
    return StudyCell(
        f"{name}, {place.variant}" if place.variant else name,
        [place.partition, contents(place.data)],
        tables,
        dataset=lambda: federation(
            place.data, place.partition, options.clients, place.seed, options.validation
        ),
    )


@lru_cache(maxsize=1)
def federation(data: str, split: str, clients: int, seed: int, validation: int) -> Dataset:
    """Hold out, split, standardise, perhaps add noise; the samples held out follow the test samples."""
    from bonafed.learning import datasets
    from bonafed.learning.partition import add_feature_noise, feature_noise_levels, owners, partition

    whole = datasets.load(data)
    if validation >= len(whole.labels):
        raise InvalidValue("validation", f"must be below {len(whole.labels)} samples", validation)
    order = generator(seed, RewardsStudy.VALIDATION).permutation(len(whole.labels))
    reserved, training_rows = np.sort(order[:validation]), np.sort(order[validation:])
    _, kind, options = PARTITIONS[split]
    labels, train = whole.labels[training_rows], whole.features[training_rows]
    parts = partition(kind, labels, clients, generator(seed, RewardsStudy.PARTITION), **options)
    mean, sd = (np.float32(value) for value in (train.mean(dtype=np.float64), train.std(dtype=np.float64)))
    train = (train - mean) / sd
    if kind == "feature_noise":
        levels = feature_noise_levels(clients, **options)
        train = add_feature_noise(train, parts, levels, generator(seed, RewardsStudy.FEATURE_NOISE))
    return replace(
        whole,
        features=train,
        labels=labels,
        test_features=(np.concatenate([whole.test_features, whole.features[reserved]]) - mean) / sd,
        test_labels=np.concatenate([whole.test_labels, whole.labels[reserved]]),
        groups=owners(parts),
    )


class Measurement(NamedTuple):
    """A method in a setting, over all seeds."""

    data: str
    partition: str
    method: str  # a key of METHODS, or "standalone"
    label: str
    scores: dict[str, Summary]  # by the names in COLUMNS
    printed: Mapping[str, float]  # by the same names; empty where the paper has none


def measure(options: Tables, results: Results) -> list[Measurement]:
    """By setting and method."""
    paper, rows = {} if departures(options, _PAPER) else printed_scores(), []
    first = next(iter(results)).variant  # clients alone are the same in all of them
    for data in options.data:
        for split in options.partitions:
            for name in ("standalone", *options.methods):
                method = METHODS.get(name, ALONE)
                variant = method.variant if name in METHODS else first
                runs = [results[Place(data, split, seed, variant)] for seed in options.all_seeds]
                scores = summarise([_scores(run, method) for run in runs])
                printed = paper.get((data, split, method.printed or ""), {})
                rows.append(Measurement(data, split, name, method.label, scores, printed))
    return rows


def _scores(run: JSONObject, method: Method) -> Scores:
    facts = run["statement"]["facts"]
    if method is not ALONE:
        return Scores(**facts["methods"][method.phase])
    alone = np.array(facts["accuracies"]["standalone"])
    return Scores(1.0, 1.0, None, None, float(alone.mean()), float(alone.max()), 0.0)


def tables(rows: Sequence[Measurement], learning_rate: float) -> list[Table]:
    """One for each data set; "ours / the paper's" where the paper has a number for this setting."""
    head = ("partition", "method", *COLUMNS.values())
    columns = tuple(Column(name, left=name in head[:2]) for name in head)
    return [
        Table(
            f"{data}, learning rate {learning_rate:g}: {_measured(rows, data)}",
            columns,
            tuple(
                (PARTITIONS[row.partition].label, row.label, *(_beside(row, name) for name in COLUMNS))
                for row in rows
                if row.data == data
            ),
            _caption(rows, data, learning_rate),
        )
        for data in dict.fromkeys(row.data for row in rows)
    ]


def _is_beside(rows: Sequence[Measurement], data: str) -> bool:
    """Whether a number of the paper is in the table of a data set."""
    return any(row.printed for row in rows if row.data == data)


def _measured(rows: Sequence[Measurement], data: str) -> str:
    return "measured / paper" if _is_beside(rows, data) else "measured"


def _caption(rows: Sequence[Measurement], data: str, learning_rate: float) -> str:
    """What the paper's numbers are of, where these are of something else."""
    if not _is_beside(rows, data):
        return ""
    seeds = rows[0].scores["average"].seeds
    parts = [f"the paper's are means over {_SEEDS} seeds"] if seeds != _SEEDS else []
    if learning_rate != _RATES[data]:
        parts.append(f"its learning rate is {_RATES[data]:g}")
    return "; ".join([f"measured with {counted(seeds, 'seed')}", *parts]) if parts else ""


def _beside(row: Measurement, name: str) -> str:
    """ "0.98 / 1.00", accuracies in percent."""
    ours, theirs = row.scores[name], row.printed.get(name)
    if row.method == "standalone" and name not in ("average", "best"):
        return ""  # compared with itself
    scale, digits = (100, 1) if name in PERCENT else (1, 2)
    text = "undefined" if ours.mean is None else f"{scale * ours.mean:.{digits}f}"
    if ours.error is not None:
        text += f" ± {scale * ours.error:.{digits}f}"
    if 0 < ours.defined < ours.seeds:
        text += f" ({ours.defined} of {ours.seeds} seeds)"
    if theirs is None:
        return text
    return f"{text} / {scale * theirs:.{0 if name in ('average', 'best') else digits}f}"


def _plain(row: Measurement, learning_rate: float) -> Row:
    """A line of the CSV; empty where a number is undefined or not in the paper."""
    numbers: dict[str, Cell] = {}
    for name in COLUMNS:
        ours = row.scores[name]
        numbers |= {name: ours.mean, f"{name}_error": ours.error, f"{name}_paper": row.printed.get(name)}
    return {
        "data": row.data,
        "partition": row.partition,
        "method": row.method,
        "learning_rate": learning_rate,
        "seeds": row.scores["average"].seeds,
        **numbers,
    }


def figure(options: Tables, results: Results) -> Figure:
    """Accuracy with the federation over accuracy alone: a panel per setting, a dot per client."""
    from bonafed.style import COLOURS, sheet

    rows, columns = len(options.data), len(options.partitions)
    picture = sheet(3.4 * columns, 0.4 + 3.4 * rows)
    panels = picture.subplots(rows, columns, squeeze=False)
    for place, run in results.items():
        at = options.data.index(place.data), options.partitions.index(place.partition)
        axes, accuracies = panels[at], run["statement"]["facts"]["accuracies"]
        alone = 100 * np.array(accuracies["standalone"])
        for k, name in enumerate(options.methods):
            method = METHODS[name]
            if method.variant == place.variant:
                together = 100 * np.array(accuracies[method.phase])
                colour = COLOURS[k % len(COLOURS)]
                axes.scatter(alone, together, s=9, color=colour, alpha=0.7, lw=0, label=method.label)
        ends = np.array([alone.min(), alone.max()])
        axes.plot(ends, ends, color="black", lw=0.8, ls=":")  # below it, joining did not pay
        axes.set_title(PARTITIONS[place.partition].label)
    for axes, data in zip(panels[:, 0], options.data, strict=True):
        axes.set_ylabel(f"{data}: accuracy together, %")
    for axes in panels[-1]:
        axes.set_xlabel("accuracy alone, %")
    handles: dict[str, Any] = {}
    for axes in panels.flat:
        handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    names = list(handles)
    picture.legend(
        [handles[name] for name in names],
        names,
        loc="outside lower center",
        ncols=len(names),
        frameon=False,
    )
    return picture


def _show(options: Tables, results: Results) -> Document:
    rows = measure(options, results)
    seconds = sum(run["seconds"] for run in results.values())
    return report(
        "Model rewards",
        [_plain(row, options.learning_rate) for row in rows],
        lambda: figure(options, results),
        tables=tables(rows, options.learning_rate),
        notes=(f"{len(results)} runs, {seconds / 60:,.0f} minutes of training.",),
    )


STUDY = Study(
    "Model rewards beside their baselines (rewards paper, tables 1, 2, 4, 5 and 6)",
    Tables,
    _show,
    cells,
    details="A run trains every client alone, then all methods of a setting, and can be stopped at any "
    "moment. All of it takes hours.",
    paper=_PAPER,
    example="bonafed reproduce rewards --data digits --clients 4 --rounds 3 --validation 1000 "
    "--ranking 60 --partitions iid",
)
