"""Proposition 11 of the faithful paper (figure 2): steps and bound against alpha, printed and corrected.

For softmax regression on rows of norm 1: L_g = mu + 1/2, and gradients of norm sqrt(2). T_1 = T_2 increase
and the loss falls as alpha grows, that is with less privacy; the text after the paper's figure 2 has both
the other way round (erratum F-D9).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.mechanisms.faithful.theory.bounds import Tradeoff, TradeoffSetting, privacy_tradeoff
from bonafed.papers.claim import Row
from bonafed.papers.tables import increasing


@dataclass(frozen=True, slots=True, eq=False)
class Tradeoffs:
    """Proposition 11 for m privacy parameters and e steps; (e, m) arrays, printed constants and corrected.

    With no steps at all the bound is B, what the start is away; (58) holds from the first step on. It
    leaves out its epsilon (0 for L = K) and rounding T up, which adds at most A.
    """

    alpha: Floats  # (m,) ascending
    step: Floats  # (e,) eta_2
    printed_steps: NDArray[np.int64]  # T_1 = T_2, (57)
    printed_loss: Floats  # (58), on |E P_k - VCG_k|
    steps: NDArray[np.int64]
    loss: Floats

    def to_rows(self) -> list[Row]:
        names = ("printed_steps", "printed_loss", "steps", "loss")
        return [
            {"eta2": eta, "alpha": alpha, **{name: getattr(self, name)[i, j].item() for name in names}}
            for i, eta in enumerate(self.step.tolist())
            for j, alpha in enumerate(self.alpha.tolist())
        ]


def tradeoff(
    dimension: int,
    smallest: int,
    agents: int = 10,
    regulariser: float = 0.001,
    *,
    alphas: ArrayLike | None = None,
    step_shares: ArrayLike = (1.0, 0.3, 0.1),
    beta: float = 0.01,
) -> Tradeoffs:
    """`dimension` counts the model's numbers, `smallest` is n_(1), `step_shares` are parts of the largest
    step allowed, 1/((K-1) L_g)."""
    default = np.geomspace(0.01, 1000.0, 61)
    alpha = increasing("alphas", default if alphas is None else np.asarray(alphas))
    shares = checks.vector("step_shares", step_shares, sign="positive")
    k, mu = checks.whole("agents", agents, 2), checks.positive("regulariser", regulariser)
    smooth = mu + 0.5
    step = shares / ((k - 1) * smooth)

    def at(eta: float, a: float, corrected: bool) -> Tradeoff:
        setting = TradeoffSetting(eta, dimension, math.sqrt(2.0), k, a, beta, mu, smallest, smooth)
        return privacy_tradeoff(setting, corrected)

    def steps(table: list[list[Tradeoff]]) -> NDArray[np.int64]:
        return np.array([[t.steps for t in row] for row in table], dtype=np.int64)

    def loss(table: list[list[Tradeoff]]) -> Floats:
        return np.array([[t.loss if t.steps else t.start for t in row] for row in table])

    printed, right = (
        [[at(float(eta), float(a), corrected) for a in alpha] for eta in step]
        for corrected in (False, True)
    )
    return Tradeoffs(alpha, step, steps(printed), loss(printed), steps(right), loss(right))
