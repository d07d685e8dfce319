"""Figures of faithful learning: what cheating brings, and what advice is about."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from bonafed.checks import Floats
from bonafed.mechanisms.faithful.adversaries.private_search import PrivateAttempt
from bonafed.mechanisms.faithful.adversaries.search import Attempt, GainCurve
from bonafed.presentation.figures import BLUE, GREY, RED, sheet

_TICKS = (0.25, 0.5, 1.0, 2.0, 5.0, 10.0)


def cheating_figure(curve: GainCurve, attempts: Sequence[Attempt], title: str) -> Figure:
    """The gain over the truth by the factor of the gradient, and by other deviations.

    Lines are fixed points of training (`curve`), dots runs of the gradient protocol (`attempts`).
    """
    others = [a for a in attempts if not _has_place(a, curve)]
    figure = sheet(10, max(4.2, 0.9 + 0.28 * len(others)))
    left, right = figure.subplots(1, 2, width_ratios=(1.15, 1))
    figure.suptitle(title, fontsize=11)
    _draw_factors(left, curve, attempts)
    _draw_others(right, others)
    return figure


def _has_place(attempt: Attempt, curve: GainCurve) -> bool:
    """Whether it is a multiple within the range of the curve."""
    return attempt.factor is not None and curve.factor[0] <= attempt.factor <= curve.factor[-1]


def _draw_factors(axes: Axes, curve: GainCurve, attempts: Sequence[Attempt]) -> None:
    low, high = float(curve.factor[0]), float(curve.factor[-1])
    dots = [a for a in attempts if np.isfinite(a.gain)]
    places = [a.factor if a.factor is not None and _has_place(a, curve) else np.nan for a in dots]
    axes.axhline(0, color=GREY, lw=0.8)
    axes.axvline(1, color=GREY, lw=0.8, ls=":")
    axes.plot(curve.factor, curve.gain_unpaid, color=RED, lw=2, ls="--", label="without payments (FedAvg)")
    axes.plot(curve.factor, curve.gain, color=BLUE, lw=2, label="with payments")
    axes.plot(places, [a.gain_unpaid for a in dots], "o", color=RED, ms=4)
    axes.plot(places, [a.gain for a in dots], "o", color=BLUE, ms=4, label="runs of the protocol")
    axes.set(xscale="log", xlabel="factor of the reported gradient", ylabel="gain over the truth (loss)")
    axes.xaxis.set_major_locator(FixedLocator([x for x in _TICKS if low <= x <= high]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    paying = [a for a in attempts if a.pays and a.factor is not None and a.factor > 0]
    verdict = "none pays"  # as the table says: a gain counts above what the certificate allows
    if paying:
        verdict = f"{max(paying, key=lambda a: a.gain).factor:.3g} is best"
    axes.set_title(f"Multiples of its gradient: {verdict}", fontsize=10)
    axes.legend(frameon=False, fontsize=8, loc="upper left")


def _draw_others(axes: Axes, attempts: Sequence[Attempt]) -> None:
    """Bars with their figures; colours as on the left."""
    heights = np.arange(len(attempts))
    for shift, colour, gains in (
        (-0.19, BLUE, [a.gain for a in attempts]),
        (0.19, RED, [a.gain_unpaid for a in attempts]),
    ):
        widths = np.where(np.isfinite(gains), gains, 0.0)
        bars = axes.barh(heights + shift, widths, height=0.36, color=colour)
        texts = [f"{round(x, 4) + 0.0:+.4f}" if np.isfinite(x) else "diverges" for x in gains]
        axes.bar_label(bars, texts, padding=3, fontsize=7)
    axes.axvline(0, color=GREY, lw=0.8)
    axes.margins(x=0.2)
    axes.set(yticks=heights, yticklabels=[a.name for a in attempts], xlabel="gain over the truth (loss)")
    axes.invert_yaxis()
    axes.set_title("Other reports", fontsize=10)


def private_figure(attempts: Sequence[PrivateAttempt], title: str) -> Figure:
    """Mean gains over the noise, down to their lower confidence limits, and what is allowed."""
    figure = sheet(7.2, 1.2 + 0.3 * len(attempts))
    axes = figure.subplots()
    heights = np.arange(len(attempts))
    gains = np.array([a.gain for a in attempts])
    below = gains - np.array([a.lower for a in attempts])
    colours = [RED if a.pays else BLUE for a in attempts]
    axes.barh(heights, gains, xerr=[below, np.zeros(gains.size)], color=colours, ecolor=GREY, height=0.6)
    axes.plot([a.allowed for a in attempts], heights, "|", color=GREY, ms=12, label="allowed")
    axes.axvline(0, color=GREY, lw=0.8)
    axes.set(
        yticks=heights, yticklabels=[f"agent {a.agent}, {a.name}" for a in attempts],
        xlabel="gain over the truth (loss)",
    )  # fmt: skip
    axes.invert_yaxis()
    axes.set_title(title, fontsize=10)
    axes.legend(frameon=False, fontsize=8)
    return figure


def choices_figure(title: str, choices: dict[str, float], label: str) -> Figure:
    """A bar per choice; the best one stands out."""
    figure = sheet(6.4, 0.9 + 0.6 * len(choices))
    axes = figure.subplots()
    best = min(choices, key=choices.__getitem__)
    colours = [BLUE if name == best else GREY for name in choices]
    bars = axes.barh(list(choices), list(choices.values()), color=colours, height=0.55)
    axes.bar_label(bars, [f"{value:.4g}" for value in choices.values()], padding=3, fontsize=8)
    axes.margins(x=0.15)
    axes.invert_yaxis()
    axes.set(xlabel=label, title=title)
    return figure


def curve_figure(
    title: str, x: Floats, lines: dict[str, Floats], labels: tuple[str, str],
    marked: tuple[str, float] | None = None, *, log_x: bool = False, log_y: bool = False,
) -> Figure:  # fmt: skip
    """Lines over a choice; `marked` is a value of it with its name."""
    figure = sheet(6.4, 4.0)
    axes = figure.subplots()
    for (name, y), colour in zip(lines.items(), (BLUE, RED, GREY), strict=False):
        axes.plot(x, y, color=colour, lw=2, label=name)
    if marked is not None:
        name, at = marked
        axes.axvline(at, color="black", lw=0.8, ls=":", label=f"{name}, {at:.4g}")
    axes.set(xlabel=labels[0], ylabel=labels[1], title=title)
    if log_x:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
    if log_y:
        axes.set_yscale("log")
    axes.legend(frameon=False, fontsize=8)
    return figure
