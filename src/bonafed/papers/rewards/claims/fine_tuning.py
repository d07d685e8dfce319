"""Section 6.1: fine-tuned FedAvg rewards the wrong clients where amounts of data differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from bonafed import checks
from bonafed.papers.cells import Cell
from bonafed.papers.claim import Check, Claim, Results, Row, at_most, estimate
from bonafed.papers.rewards import tables
from bonafed.papers.rewards.federations import Place
from bonafed.papers.rewards.tables import METHODS, TABLES, Tables
from bonafed.sections import key

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_POSITIVE = ("cifar10", "sst")  # where the paper's own table has a positive rho


@dataclass(frozen=True)
class Judged(Tables):
    """The tables, and the method that is looked at."""

    judged: str = key(
        lambda name, value: checks.one_of(name, str(value), TABLES), "fedavg",
        help="Whose correlation is judged; control: rank.",
    )  # fmt: skip


def _settings(preset: str) -> Judged:
    """As for the tables, with the one partition that the sentence is about."""
    common = tables.PRESETS[preset]
    values = {item.name: getattr(common, item.name) for item in fields(common)}
    return Judged(**{**values, "partitions": ("quantity",)})


def cells(options: Judged) -> Mapping[Place, Cell]:
    """Those of the tables."""
    return tables.cells(options)


def rows(options: Judged, results: Results) -> list[Row]:
    """rho of every method, and which is judged."""
    label = METHODS[options.judged].label
    return [
        {**row, "judged": row["method"] == label, "negative_in_print": row["data"] not in _POSITIVE}
        for row in tables.table(options, results, "rho_test", "rho_validation")
        if row["data"] != tables.ALL
    ]


def judge(found: Sequence[Row]) -> list[Check]:
    """Whoever has more data ends with a worse model, where the paper prints that it does."""
    return [
        at_most(f"rho of {row['method']}, {row['data']}", estimate(row, "rho_test"), 0.0)
        for row in found
        if row["judged"] and row["negative_in_print"]
    ]


def draw(found: Sequence[Row]) -> Figure:
    """Every method in every setting."""
    from bonafed.papers.rewards.figures import table_figure

    return table_figure(found, "rho_test", "rho of final accuracy with contribution")


CLAIM = Claim(
    identifier="rewards-fine_tuning",
    paper="rewards",
    place="after table 2",
    says="Fine-tuned FedAvg fails under quantity skew: its rho with contributions is even negative.",
    presets={name: _settings(name) for name in tables.PRESETS},
    cells=cells,
    rows=rows,
    judge=judge,
    draw=draw,
    control={"judged": "rank"},
    about="""\
The runs of table 2 in which numbers of samples differ. In print rho of FedAvg is negative for MNIST,
Fashion-MNIST, SVHN and CIFAR-100, which are judged, and positive for CIFAR-10 and SST. How it comes out
depends on how much the additional epoch at the end changes: many steps on much data spoil the common
model, a few steps on little data do not. So it depends on the learning rate of that epoch, which is not
in print, and on how many steps the largest client takes in it; at preset quick that is a tenth of what it
is there.""",
)
