"""A federation whose clients are reached through a function of yours.

`ask` gets all the tasks of a step at once and returns the answers by identifier: an array, a `Reply`, None
(or no entry) for no answer, or the exception that came instead. How clients are reached is up to it. A
client is responsible for its answer: one that cannot be used becomes a `Failure` that says why. It is not
responsible for `ask`: if that fails as a whole, `AskFailed` is raised, which blames no client. Retrying is
left to `ask`, which knows what is worth retrying.

Nobody is vouched for: whoever needs to know whether an answer is honest has to check it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import ArrayLike

from bonafed.checks import Floats
from bonafed.errors import AskFailed, InvalidValue
from bonafed.learning.federation import (
    Failure,
    Losses,
    Question,
    Reply,
    Roster,
    Task,
    Total,
    weighted_sum,
)

Answer = ArrayLike | Reply | BaseException | None
Ask = Callable[[Sequence[Task]], Mapping[str, Answer]]  # answers by identifier
NOT_FINITE = "NaN or inf"


@dataclass(frozen=True, slots=True, eq=False)
class FunctionFederation:
    """Clients that a function asks.

    >>> from bonafed.learning.federation import Gradients, Objective
    >>> targets = {"ada": 1.0, "ben": 3.0}  # F(w) = (w - target)^2/2
    >>> def ask(tasks):
    ...     return {task.identifier: task.models - targets[task.client] for task in tasks}
    >>> federation = FunctionFederation(Roster(("ada", "ben"), np.ones(2, dtype=np.int64)), ask)
    >>> work, model = Gradients(Objective(1.0)), np.zeros((1, 1))
    >>> tasks = [Task(f"step 1, {name}", name, model, work) for name in targets]
    >>> federation.total(tasks, np.array([0.5, 0.5])).values
    array([[-2.]])
    """

    members: Roster
    ask: Ask
    state: Callable[[Question], Mapping[str, float]] | None = None  # what clients report
    _digests: dict[str, bytes] = field(default_factory=dict, repr=False)  # of all tasks, by identifier

    @property
    def vouched(self) -> Collection[str]:
        """Nobody."""
        return ()

    def report(self, question: Question) -> Mapping[str, float]:
        """What the function `state` returns."""
        if self.state is None:
            rule = f"must be a function that asks clients for their {question.name}"
            raise InvalidValue("state", rule, None)
        reports = self.state(question)
        if unknown := [name for name in reports if name not in self.members.index]:
            rule = "must be of clients in the roster"
            raise InvalidValue(f"reports of {question.name}", rule, unknown[0])
        return dict(reports)

    def total(self, tasks: Sequence[Task], shares: Floats, noise: float = 0.0) -> Total:
        if noise:
            rule = "must be 0: noise is added on the clients' side, where this federation cannot see"
            raise InvalidValue("noise", rule, noise)
        replies = self.replies(tasks)
        order = sorted(range(len(tasks)), key=lambda place: self.members.index[tasks[place].client])
        parts = np.asarray(shares, dtype=np.float64)
        usable = [
            (place, reply)
            for place in order
            if isinstance(reply := replies[tasks[place].identifier], Reply)
        ]
        failures = {name: reply for name, reply in replies.items() if isinstance(reply, Failure)}
        shape = answer_shape(tasks[0]) if tasks else (1, 1)
        losses = [reply.loss for _, reply in usable]
        return Total(
            weighted_sum([reply.values for _, reply in usable], parts[[at for at, _ in usable]], shape),
            tuple(task.identifier not in failures for task in tasks),
            failures,
            sum(losses) / len(losses) if losses else float("nan"),
            sum(reply.steps for _, reply in usable),
            tuple(release for _, reply in usable for release in reply.releases),
        )

    def replies(self, tasks: Sequence[Task]) -> Mapping[str, Reply | Failure]:
        if not tasks:
            return {}
        self._remember(tasks)
        try:
            answers = self.ask([task._replace(models=task.models.copy()) for task in tasks])
        except OSError as error:  # includes timeouts and lost connections
            detail = f": {error}" if str(error) else ""
            raise AskFailed(type(error).__name__ + detail) from error
        if not isinstance(answers, Mapping):
            raise AskFailed(f"ask must return a mapping of answers by task, got {type(answers).__name__}")
        identifiers = {task.identifier for task in tasks}
        if unknown := [name for name in answers if name not in identifiers]:
            raise AskFailed(f"ask must answer tasks it was handed, got {', '.join(map(repr, unknown))}")
        return {
            task.identifier: usable_answer(answers.get(task.identifier), answer_shape(task))
            for task in tasks
        }

    def _remember(self, tasks: Sequence[Task]) -> None:
        """Refuse different work under an identifier that was used before."""
        for task in tasks:
            if task.client not in self.members.index:
                raise InvalidValue("client", "must be in the roster", repr(task.client))
            content = hashlib.sha256(repr((task.client, task.work, task.models.shape)).encode())
            content.update(np.ascontiguousarray(task.models).data)
            if self._digests.setdefault(task.identifier, content.digest()) != content.digest():
                raise InvalidValue(
                    "identifier", "must not be reused for different work", repr(task.identifier)
                )


def answer_shape(task: Task) -> tuple[int, int]:
    """The shape of a client's answer."""
    count, size = task.models.shape
    if isinstance(task.work, Losses):
        return (count if task.work.limit is None else 1), 1
    return count, size


def usable_answer(answer: object, shape: tuple[int, ...]) -> Reply | Failure:
    """A client's answer as a copy of its numbers, if they can be added to those of the others."""
    if answer is None:
        return Failure("nothing")
    if isinstance(answer, Failure):
        return answer
    if isinstance(answer, BaseException):
        text = str(answer)
        return Failure(f"no answer ({type(answer).__name__}{f': {text}' if text else ''})")
    if isinstance(answer, Reply):
        numbers = _numbers(answer.values, shape)
        return numbers if isinstance(numbers, Failure) else replace(answer, values=numbers)
    numbers = _numbers(answer, shape)
    return numbers if isinstance(numbers, Failure) else Reply(numbers)


def _numbers(answer: object, shape: tuple[int, ...]) -> Floats | Failure:
    """The numbers as a copy, so that what was checked cannot change with a buffer."""
    try:
        array = np.asarray(answer)
    except (TypeError, ValueError, OverflowError, RuntimeError):  # the last is torch's
        return Failure(f"no numbers ({type(answer).__name__})")
    if array.dtype.kind not in "iuf":  # neither complex, which would lose a part, nor text
        kind = type(answer).__name__ if array.dtype.kind in "OUSV" else array.dtype.name
        return Failure(f"no real numbers ({kind})")
    if array.shape != shape:
        return Failure(f"shape {array.shape} instead of {shape}")
    with np.errstate(over="ignore"):
        numbers = np.array(array, dtype=np.float64)
    return numbers if np.isfinite(numbers).all() else Failure(NOT_FINITE)
