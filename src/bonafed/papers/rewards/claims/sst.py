"""The rows of SST in tables 1, 2, 4, 5 and 6."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bonafed.papers.claim import Check, Claim, Results, Row, at_least, estimate
from bonafed.papers.rewards.printed import printed_mean
from bonafed.papers.rewards.tables import (
    COLUMNS,
    SMOKE,
    Tables,
    cells,
    own_row,
    printed_checks,
    table,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DATA = "sst"
_TOLERANCES = {"average": 0.03, "ipr_accuracy": 0.1, "ipr_loss": 0.1, "rho_test": 0.15, "increase": 0.03}
_PRESETS = {
    "smoke": Tables(**{**SMOKE, "seed": 2}),
    "quick": Tables(
        data=(_DATA,), partitions=("dirichlet", "quantity"), clients=4, rounds=4, samples=400, tested=400,
        validation=200, ranking=100, learning_rate=0.003, batch_size=32,
    ),
    "paper": Tables(data=(_DATA,), seeds=10),
}  # fmt: skip


def rows(options: Tables, results: Results) -> list[Row]:
    """The five numbers of every method in every setting."""
    return table(options, results, *_TOLERANCES)


def judge(found: Sequence[Row]) -> list[Check]:
    """IAFL's models are the most accurate, nobody loses by joining, and accuracies follow contributions."""
    own = own_row(found)
    least = {name: printed_mean(name, _DATA) for name in ("ipr_accuracy", "ipr_loss")}
    return [
        at_least(
            "mean accuracy of IAFL less that of the best other method, over settings",
            estimate(own, "lead"), 0.0,
        ),
        at_least("increase over standalone of IAFL, mean over settings", estimate(own, "increase"), 0.0),
        *(
            at_least(
                f"{COLUMNS[name]} of IAFL, mean over settings (no less than in print)", estimate(own, name),
                number,
            )
            for name, number in least.items()
        ),
        at_least("rho of IAFL, mean over settings", estimate(own, "rho_test"), 0.0),
        *printed_checks(found, "average", _TOLERANCES["average"]),
    ]  # fmt: skip


def draw(found: Sequence[Row]) -> Figure:
    """Every method in every setting."""
    from bonafed.papers.rewards.figures import table_figure

    return table_figure(found, "average", "mean accuracy of the clients' models")


CLAIM = Claim(
    identifier="rewards-sst",
    paper="rewards",
    place="tables 1, 2, 4, 5 and 6, SST",
    says="On SST, with an LSTM, IAFL's models are the most accurate in all four settings, better than what "
    "clients train alone, for nearly every client, and accuracies follow contributions.",
    presets=_PRESETS,
    cells=cells,
    rows=rows,
    judge=judge,
    draw=draw,
    control={"noise": 5.0},
    about="""\
Sentences of five classes and the paper's model: an embedding of 300, a bidirectional LSTM of 120 and three
dense layers. A sentence costs ten times what an image of the CNN does, so preset quick has two of the four
settings, 4 clients with 400 sentences and 4 rounds, where the paper has 50 clients, all sentences and 100
rounds: next to nothing is learnt. In print accuracies are 26 to 37 %, and a guess has 20 %. There is no
feature noise on words, hence four settings. Preset smoke is on digits, since SST is not part of bonafed.

All else is as in the tables (rewards-table1). The control has all clients send noise.""",
)
