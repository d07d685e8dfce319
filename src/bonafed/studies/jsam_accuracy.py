"""Test accuracy against money for JSAM and its baselines, trained (paper VI-C, Figure 6, Tables II, III).

A cell is one training run: a scheme, a sum of money, a data similarity s and a seed. The seed fixes the
partition, the clients' costs, the schedule's coins and the noise, so that the schemes of one seed face the
same clients. Every scheme buys as much privacy as the payments for these costs allow (`eta_for_budget`), so
money is what is actually paid and equal for all, but for the small jumps where one more client comes in.
Q is made of its ingredients, the records per release among them, unless it is given; `max_epsilon` caps
what is bought from one client.

Clients take one step on the clipped gradient of all their records, with noise of sensitivity 2C/M; learning
rate and clip are the same for every scheme. Noise comes from the seed, so that a cell can be repeated: the
epsilon of such a run protects nobody. Each finished cell is a line of a file; a study that is stopped
goes on where it was, and other settings in the same file are left alone.

    python -m bonafed.lab.jsam_accuracy --data mnist --similarity 0 100 --rounds 200 --max-epsilon 5
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from bonafed import checks
from bonafed.checks import Floats
from bonafed.economics.priors import Uniform
from bonafed.files import require_writable, write_together
from bonafed.lab.results import append_result, read_results, run_command
from bonafed.learning.privacy import Ledger
from bonafed.mechanisms.jsam import noise_scale
from bonafed.mechanisms.jsam import schemes as jsam
from bonafed.randomness import numbered_generator

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bonafed.learning.datasets import Dataset

NAMES = {
    "jsam": "JSAM",
    "unbiased": "USBM",
    "cheapest": "FSBM",
    "complete information": "JSAM-CI",
    "largest losses": "BBM",
}
OnCell = Callable[["Cell", "Outcome", int, int], None]  # with how many are done, and of how many


@dataclass(frozen=True)
class Cell:
    """One training run; everything its result depends on."""

    scheme: str
    money: float  # payments to all clients together, at most
    similarity: float  # s, percent of the data spread uniformly
    seed: int  # of partition, costs, schedule and noise
    data: str = "mnist"
    model: str = "softmax"
    clients: int = 100  # N
    clients_per_round: int = 10  # m
    rounds: int = 200  # T
    learning_rate: float = 1.0
    clip: float = 1.0  # C
    delta: float = 1e-5
    noise_scale: float | None = None  # Q; None: made of its ingredients
    members: int | None = None  # M of "cheapest" and "largest losses"
    smoothness: float = 0.5  # L, an ingredient of Q
    max_epsilon: float | None = None  # the most that is bought from one client; None: no limit

    def __post_init__(self) -> None:
        checks.literal("scheme", self.scheme, jsam.Scheme)
        for name in ("money", "learning_rate", "clip", "delta", "smoothness"):
            checks.positive(name, getattr(self, name))
        for name in ("noise_scale", "max_epsilon"):
            if getattr(self, name) is not None:
                checks.positive(name, getattr(self, name))
        for name in ("clients", "clients_per_round", "rounds"):
            checks.whole(name, getattr(self, name))
        checks.between("similarity", self.similarity, 0, 100)
        checks.seed("seed", self.seed)


@dataclass(frozen=True)
class Outcome:
    """What a cell came to."""

    accuracy: float  # of the last model, on the test samples
    loss: float  # on the test samples
    spend: float  # money paid
    selected: int  # h: clients with a positive selection probability
    largest_selection: float  # probability of the client drawn most
    epsilon_ratio: float  # largest of epsilon given away, by the ledger, over epsilon sold; at most 1
    seconds: float
    largest_epsilon: float | None = None  # sold by a client; not in files of earlier versions
    noise_scale: float | None = None  # Q, given or made; likewise


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
    epsilon: float  # the largest that a client sold at any seed; NaN if not known
    gain: float  # mean accuracy minus that of "unbiased" at the same seed; NaN without it
    gain_sd: float


def cells(
    base: Cell,
    *,
    schemes: Sequence[str] = ("jsam", "unbiased"),
    money: Sequence[float] = (1.0, 3.0, 10.0, 30.0, 500.0),
    similarity: Sequence[float] = (0.0, 100.0),
    seeds: int = 3,
) -> list[Cell]:
    """All combinations with the other settings of `base`, seed by seed."""
    wanted = range(checks.whole("seeds", seeds))
    return [
        replace(
            base,
            scheme=scheme,
            money=float(amount),
            similarity=float(s),
            seed=seed,
            members=base.members if scheme in jsam.WITH_MEMBERS else None,
        )
        for seed in wanted
        for s in similarity
        for amount in money
        for scheme in schemes
    ]


def run_cell(cell: Cell, dataset: Dataset, cores: int = 1) -> Outcome:
    """Buy, draw, train, measure."""
    import torch

    from bonafed.learning import models
    from bonafed.learning.engine.crew import Crew
    from bonafed.learning.engine.jobs import Samples
    from bonafed.learning.engine.programs import flat_parameters, program_for
    from bonafed.learning.evaluate import evaluate
    from bonafed.learning.federation import run_round
    from bonafed.learning.noise import Reproducible
    from bonafed.learning.partition import partition
    from bonafed.learning.work import LocalTraining

    began = time.perf_counter()
    rng = numbered_generator(cell.seed, round(1000 * cell.similarity))
    parts = partition("similarity", dataset.labels, cell.clients, rng, s=cell.similarity)
    shape = dataset.features.shape[1:]
    module = models.build(cell.model, shape, dataset.classes, cell.seed, dataset.vocabulary)
    program, weights = program_for(module, "cross-entropy"), flat_parameters(module)
    samples = Samples(torch.tensor(dataset.features), torch.tensor(dataset.labels))
    losses = None
    if cell.scheme == "largest losses":
        x, y = samples.features, samples.labels
        losses = [evaluate(program, weights, Samples(x[part], y[part]))[0] for part in parts]
    records = min(part.size for part in parts)
    terms = _terms(cell, losses, program.size, records)
    noise = jsam.noise_multipliers(terms, cell.delta)
    everything = max(part.size for part in parts)  # a batch holds all that a client has
    spec = LocalTraining(everything, cell.learning_rate, epochs=None, steps=1, clip=cell.clip)
    ledger = Ledger()
    with Crew(program, samples, cores) as crew:
        for number in range(1, cell.rounds + 1):
            who = jsam.participation(terms, number)
            done = run_round(
                program, weights, samples, parts, who, spec, seed=cell.seed, round_number=number,
                noise_multipliers=noise, noise=Reproducible(cell.seed), crew=crew,
            )  # fmt: skip
            weights, ledger = done.weights, ledger.add(done.releases)
    test = Samples(torch.tensor(dataset.test_features), torch.tensor(dataset.test_labels))
    loss, accuracy = evaluate(program, weights, test)
    plan = terms.settlement.allocation
    with np.errstate(divide="ignore"):  # on the way of the root search, to minus infinity
        ratio = max(ledger.epsilon(k, cell.delta) / float(plan.privacy[k]) for k in ledger.clients)
    return Outcome(
        accuracy=accuracy,
        loss=loss,
        spend=terms.spend,
        selected=plan.threshold,
        largest_selection=float(plan.selection.max()),
        epsilon_ratio=ratio,
        seconds=round(time.perf_counter() - began, 3),
        largest_epsilon=float(plan.privacy.max()),
        noise_scale=terms.noise_scale,
    )


def _terms(cell: Cell, losses: Sequence[float] | None, dimension: int, records: int) -> jsam.PrivacyTerms:
    """What the money buys under the scheme, and the schedule; a release averages `records` or more."""
    scale = cell.noise_scale
    if scale is None:
        scale = noise_scale(cell.delta, dimension, cell.rounds, cell.smoothness, records)
    prior = Uniform(0.0, 1.0)
    costs = jsam.draw_costs(prior, cell.clients, cell.seed)
    scheme = cast(jsam.Scheme, cell.scheme)
    settlement = jsam.settle_scheme(
        prior, costs, scale, scheme, budget=cell.money, members=cell.members, losses=losses,
        max_epsilon=cell.max_epsilon,
    )  # fmt: skip
    selection = settlement.allocation.selection
    schedule = jsam.draw_schedule(selection, cell.rounds, cell.clients_per_round, cell.seed)
    return jsam.PrivacyTerms(settlement, schedule, scale, records if cell.noise_scale is None else None)


def study(
    wanted: Sequence[Cell], results: Path, *, cores: int = 1, on_cell: OnCell | None = None
) -> dict[Cell, Outcome]:
    """The outcome of every cell; those in `results` are read, the others trained and added to it."""
    known = read_cells(results)
    done = {cell: known[cell] for cell in wanted if cell in known}
    dataset: Dataset | None = None
    for cell in wanted:
        if cell in done:
            continue
        if dataset is None or dataset.name != cell.data:
            from bonafed.learning import datasets

            dataset = datasets.load(cell.data)
        done[cell] = run_cell(cell, dataset, cores)
        append_result(results, asdict(cell), asdict(done[cell]))
        if on_cell is not None:
            on_cell(cell, done[cell], len(done), len(wanted))
    return {cell: done[cell] for cell in wanted}


def read_cells(path: Path) -> dict[Cell, Outcome]:
    """The finished cells of a file."""
    return read_results(path, lambda cell, outcome: (Cell(**cell), Outcome(**outcome)))


def points(outcomes: dict[Cell, Outcome]) -> list[Point]:
    """Means over the seeds, by similarity, money and scheme in the order of the cells."""
    groups: dict[tuple[float, float, str], list[Cell]] = {}
    for cell in outcomes:
        groups.setdefault((cell.similarity, cell.money, cell.scheme), []).append(cell)
    return [_point(members, outcomes) for members in groups.values()]


def _point(members: list[Cell], outcomes: dict[Cell, Outcome]) -> Point:
    first = members[0]
    beside = [replace(cell, scheme="unbiased", members=None) for cell in members]
    accuracy = np.array([outcomes[cell].accuracy for cell in members])
    other = np.array([outcomes[c].accuracy if c in outcomes else np.nan for c in beside])
    gain = accuracy - other
    epsilon = [outcomes[cell].largest_epsilon for cell in members]
    return Point(
        first.scheme,
        first.money,
        first.similarity,
        len(members),
        float(accuracy.mean()),
        _sd(accuracy),
        float(np.mean([outcomes[cell].selected for cell in members])),
        float(np.mean([outcomes[cell].spend for cell in members])),
        max(math.nan if sold is None else sold for sold in epsilon),
        float(gain.mean()),
        _sd(gain),
    )


def _sd(values: Floats) -> float:
    return float(values.std(ddof=1)) if values.size > 1 else 0.0


def table(found: Sequence[Point]) -> str:
    """Markdown: a row for each similarity and money, a column for each scheme; mean and sd in percent.

    In brackets the mean number of clients selected, and the largest epsilon that one of them sold.
    """
    schemes = list(dict.fromkeys(point.scheme for point in found))
    at = {(p.similarity, p.money, p.scheme): p for p in found}
    others = [scheme for scheme in schemes if scheme != "unbiased" and "unbiased" in schemes]
    head = ["s", "money", *(f"{NAMES[scheme]} (clients, epsilon)" for scheme in schemes)]
    head += [f"{NAMES[scheme]} - USBM" for scheme in others]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for s, money in dict.fromkeys((p.similarity, p.money) for p in found):
        row = [at.get((s, money, scheme)) for scheme in schemes]
        cells = [f"{s:g}", f"{money:g}"]
        cells += [_accuracy(p) for p in row]
        cells += [_gain(at.get((s, money, scheme))) for scheme in others]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _accuracy(point: Point | None) -> str:
    if point is None:
        return ""
    brackets = f"({point.selected:.0f}, {point.epsilon:.2g})"
    return f"{100 * point.accuracy:.1f} ± {100 * point.sd:.1f} {brackets}"


def _gain(point: Point | None) -> str:
    if point is None or np.isnan(point.gain):
        return ""
    return f"{100 * point.gain:+.1f} ± {100 * point.gain_sd:.1f}"


def figure(found: Sequence[Point]) -> Figure:
    """Accuracy over money, a panel for each similarity, bars of one sd over the seeds."""
    from bonafed.style import BLUE, GREEN, GREY, RED, sheet

    colours = {
        "jsam": BLUE,
        "unbiased": RED,
        "cheapest": GREEN,
        "complete information": "black",
        "largest losses": GREY,
    }
    levels = sorted({point.similarity for point in found}, reverse=True)
    drawn = sheet(4.4 * len(levels), 3.6)
    panels = drawn.subplots(1, len(levels), sharey=True, squeeze=False)[0]
    for axes, s in zip(panels, levels, strict=True):
        for scheme in dict.fromkeys(point.scheme for point in found):
            mine = sorted(
                (p for p in found if (p.scheme, p.similarity) == (scheme, s)), key=lambda p: p.money
            )
            x, y, sd = ([getattr(p, name) for p in mine] for name in ("spend", "accuracy", "sd"))
            axes.errorbar(
                x, y, sd, color=colours[scheme], lw=1.6, capsize=2, marker="o", ms=3, label=NAMES[scheme]
            )
        axes.set(xscale="log", xlabel="money paid", title=f"s = {s:g} %")
    panels[0].set_ylabel("test accuracy")
    panels[0].legend(frameon=False, fontsize=8)
    return drawn


def main(words: Sequence[str] | None = None) -> int:
    """The command line; 0 if all went well."""
    given = _parser().parse_args(words)
    return run_command(lambda: _main(given), given.results)


def _main(given: argparse.Namespace) -> None:
    settings = {
        name: getattr(given, name)
        for name in (
            "data", "model", "clients", "clients_per_round", "rounds", "learning_rate", "clip", "delta",
            "noise_scale", "members", "smoothness", "max_epsilon",
        )
    }  # fmt: skip
    base = Cell("jsam", 1.0, 0.0, 0, **settings)
    wanted = cells(
        base, schemes=given.schemes, money=given.money, similarity=given.similarity, seeds=given.seeds
    )
    for path in filter(None, (given.results, given.plot)):
        require_writable(path)
    known = read_cells(given.results)
    began, found_before = time.monotonic(), sum(cell in known for cell in wanted)

    def say(cell: Cell, outcome: Outcome, done: int, of: int) -> None:
        left = (time.monotonic() - began) / (done - found_before) * (of - done)
        print(
            f"{done}/{of}  s {cell.similarity:g}, money {cell.money:g}, {NAMES[cell.scheme]}, "
            f"seed {cell.seed}: accuracy {outcome.accuracy:.2%}, {outcome.selected} clients; "
            f"{left / 60:.0f} min left",
            file=sys.stderr,
            flush=True,
        )

    found = points(study(wanted, given.results, cores=given.cores, on_cell=say))
    print(table(found), end="")
    if given.plot is not None:
        from bonafed.style import render

        write_together({given.plot: render(figure(found), given.plot)})


def _parser() -> argparse.ArgumentParser:
    form = argparse.ArgumentDefaultsHelpFormatter
    parser = argparse.ArgumentParser("python -m bonafed.lab.jsam_accuracy", formatter_class=form)
    for name, kind in (("schemes", str), ("money", float), ("similarity", float)):
        default = {"schemes": ["jsam", "unbiased"], "money": [1.0, 3.0, 10.0, 30.0, 500.0]}
        parser.add_argument(f"--{name}", type=kind, nargs="+", default=default.get(name, [0.0, 100.0]))
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    for item in ("data", "model"):
        parser.add_argument(f"--{item}", default=getattr(Cell, item))
    for item in ("clients", "clients_per_round", "rounds"):
        parser.add_argument(f"--{item.replace('_', '-')}", type=int, default=getattr(Cell, item))
    for item in ("learning_rate", "clip", "delta"):
        parser.add_argument(f"--{item.replace('_', '-')}", type=float, default=getattr(Cell, item))
    ways = parser.add_mutually_exclusive_group()
    ways.add_argument("--smoothness", type=float, default=Cell.smoothness, help="L, of which Q is made")
    ways.add_argument("--noise-scale", type=float, help="Q itself, with (2/M)^2 in it")
    parser.add_argument("--max-epsilon", type=float, help="the most that is bought from one client")
    parser.add_argument("--members", type=int, help="of cheapest and largest losses")
    parser.add_argument("--results", type=Path, default=Path("jsam_accuracy.jsonl"), help="finished cells")
    parser.add_argument("--plot", type=Path, help="figure to write: .png, .svg or .pdf")
    parser.add_argument("--cores", type=int, default=1)
    return parser


if __name__ == "__main__":
    sys.exit(main())
