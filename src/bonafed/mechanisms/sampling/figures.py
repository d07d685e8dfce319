"""Figures of truthful sampling: what a contract promises, and how a prior-free sequence went."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from bonafed.checks import Floats
from bonafed.mechanisms.sampling.menus import complete_information_population
from bonafed.mechanisms.sampling.plan import SamplingPlan, benchmarks
from bonafed.mechanisms.sampling.prior_free import PriorFreeRun, PriorFreeSampling
from bonafed.mechanisms.sampling.settlement import SettledTerms
from bonafed.presentation.figures import BLUE, GREEN, GREY, RED, name_clients, sheet


def contract_figure(contract: SamplingPlan) -> Figure:
    """Probability and payment by cost, beside the benchmarks, and the spread of realised spend.

    The benchmarks are those of the table, `benchmarks`, for the same money.
    """
    menu, prior = contract.menu, contract.menu.prior
    share = contract.compared_money / contract.rounds / contract.clients
    _, uniform, _ = benchmarks(contract)
    costs = np.linspace(prior.low, prior.high, 801)
    q, r = menu.price(costs)
    figure = sheet(11, 3.6)
    left, middle, right = figure.subplots(1, 3)
    known = complete_information_population(prior, share)
    left.plot(costs, known.probability(costs), color=GREY, ls=":", label="if costs were known")
    left.axhline(uniform.expected_probability, color=GREY, ls="--", label="uniform")
    left.plot(costs, q, color=BLUE, lw=2, label="this contract")
    left.set(xlabel="cost", ylabel="probability per round", ylim=(0, 1.05), title="Who is sampled")
    left.legend(frameon=False, fontsize=8)
    middle.fill_between(costs, costs, r, color=RED, alpha=0.15, lw=0, label="profit of the honest")
    middle.plot(costs, r, color=RED, lw=2, label="payment")
    middle.plot(costs, costs, color=GREY, ls=":", label="own cost")
    middle.set(xlabel="cost", ylabel="money per participation", title="What it pays")
    middle.legend(frameon=False, fontsize=8)
    _draw_spend(right, contract)
    return figure


def _draw_spend(axes: Axes, contract: SamplingPlan) -> None:
    """The density of realised spend, the budget marked."""
    spend = contract.spend
    if spend.sd == 0:
        axes.axvline(spend.mean, color=GREEN, lw=2, label="spend (certain)")
    else:
        edges = np.linspace(spend.quantile(1e-4), spend.quantile(1 - 1e-4), 42)
        above = np.array([spend.probability_above(float(x)) for x in edges])
        axes.stairs(-np.diff(above), edges, fill=True, color=GREEN, alpha=0.5)
    axes.axvline(contract.total_budget, color="black", lw=1, ls="--", label="budget")
    axes.set(xlabel="realised spend of the run", ylabel="how often", yticks=[])
    axes.set_title("How far spend may stray")
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.legend(frameon=False, fontsize=8)


def prior_free_figure(rules: PriorFreeSampling, costs: Floats, run: PriorFreeRun) -> Figure:
    """A sequence: terms by client, and the money left against an even use of it."""
    figure = sheet(9, 3.6)
    left, right = figure.subplots(1, 2)
    place = np.arange(1, rules.clients + 1)
    dots = left.scatter(place, run.probability, c=costs, s=12, cmap="viridis")
    figure.colorbar(dots, ax=left, label="cost")
    left.axhline(rules.lowest_probability, color=GREY, ls=":")
    left.annotate("floor", (1, rules.lowest_probability), (0, 2), textcoords="offset points", fontsize=8)
    left.set(xlabel="client, in order of approach", ylabel="probability per round", ylim=(0, 1.05))
    left.set_title("Terms follow what was learned")
    right.plot(place, run.remaining, color=GREEN, lw=2, label="money left")
    right.plot([1, rules.clients + 1], [rules.budget, 0], color=GREY, ls="--", label="even use")
    right.set(xlabel="client, in order of approach", ylabel="money per round", title="Budget")
    right.set_ylim(bottom=0)
    right.legend(frameon=False, fontsize=8)
    return figure


def terms_figure(terms: SettledTerms) -> Figure:
    """Probability, and payment beside the stated cost, of everybody admitted, cheapest first."""
    who = np.flatnonzero(terms.admitted)
    who = who[np.argsort(terms.reports[who], kind="stable")]
    names, place = [terms.clients[k] for k in who], np.arange(who.size)
    figure = sheet(9, 3.6)
    left, right = figure.subplots(1, 2)
    left.bar(place, terms.probability[who], width=0.8, color=BLUE)
    left.set(ylabel="probability per round", ylim=(0, 1.05), title="Who is sampled")
    right.bar(place, terms.payment[who], width=0.8, color=RED, alpha=0.4, label="payment")
    right.bar(place, terms.reports[who], width=0.8, color=RED, label="stated cost")
    right.set(ylabel="money per participation", title="What it pays")
    right.set_ylim(0, 1.2 * max(float(terms.payment.max(initial=0.0)), 1e-9))  # room for the legend
    right.legend(frameon=False, fontsize=8, loc="upper left", ncols=2)
    for panel in (left, right):
        name_clients(panel, names, "in order of the stated cost")
    return figure


def bounds_figure(terms: Mapping[str, float], weights: Floats) -> Figure:
    """What sampling adds to the convergence bound under each mechanism, and the weights of the clients."""
    figure = sheet(9, 3.4)
    left, right = figure.subplots(1, 2)
    place = np.arange(len(terms))
    left.barh(place, list(terms.values()), color=BLUE)
    left.set_yticks(place, list(terms), fontsize=8)
    left.invert_yaxis()
    left.set(xlabel="sum of s/q, part of the bound (loss times rounds)", title="What sampling adds")
    right.bar(np.arange(weights.size), np.sort(weights)[::-1], width=0.8, color=GREEN)
    right.set(xlabel="client, by weight", ylabel="s, weight in the bound", title="Whose absence costs most")
    return figure
