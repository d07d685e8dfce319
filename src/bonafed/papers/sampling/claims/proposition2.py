"""Proposition 2: Algorithm 1 is truthful, individually rational and within its budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bonafed import checks
from bonafed.economics import registry
from bonafed.papers.claim import (
    Check,
    Claim,
    Estimate,
    Results,
    Row,
    Settings,
    at_least,
    at_most,
    estimate,
    number,
    over_seeds,
    where,
)
from bonafed.papers.sampling.sequences import VARIANTS, account, cell
from bonafed.sections import key, text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bonafed.papers.cells import Cell

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


def cells(settings: Accounts) -> Mapping[Any, Cell]:
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


def rows(settings: Accounts, results: Results) -> list[Row]:
    """How often the budget is broken and by how much, the best lie, the least utility."""
    listed: list[Row] = []
    for variant in VARIANTS:
        for prior in settings.priors.split(";"):
            found = [results[variant, prior, seed] for seed in settings.all_seeds]
            listed.append(
                {
                    "algorithm": variant, "prior": prior,
                    **over_seeds("over", [one["over"] for one in found]),
                    "most_spent": max(one["most"] for one in found),
                    "best_lie": max(one["gain"] for one in found),
                    "least_utility": min(one["utility"] for one in found),
                }
            )  # fmt: skip
    return listed


def judge(table: Sequence[Row]) -> list[Check]:
    """None over the budget, no lie that pays, nobody who loses."""
    found = []
    for variant in VARIANTS:
        own, corrected = where(table, algorithm=variant), variant == "safe"
        worst = max(own, key=lambda row: number(row, "over"))
        lie = max(number(row, "best_lie") for row in own)
        least = min(number(row, "least_utility") for row in own)
        found += [
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
    return found


def draw(table: Sequence[Row]) -> Figure:
    """Shares over the budget, and best lies."""
    from bonafed.papers.sampling.figures import finish, groups, panels
    from bonafed.presentation.figures import BLUE, RED

    figure, axes = panels(2)
    for panel, (column, factor, label) in zip(
        axes,
        (("over", 100, "sequences over the budget, %"), ("best_lie", 1, "best lie, in highest costs")),
        strict=True,
    ):
        for shift, (variant, own) in enumerate(groups(table, "algorithm").items()):
            places = [place + 0.4 * shift for place in range(len(own))]
            values = [factor * number(row, column) for row in own]
            colour = RED if variant == "printed" else BLUE
            name = "as printed" if variant == "printed" else "corrected"
            panel.bar(places, values, 0.38, color=colour, label=name)
        priors = [str(row["prior"]) for row in own]
        panel.set_xticks([place + 0.2 for place in range(len(priors))], priors, fontsize=8)
        finish(panel, "costs", label)
    return figure


CLAIM = Claim(
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
    cells=cells,
    rows=rows,
    judge=judge,
    draw=draw,
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
