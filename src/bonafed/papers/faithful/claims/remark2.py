"""Remark 2: the truth is best whatever the data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bonafed.papers.claim import Check, Claim, Results, Row, at_least, at_most, estimate, over_seeds
from bonafed.papers.faithful.cases import Outcome
from bonafed.papers.faithful.curves import FFL, MANIPULATED, ByHeterogeneity, cells
from bonafed.papers.faithful.presets import AS_BEFORE, BY_HETEROGENEITY

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def rows(settings: ByHeterogeneity, results: Results) -> list[Row]:
    """What agent 3 gains by each factor, on its training loss: under FedAvg, and with payments."""
    lines = settings.lines
    cases = dict(zip(lines.schemes, lines.cases(settings.seeds), strict=True))
    listed: list[Row] = []
    for name, points in cases.items():
        if not name.startswith(MANIPULATED):
            continue
        for j, delta in enumerate(lines.at):
            plain, paid = [], []
            for honest, lying in zip(cases[FFL][j], points[j], strict=True):
                truth, lie = (np.array(Outcome(**results[case]).loss) for case in (honest, lying))
                plain.append(float(truth[lying.manipulator] - lie[lying.manipulator]))
                paid.append(float(truth.sum() - lie.sum()))  # J_k = [F - min f_-k]/p_k, p_k = 1/K
            if settings.exchanged == "schemes":
                plain, paid = paid, plain
            row: Row = {"curve": name, "delta": delta}
            listed.append(row | over_seeds("gain_plain", plain) | over_seeds("gain_paid", paid))
    return listed


def judge(table: Sequence[Row]) -> list[Check]:
    """With payments no factor gains at any Delta; without them some does, the more the larger Delta is."""
    found = []
    for row in table:
        at = f"{row['curve']}, Delta {row['delta']:g}"
        found += [
            at_most(f"gain with payments, {at}", estimate(row, "gain_paid"), 0.0),
            at_least(f"gain under FedAvg, {at}", estimate(row, "gain_plain"), 0.0),
        ]
    return found


def draw(table: Sequence[Row]) -> Figure:
    """Gains against Delta."""
    from bonafed.papers.faithful.figures import gain_figure

    return gain_figure(table)


CLAIM = Claim(
    identifier="faithful-remark2",
    paper="faithful",
    place="remark 2",
    says="That no agent gains by misreporting under FFL is robust against non-i.i.d. data, while under "
    "plain federated learning agents gain by it.",
    presets=BY_HETEROGENEITY,
    rows=rows,
    judge=judge,
    draw=draw,
    control={"exchanged": "schemes"},
    cells=cells,
    about=AS_BEFORE
    + "\n\nHere an agent's gain is on the losses that the mechanism sees, with exact payments (10): as the "
    "sum that k's payment is measured from does not depend on what k reports, its overall loss changes by "
    "K times what the federation's does. That is for multiples of the gradient; `bonafed audit faithful` "
    "tries many other lies against the protocol itself.",
)
