"""Faithful learning against manipulated FedAvg and learning alone: what figures 3 to 5 of the paper draw.

    BySamples        figure 3   losses and accuracy against n, all samples together
    ByHeterogeneity  figure 4   the same against Delta
    ByPrivacy        figure 5a  error of private payments against alpha, for several T_2
    ByClusters       figure 5b  error of payments against the number L of clusters, with and without noise

Loss is the federation's F = sum p_k F_k with everybody's own model, overall loss adds the payments. On the
training loss nobody ever gains against learning alone, J_k >= F_k(w*) >= min F_k (theory C1.5), so the
paper's comparison (figure 4a) can only be of expected losses: both are in the tables. The error of a
payment is its distance from the exact one, (10), of the same agents without noise or clusters.

Every point is a mean over seeds; a seed fixes samples, partition, clusters and noise. So curves are
compared seed by seed: a difference has the standard error of the differences.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from bonafed import checks
from bonafed.checks import Floats
from bonafed.papers.cells import Cell
from bonafed.papers.claim import Estimate, Results, Row, Settings, number, over_seeds, where
from bonafed.papers.faithful.cases import Case, Outcome, compute
from bonafed.papers.tables import rising, several
from bonafed.sections import Check, key, one_of, word

FFL, STEPS, PRIVATE, MANIPULATED, LOCAL = (
    "FFL", "FFL by steps", "DP-FFL", "manipulated", "local learning",
)  # fmt: skip  # how the names of curves begin
Exchanged = Literal["nothing", "schemes", "points"]
_BASE = Case("faithful")
DIGITS: Mapping[str, Any] = {
    "data": "digits",
    "regulariser": 0.003,
    "samples": 600,
    "seeds": 3,
}  # of smoke tests
PAPER_SEEDS = 5


def _counts(at_least: int) -> Check:
    return several(lambda name, value: checks.whole(name, value, at_least))


@dataclass(frozen=True)
class Agents(Settings):
    """The agents of all these figures."""

    data: str = key(word, "mnist", help="A data set of images, or your own .npz or .csv file.")
    samples: int = key(checks.whole, _BASE.samples, help="n, of all agents together.")
    agents: int = key(checks.whole, _BASE.agents, help="K.")
    delta: float = key(checks.number, _BASE.delta, help="Delta: 0 is iid, 1 one class per agent.")
    regulariser: float = key(checks.positive, _BASE.regulariser, help="mu; the paper does not state it.")
    training_steps: int = key(checks.whole, _BASE.training_steps, help="T_1.")
    exchanged: str = key(
        one_of(Exchanged), "nothing", help="Control: schemes, or points of the axis, in reverse order."
    )

    @property
    def base(self) -> Case:
        """Faithful learning with exact payments."""
        return Case(
            "faithful", self.samples, self.delta, self.seed, self.data, self.agents, self.regulariser
        )

    def private(self, alphas: Iterable[float], payment_steps: int) -> dict[str, Case]:
        """Private faithful learning, by the names of the curves."""
        return {
            f"{PRIVATE}, alpha {alpha:g}": replace(
                self.base,
                scheme="private",
                alpha=alpha,
                training_steps=self.training_steps,
                payment_steps=payment_steps,
            )
            for alpha in alphas
        }


@dataclass(frozen=True)
class Comparison(Agents):
    """What figures 3 and 4 compare."""

    alphas: tuple[float, ...] = key(several(checks.positive), (0.1,), help="Of private training.")
    factors: tuple[float, ...] = key(
        several(checks.positive), (10.0, 100.0), help="Of manipulation; the paper does not state its own."
    )
    payment_steps: int = key(checks.whole, _BASE.payment_steps, help="T_2.")

    @property
    def schemes(self) -> dict[str, Case]:
        """By the names of their curves; the agent that manipulates is the paper's example."""
        agent = min(_BASE.manipulator, self.agents - 1)
        by_steps = replace(
            self.base, scheme="stepwise", training_steps=self.training_steps,
            payment_steps=self.payment_steps,
        )  # fmt: skip
        manipulated = {
            f"{MANIPULATED}, gamma {gamma:g}": replace(
                self.base, scheme="manipulated", factor=gamma, manipulator=agent
            )
            for gamma in self.factors
        }
        private = self.private(self.alphas, self.payment_steps)
        local = replace(self.base, scheme="local")
        return {FFL: self.base, STEPS: by_steps, **private, **manipulated, LOCAL: local}


@dataclass(frozen=True)
class BySamples(Comparison):
    """Figure 3: more samples for everybody."""

    sizes: tuple[float, ...] = key(rising(), (1000.0, 3000.0, 10_000.0), help="n of the points.")

    @property
    def lines(self) -> Lines:
        """The curves to draw, and the axis that they are drawn over."""
        return Lines("samples", self.sizes, self.schemes, lambda case, x: replace(case, samples=round(x)))


@dataclass(frozen=True)
class ByHeterogeneity(Comparison):
    """Figure 4: agents whose data differ more and more."""

    deltas: tuple[float, ...] = key(
        rising(zero=True), (0.0, 0.05, 0.15, 0.3, 0.6), help="Delta of the points."
    )

    @property
    def lines(self) -> Lines:
        """The curves to draw, and the axis that they are drawn over."""
        return Lines("delta", self.deltas, self.schemes, lambda case, x: replace(case, delta=x))


@dataclass(frozen=True)
class ByPrivacy(Agents):
    """Figure 5a: private payments, the more exact the less privacy is left; a curve for each T_2 and mu."""

    alphas: tuple[float, ...] = key(rising(), (0.1, 1.0, 10.0), help="Of the points.")
    payment_steps: tuple[int, ...] = key(_counts(1), (2, 20), help="T_2, a curve each.")
    regularisers: tuple[float, ...] = key(
        several(checks.positive), (_BASE.regulariser, 0.05), help="mu, curves each."
    )

    @property
    def lines(self) -> Lines:
        """The curves to draw, and the axis that they are drawn over."""
        schemes = {
            f"T2 = {steps}, mu {mu:g}": replace(case, regulariser=mu)
            for mu in self.regularisers
            for steps in self.payment_steps
            for case in self.private([1.0], steps).values()
        }
        return Lines("alpha", self.alphas, schemes, lambda case, x: replace(case, alpha=x))


@dataclass(frozen=True)
class ByClusters(Agents):
    """Figure 5b: fewer leave-one-out models, one for each of L clusters."""

    clusters: tuple[float, ...] | None = key(rising(), None, help="L; if left out 2 to --agents.")
    alphas: tuple[float, ...] = key(several(checks.positive), (0.1,), help="Of private payments.")
    payment_steps: int = key(checks.whole, _BASE.payment_steps, help="T_2 of private payments.")

    @property
    def lines(self) -> Lines:
        """The curves; as many clusters as agents are none."""
        default = tuple(float(count) for count in (2, 3, 4, 5, 7) if count < self.agents)
        counts = self.clusters or (*default, float(self.agents))
        schemes = {"no noise": self.base, **self.private(self.alphas, self.payment_steps)}

        def place(case: Case, x: float) -> Case:
            return replace(case, clusters=None if round(x) == case.agents else round(x))

        return Lines("clusters", counts, schemes, place)


@dataclass(frozen=True, slots=True, eq=False)
class Lines:
    """The curves to draw."""

    axis: str  # what varies
    at: tuple[float, ...]  # (m,) ascending
    schemes: Mapping[str, Case]  # by the name of the curve
    place: Callable[[Case, float], Case]  # a curve's case moved to a point of the axis

    def cases(self, seeds: int) -> list[list[list[Case]]]:
        """By curve, point and seed."""
        return [
            [[replace(self.place(c, x), seed=c.seed + i) for i in range(seeds)] for x in self.at]
            for c in self.schemes.values()
        ]

    def all_cases(self, seeds: int) -> list[Case]:
        """All cases once, including those they are compared with; the first seeds first."""
        flat = [case for curve in self.cases(seeds) for point in curve for case in point]
        flat.sort(key=lambda case: case.seed)  # whoever stops has the first seeds complete
        return list(dict.fromkeys([*flat, *(exact_twin(case) for case in flat if _pays(case))]))


def exact_twin(case: Case) -> Case:
    """The same agents with exact payments: no noise, no clusters."""
    return Case("faithful", case.samples, case.delta, case.seed, case.data, case.agents, case.regulariser)


def _pays(case: Case) -> bool:
    return case.scheme in ("faithful", "stepwise", "private")


# Cells and tables of claims


def cells(settings: Any) -> dict[Case, Cell]:
    """The cells of all cases, and of those that they are compared with."""
    return {case: cell_of(case) for case in settings.lines.all_cases(settings.seeds)}


def cell_of(case: Case) -> Cell:
    """A case, computed and kept; the weight is roughly its seconds."""
    sums = case.training_steps + (case.clusters or case.agents) * case.payment_steps
    steps = sums / 30 if case.scheme in ("stepwise", "private") else 3.0
    return Cell(f"faithful {case}", compute, case.table(), (case.data,), weight=steps * case.samples / 1e4)


def table(
    *columns: str, less: Sequence[str] = (), since_first: bool = False, since_before: bool = False
) -> Callable[[Any, Results], list[Row]]:
    """The table of a claim: of every curve and point these quantities.

    With `less` also how far each is above that of other curves at the same point (given by the beginning
    of their names; of several, the last), with `since_first` above that of the same curve at the first
    point, and with `since_before` at the point before, seed by seed.
    """

    def rows(settings: Any, results: Results) -> list[Row]:
        curves = measured(settings, {case: Outcome(**result) for case, result in results.items()})
        others = {slug(other): _named(curves, other) for other in less}
        lines: Lines = settings.lines
        listed: list[Row] = []
        for curve, points in curves.items():
            for j, x in enumerate(lines.at):
                row: Row = {"curve": curve, lines.axis: x}
                for column in columns:
                    named = {column: _seeds(points, column)}
                    for other, of in others.items():
                        named[f"{column}_less_{other}"] = named[column] - _seeds(curves[of], column)
                    if since_before:
                        start = named[column][:1]
                        named[f"{column}_since_before"] = np.diff(named[column], axis=0, prepend=start)
                    if since_first:
                        named |= {f"{name}_since_first": each - each[0] for name, each in named.items()}
                    for name, each in named.items():
                        row |= over_seeds(name, each[j].tolist())
                listed.append(row)
        return listed

    return rows


def _seeds(points: Sequence[Sequence[Mapping[str, float]]], column: str) -> Floats:
    """(m, seeds) one quantity of one curve."""
    return np.array([[seed[column] for seed in point] for point in points])


def _named(curves: Iterable[str], beginning: str) -> str:
    matching = [name for name in curves if name.startswith(beginning)]
    return beginning if beginning in matching else matching[-1]


def slug(curve: str) -> str:
    """A curve's name in that of a column.

    >>> slug("local learning")
    'local'
    """
    return curve.split()[0].lower()


def measured(settings: Any, outcomes: Mapping[Case, Outcome]) -> dict[str, list[list[dict[str, float]]]]:
    """By curve, point and seed, what is measured; under a control, of another scheme or point."""
    lines: Lines = settings.lines
    cases = lines.cases(settings.seeds)
    if settings.exchanged == "schemes":
        cases = cases[::-1]
    elif settings.exchanged == "points":
        cases = [points[::-1] for points in cases]
    return {
        name: [[_quantities(case, outcomes) for case in point] for point in points]
        for name, points in zip(lines.schemes, cases, strict=True)
    }


def _quantities(case: Case, outcomes: Mapping[Case, Outcome]) -> dict[str, float]:
    """Means over the agents of one case."""
    result = outcomes[case]
    paid = float(np.mean(result.payment))
    quantities = {
        "loss": float(np.mean(result.loss)),  # on the training samples, regulariser included
        "overall": float(np.mean(result.overall)),  # the same plus the payment
        "test_loss": float(np.mean(result.test_loss)),  # on fresh samples, without regulariser
        "test_overall": float(np.mean(result.test_loss)) + paid,
        "accuracy": float(np.mean(result.accuracy)),  # on fresh samples
        "collected": float(np.sum(result.payment)),  # of all agents; below 0 the server pays
    }
    if _pays(case):
        off = np.abs(np.subtract(result.payment, outcomes[exact_twin(case)].payment))
        quantities |= {"error": float(off.mean()), "error_sd": float(off.std(ddof=1))}  # over the agents
    return quantities


# Readings of such a table


def curve(rows: Sequence[Row], name: str) -> list[Row]:
    """The rows of one curve, in the order of the axis."""
    return where(rows, curve=name)


def names(rows: Sequence[Row], beginning: str = "") -> list[str]:
    """The curves of a table whose names begin so."""
    curves = dict.fromkeys(str(row["curve"]) for row in rows)
    return [name for name in curves if name.startswith(beginning)]


def axis_of(rows: Sequence[Row]) -> str:
    """The column with what varies along the curves."""
    return list(rows[0])[1]


def over(above: Estimate, below: Estimate) -> Estimate:
    """A ratio of two means of different cases; infinite where there is nothing to divide by."""
    if not above.value or not below.value:
        return Estimate(0.0 if below.value else math.inf, 0.0, above.seeds)
    ratio = above.value / below.value
    relative = above.error / abs(above.value) + below.error / abs(below.value)
    return Estimate(ratio, abs(ratio) * relative, above.seeds)


def break_even(rows: Sequence[Row], joining: str = FFL, alone: str = LOCAL) -> float | None:
    """Where the expected loss with payment first passes that of learning alone; None if it never does."""
    x = [number(row, axis_of(rows)) for row in curve(rows, joining)]
    joined, other = (
        [number(row, "test_overall") for row in curve(rows, name)] for name in (joining, alone)
    )
    gap = np.subtract(joined, other)
    crossings = np.flatnonzero((gap[:-1] <= 0) & (gap[1:] > 0))
    if not crossings.size:
        return None
    at = int(crossings[0])
    share = gap[at] / (gap[at] - gap[at + 1])
    return float(x[at] + share * (x[at + 1] - x[at]))
