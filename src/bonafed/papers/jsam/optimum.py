"""Figure 5, theorems 2 to 4, algorithm 1: whether plans are optimal, and payments truthful."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bonafed import checks
from bonafed.checks import Floats
from bonafed.mechanisms.jsam import allocate, objective, settle
from bonafed.mechanisms.jsam.allocation import threshold_plan
from bonafed.mechanisms.jsam.controls import PayAsBid
from bonafed.mechanisms.jsam.thresholds import budgets, inner
from bonafed.papers.claim import (
    Check,
    Claim,
    Estimate,
    Results,
    Row,
    at_least,
    at_most,
    drawn_by,
    estimate,
    number,
    over_seeds,
    within,
)
from bonafed.papers.jsam.plans import Population
from bonafed.sections import Section, flag, key

# Figure 5 and theorem 3: the structure of the optimal selection


_SELECTION_ROUNDING = 1e-12
_EVERYONE = 3.0  # the largest weight, in units of the population


@dataclass(frozen=True)
class Searched(Section):
    """Clients whose best selection is looked for among many."""

    clients: int = key(lambda name, value: checks.whole(name, value, 3), 10, help="N.")
    weights: int = key(checks.whole, 6, help="How many weights eta, from few clients to all.")
    tries: int = key(checks.whole, 20_000, help="Selections drawn at random to hold against each plan.")
    seed: int = key(checks.seed, 0, help="Of virtual costs and selections.")
    backwards: bool = key(flag, False, help="Control: clients in the order of falling virtual costs.")


def fig5_rows(searched: Searched, _: Results) -> list[Row]:
    """The plan at each weight, client by client, and the best objective that a search finds."""
    rng = np.random.default_rng(searched.seed)
    n = searched.clients
    v = np.sort(2 * rng.random(n))
    tries = _selections(rng, n, searched.tries)
    rows: list[Row] = []
    for eta in (np.sqrt(n) * np.geomspace(0.05, _EVERYONE, searched.weights)).tolist():
        plan = allocate(v, eta, 1.0)
        spread = (np.cbrt(tries * v) ** 2).sum(1)
        least_searched = inner(eta, np.abs(tries - 1 / n).sum(1), spread, 1.0).objective.min()
        selection = plan.selection[::-1] if searched.backwards else plan.selection
        rows += [
            {
                "eta": eta, "client": k + 1, "virtual_cost": float(v[k]), "clients": n,
                "probability": float(p), "threshold": plan.threshold,
                "search_over_plan": float(least_searched) / plan.objective - 1,
            }
            for k, p in enumerate(selection)
        ]  # fmt: skip
    return rows


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


def fig5_checks(table: Sequence[Row]) -> list[Check]:
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
        at_least("client 1: N p", Estimate(min(led, default=math.nan) * n), 1 - _SELECTION_ROUNDING),
        at_most("clients 2 to h-1: distance of N p from 1", Estimate(max(middle)), _SELECTION_ROUNDING),
        at_most("client h: N p - 1", Estimate(max(last)), _SELECTION_ROUNDING),
        at_most("clients beyond h: N p", Estimate(max(beyond)), 0.0),
        at_least(
            "best objective of the search over the plan's, less 1", Estimate(least), -_SELECTION_ROUNDING
        ),
    ]


FIG5 = Claim(
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
    rows=fig5_rows,
    judge=fig5_checks,
    draw=drawn_by("jsam", "selection_figure"),
    control={"backwards": True},
    about="""Ten clients as in the figure, weights from those that select one client to those that
select all. The plan of `allocate` is held against selections drawn at random (concentrated and even
ones, sparse ones, and ones near the vertices that the theorem allows), each with its best privacy
budgets: none has a lower objective. This is a search, not a proof; a proof by vertices is in the theory
pages (B2), since the printed one fails (erratum J-7). It also shows more than is printed: client h is
selected with 1/N exactly, so that the threshold alone describes the optimum.

The control reads the clients in the order of falling virtual costs.""",
)


# Theorem 4: privacy budgets for a given selection and sum


_ROUNDING = 1e-9


@dataclass(frozen=True)
class Splits(Section):
    """Random problems, and other ways to split the same sum."""

    instances: int = key(checks.whole, 200, help="How many problems.")
    tries: int = key(checks.whole, 2_000, help="Ways to split the sum in each.")
    power: float = key(checks.number, 1.0, help="Of the budgets (21). Control: they are turned round.")
    seed: int = key(checks.seed, 0, help="Of all of them.")


def theorem4_rows(splits: Splits, _: Results) -> list[Row]:
    """The noise of (21) and the least that a search finds at the same sum."""
    rng = np.random.default_rng(splits.seed)
    rows: list[Row] = []
    for number_of in range(splits.instances):
        n = int(rng.integers(2, 12))
        p, v, total = rng.dirichlet(np.ones(n)), 2 * rng.random(n) + 1e-3, float(10 ** rng.uniform(-1, 2))
        epsilon = budgets(p, v, total) ** splits.power
        epsilon *= total / (epsilon @ v)
        other = epsilon * np.exp(
            rng.normal(size=(splits.tries, n)) * 10 ** rng.uniform(-4, 0, (splits.tries, 1))
        )
        other *= (total / (other @ v))[:, None]
        least = float(((p / other) ** 2).sum(1).min())
        closed = float((np.cbrt(p * v) ** 2).sum() ** 3 / total**2)
        noise = float(((p / epsilon) ** 2).sum())
        rows.append({
            "instance": number_of, "clients": n, "total": total, "noise": noise,
            "closed_form": noise / closed - 1, "search": least / noise - 1,
        })  # fmt: skip
    return rows


def theorem4_checks(table: Sequence[Row]) -> list[Check]:
    """Nothing is better, and the minimum is W^3/B^2."""
    off = max(abs(number(row, "closed_form")) for row in table)
    least = min(number(row, "search") for row in table)
    return [
        at_least("noise of another split over that of (21), less 1, least", Estimate(least), -_ROUNDING),
        at_most("noise of (21) over W^3/B^2: distance from 1, largest", Estimate(off), _ROUNDING),
    ]


THEOREM4 = Claim(
    identifier="jsam-theorem4",
    paper="jsam",
    place="theorem 4, (21), (22)",
    says="For given selection probabilities and a given sum, the privacy budgets (21) are optimal.",
    presets={
        "smoke": Splits(instances=20, tries=200),
        "quick": Splits(),
        "paper": Splits(),
    },
    rows=theorem4_rows,
    judge=theorem4_checks,
    draw=drawn_by("jsam", "splits_figure"),
    control={"power": -1.0},
    about="""Random selections, virtual costs and sums. The budgets of (21) are held against others of
the same sum, near and far: none has a smaller sum of p^2/epsilon^2, which at (21) is W^3/B^2 with W =
sum (p_k v_k)^(2/3). That is the term of (22), where the factor Q is missing (erratum J-1).

The control turns the budgets round: much from the dear, little from the cheap.""",
)


# Algorithm 1: whether it finds the optimum


@dataclass(frozen=True)
class Instances(Section):
    """Random problems that a search over thresholds solves too."""

    instances: int = key(checks.whole, 300, help="How many.")
    seed: int = key(checks.seed, 0, help="Of sizes, costs and weights.")
    one_more: bool = key(flag, False, help="Control: the exact plan with one client more, or less.")


def algorithm1_rows(settings: Instances, _: Results) -> list[Row]:
    """The objective of Algorithm 1, and of the exact plan, over the least of all thresholds."""
    rng = np.random.default_rng(settings.seed)
    rows: list[Row] = []
    for number_of in range(settings.instances):
        n = int(rng.integers(2, 12))
        v = np.sort(2 * rng.random(n)) + 1e-6
        eta, scale = float(10 ** rng.uniform(-1.5, 2)), float(10 ** rng.uniform(-1, 1))
        values = [threshold_plan(v, h, eta, scale).objective for h in range(1, n + 1)]
        plan, printed = allocate(v, eta, scale), allocate(v, eta, scale, "printed", grid=1 / (20 * n))
        if settings.one_more:
            plan = threshold_plan(v, plan.threshold % n + 1, eta, scale)
        worth = [objective(p.selection, p.privacy, v, eta, scale) for p in (printed, plan)]
        rows.append({
            "instance": number_of, "clients": n, "eta": eta, "noise_scale": scale,
            "best_threshold": int(np.argmin(values)) + 1,
            "printed": worth[0] / min(values) - 1, "exact": worth[1] / min(values) - 1,
        })  # fmt: skip
    return rows


def algorithm1_checks(table: Sequence[Row]) -> list[Check]:
    """The largest loss against the best threshold."""
    worst = {name: Estimate(max(number(row, name) for row in table)) for name in ("printed", "exact")}
    return [
        at_most("Algorithm 1: objective over the least, less 1, largest", worst["printed"], _ROUNDING),
        at_most(
            "corrected: objective over the least, less 1",
            worst["exact"],
            _ROUNDING,
            corrected=True,
        ),
    ]


ALGORITHM1 = Claim(
    identifier="jsam-algorithm1",
    paper="jsam",
    place="algorithm 1, proposition 2, problem 5",
    says="Algorithm 1, a search over the threshold h, its probability p_h and the money B, solves the "
    "design problem.",
    presets={
        "smoke": Instances(instances=25),
        "quick": Instances(),
        "paper": Instances(),
    },
    rows=algorithm1_rows,
    judge=algorithm1_checks,
    draw=drawn_by("jsam", "algorithm_figure"),
    control={"one_more": True},
    erratum="J-4",
    about="""Random problems of 2 to 11 clients, Algorithm 1 as printed with Q restored (erratum J-1;
without it the plan does not depend on the noise at all) and 20 points for p_h, against the least
objective over all thresholds with p_h = 1/N, which theorem 3 as sharpened in B2 shows to be the
optimum. The printed algorithm misses it where the best threshold is 1, as client 1 is then counted
twice; errata J-2 to J-6 list what else is wrong in it, which does no harm where h is 2 or more. What is
corrected needs no grid: it sorts, and compares N numbers. That the search costs O(1/Delta) holds if
each evaluation is counted as one (erratum J-11).

The control takes another threshold than the best.""",
)


# Lemma 2, theorem 2, proposition 1: nobody gains by a lie, nobody loses, and money is that of the
# plan


_NEAR = 0.1  # of the plans' money: what the draws of the presets can tell apart


@dataclass(frozen=True)
class Lies(Population):
    """Populations whose clients try reports other than the truth."""

    clients: int = key(lambda name, value: checks.whole(name, value, 2), 10, help="How many.")
    draws: int = key(
        lambda name, value: checks.whole(name, value, 2), 10, help="Populations that try to lie."
    )
    averaged: int = key(checks.whole, 400, help="Populations whose payments are averaged.")
    eta: float = key(checks.positive, 1.0, help="Weight of the training loss.")
    reports: int = key(lambda name, value: checks.whole(name, value, 3), 41, help="Reports tried by each.")
    as_bid: bool = key(flag, False, help="Control: pay report times epsilon.")


def truthful_rows(lies: Lies, _: Results) -> list[Row]:
    """By client: the best gain of a lie, the least utility of the truth, the largest rise of epsilon in the
    report; and the mean of all payments over that of the plans."""
    many = replace(lies, draws=lies.averaged)
    paid = [float(_outcome(lies, costs)[1].sum()) for costs in many.costs()]
    planned = [
        float((_outcome(lies, costs)[0] * v).sum())
        for costs, v in zip(many.costs(), many.virtual(), strict=True)
    ]
    mean = float(np.mean(planned))
    money = over_seeds("surplus", [(a - b) / mean for a, b in zip(paid, planned, strict=True)])
    return [{"client": k + 1, **_tempted(lies, k), **money} for k in range(lies.clients)]


def _tempted(lies: Lies, k: int) -> Row:
    """What client k can get by a lie, in the worst of all populations."""
    gains, utilities, rises = [], [], []
    for costs in lies.costs():
        outcomes = []
        for report in (costs[k], *np.linspace(0.0, lies.prior.high, lies.reports)):
            others = costs.copy()
            others[k] = report
            outcomes.append([part[k] for part in _outcome(lies, others)])
        sold, paid = np.array(outcomes).T
        utility = paid - costs[k] * sold
        gains.append(float(utility.max() - utility[0]))
        utilities.append(float(utility[0]))
        rises.append(float(np.diff(sold[1:]).max()))
    return {"gain": max(gains), "least_utility": min(utilities), "rise": max(rises)}


def _outcome(lies: Lies, reports: Floats) -> tuple[Floats, Floats]:
    """(N,) epsilon and payment."""
    if lies.as_bid:
        bought = PayAsBid(lies.prior, lies.eta, lies.noise_scale).allocate(np.maximum(reports, 1e-6))
        return bought.quantity, bought.transfer
    settled = settle(reports, lies.prior, lies.eta, lies.noise_scale)
    return settled.allocation.privacy, settled.payment


def truthful_checks(table: Sequence[Row]) -> list[Check]:
    """The best lie, the worst truth, and the money."""
    gain, rise = (Estimate(max(number(row, name) for row in table)) for name in ("gain", "rise"))
    least = Estimate(min(number(row, "least_utility") for row in table))
    money = estimate(table[0], "surplus")
    return [
        at_most("IC: largest gain of a lie, in money", gain, _ROUNDING),
        at_least("IR: least utility of whoever tells the truth", least, -_ROUNDING),
        at_most("proposition 1: largest rise of epsilon where the own report grows", rise, _ROUNDING),
        within("theorem 2: mean payments less mean epsilon v, relative", money, 0.0, _NEAR),
    ]


TRUTHFUL = Claim(
    identifier="jsam-truthful",
    paper="jsam",
    place="lemma 2, theorem 2, proposition 1",
    says="Every client does best to report its true sensitivity and never loses; epsilon falls in the own "
    "report; and the expected payments are the expected sum of epsilon times virtual cost.",
    presets={
        "smoke": Lies(clients=4, draws=2, averaged=60, reports=7),
        "quick": Lies(),
        "paper": Lies(clients=100, averaged=100),
    },
    rows=truthful_rows,
    judge=truthful_checks,
    draw=drawn_by("jsam", "lies_figure"),
    control={"as_bid": True},
    about="""Every client of every population tries reports across the whole range while the others tell
the truth. The payments are the ex-post ones, c_k epsilon_k plus the integral of epsilon_k over higher
reports up to the highest cost: lies do not pay whatever the others report, which is more than the
Bayesian notion of the paper asks for (erratum J-8 lists what is imprecise in its statement). Their sum
is not that of the plan for given costs, only in the mean.

The control pays every client its report times epsilon.""",
)


CLAIMS = (FIG5, THEOREM4, ALGORITHM1, TRUTHFUL)
