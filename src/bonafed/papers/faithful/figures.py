"""Figures of the claims of faithful learning; bars are one standard error."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import cycle

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import SymmetricalLogLocator

from bonafed.papers.claim import Row, number, where
from bonafed.papers.faithful.curves import FFL, PRIVATE, STEPS, axis_of, break_even, curve, names
from bonafed.presentation.figures import BLUE, COLOURS, GREY, RED, STYLES, sheet

_AXES = {
    "samples": "n, samples of all agents",
    "delta": "Delta, heterogeneity of the agents",
    "alpha": "alpha, privacy given away",
    "clusters": "L, clusters",
}
_MARKS = ("o", "s", "^", "D", "v", "P")
_PLAIN = tuple(zip(COLOURS, _MARKS, strict=True))


def loss_figure(rows: Sequence[Row]) -> Figure:
    """Figures 3a and 4a: training and expected loss; by T_1 steps and in noise below, on another scale."""
    figure = sheet(9.5, 7)
    panels, looks = figure.subplots(2, 2), _looks(rows)
    open_ones = [name for name in looks if not name.startswith((STEPS, PRIVATE))]
    titles = ("training loss, regulariser included", "expected loss on fresh samples")
    private = [FFL, *names(rows, STEPS), *names(rows, PRIVATE)]
    for kind, line, shown in zip(("", "By steps: "), panels, (open_ones, private), strict=True):
        for panel, part, total, title in zip(
            line, ("loss", "test_loss"), ("overall", "test_overall"), titles, strict=True
        ):
            for name in shown:
                _line(panel, rows, name, part, looks[name])
                if name.startswith((FFL, PRIVATE)):
                    _line(panel, rows, name, total, looks[name], "--")
            panel.set_title(kind + title if kind else title.capitalize(), fontsize=10)
            panel.set_ylabel("mean of the agents, nats")
            _set_axis(panel, rows)
    for panel in panels[1]:
        _symlog(panel, linear=1.0)
    even = break_even(rows)
    if even is not None:
        panels[0][1].axvline(even, color="black", lw=0.8, ls=":")
        text = f" learning alone is better\n beyond {even:.2g}"
        panels[0][1].annotate(text, (even, 0.85), xycoords=("data", "axes fraction"), fontsize=8)
    _legend(figure, looks, payments=True)
    return figure


def accuracy_figure(rows: Sequence[Row]) -> Figure:
    """Figures 3b and 4b: accuracy on fresh samples."""
    figure = sheet(6.4, 4.6)
    panel, looks = figure.subplots(), _looks(rows)
    for name, look in looks.items():
        _line(panel, rows, name, "accuracy", look, scale=100)
    panel.set_ylabel("accuracy on fresh samples, mean of the agents, %")
    _set_axis(panel, rows)
    _legend(figure, looks)
    return figure


def profit_figure(rows: Sequence[Row]) -> Figure:
    """How far FFL is above local learning: in accuracy, and in expected loss with payment."""
    figure = sheet(9, 3.8)
    own_rows = curve(rows, FFL)
    x = [number(row, "delta") for row in own_rows]
    for panel, column, scale, label in zip(
        figure.subplots(1, 2), ("accuracy_less_local", "test_overall_less_local"), (100, 1),
        ("accuracy of FFL less local's, points", "overall loss of FFL less local's, nats"),
        strict=True,
    ):  # fmt: skip
        y, error = ([scale * number(row, part) for row in own_rows] for part in (column, f"{column}_se"))
        panel.errorbar(x, y, error, color=BLUE, marker="o", ms=4, lw=1.5, capsize=2)
        panel.axhline(0, color="black", lw=0.8)
        panel.set(xlabel=_AXES["delta"], ylabel=label)
    return figure


def error_figure(rows: Sequence[Row]) -> Figure:
    """Figure 5: how far payments are from exact ones, and how much that differs between agents."""
    figure = sheet(9, 4.2)
    looks = _looks(rows)
    for panel, part, label in zip(
        figure.subplots(1, 2),
        ("error", "error_sd"),
        ("Mean over the agents", "Standard deviation over the agents"),
        strict=True,
    ):
        for name, look in looks.items():
            _line(panel, rows, name, part, look)
        panel.set(yscale="log", ylabel="|payment - VCG|, nats")
        panel.set_title(label, fontsize=10)
        _set_axis(panel, rows)
    _legend(figure, looks)
    return figure


def tradeoff_figure(table: Sequence[Row]) -> Figure:
    """Figure 2: steps and bound of Proposition 11 against alpha."""
    figure = sheet(9.4, 3.8)
    steps, loss = figure.subplots(1, 2)
    etas = list(dict.fromkeys(number(row, "eta2") for row in table))
    for name, colour, prefix in (("printed", RED, "printed_"), ("corrected", BLUE, "")):
        for i, eta in enumerate(etas):
            own_rows, style = where(table, eta2=eta), STYLES[i % len(STYLES)]
            alpha = [number(row, "alpha") for row in own_rows]
            turns, bound = ([number(row, prefix + part) for row in own_rows] for part in ("steps", "loss"))
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


def manipulation_figure(rows: Sequence[Row]) -> Figure:
    """Figures 1a and 1b: agent 1's loss and its bound against gamma, for both readings of the noise."""
    figure = sheet(9, 3.8)
    readings = list(dict.fromkeys(str(row["reading"]) for row in rows))
    for panel, part, label in zip(
        figure.subplots(1, 2),
        ("loss", "bound"),
        ("Expected loss", "Bound on it (Proposition 3)"),
        strict=True,
    ):
        for reading, colour, style in zip(readings, (BLUE, RED), STYLES, strict=False):
            own_rows = where(rows, reading=reading)
            finite = [row for row in own_rows if math.isfinite(number(row, "gamma"))]
            x, y = ([number(row, name) for row in finite] for name in ("gamma", part))
            panel.plot(x, y, style, color=colour, lw=1.7, label=reading)
            best = int(np.argmin(y))
            panel.plot([x[best]], [y[best]], "o", color=colour)
            alone = [number(row, part) for row in own_rows if row["gamma"] is None]
            panel.axhline(alone[0], color=colour, ls=":", lw=1)
        panel.axvline(1, color=GREY, lw=0.8)
        panel.set_title(label, fontsize=10)
        panel.set(
            xscale="log",
            xlabel="gamma, factor on agent 1's gradient",
            ylabel="agent 1's loss, squared units",
        )
        panel.xaxis.set_major_formatter("{x:g}")
    lines, labels = figure.axes[0].get_legend_handles_labels()
    lines.append(Line2D([], [], color="black", ls=":", label="gamma infinite: learning alone"))
    figure.legend(lines, [*labels, "gamma infinite: learning alone"], loc="outside lower center", ncols=3,
                  frameon=False, fontsize=9)  # fmt: skip
    return figure


def confidence_figure(rows: Sequence[Row]) -> Figure:
    """Figure 1c: the loss and its bound against delta."""
    figure = sheet(6, 4)
    panel = figure.subplots()
    for reading, colour in zip(
        dict.fromkeys(str(row["reading"]) for row in rows), (BLUE, RED), strict=False
    ):
        own_rows = where(rows, reading=reading)
        x = [number(row, "delta") for row in own_rows]
        for part, style in (("bound", "-"), ("loss", "--")):
            y = [number(row, part) for row in own_rows]
            panel.plot(x, y, style, color=colour, lw=1.7, label=f"{part}, {reading}")
    panel.set(
        xscale="log", ylim=(0, None), xlabel="delta, probability that the bound fails",
        ylabel="agent 1's loss, squared units",
    )  # fmt: skip
    panel.legend(frameon=False, fontsize=8)
    return figure


def minimisers_figure(rows: Sequence[Row]) -> Figure:
    """The gammas that are best for the loss, and for the bound on it."""
    figure = sheet(7.4, 3.6)
    panel = figure.subplots()
    positions = np.arange(len(rows))
    parts = {
        "best_gamma": "of the loss",
        "best_of_printed_bound": "of the bound, printed constants",
        "best_of_bound": "of the bound, the proof's constants",
    }
    for (column, label), colour, mark in zip(parts.items(), COLOURS, _MARKS, strict=False):
        values = [number(row, column) for row in rows]
        panel.plot(values, positions, mark, color=colour, ms=8, label=label)
    panel.set_yticks(positions, [f"mean {row['mean']}, {row['reading']}" for row in rows])
    panel.set(xscale="log", xlabel="best gamma", ylim=(-0.5, len(rows) - 0.5))
    panel.xaxis.set_major_formatter("{x:g}")
    panel.axvline(1, color=GREY, lw=0.8)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    return figure


def joining_figure(rows: Sequence[Row]) -> Figure:
    """Remark 1: what joining does to an agent's risk bound."""
    figure = sheet(6.4, 4.2)
    panel = figure.subplots()
    for unlike, look in zip(dict.fromkeys(row["unlike"] for row in rows), _PLAIN, strict=False):
        own_rows = where(rows, unlike=unlike)
        x, y = ([number(row, name) for row in own_rows] for name in ("samples", "gained_by_joining"))
        panel.plot(x, y, color=look[0], marker=look[1], ms=5, label=f"Delta {unlike:g}")
    panel.axhline(0, color="black", lw=0.8)
    panel.set(xscale="log", xlabel="samples of the agent", ylabel="risk bound alone less joining's, nats")
    panel.set_yscale("symlog", linthresh=0.1)
    panel.legend(frameon=False, title="how unlike the others", fontsize=9)
    return figure


def crowd_figure(rows: Sequence[Row]) -> Figure:
    """(19) against the number of agents."""
    figure = sheet(6.4, 4.2)
    panel = figure.subplots()
    labels = {"noise_term": "first term: agents alike", "advantage": "both terms: agents by their class"}
    for (column, label), look in zip(labels.items(), _PLAIN, strict=False):
        x, y = ([number(row, name) for row in rows] for name in ("agents", column))
        panel.plot(x, y, color=look[0], marker=look[1], ms=5, label=label)
    panel.axhline(0, color="black", lw=0.8)
    panel.set(xscale="log", xlabel="K, agents", ylabel="risk bound alone less together, nats")
    panel.xaxis.set_major_formatter("{x:g}")
    panel.legend(frameon=False, fontsize=9)
    return figure


def gain_figure(rows: Sequence[Row]) -> Figure:
    """Remark 2: what an agent gains by amplifying, without payments and with them."""
    figure = sheet(6.8, 4.4)
    panel, looks = figure.subplots(), _looks(rows)
    for name, look in looks.items():
        _line(panel, rows, name, "gain_plain", look)
        _line(panel, rows, name, "gain_paid", look, "--")
    panel.set(xlabel=_AXES["delta"], ylabel="agent 3's gain by lying, nats")
    _symlog(panel, linear=0.1)
    _legend(figure, looks, payments=True)
    return figure


def guidelines_figure(rows: Sequence[Row]) -> Figure:
    """Steps and bound along the three ways after Proposition 11."""
    figure = sheet(10, 6)
    ways = list(dict.fromkeys(str(row["way"]) for row in rows))
    for column, line in zip(("steps", "bound"), figure.subplots(2, 3), strict=True):
        for panel, way in zip(line, ways, strict=True):
            own_rows = where(rows, way=way)
            x, y = ([number(row, name) for row in own_rows] for name in ("alpha", column))
            panel.plot(x, y, color=BLUE, marker="o", ms=3)
            panel.set(xscale="log", xlabel=_AXES["alpha"], title=way)
            panel.set_ylabel("T1 = T2" if column == "steps" else "bound on |E P - VCG|, nats")
            if column == "bound":
                panel.set_yscale("log")
    return figure


def _looks(rows: Sequence[Row]) -> dict[str, tuple[str, str]]:
    """Colour and mark of every curve."""
    return dict(zip(names(rows), zip(cycle(COLOURS), cycle(_MARKS), strict=False), strict=False))


def _line(
    axes: Axes, rows: Sequence[Row], name: str, part: str, look: tuple[str, str], style: str = "-",
    scale: float = 1.0,
) -> None:  # fmt: skip
    own_rows = curve(rows, name)
    x = [number(row, axis_of(rows)) for row in own_rows]
    y, error = (
        np.array([scale * number(row, column) for row in own_rows]) for column in (part, f"{part}_se")
    )
    shown = np.where(y == 0, np.nan, y)  # exact payments have no place on a logarithmic axis
    axes.errorbar(
        x, shown, error, ls=style, color=look[0], lw=1.5, elinewidth=0.8, capsize=2,
        marker=look[1], ms=4,
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


def _legend(figure: Figure, looks: Mapping[str, tuple[str, str]], payments: bool = False) -> None:
    """One for all panels, below them."""
    lines = [
        Line2D([], [], color=colour, marker=mark, ms=4, label=name)
        for name, (colour, mark) in looks.items()
    ]
    if payments:
        lines.append(Line2D([], [], color="black", ls="--", label="payment added"))
    figure.legend(handles=lines, loc="outside lower center", ncols=3, frameon=False, fontsize=9)


def _set_axis(axes: Axes, rows: Sequence[Row]) -> None:
    axis = axis_of(rows)
    axes.set_xlabel(_AXES[axis])
    if axis in ("samples", "alpha"):
        at = list(dict.fromkeys(number(row, axis) for row in rows))
        axes.set_xscale("log")
        axes.set_xticks(at, [f"{x:g}" for x in at])
        axes.minorticks_off()
