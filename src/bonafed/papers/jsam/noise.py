"""Figure 2, lemma 1, theorem 1: how much noise privacy takes, and what it does to training."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from bonafed import checks
from bonafed.learning.privacy import noise_multiplier, spent_epsilon
from bonafed.papers.cells import Cell, run_cell
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
    only,
    over_seeds,
)
from bonafed.papers.jsam.training import descend, swing
from bonafed.papers.tables import several
from bonafed.presentation.documents import JSONObject
from bonafed.sections import Section, key, word

# Figure 2: the privacy straggler


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


def fig2_cells(settings: Straggler) -> Mapping[tuple[str, int], Cell]:
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


def fig2_rows(settings: Straggler, results: Results) -> list[Row]:
    """Accuracy in each case, and what the straggler costs, seed by seed."""
    best = [results["no straggler, all alike", seed]["test_accuracy"] for seed in settings.all_seeds]
    rows: list[Row] = []
    for case in CASES:
        runs = [results[case, seed] for seed in settings.all_seeds]
        accuracy = [each["test_accuracy"] for each in runs]
        lost = [before - after for before, after in zip(best, accuracy, strict=True)]
        selected = fmean(each["statement"]["facts"]["clients_selected"] for each in runs)
        rows.append(
            {
                "case": case,
                "selected": selected,
                **over_seeds("accuracy", accuracy),
                **over_seeds("lost", lost),
            }
        )
    return rows


def fig2_checks(table: Sequence[Row]) -> list[Check]:
    """What one straggler costs if it is treated like everybody else, and if it is left out."""
    alike, left_out = (only(table, case=f"a straggler, {how}") for how in ("all alike", "JSAM"))
    return [
        at_least("accuracy lost by one straggler, all alike", estimate(alike, "lost"), _SHARP),
        at_most("accuracy lost by one straggler under JSAM", estimate(left_out, "lost"), _SHARP),
    ]


FIG2 = Claim(
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
    cells=fig2_cells,
    rows=fig2_rows,
    judge=fig2_checks,
    draw=drawn_by("jsam", "bars", "case", "accuracy", "test accuracy"),
    control={"straggler": 5.0},
    about="""The figure is a drawing without numbers. Here: softmax regression with clients alike, each
of whom sells an epsilon of 5 for the whole run, but for one, who would sell 0.001. Selected like
everybody else it releases, with noise for that epsilon, a hundredth of all updates; JSAM, to which
money is no object here, leaves it out. A loss of five points of accuracy counts as degraded.

The control has nobody who sells less than the others.""",
)


# Lemma 1 and (8): whether the noise keeps its promise


_ROUNDING = 1e-9


@dataclass(frozen=True)
class Sold(Section):
    """Privacy that is sold for a run."""

    epsilon: tuple[float, ...] = key(
        several(checks.positive), (0.1, 0.3, 1.0, 3.0, 5.0, 10.0, 20.0, 50.0), help="Sold."
    )
    releases: int = key(checks.whole, 1000, help="T_k, how often a client is drawn.")
    delta: float = key(checks.positive, 1e-5, help="Of differential privacy.")
    share: float = key(checks.positive, 1.0, help="Of the noise. Control: half of it.")


def lemma1_rows(sold: Sold, _: Results) -> list[Row]:
    """What is really spent under both noises."""
    rows: list[Row] = []
    for epsilon in sold.epsilon:
        row: Row = {"sold": epsilon}
        for variant in ("printed", "exact"):
            sigma = sold.share * noise_multiplier(epsilon, sold.delta, sold.releases, variant=variant)
            spent = spent_epsilon(sigma, sold.releases, sold.delta)
            row |= {f"noise_{variant}": sigma, f"spent_{variant}": spent}
        rows.append(row)
    return rows


def lemma1_checks(table: Sequence[Row]) -> list[Check]:
    """Spent over sold, at worst."""
    worst = {
        name: Estimate(max(_over(number(row, f"spent_{name}"), number(row, "sold")) for row in table))
        for name in ("printed", "exact")
    }
    return [
        at_most("epsilon spent over epsilon sold, noise of (8), largest", worst["printed"], 1.0),
        at_most("the same with exact noise", worst["exact"], 1 + _ROUNDING, corrected=True),
    ]


def _over(spent: float, sold: float) -> float:
    return spent / sold if sold else math.inf


LEMMA1 = Claim(
    identifier="jsam-lemma1",
    paper="jsam",
    place="lemma 1, (8)",
    says="Noise of variance c_2^2 T_k log(1/delta)/epsilon_k^2 makes T_k releases of client k (epsilon_k, "
    "delta)-differentially private.",
    presets={"smoke": Sold(), "quick": Sold(), "paper": Sold()},
    rows=lemma1_rows,
    judge=lemma1_checks,
    draw=drawn_by("jsam", "spent_figure"),
    control={"share": 0.5},
    erratum="J-13",
    about="""What a client really gives away in T_k releases, by exact accounting of Gaussian noise. The
paper leaves c_2 open; sqrt(2) is what zero-concentrated privacy needs as epsilon goes to 0. With it (8)
wastes noise below epsilon 8 and breaks the promise beyond. A larger constant moves the place where it
breaks, since sigma times epsilon grows without bound. Noise found from the exact equation keeps the
promise at every epsilon.

The control adds half of the noise.""",
)


# Theorem 1: the bound (13) on the gradient norm


@dataclass(frozen=True)
class Descent(Settings):
    """Training whose constants are known."""

    eta: tuple[float, ...] = key(
        several(checks.positive), (0.3, 1.0, 10.0), help="Weights: whom JSAM selects."
    )
    scale: tuple[float, ...] = key(
        several(checks.positive), (1.0, 10.0), help="Privacy sold, in multiples of the plan's."
    )
    clients: int = key(checks.whole, 10, help="N.")
    clients_per_round: int = key(checks.whole, 5, help="Drawn per round.")
    rounds: int = key(checks.whole, 400, help="T.")
    gradient: float = key(checks.positive, 0.1, help="R of the line with a kink.")
    factor: float = key(checks.positive, 1.0, help="Of the bounds. Control: a small part of them.")


def theorem1_cells(settings: Descent) -> Mapping[tuple[float, float, int], Cell]:
    """A run for each weight, amount of privacy and seed."""
    common = {
        "clients": settings.clients, "clients_per_round": settings.clients_per_round,
        "rounds": settings.rounds,
    }  # fmt: skip
    return {
        (eta, scale, seed): Cell(
            f"jsam descent, eta {eta:g}, privacy {scale:g}, seed {seed}", descend,
            {**common, "eta": eta, "scale": scale, "seed": seed}, ("digits",),
        )
        for eta in settings.eta
        for scale in settings.scale
        for seed in settings.all_seeds
    }  # fmt: skip


def theorem1_rows(settings: Descent, results: Results) -> list[Row]:
    """The measured norm and the bounds with their terms."""
    rows: list[Row] = []
    terms = ("bias", "noise", "start", "curvature")
    for eta in settings.eta:
        for scale in settings.scale:
            runs = [results[eta, scale, seed] for seed in settings.all_seeds]
            row: Row = {"problem": f"softmax, eta {eta:g}, privacy {scale:g}"}
            for name in ("norm", "selected", *terms):
                row |= over_seeds(name, [each[name] for each in runs])
            for name in ("total", "printed"):
                row |= over_seeds(name, [settings.factor * each[name] for each in runs])
                row |= over_seeds(
                    f"over_{name}", [each["norm"] / (settings.factor * each[name]) for each in runs]
                )
            rows.append(row)
    norm, bound = swing(settings.rounds, settings.gradient)
    line: Row = {
        "problem": "line with a kink",
        **over_seeds("norm", [norm]),
        **over_seeds("selected", [1.0]),
    }
    for name in terms:
        line |= over_seeds(name, [getattr(bound, name)])
    for name in ("total", "printed"):
        value = settings.factor * getattr(bound, name)
        line |= over_seeds(name, [value]) | over_seeds(f"over_{name}", [norm / value])
    return [*rows, {**line, "seeds": 0}]  # nothing in it is drawn


def theorem1_checks(table: Sequence[Row]) -> list[Check]:
    """No run is above its bound."""
    comparisons = []
    for name, words, corrected in (("printed", "(13) as printed", False), ("total", "corrected", True)):
        worst = max(table, key=lambda row: number(row, f"over_{name}"))
        ours = estimate(worst, f"over_{name}")
        what = f"gradient norm over its bound, {words}, largest ({worst['problem']})"
        comparisons.append(at_most(what, ours, 1.0, corrected=corrected))
    return comparisons


_QUICK = Descent()
THEOREM1 = Claim(
    identifier="jsam-theorem1",
    paper="jsam",
    place="theorem 1, (13) and (14)",
    says="The root of the mean squared gradient norm is at most R/2 (l + G) + R/2 sqrt((l + G)^2 + 2 D "
    "sqrt(TL) sum p_k^2 sigma_k^2/T_k) + sqrt((F(w_1) - F*)/sqrt(T)) + L R^2/(2 sqrt(T)).",
    presets={
        "smoke": replace(_QUICK, seeds=1, rounds=50, eta=(0.3, 10.0), scale=(1.0,)),
        "quick": _QUICK,
        "paper": replace(_QUICK, rounds=1000),
    },
    cells=theorem1_cells,
    rows=theorem1_rows,
    judge=theorem1_checks,
    draw=drawn_by("jsam", "bound_figure"),
    control={"factor": 0.01},
    erratum="J-15",
    about="""Two problems whose constants are known. Softmax regression on the embedded digits with
features of norm 1: gradients have a norm of at most R = sqrt(2), L is 1/2, the loss is at least 0, and
with C = R nothing is clipped, so G = 0. Ten clients hold the digits sorted by label, JSAM selects among
them at three weights, and noise is that of the privacy sold, with sensitivity 2C/M. The measured norm
is far below both bounds, as it is for most bounds of this kind.

And a line with a kink, |w| smoothed near 0, without noise: with L = 4 sqrt(T) every step swings to the
other side, and the gradient keeps its norm R. For small R this is above (13) as printed, whose last
term is linear in R^2 where a norm is bounded: L R^2/(2 sqrt(T)) belongs under a root (erratum J-15),
with which the bound holds. Whether the print or the copy of it that was read shortened the root cannot
be told.

`bonafed.papers.jsam.training.gradient_bound` gives all terms, as printed and corrected. The
control takes a hundredth of the bounds.""",
)


CLAIMS = (FIG2, LEMMA1, THEOREM1)
