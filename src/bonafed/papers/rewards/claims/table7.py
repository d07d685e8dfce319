"""Table 7: CGSV's measure of contribution, with its own rewards and with IAFL's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bonafed.papers.cells import Cell
from bonafed.papers.claim import Check, Claim, Results, Row, at_least, estimate, over_seeds, printed
from bonafed.papers.rewards.federations import PARTITIONS, Place
from bonafed.papers.rewards.printed import COSINE
from bonafed.papers.rewards.sweeps import SHORTER, SMALLER, Swept, sweep_cells
from bonafed.presentation.documents import JSONObject

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_METHODS = {"CGSV": "cgsv", "CGSV-IAFL": "rewards"}
_DIFFER = ("dirichlet", "classes", "quantity")  # where clients differ much: both methods reward something
_PRESETS = {
    "smoke": Swept(**SMALLER),
    "quick": Swept(**{**SHORTER, "partitions": _DIFFER}),
    "paper": Swept(data=("cifar10",), seeds=10),
}


def cells(options: Swept) -> dict[Place, Cell]:
    """Both methods, in every setting."""
    table: JSONObject = {"sharing": 0.0, "recovery": 0.0, "measure": "cosine", "baselines": ["cgsv"]}
    return sweep_cells(options, {"cosine": table})


def rows(options: Swept, results: Results) -> list[Row]:
    """rho of both, and their difference seed by seed; then over all settings."""
    found: list[Row] = []
    (data,) = options.data
    each = {
        partition: {
            method: np.array(
                [
                    results[Place(data, partition, seed, "cosine")]["methods"][phase]["rho_test"] or 0.0
                    for seed in options.all_seeds
                ]
            )
            for method, phase in _METHODS.items()
        }
        for partition in options.partitions
    }
    differ = [partition for partition in options.partitions if partition in _DIFFER]
    means = {method: np.mean([each[name][method] for name in differ], 0) for method in _METHODS}
    settings = {**each, "where clients differ": means} if differ else each
    for partition, values in settings.items():
        label = PARTITIONS[partition].label if partition in PARTITIONS else partition
        read = dict(zip(_METHODS, [*_METHODS][:: -1 if options.backwards else 1], strict=True))
        for k, method in enumerate(_METHODS):
            own, other = values[read[method]], values[read["CGSV"]]
            found.append(
                {
                    "data": data, "partition": label, "split": partition, "method": method,
                    **over_seeds("rho", own.tolist()),
                    **over_seeds("lead", (own - other).tolist()),
                    "paper": COSINE[partition][k] if data == "cifar10" and partition in COSINE else None,
                    "as_in_the_paper": options.is_as(_PRESETS["paper"]),
                }
            )  # fmt: skip
    return found


def judge(found: Sequence[Row]) -> list[Check]:
    """IAFL's rewards follow contributions more closely."""
    ours = [row for row in found if row["method"] == "CGSV-IAFL"]
    return [
        *(
            at_least(f"rho of CGSV-IAFL less that of CGSV, {row['partition']}", estimate(row, "lead"), 0.0)
            for row in ours
            if row["split"] in _DIFFER or row["split"] not in PARTITIONS
        ),
        *(
            printed(f"rho of {row['method']}, {row['partition']}", estimate(row, "rho"), row["paper"], 0.15)
            for row in found
            if row["as_in_the_paper"] and isinstance(row["paper"], float)
        ),
    ]


def draw(found: Sequence[Row]) -> Figure:
    """Both methods in every setting."""
    from bonafed.papers.rewards.figures import table_figure

    settings = [row for row in found if row["split"] in PARTITIONS]
    return table_figure(settings, "rho", "rho of final with standalone accuracy")


CLAIM = Claim(
    identifier="rewards-table7",
    paper="rewards",
    place="table 7, appendix E.8",
    says="With the measure of contribution that CGSV has, IAFL's rewards follow the clients' contributions "
    "more closely than CGSV's own.",
    presets=_PRESETS,
    cells=cells,
    rows=rows,
    judge=judge,
    draw=draw,
    control={"backwards": True},
    about="""\
Contributions in both methods are CGSV's importances, from the cosine of each update with the weighted
mean of all; CGSV masks the common update by them, IAFL (CGSV-IAFL) samples updates. rho is with
standalone accuracies on the test set. In print both are near 0 for N(0.1) and IID, where clients differ
little, so it is the other three partitions that are judged, each and together. A correlation that is
undefined counts as 0. Tolerance of printed numbers: 0.15, as in table 2.""",
)
