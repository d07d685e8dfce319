"""Figures of the claims of the JSAM paper, each a function of the claim's table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bonafed.papers.claim import Row, number, where
from bonafed.presentation.figures import BLUE, COLOURS, GREY, RED, STYLES, sheet

_SHOWN = {"JSAM": ("-", "o"), "JSAM-CI": ("--", "s"), "USBM": ("-", "^"), "FSBM-50": ("-.", "v"),
          "FSBM-75": (":", "D"), "BBM": ("--", "x")}  # fmt: skip


def _column(table: Sequence[Row], name: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([number(row, name) for row in table])


def _band(
    axes: Axes, table: Sequence[Row], x: str, y: str, color: str, label: str, style: str = "-"
) -> None:
    """A mean with two standard errors to both sides."""
    at, mean, error = (_column(table, name) for name in (x, y, f"{y}_se"))
    axes.fill_between(at, mean - 2 * error, mean + 2 * error, color=color, alpha=0.2, lw=0)
    axes.plot(at, mean, style, color=color, lw=1.8, label=label)


def money_by_weight_figure(table: Sequence[Row]) -> Figure:
    """Money against eta: the range in which clients come in, and the whole on logarithmic axes."""
    figure = sheet(9.4, 3.6)
    left, right = figure.subplots(1, 2)
    shares = _column(table, "selected") / _column(table, "clients")
    eta, money = _column(table, "eta"), _column(table, "money")
    coming = shares < 0.61  # where the curve turns, for a uniform prior
    turn = float(eta[coming][-1]) if coming.any() else float(eta[0])
    near = [row for row in table if number(row, "eta") <= 8 * turn]
    _band(left, near, "eta", "money", BLUE, "mean ± 2 se")
    _band(right, table, "eta", "money", BLUE, "mean ± 2 se")
    right.plot(eta, money[-1] * np.sqrt(eta / eta[-1]), ":", color=GREY, label="sqrt(eta)")
    right.set(xscale="log", yscale="log", title="The whole curve")
    left.set(title="Where clients come in", ylim=(0, None), xlim=(0, None))
    for panel in (left, right):
        panel.axvspan(float(eta[0]), turn, color=GREY, alpha=0.15, lw=0, label="up to 61 % selected")
        panel.set(xlabel="eta, weight of the training loss", ylabel="expected money")
    right.legend(frameon=False, fontsize=8)
    return figure


def selected_by_money_figure(table: Sequence[Row], printed: Sequence[tuple[float, float]]) -> Figure:
    """The number of clients against money, beside the printed pairs of money and number."""
    figure = sheet(5.8, 3.9)
    axes = figure.subplots()
    for name, colour in zip(("JSAM", "JSAM-CI"), COLOURS, strict=False):
        _band(axes, where(table, mechanism=name), "money", "selected", colour, name, _SHOWN[name][0])
    most = max(number(row, "money") for row in where(table, mechanism="JSAM"))
    for name, colour in zip(("USBM", "FSBM-50", "FSBM-75"), COLOURS[2:], strict=False):
        count = number(where(table, mechanism=name)[0], "selected")
        axes.plot([0, most], [count, count], _SHOWN[name][0], color=colour, lw=1.2, label=name)
    axes.plot(*zip(*printed, strict=True), "k*", ms=8, ls="", label="printed")
    axes.set(xlabel="expected money", ylabel="clients selected", xlim=(0, None), ylim=(0, None))
    axes.legend(frameon=False, fontsize=8, loc="lower right")
    return figure


def cost_shares_figure(table: Sequence[Row]) -> Figure:
    """Share of the money by client, as planned and as paid."""
    figure = sheet(9.4, 3.6)
    panels = figure.subplots(1, 2, sharey=True)
    parts = (("As planned: epsilon v", "planned"), ("As paid", "paid"))
    for panel, (title, part) in zip(panels, parts, strict=True):
        for k, eta in enumerate(dict.fromkeys(number(row, "eta") for row in table)):
            own_rows = where(table, eta=eta)
            label = f"eta {eta:.3g}, {number(own_rows[0], 'selected'):.0f} clients on average"
            share = _column(own_rows, part)
            share[share <= 0] = np.nan  # never selected: not drawn
            colour, style = COLOURS[k % len(COLOURS)], STYLES[k % len(STYLES)]
            panel.plot(
                _column(own_rows, "rank"),
                share,
                style,
                color=colour,
                marker="o",
                ms=2.5,
                lw=1.2,
                label=label,
            )
        panel.set(xscale="log", yscale="log", title=title, xlabel="client, least sensitive first")
        panel.set_ylim(1e-4, 1.0)
        panel.xaxis.set_major_formatter("{x:g}")
        panel.yaxis.set_major_formatter("{x:g}")
    panels[0].set_ylabel("mean share of the money")
    panels[1].legend(frameon=False, fontsize=8)
    return figure


def mechanisms_figure(table: Sequence[Row]) -> Figure:
    """The loss bound against money, and the objective against JSAM's at the same weight."""
    figure = sheet(10, 3.9)
    left, right = figure.subplots(1, 2)
    first = where(table, mechanism="JSAM")
    for k, name in enumerate(dict.fromkeys(str(row["mechanism"]) for row in table)):
        own_rows, style = where(table, mechanism=name), _SHOWN[name][0]
        left.plot(
            _column(own_rows, "money"), _column(own_rows, "loss"), style,
            color=COLOURS[k], lw=1.6, label=name, zorder=3 if k == 0 else 2,
        )  # fmt: skip
        right.plot(
            _column(first, "money"), 100 * _column(own_rows, "excess"), style, color=COLOURS[k], lw=1.6
        )
    left.set(xscale="log", xlabel="expected money", ylabel="bound on the training loss")
    left.set_ylim(0, 1.5 * float(_column(first, "loss").max()))
    left.set_title("What the money buys")
    right.set(xscale="log", xlabel="expected money of JSAM at the same eta")
    right.set(ylabel="objective above JSAM's, %", title="The objective, at equal weights")
    for panel in (left, right):
        panel.xaxis.set_major_formatter("{x:g}")
    left.legend(frameon=False, fontsize=8)
    return figure


def accuracy_figure(table: Sequence[Row]) -> Figure:
    """Accuracy over money, a panel for each similarity, bars of one standard error."""
    shown = list(table)
    levels = sorted({number(row, "s") for row in shown}, reverse=True)
    large = any(row["sums"] == "large" for row in shown)
    picture = sheet(2.9 * len(levels) + 1.2, 3.4)
    panels = picture.subplots(1, len(levels), sharey=True, squeeze=False)[0]
    for axes, s in zip(panels, levels, strict=True):
        for colour, name in zip(COLOURS, _SHOWN, strict=False):
            own_rows = where(shown, s=s, mechanism=name)
            own_rows.sort(key=lambda row: number(row, "money"))
            style, marker = _SHOWN[name]
            axes.errorbar(
                _column(own_rows, "money"), 100 * _column(own_rows, "accuracy"),
                100 * _column(own_rows, "accuracy_se"),
                color=colour, ls=style, lw=1.4, capsize=2, marker=marker, ms=4, label=name,
            )  # fmt: skip
        axes.set(xlabel="money paid", title=f"s = {s:g} %", xscale="log" if large else "linear")
    panels[0].set_ylabel("test accuracy, %")
    panels[-1].legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return picture


def bars(table: Sequence[Row], label: str, value: str, xlabel: str, printed: str = "") -> Figure:
    """A horizontal bar for each row, with its standard error, and the paper's number where there is one."""
    figure = sheet(6.4, 0.8 + 0.34 * len(table))
    axes = figure.subplots()
    at = np.arange(len(table))[::-1]
    errors = [0.0 if row.get(f"{value}_se") is None else number(row, f"{value}_se") for row in table]
    axes.barh(at, _column(table, value), xerr=errors, color=BLUE, alpha=0.75, height=0.6, label="ours")
    if printed:
        axes.plot(_column(table, printed), at, "k*", ms=8, ls="", label="printed")
        axes.legend(frameon=False, fontsize=8)
    axes.set_yticks(at, [str(row[label]) for row in table], fontsize=8)
    axes.set_xlabel(xlabel)
    return figure


def selection_figure(table: Sequence[Row]) -> Figure:
    """Selection probabilities by client, a panel for each of some weights."""
    weights = list(dict.fromkeys(number(row, "eta") for row in table))
    shown = [weights[int(at)] for at in np.linspace(0, len(weights) - 1, min(3, len(weights)))]
    figure = sheet(9.4, 3.2)
    panels = figure.subplots(1, len(shown), sharey=True, squeeze=False)[0]
    for axes, eta in zip(panels, shown, strict=True):
        own_rows = where(table, eta=eta)
        fair = 1 / number(own_rows[0], "clients")
        axes.bar(_column(own_rows, "client"), _column(own_rows, "probability"), color=BLUE, alpha=0.8)
        axes.axhline(fair, color=GREY, ls="--", lw=1, label="1/N")
        axes.set(
            xlabel="client, by virtual cost", title=f"eta {eta:.3g}: {own_rows[0]['threshold']} selected"
        )
    panels[0].set_ylabel("selection probability")
    panels[0].legend(frameon=False, fontsize=8)
    return figure


def algorithm_figure(table: Sequence[Row]) -> Figure:
    """How far the printed algorithm is from the optimum, by the best threshold."""
    figure = sheet(5.8, 3.6)
    axes = figure.subplots()
    at = _column(table, "best_threshold")
    axes.plot(at, 100 * _column(table, "printed"), "o", color=BLUE, ms=4, alpha=0.6, label="as printed")
    axes.plot(at, 100 * _column(table, "exact"), "x", color=GREY, ms=4, label="exact")
    axes.set(xlabel="best threshold h", ylabel="objective above the least, %")
    axes.legend(frameon=False, fontsize=8)
    return figure


def bound_figure(table: Sequence[Row]) -> Figure:
    """Gradient norms beside their bounds, on a logarithmic axis."""
    figure = sheet(7.2, 0.9 + 0.45 * len(table))
    axes = figure.subplots()
    at = np.arange(len(table))[::-1]
    shown = (("norm", "o", "measured"), ("printed", "s", "(13)"), ("total", "x", "corrected"))
    for (name, marker, label), colour in zip(shown, COLOURS, strict=False):
        axes.plot(_column(table, name), at, marker, color=colour, ms=6, ls="", label=label)
    axes.set_yticks(at, [str(row["problem"]) for row in table], fontsize=8)
    axes.set(xscale="log", xlabel="root of the mean squared gradient norm, and bounds on it")
    axes.legend(frameon=False, fontsize=8)
    return figure


def splits_figure(table: Sequence[Row]) -> Figure:
    """How much noisier the best other split of the same sum is."""
    figure = sheet(5.8, 3.6)
    axes = figure.subplots()
    axes.plot(
        _column(table, "clients"),
        np.maximum(_column(table, "search"), 1e-12),
        "o",
        color=BLUE,
        ms=4,
        alpha=0.6,
    )
    axes.set(yscale="log", xlabel="clients", ylabel="noise of the best other split, relative excess")
    return figure


def spent_figure(table: Sequence[Row]) -> Figure:
    """Epsilon spent over epsilon sold."""
    figure = sheet(5.8, 3.6)
    axes = figure.subplots()
    sold = _column(table, "sold")
    for name, label, colour, style in (
        ("printed", "noise of (8)", RED, "o-"),
        ("exact", "exact noise", BLUE, "s--"),
    ):
        axes.plot(
            sold, _column(table, f"spent_{name}") / sold, style, color=colour, ms=4, lw=1.6, label=label
        )
    axes.axhline(1.0, color=GREY, ls=":", lw=1)
    axes.set(xscale="log", xlabel="epsilon sold", ylabel="epsilon spent over epsilon sold", ylim=(0, None))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.legend(frameon=False, fontsize=8)
    return figure


def lies_figure(table: Sequence[Row]) -> Figure:
    """The best gain of a lie and the least utility of the truth, by client."""
    figure = sheet(5.8, 3.6)
    axes = figure.subplots()
    at = _column(table, "client")
    axes.bar(at - 0.2, _column(table, "least_utility"), 0.4, color=BLUE, label="least utility of the truth")
    axes.bar(at + 0.2, _column(table, "gain"), 0.4, color=RED, label="largest gain of a lie")
    axes.set(xlabel="client, least sensitive first", ylabel="money")
    axes.legend(frameon=False, fontsize=8)
    return figure


def large_sums_figure(table: Sequence[Row]) -> Figure:
    """Differences to USBM beside the printed ones."""
    shown = [
        {**row, "label": f"{row['mechanism']}, s {number(row, 's'):g}"}
        for row in table
        if row["mechanism"] != "USBM"
    ]
    return bars(shown, "label", "over_usbm", "test accuracy less USBM's", "printed_over_usbm")


def money_figure(table: Sequence[Row]) -> Figure:
    """Ratios beside the printed ones."""
    shown: list[Row] = [{**row, "label": f"{row['mechanism']} {row['bias']}".strip()} for row in table]
    return bars(shown, "label", "ratio", "money over USBM's", "printed")
