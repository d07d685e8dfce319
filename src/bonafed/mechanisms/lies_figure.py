"""The figure of an audit: what every lie would gain."""

from __future__ import annotations

import numpy as np
from matplotlib.colors import TwoSlopeNorm
from matplotlib.figure import Figure

from bonafed.checks import Floats
from bonafed.economics.findings import Finding
from bonafed.presentation.figures import sheet, words

_CLIENT = 40  # letters of the name of a client, at most


def lie_figure(
    costs: Floats,
    quantity: Floats,
    transfer: Floats,
    name: str,
    finding: Finding,
    unit: str = "per round",
    reach: float = 0.0,
    client: str = "",
) -> Figure:
    """What a client of each true cost gains by each report, under the verdict of the audit's search.

    `quantity` and `transfer` are what it gives and gets at each of the costs as a report. `reach` is the
    end of the colour scale, by default the largest gain or loss; losses beyond it look alike.
    `client` is whose lies they are, where only one was tried.
    A lie that pays may lie between the costs that are drawn: the finding's witness is the one that was
    found. Without one no lie pays, and what looks like a gain is rounding.
    """
    with np.errstate(over="ignore", invalid="ignore"):  # shown as blanks, with a note
        gain = transfer[None, :] - costs[:, None] * quantity[None, :]
        gain = gain - np.diag(gain)[:, None]
    finite, witness = gain[np.isfinite(gain)], finding.witness
    figure = sheet(5.6, 4.4)
    axes = figure.subplots()
    scale = reach or float(np.abs(finite).max(initial=0.0)) or 1.0
    best = 0.0 if witness is None else witness.gain
    pays = 0 < best < np.inf
    colours = TwoSlopeNorm(0.0, -scale, best if pays else scale)  # however small, a gain is red
    room = 0.0 if costs[0] < costs[-1] else 0.5 * costs[0]  # a single cost has no width of its own
    low, high = float(costs[0] - room), float(costs[-1] + room)
    picture = axes.imshow(
        gain, origin="lower", extent=(low, high, low, high), aspect="auto", cmap="RdBu_r",
        norm=colours,
    )  # fmt: skip
    axes.plot([low, high], [low, high], color="black", lw=0.8, ls=":")
    axes.set(xlabel="reported cost", ylabel="true cost")
    if witness is not None:
        axes.plot(
            witness.report,
            witness.true_cost,
            "o",
            mfc="none",
            color="black",
            label="lie found",
            clip_on=False,
        )
        axes.legend(loc="upper left", fontsize=8)
    whose = f"{words(name)},\nclient {words(client, _CLIENT)}" if client else words(name)
    verdict = f"best lie gains {best:.3g} {unit}" if pays else "no lie pays"
    if finite.size < gain.size:
        verdict = "outcomes are not finite"
    axes.set_title(f"{whose}:\n{verdict}", fontsize=10, parse_math=False)
    below = "min" if reach else "neither"
    bar = figure.colorbar(picture, ax=axes, extend=below, label=f"gain of the lie, money {unit}")
    if pays:  # the two halves have scales of their own
        bar.set_ticks(
            [-scale, -scale / 2, 0, best / 2, best],
            labels=[f"{tick:.2g}" for tick in (-scale, -scale / 2, 0, best / 2, best)],
        )
    return figure
