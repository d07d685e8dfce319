"""Figure 2: the privacy straggler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING

from bonafed import checks
from bonafed.papers.cells import Cell, run_cell
from bonafed.papers.claim import (
    Check,
    Claim,
    Results,
    Row,
    Settings,
    at_least,
    at_most,
    estimate,
    only,
    over_seeds,
)
from bonafed.presentation.documents import JSONObject
from bonafed.sections import key, word

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ALL = 1_000_000  # a batch holds all records of a client
_ANY_MONEY = 1e9  # eta: money is no object, so that everybody sells all that it would
_SHARP = 0.05  # of accuracy: what counts as degraded
CASES = {  # scheme, and whether one client sells next to nothing
    "no straggler, all alike": ("unbiased", False),
    "a straggler, all alike": ("unbiased", True),
    "a straggler, JSAM": ("jsam", True),
}


@dataclass(frozen=True)
class Straggler(Settings):
    """One client among many that would sell next to nothing of its privacy."""

    data: str = key(word, "mnist", help="A data set.")
    clients: int = key(checks.whole, 100, help="N.")
    clients_per_round: int = key(checks.whole, 10, help="Drawn per round.")
    rounds: int = key(checks.whole, 30, help="T.")
    learning_rate: float = key(checks.positive, 0.3, help="The same in all cases.")
    clip: float = key(checks.positive, 1.0, help="C, largest norm of one record's gradient.")
    epsilon: float = key(checks.positive, 5.0, help="Sold by everybody else.")
    straggler: float = key(checks.positive, 0.001, help="Sold by one. Control: as much as the others.")


def cells(settings: Straggler) -> Mapping[tuple[str, int], Cell]:
    """A run for each case and seed."""
    return {
        (case, seed): run_cell(f"jsam {case}, seed {seed}", _tables(settings, case, seed))
        for case in CASES
        for seed in settings.all_seeds
    }


def _tables(settings: Straggler, case: str, seed: int) -> JSONObject:
    scheme, there = CASES[case]
    caps = [settings.epsilon] * settings.clients
    caps[0] = settings.straggler if there else settings.epsilon
    return {
        "data": {"name": settings.data},
        "partition": {"kind": "similarity", "clients": settings.clients, "s": 100.0},
        "model": {"name": "softmax"},
        "training": {
            "rounds": settings.rounds, "learning_rate": settings.learning_rate, "batch_size": _ALL,
            "steps": 1,
        },
        "jsam": {
            "prior": "uniform:0,1", "scheme": scheme, "eta": _ANY_MONEY, "max_epsilon": caps,
            "cost_seed": seed, "clip": settings.clip, "noise_scale": 9.0, "noise": "reproducible",
            "clients_per_round": settings.clients_per_round,
        },
        "run": {"seed": seed, "evaluate_every": settings.rounds, "checkpoint_every": settings.rounds},
    }  # fmt: skip


def rows(settings: Straggler, results: Results) -> list[Row]:
    """Accuracy in each case, and what the straggler costs, seed by seed."""
    best = [results["no straggler, all alike", seed]["test_accuracy"] for seed in settings.all_seeds]
    made: list[Row] = []
    for case in CASES:
        mine = [results[case, seed] for seed in settings.all_seeds]
        accuracy = [each["test_accuracy"] for each in mine]
        lost = [before - after for before, after in zip(best, accuracy, strict=True)]
        selected = fmean(each["statement"]["facts"]["clients_selected"] for each in mine)
        made.append(
            {
                "case": case,
                "selected": selected,
                **over_seeds("accuracy", accuracy),
                **over_seeds("lost", lost),
            }
        )
    return made


def judge(table: Sequence[Row]) -> list[Check]:
    """What one straggler costs if it is treated like everybody else, and if it is left out."""
    alike, left_out = (only(table, case=f"a straggler, {how}") for how in ("all alike", "JSAM"))
    return [
        at_least("accuracy lost by one straggler, all alike", estimate(alike, "lost"), _SHARP),
        at_most("accuracy lost by one straggler under JSAM", estimate(left_out, "lost"), _SHARP),
    ]


def draw(table: Sequence[Row]) -> Figure:
    """Accuracy in each case."""
    from bonafed.papers.jsam.figures import bars

    return bars(table, "case", "accuracy", "test accuracy")


CLAIM = Claim(
    identifier="jsam-fig2",
    paper="jsam",
    place="figure 2",
    says="A single client with a very low privacy budget adds so much noise that the model degrades; to "
    "leave it out mitigates this.",
    presets={
        "smoke": Straggler(
            data="digits",
            clients=10,
            clients_per_round=5,
            rounds=20,
            learning_rate=2.0,
            straggler=0.01,
            seeds=1,
        ),
        "quick": Straggler(),
        "paper": replace(Straggler(), rounds=1000, learning_rate=0.1, clip=6.0),
    },
    cells=cells,
    rows=rows,
    judge=judge,
    draw=draw,
    control={"straggler": 5.0},
    about="""The figure is a drawing without numbers. Here: softmax regression with clients alike, each
of whom sells an epsilon of 5 for the whole run, but for one, who would sell 0.001. Selected like
everybody else it releases, with noise for that epsilon, a hundredth of all updates; JSAM, to which
money is no object here, leaves it out. A loss of five points of accuracy counts as degraded.

The control has nobody who sells less than the others.""",
)
