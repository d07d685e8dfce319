"""Advice for agents whose data are known in outline: questions, each with a recommendation and its numbers.

    bonafed advise join                   should this agent join, with its payment counted?
    bonafed advise federate-or-cluster    one model for all, one per group, or everybody alone?
    bonafed advise manipulation           how much would an agent exaggerate if nobody paid?

They compare risk bounds (`bounds`), which hold with high probability and are not tight: a
recommendation says which bound is smaller.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bonafed import checks
from bonafed.checks import Floats, finite_or_none
from bonafed.errors import InvalidValue
from bonafed.mechanisms.faithful.theory.bounds import (
    AgentPopulation,
    best_manipulation,
    federate_or_cluster,
    federated_risk,
    local_risk,
    manipulated_risk,
    payment_upper_bound,
)
from bonafed.mechanisms.faithful.theory.grouping import Assumption3, assumption_3, obvious_clusterings
from bonafed.mechanisms.faithful.theory.guarantees import participation
from bonafed.presentation.documents import Cell, Column, Document, Table
from bonafed.reports import read_matrix
from bonafed.sections import Section, key, text
from bonafed.text import whole_numeral

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_RAREST = 1e-250  # any count divided by such a probability is still a number
_MOST_AGENTS, _MOST_PLANNED, _MOST_CLASSES = 10**6, 10**4, 10**5


def federation_size(name: str, value: object) -> int:
    """A number of agents, every one of whom takes memory."""
    return checks.whole(name, value, at_least=2, at_most=_MOST_AGENTS)


def planned(name: str, value: object) -> int:
    """A number of agents for each of whom every plan that is tried takes time."""
    return checks.whole(name, value, at_least=2, at_most=_MOST_PLANNED)


def class_count(name: str, value: object) -> int:
    """A number of labels for which the distributions of all agents fit into memory."""
    return checks.whole(name, value, at_least=2, at_most=_MOST_CLASSES)


def computable(name: str, value: object) -> float:
    """A positive number for which no product in the bounds is too large or too small for a double."""
    return checks.between(name, checks.positive(name, value), 1e-30, 1e30)


def _counts(name: str, value: Any) -> tuple[int, ...]:
    counts = checks.vector(name, value, sign="positive")
    if counts.size < 2:
        raise InvalidValue(name, "must list at least two agents", counts.size)
    return tuple(checks.whole(name, count) for count in counts.tolist())


def _unit(name: str, value: object) -> float:
    return checks.between(name, checks.number(name, value), 0.0, 1.0)


def open_unit(name: str, value: object) -> float:
    """A probability that is neither 0 nor 1, and large enough to divide by."""
    number = checks.number(name, value)
    if not 0 < number < 1:
        raise InvalidValue(name, "must be between 0 and 1, ends excluded", number)
    if number < _RAREST:
        raise InvalidValue(name, f"must be at least {_RAREST:g}", number)
    return number


def _path(name: str, value: object) -> Path:
    return Path(str(value))


def _natural(name: str, value: object) -> int:
    return checks.whole(name, value, at_least=0)


@dataclass(frozen=True)
class PopulationOptions(Section):
    """The agents that might train together."""

    counts: tuple[int, ...] = key(_counts, help="Samples of each agent, such as 200,200,800.")
    classes: int = key(class_count, 10, help="How many labels there are.")
    delta: float = key(
        _unit, 0.0, help="How much agents differ: 0 not at all, 1 each has a label of its own."
    )
    shares: Path | None = key(
        _path,
        None,
        metavar="FILE.csv",
        help="Instead of --delta: the share of every class, one row per agent.",
    )
    parameters: int = key(checks.whole, 10, help="Of the model.")
    regulariser: float = key(computable, 0.1, metavar="MU", help="Strong convexity of the losses.")
    lipschitz: float = key(
        computable, math.sqrt(2.0), help="Largest norm of a sample's gradient; 1.414 for softmax."
    )
    failure_probability: float = key(open_unit, 0.05, help="With which a bound may fail to hold.")

    def population(self) -> AgentPopulation:
        """What the risk bounds depend on; weights are proportional to samples."""
        counts = np.asarray(self.counts, dtype=np.float64)
        return AgentPopulation(
            counts / counts.sum(), counts, self._distributions(), self.lipschitz, self.parameters,
            self.regulariser, self.failure_probability,
        )  # fmt: skip

    def _distributions(self) -> Floats:
        agents = len(self.counts)
        if self.shares is None:
            own = np.zeros((agents, self.classes))
            own[np.arange(agents), np.arange(agents) % self.classes] = 1.0
            return np.asarray((1 - self.delta) / self.classes + self.delta * own)
        rows = read_matrix(self.shares)
        if rows.shape[0] != agents:
            raise InvalidValue("shares", f"must have {agents} rows, one per agent", rows.shape[0])
        wrong = ~((rows >= 0).all(1) & (np.abs(rows.sum(1) - 1) <= 1e-9))
        if wrong.any():
            row = rows[wrong.argmax()].tolist()
            raise InvalidValue("shares", "must be rows of probabilities that sum to 1", row)
        return np.asarray(rows)


@dataclass(frozen=True)
class AgentOptions(PopulationOptions):
    """The same, and the agent that asks."""

    agent: int = key(_natural, 0, help="The agent that asks, numbered from 0.")

    def _agree(self) -> None:
        if self.agent >= len(self.counts):
            raise InvalidValue("agent", f"must be in 0..{len(self.counts) - 1}", self.agent)


def join(options: AgentOptions) -> Document:
    """Should this agent join, its payment counted?"""
    population, k = options.population(), options.agent
    alone, joined = float(local_risk(population)[k]), float(federated_risk(population)[k])
    weight = float(population.weights[k])
    payment = payment_upper_bound(weight, options.lipschitz, options.regulariser)
    choices = {"stay alone": alone, "join": joined + payment}
    free = joined < alone <= joined + payment
    advice = f"Agent {k} should {'join' if choices['join'] < alone else 'stay alone'}"
    if choices["join"] < alone:
        advice += f": its risk bound falls from {alone:.4g} to {choices['join']:.4g}, payment included."
    elif free:
        advice += (
            f" unless its payment turns out below {alone - joined:.3g}: joining is better without a "
            f"payment ({joined:.4g} against {alone:.4g}), but not if it owes the most it can, "
            f"{payment:.3g}."
        )
    else:
        advice += (
            f": its risk bound is {alone:.4g} alone, but {joined:.4g} plus a payment in the federation, "
            "because its data are unlike the others'."
        )
    whole = participation(population, k)
    by_payment = (
        f"With its VCG payment in the bound instead (Proposition 7): {whole.alone:.4g} alone and "
        f"{whole.joining:.4g} in the federation, up to a term that is the same for both."
    )
    rows: list[tuple[Cell, ...]] = [
        ("stay alone", alone, 0.0, alone),
        ("join", joined, payment, joined + payment),
    ]
    columns = (
        Column("choice", left=True), Column("risk bound", ".4g"), Column("payment at most", ".4g"),
        Column("in all", ".4g"),
    )  # fmt: skip
    data = {
        "question": "join", "agent": k, "choice": min(choices, key=choices.__getitem__),
        "risk_alone": alone, "risk_together": joined, "largest_payment": payment,
    }  # fmt: skip
    data |= {"participation": {"alone": whole.alone, "join": whole.joining}}
    table = Table(f"Agent {k}, in units of loss", columns, tuple(rows))
    return Document(
        (advice, table, by_payment),
        data,
        lambda: _bars("Should the agent join, payment included?", choices),
    )


def _bars(title: str, choices: dict[str, float]) -> Figure:
    from bonafed.mechanisms.faithful.figures import choices_figure

    return choices_figure(title, choices, "risk bound (loss)")


def _groups(name: str, value: object) -> str:
    members = [group.replace(",", " ").split() for group in text(name, value).split("/")]
    if not all(
        group and all(agent.isascii() and agent.isdecimal() for agent in group) for group in members
    ):
        raise InvalidValue(name, "must be groups of agents such as 0,1/2,3", repr(value))
    return str(value)


@dataclass(frozen=True)
class GroupOptions(PopulationOptions):
    """The same, and how they might be grouped."""

    groups: str | None = key(
        _groups,
        None,
        metavar="A,B/C,D",
        help="Groups of agents (by default, the best that are found, if more than one).",
    )


def federate(options: GroupOptions) -> Document:
    """One model for all, one per group, or everybody alone?"""
    population = options.population()
    assumed = assumption_3(population)
    groups = _best_groups(population, assumed) if options.groups is None else _parse_groups(options.groups)
    agents = sorted(agent for group in groups for agent in group)
    if agents != list(range(len(options.counts))):
        rule = f"must hold every agent 0..{len(options.counts) - 1} once"
        raise InvalidValue("groups", rule, repr(options.groups))
    choice, bounds = federate_or_cluster(population, groups)
    advice = {
        "federate": "Train one model for all",
        "cluster": f"Train one model per group ({len(groups)} groups)",
        "learn alone": "Let everybody learn alone",
    }[choice]
    others = " and ".join(f"{bound:.4g} for {name}" for name, bound in bounds.items() if name != choice)
    advice += f": the risk bound of all together is {bounds[choice]:.4g}, against {others}."
    rows = tuple(bounds.items())
    table = Table("", (Column("choice", left=True), Column("risk bound, all together", ".4g")), rows)
    data = {
        "question": "federate-or-cluster", "choice": choice, "bounds": bounds,
        "groups": [list(map(int, group)) for group in groups],
        "assumption_3": {
            "holds": assumed.holds, "all_searched": assumed.exact, "least_bound": assumed.best.bound,
            "best_groups": [list(members) for members in assumed.best.clusters],
        },
    }  # fmt: skip
    title = "One model, several, or none together?"
    sentences = (f"groups: {_grouped(groups)}", _assumption(assumed))
    return Document((advice, table, *sentences), data, lambda: _bars(title, bounds))


def _best_groups(population: AgentPopulation, assumed: Assumption3) -> list[list[int]]:
    """The best that were found; where that is one group of all, those with the same main label."""
    if len(assumed.best.clusters) > 1:
        return [list(members) for members in assumed.best.clusters]
    return obvious_clusterings(population)[-1]


def _grouped(groups: Sequence[Sequence[int]]) -> str:
    return " / ".join(",".join(map(str, group)) for group in groups)


def _assumption(assumed: Assumption3) -> str:
    """Whether one model for all is best of all clusterings, (22)."""
    searched = "of all clusterings" if assumed.exact else "of the clusterings that were tried"
    if assumed.holds:
        return f"Assumption 3 holds: {searched}, one model for all has the smallest risk bound."
    return (
        f"Assumption 3 does not hold: {searched}, {_grouped(assumed.best.clusters)} has the smallest risk "
        f"bound, {assumed.best.bound:.4g}."
    )


def _parse_groups(words: str) -> list[list[int]]:
    return [[whole_numeral(k) for k in group.replace(",", " ").split()] for group in words.split("/")]


def manipulation(options: AgentOptions) -> Document:
    """By what factor would an agent multiply its gradient under plain averaging, and what does it gain?"""
    population, k = options.population(), options.agent
    factors, honest = best_manipulation(population), manipulated_risk(population, 1.0)
    alone = local_risk(population)
    best = [
        float(alone[j]) if math.isinf(g) else float(manipulated_risk(population, g)[j])
        for j, g in enumerate(factors.tolist())
    ]
    best_factor, gain = float(factors[k]), float(honest[k]) - best[k]
    if math.isinf(best_factor):
        advice = (
            f"Under plain averaging agent {k} would push without limit: its data are so unlike the others' "
            f"that learning alone is best for it, by {gain:.4g} of its risk bound."
        )
    else:
        advice = (
            f"Under plain averaging agent {k} would report {best_factor:.4g} x its gradient and lower its "
            f"risk bound by {gain:.4g}."
        )
    advice += " With the payments of faithful learning the truth, a factor of 1, is best for everybody."
    rows = tuple(
        (
            j,
            int(population.counts[j]),
            "without limit" if math.isinf(g) else f"{g:.4g}",
            float(honest[j]),
            b,
        )
        for j, (g, b) in enumerate(zip(factors.tolist(), best, strict=True))
    )
    columns = (
        Column("agent"), Column("samples"), Column("best factor"), Column("risk bound, honest", ".4g"),
        Column("manipulated", ".4g"),
    )  # fmt: skip
    data = {
        "question": "manipulation", "agent": k,
        "best_factor": [finite_or_none(g) for g in factors.tolist()],
        "risk_honest": honest.tolist(), "risk_manipulated": best,
    }  # fmt: skip
    table = Table("Under plain averaging, if an agent alone manipulates", columns, rows)

    def draw() -> Figure:
        from bonafed.mechanisms.faithful.figures import curve_figure

        top = 10.0 if math.isinf(best_factor) else max(10.0, 3 * best_factor)
        x = np.geomspace(0.25, top, 80)
        y = np.array([manipulated_risk(population, g)[k] for g in x.tolist()])
        lines = {"plain averaging": y, "alone": np.full(x.size, float(alone[k]))}
        title = f"What agent {k} gains by exaggerating"
        labels = ("factor of the reported gradient", "risk bound (loss)")
        marked = None if math.isinf(best_factor) else ("best factor", best_factor)
        return curve_figure(title, x, lines, labels, marked, log_x=True)

    return Document((advice, table), data, draw)
