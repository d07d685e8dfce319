"""Curves of training runs: accuracy and loss against rounds, and against money where it is due over rounds.

Where a run pays once, the legend says how much and when.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter

from bonafed.checks import Floats
from bonafed.presentation.documents import Cell
from bonafed.presentation.figures import COLOURS, STYLES, sheet, words

_PANEL = 4.5  # inches
_FAR = 1000  # times the largest loss of another run, beyond which the axis is logarithmic
_BARS, _DIGIT = 3.2, 0.072  # inches of a panel with bars, and of a digit over a bar
_DRAWN = 2.0  # inches of the height of such a panel in which bars are drawn, at least
_ENTRY, _SHORT = 78, 20  # letters of an entry of the legend, and of a name under a bar, at most
_HANDLE, _LETTER = 0.7, 0.065  # inches of a legend's entry: the line with its margins, and a letter


@dataclass(frozen=True, slots=True, eq=False)
class RunCurve:
    """One run, measured after each of m rounds; NaN where it was not measured."""

    name: str
    rounds: Floats  # (m,) 1, 2, ...
    accuracy: Floats  # (m,) share of test samples
    loss: Floats  # (m,) on the test samples
    spend: Floats | None = None  # (m,) money so far; None if nobody is paid
    train_loss: Floats | None = None  # (m,) drawn as the loss of a run that was never tested
    unit: str = "round"  # what is counted as rounds
    test_set: str | None = None  # a letter, where runs side by side were judged by different samples

    @property
    def is_tested(self) -> bool:
        """Whether anything was measured on test samples."""
        return bool(np.isfinite(self.accuracy).any() or np.isfinite(self.loss).any())

    @property
    def pays_over_rounds(self) -> bool:
        """Whether money becomes due in more than one round; else a line over it shows nothing."""
        return self.spend is not None and int(np.count_nonzero(np.diff(self.spend, prepend=0.0))) > 1

    @property
    def paid_once(self) -> str:
        """How much was paid and when, where it was all at once; "" otherwise."""
        if self.spend is None or self.pays_over_rounds or not self.spend.size or not self.spend[-1]:
            return ""
        first = int(np.flatnonzero(self.spend)[0])
        last = first == self.spend.size - 1
        when = "at the end" if last else f"in {self.unit} {int(self.rounds[first])}"
        return f"{self.spend[-1]:,.2f} paid {when}"

    def values(self, what: str) -> Floats:
        """(m,) the values of the run in a panel."""
        if what == "loss" and not self.is_tested and self.train_loss is not None:
            return self.train_loss
        return self.loss if what == "loss" else self.accuracy


def runs_figure(curves: Sequence[RunCurve]) -> Figure:
    """A row of panels over rounds and, if a run pays round by round, one over money; no panel is empty."""
    paid = any(curve.pays_over_rounds for curve in curves)
    measured = [
        what for what in ("accuracy", "loss") if any(_measured(curve, what).any() for curve in curves)
    ]
    quantities = measured or ["accuracy", "loss"]
    width = max(_PANEL * len(quantities), 6.0)
    labels = _labels(curves)
    columns = _legend_columns(labels, width)
    figure = sheet(width, (6.4 if paid else 3.4) + 0.2 * math.ceil(len(curves) / columns))
    rows = figure.subplots(2 if paid else 1, len(quantities), squeeze=False)
    for panel, what in zip(rows[0], quantities, strict=True):
        _draw(panel, curves, labels, what, over="rounds")
        panel.set(xlabel=_units(curves), title=what.capitalize())
        panel.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
    for panel, what in zip(rows[1] if paid else (), quantities, strict=False):
        _draw(panel, curves, labels, what, over="spend")
        panel.set(xlabel="money spent so far", visible=bool(panel.get_lines()))
    lines = {line.get_label(): line for panel in rows.flat for line in panel.get_lines()}
    _add_legend(figure, [lines[label] for label in labels if label in lines], columns)
    return figure


def _measured(curve: RunCurve, what: str) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.isfinite(curve.values(what))


def _axis(curves: Sequence[RunCurve], what: str) -> str:
    """Which samples the values were measured on; where both kinds occur, the legend tells them apart."""
    kinds = {"test" if curve.is_tested else "training" for curve in curves} or {"test"}
    return f"{' or '.join(sorted(kinds))} {what}"


def _labels(curves: Sequence[RunCurve]) -> list[str]:
    """The names in the legend, with what tells a run from the others besides: what its values are measured
    on, and what it counts."""
    labels = []
    for curve in curves:
        marks = ["training loss"] if not curve.is_tested else []
        marks += [f"test set {curve.test_set}"] if curve.is_tested and curve.test_set else []
        marks += [f"by {curve.unit}s"] if len({other.unit for other in curves}) > 1 else []
        marks += [curve.paid_once] if curve.paid_once else []
        told = f" ({', '.join(marks)})" if marks else ""
        label = words(curve.name, max(_SHORT, _ENTRY - len(told))) + told
        labels.append(f" {label}" if label.startswith("_") else label)  # Matplotlib hides such labels
    return labels


def _units(curves: Sequence[RunCurve]) -> str:
    """What is counted along the axis."""
    return " or ".join(dict.fromkeys(curve.unit for curve in curves)) or "round"


def _legend_columns(labels: Sequence[str], width: float) -> int:
    """How many entries fit side by side, 4 at most."""
    longest = max(map(len, labels), default=0)
    return max(1, min(len(labels), 4, int(width / (_HANDLE + _LETTER * longest))))


def _add_legend(figure: Figure, lines: Sequence[Line2D], columns: int) -> None:
    if not lines:
        return
    legend = figure.legend(
        handles=lines, loc="outside lower center", frameon=False, fontsize=8, ncols=columns
    )
    for text in legend.get_texts():
        text.set_parse_math(False)  # a dollar in a name is a dollar


def _draw(axes: Axes, curves: Sequence[RunCurve], labels: Sequence[str], what: str, over: str) -> None:
    visible = []
    for k, curve in enumerate(curves):
        x, measured = getattr(curve, over), _measured(curve, what)
        if x is None or not measured.any() or (over == "spend" and not curve.pays_over_rounds):
            continue
        visible.append(curve)
        axes.plot(
            x[measured],
            curve.values(what)[measured],
            STYLES[k // len(COLOURS) % len(STYLES)],
            color=COLOURS[k % len(COLOURS)],
            lw=1.6,
            marker="o" if measured.sum() == 1 else None,  # a single point draws no line
            label=labels[k],
        )
    axes.set_ylabel(_axis(visible, what))
    if what == "loss" and _far_apart([curve.values(what)[_measured(curve, what)] for curve in visible]):
        axes.set_yscale("log")


def _far_apart(losses: Sequence[Floats]) -> bool:
    """Whether one run would flatten another against the axis; losses of 0 have no logarithm."""
    if not losses or min(values.min() for values in losses) <= 0:
        return False
    largest = [float(values.max()) for values in losses]
    return max(largest) / _FAR > min(largest)


def curve_of(overview: Mapping[str, Any], name: str | None = None) -> RunCurve:
    """The curve of a run in a listing."""

    def numbers(key: str) -> Floats:
        return np.array([np.nan if value is None else value for value in overview["curves"][key]])

    spend = None if overview["curves"]["spend"] is None else numbers("spend")
    curve = RunCurve(
        name or overview["name"], numbers("round"), numbers("test_accuracy"), numbers("test_loss"), spend,
        numbers("train_loss"), overview["unit"], overview.get("test_set"),
    )  # fmt: skip
    known = overview["finished"] or curve.pays_over_rounds  # of others nobody can say that it is all
    return curve if known else replace(curve, spend=None)


def curves_figure(summary: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]]) -> Figure:
    """The curves of one run, together with those of its baselines."""
    phases = dict.fromkeys(record["phase"] for record in metrics)
    return runs_figure(
        [recorded_curve(phase or str(summary["mechanism"]), summary, metrics, phase) for phase in phases]
    )


def recorded_curve(
    name: str,
    summary: Mapping[str, Any],
    metrics: Sequence[Mapping[str, Any]],
    phase: str = "",
    test_set: str | None = None,
) -> RunCurve:
    """One phase of a run, from its lines."""
    lines = [record for record in metrics if record["phase"] == phase]
    spends = [record["spend"] for record in lines]
    spend = None if None in spends else np.cumsum(spends)
    accuracy, loss, train_loss = (
        np.array([np.nan if line[key] is None else line[key] for line in lines])
        for key in ("test_accuracy", "test_loss", "train_loss")
    )
    unit = summary.get("unit", "round")  # older summaries do not say
    rounds = np.arange(1.0, len(lines) + 1)
    return RunCurve(name, rounds, accuracy, loss, spend, train_loss, unit, test_set)


def comparison_figure(
    rows: Sequence[Mapping[str, Any]],
    texts: Mapping[str, Callable[[Cell], str]],
    *,
    judged_alike: bool = True,
) -> Figure:
    """Accuracy, money, epsilon and best lie of mechanisms side by side; only panels that have a value.

    Numbers are written as the table has them, by `texts`. Where mechanisms were not judged by the same test
    samples, each name says how many they were.
    """
    panels = [
        (name, label)
        for name, label in (
            ("accuracy", "test accuracy"),
            ("money", "money spent"),
            ("epsilon", "largest epsilon given away"),
            ("lie gains", "best lie gains (own unit)"),
        )
        if any(row[name] is not None for row in rows)
    ]
    figure = sheet(_BARS * max(1, len(panels)), 4.0)
    axes = figure.subplots(1, max(1, len(panels)), squeeze=False)[0]
    names = [words(str(row["mechanism"]), _SHORT) for row in rows]
    colours = [COLOURS[k % len(COLOURS)] for k in range(len(rows))]
    for panel, (name, label) in zip(axes, panels, strict=True):
        values = [row[name] for row in rows]
        panel.bar(range(len(rows)), [value or 0.0 for value in values], color=colours)
        _write_values(panel, values, [
            texts[name](value) if value is not None else "FAILED" if row.get("failed") else "-"
            for value, row in zip(values, rows, strict=True)
        ])  # fmt: skip
        panel.set_title(label, loc="left", fontsize=10)
        shown = names
        if name == "accuracy":
            panel.set_yticks(np.linspace(0.0, 1.0, 6))
            panel.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
            if not judged_alike:
                shown = [f"{who} ({row['tested on']:,})" for who, row in zip(names, rows, strict=True)]
                panel.set_xlabel("(test samples)")
        panel.set_xticks(
            range(len(rows)), shown, rotation=60, ha="right", rotation_mode="anchor", fontsize=8,
            parse_math=False,
        )  # fmt: skip
        if not any(values):
            panel.set_ylim(0.0, 1.0)  # nothing to scale by
    return figure


def _write_values(panel: Axes, values: Sequence[float | None], texts: Sequence[str]) -> None:
    """A value over each bar, upright where it is wider than the bar's share of the panel."""
    upright = _is_upright(texts)
    for bar, (value, text) in enumerate(zip(values, texts, strict=True)):
        panel.annotate(
            text, (bar, value or 0.0), (0, 2), textcoords="offset points", ha="center", va="bottom",
            fontsize=8, rotation=90 if upright else 0,
        )  # fmt: skip
    share = min(0.6, _DIGIT * (max(map(len, texts), default=0) + 2) / _DRAWN) if upright else 0.13
    panel.margins(y=share / (1 - share))  # of the height, for what stands over the highest bar


def _is_upright(texts: Sequence[str]) -> bool:
    return _DIGIT * (max(map(len, texts), default=0) + 1) > 0.8 * _BARS / max(1, len(texts))
