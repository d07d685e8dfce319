"""The seam to clients: what a federation answers is all that a server sees.

    report(question)        what clients state about themselves, by name
    total(tasks, shares)    they work; the weighted sum, who delivered, what was released; no single answer
    replies(tasks)          they work; the answer of each, or why there is none

An answer has a row per model, and so has a sum. With shares per model, as many sums are made in one
exchange, over different clients: who has share 0 in a row is not in that sum, and where clients are
elsewhere its answer for that row never leaves it.

A mechanism declares whether it needs `total` or `replies` (`Mechanism.needs`); federations that add up in
secret, or while answers arrive, offer only the first, and say so: `offers = ("total",)`. Nothing above this
seam holds a record: clients are known through a `Roster`, their names and what they agreed to reveal.

A task says what one client is sent and what to do with it. It has an identifier: asked again, a client
gives the same answer; different work under the same identifier is refused. A client that fails, is late or
gives a wrong kind of answer is a `Failure`, never an exception; the mechanism decides what to do about it.
A failure says whether the client was absent: then it depends on no record, and is no secret.

Noise that protects a client is drawn on its side of the seam, from its own secret. The order in which it
processes its records is not secret, and comes with the task.

Implementations: `learning.local` (all tasks of a round as one program, on this machine),
`learning.function_federation` (a function of the user's).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue
from bonafed.learning.privacy.ledger import Release
from bonafed.learning.work import LocalTraining

Models = NDArray[Any]  # (m, P) in the precision of the model
Ints = NDArray[np.int64]
# values, standard deviation, the request as bytes, numbers released before -> values to publish
AddNoise = Callable[[Floats, float, bytes, int], Floats]
Need = Literal["total", "replies"]
UNNAMED = "unnamed"  # before the number of a client whose name nobody said


@dataclass(frozen=True, eq=False)
class Roster:
    """Who is in the federation, and what everybody agreed to reveal; no record of anybody."""

    names: tuple[str, ...]  # (N,) no two alike (`checks.names`)
    sizes: NDArray[np.int64]  # (N,) records of each
    shape: tuple[int, ...] = ()  # of the features of one record
    classes: int = 0  # of the labels; 0: targets are real numbers
    # agreed bound on the norm of a record's features with a constant 1 appended; None: not bounded
    feature_bound: float | None = None
    vocabulary: int = 0  # size, where features are words; 0: they are numbers
    smoothness: float | None = None  # L of every client's loss, where all agreed on a bound
    strong_convexity: float | None = None  # mu, likewise
    class_names: tuple[str, ...] = ()  # (classes,) where they have names

    def __post_init__(self) -> None:
        checks.names("clients", self.names)
        if self.class_names and len(checks.names("class_names", self.class_names, "name of a class")) != (
            self.classes
        ):
            raise InvalidValue(
                "class_names", f"must be {self.classes}, one per class", len(self.class_names)
            )
        if len(self.names) != len(self.sizes):
            raise InvalidValue("sizes", f"must be {len(self.names)}, one per client", len(self.sizes))

    @cached_property
    def index(self) -> dict[str, int]:
        """The place of each name."""
        return {name: index for index, name in enumerate(self.names)}

    def only(self, names: Collection[str]) -> Roster:
        """Those of them with these names, in their order."""
        here = [index for index, name in enumerate(self.names) if name in names]
        if len(here) == len(self):
            return self
        return replace(self, names=tuple(self.names[index] for index in here), sizes=self.sizes[here])

    def __len__(self) -> int:
        return len(self.names)


@dataclass(frozen=True, slots=True)
class Question:
    """What every client is asked to state."""

    name: str  # a column of a file of reports: "cost"
    unit: str  # "money per participation"
    # what so many simulated clients know of themselves: simulate(clients) or simulate(clients, seed)
    simulate: Callable[..., Floats] | None = None
    optional: bool = False  # whether a run goes on without those who do not state it
    names: tuple[str, ...] = ()  # of all who are asked, where a contract lists them

    def require_enough(self, reports: Mapping[str, float], clients: int) -> None:
        """Refuse fewer reports than clients where a run cannot go on without anybody."""
        if len(reports) < clients and not self.optional:
            rule = (
                f"must come from all {clients} clients, as the terms of each depend on them: wait for the "
                "others, or begin again without them"
            )
            raise InvalidValue("reports", rule, len(reports))


@dataclass(frozen=True, slots=True)
class Train:
    """Local training from one model; the answer is how the weights changed, (1, P)."""

    training: LocalTraining  # steps, batch, rate, optimizer, clip
    round_number: int
    seed: int  # for the order of records
    copy: int = 0  # 0, 1, ... if the client has several tasks in the round
    noise_multiplier: float = 0.0  # noise over sensitivity in every step, drawn by the client; 0: none

    def __post_init__(self) -> None:
        if not 0 <= self.noise_multiplier < math.inf:
            checks.non_negative("noise_multiplier", self.noise_multiplier)  # refuses it by name


@dataclass(frozen=True, slots=True)
class Objective:
    """A client's loss: the mean over its records, plus regulariser/2 |w|^2.

    "linear": softmax regression for classes, least squares for real targets, on features with a constant,
    divided by `scale`; "module": the loss of the model that the federation trains.
    """

    regulariser: float
    kind: Literal["linear", "module"] = "linear"
    scale: float = 1.0  # agreed scale, so that features with the constant have norm at most 1
    shorten: bool = False  # scale each record's features separately to norm at most 1


@dataclass(frozen=True, slots=True)
class Gradients:
    """The gradients of the objective at the models; the answer is (m, P)."""

    objective: Objective
    clip: float | None = None  # every record's gradient is scaled to at most this norm
    # numbers released with noise before this, or before each row: where reproducible noise continues
    released: int | tuple[int, ...] = 0


@dataclass(frozen=True, slots=True)
class Losses:
    """The objective at the models; the answer is (m, 1).

    With a limit: the mean change of a record's loss from every later model to the first, each record's
    within +-limit; the answer is (m - 1, 1).
    """

    objective: Objective
    limit: float | tuple[float, ...] | None = None  # the same for all rows of the answer, or one for each
    released: int | tuple[int, ...] = 0  # as in `Gradients`


@dataclass(frozen=True, slots=True)
class Alone:
    """The model of a client on its own, trained from the one it is sent; the answer is (1, P)."""

    objective: Objective
    tolerance: float = 1e-6  # how far above its minimum the objective may be, where it is strongly convex
    steps: int = 1000  # plain gradient steps where it is not
    rate: float = 0.0  # of these steps


@dataclass(frozen=True, slots=True)
class Slopes:
    """How fast the objective changes on the way from each model but the last to the last one.

    With W one of the former, w the last and d = w - W: the numbers grad(W + t d)·d for t at the nodes. The
    answer is (m - 1, nodes), a row per way.
    """

    objective: Objective
    nodes: tuple[float, ...]  # increasing, in [0, 1]


Work = Train | Gradients | Losses | Alone | Slopes


class Task(NamedTuple):
    """Work for one client: what it is sent, and what it is to do with it."""

    identifier: str
    client: str  # its name
    models: Models  # (m, P); tasks that share an array share the models
    work: Work


@dataclass(frozen=True, slots=True, eq=False)
class Reply:
    """What a client answered."""

    values: Models  # (m, P), (m, 1) or as the work says
    loss: float = float("nan")  # mean training loss over the steps
    steps: int = 0  # gradient steps taken
    releases: tuple[Release, ...] = ()


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no answer, or no usable one."""

    reason: str  # such as "must be finite, got NaN or inf", or what came instead of an answer
    # gave no answer at all, for reasons that have nothing to do with its records: the network, a killed
    # process, exclusion; everybody on a network sees it, so it may be told where privacy is promised
    absent: bool = False


NOT_FINITE = Failure("must be finite, got NaN or inf; a smaller learning rate may help")


@dataclass(frozen=True, slots=True, eq=False)
class Total:
    """The weighted sum of answers, and who is in it."""

    values: Floats  # (m, P) sum over those who delivered, in double precision
    delivered: tuple[bool, ...]  # of each task
    failures: Mapping[str, Failure] = field(default_factory=dict)  # by identifier
    loss: float = float("nan")  # mean training loss of those who delivered
    steps: int = 0  # gradient steps of all together
    releases: tuple[Release, ...] = ()  # whether or not the answers could be used


@runtime_checkable
class Federation(Protocol):
    """Clients that can be given work."""

    @property
    def members(self) -> Roster: ...

    @property
    def vouched(self) -> Collection[str]:
        """Clients whose answers this process computes, so that they are certainly honest."""
        ...

    def report(self, question: Question) -> Mapping[str, float]:
        """What clients state; those who do not answer are missing."""
        ...

    def total(self, tasks: Sequence[Task], shares: Floats, noise: float | Floats = 0.0) -> Total:
        """Have the tasks done, and add up answers times shares: (tasks,), or (tasks, m) with one per row.

        All tasks are of one kind of work. Noise of this standard deviation, or (m,) one per row, is added
        to every number of the sum, once, on the clients' side of the seam.
        """
        ...

    def replies(self, tasks: Sequence[Task]) -> Mapping[str, Reply | Failure]:
        """Have the tasks done; each answer or failure, by identifier."""
        ...


def require_offered(federation: Federation, need: Need, remedy: str = "") -> None:
    """Refuse a federation that says that it does not answer in this way."""
    offers: Collection[Need] = getattr(federation, "offers", ("total", "replies"))
    if need not in offers:
        rule = f"must offer {need}, which this run needs{remedy}"
        raise InvalidValue("federation", rule, " and ".join(offers) + getattr(federation, "because", ""))


def slopes_from(gradient: Callable[[Models], Models], task: Task) -> Floats:
    """The answer to a task of `Slopes` by a client that computes gradients: at all nodes, times the way.

    >>> work = Slopes(Objective(1.0), nodes=(0.0, 0.5, 1.0))
    >>> task = Task("1", "ada", np.array([[0.0], [2.0]]), work)  # from 0 to 2, where F(w) = w^2/2
    >>> slopes_from(lambda models: models, task)
    array([[0., 2., 4.]])
    """
    assert isinstance(task.work, Slopes)
    nodes, end = np.asarray(task.work.nodes)[:, None], np.asarray(task.models[-1])
    answers = [gradient(start + nodes * (end - start)) * (end - start) for start in task.models[:-1]]
    return np.array([answer.sum(1) for answer in answers]).reshape(len(answers), nodes.size)


def checked_shares(tasks: Sequence[Task], shares: ArrayLike) -> Floats:
    """Shares in a sum of answers: (tasks,), or (tasks, m) with one per model."""
    parts = np.asarray(shares, dtype=np.float64)
    if parts.ndim not in (1, 2) or len(parts) != len(tasks):
        raise InvalidValue("shares", f"must be {len(tasks)}, one per task", f"shape {parts.shape}")
    if parts.ndim == 2 and tasks and parts.shape[1] not in (1, rows := answer_shape(tasks[0])[0]):
        raise InvalidValue("shares", f"must be one per model, {rows} for each task", parts.shape[1])
    return parts


def checked_noise(task: Task, noise: ArrayLike) -> Floats:
    """(m,) the standard deviation of the noise on each row of answers to such a task."""
    rows, sd = answer_shape(task)[0], np.asarray(noise, dtype=np.float64)
    if sd.ndim > 1 or (sd.ndim and sd.size != rows):
        raise InvalidValue("noise", f"must be one for all, or one for each of {rows} rows", sd.size)
    if not ((sd >= 0) & np.isfinite(sd)).all():
        raise InvalidValue("noise", "must not be negative", repr(sd.tolist())[:60])
    return np.broadcast_to(sd, (rows,))


def answer_shape(task: Task) -> tuple[int, int]:
    """The shape of a client's answer."""
    count, size = task.models.shape
    if isinstance(task.work, Losses):
        return (count if task.work.limit is None else count - 1), 1
    if isinstance(task.work, Slopes):
        return count - 1, len(task.work.nodes)
    return count, size


def limits_of(task: Task) -> tuple[float, ...]:
    """(m,) how far a record's loss may change in each row of the answer to a task of limited losses."""
    assert isinstance(task.work, Losses)
    limit, rows = task.work.limit, answer_shape(task)[0]
    assert limit is not None  # they are limited
    return limit if isinstance(limit, tuple) else (limit,) * rows


def positions(task: Task) -> tuple[int, ...]:
    """(m,) numbers released with noise before each row of the answer."""
    released, (rows, width) = getattr(task.work, "released", 0), answer_shape(task)
    if isinstance(released, tuple):
        return released
    return tuple(released + row * width for row in range(rows))


def some_rows(task: Task, rows: Ints) -> Task:
    """The task for these rows of its answer only: nothing of the others is sent.

    >>> task = Task("1", "ada", np.arange(3.0)[:, None], Losses(Objective(1.0), limit=(0.1, 0.2)))
    >>> less = some_rows(task, np.array([1]))
    >>> less.models.ravel(), less.work.limit
    (array([0., 2.]), (0.2,))
    """
    if len(rows) == answer_shape(task)[0]:
        return task
    work, indices, models = task.work, rows.tolist(), task.models[rows]
    if isinstance(work, Slopes):
        models = task.models[[*indices, -1]]
    elif isinstance(work, Gradients | Losses):
        at = positions(task)
        work = replace(work, released=tuple(at[index] for index in indices))
        if isinstance(work, Losses) and work.limit is not None:
            limits, models = limits_of(task), task.models[[0, *(index + 1 for index in indices)]]
            work = replace(work, limit=tuple(limits[index] for index in indices))
    return task._replace(models=models, work=work)


def noisy(values: Floats, sd: ArrayLike, request: bytes, task: Task, add: AddNoise) -> Floats:
    """Answers to such a task, or their sum, with noise: all at once, or row by row where rows differ."""
    released, each = getattr(task.work, "released", 0), checked_noise(task, sd).tolist()
    if np.ndim(sd) == 0 and not isinstance(released, tuple):
        return add(values, each[0], request, released)
    at = positions(task)
    rows = (
        add(row, each[index], request, at[index]) if each[index] else row
        for index, row in enumerate(values)
    )
    return np.stack(list(rows))


def weighted_sum(answers: Iterable[Models], shares: Floats, like: tuple[int, ...]) -> Floats:
    """Answers times shares, added one by one in double precision; zeros of this shape without answers."""
    total = np.zeros(like)
    for values, share in zip(answers, shares, strict=True):
        total += np.asarray(values, dtype=np.float64) * np.reshape(share, (-1, 1))
    return total
