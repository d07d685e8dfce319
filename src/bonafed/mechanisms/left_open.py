"""What [training] of a private run leaves open: batch, steps and rate, from public numbers (theory P9).

    (1)  before anybody reports: the batch (11.2), and the steps of a round (11.3), since how much noise
         there is depends on them, and so does what is bought. p = 1/N; the epsilon is that of the promise,
         or what is expected to be bought. Where nothing says how much that is, a round has one step
    (2)  once the terms are settled: the rate (11.4), by the plan's weights and epsilons. It changes neither
         epsilon nor money

Config, roster, contract and reports are all it takes: every participant computes the same. What is stated
is taken as it is, and the rest follows from it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from bonafed.checks import Floats
from bonafed.learning.federation import Roster
from bonafed.learning.privacy.planning import DWARFED, noise_share, rate_for, steps_for
from bonafed.learning.rounds import Participation
from bonafed.learning.work import local_steps, record_steps, step_count
from bonafed.mechanisms.promises import Promise
from bonafed.mechanisms.protocol import Config
from bonafed.presentation.documents import JSONObject, counted

HIDDEN = (  # what to say of noise beyond a third
    "hides most of what can be learned, whatever batch, steps and rate are: it takes more records, clients "
    "or epsilon"
)


@dataclass(frozen=True, slots=True)
class Chosen:
    """What a private run trains with where [training] leaves it open ((11.1) to (11.4))."""

    share: float | None  # a, the noise of the run over the furthest it can go; None: not known yet
    batch_size: int | None = None  # as many as any client has; None: stated
    steps: int | None = None  # of a client in a round; None: stated, or passes
    epochs: int | None = None  # passes of a client in a round, where batches are stated
    learning_rate: float | None = None  # None: stated, or to follow from what is bought

    @property
    def dwarfed(self) -> bool:
        """Whether noise hides most of what can be learned."""
        return self.share is not None and self.share > DWARFED

    def to_json(self) -> JSONObject:
        """Plain data, of what was chosen only."""
        values = {
            "batch_size": self.batch_size, "steps": self.steps, "epochs": self.epochs,
            "learning_rate": self.learning_rate, "noise_share": self.share,
        }  # fmt: skip
        return {name: value for name, value in values.items() if value is not None}

    def __str__(self) -> str:
        """One sentence."""
        parts = [
            None if self.batch_size is None else "batches of all records",
            None if self.steps is None else f"{counted(self.steps, 'step')} a round",
            None if self.epochs is None else f"{counted(self.epochs, 'pass', 'passes')} a round",
            None if self.learning_rate is None else f"learning rate {self.learning_rate:.3g}",
        ]
        said = "what [training] leaves out is chosen for the noise: " + ", ".join(filter(None, parts))
        if self.share is None:
            return said
        furthest = "the furthest that clipped gradients can move the model"
        said += f"; over the run, noise is {self.share:.1%} of {furthest}"
        return f"{said}, which {HIDDEN}" if self.dwarfed else said


class Steps(NamedTuple):
    """What a client does in a round, as a contract states it."""

    steps: int  # at most
    passes: int  # through its records in these


def with_steps(
    config: Config,
    members: Roster,
    parameters: int,
    epsilon: ArrayLike | None,
    *,
    stated: Steps | None = None,
) -> Config:
    """(1): the config of a private run with batch and steps; `epsilon` (N,) or one for all, None: unknown.

    `stated` are the steps that a published contract counts with, where it says so.
    """
    training = config.stated
    if config.noise is None or config.chosen:
        return config
    chosen = dict[str, int]()
    most = max(1, int(members.sizes.max(initial=1)))
    if training.batch_size is None:
        chosen["batch_size"] = most  # (11.2)
    batch = training.batch_size or most
    if training.steps_left_open and stated is not None:
        passes = batch < most and stated.steps == local_steps(most, batch, stated.passes, None)
        chosen |= {"epochs": stated.passes} if passes else {"steps": stated.steps}
    elif training.steps_left_open:
        on_sum = config.noise_at == "sum"
        share = _share_before(config, members, parameters, epsilon)
        due = 1 if share is None else steps_for(share, training.rounds, on_sum=on_sum)  # (11.3)
        chosen["epochs" if batch < most and not on_sum else "steps"] = due
    return replace(config, chosen=chosen)


def _share_before(
    config: Config, members: Roster, parameters: int, epsilon: ArrayLike | None
) -> float | None:
    """(11.1) before anybody reports."""
    if epsilon is None:
        return None
    assert config.delta is not None  # whoever promises an epsilon states one
    return noise_share(
        np.full(len(members), 1 / len(members)), epsilon, members.sizes, config.delta, parameters,
        on_sum=config.noise_at == "sum", batch_size=config.stated.batch_size,
        batches="poisson" if getattr(config.privacy, "batches", None) == "poisson" else "passes",
    )  # fmt: skip


def settled_share(
    config: Config, members: Roster, parameters: int, promise: Promise, who: Participation
) -> float:
    """(11.1) of the plan; `who` takes part in the first round.

    Of S steps in batches of d a record is in q: their noise over the way of S clipped steps
    is that of d sqrt(S/q) records in one batch; sqrt(n d) in whole passes.
    """
    spec = config.local.local_training(1.0, promise.clip, batches=promise.batches)
    alike = {
        size: min(spec.batch_size, size) * math.sqrt(step_count(size, spec) / record_steps(size, spec))
        for size in {*members.sizes.tolist()}
        if size
    }
    counted_as = members.sizes
    if promise.batches == "passes":
        counted_as = np.array([alike.get(size, 0.0) for size in members.sizes.tolist()])
    return noise_share(
        expected_weights(members, who), promise.epsilon, counted_as, promise.delta, parameters,
        on_sum=promise.noise_at == "sum", batches=promise.batches, calibration=promise.calibration,
    )  # fmt: skip


def expected_weights(members: Roster, who: Participation) -> Floats:
    """(N,) what everybody counts in a round on average; where nobody can say, by its records."""
    if who.expected is not None:
        return np.asarray(who.expected, dtype=np.float64)
    return np.asarray(members.sizes / max(1, members.sizes.sum()), dtype=np.float64)


def settled_rate(config: Config, members: Roster, share: float, clip: float) -> float:
    """(11.4): of the first round, where later ones may be slower."""
    local = config.local
    rounds = float(np.power(local.learning_rate_decay, np.arange(local.rounds, dtype=np.float64)).sum())
    steps = max(local.local_steps(int(size)) for size in members.sizes)
    return rate_for(share, clip, steps * rounds)


def chosen_for(config: Config, share: float | None, learning_rate: float | None = None) -> Chosen | None:
    """All that was chosen; None: nothing was left open."""
    left = config.stated
    if config.noise is None or not (config.chosen or left.learning_rate is None):
        return None
    return Chosen(
        share, config.chosen.get("batch_size"), config.chosen.get("steps"), config.chosen.get("epochs"),
        learning_rate if left.learning_rate is None else None,
    )  # fmt: skip
