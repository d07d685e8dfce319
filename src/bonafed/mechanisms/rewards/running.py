"""Contribution measures that continue from their value in the previous round.

A measure of the whole history (`measures.py`) needs every round to be kept: N P numbers twice per round,
read again after each. A running one is a step

    p_t = step(p_{t-1}, round t, sizes),   p_0 = None,

and needs the last round only: nothing is kept, and a checkpoint stays small. Rounds that nobody attended
are skipped. `running_cosine` is CGSV in this form, the same numbers as `measures.cosine_gradient`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bonafed.checks import Floats
from bonafed.economics.contribution import cosine_step
from bonafed.mechanisms.rewards.history import Round

Step = Callable[[Floats | None, Round, Floats], Floats]
# (contributions (N,) of the last round or None, this round, sizes (N,)) -> (N,) contributions


@dataclass(frozen=True, slots=True)
class RunningMeasure:
    """A measure of one round after the other."""

    step: Step


def running_cosine(*, scale: float = 0.5, memory: float = 0.95, least: float = 1e-3) -> RunningMeasure:
    """CGSV: importance from the cosine of each update with the weighted mean of all."""

    def step(before: Floats | None, one: Round, sizes: Floats) -> Floats:
        return cosine_step(one.updates, before, sizes, scale=scale, memory=memory, least=least).importance

    return RunningMeasure(step)
