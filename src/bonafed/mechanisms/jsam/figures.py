"""Figures of bought privacy: terms, and what a report would earn a participant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from bonafed.checks import Floats
from bonafed.learning.sections import NoiseAt
from bonafed.presentation.figures import BLUE, GREEN, GREY, RED, name_clients, sheet, words

_SELECTION = {"client": "probability of each draw", "sum": "weight in every round"}


def terms_figure(terms: Sequence[dict[str, Any]], noise_at: NoiseAt) -> Figure:
    """Selection probability or weight, epsilon and payment by client, in order of the reported cost."""
    rows = sorted((row for row in terms if row["admitted"]), key=lambda row: row["report"])
    names = [str(row["client"]) for row in rows]

    def column(name: str) -> Floats:
        return np.array([row[name] for row in rows], dtype=np.float64)

    x, cost, epsilon = np.arange(len(rows)), column("report"), column("epsilon")
    figure = sheet(11.1, 3.6)
    axes = figure.subplots(1, 3)
    axes[0].bar(x, column("selection"), width=0.8, color=BLUE)
    axes[0].axhline(1 / len(rows), color=GREY, ls=":", lw=1, label="everybody alike")
    axes[0].set(ylabel=_SELECTION[noise_at], title="Who is selected")
    axes[0].set_ylim(0, 1.3 * max(float(column("selection").max(initial=0.0)), 1 / len(rows)))
    axes[0].legend(frameon=False, fontsize=8, loc="upper right")
    axes[1].bar(x, epsilon, width=0.8, color=GREEN)
    axes[1].set(ylabel="epsilon of the whole run", title="Whose privacy is bought")
    payment = column("amount" if "amount" in rows[0] else "payment")  # as the table has it
    axes[2].bar(x, payment, width=0.8, color=RED, alpha=0.4, label="payment")
    axes[2].bar(x, cost * epsilon, width=0.8, color=RED, label="report times epsilon")
    axes[2].set(ylabel="money for the whole run", title="What it pays")
    axes[2].set_ylim(0, 1.3 * max(float(payment.max(initial=0.0)), 1e-9))  # room for the legend
    axes[2].legend(frameon=False, fontsize=8, loc="upper right")
    for panel in axes:
        name_clients(panel, names, "in order of the report")
    return figure


def prospect_figure(cost: float, reports: Floats, utility: Floats, draws: int, kind: str = "") -> Figure:
    """What is left for a participant by what it states, on average over so many draws of the others' costs;
    the truth is the top. `kind` is that of the participant, where a contract tells them apart."""
    figure = sheet(5.6, 3.6)
    axes = figure.subplots()
    axes.plot(reports, utility, color=BLUE, lw=2)
    axes.axvline(cost, color=GREY, ls=":", label="the truth")
    axes.axhline(0.0, color="black", lw=0.6)
    axes.set(xlabel="reported cost of a unit of epsilon", ylabel=f"money left, mean of {draws:,} draws")
    top = abs(float(utility.max())) or 1.0
    if (
        utility.min() < -top
    ):  # who states almost nothing may lose far more than anyone earns: not of interest
        axes.set_ylim(-top, 1.3 * top)
    whose = f", {words(kind, 20)}" if kind else ""
    axes.set_title(f"What a report earns{whose}", loc="left")
    axes.legend(frameon=False, fontsize=8)
    return figure


def contract_figure(costs: Floats, epsilon: Floats, payment: Floats, clients: int) -> Figure:
    """What a participant sells and is paid, by its cost; the others as the prior expects them."""
    figure = sheet(9.0, 3.4)
    left, right = figure.subplots(1, 2)
    left.plot(costs, epsilon, color=BLUE, lw=1.6)
    left.set(xlabel="cost of a unit of epsilon", ylabel="epsilon sold over the run")
    left.set_title("Privacy that is bought", loc="left")
    right.plot(costs, payment, color=RED, lw=1.6, label="payment")
    right.plot(costs, costs * epsilon, color=GREY, lw=1.6, ls="--", label="cost of what is sold")
    right.set(xlabel="cost of a unit of epsilon", ylabel="money")
    right.set_title("What is paid for it", loc="left")
    right.legend(frameon=False)
    figure.suptitle(f"One of {clients:,} clients, the others spread over the prior", fontsize=10)
    return figure
