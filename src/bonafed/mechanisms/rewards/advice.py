"""What does this rule make my clients do, and which ceiling and sharing coefficient should I choose?

`predict` plays one rule from several starts and compares what it finds with federated averaging, learning
alone and the social optimum. `recommend` searches ceilings and sharing coefficients for the largest

    total      sum p_i, what clients contribute
    received   sum x_i, x_i = p_i + s_i sum_{j != i} p_j, what their models are made from
    welfare    sum u_i.

A rule may have several equilibria and nobody chooses among them, so a rule is judged by the *worst*
equilibrium found; among rules with equal worst ones, the one with the best best equilibrium is taken.

Beware of the total. As the ceiling grows without bound shares vanish and everybody contributes what it
would alone: often more than under any rule that shares, and of no use to the others. `at_edge` flags it.

One case needs no search. Among N identical clients, sharing 0 and a ceiling of X*/N, X* the socially best
total, make everybody contribute the ceiling and receive everything: at the kink u' is N g'(X*) - c = 0 from
below and g'(X*) - c < 0 from above. No rule has more welfare. `recommend` has this ceiling on its grid.

Results come from a search: over a grid, then over two finer ones around the best point.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import NoSolution
from bonafed.mechanisms.rewards.game import (
    Equilibrium,
    Game,
    Optimum,
    RewardRule,
    equilibria,
    relative,
    settle_all,
    social_optimum,
    standard,
    starts,
    with_ceiling,
)

Goal = Literal["total", "received", "welfare"]
_SAME = 1e-6  # equilibria closer than this, relative to the largest contribution, are one
_TIE = 1e-9  # relative: goals this close are equal
_FINER = 5  # points per side of a finer grid
_REFINEMENTS = 2


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """What a rule leads to, from every start."""

    game: Game
    rule: RewardRule
    equilibria: list[Equilibrium]  # different ones, least total first; `start` names all that lead there
    standard: Equilibrium  # where everybody gets everything: federated averaging
    optimum: Optimum  # the most welfare there is, and the total that gives it

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        game, alone, count = self.game, self.game.standalone_utility, len(self.equilibria)
        yield f"rule: {self.rule}; {count} equilibri{'um' if count == 1 else 'a'} found"
        for one in self.equilibria:
            yield f"  from {one.start}: total {one.total:.4f}, welfare {one.welfare:.4f}"
            yield "    client  cost    alone   contributes  share   utility  alone"
            for i in range(game.clients):
                yield (
                    f"    {i:6d}  {game.costs[i]:<6.4g}  {game.standalone[i]:.4f}  "
                    f"{one.contributions[i]:<11.4f}  {one.share[i]:.4f}  "
                    f"{one.utility[i]:.4f}   {alone[i]:.4f}"
                )
        yield f"  standard rule: total {self.standard.total:.4f}, welfare {self.standard.welfare:.4f}"
        yield f"  social optimum: total {self.optimum.total:.4f}, welfare {self.optimum.welfare:.4f}"


def distinct(candidates: list[Equilibrium]) -> list[Equilibrium]:
    """Equilibria that differ, least total first; the names of starts with the same end are joined."""
    unique: list[Equilibrium] = []
    for one in candidates:
        for k, other in enumerate(unique):
            scale = max(float(one.contributions.max()), float(other.contributions.max()), 1e-9)
            if np.abs(one.contributions - other.contributions).max() <= _SAME * scale:
                name = f"{other.start}, {one.start}"
                unique[k] = Equilibrium(
                    name, other.contributions, other.share, other.utility, other.gain, other.converged
                )
                break
        else:
            unique.append(one)
    return sorted(unique, key=lambda one: one.total)


def predict(game: Game, rule: RewardRule) -> Prediction:
    """What this rule makes clients do. Raises if best responses do not settle."""
    candidates = equilibria(game, rule)
    restless = [one.start for one in candidates if not one.converged]
    if restless:
        raise NoSolution(f"best responses under {rule} do not settle from {', '.join(restless)}")
    base = equilibria(game, standard(), {"zero": np.zeros(game.clients)})[0]
    return Prediction(game, rule, distinct(candidates), base, social_optimum(game))


class Range(NamedTuple):
    """A goal over the equilibria found."""

    worst: float
    best: float


@dataclass(frozen=True, slots=True, eq=False)
class Recommendation:
    """A rule, and the evidence for it."""

    rule: RewardRule  # what to choose
    goal: Goal
    reached: Range  # by the rule
    standard: Range  # by federated averaging
    relative: Range  # by the relative rule
    social: float  # the goal at the social optimum: the most welfare there is, but no bound for the others
    sharing: Floats  # (k,) kappa of the first grid
    ceilings: Floats  # (m,) p_ceil of the first grid
    worst: Floats  # (k, m) goal in the worst equilibrium found; NaN where best responses did not settle
    best: Floats  # (k, m) in the best
    at_edge: bool  # the best ceiling of the grid is its smallest or largest: widen it

    def __str__(self) -> str:
        def line(name: str, value: Range) -> str:
            more = "" if value.best - value.worst < 1e-4 else f" to {value.best:.4f}"
            return f"  {name:16} {value.worst:.4f}{more}"

        rows = [f"largest {self.goal}: {self.rule}", line("reached", self.reached)]
        rows += [line("standard rule", self.standard), line("relative rule", self.relative)]
        rows.append(f"  {'social optimum':16} {self.social:.4f}")
        if self.at_edge:
            rows.append("  the best ceiling lies at the edge of the grid")
        return "\n".join(rows)


def _play(game: Game, rules: list[RewardRule], goal: Goal) -> tuple[Floats, Floats]:
    """(B,) goal in the worst and best equilibrium of each rule, over all starts."""
    begin = np.stack(list(starts(game).values()))
    every = [rule for rule in rules for _ in range(begin.shape[0])]
    rest = settle_all(game, every, np.tile(begin, (len(rules), 1)), tolerance=1e-10, sweeps=1000)
    others = rest.p.sum(1, keepdims=True) - rest.p
    terms = {"total": rest.p, "received": rest.p + rest.share * others, "welfare": rest.utility}[goal]
    table = np.where(rest.still, terms.sum(1), np.nan).reshape(len(rules), -1)
    return table.min(1), table.max(1)


def _choose(worst: Floats, best: Floats) -> int:
    """Largest worst; among equals, the largest best."""
    if np.isnan(worst).all():
        raise NoSolution("best responses settle under none of the rules tried")
    top = float(np.nanmax(worst))
    near = np.flatnonzero(worst >= top - _TIE * max(abs(top), 1.0))
    return int(near[np.argmax(best[near])])


def recommend(
    game: Game,
    goal: Goal = "total",
    *,
    sharing: ArrayLike | None = None,
    ceilings: ArrayLike | None = None,
) -> Recommendation:
    """The ceiling and sharing coefficient with the largest total contribution or welfare.

    Without grids of your own: sharing 0, 0.1, ..., 1, and 25 ceilings from an eighth of X*/N to 4 X*, X*
    the socially best total, with X*/N among them.
    """
    checks.literal("goal", goal, Goal)
    optimum = social_optimum(game)
    kappa = np.unique(checks.vector("sharing", np.linspace(0, 1, 11) if sharing is None else sharing))
    if ceilings is None and not optimum.total:
        raise NoSolution("contributing pays for nobody, so no rule is better than another")
    if ceilings is None:
        fair = optimum.total / game.clients
        grid = np.unique([fair, *np.geomspace(fair / 8, 4 * optimum.total, 24)])
    else:
        grid = np.unique(checks.vector("ceilings", ceilings, sign="positive"))
    rules = [with_ceiling(m, k) for k in kappa for m in grid]
    worst, best = _play(game, rules, goal)
    first = _choose(worst, best)
    rule, reached = rules[first], Range(float(worst[first]), float(best[first]))
    rule, reached = _refine(game, goal, rule, reached, kappa, grid)
    low, high = _play(game, [standard(), relative()], goal)
    shape = (kappa.size, grid.size)
    return Recommendation(
        rule=rule,
        goal=goal,
        reached=reached,
        standard=Range(float(low[0]), float(high[0])),
        relative=Range(float(low[1]), float(high[1])),
        social={
            "total": optimum.total,
            "received": game.clients * optimum.total,
            "welfare": optimum.welfare,
        }[goal],
        sharing=kappa,
        ceilings=grid,
        worst=worst.reshape(shape),
        best=best.reshape(shape),
        at_edge=bool(rules[first].sharing < 1) and first % grid.size in (0, grid.size - 1),
    )


def _refine(
    game: Game, goal: Goal, rule: RewardRule, reached: Range, kappa: Floats, grid: Floats
) -> tuple[RewardRule, Range]:
    """Finer grids between the neighbours of the best point so far; never worse than it."""
    for _ in range(_REFINEMENTS):
        kappa = _between_neighbours(kappa, rule.sharing)
        grid = _between_neighbours(grid, float(rule.ceiling or 0.0))
        rules = [rule] + [with_ceiling(m, k) for k in kappa for m in grid]
        worst, best = _play(game, rules, goal)
        k = _choose(worst, best)
        rule, reached = rules[k], Range(float(worst[k]), float(best[k]))
    return rule, reached


def _between_neighbours(points: Floats, at: float) -> Floats:
    """A finer grid from the point before `at` to the one after it."""
    low = points[points < at].max(initial=points.min())
    high = points[points > at].min(initial=points.max())
    return np.unique([*np.linspace(low, high, _FINER), at])
