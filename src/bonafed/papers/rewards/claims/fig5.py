"""Figure 5: how fast clients' models converge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bonafed.checks import Floats
from bonafed.mechanisms.rewards.section import unit
from bonafed.papers.cells import Cell
from bonafed.papers.claim import Check, Claim, Results, Row, at_least, at_most, estimate, over_seeds, where
from bonafed.papers.rewards.federations import PARTITIONS, Place
from bonafed.papers.rewards.sweeps import PAPER, SHORTER, SMALLER, Swept, sweep_cells
from bonafed.presentation.documents import JSONObject
from bonafed.sections import key

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COMPARABLE = 0.05  # of accuracy, mean over rounds; the paper has no number for it
WITHOUT, WITH, COMMON = "IAFL, q = 0", "IAFL with recovery", "FedAvg"


@dataclass(frozen=True)
class Convergence(Swept):
    """Figure 5."""

    recovery: float = key(unit, 0.01, help="q where there is recovery.")


_PRESETS = {
    "smoke": Convergence(**{**SMALLER, "seed": 1}, recovery=0.5),
    "quick": Convergence(**SHORTER, recovery=0.07),
    "paper": Convergence(**{**PAPER, "partitions": ("quantity", "dirichlet")}),
}


def cells(options: Convergence) -> dict[Place, Cell]:
    """Without recovery and with it, all evaluated in every round."""
    common: JSONObject = {"sharing": 0.0, "recovery": 0.0, "baselines": ["fedavg-ft"]}
    variants = {"q 0": common, "q": {"sharing": 0.0, "recovery": options.recovery}}
    return sweep_cells(options, variants, evaluate_every=1)


def rows(options: Convergence, results: Results) -> list[Row]:
    """Accuracy by round, of FedAvg and of clients whose reward rate is highest, median and lowest.

    `behind` is FedAvg's accuracy less this one, and `lag` its mean over the rounds so far.
    """
    found: list[Row] = []
    (data,) = options.data
    for partition in options.partitions:
        curves = _curves(options, results, data, partition)
        common = curves[COMMON, "all"]
        for (method, client), own in curves.items():
            behind = common - own
            lag = behind.cumsum(1) / np.arange(1, own.shape[1] + 1)
            found += [
                {
                    "data": data, "partition": PARTITIONS[partition].label, "method": method,
                    "client": client, "round": t + 1, **over_seeds("accuracy", own[:, t].tolist()),
                    **over_seeds("behind", behind[:, t].tolist()), **over_seeds("lag", lag[:, t].tolist()),
                }
                for t in range(own.shape[1])
            ]  # fmt: skip
    return found


def _curves(
    options: Convergence, results: Results, data: str, partition: str
) -> dict[tuple[str, str], Floats]:
    """(seeds, rounds) accuracies by method and client; as a control, FedAvg's and IAFL's are exchanged."""
    runs = {
        name: [results[Place(data, partition, seed, name)] for seed in options.all_seeds]
        for name in ("q 0", "q")
    }
    common = np.array([run["curves"]["fedavg-ft"]["accuracies"] for run in runs["q 0"]]).mean(2)
    curves = {(COMMON, "all"): common}
    for method, name in ((WITHOUT, "q 0"), (WITH, "q")):
        each = np.array([run["curves"]["rewards"]["accuracies"] for run in runs[name]])
        order = np.array([np.argsort(run["contribution"], kind="stable") for run in runs[name]])
        n = order.shape[1]
        for client, place in (("highest", n - 1), ("median", n // 2), ("lowest", 0)):
            curves[method, client] = np.array(
                [run[:, who] for run, who in zip(each, order[:, place], strict=True)]
            )
        curves[method, "mean"] = each.mean(2)
    if options.backwards:
        curves |= {(COMMON, "all"): curves[WITHOUT, "highest"], (WITHOUT, "highest"): common}
    return curves


def judge(found: Sequence[Row]) -> list[Check]:
    """Slower without recovery, even for the best rewarded client; with it, about as fast."""
    last = max(row["round"] for row in found)  # type: ignore[type-var]  # whole numbers
    ends = where(found, round=last)
    checks = []
    for row in where(ends, method=WITHOUT, client="highest"):
        what = f"FedAvg's accuracy less the best rewarded client's, q = 0, {row['partition']}"
        checks += [
            at_least(f"{what}, mean over rounds", estimate(row, "lag"), 0.0),
            at_least(f"{what}, last round", estimate(row, "behind"), 0.0),
        ]
    for row in where(ends, method=WITH, client="mean"):
        what = (
            f"FedAvg's accuracy less the mean client's, with recovery, {row['partition']}, mean over rounds"
        )
        checks.append(at_most(what, estimate(row, "lag"), _COMPARABLE))
    return checks


def draw(found: Sequence[Row]) -> Figure:
    """A panel per partition and rule, a line per client."""
    from bonafed.papers.rewards.figures import convergence_figure

    return convergence_figure(found, (WITHOUT, WITH), COMMON)


CLAIM = Claim(
    identifier="rewards-fig5",
    paper="rewards",
    place="figure 5, appendix E.6",
    says="Without recovery even the client with the highest reward rate converges more slowly than FedAvg, "
    "and to a worse model; with q = 0.01 clients converge about as fast as FedAvg.",
    presets=_PRESETS,
    cells=cells,
    rows=rows,
    judge=judge,
    draw=draw,
    control={"backwards": True},
    open_data="Preset quick is on CIFAR-10, with the small CNN: the paper's CIFAR-100 was not at hand.",
    about="""\
Accuracies are recorded for every client in every round, before FedAvg's clients fine-tune. Which data are
in panels (c) and (d) is not said; here label skew beside quantity skew, at preset paper. "Comparable" is
not said in numbers: here, no more than 5 percentage points behind on average over the rounds and clients.
FedAvg weights updates by numbers of samples, IAFL does not.""",
)
