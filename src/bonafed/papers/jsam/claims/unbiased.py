"""After theorem 3: unbiased selection is not optimal."""

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
    at_most,
    estimate,
    number,
    over_seeds,
    where,
)
from bonafed.papers.jsam.plans import Population, mechanism_curves

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LOSES = 0.05  # of the objective: what counts as a difference
_ROUNDING = 1e-9


def rows(population: Population, _: Results) -> list[Row]:
    """Money, bound and objective of six mechanisms at the same weights."""
    curves = mechanism_curves(population, population.unit * np.geomspace(0.01, 10.0, 16))
    made: list[Row] = []
    for i, name in enumerate(curves.names):
        for j, eta in enumerate(curves.eta.tolist()):
            row: Row = {"mechanism": name, "eta": eta}
            for column in ("money", "loss", "excess"):
                row |= over_seeds(column, getattr(curves, column)[:, i, j].tolist())
            made.append(row)
    return made


def judge(table: Sequence[Row]) -> list[Check]:
    """USBM loses at small weights and meets JSAM at large ones; no truthful baseline is ever better."""
    usbm = sorted(where(table, mechanism="USBM"), key=lambda row: number(row, "eta"))
    first, last = usbm[0], usbm[-1]
    baselines = [row for row in table if row["mechanism"] in ("USBM", "FSBM-50", "FSBM-75", "BBM")]
    least = min(baselines, key=lambda row: number(row, "excess"))
    known = max(where(table, mechanism="JSAM-CI"), key=lambda row: number(row, "excess"))
    over = "objective over JSAM's, less 1"
    return [
        at_least(f"smallest weight: USBM's {over}", estimate(first, "excess"), _LOSES),
        at_most(f"largest weight: USBM's {over}", estimate(last, "excess"), _ROUNDING),
        at_least(f"any baseline's {over}, least", estimate(least, "excess"), -_ROUNDING),
        at_most(f"JSAM-CI's {over}, largest", estimate(known, "excess"), 0.0),
    ]


def draw(table: Sequence[Row]) -> Figure:
    """The bound against money, and the objective against JSAM's."""
    from bonafed.papers.jsam.figures import mechanisms_figure

    return mechanisms_figure(table)


CLAIM = Claim(
    identifier="jsam-unbiased",
    paper="jsam",
    place="insights after theorem 3, observation 1",
    says="Mechanisms with unbiased selection are sub-optimal when clients have different privacy "
    "sensitivities, and unbiased selection becomes optimal at higher monetary costs.",
    presets={"smoke": Population(clients=12, draws=4), "quick": Population(), "paper": Population()},
    rows=rows,
    judge=judge,
    draw=draw,
    control={"alike": True},
    about="""Six mechanisms at the same weights, mean over populations: the bound (14) on the training
loss against money, and the objective against JSAM's. No truthful baseline has a lower objective at any
weight, as JSAM minimises over all selections; JSAM-CI has, since it pays no rent. FSBM-50 and FSBM-75
take the cheapest 50 % and 75 %, BBM the half with the largest losses, which are drawn independently of
the costs.

In the control JSAM selects everybody alike, and USBM loses nothing against it.""",
)
