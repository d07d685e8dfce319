"""Test accuracy against money for JSAM and its baselines, trained (paper VI-C, Figure 6, Tables II, III).

A cell is a run: a scheme, a sum of money, a data similarity s and a seed. The seed fixes the partition, the
clients' costs, the schedule's coins and the noise, so that the schemes of one seed face the same clients.
Every scheme buys as much privacy as the payments for these costs allow, so money is what is actually paid
and equal for all, but for the small jumps where one more client comes in. Q is made of its ingredients, the
records per release among them, unless it is given; `max_epsilon` caps what is bought from one client.

Clients take one step on the clipped gradient of all their records, with noise of sensitivity 2C/M; learning
rate and clip are the same for every scheme. Noise comes from the seed, so that a cell can be repeated: the
epsilon of such a run protects nobody.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from bonafed import checks
from bonafed.mechanisms.jsam.schemes import LARGEST_LOSSES, WITH_MEMBERS, Scheme
from bonafed.randomness import numbered_generator
from bonafed.sections import key, one_of, word
from bonafed.shown import Column, Document, JSONObject, Table
from bonafed.studies.grid import Grid, Results, Study, StudyCell, average, contents, report, several

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bonafed.learning.datasets import Dataset

NAMES = {
    "jsam": "JSAM",
    "unbiased": "USBM",
    "cheapest": "FSBM",
    "complete information": "JSAM-CI",
    LARGEST_LOSSES: "BBM",
}
_ALL = 1_000_000  # a batch holds all records of a client
_DECIMALS = 9  # money is hardly rounded, so that all of it is spent


@dataclass(frozen=True)
class Accuracy(Grid):
    """The grid, and what all its runs have in common."""

    data: str = key(word, "mnist", help="A data set of images, or your own .npz or .csv file.")
    seeds: int = key(checks.whole, 3, help="How many seeds to average over.")
    schemes: tuple[str, ...] = key(
        several(one_of(Scheme)), ("jsam", "unbiased"), help="Of " + ", ".join(NAMES) + "."
    )
    money: tuple[float, ...] = key(
        several(checks.positive), (1.0, 3.0, 10.0, 30.0, 500.0), help="Payments to all clients together."
    )
    similarity: tuple[float, ...] = key(
        several(lambda name, value: checks.between(name, value, 0, 100)),
        (0.0, 100.0),
        help="s, percent of the data that are spread uniformly.",
    )
    model: str = key(word, "softmax", help="A model that bonafed knows.")
    clients: int = key(checks.whole, 100, help="N.")
    clients_per_round: int = key(checks.whole, 10, help="m.")
    rounds: int = key(checks.whole, 200, help="T.")
    learning_rate: float = key(checks.positive, 1.0, help="The same for every scheme.")
    clip: float = key(checks.positive, 1.0, help="C, largest norm of one record's gradient.")
    delta: float = key(checks.positive, 1e-5, help="Of differential privacy.")
    smoothness: float = key(checks.positive, 0.5, help="L, from which Q follows unless it is given.")
    noise_scale: float | None = key(checks.positive, None, help="Q itself, with (2/M)^2 in it.")
    max_epsilon: float | None = key(checks.positive, None, help="The most that is bought from one client.")
    members: int | None = key(checks.whole, None, help="M of cheapest and largest losses.")


class Place(NamedTuple):
    """Where a cell stands in the grid."""

    scheme: str
    money: float  # payments to all clients together, at most
    similarity: float  # s
    seed: int


def cells(options: Accuracy) -> dict[Place, StudyCell]:
    """All combinations, seed by seed."""
    places = [
        Place(scheme, money, s, seed)
        for seed in options.all_seeds
        for s in options.similarity
        for money in options.money
        for scheme in options.schemes
    ]
    return {place: _cell(options, place) for place in places}


def _cell(options: Accuracy, place: Place) -> StudyCell:
    name = f"s {place.similarity:g}, money {place.money:g}, {NAMES[place.scheme]}, seed {place.seed}"
    own: JSONObject = {
        "prior": "uniform:0,1",
        "scheme": place.scheme,
        "budget": place.money,
        "cost_seed": place.seed,
        "clip": options.clip,
        "delta": options.delta,
        "clients_per_round": options.clients_per_round,
        "decimals": _DECIMALS,
        "noise": "reproducible",
        "clear_losses": place.scheme == LARGEST_LOSSES,
    }
    if options.noise_scale is None:
        own["smoothness"] = options.smoothness
    else:
        own["noise_scale"] = options.noise_scale
    if options.max_epsilon is not None:
        own["max_epsilon"] = options.max_epsilon
    if place.scheme in WITH_MEMBERS:
        own["members"] = options.members
    tables = {
        "data": {"name": options.data},
        "partition": {"kind": "natural", "clients": options.clients},
        "model": {"name": options.model},
        "training": {
            "rounds": options.rounds,
            "learning_rate": options.learning_rate,
            "batch_size": _ALL,
            "steps": 1,
        },
        "jsam": own,
        "run": {
            "seed": place.seed,
            "evaluate_every": options.rounds,
            "checkpoint_every": options.rounds,
            "cores": options.cores,
        },
    }
    return StudyCell(
        f"jsam {name}",
        [place.similarity, contents(options.data)],
        tables,
        dataset=lambda: _with_owners(options.data, options.clients, place.similarity, place.seed),
    )


@lru_cache(maxsize=1)
def _with_owners(data: str, clients: int, similarity: float, seed: int) -> Dataset:
    """The data with owners; the same ones for all schemes and sums of money."""
    from bonafed.learning import datasets
    from bonafed.learning.partition import owners, partition

    whole = datasets.load(data)
    rng = numbered_generator(seed, round(1000 * similarity))
    return replace(whole, groups=owners(partition("similarity", whole.labels, clients, rng, s=similarity)))


@dataclass(frozen=True)
class Point:
    """The cells of one scheme, money and similarity, over the seeds."""

    scheme: str
    money: float
    similarity: float
    seeds: int
    accuracy: float  # mean
    sd: float  # of the accuracy; 0 for one seed
    selected: float  # mean number of clients
    spend: float  # mean
    epsilon: float  # the largest that a client sold at any seed
    gain: float  # mean accuracy minus that of "unbiased" at the same seed; NaN without it
    gain_sd: float


def points(results: Results) -> list[Point]:
    """Means over the seeds, by similarity, money and scheme in the order of the cells."""
    groups: dict[tuple[float, float, str], list[Place]] = {}
    for place in results:
        groups.setdefault((place.similarity, place.money, place.scheme), []).append(place)
    return [_point(members, results) for members in groups.values()]


def _point(members: Sequence[Place], results: Results) -> Point:
    def of(place: Place) -> float:
        return float(results[place]["test_accuracy"]) if place in results else math.nan

    accuracy = np.array([of(place) for place in members])
    gain = accuracy - np.array([of(place._replace(scheme="unbiased")) for place in members])
    facts = [results[place]["statement"]["facts"] for place in members]
    mean, mean_gain, first = average(accuracy), average(gain), members[0]
    return Point(
        first.scheme,
        first.money,
        first.similarity,
        len(members),
        float(mean.mean),
        float(mean.sd),
        float(np.mean([fact["clients_selected"] for fact in facts])),
        float(np.mean([results[place]["spend"] for place in members])),
        max(max(fact["epsilon_sold"]) for fact in facts),
        float(mean_gain.mean),
        float(mean_gain.sd),
    )


def table(averages: Sequence[Point]) -> Table:
    """A row for each similarity and money, a column for each scheme; mean and sd in percent.

    In brackets the mean number of clients selected, and the largest epsilon that one of them sold.
    """
    schemes = list(dict.fromkeys(point.scheme for point in averages))
    at = {(p.similarity, p.money, p.scheme): p for p in averages}
    others = [scheme for scheme in schemes if scheme != "unbiased" and "unbiased" in schemes]
    head = ["s", "money", *(f"{NAMES[scheme]} (clients, epsilon)" for scheme in schemes)]
    head += [f"{NAMES[scheme]} - USBM" for scheme in others]
    rows = []
    for s, money in dict.fromkeys((p.similarity, p.money) for p in averages):
        here = {scheme: at[s, money, scheme] for scheme in schemes}
        row = [_accuracy(here[scheme]) for scheme in schemes] + [_gain(here[scheme]) for scheme in others]
        rows.append((f"{s:g}", f"{money:g}", *row))
    return Table("Test accuracy in percent", tuple(Column(name) for name in head), tuple(rows))


def _accuracy(point: Point) -> str:
    brackets = f"({point.selected:.0f}, {point.epsilon:.2g})"
    return f"{100 * point.accuracy:.1f} ± {100 * point.sd:.1f} {brackets}"


def _gain(point: Point) -> str:
    return f"{100 * point.gain:+.1f} ± {100 * point.gain_sd:.1f}"


def figure(averages: Sequence[Point]) -> Figure:
    """Accuracy over money, a panel for each similarity, bars of one sd over the seeds."""
    from bonafed.style import BLUE, GREEN, GREY, RED, sheet

    colours = dict(zip(NAMES, (BLUE, RED, GREEN, "black", GREY), strict=True))
    levels = sorted({point.similarity for point in averages}, reverse=True)
    picture = sheet(4.4 * len(levels), 3.6)
    panels = picture.subplots(1, len(levels), sharey=True, squeeze=False)[0]
    for axes, s in zip(panels, levels, strict=True):
        for scheme in dict.fromkeys(point.scheme for point in averages):
            mine = [p for p in averages if (p.scheme, p.similarity) == (scheme, s)]
            mine.sort(key=lambda p: p.money)
            x, y, sd = ([getattr(p, name) for p in mine] for name in ("spend", "accuracy", "sd"))
            axes.errorbar(
                x, y, sd, color=colours[scheme], lw=1.6, capsize=2, marker="o", ms=3, label=NAMES[scheme]
            )
        axes.set(xscale="log", xlabel="money paid", title=f"s = {s:g} %")
    panels[0].set_ylabel("test accuracy")
    panels[0].legend(frameon=False, fontsize=8)
    return picture


def _show(_: Accuracy, results: Results) -> Document:
    averages = points(results)
    ratio = max(result["statement"]["facts"]["largest_epsilon_ratio"] for result in results.values())
    note = f"Nobody gave away more than {ratio:.6g} of the epsilon it sold, by the ledger."
    overview = table(averages)
    rows: list[Any] = [vars(point) for point in averages]
    return report(overview.title, rows, lambda: figure(averages), tables=overview, notes=(note,))


# section VI-A of the paper; its CNN has two convolutions and two full layers
_PAPER: JSONObject = {
    "data": "mnist", "model": "a CNN", "clients": 100, "clients_per_round": 10, "rounds": 1000, "clip": 6.0,
    "delta": 1e-5,
}  # fmt: skip

STUDY = Study(
    "Accuracy against money, trained with the privacy that is bought (JSAM paper, figure 6)",
    Accuracy,
    _show,
    cells,
    example="bonafed reproduce jsam-accuracy --data digits --clients 10 --clients-per-round 5 --rounds 30 "
    "--learning-rate 2 --max-epsilon 5",
    paper=_PAPER,
)
