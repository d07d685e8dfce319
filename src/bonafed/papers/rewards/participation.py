"""Runs in which contributions are rates of participation: table 3 and figure 3 of the rewards paper.

p_i = (1 + i/N)/2 for client i = 1..N is the rate at which it takes part, in every method alike, and its
contribution; the ceiling is 1. Section 6.3 does not say how the data are dealt out: here evenly, so that
rates are all that clients differ in. kappa and q are 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bonafed.mechanisms.rewards.section import BASELINES
from bonafed.mechanisms.rewards.settlement import correlation
from bonafed.papers.cells import Cell
from bonafed.papers.claim import Results, Row, over_seeds
from bonafed.papers.rewards.federations import Place
from bonafed.papers.rewards.sweeps import PAPER, SHORTER, SMALLER, Swept, sweep_cells
from bonafed.papers.rewards.tables import METHODS, TABLES
from bonafed.presentation.documents import JSONObject

_LEAST = 0.5  # p_i at i = 0


@dataclass(frozen=True)
class Participation(Swept):
    """Table 3 and figure 3."""


PARTICIPATION = {
    "smoke": Participation(**{**SMALLER, "partitions": ("iid",)}),
    "quick": Participation(**{**SHORTER, "partitions": ("iid",)}),
    "paper": Participation(**{**PAPER, "partitions": ("iid",)}),
}


def participation_cells(options: Participation) -> dict[Place, Cell]:
    """A run of all methods for every seed."""
    table: JSONObject = {
        "sharing": 0.0, "recovery": 0.0, "presence": _LEAST, "measure": "presence", "ceiling": 1.0,
        "baselines": list(BASELINES),
    }  # fmt: skip
    return sweep_cells(options, {"by participation": table})


def participation_rows(options: Participation, results: Results) -> list[Row]:
    """Every method: accuracy, IPR_accu, and the correlation of accuracy with participation.

    `lead` is IAFL's number less that of the method, seed by seed. As a control, IAFL and the baseline that
    comes off worst are exchanged.
    """
    (data,), (partition,) = options.data, options.partitions
    runs = [results[Place(data, partition, seed, "by participation")] for seed in options.all_seeds]
    columns = {}
    for name in TABLES:
        phase = METHODS[name].phase
        scored = [run["methods"][phase] for run in runs]
        rho = [correlation(run["accuracies"][phase], run["contribution"]) or 0.0 for run in runs]
        columns[name] = {
            **{key: np.array([one[key] for one in scored]) for key in ("average", "best", "ipr_accuracy")},
            "rho": np.array(rho),
        }
    if options.backwards:
        worst = min(columns, key=lambda name: float(columns[name]["average"].mean()))
        columns |= {"iafl": columns[worst], worst: columns["iafl"]}
    rows: list[Row] = []
    for name, own in columns.items():
        row: Row = {"data": data, "method": METHODS[name].label}
        for key, values in own.items():
            row |= over_seeds(key, values.tolist())
            row |= over_seeds(f"{key}_lead", (columns["iafl"][key] - values).tolist())
        rows.append({**row, "as_in_the_paper": options.is_as(PARTICIPATION["paper"])})
    return rows
