"""Local training through the seam: everybody present is asked for one round from its own model.

Every client starts each round from its own model with a new optimizer, at a learning rate that falls by a
factor per round, as in the paper's experiments. All tasks of a round go out together, so that the engine
answers them as one program and a real federation in one exchange.

A client that is absent, of whom no answer came at all, neither sends nor receives in this round, as one
that was not to be there (theory D1); that ends no run. One that answers with something that is no update is
handled by policy:

    "raise"   the run ends with a `BadUpdate` that names it
    "skip"    it counts as absent in this round
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bonafed import checks
from bonafed.errors import BadUpdate, InvalidValue
from bonafed.learning.federation import NOT_FINITE, Failure, Federation, Reply, Task, Train
from bonafed.learning.sections import BadUpdatePolicy
from bonafed.learning.work import LocalTraining
from bonafed.mechanisms.rewards.measures import Models
from bonafed.mechanisms.rewards.server import Bools

_USUAL_TRAINING = LocalTraining(batch_size=32, learning_rate=0.01)
DECAY = 0.977  # of the learning rate per round: to a tenth in 100 rounds (paper, appendix E.1)


@dataclass(frozen=True, slots=True)
class LocalRounds:
    """What clients are asked to do in every round; a federation of functions may look at none of it."""

    training: LocalTraining = _USUAL_TRAINING  # in the first round
    seed: int = 0  # of the order of records
    decay: float = DECAY  # factor on the learning rate from round to round, in (0, 1]
    name: str = "rewards"  # tasks are "name/round/client"
    on_failure: BadUpdatePolicy = "raise"

    def __post_init__(self) -> None:
        checks.between("decay", checks.positive("decay", self.decay), 0.0, 1.0)
        checks.seed("seed", self.seed)
        checks.literal("on_failure", self.on_failure, BadUpdatePolicy)

    def learning_rate(self, round_number: int) -> float:
        """Of round 1, 2, ..."""
        return self.training.learning_rate * self.decay ** (round_number - 1)

    def work(self, round_number: int) -> Train:
        """Of round 1, 2, ..."""
        spec = replace(self.training, learning_rate=self.learning_rate(round_number))
        return Train(spec, round_number, self.seed)


USUAL = LocalRounds()


@dataclass(frozen=True, slots=True, eq=False)
class Uploads:
    """What came back from the clients of a round."""

    updates: Models  # (N, P) in the precision of the models; zeros from those who are not in it
    present: Bools  # (N,) who was there and delivered
    failed: Bools  # (N,) who was there and did not
    steps: int = 0  # gradient steps of all together
    loss: float = float("nan")  # mean training loss of those who delivered


def ask(
    federation: Federation, rounds: LocalRounds, models: Models, round_number: int, present: Bools
) -> Uploads:
    """One round of local training of everybody present, each from its own row of `models` (N, P)."""
    names = federation.members.names
    if models.shape[0] != len(names):
        raise InvalidValue("models", f"must be {len(names)}, one per client", models.shape[0])
    nobody = np.zeros(len(names), dtype=bool)
    if not present.any():
        return Uploads(np.zeros_like(models), nobody, nobody)
    work = rounds.work(round_number)
    tasks = {
        i: Task(f"{rounds.name}/{round_number}/{names[i]}", names[i], models[i : i + 1], work)
        for i in np.flatnonzero(present).tolist()
    }
    answers = federation.replies(list(tasks.values()))
    updates, delivered = np.zeros_like(models), nobody.copy()
    steps, losses = 0, []
    for i, task in tasks.items():
        answer = _usable(answers.get(task.identifier), models)
        if isinstance(answer, Failure):
            if rounds.on_failure == "raise" and not answer.absent:
                raise BadUpdate(names[i], round_number, answer.reason)
            continue
        updates[i], delivered[i] = answer.values[0], True
        steps += answer.steps
        losses.append(answer.loss)
    mean = sum(losses) / len(losses) if losses else float("nan")
    return Uploads(updates, delivered, present & ~delivered, steps, mean)


def _usable(answer: Reply | Failure | None, models: Models) -> Reply | Failure:
    """The answer, if it is one update of these models, of numbers that are finite in their precision."""
    size = models.shape[1]
    if answer is None:
        return Failure("must be an update, got no answer", absent=True)
    if isinstance(answer, Failure):
        return answer
    if answer.values.shape != (1, size):
        return Failure(f"must have shape {(1, size)}, got shape {answer.values.shape}")
    with np.errstate(over="ignore"):  # refused in the next line
        values = answer.values.astype(models.dtype, copy=False)
    if not np.isfinite(values).all():
        return NOT_FINITE
    return answer
