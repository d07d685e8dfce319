"""Theorem 1: which mechanisms are truthful and individually rational."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from bonafed import checks
from bonafed.checks import Floats
from bonafed.economics.contracts import step_rents
from bonafed.papers.claim import (
    Check,
    Claim,
    Estimate,
    Results,
    Row,
    Settings,
    at_least,
    at_most,
    number,
    only,
)
from bonafed.sections import flag, key

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = ("falling q, payment (3)", "rising q, payment (3)", "a constant more", "payments bent")
_ROUNDING, _NOTICEABLE = 1e-12, 1e-9  # of a utility; costs are of the order of 1
_MORE = 0.1  # money per round that everybody gets on top


@dataclass(frozen=True)
class Search(Settings):
    """Random mechanisms to search for a lie that pays and for a client that loses."""

    seeds: int = key(checks.whole, 200, help="How many mechanisms of every kind.")
    levels: int = key(
        lambda name, value: checks.whole(name, value, 3), 8, help="Costs that they tell apart."
    )
    unpaid: bool = key(
        flag, False, help="Control: clients are paid what they report, without the integral."
    )


def rows(search: Search, _: Results) -> list[Row]:
    """What the mechanisms of a kind break of their promises: the most, and the least."""
    worst: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for seed in search.all_seeds:
        rng = np.random.default_rng(seed)
        costs = np.sort(rng.uniform(0.5, 1.5, search.levels))
        falling = np.sort(rng.uniform(0.05, 1.0, search.levels))[::-1]
        rising = _with_a_rise(falling, rng)
        rent = 0.0 if search.unpaid else 1.0
        owed = costs * falling + rent * step_rents(costs, falling)
        bent = owed + rng.uniform(-_MORE, _MORE, search.levels)
        payments = {
            KINDS[0]: (falling, owed),
            KINDS[1]: (rising, costs * rising + rent * step_rents(costs, rising)),
            KINDS[2]: (falling, owed + _MORE),
            KINDS[3]: (falling, bent),
        }
        for kind, (q, money) in payments.items():
            worst[kind].append(_broken(costs, q, money))
    return [
        {"mechanisms": kind, "tried": len(found), "least_broken": min(found), "most_broken": max(found)}
        for kind, found in worst.items()
    ]


def _with_a_rise(falling: Floats, rng: np.random.Generator) -> Floats:
    """Two neighbours change places: a dearer client is sampled more often."""
    place = int(rng.integers(falling.size - 1))
    rising = falling.copy()
    rising[[place, place + 1]] = rising[[place + 1, place]]
    return rising


def _broken(costs: Floats, q: Floats, money: Floats) -> float:
    """The best gain of a lie, or the largest loss of the honest, whichever is more; 0: neither.

    All costs and all reports between the levels are tried too: a report is rounded up to the next level.
    """
    true = np.unique(np.concatenate([costs, (costs[1:] + costs[:-1]) / 2]))
    utility = money[None, :] - true[:, None] * q[None, :]
    honest = utility[np.arange(true.size), np.searchsorted(costs, true)]
    return float(max((utility.max(axis=1) - honest).max(), -honest.min(), 0.0))


def judge(table: Sequence[Row]) -> list[Check]:
    """If, and only if: as printed, and with the constant that print leaves out."""
    kinds = {kind: only(table, mechanisms=kind) for kind in KINDS}

    def kept(kind: str, *, corrected: bool) -> Check:
        most = Estimate(number(kinds[kind], "most_broken"))
        return at_most(f"most that is broken: {kind}", most, _ROUNDING, corrected=corrected)

    def broken(kind: str, *, corrected: bool) -> Check:
        least = Estimate(number(kinds[kind], "least_broken"))
        return at_least(f"least that is broken: {kind}", least, _NOTICEABLE, corrected=corrected)

    found = [
        check
        for c in (False, True)
        for check in (kept(KINDS[0], corrected=c), broken(KINDS[1], corrected=c))
    ]
    found.append(broken(KINDS[2], corrected=False))
    return [*found, kept(KINDS[2], corrected=True), broken(KINDS[3], corrected=True)]


def draw(table: Sequence[Row]) -> Figure:
    """What is broken, by kind of mechanism."""
    from bonafed.papers.sampling.figures import finish, panels
    from bonafed.presentation.figures import BLUE, RED

    figure, (axes,) = panels(1, 6.5, 2.8)
    for place, row in enumerate(table):
        least, most = (max(number(row, name), 1e-17) for name in ("least_broken", "most_broken"))
        axes.plot(
            [least, most], [place, place], color=BLUE if most < _NOTICEABLE else RED, marker="o", lw=3
        )
    axes.set_yticks(range(len(table)), [str(row["mechanisms"]) for row in table])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlim(5e-18, 1)
    finish(axes, "best lie or worst loss (money per round), least and most", "")
    return figure


CLAIM = Claim(
    identifier="sampling-theorem1",
    paper="sampling",
    place="theorem 1",
    says="A mechanism is incentive compatible and individually rational if and only if the sampling "
    "probability does not increase in the reported cost and the payment has the form (3).",
    presets={"smoke": Search(seeds=20), "quick": Search(), "paper": Search(seeds=2000, levels=20)},
    rows=rows,
    judge=judge,
    draw=draw,
    control={"unpaid": True},
    erratum="S-E5",
    about="Random mechanisms that tell eight costs apart, each searched for the best lie and for an "
    "honest client that loses, at the levels and between them. Payments (3) with a falling q break "
    "nothing. A single rise of q invites a lie. But whoever gets the same sum on top of (3) is as honest "
    'as before and better off, so "only if" leaves out a constant that is 0 or more: (3) is the cheapest '
    "payment. Payments that are bent otherwise do break a promise. The control pays what is reported, "
    "without the integral of (3).",
)
