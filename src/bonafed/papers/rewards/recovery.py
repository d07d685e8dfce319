"""Runs with several recovery rates and two reference models: figures 2 and 4 of the rewards paper."""

from __future__ import annotations

from dataclasses import dataclass

from bonafed.mechanisms.rewards.section import unit
from bonafed.papers.cells import Cell
from bonafed.papers.claim import Results, Row, over_seeds
from bonafed.papers.rewards.federations import Place
from bonafed.papers.rewards.sweeps import (
    PAPER,
    SHORTER,
    SMALLER,
    Swept,
    changes_of,
    columns_of,
    rising,
    sweep_cells,
)
from bonafed.sections import key

REFERENCES = ("max", "median")


@dataclass(frozen=True)
class Recovery(Swept):
    """Figures 2 and 4."""

    rates: tuple[float, ...] = key(rising(unit), (0.0, 0.01, 0.1), help="q, smallest first.")
    sharing: float = key(unit, 0.0, help="kappa, the same for all.")


RECOVERY = {
    "smoke": Recovery(**SMALLER, rates=(0.0, 0.5)),
    "quick": Recovery(**SHORTER, rates=(0.0, 0.07, 0.3)),
    "paper": Recovery(**PAPER),
}


def recovery_cells(options: Recovery) -> dict[Place, Cell]:
    """A run for every reference model, rate and seed; without recovery the reference does not matter."""
    return sweep_cells(
        options,
        {
            _name(rate, reference): {
                "sharing": options.sharing, "recovery": rate,
                "reference": reference if rate else "max",
            }
            for reference in REFERENCES
            for rate in options.rates
        },
    )  # fmt: skip


def _name(rate: float, reference: str) -> str:
    return f"q {rate:g}" if reference == "max" or not rate else f"q {rate:g}, {reference}"


def recovery_rows(options: Recovery, results: Results, *references: str) -> list[Row]:
    """A row for every reference model and rate; `to_max` is what the best reference model would change."""
    rows: list[Row] = []
    read = dict(zip(options.rates, options.rates[::-1], strict=True)) if options.backwards else {}
    (data,), (partition,) = options.data, options.partitions
    columns = {
        (reference, rate): columns_of(
            [
                results[Place(data, partition, seed, _name(read.get(rate, rate), reference))]
                for seed in options.all_seeds
            ]
        )
        for reference in REFERENCES
        for rate in options.rates
    }
    for reference in references:
        for rate in options.rates:
            own, best = columns[reference, rate], columns["max", rate]
            behind = {name: own[name] - best[name] for name in ("accuracy", "rho")}
            rows.append(
                {
                    "data": data, "reference": reference, "q": rate,
                    **changes_of(own, columns[reference, options.rates[0]]),
                    **over_seeds("accuracy_to_max", behind["accuracy"].tolist()),
                    **over_seeds("rho_to_max", behind["rho"].tolist()),
                    "as_in_the_paper": options.is_as(RECOVERY["paper"]),
                }
            )  # fmt: skip
    return rows
