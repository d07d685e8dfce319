"""The first clients' probability, qhat: better for them, less money for the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bonafed import checks
from bonafed.economics import registry
from bonafed.economics.priors import Prior, TruncatedExponential
from bonafed.papers.claim import (
    Check,
    Claim,
    Results,
    Row,
    Settings,
    at_least,
    at_most,
    estimate,
    over_seeds,
)
from bonafed.papers.sampling.sequences import cell, trade
from bonafed.sections import flag, key

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bonafed.papers.cells import Cell

FACTORS = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0)  # of what the budget affords everybody, b/(N highest)
_SHARE = 0.2  # rho


@dataclass(frozen=True)
class Beginnings(Settings):
    """Sequences that begin with a higher probability, or a lower one."""

    clients: int = key(lambda name, value: checks.whole(name, value, 20), 200, help="N.")
    budget: float = key(checks.positive, 0.5, help="Money per client and round.")
    prior: Prior = key(registry.prior, TruncatedExponential(1.0, 0.2, 3.0), help="Of the costs.")
    turned: bool = key(flag, False, help="Control: the probabilities in reverse order.")


def cells(settings: Beginnings) -> Mapping[Any, Cell]:
    """The sequences of every probability."""
    fair = settings.budget / settings.prior.high
    common = {
        "clients": settings.clients, "budget": settings.budget, "prior": settings.prior.to_json(),
        "variant": "safe", "initial": round(_SHARE * settings.clients),
        "seeds": [*settings.all_seeds],
    }  # fmt: skip
    return {
        factor: cell(f"qhat {factor}", trade, {**common, "initial_probability": factor * fair})
        for factor in FACTORS
    }


def rows(settings: Beginnings, results: Results) -> list[Row]:
    """1/q of the first clients and of the others, and the money left for these, by probability."""
    listed: list[Row] = []
    fair = settings.budget / settings.prior.high
    at = dict(zip(FACTORS, reversed(FACTORS) if settings.turned else FACTORS, strict=True))
    for factor in FACTORS:
        own, lowest = results[at[factor]], results[at[FACTORS[0]]]
        row: Row = {"qhat": factor * fair}
        for name in ("first", "later", "left", "all"):
            row |= over_seeds(name, own[name])
        for name in ("first", "later", "left"):
            ratios = [here / there for here, there in zip(own[name], lowest[name], strict=True)]
            row |= over_seeds(f"{name}_over_lowest", ratios)
        listed.append(row)
    return listed


def judge(table: Sequence[Row]) -> list[Check]:
    """With the highest probability against the lowest."""
    last, against = table[-1], "highest qhat over lowest"
    first, left, later = (estimate(last, f"{name}_over_lowest") for name in ("first", "left", "later"))
    return [
        at_most(f"mean 1/q of the first clients, {against}", first, 1.0),
        at_most(f"money left for the others, {against}", left, 1.0),
        at_least(f"mean 1/q of the others, {against}", later, 1.0),
    ]


def draw(table: Sequence[Row]) -> Figure:
    """1/q of both groups against qhat."""
    from bonafed.papers.sampling.figures import finish, panels, plain_log, with_errors

    figure, (axes,) = panels(1, 5.5)
    for place, (name, label) in enumerate(
        (("first", "first clients"), ("later", "the others"), ("all", "all clients"))
    ):
        with_errors(axes, table, "qhat", name, label, place)
    plain_log(axes)
    finish(axes, "qhat, probability of the first clients", "mean 1/q")
    return figure


CLAIM = Claim(
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
    cells=cells,
    rows=rows,
    judge=judge,
    draw=draw,
    control={"turned": True},
    about="Corrected algorithm, exponential costs cut off to [0.2, 3], 0.5 per client and round, a fifth "
    "of the clients first. The part of the bound that sampling decides is the sum of 1/q (Proposition 1). "
    "Lowest for all clients together is a qhat near what the optimal contract gives on average, above the "
    "b/(N highest) of uniform sampling.",
)
