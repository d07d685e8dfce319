"""Figures of the studies of `bonafed.studies.jsam`."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bonafed.checks import Floats
from bonafed.studies.grid import Average
from bonafed.studies.jsam.plans import CostShares, MechanismCurves, MoneyByWeight, SelectedByMoney
from bonafed.style import BLUE, COLOURS, GREY, STYLES, sheet


def _band(axes: Axes, x: Floats, y: Average, color: str, label: str, style: str = "-") -> None:
    """A mean with one standard deviation to both sides."""
    axes.fill_between(x, y.mean - y.sd, y.mean + y.sd, color=color, alpha=0.15, lw=0)
    axes.plot(x, y.mean, style, color=color, lw=1.8, label=label)


def money_by_weight_figure(table: MoneyByWeight) -> Figure:
    """Money against eta: the range in which clients come in, and the whole on logarithmic axes."""
    figure = sheet(9.4, 3.6)
    left, right = figure.subplots(1, 2)
    bends = table.convex_range
    near = table.eta <= (8 * bends[1] if bends else table.eta[-1])
    beginning = Average(table.money.mean[near], table.money.sd[near])
    _band(left, table.eta[near], beginning, BLUE, "mean, +- sd")
    _band(right, table.eta, table.money, BLUE, "mean, +- sd")
    tail = table.money.mean[-1] * np.sqrt(table.eta / table.eta[-1])
    right.plot(table.eta, tail, ":", color=GREY, label="sqrt(eta)")
    right.set(xscale="log", yscale="log", title="The whole curve")
    left.set(title="Convex first, concave after", ylim=(0, None), xlim=(0, table.eta[near][-1]))
    for panel in (left, right):
        if bends:
            panel.axvspan(*bends, color=GREY, alpha=0.15, lw=0, label="bends upwards")
        panel.set(xlabel="eta, weight of the training loss", ylabel="expected money")
    right.legend(frameon=False, fontsize=8)
    return figure


def selected_by_money_figure(table: SelectedByMoney) -> Figure:
    """The number of clients against money."""
    figure = sheet(5.6, 3.8)
    axes = figure.subplots()
    _band(axes, table.money, table.complete, GREY, "if sensitivities were known", "--")
    _band(axes, table.money, table.selected, BLUE, "JSAM")
    axes.set(xlabel="money", ylabel="clients selected", title="More money, more clients")
    axes.set(xlim=(0, None), ylim=(0, None))
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    return figure


def cost_shares_figure(table: CostShares) -> Figure:
    """Share of the money by client, as planned and as paid."""
    figure = sheet(9.4, 3.6)
    panels = figure.subplots(1, 2, sharey=True)
    rank = np.arange(1.0, table.paid.mean.shape[1] + 1)
    parts = (("As planned: epsilon v", table.planned), ("As paid", table.paid))
    for panel, (title, part) in zip(panels, parts, strict=True):
        for k, eta in enumerate(table.eta):
            label = f"eta {eta:g}, {table.selected.mean[k]:.0f} clients on average"
            share = np.where(part.mean[k] > 0, part.mean[k], np.nan)  # never selected: not drawn
            colour, style = COLOURS[k % len(COLOURS)], STYLES[k // len(COLOURS) % len(STYLES)]
            panel.plot(rank, share, style, color=colour, marker="o", ms=2.5, lw=1.2, label=label)
        panel.set(xscale="log", yscale="log", title=title, xlabel="client, least sensitive first")
        panel.set_ylim(1e-4, 1.0)
        panel.xaxis.set_major_formatter("{x:g}")
        panel.yaxis.set_major_formatter("{x:g}")
    panels[0].set_ylabel("mean share of the money")
    panels[1].legend(frameon=False, fontsize=8)
    return figure


def mechanism_curves_figure(table: MechanismCurves) -> Figure:
    """The loss bound against money, and the objective against JSAM's at the same weight."""
    figure = sheet(10, 3.9)
    left, right = figure.subplots(1, 2)
    for k, name in enumerate(table.names):
        style = "--" if name == "complete information" else "-"
        left.plot(
            table.money.mean[k], table.loss.mean[k], style,
            color=COLOURS[k], lw=1.6, label=name, zorder=3 if k == 0 else 2,
        )  # fmt: skip
        excess = Average(100 * table.excess.mean[k], 100 * table.excess.sd[k])
        _band(right, table.money.mean[0], excess, COLOURS[k], name, style)
    left.set(xscale="log", xlabel="expected money", ylabel="bound on the training loss")
    left.set_ylim(0, 1.5 * float(table.loss.mean[0].max()))
    left.set_title("What the money buys")
    right.set(xscale="log", xlabel="expected money of JSAM at the same eta")
    right.set(ylabel="objective above JSAM's, %", title="The objective, at equal weights")
    for panel in (left, right):
        panel.xaxis.set_major_formatter("{x:g}")
    left.legend(frameon=False, fontsize=8)
    return figure
