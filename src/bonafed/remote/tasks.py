"""Tasks and answers as plain data and numbers.

A message of kind "work" bundles all tasks of an exchange for one client: `tasks`, a list of

    {"identifier": text, "work": {"kind": ..., ...}, "noise": sd, "shape": [m, P], "at": offset}

whose models are m times P numbers of the body from the offset on; tasks with the same models share them.
`noise` is the standard deviation of what the client adds to every number of an answer that is not trained,
or a list with one per row of the answer (in local training the work itself says how much). `released` and
`limit` of a work are one number or a list likewise. The answer has `answers`, in the same order,

    {"identifier": text, "shape": [m, P], "at": offset, "loss": number or null, "steps": n,
     "releases": [[round, multiplier, times, steps or null, rate or null], ...]}

or {"identifier": text, "failure": reason} for work that was tried, {"identifier": text, "refused": reason}
for what the client will not do. Every key is required, and no other is allowed.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bonafed import checks
from bonafed.errors import InvalidValue, MissingValue
from bonafed.learning.federation import (
    Alone,
    Failure,
    Gradients,
    Losses,
    Objective,
    Reply,
    Slopes,
    Task,
    Train,
    Work,
    answer_shape,
)
from bonafed.learning.privacy.ledger import Release
from bonafed.learning.work import LocalTraining
from bonafed.remote.messages import JSONObject, canonical
from bonafed.sections import flag, natural

_KINDS: Mapping[str, type] = {
    "train": Train, "gradients": Gradients, "losses": Losses, "alone": Alone, "slopes": Slopes,
}  # fmt: skip
_NAMES = {kind: name for name, kind in _KINDS.items()}
MOST_TASKS = 10_000  # in one message


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """A task as a client is asked for it."""

    task: Task
    # standard deviation of what it adds to every number of its answer, or of each row of it; 0: nothing
    noise: float | tuple[float, ...]

    @property
    def digest(self) -> str:
        """Of everything that is asked: other content under the same identifier has another one."""
        content = canonical([self.task.client, work_to_json(self.task.work), self.noise])
        models = np.ascontiguousarray(self.task.models)
        hasher = hashlib.sha256(content + f"{models.dtype.str}{models.shape}".encode())
        hasher.update(models.data)
        return hasher.hexdigest()


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a client will not do, and by which rule."""

    reason: str


Answer = Reply | Failure | Refusal


def work_to_json(work: Work) -> JSONObject:
    """Plain data from which `work_from_json` makes the same work; what came later is left out where it
    changes nothing, so that clients of earlier versions understand it."""
    data = {"kind": _NAMES[type(work)], **asdict(work)}
    if isinstance(work, Train) and work.training.augmentation == "none":
        del data["training"]["augmentation"]
    return data


def work_from_json(data: object) -> Work:
    """Work as a client is asked for it; whatever does not fit is refused by name."""
    if not isinstance(data, dict):
        raise InvalidValue("work", "must be an object", type(data).__name__)
    name = data.get("kind")
    if not isinstance(name, str) or name not in _KINDS:
        raise InvalidValue("work.kind", f"must be one of {', '.join(_KINDS)}", repr(name)[:60])
    values = {key: value for key, value in data.items() if key != "kind"}
    work: Work = _made(_KINDS[name], values, "work")
    return work


def _made(kind: type, data: object, name: str) -> Any:
    """A frozen value of the seam from plain data: every field, no other, each by its rule."""
    if not isinstance(data, dict):
        raise InvalidValue(name, "must be an object", type(data).__name__)
    known = {item.name for item in fields(kind)}
    for key in data:
        if key not in known:
            raise InvalidValue(f"{name}.{key}"[:90], "must be absent", repr(data[key])[:60])
    for key in known - _LATER:
        if key not in data:
            raise MissingValue(f"{name}.{key}")
    values = {key: _RULES[key](f"{name}.{key}", value) for key, value in data.items()}
    try:
        return kind(**values)
    except InvalidValue as error:
        raise error.renamed(f"{name}.{error.name}") from error


_LATER = {"augmentation"}  # keys that earlier versions did not have


def _maybe(rule: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    return lambda name, value: None if value is None else rule(name, value)


def _rates(name: str, value: object) -> tuple[float, ...]:
    if not isinstance(value, list | tuple):
        raise InvalidValue(name, "must be a list of numbers", type(value).__name__)
    return tuple(checks.number(f"{name}[{at}]", entry) for at, entry in enumerate(value))


def _one_or_each(rule: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    """One value for all rows, or a list with one per row."""

    def checked(name: str, value: object) -> Any:
        if not isinstance(value, list | tuple):
            return rule(name, value)
        return tuple(rule(f"{name}[{at}]", entry) for at, entry in enumerate(value))

    return checked


def _nodes(name: str, value: object) -> tuple[float, ...]:
    nodes = _rates(name, value)
    if not nodes or any(not 0 <= node <= 1 for node in nodes) or list(nodes) != sorted(set(nodes)):
        raise InvalidValue(name, "must increase within [0, 1]", repr(value)[:60])
    return nodes


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise InvalidValue(name, "must be text", repr(value)[:60])
    return value


def _kind_of_objective(name: str, value: object) -> str:
    return checks.one_of(name, value, ("linear", "module"))


_RULES: Mapping[str, Callable[[str, Any], Any]] = {
    "training": lambda name, value: _made(LocalTraining, value, name),
    "objective": lambda name, value: _made(Objective, value, name),
    "round_number": checks.whole, "seed": checks.seed, "copy": natural,
    "noise_multiplier": checks.non_negative,
    "clip": _maybe(checks.positive), "released": _one_or_each(natural),
    "limit": _maybe(_one_or_each(checks.positive)),
    "tolerance": checks.positive, "steps": _maybe(checks.whole), "rate": checks.non_negative,
    "nodes": _nodes,
    "regulariser": checks.non_negative, "kind": _kind_of_objective, "scale": checks.positive,
    "shorten": flag,
    "batch_size": checks.whole, "learning_rate": checks.positive, "epochs": _maybe(checks.whole),
    "optimizer": _text, "momentum": checks.non_negative, "weight_decay": checks.non_negative,
    "batches": _text, "later_rates": _maybe(_rates), "augmentation": _text,
}  # fmt: skip


def pack_tasks(asked: Sequence[Asked]) -> tuple[list[JSONObject], NDArray[Any]]:
    """The tasks of one client as plain data, and the numbers of all their models, each set once."""
    offsets, parts, end = dict[int, int](), list[NDArray[Any]](), 0
    rows = list[JSONObject]()
    for each in asked:
        models = each.task.models
        if id(models) not in offsets:
            offsets[id(models)] = end
            parts.append(np.ascontiguousarray(models).ravel())
            end += models.size
        rows.append(
            {
                "identifier": each.task.identifier, "work": work_to_json(each.task.work),
                "noise": each.noise, "shape": list(models.shape), "at": offsets[id(models)],
            }
        )  # fmt: skip
    return rows, np.concatenate(parts)


def unpack_tasks(rows: object, numbers: NDArray[Any] | None, client: str) -> list[Asked]:
    """The tasks of a message to this client."""
    if not isinstance(rows, list) or not 0 < len(rows) <= MOST_TASKS:
        raise InvalidValue("tasks", f"must be a list of 1 to {MOST_TASKS:,}", type(rows).__name__)
    if numbers is None or numbers.dtype.kind != "f":
        raise InvalidValue(
            "models", "must be floating-point numbers", "none" if numbers is None else "others"
        )
    asked, models_at = list[Asked](), dict[tuple[int, ...], NDArray[Any]]()
    for row in rows:
        _require_keys(row, ("at", "identifier", "noise", "shape", "work"), "task")
        shape, at = _shape_and_offset(row, numbers)
        if (*shape, at) not in models_at:
            models_at[(*shape, at)] = numbers[at : at + math.prod(shape)].reshape(shape)
        identifier = _text("identifier", row["identifier"])
        task = Task(identifier, client, models_at[(*shape, at)], work_from_json(row["work"]))
        noise = _one_or_each(checks.non_negative)("noise", row["noise"])
        _require_rows(task, noise)
        asked.append(Asked(task, noise))
    if len({each.task.identifier for each in asked}) < len(asked):
        raise InvalidValue("identifier", "must be of one task only", "the same twice")
    return asked


def _require_rows(task: Task, noise: object) -> None:
    """There is something to answer, and what is said for each row is said for all of them."""
    rows = answer_shape(task)[0]
    if rows < 1 or not task.models.shape[1]:
        raise InvalidValue("shape", "must leave a row to answer", list(task.models.shape))
    limit, released = getattr(task.work, "limit", None), getattr(task.work, "released", None)
    for name, value in (("noise", noise), ("work.limit", limit), ("work.released", released)):
        if isinstance(value, tuple) and len(value) != rows:
            raise InvalidValue(name, f"must be one for all, or one for each of {rows} rows", len(value))


def pack_answers(answers: Mapping[str, Answer]) -> tuple[list[JSONObject], NDArray[Any]]:
    """Answers by identifier as plain data, and their numbers."""
    rows, parts, end = list[JSONObject](), list[NDArray[Any]](), 0
    for identifier, answer in answers.items():
        if isinstance(answer, Failure):
            rows.append({"identifier": identifier, "failure": answer.reason})
        elif isinstance(answer, Refusal):
            rows.append({"identifier": identifier, "refused": answer.reason})
        else:
            rows.append({"identifier": identifier, **answer_to_json(answer), "at": end})
            parts.append(np.ascontiguousarray(answer.values).ravel())
            end += answer.values.size
    # the precision of the most precise answer: none loses a digit
    return rows, np.concatenate(parts) if parts else np.zeros(0, dtype="<f4")


def answer_to_json(reply: Reply) -> JSONObject:
    """All of an answer but its numbers."""
    releases = [[r.round_number, r.multiplier, r.times, r.steps, r.rate] for r in reply.releases]
    return {
        "shape": list(reply.values.shape), "loss": checks.finite_or_none(reply.loss), "steps": reply.steps,
        "releases": releases,
    }  # fmt: skip


def unpack_answers(rows: object, numbers: NDArray[Any] | None, position: int) -> dict[str, Answer]:
    """Answers by identifier; `position` is the client's in the roster, the only one that it speaks for."""
    if not isinstance(rows, list) or len(rows) > MOST_TASKS:
        raise InvalidValue("answers", "must be a list", type(rows).__name__)
    answers = dict[str, Answer]()
    for row in rows:
        if not isinstance(row, dict):
            raise InvalidValue("answer", "must be an object", type(row).__name__)
        identifier = _text("identifier", row.get("identifier"))
        if identifier in answers:
            raise InvalidValue("identifier", "must be answered once", identifier)
        if "failure" in row or "refused" in row:
            word = "failure" if "failure" in row else "refused"
            _require_keys(row, sorted(("identifier", word)), "answer")
            reason = _text(word, row[word])[:500]
            answers[identifier] = Failure(reason) if word == "failure" else Refusal(reason)
        else:
            answers[identifier] = _reply(row, numbers, position)
    return answers


def _reply(row: JSONObject, numbers: NDArray[Any] | None, position: int) -> Reply:
    _require_keys(row, ("at", "identifier", "loss", "releases", "shape", "steps"), "answer")
    if numbers is None or numbers.dtype.kind != "f":
        raise InvalidValue("values", "must be floating-point numbers", "others")
    shape, at = _shape_and_offset(row, numbers)
    loss = math.nan if row["loss"] is None else checks.number("loss", row["loss"])
    return Reply(
        numbers[at : at + math.prod(shape)].reshape(shape), loss,
        checks.whole("steps", row["steps"], at_least=0), releases_from(row["releases"], position),
    )  # fmt: skip


def releases_from(rows: object, position: int) -> tuple[Release, ...]:
    """What a client says that it released."""
    if not isinstance(rows, list):
        raise InvalidValue("releases", "must be a list", type(rows).__name__)
    releases = []
    for row in rows:
        if not isinstance(row, list) or len(row) != 5:
            raise InvalidValue(
                "release", "must be round, multiplier, times, steps and rate", repr(row)[:60]
            )
        releases.append(
            Release(
                position, natural("round of a release", row[0]),
                checks.positive("multiplier of a release", row[1]), natural("times of a release", row[2]),
                None if row[3] is None else natural("steps of a release", row[3]),
                None if row[4] is None else checks.between("rate of a release", row[4], 0.0, 1.0),
            )
        )  # fmt: skip
    return tuple(releases)


def _shape_and_offset(row: JSONObject, numbers: NDArray[Any]) -> tuple[tuple[int, int], int]:
    shape = row["shape"]
    if not isinstance(shape, list) or len(shape) != 2:
        raise InvalidValue("shape", "must be two numbers", repr(shape)[:60])
    rows, columns = (natural("shape", value) for value in shape)
    at = natural("at", row["at"])
    if at + rows * columns > numbers.size:
        raise InvalidValue("shape", f"must fit the {numbers.size:,} numbers sent", f"{shape} from {at}")
    return (rows, columns), at


def _require_keys(row: object, keys: Sequence[str], name: str) -> None:
    if not isinstance(row, dict) or sorted(map(str, row)) != list(keys):
        got = ", ".join(map(str, row))[:90] if isinstance(row, dict) else type(row).__name__
        raise InvalidValue(name, f"must have the keys {', '.join(keys)}", got)
