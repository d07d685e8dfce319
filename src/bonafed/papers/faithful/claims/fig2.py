"""Figure 2: steps and bound of Proposition 11 against alpha."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bonafed import checks
from bonafed.papers.claim import Check, Claim, Estimate, Results, Row, at_least, at_most, number, where
from bonafed.papers.faithful.tradeoff import tradeoff
from bonafed.sections import Section, flag, key

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Bound(Section):
    """What the bound depends on; the paper does not state its own, these are of its other figures."""

    dimension: int = key(checks.whole, 7840, help="Numbers of the model.")
    smallest: int = key(checks.whole, 957, help="Samples of the agent that has fewest.")
    agents: int = key(lambda name, value: checks.whole(name, value, 2), 10, help="K.")
    regulariser: float = key(checks.positive, 0.001, help="mu.")
    points: int = key(lambda name, value: checks.whole(name, value, 3), 41, help="Alphas on the axis.")
    jumbled: bool = key(flag, False, help="Control: every second point at the other end of the axis.")


def rows(bound: Bound, _: Results) -> list[Row]:
    """Steps and bound for every step size and alpha, with printed constants and corrected ones."""
    alpha = np.geomspace(0.01, 1000.0, bound.points)
    table = tradeoff(bound.dimension, bound.smallest, bound.agents, bound.regulariser, alphas=alpha)
    read = dict(zip(alpha.tolist(), alpha.tolist(), strict=True))
    if bound.jumbled:
        read |= dict(zip(alpha[1::2].tolist(), alpha[1::2][::-1].tolist(), strict=True))
    listed: list[Row] = [{**row, "alpha": read[number(row, "alpha")]} for row in table.to_rows()]
    return sorted(listed, key=lambda row: (-number(row, "eta2"), number(row, "alpha")))


def judge(table: Sequence[Row]) -> list[Check]:
    """Monotone in alpha, and hardly a matter of eta_2."""
    found = []
    for kind, prefix, corrected in (("printed", "printed_", False), ("corrected", "", True)):
        steps, bounds = f"{prefix}steps", f"{prefix}loss"
        fall = min(_slopes(table, steps), default=0.0)
        rise = max(_slopes(table, bounds), default=0.0)
        if corrected:
            found += [
                at_least("least change of T1 = T2 where alpha grows", Estimate(fall), 0.0, corrected=True),
                at_most(
                    "largest change of the bound where alpha grows", Estimate(rise), 0.0, corrected=True
                ),
            ]
        else:
            most = max(_slopes(table, steps), default=0.0)
            least = min(_slopes(table, bounds), default=0.0)
            found += [
                at_most(
                    f"largest change of T1 = T2 where alpha grows, {kind} constants", Estimate(most), 0.0
                ),
                at_least(
                    f"least change of the bound where alpha grows, {kind} constants", Estimate(least), 0.0
                ),
            ]
        spread = Estimate(_spread(table, bounds))
        found.append(
            at_most(f"spread of the bound over eta2, {kind} constants", spread, 0.05, corrected=corrected)
        )
    return found


def _slopes(table: Sequence[Row], column: str) -> list[float]:
    """Changes from one alpha to the next, for every step size."""
    changes = []
    for eta in dict.fromkeys(row["eta2"] for row in table):
        values = [number(row, column) for row in where(table, eta2=eta)]
        changes += np.diff(values).tolist()
    return changes


def _spread(table: Sequence[Row], column: str) -> float:
    """The largest relative range over step sizes, at any alpha."""
    largest = 0.0
    for alpha in dict.fromkeys(row["alpha"] for row in table):
        values = [number(row, column) for row in where(table, alpha=alpha)]
        largest = max(largest, (max(values) - min(values)) / abs(max(values)))
    return largest


def draw(table: Sequence[Row]) -> Figure:
    """Steps and bound against alpha."""
    from bonafed.papers.faithful.figures import tradeoff_figure

    return tradeoff_figure(table)


CLAIM = Claim(
    identifier="faithful-fig2",
    paper="faithful",
    place="figure 2, text after proposition 11",
    says="With eta_2 fixed, T_1 and T_2 decrease and the payment loss bound increases in alpha; the bound "
    "hardly changes with eta_2.",
    presets={"smoke": Bound(points=5), "quick": Bound(), "paper": Bound()},
    rows=rows,
    judge=judge,
    draw=draw,
    control={"jumbled": True},
    erratum="F-D9",
)
