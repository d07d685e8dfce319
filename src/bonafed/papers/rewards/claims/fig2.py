"""Figure 2: the recovery rate q."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bonafed.papers.claim import Check, Claim, Results, Row, at_least, at_most, estimate, printed
from bonafed.papers.rewards.recovery import RECOVERY, Recovery, recovery_cells, recovery_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def rows(options: Recovery, results: Results) -> list[Row]:
    """What every rate leads to, with the best reference model."""
    return recovery_rows(options, results, "max")


def judge(found: Sequence[Row]) -> list[Check]:
    """More recovery, better models that follow contributions less."""
    none, most = found[0], found[-1]
    ends = f"from q {none['q']} to {most['q']}"
    return [
        at_least(f"change of mean accuracy {ends}", estimate(most, "accuracy_change"), 0.0),
        at_most(f"change of rho {ends}", estimate(most, "rho_change"), 0.0),
        *(
            printed("rho at q 0.01", estimate(row, "rho"), 0.61, 0.15)
            for row in found
            if row["as_in_the_paper"] and row["q"] == 0.01
        ),
    ]


def draw(found: Sequence[Row]) -> Figure:
    """Accuracy and rho against q."""
    from bonafed.papers.rewards.figures import sweep_figure

    return sweep_figure(found, "q", "recovery rate q")


CLAIM = Claim(
    identifier="rewards-fig2",
    paper="rewards",
    place="figure 2, section 6.2",
    says="A larger recovery rate q raises the accuracy of the clients' models and lowers rho; at q = 0.01 "
    "rho is still 0.61.",
    presets=RECOVERY,
    cells=recovery_cells,
    rows=rows,
    judge=judge,
    draw=draw,
    control={"backwards": True},
    open_data="Preset quick is on CIFAR-10, with the small CNN: the paper's CIFAR-100 was not at hand.",
    about="""\
kappa is fixed and not in print; it is 0 here, since the text gives the free rider the same induced
rate, 0.09, in figures 1 and 2. The reference model has the best reward rate. What matters is how often a
client recovers in all, q times the number of rounds: with 15 rounds instead of 100, preset quick has
larger rates. The tolerance of the printed rho is 0.15, as in table 2.""",
)
