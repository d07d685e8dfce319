"""Algorithm 1, the prior-independent mechanism: where it converges to, what it promises, how it begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bonafed import checks
from bonafed.economics import registry
from bonafed.economics.priors import Prior, TruncatedExponential, Uniform
from bonafed.papers.claim import (
    Check,
    Claim,
    Estimate,
    Results,
    Row,
    Settings,
    at_least,
    at_most,
    drawn_by,
    estimate,
    number,
    over_seeds,
    where,
)
from bonafed.papers.sampling.sequences import VARIANTS, account, cell, learn, trade
from bonafed.presentation.documents import JSONObject
from bonafed.sections import flag, key, text

if TYPE_CHECKING:
    from bonafed.papers.cells import Cell


# Algorithm 1: its mechanisms come to the optimal one


_FIRST = 10  # reports before the first mechanism that is looked at
_UNTIL = 0.8  # of the clients: with the last few, chance decides how much money each has


@dataclass(frozen=True)
class Learning(Settings):
    """A long sequence of clients."""

    clients: int = key(lambda name, value: checks.whole(name, value, 20), 1000, help="N.")
    budget: float = key(checks.positive, 0.5, help="Money per client and round.")
    points: int = key(lambda name, value: checks.whole(name, value, 2), 7, help="Mechanisms looked at.")
    prior: Prior = key(registry.prior, Uniform(0.5, 1.5), help="Of the costs.")
    reported: Prior = key(registry.prior, Uniform(0.5, 1.5), help="Of the reports; control: another one.")

    @property
    def places(self) -> list[int]:
        """Numbers of reports at which mechanisms are looked at."""
        return [
            *dict.fromkeys(np.geomspace(_FIRST, _UNTIL * self.clients, self.points).astype(int).tolist())
        ]


def algorithm1_cells(settings: Learning) -> Mapping[Any, Cell]:
    """A sequence for every variant and seed."""
    common = {
        "clients": settings.clients, "budget": settings.budget, "initial": _FIRST,
        "places": settings.places, "prior": settings.prior.to_json(),
        "reported": settings.reported.to_json(),
    }  # fmt: skip
    return {
        (variant, seed): cell(f"{variant} {seed}", learn, {**common, "variant": variant, "seed": seed})
        for variant in VARIANTS
        for seed in settings.all_seeds
    }


def algorithm1_rows(settings: Learning, results: Results) -> list[Row]:
    """The distance from the optimum after so many reports, and over that of the first mechanism."""
    rows: list[Row] = []
    for variant in VARIANTS:
        runs = [results[variant, seed]["distance"] for seed in settings.all_seeds]
        rows += [
            {
                "algorithm": variant, "reports": reports,
                **over_seeds("distance", [run[number] for run in runs]),
                **over_seeds("over_first", [run[number] / run[0] for run in runs]),
            }
            for number, reports in enumerate(settings.places)
        ]  # fmt: skip
    return rows


def algorithm1_checks(table: Sequence[Row]) -> list[Check]:
    """Half as far away at the end: what converges like n^-1/2 or n^-1/3 is nearer than that."""
    return [
        at_most(
            f"distance from the optimum at the end over that at the beginning, {variant}",
            estimate(where(table, algorithm=variant)[-1], "over_first"),
            0.5,
            corrected=variant == "safe",
        )
        for variant in VARIANTS
    ]


ALGORITHM1 = Claim(
    identifier="sampling-algorithm1",
    paper="sampling",
    place="section 5, after algorithm 1",
    says="As Algorithm 1 progresses, the estimated cost distribution becomes more accurate, and therefore "
    "the sequence of generated mechanisms converges to the optimal one.",
    presets={
        "smoke": Learning(seeds=2, clients=150, points=3),
        "quick": Learning(seeds=10),
        "paper": Learning(seeds=10, clients=5000, points=9),
    },
    cells=algorithm1_cells,
    rows=algorithm1_rows,
    judge=algorithm1_checks,
    draw=drawn_by("sampling", "distance_figure"),
    control={"reported": "exponential:3,0.5,1.5"},
    erratum="S-A6.2",
    about="Before each client the mechanism on offer is compared with the optimal one of the true prior "
    "for the money that is left: the mean of |q - q*| over the prior, in units of the mean q*. Costs are "
    "uniform on [0.5, 1.5], with 0.5 per client and round; the paper runs no such experiment.\n\n"
    "The estimated distribution does converge, and with ironing so do the mechanisms. As printed they do "
    "not: the virtual cost of an estimated distribution divides the distance of neighbouring reports by "
    "the mass of one, which stays as random as it is however many reports there are. Ironing averages "
    "over neighbours. The control lets clients report costs from another distribution.",
)


# Proposition 2: Algorithm 1 is truthful, individually rational and within its budget


PRIORS = ("uniform:0.5,1.5", "exponential:1,0.2,3")
_ROUNDING = 1e-9  # of an amount, in units of the highest cost


@dataclass(frozen=True)
class Accounts(Settings):
    """Many sequences; a seed is a batch of them."""

    clients: int = key(lambda name, value: checks.whole(name, value, 5), 60, help="N.")
    budget: float = key(checks.positive, 0.5, help="Money per client and round.")
    sequences: int = key(checks.whole, 40, help="Of every batch.")
    audited: int = key(checks.whole, 2, help="How many of them are searched for a profitable lie.")
    money: float = key(checks.positive, 1.0, help="What there is of the budget; control: less.")
    priors: str = key(text, ";".join(PRIORS), help="Of the costs, with semicolons between them.")


def proposition2_cells(settings: Accounts) -> Mapping[Any, Cell]:
    """A batch for every variant, prior and seed."""
    common = {
        name: getattr(settings, name) for name in ("clients", "budget", "sequences", "audited", "money")
    }
    return {
        (variant, prior, seed): cell(
            f"{variant} {prior} {seed}",
            account,
            {**common, "initial": settings.clients // 10, "variant": variant, "seed": seed,
             "prior": registry.prior("prior", prior).to_json()},
        )
        for variant in VARIANTS
        for prior in settings.priors.split(";")
        for seed in settings.all_seeds
    }  # fmt: skip


def proposition2_rows(settings: Accounts, results: Results) -> list[Row]:
    """How often the budget is broken and by how much, the best lie, the least utility."""
    rows: list[Row] = []
    for variant in VARIANTS:
        for prior in settings.priors.split(";"):
            batches = [results[variant, prior, seed] for seed in settings.all_seeds]
            rows.append(
                {
                    "algorithm": variant, "prior": prior,
                    **over_seeds("over", [one["over"] for one in batches]),
                    "most_spent": max(one["most"] for one in batches),
                    "best_lie": max(one["gain"] for one in batches),
                    "least_utility": min(one["utility"] for one in batches),
                }
            )  # fmt: skip
    return rows


def proposition2_checks(table: Sequence[Row]) -> list[Check]:
    """None over the budget, no lie that pays, nobody who loses."""
    comparisons = []
    for variant in VARIANTS:
        own, corrected = where(table, algorithm=variant), variant == "safe"
        worst = max(own, key=lambda row: number(row, "over"))
        lie = max(number(row, "best_lie") for row in own)
        least = min(number(row, "least_utility") for row in own)
        comparisons += [
            at_most(
                f"share of sequences over the budget, {variant}", estimate(worst, "over"), 0.0,
                corrected=corrected,
            ),
            at_most(
                f"best lie, in highest costs, {variant}", Estimate(lie), _ROUNDING, corrected=corrected
            ),
            at_least(
                f"least utility of the honest, in highest costs, {variant}", Estimate(least), -_ROUNDING,
                corrected=corrected,
            ),
        ]  # fmt: skip
    return comparisons


PROPOSITION2 = Claim(
    identifier="sampling-proposition2",
    paper="sampling",
    place="proposition 2",
    says="The mechanisms in Algorithm 1 satisfy incentive compatibility, individual rationality and budget "
    "feasibility.",
    presets={
        "smoke": Accounts(seeds=2, clients=20, sequences=10, audited=1),
        "quick": Accounts(seeds=5),
        "paper": Accounts(seeds=10, clients=100, sequences=100),
    },
    cells=proposition2_cells,
    rows=proposition2_rows,
    judge=proposition2_checks,
    draw=drawn_by("sampling", "accounts_figure"),
    control={"money": 0.9},
    erratum="S-A6.1",
    about="The budget is that of a round, on average over the sampling coins and for every realisation of "
    "the costs. A tenth of the clients comes first, on equal terms. The best lie is searched over the "
    "levels of the menus along a sequence.\n\n"
    "Individual rationality holds as printed. The budget does not: line 8 asks whether the money suffices "
    "for a client of the highest cost, but that is the client whose expected payment is smallest, so that "
    "the test is nearly always passed, and cheap clients at the end break the budget. Nor does incentive "
    "compatibility: an estimated distribution is almost never regular (Assumption 5 is about the true "
    "one), and without ironing probabilities rise in places (S-A6.2). The corrected algorithm sets money "
    "aside for everybody still to come, and irons. The control leaves the server a tenth less money than "
    "it plans with.",
)


# The first clients' probability, qhat: better for them, less money for the others


FACTORS = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0)  # of what the budget affords everybody, b/(N highest)
_SHARE = 0.2  # rho


@dataclass(frozen=True)
class Beginnings(Settings):
    """Sequences that begin with a higher probability, or a lower one."""

    clients: int = key(lambda name, value: checks.whole(name, value, 20), 200, help="N.")
    budget: float = key(checks.positive, 0.5, help="Money per client and round.")
    prior: Prior = key(registry.prior, TruncatedExponential(1.0, 0.2, 3.0), help="Of the costs.")
    turned: bool = key(flag, False, help="Control: what is varied is read in reverse order.")

    def cell(self, name: str, **varied: float) -> Cell:
        """The sequences of all seeds."""
        common = {
            "clients": self.clients, "budget": self.budget, "prior": self.prior.to_json(),
            "variant": "safe", "seeds": [*self.all_seeds],
        }  # fmt: skip
        return cell(name, trade, {**common, **varied})

    def read(self, varied: Sequence[float], results: Results) -> dict[float, JSONObject]:
        """The results by what is varied; in a control, in reverse order."""
        order = reversed(varied) if self.turned else varied
        return {value: results[other] for value, other in zip(varied, order, strict=True)}


def qhat_cells(settings: Beginnings) -> Mapping[Any, Cell]:
    """The sequences of every probability."""
    fair, first_clients = settings.budget / settings.prior.high, round(_SHARE * settings.clients)
    return {
        factor: settings.cell(f"qhat {factor}", initial=first_clients, initial_probability=factor * fair)
        for factor in FACTORS
    }


def qhat_rows(settings: Beginnings, results: Results) -> list[Row]:
    """1/q of the first clients and of the others, and the money left for these, by probability."""
    rows: list[Row] = []
    fair = settings.budget / settings.prior.high
    by_factor = settings.read(FACTORS, results)
    lowest = by_factor[FACTORS[0]]
    for factor, own in by_factor.items():
        row: Row = {"qhat": factor * fair}
        for name in ("first", "later", "left", "all"):
            row |= over_seeds(name, own[name])
        for name in ("first", "later", "left"):
            ratios = [here / there for here, there in zip(own[name], lowest[name], strict=True)]
            row |= over_seeds(f"{name}_over_lowest", ratios)
        rows.append(row)
    return rows


def qhat_checks(table: Sequence[Row]) -> list[Check]:
    """With the highest probability against the lowest."""
    last, against = table[-1], "highest qhat over lowest"
    first, left, later = (estimate(last, f"{name}_over_lowest") for name in ("first", "left", "later"))
    return [
        at_most(f"mean 1/q of the first clients, {against}", first, 1.0),
        at_most(f"money left for the others, {against}", left, 1.0),
        at_least(f"mean 1/q of the others, {against}", later, 1.0),
    ]


QHAT = Claim(
    identifier="sampling-qhat",
    paper="sampling",
    place="end of section 5, qhat",
    says="A higher initial probability qhat gives a smaller convergence bound in the initial period, but "
    "leaves less of the budget for the iterative period.",
    presets={
        "smoke": Beginnings(seeds=3, clients=50),
        "quick": Beginnings(seeds=20),
        "paper": Beginnings(seeds=50, clients=1000),
    },
    cells=qhat_cells,
    rows=qhat_rows,
    judge=qhat_checks,
    draw=drawn_by("sampling", "beginnings_figure"),
    control={"turned": True},
    about="Corrected algorithm, exponential costs cut off to [0.2, 3], 0.5 per client and round, a fifth "
    "of the clients first. The part of the bound that sampling decides is the sum of 1/q (Proposition 1). "
    "Lowest for all clients together is a qhat near what the optimal contract gives on average, above the "
    "b/(N highest) of uniform sampling.",
)


# The share of clients approached first, rho: a better first estimate against worse terms for more


SHARES = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)


@dataclass(frozen=True)
class Shares(Beginnings):
    """Sequences that begin with more clients, or fewer."""

    clients: int = key(lambda name, value: checks.whole(name, value, 50), 200, help="N.")


def rho_cells(settings: Shares) -> Mapping[Any, Cell]:
    """The sequences of every share."""
    return {
        share: settings.cell(f"rho {share}", initial=round(share * settings.clients)) for share in SHARES
    }


def rho_rows(settings: Shares, results: Results) -> list[Row]:
    """The first estimate's error and what is lost, by share."""
    rows: list[Row] = []
    by_share = settings.read(SHARES, results)
    first = by_share[SHARES[0]]
    for share, own in by_share.items():
        row: Row = {"rho": share}
        for name in ("error", "lost_first", "lost_later", "all"):
            row |= over_seeds(name, own[name])
        pairs = {name: list(zip(own[name], first[name], strict=True)) for name in ("error", "lost_first")}
        row |= over_seeds("error_over_first", [here / there for here, there in pairs["error"]])
        row |= over_seeds("more_lost_first", [here - there for here, there in pairs["lost_first"]])
        rows.append(row)
    return rows


def rho_checks(table: Sequence[Row]) -> list[Check]:
    """With the largest share against the smallest: a smaller error, and more lost on the first clients."""
    error, lost = (estimate(table[-1], name) for name in ("error_over_first", "more_lost_first"))
    return [
        at_most("error of the first estimate, largest rho over smallest", error, 1.0),
        at_least("mean 1/q lost on the first clients, largest rho less smallest", lost, 0.0),
    ]


RHO = Claim(
    identifier="sampling-rho",
    paper="sampling",
    place="end of section 5, rho",
    says="A higher share rho of clients approached first makes the first estimate of the cost "
    "distribution more accurate, but gives more clients sampling probabilities that are not optimal.",
    presets={
        "smoke": Shares(seeds=3, clients=50),
        "quick": Shares(seeds=20),
        "paper": Shares(seeds=50, clients=1000),
    },
    cells=rho_cells,
    rows=rho_rows,
    judge=rho_checks,
    draw=drawn_by("sampling", "shares_figure"),
    control={"turned": True},
    about="Corrected algorithm, exponential costs cut off to [0.2, 3], 0.5 per client and round. The "
    "error is the largest distance of the first estimate's distribution function from the true one; what "
    "is lost is the mean over all clients of 1/q less that of the optimal contract of the true prior, on "
    "the first clients and on the others. The two printed effects are there. The trade-off is one-sided, "
    "though: as every later report improves the estimate too, a first estimate of a few clients costs "
    "little, and the sum is least for a small rho.",
)


CLAIMS = (ALGORITHM1, PROPOSITION2, QHAT, RHO)
