"""Figure 1 and the text on it: how much an agent gains by overstating, and what the bound says of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bonafed import checks
from bonafed.papers.claim import (
    Check,
    Claim,
    Estimate,
    Results,
    Row,
    at_least,
    at_most,
    drawn_by,
    estimate,
    number,
    only,
    where,
)
from bonafed.papers.faithful.manipulation import (
    MEANS,
    READINGS,
    Example,
    best_factor,
    best_factor_of_bound,
    bound,
    constants,
    manipulation_curve,
)
from bonafed.sections import Section, flag, key

ABOUT = (
    "Two agents fit a line to 50 and 400 samples; the paper's N(mean, 2) may give the variance or the "
    "standard deviation, so both readings are computed. Losses are exact given the drawn x, which alone "
    "are simulated: the expected loss on fresh samples, as the training loss always falls in gamma "
    "(F-E14).\n\nThe paper states no constants of its bound. Ours are those of the example: strong "
    "convexity of the expected risk, which is all that the proof uses (a single sample's loss has none), "
    "the largest gradient and the range of the loss over the bounded data, at lines that are best for some "
    "mix of the agents. Columns: printed_bound is (16) with these; bound has Hoeffding's range and the "
    "range of the loss where the proof needs them (F-E12, F-E15). Both have the least possible loss added, "
    "so they bound the loss."
)

AS_BEFORE = "The example and its constants are told at the claim faithful-fig1a."


@dataclass(frozen=True)
class Draws(Section):
    """The example, and what the means are over."""

    mean: float = key(checks.number, 0.1, help="Of agent 1's noise: how far apart the agents are.")
    designs: int = key(
        lambda name, value: checks.whole(name, value, at_least=2), 4000, help="Drawn x to average over."
    )
    seed: int = key(checks.seed, 0, help="Of the draws.")
    points: int = key(
        lambda name, value: checks.whole(name, value, at_least=3), 73, help="Factors on the axis."
    )
    delta: float = key(checks.positive, 0.01, help="Probability that the bound may fail.")


def rows(draws: Draws, _: Results) -> list[Row]:
    """A row for every reading and factor; the last factor, infinity, is left empty."""
    gammas = [*np.geomspace(0.25, 1000.0, draws.points).tolist(), math.inf]
    rows: list[Row] = []
    for reading, deviation in READINGS.items():
        example = Example(draws.mean, deviation)
        least = example.noise[0].variance
        curve = manipulation_curve(example, gammas, designs=draws.designs, seed=draws.seed)
        ways = [constants(example, draws.delta, printed=printed) for printed in (True, False)]
        printed, right = (least + bound(example, gammas, way) for way in ways)
        bests = [best_factor_of_bound(example, way) for way in ways]
        facts: Row = {
            "best_gamma": best_factor(example, designs=draws.designs, seed=draws.seed),
            "best_of_printed_bound": bests[0],
            "best_of_bound": bests[1],
        }
        rows += [
            {
                "reading": reading, "gamma": gamma if math.isfinite(gamma) else None,
                "loss": float(curve.loss[i]), "loss_se": float(curve.excess_error[i]),
                "seeds": draws.designs,
                "printed_bound": float(printed[i]), "bound": float(right[i]), **facts,
            }
            for i, gamma in enumerate(gammas)
        ]  # fmt: skip
    return rows


def readings(table: list[Row]) -> list[str]:
    """The readings of "N(mean, 2)" that a table has."""
    return list(dict.fromkeys(str(row["reading"]) for row in table))


# Figure 1a: agents alike, and how much agent 1 gains by overstating


_SLIGHTLY = 3.0  # the largest factor that is "slightly larger than 1", on an axis that reaches 1000


def fig1a_checks(table: Sequence[Row]) -> list[Check]:
    """The best factors of the loss and of the bound are between 1 and 3."""
    comparisons = []
    for reading in readings([*table]):
        row = next(row for row in table if row["reading"] == reading)
        for what, column in (("loss", "best_gamma"), ("bound", "best_of_printed_bound")):
            best = Estimate(number(row, column))
            comparisons += [
                at_least(f"gamma that is best for the {what}, {reading}", best, 1.0),
                at_most(f"gamma that is best for the {what}, {reading}", best, _SLIGHTLY),
            ]
    return comparisons


FIG1A = Claim(
    identifier="faithful-fig1a",
    paper="faithful",
    place="figure 1a, text after proposition 3",
    says="Where the agents' data are alike (mean 0.1), the gammas that minimise agent 1's loss and its "
    "bound are both slightly larger than 1.",
    presets={"smoke": Draws(designs=200, points=13), "quick": Draws(), "paper": Draws()},
    rows=rows,
    judge=fig1a_checks,
    draw=drawn_by("faithful", "manipulation_figure"),
    control={"mean": 2.0},
    about=ABOUT + "\n\nSlightly is read as at most threefold, on an axis that reaches 1000.",
)


# Figure 1b: agents far apart


_LARGE = 30.0  # a factor that leaves the other agent, of 8 times as many samples, a fifth of the weight


def fig1b_checks(table: Sequence[Row]) -> list[Check]:
    """Learning alone beats the truth; whether it beats every finite factor is what the erratum is about."""
    comparisons = []
    for reading in readings([*table]):
        own_rows = where(table, reading=reading)
        alone = only(own_rows, gamma=None)
        finite = [row for row in own_rows if row["gamma"] is not None]
        truth = min(finite, key=lambda row: abs(number(row, "gamma") - 1.0))
        least = min(number(row, "loss") for row in finite)
        gain = number(truth, "loss") - number(alone, "loss")
        passed = number(alone, "loss") - least  # by the best finite factor
        joins = estimate(truth, "loss")
        better = Estimate(gain, max(joins.error, number(alone, "loss_se")), joins.seeds)
        for corrected in (False, True):
            comparisons.append(
                at_least(f"loss at gamma 1 less that alone, {reading}", better, 0.0, corrected=corrected)
            )  # Remark 1: an agent that is not typical prefers not to take part
        comparisons += [
            at_most(f"loss alone above that of the best finite gamma, {reading}", Estimate(passed), 0.0),
            at_least(
                f"best gamma, {reading}", Estimate(number(alone, "best_gamma")), _LARGE, corrected=True
            ),
            at_most(
                f"what it gains over learning alone, of the gain by leaving, {reading}",
                Estimate(passed / gain if gain > 0 else float("inf")), 0.05, corrected=True,
            ),
        ]  # fmt: skip
    return comparisons


FIG1B = Claim(
    identifier="faithful-fig1b",
    paper="faithful",
    place="figure 1b, text after proposition 3, remark 1",
    says="Where the agents' data are far apart (mean 2), agent 1 prefers an infinitely large gamma, that "
    "is to learn alone.",
    presets={
        "smoke": Draws(mean=2.0, designs=200, points=25),
        "quick": Draws(mean=2.0),
        "paper": Draws(mean=2.0),
    },
    rows=rows,
    judge=fig1b_checks,
    draw=drawn_by("faithful", "manipulation_figure"),
    control={"mean": 0.1},
    erratum="F-E14",
    about=AS_BEFORE
    + "\n\nWith u = 1/gamma, the noise falls in proportion to u at first and the bias rises by order u^2 "
    "only: some finite gamma is always better than learning alone. It is large, and what it gains over "
    "learning alone is small; as corrected, the best gamma is at least 30 and gains at most a twentieth of "
    "what leaving the federation does. What the bound says is the claim faithful-minimisers.",
)


# Figure 1c: the bound against delta


_GAMMA = 3.0
_DELTAS = (0.001, 0.1)  # ends of the axis


@dataclass(frozen=True)
class Confidence(Draws):
    """The example of figure 1c."""

    logarithm: bool = key(flag, True, help="Control: without it, a bound by Chebyshev's inequality.")


def fig1c_rows(draws: Confidence, _: Results) -> list[Row]:
    """Loss and bounds, which bound it, for every delta, three factors of 10 apart at most."""
    rows: list[Row] = []
    for reading, deviation in READINGS.items():
        example = Example(draws.mean, deviation)
        loss = manipulation_curve(example, _GAMMA, designs=draws.designs, seed=draws.seed).loss[0]
        for delta in np.geomspace(*_DELTAS, draws.points).tolist():
            ways = [
                constants(example, delta, printed=printed, logarithm=draws.logarithm)
                for printed in (True, False)
            ]
            printed, right = (
                float(example.noise[0].variance + bound(example, _GAMMA, way)[0]) for way in ways
            )
            row: Row = {"reading": reading, "delta": delta, "loss": float(loss)}
            rows.append(row | {"printed_bound": printed, "bound": right})
    return rows


def fig1c_checks(table: Sequence[Row]) -> list[Check]:
    """A tenfold smaller delta moves the bound by less than twofold; at 0.01 it is of the loss's order."""
    comparisons = []
    for reading in readings([*table]):
        own_rows = where(table, reading=reading)
        for kind, column in (("printed", "printed_bound"), ("the proof's", "bound")):
            grows = max(number(row, column) for row in own_rows) / min(
                number(row, column) for row in own_rows
            )
            decades = math.log10(_DELTAS[1] / _DELTAS[0])
            middle = own_rows[len(own_rows) // 2]  # of the axis: delta = 0.01
            tight = number(middle, column) / number(middle, "loss")
            comparisons += [
                at_most(
                    f"growth of the bound by a tenfold smaller delta, {reading}, {kind} constants",
                    Estimate(grows ** (1 / decades) if grows > 0 else math.nan), 2.0,
                ),
                at_most(
                    f"bound over loss at delta 0.01, {reading}, {kind} constants", Estimate(tight), 10.0
                ),
            ]  # fmt: skip
    return comparisons


FIG1C = Claim(
    identifier="faithful-fig1c",
    paper="faithful",
    place="figure 1c, text after proposition 3",
    says="delta has a small impact on the bound, being under a logarithm, and at 0.01 the bound is "
    "reasonably tight.",
    presets={
        "smoke": Confidence(designs=200, points=5),
        "quick": Confidence(points=41),
        "paper": Confidence(points=41),
    },
    rows=fig1c_rows,
    judge=fig1c_checks,
    draw=drawn_by("faithful", "confidence_figure"),
    control={"logarithm": False},
    about=AS_BEFORE
    + "\n\nSmall is read as less than twofold for a tenfold smaller delta, reasonably tight as at most ten "
    "times the loss; of the excess over the least possible loss, which is 0.01, the bound is hundreds.",
)


# After figure 1: the loss and its bound have close minimisers


_CLOSE = math.log10(3.0)  # a factor of 3 either way, as "slightly larger" in figure 1a


def minimisers_rows(draws: Draws, results: Results) -> list[Row]:
    """The best factors of the loss and of the bounds, by reading, alike and apart."""
    listed: list[Row] = []
    for mean in (MEANS[0], draws.mean):
        for row in rows(replace(draws, mean=mean, points=3), results):
            if row["gamma"] is not None:
                continue
            best = number(row, "best_gamma")
            bounds = ("best_of_printed_bound", "best_of_bound")
            apart = min(abs(math.log10(best / number(row, column))) for column in bounds)
            kept = ("reading", "best_gamma", *bounds)
            listed.append({"mean": mean, **{name: row[name] for name in kept}, "decades_apart": apart})
    return listed


def minimisers_checks(table: Sequence[Row]) -> list[Check]:
    """Within a factor of 3, with whichever constants are closer."""
    return [
        at_most(
            f"decades between the minimisers, mean {row['mean']}, {row['reading']}",
            Estimate(number(row, "decades_apart")),
            _CLOSE,
        )
        for row in table
    ]


MINIMISERS = Claim(
    identifier="faithful-minimisers",
    paper="faithful",
    place="text after proposition 3, on figure 1",
    says="The bound of Proposition 3 and the loss it bounds tend to have close minimisers in gamma.",
    presets={
        "smoke": Draws(mean=MEANS[1], designs=200, points=3),
        "quick": Draws(mean=MEANS[1], points=3),
        "paper": Draws(mean=MEANS[1], points=3),
    },
    rows=minimisers_rows,
    judge=minimisers_checks,
    draw=drawn_by("faithful", "minimisers_figure"),
    control={"mean": 2.9},
    erratum="F-E15",
    about=AS_BEFORE
    + "\n\nTrue for agents alike, and false for agents far apart, with any constants that make it a bound: "
    "its estimation term is then so large that joining is worth it, and its best gamma is between 1 and 3, "
    "while the loss is least at a gamma in the hundreds. The bound has an infinite best gamma only if the "
    "distance times half the range of the loss exceeds c (1 - p_1)/n_1, for which agent 1 would need "
    "several times its 50 samples.",
)


CLAIMS = (FIG1A, FIG1B, FIG1C, MINIMISERS)
