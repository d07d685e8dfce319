"""The share of clients approached first, rho: a better first estimate against worse terms for more."""

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

SHARES = (0.02, 0.05, 0.1, 0.2, 0.4, 0.8)


@dataclass(frozen=True)
class Shares(Settings):
    """Sequences that begin with more clients, or fewer."""

    clients: int = key(lambda name, value: checks.whole(name, value, 50), 200, help="N.")
    budget: float = key(checks.positive, 0.5, help="Money per client and round.")
    prior: Prior = key(registry.prior, TruncatedExponential(1.0, 0.2, 3.0), help="Of the costs.")
    turned: bool = key(flag, False, help="Control: the shares in reverse order.")


def cells(settings: Shares) -> Mapping[Any, Cell]:
    """The sequences of every share."""
    common = {
        "clients": settings.clients, "budget": settings.budget, "prior": settings.prior.to_json(),
        "variant": "safe", "seeds": [*settings.all_seeds],
    }  # fmt: skip
    return {
        share: cell(f"rho {share}", trade, {**common, "initial": round(share * settings.clients)})
        for share in SHARES
    }


def rows(settings: Shares, results: Results) -> list[Row]:
    """The first estimate's error and what is lost, by share."""
    listed: list[Row] = []
    at = dict(zip(SHARES, reversed(SHARES) if settings.turned else SHARES, strict=True))
    first = results[at[SHARES[0]]]
    for share in SHARES:
        own = results[at[share]]
        row: Row = {"rho": share}
        for name in ("error", "lost_first", "lost_later", "all"):
            row |= over_seeds(name, own[name])
        pairs = {name: list(zip(own[name], first[name], strict=True)) for name in ("error", "lost_first")}
        row |= over_seeds("error_over_first", [here / there for here, there in pairs["error"]])
        row |= over_seeds("more_lost_first", [here - there for here, there in pairs["lost_first"]])
        listed.append(row)
    return listed


def judge(table: Sequence[Row]) -> list[Check]:
    """With the largest share against the smallest: a smaller error, and more lost on the first clients."""
    error, lost = (estimate(table[-1], name) for name in ("error_over_first", "more_lost_first"))
    return [
        at_most("error of the first estimate, largest rho over smallest", error, 1.0),
        at_least("mean 1/q lost on the first clients, largest rho less smallest", lost, 0.0),
    ]


def draw(table: Sequence[Row]) -> Figure:
    """The error, and what is lost, against rho."""
    from bonafed.papers.sampling.figures import finish, panels, with_errors

    figure, (left, right) = panels(2)
    with_errors(left, table, "rho", "error", "")
    finish(left, "rho, share of clients approached first", "largest error of the first estimate of F")
    with_errors(right, table, "rho", "lost_first", "on the first clients", 1)
    with_errors(right, table, "rho", "lost_later", "on the others", 2)
    for panel in (left, right):
        panel.set_xscale("log")
        panel.set_xticks(SHARES, [f"{share:g}" for share in SHARES])
        panel.minorticks_off()
    finish(right, "rho, share of clients approached first", "mean 1/q above the optimum's")
    return figure


CLAIM = Claim(
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
    cells=cells,
    rows=rows,
    judge=judge,
    draw=draw,
    control={"turned": True},
    about="Corrected algorithm, exponential costs cut off to [0.2, 3], 0.5 per client and round. The "
    "error is the largest distance of the first estimate's distribution function from the true one; what "
    "is lost is the mean over all clients of 1/q less that of the optimal contract of the true prior, on "
    "the first clients and on the others. The two printed effects are there. The trade-off is one-sided, "
    "though: as every later report improves the estimate too, a first estimate of a few clients costs "
    "little, and the sum is least for a small rho.",
)
