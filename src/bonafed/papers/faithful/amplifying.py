"""The table of figures 1a and 1b: what agent 1 gets, and what the bound says, for every gamma."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from bonafed import checks
from bonafed.papers.claim import Results, Row
from bonafed.papers.faithful.manipulation import (
    READINGS,
    Example,
    best_factor,
    best_factor_of_bound,
    bound,
    constants,
    manipulation_curve,
)
from bonafed.sections import Section, key

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
    listed: list[Row] = []
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
        listed += [
            {
                "reading": reading, "gamma": gamma if math.isfinite(gamma) else None,
                "loss": float(curve.loss[i]), "loss_se": float(curve.excess_error[i]),
                "seeds": draws.designs,
                "printed_bound": float(printed[i]), "bound": float(right[i]), **facts,
            }
            for i, gamma in enumerate(gammas)
        ]  # fmt: skip
    return listed


def readings(table: list[Row]) -> list[str]:
    """Of the noise."""
    return list(dict.fromkeys(str(row["reading"]) for row in table))
