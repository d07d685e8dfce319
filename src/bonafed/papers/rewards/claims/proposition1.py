"""Propositions 1 and 3: what reward rules make clients contribute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bonafed import checks
from bonafed.mechanisms.rewards import game
from bonafed.papers.claim import Check, Claim, Estimate, Results, Row, at_least, at_most, number, only
from bonafed.papers.rewards.tables import several
from bonafed.sections import Section, flag, key

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STANDARD, RELATIVE, CEILING = "standard", "relative", "ceiling"


@dataclass(frozen=True)
class Costs(Section):
    """Clients of equal cost; the paper has no numbers."""

    clients: int = key(lambda name, value: checks.whole(name, value, 2), 4, help="N.")
    costs: tuple[float, ...] = key(several(checks.positive), (0.1, 0.2, 0.4), help="c, one game for each.")
    ceiling: float = key(checks.positive, 2.0, help="p_ceil, above what all contribute together under (1).")
    exchanged: bool = key(flag, False, help="Control: the standard rule and that of the paper exchanged.")


def rows(options: Costs, _: Results) -> list[Row]:
    """For every cost and rule: the least total in equilibrium, and what leaving a low one gains."""
    found: list[Row] = []
    rules: dict[str, Any] = {
        STANDARD: game.standard(), RELATIVE: game.relative(),
        CEILING: game.with_ceiling(options.ceiling, sharing=0.0),
    }  # fmt: skip
    if options.exchanged:
        rules |= {STANDARD: rules[CEILING], CEILING: rules[STANDARD]}
    for cost in options.costs:
        players = game.game([cost] * options.clients)
        low = [game.symmetric_interval(players)[0]] * options.clients
        for name, rule in rules.items():
            best = game.best_responses(players, rule, low)
            moved = [best[0], *low[1:]]
            gain = game.utilities(players, rule, moved)[0] - game.utilities(players, rule, low)[0]
            total = min(one.total for one in game.equilibria(players, rule))
            found.append({"cost": cost, "rule": name, "total": total, "gain": float(max(gain, 0.0))})
    return found


def judge(found: Sequence[Row]) -> list[Check]:
    """More than under the standard rule; relative rewards have an equilibrium of low contributions."""
    costs = list(dict.fromkeys(number(row, "cost") for row in found))

    def at(cost: float, rule: str, column: str) -> float:
        return number(only(found, cost=cost, rule=rule), column)

    return [
        at_least(
            "least gain in total contribution by rule (1) over the standard rule",
            Estimate(min(at(cost, CEILING, "total") - at(cost, STANDARD, "total") for cost in costs)), 1e-6,
        ),
        at_most(
            "what leaving the low equilibrium of relative rewards gains at most",
            Estimate(max(at(cost, RELATIVE, "gain") for cost in costs)), 1e-9,
        ),
        at_least(
            "what leaving it gains at least under rule (1)",
            Estimate(min(at(cost, CEILING, "gain") for cost in costs)), 1e-6,
        ),
    ]  # fmt: skip


def draw(found: Sequence[Row]) -> Figure:
    """Totals by cost."""
    from bonafed.presentation.figures import COLOURS, STYLES, sheet

    picture = sheet(5.6, 3.6)
    axes = picture.subplots()
    for colour, style, rule in zip(COLOURS, STYLES, (STANDARD, RELATIVE, CEILING), strict=False):
        own = [row for row in found if row["rule"] == rule]
        x, y = ([number(row, column) for row in own] for column in ("cost", "total"))
        axes.plot(x, y, style, marker="o", color=colour, label=rule)
    axes.set_xlabel("cost of a unit of contribution")
    axes.set_ylabel("total contribution, least equilibrium")
    axes.legend(frameon=False)
    return picture


CLAIM = Claim(
    identifier="rewards-proposition1",
    paper="rewards",
    place="propositions 1 and 3",
    says="Rewards that grow with a client's own contribution, by rule (1), make clients contribute more "
    "than the standard rule; rewards relative to the largest contribution leave an equilibrium in which "
    "all contribute little, and rule (1) does not.",
    presets={"smoke": Costs(costs=(0.2,)), "quick": Costs(), "paper": Costs()},
    rows=rows,
    judge=judge,
    draw=draw,
    control={"exchanged": True},
    about="""\
Four clients of equal cost with the worth 1 - exp(-p) of contributions that a model is made from. In print
it is a statement about derivatives; here the equilibria are computed (theory D4), the least of those
found from four starts. The printed proof compares derivatives at different arguments; for this worth
concavity repairs it, and a client beyond the ceiling has no strict gain (R-14). The low equilibrium is
the least of the interval of symmetric ones (R-15).""",
)
