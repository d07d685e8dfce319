"""One federation under several reward rules: the runs and rows of figures 1, 2 and 4 of the rewards paper.

The paper has CIFAR-100 with a ResNet-18, quantity skew, 50 clients and 100 rounds with a learning rate of
0.005 that falls by 0.988 per round. It does not say what `tables` lists, nor which coefficients kappa and
rates q its figures show besides those in its text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bonafed.checks import Floats
from bonafed.mechanisms.rewards.section import unit
from bonafed.papers.cells import Cell
from bonafed.papers.claim import Results, Row, over_seeds
from bonafed.papers.rewards.federations import Place, setting_cell
from bonafed.papers.rewards.tables import QUICK, SMOKE, Federated, several
from bonafed.presentation.documents import JSONObject
from bonafed.sections import Check as Rule
from bonafed.sections import flag, key

PAPER: JSONObject = {
    "data": ("cifar100",), "partitions": ("quantity",), "model": "resnet18", "rounds": 100,
    "learning_rate": 0.005, "decay": 0.988, "seeds": 10,
}  # fmt: skip
SHORTER: JSONObject = {**QUICK, "data": ("cifar10",), "partitions": ("quantity",)}
SMALLER: JSONObject = SMOKE
Variants = Mapping[Any, Mapping[str, Any]]  # tables [rewards] by what is varied


def rising(check: Rule) -> Rule:
    """The rule of a key that holds several numbers, smallest first."""
    return lambda name, value: tuple(sorted(several(check)(name, value)))


@dataclass(frozen=True)
class Swept(Federated):
    """One federation under several rules."""

    backwards: bool = key(flag, False, help="Control: what is varied is read in the opposite order.")

    def is_as(self, paper: Swept) -> bool:
        """Whether only seeds differ from the paper's settings, so that its numbers can be expected."""
        ours, theirs = self.table(), paper.table()
        return all(ours[name] == theirs[name] for name in ours if name not in ("seeds", "seed"))


@dataclass(frozen=True)
class Sharing(Swept):
    """Figure 1 and what the text says of free riders."""

    kappas: tuple[float, ...] = key(rising(unit), (0.0, 0.2, 0.5, 0.8), help="Sharing coefficients.")
    recovery: float = key(unit, 0.0, help="q, the same for all.")


SHARING = {
    "smoke": Sharing(**SMALLER, kappas=(0.0, 0.8)),
    # rho of ten clients scatters: three seeds do not decide
    "quick": Sharing(**SHORTER, seeds=6, kappas=(0.0, 0.5, 0.8)),
    "paper": Sharing(**PAPER),
}


def sharing_cells(options: Sharing) -> dict[Place, Cell]:
    """A run for every coefficient and seed."""
    return sweep_cells(
        options, {kappa: {"sharing": kappa, "recovery": options.recovery} for kappa in options.kappas}
    )


def sharing_rows(options: Sharing, results: Results) -> list[Row]:
    """What every coefficient leads to."""
    paper = SHARING["paper"]
    return [
        {**row, "as_in_the_paper": options.is_as(paper)}
        for row in sweep_rows(options, results, "kappa", options.kappas)
    ]


def sweep_cells(
    options: Federated, variants: Variants, *, evaluate_every: int | None = None
) -> dict[Place, Cell]:
    """A run for every data set, partition, seed and variant."""
    return {
        place: setting_cell(
            place, options.sizes, options.model_for(data), options.training_for(data),
            {"ranking": options.ranking, **table}, evaluate_every=evaluate_every,
        )
        for seed in options.all_seeds
        for data in options.data
        for partition in options.partitions
        for variant, table in variants.items()
        for place in (Place(data, partition, seed, str(variant)),)
    }  # fmt: skip


def sweep_rows(options: Swept, results: Results, name: str, values: Sequence[float]) -> list[Row]:
    """A row for every value of what is varied, with changes from the smallest one, seed by seed."""
    rows: list[Row] = []
    shown = values[::-1] if options.backwards else values
    for data in options.data:
        for partition in options.partitions:
            runs = {
                value: [results[Place(data, partition, seed, str(read))] for seed in options.all_seeds]
                for value, read in zip(values, shown, strict=True)
            }
            columns = {value: columns_of(each) for value, each in runs.items()}
            first = columns[values[0]]
            for value, own in columns.items():
                rows.append({"data": data, "partition": partition, name: value, **changes_of(own, first)})
    return rows


def changes_of(own: Mapping[str, Floats], first: Mapping[str, Floats]) -> Row:
    """Columns over seeds, and how they differ from others, seed by seed."""
    row: Row = {}
    for column, each in own.items():
        row |= over_seeds(column, each.tolist())
        row |= over_seeds(f"{column}_change", (each - first[column]).tolist())
    return row


def columns_of(runs: Sequence[JSONObject]) -> dict[str, Floats]:
    """(seeds,) what the runs of a variant come to; a correlation that is undefined is 0."""
    accuracies = np.array([run["accuracies"]["rewards"] for run in runs])
    given = np.array([run["contribution"] for run in runs])
    seeds = np.arange(len(runs))
    return {
        "accuracy": accuracies.mean(1),
        "rho": np.array([run["methods"]["rewards"]["rho_test"] or 0.0 for run in runs]),
        "spread": accuracies.std(1),
        "least": accuracies[seeds, given.argmin(1)],
        "most": accuracies[seeds, given.argmax(1)],
    }
