"""Algorithm 1: its mechanisms come to the optimal one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from bonafed import checks
from bonafed.economics import registry
from bonafed.economics.priors import Prior, Uniform
from bonafed.papers.claim import (
    Check,
    Claim,
    Results,
    Row,
    Settings,
    at_most,
    estimate,
    over_seeds,
    where,
)
from bonafed.papers.sampling.sequences import VARIANTS, cell, learn
from bonafed.sections import key

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bonafed.papers.cells import Cell

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


def cells(settings: Learning) -> Mapping[Any, Cell]:
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


def rows(settings: Learning, results: Results) -> list[Row]:
    """The distance from the optimum after so many reports, and over that of the first mechanism."""
    listed: list[Row] = []
    for variant in VARIANTS:
        runs = [results[variant, seed]["distance"] for seed in settings.all_seeds]
        listed += [
            {
                "algorithm": variant, "reports": place,
                **over_seeds("distance", [run[number] for run in runs]),
                **over_seeds("over_first", [run[number] / run[0] for run in runs]),
            }
            for number, place in enumerate(settings.places)
        ]  # fmt: skip
    return listed


def judge(table: Sequence[Row]) -> list[Check]:
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


def draw(table: Sequence[Row]) -> Figure:
    """Distance against reports."""
    from bonafed.papers.sampling.figures import finish, groups, panels, plain_log, with_errors

    figure, (axes,) = panels(1, 5.5)
    names = {"printed": "as printed", "safe": "corrected, with ironing"}
    for place, (variant, own) in enumerate(reversed([*groups(table, "algorithm").items()])):
        with_errors(axes, own, "reports", "distance", names[variant], place)
    axes.set_xscale("log")
    plain_log(axes)
    finish(axes, "reports so far", "mean |q - q*| over mean q*")
    return figure


CLAIM = Claim(
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
    cells=cells,
    rows=rows,
    judge=judge,
    draw=draw,
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
