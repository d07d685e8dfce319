"""Curves of training runs: accuracy and loss against rounds and, where money was paid, against spend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from bonafed.checks import Floats
from bonafed.lab.style import COLOURS, STYLES, sheet


@dataclass(frozen=True, slots=True, eq=False)
class RunCurve:
    """One run, measured after each of m rounds; NaN where it was not."""

    name: str
    rounds: Floats  # (m,) 1, 2, ...
    accuracy: Floats  # (m,) share of test samples
    loss: Floats  # (m,) on the test samples
    spend: Floats | None = None  # (m,) money so far; None if nobody is paid


def runs_figure(curves: Sequence[RunCurve]) -> Figure:
    """One row of panels over rounds and, if a run pays, one over money."""
    paid = any(curve.spend is not None for curve in curves)
    figure = sheet(9, (6.4 if paid else 3.4) + 0.2 * np.ceil(len(curves) / 4))
    rows = figure.subplots(2 if paid else 1, 2, squeeze=False)
    for panel, title, what in zip(rows[0], ("Accuracy", "Loss"), ("accuracy", "loss"), strict=True):
        _draw(panel, curves, what, over="rounds")
        panel.set(xlabel="round", ylabel=f"test {what}", title=title)
        panel.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    for panel, what in zip(rows[1] if paid else (), ("accuracy", "loss"), strict=False):
        _draw(panel, curves, what, over="spend")
        panel.set(xlabel="money spent so far", ylabel=f"test {what}")
    drawn = {line.get_label(): line for panel in rows.flat for line in panel.get_lines()}
    if drawn:
        names = [name for name in dict.fromkeys(curve.name for curve in curves) if name in drawn]
        figure.legend(
            [drawn[name] for name in names], names, loc="outside lower center", frameon=False, fontsize=8,
            ncols=min(len(names), 4),
        )  # fmt: skip
    return figure


def _draw(axes: Axes, curves: Sequence[RunCurve], what: str, over: str) -> None:
    for k, curve in enumerate(curves):
        x, y = getattr(curve, over), getattr(curve, what)
        if x is None:
            continue
        measured = np.isfinite(y)
        if not measured.any():
            continue
        axes.plot(
            x[measured],
            y[measured],
            STYLES[k // len(COLOURS) % len(STYLES)],
            color=COLOURS[k % len(COLOURS)],
            lw=1.6,
            marker="o" if measured.sum() == 1 else None,  # a point has no line
            label=curve.name,
        )
