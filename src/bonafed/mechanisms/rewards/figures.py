"""Figures: what a rule makes clients do, where a good rule lies, and how cheats fare."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bonafed.errors import InvalidValue
from bonafed.mechanisms.rewards.advice import Prediction, Recommendation, predict
from bonafed.mechanisms.rewards.cheats import CheatOutcome
from bonafed.mechanisms.rewards.game import (
    Game,
    RewardRule,
    relative,
    settle_all,
    standard,
    starts,
    with_ceiling,
)
from bonafed.presentation.figures import COLOURS, GREY, RED, sheet

_CEILINGS = 25  # points of the curve


def behaviour_figure(game: Game, rule: RewardRule) -> Figure:
    """What does this rule make my clients do? Contributions, utilities, and the total by ceiling.

    The standard and the relative rule are drawn next to it. Where a rule has several equilibria the bar is
    the one with the least total, and a whisker reaches to the others.
    """
    figure = sheet(12.5, 3.9)
    left, middle, right = figure.subplots(1, 3)
    predictions = {str(one): predict(game, one) for one in (standard(), relative(), rule)}
    _draw_clients(left, list(predictions.values()), "contributions")
    left.plot(*_steps(game.standalone), color="black", lw=1, ls=":", label="alone")
    left.set(ylabel="contribution", title="What clients contribute")
    _draw_clients(middle, list(predictions.values()), "utility")
    middle.plot(*_steps(game.standalone_utility), color="black", lw=1, ls=":", label="alone")
    middle.set(ylabel="worth minus cost", title="What they gain")
    for panel in (left, middle):
        panel.set(xlabel="client (cost)", xticks=range(game.clients))
        if game.clients <= 12:
            panel.set_xticklabels([f"{i}\n({cost:.2g})" for i, cost in enumerate(game.costs)])
    left.set_ylim(top=1.3 * left.get_ylim()[1])  # room for the legend
    left.legend(frameon=False, fontsize=8, ncols=2, loc="upper center")
    _draw_ceilings(right, game, rule, predictions[str(rule)])
    return figure


def _steps(values: np.ndarray[tuple[int], np.dtype[np.float64]]) -> tuple[list[float], list[float]]:
    """A level line over each client's place, with gaps between."""
    x = [at for i in range(len(values)) for at in (i - 0.45, i + 0.45, np.nan)]
    return x, [level for value in values for level in (float(value), float(value), np.nan)]


def _draw_clients(axes: Axes, predictions: Sequence[Prediction], name: str) -> None:
    """Bars by client, one group per rule; whiskers over the equilibria found."""
    width = 0.8 / len(predictions)
    for k, one in enumerate(predictions):
        table = np.array([getattr(equilibrium, name) for equilibrium in one.equilibria])
        positions = np.arange(table.shape[1]) + (k - (len(predictions) - 1) / 2) * width
        axes.bar(positions, table[0], width=0.92 * width, color=COLOURS[k], label=str(one.rule))
        if len(table) > 1:
            low, high = table[0] - table.min(0), table.max(0) - table[0]
            axes.errorbar(positions, table[0], [low, high], fmt="none", ecolor="black", lw=1, capsize=2)


def _draw_ceilings(axes: Axes, game: Game, rule: RewardRule, prediction: Prediction) -> None:
    """The total against the ceiling, at the rule's sharing: least and most over the equilibria found."""
    best = prediction.optimum.total
    if rule.ceiling is not None:
        low = min(best / (8 * game.clients), rule.ceiling / 2)
        ceilings = np.geomspace(low, max(4 * best, 2 * rule.ceiling), _CEILINGS)
        begin = np.stack(list(starts(game).values()))
        rules = [with_ceiling(m, rule.sharing) for m in ceilings for _ in begin]
        rest = settle_all(game, rules, np.tile(begin, (_CEILINGS, 1)), tolerance=1e-9)
        totals = rest.p.sum(1).reshape(_CEILINGS, -1)
        axes.fill_between(ceilings, totals.min(1), totals.max(1), color=COLOURS[2], alpha=0.2, lw=0)
        axes.plot(ceilings, totals.min(1), color=COLOURS[2], lw=1.8, label=f"sharing {rule.sharing:.3g}")
        axes.axvline(rule.ceiling, color=COLOURS[2], ls="--", lw=1, label="this rule")
        axes.set(xscale="log")
    axes.axhline(prediction.standard.total, color=COLOURS[0], lw=1, label="standard")
    axes.axhline(best, color=GREY, ls="-.", lw=1, label="social optimum")
    axes.axhline(float(game.standalone.sum()), color="black", ls=":", lw=1, label="all alone")
    axes.set(xlabel="ceiling", ylabel="total contribution", title="How high a ceiling?")
    axes.set_ylim(0, 1.3 * axes.get_ylim()[1])
    axes.legend(
        edgecolor="none", framealpha=1.0, fontsize=8, ncols=2, loc="upper center"
    )  # above the lines


def advice_figure(advice: Recommendation) -> Figure:
    """The goal by ceiling and sharing coefficient in the worst equilibrium found, the choice marked."""
    if advice.ceilings.size < 2 or advice.sharing.size < 2:
        raise InvalidValue(
            "recommendation", "must have a grid of at least 2 by 2 to draw", advice.worst.shape
        )
    figure = sheet(6.2, 4.2)
    axes = figure.subplots()
    picture = axes.pcolormesh(
        advice.ceilings, advice.sharing, advice.worst, shading="nearest", cmap="viridis"
    )
    if advice.rule.ceiling is not None and advice.rule.sharing < 1:
        axes.plot(
            advice.rule.ceiling, advice.rule.sharing, "o", ms=9, mfc="none", mec=RED, mew=2, label="advice"
        )
        axes.legend(frameon=True, fontsize=8)
    axes.set(xscale="log", xlabel="ceiling", ylabel="sharing")
    against = f"{advice.reached.worst:.4g} against {advice.standard.worst:.4g} by standard"
    axes.set_title(f"{advice.goal}: {advice.rule}\n{against}")
    figure.colorbar(picture, ax=axes, label=f"{advice.goal} in the worst equilibrium found")
    return figure


def cheats_figure(outcomes: Sequence[CheatOutcome]) -> Figure:
    """Accuracy and reward rate with each cheat, beside honesty and learning alone."""
    figure = sheet(2.0 + 1.1 * len(outcomes) + 4.0, 3.6)
    left, right = figure.subplots(1, 2)
    places = np.arange(len(outcomes))
    several = len({one.client for one in outcomes}) > 1
    names = [f"{one.client}: {one.cheat}" if several else one.cheat for one in outcomes]
    for axes, name, honest in (
        (left, "accuracy", "honest_accuracy"),
        (right, "reward_rate", "honest_reward_rate"),
    ):
        axes.bar(places - 0.2, [getattr(one, honest) for one in outcomes], 0.38, color=GREY, label="honest")
        axes.bar(places + 0.2, [getattr(one, name) for one in outcomes], 0.38, color=RED, label="cheats")
        axes.set_xticks(places, names, rotation=30, ha="right", parse_math=False)
        axes.set(ylabel=name.replace("_", " "))
    alone = [one.standalone_accuracy for one in outcomes]
    left.plot(*_steps(np.array(alone)), color="black", lw=1, ls=":", label="alone")
    left.set_ylim(top=1.25 * max(left.get_ylim()[1], 1e-9))
    left.legend(frameon=False, fontsize=8, ncols=3, loc="upper center")
    return figure
