"""Section 6.2: what a client gets that hardly contributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bonafed.papers.claim import (
    Check,
    Claim,
    Results,
    Row,
    at_least,
    estimate,
    over_seeds,
    printed,
)
from bonafed.papers.rewards.federations import Place
from bonafed.papers.rewards.sweeps import SHARING, Sharing, sharing_cells

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PRINTED = {0.0: 0.046, 0.8: 0.192}  # accuracy of the free rider with q = 0, by kappa


def rows(options: Sharing, results: Results) -> list[Row]:
    """For every kappa: the client that contributes least, the others, and how far it is behind."""
    found: list[Row] = []
    kappas = options.kappas[::-1] if options.backwards else options.kappas
    for data in options.data:
        first: np.ndarray | None = None
        for kappa, read in zip(options.kappas, kappas, strict=True):
            runs = [results[Place(data, "quantity", seed, str(read))] for seed in options.all_seeds]
            accuracies = np.array([run["accuracies"]["rewards"] for run in runs])
            who = np.array([np.argmin(run["contribution"]) for run in runs])
            least = accuracies[np.arange(len(runs)), who]
            others = (accuracies.sum(1) - least) / (accuracies.shape[1] - 1)
            first = least if first is None else first
            found.append(
                {
                    "data": data, "kappa": kappa,
                    **over_seeds("least", least.tolist()),
                    **over_seeds("others", others.tolist()),
                    **over_seeds("behind", (others - least).tolist()),
                    **over_seeds("change", (least - first).tolist()),
                    "paper": _PRINTED.get(kappa) if options.is_as(SHARING["paper"]) else None,
                }
            )  # fmt: skip
    return found


def judge(found: Sequence[Row]) -> list[Check]:
    """It is behind, and further where less is shared."""
    least, most = found[0], found[-1]
    return [
        at_least(
            f"how far it is behind the others at kappa {least['kappa']}", estimate(least, "behind"), 0.0
        ),
        at_least(
            f"what it gains by kappa {most['kappa']} in place of {least['kappa']}",
            estimate(most, "change"), 0.0,
        ),
        *(
            printed(f"accuracy at kappa {row['kappa']}", estimate(row, "least"), float(row["paper"]), 0.05)
            for row in found
            if isinstance(row["paper"], float)
        ),
    ]  # fmt: skip


def draw(found: Sequence[Row]) -> Figure:
    """The free rider and the others, by kappa."""
    from bonafed.papers.rewards.figures import lines_figure

    return lines_figure(
        found, "kappa", "sharing coefficient kappa",
        {"least": "the client that contributes least", "others": "mean of the others"},
    )  # fmt: skip


CLAIM = Claim(
    identifier="rewards-free_riders",
    paper="rewards",
    place="section 6.2, free riders",
    says="A client that contributes very little gets a worse model than the others, the worse the less is "
    "shared: 4.6 % accuracy with kappa = 0, 19.2 % with kappa = 0.8.",
    presets=SHARING,
    cells=sharing_cells,
    rows=rows,
    judge=judge,
    draw=draw,
    control={"backwards": True},
    open_data="Preset quick is on CIFAR-10, with the small CNN: the paper's CIFAR-100 was not at hand.",
    about="""\
The runs of figure 1. The free rider is the client with the least standalone accuracy, whose induced
rate is 0.09 in the paper. The percentages in print are of one client of one run; a tolerance of 5
percentage points is allowed for them.""",
)
