"""The learning rates of every round of federated averaging, as a config asks for them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

import numpy as np

from bonafed.checks import Floats
from bonafed.errors import InvalidValue, MissingValue
from bonafed.learning.federation import Roster
from bonafed.learning.sections import BY_THEOREM, PROPOSITION_1, Training
from bonafed.mechanisms.protocol import Config
from bonafed.sections import named

Rates = Callable[[int], Floats]  # of round 1, 2, ...: (1,) for all its local steps, or one for each


def learning_rates(config: Config, members: Roster) -> tuple[Config, Rates]:
    """The learning rates of every round, and the config with the constants they came from.

    Where [training] of a private run leaves the rate open, these are factors of the one that follows from
    its noise, once that is settled (`left_open.py`).

    Proposition 1 is about clients that all make E local steps in a round. Where their numbers differ,
    E is the largest: a round counts as E iterations, and clients that finish early rest.
    """
    training = config.local
    if training.learning_rate in BY_THEOREM:
        return _rates_by_theorem(config, training, members)
    powers = np.power(training.learning_rate_decay, np.arange(training.rounds, dtype=np.float64))
    first = 1.0 if training.learning_rate is None else float(training.learning_rate)
    rates = first * powers[:, None]
    if rates[-1, 0] <= 0:
        rule = f"must leave a learning rate above 0 after {training.rounds} rounds"
        raise InvalidValue("training.learning_rate_decay", rule, training.learning_rate_decay)
    resolved = replace(config.stated, weight_decay=training.weight_decay or 0.0)
    return replace(config, training=resolved), lambda number: rates[number - 1]


def _rates_by_theorem(config: Config, training: Training, members: Roster) -> tuple[Config, Rates]:
    from bonafed.mechanisms.sampling.convergence import proposition_1_rates

    rate = training.learning_rate
    smooth = training.smoothness or members.smoothness
    convex = training.strong_convexity or members.strong_convexity
    for name, value in (("smoothness", smooth), ("strong_convexity", convex)):
        if value is None:
            rule = f"must be set for {rate}: no bound has been agreed on"
            if config.noise is not None:
                rule = f"must be set for {rate} in private training: one computed from the data leaks"
            raise MissingValue(f"training.{name}", rule)
    assert smooth is not None
    assert convex is not None
    decay = convex if training.weight_decay is None else training.weight_decay
    resolved = replace(config.stated, smoothness=smooth, strong_convexity=convex, weight_decay=decay)
    variant: Literal["corrected", "printed"] = "corrected" if rate == PROPOSITION_1 else "printed"
    steps = max(training.local_steps(int(size)) for size in members.sizes)
    with named("training"):
        proposition_1_rates(smooth, convex, steps, training.rounds)  # refuses bad constants
    return replace(config, training=resolved), lambda number: proposition_1_rates(
        smooth, convex, steps, number, variant
    )
