"""Figures 2, 4 and 5: what it changes that clients sometimes recover a reference model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bonafed.checks import Floats
from bonafed.mechanisms.rewards.section import unit
from bonafed.papers.cells import Cell
from bonafed.papers.claim import (
    Check,
    Claim,
    Results,
    Row,
    at_least,
    at_most,
    drawn_by,
    estimate,
    over_seeds,
    printed,
    where,
    within,
)
from bonafed.papers.rewards.federations import PARTITIONS, SettingPoint
from bonafed.papers.rewards.sweeps import (
    NO_CIFAR100,
    PAPER,
    SHORTER,
    SMALLER,
    Swept,
    changes_of,
    columns_of,
    rising,
    sweep_cells,
)
from bonafed.presentation.documents import JSONObject
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


def recovery_cells(options: Recovery) -> dict[SettingPoint, Cell]:
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
                results[SettingPoint(data, partition, seed, _name(read.get(rate, rate), reference))]
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


# Figure 2: the recovery rate q


def fig2_rows(options: Recovery, results: Results) -> list[Row]:
    """What every rate leads to, with the best reference model."""
    return recovery_rows(options, results, "max")


def fig2_checks(rows: Sequence[Row]) -> list[Check]:
    """More recovery, better models that follow contributions less."""
    none, most = rows[0], rows[-1]
    ends = f"from q {none['q']} to {most['q']}"
    return [
        at_least(f"change of mean accuracy {ends}", estimate(most, "accuracy_change"), 0.0),
        at_most(f"change of rho {ends}", estimate(most, "rho_change"), 0.0),
        *(
            printed("rho at q 0.01", estimate(row, "rho"), 0.61, 0.15)
            for row in rows
            if row["as_in_the_paper"] and row["q"] == 0.01
        ),
    ]


FIG2 = Claim(
    identifier="rewards-fig2",
    paper="rewards",
    place="figure 2, section 6.2",
    says="A larger recovery rate q raises the accuracy of the clients' models and lowers rho; at q = 0.01 "
    "rho is still 0.61.",
    presets=RECOVERY,
    cells=recovery_cells,
    rows=fig2_rows,
    judge=fig2_checks,
    draw=drawn_by("rewards", "sweep_figure", "q", "recovery rate q"),
    control={"backwards": True},
    open_data=NO_CIFAR100,
    about="""\
kappa is fixed and not in print; it is 0 here, since the text gives the free rider the same induced
rate, 0.09, in figures 1 and 2. The reference model has the best reward rate. What matters is how often a
client recovers in all, q times the number of rounds: with 15 rounds instead of 100, preset quick has
larger rates. The tolerance of the printed rho is 0.15, as in table 2.""",
)


# Figure 4: the recovery rate q with a median reference model


_FIG4_COMPARABLE = 0.2  # of rho; the paper has no number for it


def fig4_rows(options: Recovery, results: Results) -> list[Row]:
    """What every rate leads to, with both reference models."""
    return recovery_rows(options, results, "median", "max")


def fig4_checks(rows: Sequence[Row]) -> list[Check]:
    """As with the best reference, with worse models and a similar rho."""
    median = [row for row in rows if row["reference"] == "median"]
    most = median[-1]
    ends = f"from q {median[0]['q']} to {most['q']}"
    return [
        at_least(f"change of mean accuracy {ends}", estimate(most, "accuracy_change"), 0.0),
        at_most(
            f"mean accuracy at q {most['q']}, less that with the best reference",
            estimate(most, "accuracy_to_max"), 0.0,
        ),
        within(
            f"rho at q {most['q']}, less that with the best reference", estimate(most, "rho_to_max"), 0.0,
            _FIG4_COMPARABLE,
        ),
    ]  # fmt: skip


FIG4 = Claim(
    identifier="rewards-fig4",
    paper="rewards",
    place="figure 4, appendix E.5",
    says="With a reference model of median instead of best reward rate, recovery still raises accuracy, "
    "less than the best one does, and rho is comparable.",
    presets=RECOVERY,
    cells=recovery_cells,
    rows=fig4_rows,
    judge=fig4_checks,
    draw=drawn_by("rewards", "references_figure"),
    control={"backwards": True},
    open_data=NO_CIFAR100,
    about="""\
The runs of figure 2, and the same with `reference = "median"`. Comparable is not said in numbers: here,
rho within 0.2.""",
)


# Figure 5: how fast clients' models converge


_FIG5_COMPARABLE = 0.05  # of accuracy, mean over rounds; the paper has no number for it
WITHOUT, WITH, COMMON = "IAFL, q = 0", "IAFL with recovery", "FedAvg"


@dataclass(frozen=True)
class Convergence(Swept):
    """The runs of figure 5: without recovery and with it."""

    recovery: float = key(unit, 0.01, help="q where there is recovery.")


_PRESETS = {
    "smoke": Convergence(**{**SMALLER, "seed": 1}, recovery=0.5),
    "quick": Convergence(**SHORTER, recovery=0.07),
    "paper": Convergence(**{**PAPER, "partitions": ("quantity", "dirichlet")}),
}


def fig5_cells(options: Convergence) -> dict[SettingPoint, Cell]:
    """Without recovery and with it, all evaluated in every round."""
    common: JSONObject = {"sharing": 0.0, "recovery": 0.0, "baselines": ["fedavg-ft"]}
    variants = {"q 0": common, "q": {"sharing": 0.0, "recovery": options.recovery}}
    return sweep_cells(options, variants, evaluate_every=1)


def fig5_rows(options: Convergence, results: Results) -> list[Row]:
    """Accuracy by round, of FedAvg and of clients whose reward rate is highest, median and lowest.

    `behind` is FedAvg's accuracy less this one, and `lag` its mean over the rounds so far.
    """
    rows: list[Row] = []
    (data,) = options.data
    for partition in options.partitions:
        curves = _curves(options, results, data, partition)
        common = curves[COMMON, "all"]
        for (method, client), own in curves.items():
            behind = common - own
            lag = behind.cumsum(1) / np.arange(1, own.shape[1] + 1)
            rows += [
                {
                    "data": data, "partition": PARTITIONS[partition].label, "method": method,
                    "client": client, "round": t + 1, **over_seeds("accuracy", own[:, t].tolist()),
                    **over_seeds("behind", behind[:, t].tolist()), **over_seeds("lag", lag[:, t].tolist()),
                }
                for t in range(own.shape[1])
            ]  # fmt: skip
    return rows


def _curves(
    options: Convergence, results: Results, data: str, partition: str
) -> dict[tuple[str, str], Floats]:
    """(seeds, rounds) accuracies by method and client; as a control, FedAvg's and IAFL's are exchanged."""
    runs = {
        name: [results[SettingPoint(data, partition, seed, name)] for seed in options.all_seeds]
        for name in ("q 0", "q")
    }
    common = np.array([run["curves"]["fedavg-ft"]["accuracies"] for run in runs["q 0"]]).mean(2)
    curves = {(COMMON, "all"): common}
    for method, name in ((WITHOUT, "q 0"), (WITH, "q")):
        each = np.array([run["curves"]["rewards"]["accuracies"] for run in runs[name]])
        order = np.array([np.argsort(run["contribution"], kind="stable") for run in runs[name]])
        n = order.shape[1]
        for client, position in (("highest", n - 1), ("median", n // 2), ("lowest", 0)):
            curves[method, client] = np.array(
                [run[:, who] for run, who in zip(each, order[:, position], strict=True)]
            )
        curves[method, "mean"] = each.mean(2)
    if options.backwards:
        curves |= {(COMMON, "all"): curves[WITHOUT, "highest"], (WITHOUT, "highest"): common}
    return curves


def fig5_checks(rows: Sequence[Row]) -> list[Check]:
    """Slower without recovery, even for the best rewarded client; with it, about as fast."""
    last = max(row["round"] for row in rows)  # type: ignore[type-var]  # whole numbers
    ends = where(rows, round=last)
    checks = []
    for row in where(ends, method=WITHOUT, client="highest"):
        what = f"FedAvg's accuracy less the best rewarded client's, q = 0, {row['partition']}"
        checks += [
            at_least(f"{what}, mean over rounds", estimate(row, "lag"), 0.0),
            at_least(f"{what}, last round", estimate(row, "behind"), 0.0),
        ]
    for row in where(ends, method=WITH, client="mean"):
        what = (
            f"FedAvg's accuracy less the mean client's, with recovery, {row['partition']}, mean over rounds"
        )
        checks.append(at_most(what, estimate(row, "lag"), _FIG5_COMPARABLE))
    return checks


FIG5 = Claim(
    identifier="rewards-fig5",
    paper="rewards",
    place="figure 5, appendix E.6",
    says="Without recovery even the client with the highest reward rate converges more slowly than FedAvg, "
    "and to a worse model; with q = 0.01 clients converge about as fast as FedAvg.",
    presets=_PRESETS,
    cells=fig5_cells,
    rows=fig5_rows,
    judge=fig5_checks,
    draw=drawn_by("rewards", "convergence_figure", (WITHOUT, WITH), COMMON),
    control={"backwards": True},
    open_data=NO_CIFAR100,
    about="""\
Accuracies are recorded for every client in every round, before FedAvg's clients fine-tune. Which data are
in panels (c) and (d) is not said; here label skew beside quantity skew, at preset paper. "Comparable" is
not said in numbers: here, no more than 5 percentage points behind on average over the rounds and clients.
FedAvg weights updates by numbers of samples, IAFL does not.""",
)


CLAIMS = (FIG2, FIG4, FIG5)
