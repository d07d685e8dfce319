"""A federation whose clients are a function (stand-in: the branch `faithful` brings the real one)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bonafed.checks import Floats
from bonafed.errors import InvalidValue
from bonafed.learning.federation import Failure, Question, Reply, Roster, Task, Total, weighted_sum


@dataclass(frozen=True, slots=True, eq=False)
class FunctionFederation:
    """Asks a function."""

    members: Roster
    ask: Callable[[Sequence[Task]], Mapping[str, Any]]

    @property
    def vouched(self) -> Collection[str]:
        """Nobody."""
        return ()

    def report(self, question: Question) -> Mapping[str, float]:
        """Nothing."""
        raise InvalidValue("reports", "must be stated", "nothing")

    def total(self, tasks: Sequence[Task], shares: Floats, noise: float = 0.0) -> Total:
        """The sum of replies."""
        answers = self.replies(tasks)
        good = [isinstance(answers[t.identifier], Reply) for t in tasks]
        values = [np.asarray(answers[t.identifier].values) for t, g in zip(tasks, good, strict=True) if g]  # type: ignore[union-attr]
        return Total(weighted_sum(values, shares[good], tasks[0].models.shape), tuple(good))

    def replies(self, tasks: Sequence[Task]) -> Mapping[str, Reply | Failure]:
        """What the function says."""
        answers: dict[str, Reply | Failure] = {}
        said = self.ask(tasks)
        for task in tasks:
            one = said.get(task.identifier)
            if one is None:
                answers[task.identifier] = Failure("must be an update, got no answer")
            elif isinstance(one, Exception):
                answers[task.identifier] = Failure(str(one))
            else:
                answers[task.identifier] = one if isinstance(one, Reply) else Reply(np.asarray(one))
        return answers
