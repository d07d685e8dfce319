"""A federation whose clients are reached through a function of yours.

`ask` gets all the tasks of a step at once and returns the answers by identifier: an array, a `Reply`, None
(or no entry) for no answer, or the exception that came instead. How clients are reached is up to it. A
client is responsible for its answer: one that cannot be used becomes a `Failure` that says why. It is not
responsible for `ask`: if that fails as a whole, `AskFailed` is raised, which blames no client. Retrying is
left to `ask`, which knows what is worth retrying.

A client of whom nothing came (None, no entry, or an `OSError`, as timeouts and lost connections are) was
absent (`Failure.absent`). Runs that promise privacy name whoever was, so None must not stand for something
that depends on records: a client that cannot answer because of them answers with an exception, or NaN.

Nobody is vouched for: whoever needs to know whether an answer is honest has to check it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import AskFailed, InvalidValue
from bonafed.learning.federation import (
    Failure,
    Question,
    Reply,
    Roster,
    Task,
    Total,
    answer_shape,
    checked_shares,
    weighted_sum,
)
from bonafed.learning.privacy.ledger import Release

Answer = ArrayLike | Reply | BaseException | None
Ask = Callable[[Sequence[Task]], Mapping[str, Answer]]  # answers by identifier
NOT_FINITE = "NaN or inf"  # how the reason begins, where numbers are not finite
MOST_STEPS = 10**9  # that a client may claim in one answer, and as many releases


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
        """Nobody is vouched for: any answer may be dishonest."""
        return ()

    def report(self, question: Question) -> Mapping[str, float]:
        """What the function `state` returns."""
        if self.state is None:
            rule = f"must be a function that asks clients for their {question.name}"
            raise InvalidValue("state", rule, None)
        reports = self.state(question)
        if not isinstance(reports, Mapping):
            rule = f"must return each client's {question.name} by name"
            raise InvalidValue("state", rule, type(reports).__name__)
        if unknown := [name for name in reports if name not in self.members.index]:
            rule = "must be of clients in the roster"
            raise InvalidValue(f"reports of {question.name}", rule, unknown[0])
        return {
            name: checks.number(f"{question.name} of client {name!r}", value)
            for name, value in reports.items()
        }

    def total(self, tasks: Sequence[Task], shares: Floats, noise: float | Floats = 0.0) -> Total:
        if np.any(noise):
            rule = (
                "must be 0: noise is added on the clients' side, where this federation cannot see "
                '(with noise_at = "client" each adds its own)'
            )
            raise InvalidValue("noise", rule, noise)
        parts = checked_shares(tasks, shares)
        replies = self.replies(tasks)
        order = sorted(range(len(tasks)), key=lambda index: self.members.index[tasks[index].client])
        usable = [
            (index, reply)
            for index in order
            if isinstance(reply := replies[tasks[index].identifier], Reply)
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
        except OSError as error:  # timeouts and lost connections are
            detail = f": {error}" if str(error) else ""
            raise AskFailed(type(error).__name__ + detail) from error
        if not isinstance(answers, Mapping):
            raise AskFailed(f"ask must return a mapping of answers by task, got {type(answers).__name__}")
        identifiers = {task.identifier for task in tasks}
        if unknown := [name for name in answers if name not in identifiers]:
            raise AskFailed(f"ask must answer tasks it was handed, got {', '.join(map(repr, unknown))}")
        return {
            task.identifier: usable_answer(
                answers.get(task.identifier),
                answer_shape(task),
                task.models.dtype,
                self.members.index[task.client],
            )
            for task in tasks
        }

    def _remember(self, tasks: Sequence[Task]) -> None:
        """Refuse different work under an identifier that was used before, and the same twice at once."""
        identifiers = set[str]()
        for task in tasks:
            if task.identifier in identifiers:
                raise InvalidValue("identifier", "must be of one task only", repr(task.identifier))
            identifiers.add(task.identifier)
            if task.client not in self.members.index:
                raise InvalidValue("client", "must be in the roster", repr(task.client))
            content = hashlib.sha256(repr((task.client, task.work, task.models.shape)).encode())
            content.update(np.ascontiguousarray(task.models).data)
            if self._digests.setdefault(task.identifier, content.digest()) != content.digest():
                raise InvalidValue(
                    "identifier", "must not be reused for different work", repr(task.identifier)
                )


def usable_answer(
    answer: object, shape: tuple[int, ...], precision: DTypeLike = np.float64, client: int | None = None
) -> Reply | Failure:
    """A client's answer as a copy of its numbers, if they can be added to those of the others.

    `precision` is that of the models, in which they must be finite; `client` the place of the client, the
    only one whose releases it may report (None: it may report none).
    """
    try:
        return _usable(answer, shape, np.dtype(precision), client)
    except InvalidValue as error:
        return Failure(str(error))
    except Exception as error:  # reading it runs code that came with it, such as `__array__`
        return Failure(f"no answer that can be read ({type(error).__name__})")


def _usable(
    answer: object, shape: tuple[int, ...], precision: np.dtype[Any], client: int | None
) -> Reply | Failure:
    if answer is None:
        return Failure("nothing", absent=True)
    if isinstance(answer, Failure):
        return Failure(str(answer.reason), answer.absent is True)
    if isinstance(answer, BaseException):
        text, lost = str(answer), isinstance(answer, OSError)  # timeouts and lost connections are
        return Failure(f"no answer ({type(answer).__name__}{f': {text}' if text else ''})", lost)
    if not isinstance(answer, Reply):
        numbers = _numbers(answer, shape, precision)
        return numbers if isinstance(numbers, Failure) else Reply(numbers)
    numbers = _numbers(answer.values, shape, precision)
    if isinstance(numbers, Failure):
        return numbers
    steps = checks.whole("steps", answer.steps, at_least=0, at_most=MOST_STEPS)
    return Reply(numbers, _loss(answer.loss), steps, _releases(answer.releases, client))


def _loss(value: object) -> float:
    """A training loss, which may be unknown (NaN) or have overflowed."""
    if isinstance(value, (float, np.floating)) and not np.isfinite(value):
        return float(value)
    return checks.number("loss", value)


def _releases(releases: object, client: int | None) -> tuple[Release, ...]:
    """What a client says that it released, if that can be counted."""
    if not isinstance(releases, (tuple, list)) or isinstance(releases, Release):
        raise InvalidValue("releases", "must be a sequence of releases", type(releases).__name__)
    return tuple(_release(release, client) for release in releases)


def _release(release: object, client: int | None) -> Release:
    if not isinstance(release, Release):
        raise InvalidValue("releases", "must be a sequence of releases", type(release).__name__)
    if client is None or checks.whole("client of a release", release.client, at_least=0) != client:
        raise InvalidValue("client of a release", "must be the one who answers", release.client)
    return Release(
        client,
        checks.whole("round of a release", release.round_number, at_least=0),
        checks.positive("multiplier of a release", release.multiplier),
        checks.whole("times of a release", release.times, at_least=0, at_most=MOST_STEPS),
        None
        if release.steps is None
        else checks.whole("steps of a release", release.steps, at_least=0, at_most=MOST_STEPS),
        None if release.rate is None else checks.between("rate of a release", release.rate, 0.0, 1.0),
    )


def _numbers(answer: object, shape: tuple[int, ...], precision: np.dtype[Any]) -> Floats | Failure:
    """The numbers as a copy, so that what was checked cannot change with a buffer."""
    try:
        array = np.asarray(answer)
    except Exception:  # whatever `__array__` raises
        return Failure(f"no numbers ({type(answer).__name__})")
    if array.dtype.kind not in "iuf":  # neither complex, which would lose a part, nor text
        kind = type(answer).__name__ if array.dtype.kind in "OUSV" else array.dtype.name
        return Failure(f"no real numbers ({kind})")
    if array.shape != shape:
        return Failure(f"shape {array.shape} instead of {shape}")
    with np.errstate(over="ignore"):
        numbers = np.array(array, dtype=np.float64)
        if not np.isfinite(numbers).all():
            return Failure(NOT_FINITE)
        if precision.kind == "f" and not np.isfinite(numbers.astype(precision)).all():
            return Failure(f"{NOT_FINITE} in {precision.name}")
    return numbers
