"""The figure of advice on private training: how much noise a run has, and how fast to train in it."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator, PercentFormatter

from bonafed.learning.privacy.planning import DWARFED
from bonafed.presentation.figures import BLUE, GREEN, GREY, RED, sheet


def noise_figure(
    epsilons: Sequence[float], shares: Sequence[float], rates: Sequence[float], asked: float
) -> Figure:
    """The columns of the table over epsilon; `asked` is the one of the question."""
    figure = sheet(8.6, 3.6)
    left, right = figure.subplots(1, 2)
    left.plot(epsilons, shares, "o-", color=BLUE)
    left.axhline(DWARFED, color=RED, ls="--", lw=1)
    told = "above, hardly anything is learned"
    left.text(epsilons[-1], DWARFED, told, color=RED, fontsize=8, ha="right", va="bottom")
    left.set(ylabel="noise against the way of training", title="How much noise is in the model")
    left.set_ylim(bottom=0.0)
    left.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    right.plot(epsilons, rates, "o-", color=GREEN)
    right.set(ylabel="learning rate", title="How fast to train")
    right.set_ylim(bottom=0.0)
    for axes in (left, right):
        axes.axvline(asked, color=GREY, ls=":", lw=1)
        axes.set(xscale="log", xlabel="epsilon of the whole run")
        axes.set_xticks(epsilons)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        axes.xaxis.set_minor_locator(NullLocator())
    return figure
