"""Figures, drawn without a screen and without global state of Matplotlib."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from bonafed.checks import Floats
from bonafed.economics.audit import MenuLike
from bonafed.errors import InvalidValue
from bonafed.mechanisms.sampling.menus import complete_information_population, uniform_menu
from bonafed.mechanisms.sampling.plan import SamplingPlan
from bonafed.mechanisms.sampling.prior_free import PriorFreeRun, PriorFreeSampling

_FORMATS = (".png", ".svg", ".pdf")
_BLUE, _RED, _GREY, _GREEN = "#1f6f8b", "#c8553d", "#8a8a8a", "#4a7c59"


def render(figure: Figure, path: Path) -> bytes:
    """The figure as the content of a file of the path's format; the same bytes every time."""
    kind = path.suffix.lower()
    if kind not in _FORMATS:
        raise InvalidValue("--plot", "must end in .png, .svg or .pdf", path)
    buffer = io.BytesIO()
    metadata = {".png": {"Software": None}, ".svg": {"Date": None}, ".pdf": {"CreationDate": None}}
    figure.savefig(buffer, format=kind[1:], dpi=150, metadata=metadata[kind])
    return buffer.getvalue()


def _figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def contract_figure(contract: SamplingPlan) -> Figure:
    """Probability and payment by cost, beside the benchmarks, and the spread of realised spend."""
    menu, prior = contract.menu, contract.menu.prior
    share = contract.total_budget / contract.rounds / contract.clients
    costs = np.linspace(prior.low, prior.high, 801)
    q, r = menu.price(costs)
    figure = _figure(11, 3.6)
    left, middle, right = figure.subplots(1, 3)
    known = complete_information_population(prior, share)
    left.plot(costs, known.probability(costs), color=_GREY, ls=":", label="if costs were known")
    left.axhline(
        float(uniform_menu(prior, share).probability(prior.high)),
        color=_GREY,
        ls="--",
        label="uniform",
    )
    left.plot(costs, q, color=_BLUE, lw=2, label="this contract")
    left.set(xlabel="cost", ylabel="probability per round", ylim=(0, 1.05), title="Who is sampled")
    left.legend(frameon=False, fontsize=8)
    middle.fill_between(costs, costs, r, color=_RED, alpha=0.15, lw=0, label="profit of the honest")
    middle.plot(costs, r, color=_RED, lw=2, label="payment")
    middle.plot(costs, costs, color=_GREY, ls=":", label="own cost")
    middle.set(xlabel="cost", ylabel="money per participation", title="What it pays")
    middle.legend(frameon=False, fontsize=8)
    _draw_spend(right, contract)
    return figure


def _draw_spend(axes: Axes, contract: SamplingPlan) -> None:
    """The density of realised spend, the budget marked."""
    spend = contract.spend
    if spend.sd == 0:
        axes.axvline(spend.mean, color=_GREEN, lw=2, label="spend (certain)")
    else:
        edges = np.linspace(spend.quantile(1e-4), spend.quantile(1 - 1e-4), 42)
        above = np.array([spend.probability_above(float(x)) for x in edges])
        axes.stairs(-np.diff(above), edges, fill=True, color=_GREEN, alpha=0.5)
    axes.axvline(contract.total_budget, color="black", lw=1, ls="--", label="budget")
    axes.set(xlabel="realised spend of the run", yticks=[], title="How far spend may stray")
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.legend(frameon=False, fontsize=8)


def prior_free_figure(rules: PriorFreeSampling, costs: Floats, run: PriorFreeRun) -> Figure:
    """A sequence: terms by client, and the money left against an even use of it."""
    figure = _figure(9, 3.6)
    left, right = figure.subplots(1, 2)
    place = np.arange(1, rules.clients + 1)
    dots = left.scatter(place, run.probability, c=costs, s=12, cmap="viridis")
    figure.colorbar(dots, ax=left, label="cost")
    left.axhline(rules.lowest_probability, color=_GREY, ls=":")
    left.annotate("floor", (1, rules.lowest_probability), (0, 2), textcoords="offset points", fontsize=8)
    left.set(xlabel="client, in order of approach", ylabel="probability per round", ylim=(0, 1.05))
    left.set_title("Terms follow what was learned")
    right.plot(place, run.remaining, color=_GREEN, lw=2, label="money left")
    right.plot([1, rules.clients + 1], [rules.budget, 0], color=_GREY, ls="--", label="even use")
    right.set(xlabel="client, in order of approach", ylabel="money per round", title="Budget")
    right.set_ylim(bottom=0)
    right.legend(frameon=False, fontsize=8)
    return figure


def lie_figure(menu: MenuLike, low: float, high: float, name: str) -> Figure:
    """What a client of each true cost gains by each report: nothing above zero if truthful."""
    costs = np.linspace(low, high, 241)
    q, t = menu.probability(costs), menu.expected_payment(costs)
    gain = t[None, :] - costs[:, None] * q[None, :]
    gain = gain - np.diag(gain)[:, None]
    figure = _figure(5.6, 4.4)
    axes = figure.subplots()
    reach = float(np.abs(gain).max()) or 1.0
    extent = (low, high, low, high)
    picture = axes.imshow(
        gain, origin="lower", extent=extent, aspect="auto", cmap="RdBu_r", vmin=-reach, vmax=reach
    )
    axes.plot([low, high], [low, high], color="black", lw=0.8, ls=":")
    axes.set(xlabel="reported cost", ylabel="true cost")
    best = max(float(gain.max()), 0.0)
    verdict = "no lie pays" if best <= 1e-9 * reach else f"best lie gains {best:.3g} per round"
    axes.set_title(f"{name}: {verdict}", fontsize=10)
    figure.colorbar(picture, ax=axes, label="gain of the lie, money per round")
    return figure
