"""Figure 1: the sharing coefficient kappa."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bonafed.papers.claim import Check, Claim, Row, at_least, at_most, estimate
from bonafed.papers.rewards.sweeps import SHARING, sharing_cells, sharing_rows

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def judge(found: Sequence[Row]) -> list[Check]:
    """More sharing, better and more equal models; with none, models follow contributions."""
    least, most = found[0], found[-1]
    ends = f"from kappa {least['kappa']} to {most['kappa']}"
    return [
        at_least(f"change of mean accuracy {ends}", estimate(most, "accuracy_change"), 0.0),
        at_most(f"change of rho {ends}", estimate(most, "rho_change"), 0.0),
        at_most(f"change of the spread of accuracies {ends}", estimate(most, "spread_change"), 0.0),
        at_least(f"rho at kappa {least['kappa']}", estimate(least, "rho"), 0.0),
    ]


def draw(found: Sequence[Row]) -> Figure:
    """Accuracy and rho against kappa."""
    from bonafed.papers.rewards.figures import sweep_figure

    return sweep_figure(found, "kappa", "sharing coefficient kappa")


CLAIM = Claim(
    identifier="rewards-fig1",
    paper="rewards",
    place="figure 1, section 6.2",
    says="A larger kappa raises the accuracy of the clients' models, makes them more alike and lowers rho; "
    "clients that contribute less end with worse models.",
    presets=SHARING,
    cells=sharing_cells,
    rows=sharing_rows,
    judge=judge,
    draw=draw,
    control={"backwards": True},
    open_data="Preset quick is on CIFAR-10, with the small CNN: the paper's CIFAR-100 was not at hand.",
    about="""\
The paper shows the accuracies of six clients round by round for several kappa, without a table. Here
the mean over clients, their spread (standard deviation) and rho are compared at the end, kappa by kappa,
with q = 0 and contributions by standalone accuracy as in the paper; changes are taken seed by seed. In
the figure, "least" and "most" are the clients that contribute least and most.""",
)
