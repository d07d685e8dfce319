"""Faithful learning against manipulated FedAvg and learning alone: figures 3 to 5 of the paper.

    by samples        figure 3   losses and accuracy against n, all samples together
    by heterogeneity  figure 4   the same against Delta
    by privacy        figure 5a  error of private payments against alpha, for several T_2
    by clusters       figure 5b  error of payments against the number L of clusters, with and without noise

Loss is the federation's F = sum p_k F_k with everybody's own model, overall loss adds the payments. On the
training loss nobody ever gains against learning alone, J_k >= F_k(w*) >= min F_k (theory C1.5), so the
paper's comparison (figure 4a) can only be of expected losses: both are in the tables. The error of a
payment is its distance from the exact one, (10), of the same agents without noise or clusters.

Every point is a mean over seeds; a seed fixes samples, partition, clusters and noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from bonafed import checks
from bonafed.checks import Floats
from bonafed.sections import Check, key, word
from bonafed.shown import Document
from bonafed.studies.faithful.cases import Case, Outcome
from bonafed.studies.grid import (
    Average,
    Grid,
    Results,
    Row,
    Study,
    StudyCell,
    average,
    drawing,
    report,
    rising,
    several,
    table_of,
)

_BASE = Case("faithful")
_COLUMNS = ("loss", "overall", "test_loss", "test_overall", "accuracy", "collected", "error")


def _counts(at_least: int) -> Check:
    return several(lambda name, value: checks.whole(name, value, at_least))


@dataclass(frozen=True)
class Agents(Grid):
    """The agents of all these studies."""

    data: str = key(word, "mnist", help="A data set of images, or your own .npz or .csv file.")
    samples: int = key(checks.whole, _BASE.samples, help="n, of all agents together.")
    agents: int = key(checks.whole, _BASE.agents, help="K.")
    delta: float = key(checks.number, _BASE.delta, help="Delta: 0 is iid, 1 one class per agent.")
    regulariser: float = key(checks.positive, _BASE.regulariser, help="mu.")
    training_steps: int = key(checks.whole, _BASE.training_steps, help="T_1 of private training.")

    @property
    def base(self) -> Case:
        """Faithful learning with exact payments."""
        return Case(
            "faithful", self.samples, self.delta, self.seed, self.data, self.agents, self.regulariser
        )

    def private(self, alphas: Iterable[float], payment_steps: int) -> dict[str, Case]:
        """Private faithful learning, by the names of the curves."""
        return {
            f"DP-FFL, alpha {alpha:g}": replace(
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

    alphas: tuple[float, ...] = key(several(checks.positive), (0.1, 1.0), help="Of private training.")
    factors: tuple[float, ...] = key(several(checks.positive), (10.0, 100.0), help="Of manipulation.")
    payment_steps: int = key(checks.whole, _BASE.payment_steps, help="T_2 of private payments.")

    @property
    def schemes(self) -> dict[str, Case]:
        """By the names of their curves; the agent that manipulates is the paper's example."""
        agent = min(_BASE.manipulator, self.agents - 1)
        manipulated = {
            f"manipulated, gamma {gamma:g}": replace(
                self.base, scheme="manipulated", factor=gamma, manipulator=agent
            )
            for gamma in self.factors
        }
        private = self.private(self.alphas, self.payment_steps)
        local = replace(self.base, scheme="local")
        return {"FFL": self.base, **private, **manipulated, "local learning": local}


@dataclass(frozen=True)
class BySamples(Comparison):
    """Figure 3: more samples for everybody."""

    sizes: tuple[float, ...] | None = key(rising(), None, help="n; if left out 0.1 to 2 times --samples.")

    @property
    def lines(self) -> Lines:
        """The curves."""
        sizes = self.sizes or tuple(self.samples * share for share in (0.1, 0.2, 0.5, 1.0, 2.0))
        return Lines("samples", sizes, self.schemes, lambda case, x: replace(case, samples=round(x)))


@dataclass(frozen=True)
class ByHeterogeneity(Comparison):
    """Figure 4: agents whose data differ more and more."""

    deltas: tuple[float, ...] = key(
        rising(zero=True), (0.0, 0.05, 0.15, 0.3, 0.6, 0.9), help="Delta of the points."
    )

    @property
    def lines(self) -> Lines:
        """The curves."""
        return Lines("delta", self.deltas, self.schemes, lambda case, x: replace(case, delta=x))


@dataclass(frozen=True)
class ByPrivacy(Agents):
    """Figure 5a: private payments, the more exact the less privacy is left; a curve for each T_2."""

    alphas: tuple[float, ...] = key(rising(), (0.1, 0.3, 1.0, 3.0, 10.0, 30.0), help="Of the points.")
    payment_steps: tuple[int, ...] = key(_counts(1), (2, 5, 20), help="T_2, a curve each.")

    @property
    def lines(self) -> Lines:
        """The curves."""
        schemes = {
            f"T2 = {steps}": case
            for steps in self.payment_steps
            for case in self.private([1.0], steps).values()
        }
        return Lines("alpha", self.alphas, schemes, lambda case, x: replace(case, alpha=x))


@dataclass(frozen=True)
class ByClusters(Agents):
    """Figure 5b: fewer leave-one-out models, one for each of L clusters."""

    clusters: tuple[float, ...] | None = key(rising(), None, help="L; if left out 2 to --agents.")
    alphas: tuple[float, ...] = key(several(checks.positive), (0.1, 1.0), help="Of private payments.")
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
        flat.sort(key=lambda case: case.seed)  # a study that is stopped has its first seeds complete
        return list(dict.fromkeys([*flat, *(exact_twin(case) for case in flat if _pays(case))]))


@dataclass(frozen=True, slots=True, eq=False)
class Curves:
    """s curves over m points of one axis; losses and payments in units of cross-entropy."""

    axis: str  # what varies
    at: Floats  # (m,) ascending
    names: tuple[str, ...]  # (s,)
    loss: Average  # (s, m) F, on the training samples, regulariser included
    overall: Average  # (s, m) the same plus the mean payment
    test_loss: Average  # (s, m) on fresh samples, without regulariser
    test_overall: Average  # (s, m) the same plus the mean payment
    accuracy: Average  # (s, m) on fresh samples, mean over agents
    collected: Average  # (s, m) sum of all payments; below 0 the server pays
    error: Average  # (s, m) |payment - exact payment|, over agents and seeds; NaN where nobody pays

    def to_rows(self) -> list[Row]:
        parts = [item.name for item in fields(self) if isinstance(getattr(self, item.name), Average)]
        rows: list[Row] = []
        for i, name in enumerate(self.names):
            for j, x in enumerate(self.at.tolist()):
                numbers: Row = {}
                for part in parts:
                    value: Average = getattr(self, part)
                    numbers |= {part: float(value.mean[i, j]), part + "_sd": float(value.sd[i, j])}
                rows.append({"curve": name, self.axis: x, **numbers})
        return rows

    def of(self, name: str, part: str) -> Average:
        """(m,) one quantity of one curve."""
        at = self.names.index(checks.one_of("name", name, self.names))
        value: Average = getattr(self, part)
        return Average(value.mean[at], value.sd[at])


def curves(lines: Lines, seeds: int, outcomes: Mapping[Case, Outcome]) -> Curves:
    """Means over seeds; each scheme is compared with exact payments."""
    cases = lines.cases(seeds)

    def collect(what: Callable[[Outcome], float]) -> Average:
        return average(np.array([[[what(outcomes[c]) for c in x] for x in row] for row in cases]), -1)

    def error(case: Case) -> list[float]:
        if not _pays(case):
            return [math.nan] * case.agents
        gap = np.abs(np.subtract(outcomes[case].payment, outcomes[exact_twin(case)].payment))
        return [float(x) for x in gap]

    errors = np.array([[[e for c in point for e in error(c)] for point in row] for row in cases])
    return Curves(
        axis=lines.axis,
        at=np.array(lines.at),
        names=tuple(lines.schemes),
        loss=collect(lambda o: float(np.mean(o.loss))),
        overall=collect(lambda o: float(np.mean(o.overall))),
        test_loss=collect(lambda o: float(np.mean(o.test_loss))),
        test_overall=collect(lambda o: float(np.mean(o.test_loss) + np.mean(o.payment))),
        accuracy=collect(lambda o: float(np.mean(o.accuracy))),
        collected=collect(lambda o: float(np.sum(o.payment))),
        error=average(errors, -1),
    )


def break_even(table: Curves, joining: str = "FFL", alone: str = "local learning") -> float | None:
    """Where the expected loss with payment first passes that of learning alone; None if it never does."""
    gap = table.of(joining, "test_overall").mean - table.of(alone, "test_overall").mean
    crossings = np.flatnonzero((gap[:-1] <= 0) & (gap[1:] > 0))
    if not crossings.size:
        return None
    at = int(crossings[0])
    share = gap[at] / (gap[at] - gap[at + 1])
    return float(table.at[at] + share * (table.at[at + 1] - table.at[at]))


def exact_twin(case: Case) -> Case:
    """The same agents with exact payments: no noise, no clusters."""
    return Case("faithful", case.samples, case.delta, case.seed, case.data, case.agents, case.regulariser)


def _pays(case: Case) -> bool:
    return case.scheme in ("faithful", "private")


# What is shown


def _cells(options: Any) -> dict[Case, StudyCell]:
    return {case: case.cell for case in options.lines.all_cases(options.seeds)}


# of figures 3 to 5, as their captions say
_PAPER = {"data": "mnist", "agents": 10, "training_steps": 80}
_SAMPLES, _DELTA, _STEPS = {"samples": 10_000}, {"delta": 0.05}, {"payment_steps": 20}


def _study(summary: str, options: type[Agents], draw: str, example: str, paper: Mapping[str, Any]) -> Study:
    """`draw` is a function of `faithful_figures`."""

    def show(choices: Any, results: Results) -> Document:
        table = curves(
            choices.lines, choices.seeds, {case: Outcome(**result) for case, result in results.items()}
        )
        rows = table.to_rows()
        few = [{name: row[name] for name in ("curve", table.axis, *_COLUMNS)} for row in rows]
        figure = drawing(f"faithful.figures.{draw}", table)
        return report(summary, rows, figure, tables=table_of(summary, few), notes=_notes(table))

    return Study(summary, options, show, _cells, example=f"bonafed reproduce {example}", paper=paper)


def _notes(table: Curves) -> list[str]:
    means = "Means over agents and seeds; test: expected on fresh samples; overall: payments added."
    if "local learning" not in table.names:
        return [means]
    even = break_even(table)
    if even is None:
        return [means, "Nowhere on this axis does learning alone overtake joining with payment."]
    return [means, f"Learning alone overtakes joining with payment at {table.axis} {even:.3g}."]


BY_SAMPLES = _study(
    "Faithful learning with more and more samples (figure 3)", BySamples, "learning_figure",
    "faithful-samples --data digits --samples 700", _PAPER | _DELTA | _STEPS,
)  # fmt: skip
BY_HETEROGENEITY = _study(
    "Faithful learning of agents more and more unlike (figure 4)", ByHeterogeneity, "learning_figure",
    "faithful-heterogeneity --data digits --samples 1400", _PAPER | _SAMPLES | _STEPS,
)  # fmt: skip
BY_PRIVACY = _study(
    "Private payments by the privacy given away (figure 5a)", ByPrivacy, "payment_figure",
    "faithful-privacy --data digits --samples 1400", _PAPER | _SAMPLES | _DELTA,
)  # fmt: skip
BY_CLUSTERS = _study(
    "Payments by the number of clusters (figure 5b)", ByClusters, "payment_figure",
    "faithful-clusters --data digits --samples 1400", _PAPER | _SAMPLES | _DELTA | _STEPS,
)  # fmt: skip
