"""Figures of the claims of the rewards paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from bonafed.papers.claim import Row, number, where
from bonafed.papers.rewards.federations import PARTITIONS
from bonafed.presentation.figures import BLUE, COLOURS, STYLES, sheet

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MARKS = ("o", "s", "^", "D", "v", "P")
_CLIENTS = ("highest", "median", "lowest")  # by their reward rates
_WIDTH = 0.12  # between methods of a setting


def table_figure(rows: Sequence[Row], metric: str, label: str, scale: float = 1.0) -> Figure:
    """A panel per data set: all methods in all settings, with two standard errors; hollow: the paper's."""
    settings = [row for row in rows if row["split"]]
    data = list(dict.fromkeys(row["data"] for row in settings))
    methods = list(dict.fromkeys(str(row["method"]) for row in settings))
    picture = sheet(max(6.0, 5.2 * len(data)), 4.2)
    panels = picture.subplots(1, len(data), squeeze=False, sharey=True)[0]
    for axes, name in zip(panels, data, strict=True):
        splits = list(dict.fromkeys(row["partition"] for row in where(settings, data=name)))
        for k, method in enumerate(methods):
            own = where(settings, data=name, method=method)
            x = np.array([splits.index(row["partition"]) for row in own]) + _WIDTH * (
                k - (len(methods) - 1) / 2
            )
            y, error = ([scale * number(row, column) for row in own] for column in (metric, f"{metric}_se"))
            colour, mark = COLOURS[k % len(COLOURS)], MARKS[k % len(MARKS)]
            axes.errorbar(
                x, y, [2 * each for each in error], fmt=mark, color=colour, ms=5, capsize=2, lw=1,
                label=method,
            )  # fmt: skip
            theirs = [scale * number(row, "paper") for row in own]
            axes.plot(x + 0.03, theirs, mark, mfc="none", mec=colour, ms=5, alpha=0.6)
        axes.set_xticks(range(len(splits)), [str(split) for split in splits], rotation=20, ha="right")
        axes.set_title(str(name))
        axes.set_xlabel("how the data are dealt out")
        axes.grid(axis="y", lw=0.4, alpha=0.5)
    panels[0].set_ylabel(label)
    handles, names = panels[0].get_legend_handles_labels()
    picture.legend(handles, names, loc="outside lower center", ncols=len(names), frameon=False)
    return picture


def sweep_figure(rows: Sequence[Row], name: str, label: str) -> Figure:
    """Accuracies to the left, rho to the right, against what is varied."""
    picture = sheet(9.0, 3.6)
    left, right = picture.subplots(1, 2)
    names = {"most": "contributes most", "accuracy": "mean of all", "least": "contributes least"}
    _lines(left, rows, name, names)
    left.set_ylabel("accuracy, %")
    _lines(right, rows, name, {"rho": "rho"}, 1.0, COLOURS[3])
    right.set_ylabel("rho of accuracy with contribution")
    for axes in (left, right):
        axes.set_xlabel(label)
    left.legend(frameon=False)
    return picture


def lines_figure(rows: Sequence[Row], name: str, label: str, columns: Mapping[str, str]) -> Figure:
    """Accuracies against what is varied."""
    picture = sheet(5.6, 3.6)
    axes = picture.subplots()
    _lines(axes, rows, name, columns)
    axes.set_xlabel(label)
    axes.set_ylabel("accuracy, %")
    axes.legend(frameon=False)
    return picture


def _lines(
    axes: Axes, rows: Sequence[Row], name: str, columns: Mapping[str, str], scale: float = 100.0,
    colour: str | None = None, style: str = "-",
) -> None:  # fmt: skip
    """Columns with two standard errors."""
    x = [number(row, name) for row in rows]
    for k, (column, label) in enumerate(columns.items()):
        y = [scale * number(row, column) for row in rows]
        error = [2 * scale * number(row, f"{column}_se") for row in rows]
        axes.errorbar(
            x, y, error, color=colour or COLOURS[k], marker=MARKS[k], ms=5, ls=style, lw=1.4, capsize=2,
            label=label,
        )  # fmt: skip
    axes.grid(lw=0.4, alpha=0.5)


def references_figure(rows: Sequence[Row]) -> Figure:
    """Accuracy to the left, rho to the right, against q, for both reference models."""
    picture = sheet(9.0, 3.6)
    left, right = picture.subplots(1, 2)
    names = {"max": "best reference", "median": "median reference"}
    for k, (reference, label) in enumerate(names.items()):
        own, colour = where(rows, reference=reference), COLOURS[k]
        _lines(left, own, "q", {"accuracy": label}, colour=colour, style=STYLES[k])
        _lines(right, own, "q", {"rho": label}, 1.0, colour, STYLES[k])
    left.set_ylabel("mean accuracy, %")
    right.set_ylabel("rho of accuracy with contribution")
    for axes in (left, right):
        axes.set_xlabel("recovery rate q")
    left.legend(frameon=False)
    return picture


def bars_figure(rows: Sequence[Row], columns: Mapping[str, str]) -> Figure:
    """A group of bars for each column, a bar per method, with two standard errors."""
    picture = sheet(7.0, 3.6)
    axes = picture.subplots()
    width = 0.8 / len(rows)
    for k, row in enumerate(rows):
        x = np.arange(len(columns)) + width * (k - (len(rows) - 1) / 2)
        y, error = ([100 * number(row, name + end) for name in columns] for end in ("", "_se"))
        axes.bar(
            x, y, width, yerr=[2 * each for each in error], color=COLOURS[k % len(COLOURS)], capsize=2,
            label=str(row["method"]),
        )  # fmt: skip
    axes.set_xticks(range(len(columns)), list(columns.values()))
    axes.set_ylabel("accuracy, or share of clients, %")
    axes.set_xlabel("what is measured")
    picture.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
    return picture


def convergence_figure(rows: Sequence[Row], methods: Sequence[str], common: str) -> Figure:
    """A row of panels per partition, a panel per method: clients' accuracies by round, beside FedAvg's."""
    partitions = list(dict.fromkeys(str(row["partition"]) for row in rows))
    picture = sheet(4.4 * len(methods), 0.4 + 3.0 * len(partitions))
    panels = picture.subplots(len(partitions), len(methods), squeeze=False, sharey="row", sharex=True)
    for across, partition in zip(panels, partitions, strict=True):
        for axes, method in zip(across, methods, strict=True):
            lines = [(common, "all", "black"), *((method, c, COLOURS[k]) for k, c in enumerate(_CLIENTS))]
            for name, client, colour in lines:
                own = where(rows, partition=partition, method=name, client=client)
                label = name if client == "all" else f"client with the {client} rate"
                x, y = ([number(row, column) for row in own] for column in ("round", "accuracy"))
                style = "--" if client == "all" else "-"
                axes.plot(x, [100 * each for each in y], style, color=colour, lw=1.4, label=label)
            axes.set_title(f"{method}, {partition}", fontsize=10)
            axes.grid(lw=0.4, alpha=0.5)
        across[0].set_ylabel("accuracy, %")
    for axes in panels[-1]:
        axes.set_xlabel("round")
        axes.xaxis.get_major_locator().set_params(integer=True)
    picture.legend(
        *panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False
    )
    return picture


def participation_figure(rows: Sequence[Row]) -> Figure:
    """A dot per client."""
    picture = sheet(5.2, 3.6)
    axes = picture.subplots()
    x, y, error = ([number(row, name) for row in rows] for name in ("rate", "accuracy", "accuracy_se"))
    axes.errorbar(
        x, [100 * each for each in y], [200 * each for each in error], fmt="o", color=BLUE, ms=4, capsize=2
    )
    axes.set_xlabel("rate of participation p")
    axes.set_ylabel("accuracy of the client's model, %")
    axes.set_title(f"rho {number(rows[0], 'rho'):.2f}")
    axes.grid(lw=0.4, alpha=0.5)
    return picture


def measures_figure(rows: Sequence[Row]) -> Figure:
    """Both methods in every setting."""
    settings = [row for row in rows if row["split"] in PARTITIONS]
    return table_figure(settings, "rho", "rho of final with standalone accuracy")


def bounds_figure(rows: Sequence[Row], common: str) -> Figure:
    """Bounds by rounds, for every theorem and rate; under `common` all clients have the same."""
    picture = sheet(6.4, 4.0)
    axes = picture.subplots()
    rates = list(dict.fromkeys(number(row, "rate") for row in rows))
    for style, name in zip(STYLES, dict.fromkeys(str(row["theorem"]) for row in rows), strict=False):
        for colour, rate in zip(COLOURS, rates[:1] if name == common else rates, strict=False):
            own = where(rows, theorem=name, rate=rate)
            x, y = ([number(row, column) for row in own] for column in ("rounds", "bound"))
            axes.loglog(
                x,
                y,
                style,
                color=colour,
                lw=1.3,
                label=name if name == common else f"{name}, rate {rate:g}",
            )
    axes.set_xlabel("rounds T")
    axes.set_ylabel("bound on the loss above the least")
    axes.legend(frameon=False, fontsize=7, ncols=2)
    return picture


def totals_figure(rows: Sequence[Row]) -> Figure:
    """Total contributions by cost, for every rule."""
    picture = sheet(5.6, 3.6)
    axes = picture.subplots()
    for colour, style, rule in zip(
        COLOURS, STYLES, dict.fromkeys(row["rule"] for row in rows), strict=False
    ):
        own = [row for row in rows if row["rule"] == rule]
        x, y = ([number(row, column) for row in own] for column in ("cost", "total"))
        axes.plot(x, y, style, marker="o", color=colour, label=str(rule))
    axes.set_xlabel("cost of a unit of contribution")
    axes.set_ylabel("total contribution, least equilibrium")
    axes.legend(frameon=False)
    return picture
