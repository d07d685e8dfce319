"""Figures of the studies of faithful learning; bars are one standard deviation."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import SymmetricalLogLocator

from bonafed.checks import Floats
from bonafed.studies.claim import Row, number, where
from bonafed.studies.faithful.curves import Curves, break_even
from bonafed.studies.grid import Average
from bonafed.style import BLUE, COLOURS, RED, STYLES, sheet

_AXES = {
    "samples": "n, samples of all agents",
    "delta": "Delta, heterogeneity of the agents",
    "alpha": "alpha, privacy given away",
    "clusters": "L, clusters",
}


def learning_figure(table: Curves) -> Figure:
    """Figures 3 and 4: training loss, expected loss and accuracy; private training below, on its scale."""
    figure = sheet(12, 7)
    rows = figure.subplots(2, 3)
    colours = dict(zip(table.names, cycle(COLOURS), strict=False))
    hidden = [name for name in table.names if name.startswith("DP")]
    open_to_all = [name for name in table.names if name not in hidden]
    for row, names in zip(rows, (open_to_all, [*open_to_all[:1], *hidden]), strict=True):
        for name in names:
            pays = name in hidden or name == open_to_all[0]
            for panel, part, total in zip(
                row, ("loss", "test_loss"), ("overall", "test_overall"), strict=False
            ):
                _line(panel, table, name, part, colours[name], "-")
                if pays:
                    _line(panel, table, name, total, colours[name], "--")
            _line(row[2], table, name, "accuracy", colours[name], "-", scale=100)
    for panel in rows[1][:2]:
        _symlog(panel, linear=1.0)
    titles = (
        "Training loss, regulariser included",
        "Expected loss on fresh samples",
        "Accuracy on fresh samples",
    )
    for kind, row in zip(("", "Private: "), rows, strict=True):
        for panel, title in zip(row, titles, strict=True):
            panel.set_title(kind + (title.lower() if kind else title), fontsize=10)
            panel.set_ylabel("mean of the agents")
            _set_axis(panel, table)
        row[2].set_ylabel("mean of the agents, %")
    even = break_even(table)
    if even is not None:
        rows[0][1].axvline(even, color="black", lw=0.8, ls=":")
        text = f" learning alone is better\n beyond {even:.2g}"
        rows[0][1].annotate(text, (even, 0.9), xycoords=("data", "axes fraction"), fontsize=8)
    _legend(figure, colours)
    return figure


def payment_figure(table: Curves) -> Figure:
    """Figure 5: how far payments are from exact ones, what they sum to, losses and accuracy."""
    figure = sheet(10, 7)
    (error, totals), (losses, accuracy) = figure.subplots(2, 2)
    colours = dict(zip(table.names, cycle(COLOURS), strict=False))
    for name, colour in colours.items():
        payment_error = table.of(name, "error")
        # exact payments have no place on a logarithmic axis
        errors = np.where(payment_error.mean == 0, np.nan, payment_error.mean)
        _bars(error, table.at, Average(errors, payment_error.sd), colour)
        _line(totals, table, name, "collected", colour)
        _line(losses, table, name, "loss", colour)
        _line(losses, table, name, "overall", colour, "--")
        _line(accuracy, table, name, "accuracy", colour, scale=100)
    error.set(title="Error of payments", ylabel="mean |P - VCG|, sd over agents", yscale="log")
    totals.set(title="What the server collects", ylabel="sum of payments")
    losses.set(title="Training loss", ylabel="mean of the agents")
    _symlog(totals, linear=0.1)
    _symlog(losses, linear=1.0)
    accuracy.set(title="Accuracy on fresh samples", ylabel="mean of the agents, %")
    for panel in (error, totals, losses, accuracy):
        _set_axis(panel, table)
    _legend(figure, colours)
    return figure


def tradeoff_figure(table: Sequence[Row]) -> Figure:
    """Figure 2: steps and bound of Proposition 11 against alpha."""
    figure = sheet(9.4, 3.8)
    steps, loss = figure.subplots(1, 2)
    etas = list(dict.fromkeys(number(row, "eta2") for row in table))
    for name, colour, prefix in (("printed", RED, "printed_"), ("corrected", BLUE, "")):
        for i, eta in enumerate(etas):
            mine, style = where(table, eta2=eta), STYLES[i % len(STYLES)]
            alpha = [number(row, "alpha") for row in mine]
            turns, bound = ([number(row, prefix + part) for row in mine] for part in ("steps", "loss"))
            steps.plot(alpha, turns, style, color=colour, lw=1.6, label=f"{name}, eta2 {eta:.3g}")
            loss.plot(alpha, bound, style, color=colour, lw=1.6, label=None if i else f"{name}, all eta2")
    steps.set(title="Steps", ylabel="T1 = T2")
    steps.set_yscale("symlog", linthresh=100)
    loss.set(title="Bound", ylabel="bound on |E P - VCG|", yscale="log")
    for panel in (steps, loss):
        panel.set(xscale="log", xlabel=_AXES["alpha"])
        panel.xaxis.set_major_formatter("{x:g}")
    lines, names = steps.get_legend_handles_labels()
    figure.legend(lines, names, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    loss.legend(frameon=False, fontsize=8)
    return figure


def _line(
    axes: Axes, table: Curves, name: str, part: str, colour: str, style: str = "-", scale: float = 1.0
) -> None:
    values = table.of(name, part)
    _bars(axes, table.at, Average(scale * values.mean, scale * values.sd), colour, style)


def _bars(axes: Axes, x: Floats, y: Average, colour: str, style: str = "-") -> None:
    axes.errorbar(
        x, y.mean, y.sd, ls=style, color=colour, lw=1.5, elinewidth=0.8, capsize=2, marker="o", ms=3
    )  # fmt: skip


def _symlog(axes: Axes, linear: float) -> None:
    """Numbers of all sizes and both signs."""
    axes.set_yscale("symlog", linthresh=linear)
    low, high = axes.get_ylim()
    if max(abs(low), abs(high)) < 100 * linear:  # powers of ten alone would be too few to read by
        axes.yaxis.set_major_locator(SymmetricalLogLocator(base=10, linthresh=linear, subs=[1.0, 2.0, 5.0]))
    axes.yaxis.set_major_formatter("{x:g}")
    if axes.get_ylim()[0] < 0:
        axes.axhline(0, color="black", lw=0.6)


def _legend(figure: Figure, colours: dict[str, str]) -> None:
    """One for all panels, below them."""
    lines = [Line2D([], [], color=colour, marker="o", ms=3, label=name) for name, colour in colours.items()]
    lines.append(Line2D([], [], color="black", ls="--", label="payment added"))
    figure.legend(handles=lines, loc="outside lower center", ncols=4, frameon=False, fontsize=9)


def _set_axis(axes: Axes, table: Curves) -> None:
    axes.set_xlabel(_AXES[table.axis])
    if table.axis in ("samples", "alpha"):
        axes.set_xscale("log")
        axes.set_xticks(table.at, [f"{x:g}" for x in table.at])
        axes.minorticks_off()
