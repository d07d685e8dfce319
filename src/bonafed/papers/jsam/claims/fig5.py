"""Figure 5 and theorem 3: the structure of the optimal selection."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bonafed import checks
from bonafed.checks import Floats
from bonafed.mechanisms.jsam import allocate
from bonafed.mechanisms.jsam.thresholds import inner
from bonafed.papers.claim import Check, Claim, Estimate, Results, Row, at_least, at_most, number
from bonafed.sections import Section, flag, key

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ROUNDING = 1e-12
_EVERYONE = 3.0  # the largest weight, in units of the population


@dataclass(frozen=True)
class Searched(Section):
    """Clients whose best selection is looked for among many."""

    clients: int = key(lambda name, value: checks.whole(name, value, 3), 10, help="N.")
    weights: int = key(checks.whole, 6, help="How many weights eta, from few clients to all.")
    tries: int = key(checks.whole, 20_000, help="Selections drawn at random to hold against each plan.")
    seed: int = key(checks.seed, 0, help="Of virtual costs and selections.")
    backwards: bool = key(flag, False, help="Control: clients in the order of falling virtual costs.")


def rows(searched: Searched, _: Results) -> list[Row]:
    """The plan at each weight, client by client, and the best objective that a search finds."""
    rng = np.random.default_rng(searched.seed)
    n = searched.clients
    v = np.sort(2 * rng.random(n))
    tries = _selections(rng, n, searched.tries)
    made: list[Row] = []
    for eta in (np.sqrt(n) * np.geomspace(0.05, _EVERYONE, searched.weights)).tolist():
        plan = allocate(v, eta, 1.0)
        spread = (np.cbrt(tries * v) ** 2).sum(1)
        found = inner(eta, np.abs(tries - 1 / n).sum(1), spread, 1.0).objective.min()
        selection = plan.selection[::-1] if searched.backwards else plan.selection
        made += [
            {
                "eta": eta, "client": k + 1, "virtual_cost": float(v[k]), "clients": n,
                "probability": float(p), "threshold": plan.threshold,
                "search_over_plan": float(found) / plan.objective - 1,
            }
            for k, p in enumerate(selection)
        ]  # fmt: skip
    return made


def _selections(rng: np.random.Generator, n: int, tries: int) -> Floats:
    """(tries, n): Dirichlet of many kinds, sparse ones among them, and near the vertices of the theorem."""
    kinds = rng.choice([0.1, 0.3, 1.0, 3.0, 30.0], size=tries)
    drawn = rng.gamma(kinds[:, None] * np.ones(n)) + 1e-300
    drawn[rng.random((tries, n)) < 0.3 * rng.random((tries, 1))] = 0.0
    drawn[drawn.sum(1) == 0] = 1.0
    threshold = rng.integers(1, n + 1, size=tries)
    near = np.where(np.arange(n) < threshold[:, None], 1 / n, 0.0)
    near[:, 0] += 1 - near.sum(1)
    mix = np.where(rng.random((tries, 1)) < 0.5, 1.0, rng.random((tries, 1)) ** 4)
    return np.asarray(mix * drawn / drawn.sum(1, keepdims=True) + (1 - mix) * near)


def judge(table: Sequence[Row]) -> list[Check]:
    """(19a) to (19d), and that nothing found is better."""
    n = number(table[0], "clients")
    led = [number(row, "probability") for row in table if row["client"] == 1]
    middle, last, beyond = [0.0], [0.0], [0.0]
    for row in table:
        k, h, p = number(row, "client"), number(row, "threshold"), number(row, "probability")
        if 1 < k < h:
            middle.append(abs(p * n - 1))
        elif k == h > 1:
            last.append(p * n - 1)
        elif k > h:
            beyond.append(p * n)
    least = min(number(row, "search_over_plan") for row in table)
    return [
        at_least("client 1: N p", Estimate(min(led, default=math.nan) * n), 1 - _ROUNDING),
        at_most("clients 2 to h-1: distance of N p from 1", Estimate(max(middle)), _ROUNDING),
        at_most("client h: N p - 1", Estimate(max(last)), _ROUNDING),
        at_most("clients beyond h: N p", Estimate(max(beyond)), 0.0),
        at_least("best objective of the search over the plan's, less 1", Estimate(least), -_ROUNDING),
    ]


def draw(table: Sequence[Row]) -> Figure:
    """Probabilities by client, a panel for some weights."""
    from bonafed.papers.jsam.figures import selection_figure

    return selection_figure(table)


CLAIM = Claim(
    identifier="jsam-fig5",
    paper="jsam",
    place="figure 5, theorem 3, insights after it",
    says="The optimum selects the client of least virtual cost with a probability of at least 1/N, those "
    "below a threshold h with 1/N, client h with at most 1/N, and nobody beyond.",
    presets={
        "smoke": Searched(weights=4, tries=2_000),
        "quick": Searched(tries=200_000),
        "paper": Searched(tries=200_000),
    },
    rows=rows,
    judge=judge,
    draw=draw,
    control={"backwards": True},
    about="""Ten clients as in the figure, weights from those that select one client to those that
select all. The plan of `allocate` is held against selections drawn at random (concentrated and even
ones, sparse ones, and ones near the vertices that the theorem allows), each with its best privacy
budgets: none has a lower objective. This is a search, not a proof; a proof by vertices is in the theory
pages (B2), since the printed one fails (erratum J-7). It also shows more than is printed: client h is
selected with 1/N exactly, so that the threshold alone describes the optimum.

The control reads the clients in the order of falling virtual costs.""",
)
