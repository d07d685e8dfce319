"""Figure 2, remark 1 and the texts on them: what the bounds of the faithful paper say.

Proposition 11 (figure 2) gives steps and bound against alpha, printed and corrected. For softmax regression
on rows of norm 1: L_g = mu + 1/2, and gradients of norm sqrt(2). T_1 = T_2 increase and the loss falls as
alpha grows, that is with less privacy; the text after the paper's figure 2 has both the other way round
(erratum F-D9). The risk bounds (13), (14) and (19) say who is better off in a federation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.mechanisms.faithful.theory.bounds import (
    AgentPopulation,
    Tradeoff,
    TradeoffSetting,
    federated_risk,
    federation_advantage,
    local_risk,
    privacy_tradeoff,
)
from bonafed.papers.claim import (
    Check,
    Claim,
    Estimate,
    Results,
    Row,
    at_least,
    at_most,
    drawn_by,
    number,
    where,
    within,
)
from bonafed.papers.tables import increasing, rising
from bonafed.sections import Section, flag, key


@dataclass(frozen=True, slots=True, eq=False)
class Tradeoffs:
    """Proposition 11 for m privacy parameters and e steps; (e, m) arrays, printed constants and corrected.

    With no steps at all the bound is B, what the start is away; (58) holds from the first step on. It
    leaves out its epsilon (0 for L = K) and rounding T up, which adds at most A.
    """

    alpha: Floats  # (m,) ascending
    step: Floats  # (e,) eta_2
    printed_steps: NDArray[np.int64]  # T_1 = T_2, (57)
    printed_loss: Floats  # (58), on |E P_k - VCG_k|
    steps: NDArray[np.int64]
    loss: Floats

    def to_rows(self) -> list[Row]:
        names = ("printed_steps", "printed_loss", "steps", "loss")
        return [
            {"eta2": eta, "alpha": alpha, **{name: getattr(self, name)[i, j].item() for name in names}}
            for i, eta in enumerate(self.step.tolist())
            for j, alpha in enumerate(self.alpha.tolist())
        ]


def tradeoff(
    dimension: int,
    smallest: int,
    agents: int = 10,
    regulariser: float = 0.001,
    *,
    alphas: ArrayLike | None = None,
    step_shares: ArrayLike = (1.0, 0.3, 0.1),
    beta: float = 0.01,
) -> Tradeoffs:
    """`dimension` counts the model's numbers, `smallest` is n_(1), `step_shares` are parts of the largest
    step allowed, 1/((K-1) L_g)."""
    default = np.geomspace(0.01, 1000.0, 61)
    alpha = increasing("alphas", default if alphas is None else np.asarray(alphas))
    shares = checks.vector("step_shares", step_shares, sign="positive")
    k, mu = checks.whole("agents", agents, 2), checks.positive("regulariser", regulariser)
    smooth = mu + 0.5
    step = shares / ((k - 1) * smooth)

    def at(eta: float, a: float, corrected: bool) -> Tradeoff:
        setting = TradeoffSetting(eta, dimension, math.sqrt(2.0), k, a, beta, mu, smallest, smooth)
        return privacy_tradeoff(setting, corrected)

    def steps(table: list[list[Tradeoff]]) -> NDArray[np.int64]:
        return np.array([[t.steps for t in row] for row in table], dtype=np.int64)

    def loss(table: list[list[Tradeoff]]) -> Floats:
        return np.array([[t.loss if t.steps else t.start for t in row] for row in table])

    printed, right = (
        [[at(float(eta), float(a), corrected) for a in alpha] for eta in step]
        for corrected in (False, True)
    )
    return Tradeoffs(alpha, step, steps(printed), loss(printed), steps(right), loss(right))


# Figure 2: steps and bound of Proposition 11 against alpha


@dataclass(frozen=True)
class Bound(Section):
    """What the bound depends on; the paper does not state its own, these are of its other figures."""

    dimension: int = key(checks.whole, 7840, help="Numbers of the model.")
    smallest: int = key(checks.whole, 957, help="Samples of the agent that has fewest.")
    agents: int = key(lambda name, value: checks.whole(name, value, 2), 10, help="K.")
    regulariser: float = key(checks.positive, 0.001, help="mu.")
    points: int = key(lambda name, value: checks.whole(name, value, 3), 41, help="Alphas on the axis.")
    jumbled: bool = key(flag, False, help="Control: every second point at the other end of the axis.")


def fig2_rows(bound: Bound, _: Results) -> list[Row]:
    """Steps and bound for every step size and alpha, with printed constants and corrected ones."""
    alpha = np.geomspace(0.01, 1000.0, bound.points)
    table = tradeoff(bound.dimension, bound.smallest, bound.agents, bound.regulariser, alphas=alpha)
    read = dict(zip(alpha.tolist(), alpha.tolist(), strict=True))
    if bound.jumbled:
        read |= dict(zip(alpha[1::2].tolist(), alpha[1::2][::-1].tolist(), strict=True))
    rows: list[Row] = [{**row, "alpha": read[number(row, "alpha")]} for row in table.to_rows()]
    return sorted(rows, key=lambda row: (-number(row, "eta2"), number(row, "alpha")))


def fig2_checks(table: Sequence[Row]) -> list[Check]:
    """Monotone in alpha, and hardly a matter of eta_2."""
    comparisons = []
    for kind, prefix, corrected in (("printed", "printed_", False), ("corrected", "", True)):
        steps, bounds = f"{prefix}steps", f"{prefix}loss"
        fall = min(_slopes(table, steps), default=0.0)
        rise = max(_slopes(table, bounds), default=0.0)
        if corrected:
            comparisons += [
                at_least("least change of T1 = T2 where alpha grows", Estimate(fall), 0.0, corrected=True),
                at_most(
                    "largest change of the bound where alpha grows", Estimate(rise), 0.0, corrected=True
                ),
            ]
        else:
            most = max(_slopes(table, steps), default=0.0)
            least = min(_slopes(table, bounds), default=0.0)
            comparisons += [
                at_most(
                    f"largest change of T1 = T2 where alpha grows, {kind} constants", Estimate(most), 0.0
                ),
                at_least(
                    f"least change of the bound where alpha grows, {kind} constants", Estimate(least), 0.0
                ),
            ]
        spread = Estimate(_spread(table, bounds))
        comparisons.append(
            at_most(f"spread of the bound over eta2, {kind} constants", spread, 0.05, corrected=corrected)
        )
    return comparisons


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


FIG2 = Claim(
    identifier="faithful-fig2",
    paper="faithful",
    place="figure 2, text after proposition 11",
    says="With eta_2 fixed, T_1 and T_2 decrease and the payment loss bound increases in alpha; the bound "
    "hardly changes with eta_2.",
    presets={"smoke": Bound(points=5), "quick": Bound(), "paper": Bound()},
    rows=fig2_rows,
    judge=fig2_checks,
    draw=drawn_by("faithful", "tradeoff_figure"),
    control={"jumbled": True},
    erratum="F-D9",
)


# After Proposition 11: three ways to trade


_BETA = 0.01
_PRIVATE, _OPEN, _ACCURATE = "less alpha", "eta2 and alpha^2 together", "more alpha"


def guidelines_rows(bound: Bound, _: Results) -> list[Row]:
    """Along each way, from its beginning to its end: T_1 = T_2 and the bound, corrected constants."""
    smooth = bound.regulariser + 0.5
    largest = 1 / ((bound.agents - 1) * smooth)
    ways = {
        _PRIVATE: [(largest, alpha) for alpha in np.geomspace(10.0, 1e-4, bound.points)],
        _OPEN: [(largest * s, 1000.0 * s**0.5) for s in np.geomspace(0.01, 1.0, bound.points)],
        _ACCURATE: [(largest, alpha) for alpha in np.geomspace(10.0, 1e6, bound.points)],
    }
    rows: list[Row] = []
    for way, points in ways.items():
        if bound.jumbled:
            points = points[::-1]
        for point, (step, alpha) in enumerate(points):
            setting = TradeoffSetting(
                step, bound.dimension, 2**0.5, bound.agents, float(alpha), _BETA, bound.regulariser,
                bound.smallest, smooth,
            )  # fmt: skip
            reached = privacy_tradeoff(setting)
            rows.append({
                "way": way, "point": point, "eta2": float(step), "alpha": float(alpha),
                "steps": reached.steps, "bound": reached.loss if reached.steps else reached.start,
                "start": reached.start,
            })  # fmt: skip
    return rows


def guidelines_checks(table: Sequence[Row]) -> list[Check]:
    """Each way changes what it should; the bound of the first does not diverge, which is the correction."""
    ways = {way: where(table, way=way) for way in (_PRIVATE, _OPEN, _ACCURATE)}
    ends = {way: (points[0], points[-1]) for way, points in ways.items()}
    change = {
        way: {part: number(end, part) - number(begin, part) for part in ("steps", "bound")}
        for way, (begin, end) in ends.items()
    }
    middle = ways[_PRIVATE][len(ways[_PRIVATE]) // 2]
    last = ends[_PRIVATE][1]
    grows = number(last, "bound") / number(middle, "bound")
    begin, end = ends[_ACCURATE]
    vanishing = number(end, "bound") / number(begin, "bound")
    compared = [
        (at_most, f"{_PRIVATE}: steps at the end", number(last, "steps"), 0.0),
        (at_most, f"{_OPEN}: change of steps", change[_OPEN]["steps"], 0.0),
        (at_most, f"{_OPEN}: change of the bound", change[_OPEN]["bound"], 0.0),
        (at_least, f"{_ACCURATE}: change of steps", change[_ACCURATE]["steps"], 0.0),
        (at_most, f"{_ACCURATE}: bound over that at the beginning", vanishing, 0.001),
    ]
    comparisons = [
        rule(what, Estimate(value), limit, corrected=corrected)
        for corrected in (False, True)
        for rule, what, value, limit in compared
    ]
    return [
        *comparisons,
        at_least(f"{_PRIVATE}: bound at the end over that half way", Estimate(grows), 10.0),
        within(
            f"{_PRIVATE}: bound at the end over B, where no step is taken",
            Estimate(number(last, "bound") / number(last, "start")), 1.0, 1e-9, corrected=True,
        ),
    ]  # fmt: skip


GUIDELINES = Claim(
    identifier="faithful-guidelines",
    paper="faithful",
    place="guidelines 1 to 3 after proposition 11",
    says="alpha to 0 takes no steps and makes the payment loss diverge; eta_2 growing with alpha^2 lowers "
    "steps and loss; alpha to infinity takes ever more steps and makes the loss vanish.",
    presets={"smoke": Bound(points=5), "quick": Bound(points=25), "paper": Bound(points=25)},
    rows=guidelines_rows,
    judge=guidelines_checks,
    draw=drawn_by("faithful", "guidelines_figure"),
    control={"jumbled": True},
    erratum="F-D9",
    about="Corrected constants (F-D9); d, n_(1) and mu are those of figures 3 to 5. The loss bound does "
    "not diverge for alpha to 0: where (57) takes no step, payments are off by at most what the start is, "
    "B of (59), however little alpha is; the printed (58) tends to minus infinity there. The other two "
    "ways are as the paper says.",
)


# Remark 1: who is better off alone


@dataclass(frozen=True)
class Joining(Section):
    """An agent among others who are alike."""

    others: int = key(lambda name, value: checks.whole(name, value, 2), 9, help="Agents beside it.")
    each: int = key(checks.whole, 200, help="Samples of each of them.")
    samples: tuple[float, ...] = key(
        rising(), (20.0, 100.0, 500.0, 2500.0, 12_500.0), help="Of the agent, on the axis."
    )
    apart: float = key(
        lambda name, value: checks.between(name, value, 0.0, 1.0), 1.0,
        help="How unlike the others' its data are at most; control: 0, not at all.",
    )  # fmt: skip


def remark1_rows(joining: Joining, _: Results) -> list[Row]:
    """The risk bounds (13) alone and (14) in the federation, for a typical agent and others."""
    rows: list[Row] = []
    for unlike in (0.0, joining.apart / 2, joining.apart):
        for samples in joining.samples:
            counts = np.array([samples, *[float(joining.each)] * joining.others])
            typical = np.array([0.5, 0.5])
            own = typical + unlike / 2 * np.array([1.0, -1.0])
            kinds = np.array([own, *[typical] * joining.others])
            population = AgentPopulation(counts / counts.sum(), counts, kinds, 2**0.5, 10, 0.1, 0.05)
            alone, joined = (float(risk(population)[0]) for risk in (local_risk, federated_risk))
            rows.append({
                "unlike": unlike, "samples": samples, "alone": alone, "together": joined,
                "gained_by_joining": alone - joined,
            })  # fmt: skip
    return rows


def remark1_checks(table: Sequence[Row]) -> list[Check]:
    """The typical agent with few samples joins, the one that is neither does not."""
    gains = [Estimate(number(row, "gained_by_joining")) for row in table]
    return [
        at_least("risk bound alone less that of joining: typical, fewest samples", gains[0], 0.0),
        at_most("the same: least typical, most samples", gains[-1], -1e-9),
    ]


REMARK1 = Claim(
    identifier="faithful-remark1",
    paper="faithful",
    place="remark 1",
    says="Federated learning disincentivises agents that are not typical and have sufficiently large data "
    "sets.",
    presets={"smoke": Joining(), "quick": Joining(), "paper": Joining()},
    rows=remark1_rows,
    judge=remark1_checks,
    draw=drawn_by("faithful", "joining_figure"),
    control={"apart": 0.0},
    about="The risk bounds (13) and (14), printed constants, weights in proportion to samples; d = 10, mu "
    "= 0.1, L_ell = sqrt(2), delta = 0.05. The bounds say which is smaller, not which risk is.",
)


# After equation (19): many agents make one model worth it


@dataclass(frozen=True)
class Crowds(Section):
    """Federations of more and more agents that share the same number of samples."""

    agents: tuple[float, ...] = key(
        rising(), (2.0, 5.0, 10.0, 20.0, 50.0, 100.0), help="K of the points, 2 or more."
    )
    samples: int = key(checks.whole, 10_000, help="n, of all agents together.")
    delta: float = key(checks.number, 0.3, help="How unlike one another they are.")
    turned: bool = key(flag, False, help="Control: the axis the other way round.")


def many_agents_rows(crowds: Crowds, _: Results) -> list[Row]:
    """(19), local minus federated, and its first term, which a federation of equals would have."""
    rows: list[Row] = []
    for size in crowds.agents:
        k = round(size)
        own = np.eye(10)[np.arange(k) % 10]
        unlike = (1 - crowds.delta) / 10 + crowds.delta * own
        terms = [
            federation_advantage(
                AgentPopulation(
                    np.full(k, 1 / k), np.full(k, crowds.samples / k), kinds, 2**0.5, 10, 0.1, 0.05
                )
            )
            for kinds in (np.full((k, 10), 0.1), unlike)
        ]
        rows.append({"agents": k, "noise_term": terms[0], "advantage": terms[1]})
    if crowds.turned:
        sizes = [row["agents"] for row in rows]
        rows = [{**row, "agents": k} for row, k in zip(rows[::-1], sizes, strict=True)]
    return rows


def many_agents_checks(table: Sequence[Row]) -> list[Check]:
    """The first term always grows; with enough agents the federation has the smaller bound."""
    least = min(number(b, "noise_term") - number(a, "noise_term") for a, b in pairwise(table))
    return [
        at_least("least change of the first term of (19) where K grows", Estimate(least), 0.0),
        at_least(
            "(19), local less federated, most agents", Estimate(number(table[-1], "advantage")), 0.0
        ),
        at_least(
            "the same, less that with the fewest agents",
            Estimate(number(table[-1], "advantage") - number(table[0], "advantage")), 0.0,
        ),
    ]  # fmt: skip


MANY_AGENTS = Claim(
    identifier="faithful-many-agents",
    paper="faithful",
    place="text after equation 19",
    says="The first term of (19) always increases in K, so that federated learning is more likely to have "
    "the smaller risk bound when there are many agents.",
    presets={"smoke": Crowds(), "quick": Crowds(), "paper": Crowds()},
    rows=many_agents_rows,
    judge=many_agents_checks,
    draw=drawn_by("faithful", "crowd_figure"),
    control={"turned": True},
    about="Equation (19) is local minus federated, not the reverse as its text says (F-E10): positive "
    "where one model has the smaller bound. Ten classes, agents by their own class with Delta = 0.3; d = "
    "10, mu = 0.1, L_ell = sqrt(2), delta = 0.05.",
)


CLAIMS = (FIG2, GUIDELINES, REMARK1, MANY_AGENTS)
