"""Pictures of `bonafed jsam quote` and `bonafed audit jsam`; imported only where one is asked for."""

from __future__ import annotations

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from bonafed.checks import Floats
from bonafed.economics.priors import JSONObject

_BLUE, _RED, _GREY, _GREEN = "#1f6f8b", "#c8553d", "#8a8a8a", "#4a7c59"


def quote_figure(description: JSONObject) -> Figure:
    """Selection probability, epsilon and payment by client, in order of the reported cost."""
    rows = [row for row in description["terms"] if row["admitted"]]
    rows.sort(key=lambda row: (row["report"], row["client"]))

    def column(name: str) -> Floats:
        return np.array([row[name] for row in rows], dtype=np.float64)

    place, cost, epsilon = np.arange(1, len(rows) + 1), column("report"), column("epsilon")
    paid = description["kind"] == "settlement"
    panels = 3 if paid else 2
    figure = Figure(figsize=(3.7 * panels, 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, panels)
    axes[0].bar(place, column("selection"), width=0.8, color=_BLUE)
    axes[0].axhline(1 / len(rows), color=_GREY, ls=":", lw=1, label="everybody alike")
    axes[0].set(ylabel="probability of each draw", title="Who is selected")
    axes[0].legend(frameon=False, fontsize=8)
    axes[1].bar(place, epsilon, width=0.8, color=_GREEN)
    axes[1].set(ylabel="epsilon of the whole run", title="Whose privacy is bought")
    if paid:
        payment = column("payment")
        axes[2].bar(place, payment, width=0.8, color=_RED, alpha=0.4, label="payment")
        axes[2].bar(place, cost * epsilon, width=0.8, color=_RED, label="report times epsilon")
        axes[2].set(ylabel="money for the whole run", title="What it pays")
        axes[2].legend(frameon=False, fontsize=8)
    for panel in axes:
        panel.set_xlabel("client, in order of the report")
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    return figure


def lie_figure(costs: Floats, epsilon: Floats, payment: Floats, name: str) -> Figure:
    """What one client of each true cost gains by each report, the others' fixed; see lab.figures."""
    gain = payment[None, :] - costs[:, None] * epsilon[None, :]
    gain = gain - np.diag(gain)[:, None]
    figure = Figure(figsize=(5.6, 4.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    reach = float(payment.max()) or 1.0  # who understates a high cost may lose far more: not of interest
    low, high = float(costs[0]), float(costs[-1])
    picture = axes.imshow(
        gain, origin="lower", extent=(low, high, low, high), aspect="auto", cmap="RdBu_r",
        vmin=-reach, vmax=reach,
    )  # fmt: skip
    axes.plot([low, high], [low, high], color="black", lw=0.8, ls=":")
    axes.set(xlabel="reported cost", ylabel="true cost")
    best = max(float(gain.max()), 0.0)
    verdict = "no lie pays" if best <= 1e-9 * reach else f"best lie gains {best:.3g}"
    axes.set_title(f"{name}: {verdict}", fontsize=10)
    figure.colorbar(picture, ax=axes, extend="min", label="gain of the lie, money for the whole run")
    return figure
