"""A participant in secure sums (theory M): it works, adds its share of the noise, masks, and is careful.

    keys     keys for a batch of sums; the plan must be one that was agreed on: (1)
    shares   shares of its secrets, for everybody in the book
    input    tasks, perhaps none, and their shares in the sum: its masked part of it: (2), (3)
    unmask   what takes the masks off the sum of the survivors: (4)

(1) Enough members of the run are in the plan, and as many colluders are allowed for as was agreed.
(2) A task is in one sum only, ever: the difference of two sums would show it by itself.
(3) Privacy is charged by its own ledger before any record is looked at: the noise on the sum, which the
    plan guarantees, over what one record moves its part by. All its tasks in a sum move it together.
(4) The masks come off only if two contributors besides the colluders are left: the sum of one is its part.

In a run of secure sums single answers are refused, whoever asks.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue, MissingValue
from bonafed.learning.federation import Gradients, Losses, Reply, Train, answer_shape, limits_of
from bonafed.learning.noise import Secret, Source
from bonafed.learning.privacy.ledger import Release
from bonafed.learning.sum_noise import rounding
from bonafed.learning.work import LocalTraining, sensitivity, step_count
from bonafed.remote.messages import JSONObject, Sign, Verify, digest_of
from bonafed.remote.participant.journal import Journal
from bonafed.remote.participant.local_data import Bench, require_near
from bonafed.remote.secure_sums import (
    BatchPlan,
    Member,
    Once,
    advertise,
    masked,
    received,
    share,
    threshold_for,
    unmask,
)
from bonafed.remote.sums import (
    EXTRAS,
    LEAST,
    about_sum,
    common_work,
    contributing,
    digest_of_models,
    fewest,
)
from bonafed.remote.tasks import Asked, unpack_tasks, work_to_json

BATCH: Final = "batch "  # facts of a batch in the journal


class Summing:
    """One participant's part in the secure sums of a run."""

    def __init__(
        self,
        name: str,
        run: str,
        journal: Journal,
        sign: Sign,
        verify: Verify,
        secret: Secret,
        noise: Source,
    ) -> None:
        self._name, self._run, self._journal = name, run, journal
        self._sign, self._verify, self._secret, self._noise = sign, verify, secret, noise

    def keys(self, content: Mapping[str, Any], members: Collection[str], colluders: int) -> JSONObject:
        """Keys for a batch."""
        plan = BatchPlan.from_bytes(_bytes(content, "plan"))
        least = threshold_for(len(members), colluders)
        if plan.colluders != colluders:
            raise InvalidValue("plan.colluders", f"must be {colluders}, as agreed", plan.colluders)
        if not set(plan.members) <= set(members) or len(plan.members) < least:
            rule = f"must be {least} members of this run at least"
            raise InvalidValue("plan.members", rule, len(plan.members))
        if not plan.context.startswith(self._run.encode()):
            raise InvalidValue("plan.context", "must be of this run", repr(plan.context)[:60])
        batch, member = plan.digest.hex(), self._member(plan)
        if self._journal.fact(self._run, BATCH + batch) is None:
            self._note(batch, {"plan": plan.to_bytes().hex(), "once": Once.of(plan).to_bytes().decode()})
        return {"keys": _text(advertise(member, self._sign))}

    def shares(self, content: Mapping[str, Any]) -> JSONObject:
        """Shares of everything that this member hides, for the others."""
        batch, facts, plan = self._batch(content)
        book = _bytes(content, "book")
        once = Once.from_bytes(facts["once"].encode())
        message, after = share(self._member(plan), book, self._verify, once)
        self._note(batch, {**facts, "once": after.to_bytes().decode(), "book": _text(book)})
        return {"shares": _text(message)}

    def input(
        self,
        content: Mapping[str, Any],
        numbers: NDArray[Any] | None,
        bench: Bench,
        charge: Callable[[Sequence[Release]], None],
        agreed: Callable[[Sequence[Asked]], None],
    ) -> tuple[JSONObject, NDArray[Any]]:
        """This member's masked part of a sum."""
        batch, facts, plan = self._batch(content)
        if "parcels" in content and "parcels" not in facts:
            facts = {**facts, "parcels": _text(_bytes(content, "parcels"))}
            self._note(batch, facts)
        which = checks.whole("which", content.get("which"), at_least=0, at_most=plan.sums - 1)
        rows = content.get("tasks")
        asked = unpack_tasks(rows, numbers, self._name) if rows else []
        parts = [_share(value) for value in content.get("shares", ())]
        units = _units(content.get("unit"))
        if len(parts) != len(asked):
            raise InvalidValue("shares", f"must be {len(asked)}, one per task", len(parts))
        contributors = self._contributors(content, asked, parts, plan)
        self._charge_once(f"{batch} {which}", content, plan, asked, parts, units, bench, charge, agreed)
        vector, failed, steps = _part(asked, parts, units, bench, plan.size)
        if plan.noise:  # nobody is charged for losses
            vector[-EXTRAS:] = 0
        # fresh in every sum, also on zeros: the same noise twice would cancel in the difference
        request = digest_of(
            [batch, which, [[each.task.identifier, each.digest] for each in asked]]
        ).encode()
        ready = received(
            self._member(plan), _bytes(facts, "book"), self._verify, _bytes(facts, "parcels"),
            Once.from_bytes(facts["once"].encode()),
        )  # fmt: skip

        def noisy(values: Floats, sd: float) -> Floats:
            return self._noise.noisy(values, sd, request, 0)

        once = Once.from_bytes(facts["once"].encode())
        message, after = masked(
            ready, once, which, vector, about_sum(content), noisy if plan.noise else None
        )
        told = {f"contributors {which}": contributors}
        self._note(batch, {**facts, **told, "once": after.to_bytes().decode()})
        if plan.noise:  # whether private records can be trained on is for nobody to know
            failed, steps = [], 0
        return {"failed": failed, "steps": steps}, np.frombuffer(message, dtype="<u8")

    def _contributors(
        self, content: Mapping[str, Any], asked: Sequence[Asked], parts: Sequence[Floats], plan: BatchPlan
    ) -> list[list[str]]:
        """Who adds something to each row, once what everybody was told is known to be true of me."""
        told = content.get("parts")
        if not isinstance(told, dict) or not set(told) <= set(plan.members):
            raise InvalidValue("parts", "must be shares by member", repr(told)[:60])
        stated = {str(name): [_share(one) for one in shares] for name, shares in told.items()}
        own = stated.get(self._name, [])
        if len(own) != len(parts) or any(not np.array_equal(a, b) for a, b in zip(own, parts, strict=True)):
            raise InvalidValue("parts", "must have my shares as I was told them", repr(told)[:60])
        for each in asked:
            if digest_of_models(each.task.models) != content.get("models"):
                raise InvalidValue("models", "must be those that everybody is sent", "others")
            if common_work(each.task.work) != content.get("work"):
                raise InvalidValue("work", "must be that of everybody", type(each.task.work).__name__)
        return contributing(stated)

    def _charge_once(
        self, sum_name: str, content: Mapping[str, Any], plan: BatchPlan, asked: Sequence[Asked],
        parts: Sequence[Floats], units: Floats, bench: Bench, charge: Callable[[Sequence[Release]], None],
        agreed: Callable[[Sequence[Asked]], None],
    ) -> None:  # fmt: skip
        """Charge new tasks to the ledger, each in one sum only: (2) and (3)."""
        new = []
        for each in asked:
            before = self._journal.answered(self._run, each.task.identifier)
            if before is None:
                new.append(each)
            elif before.digest != each.digest or before.answer.get("sum") != sum_name:
                rule = "must be in one sum only, with the same work"
                raise InvalidValue("identifier", rule, repr(each.task.identifier))
        if not new:
            return
        agreed(new)
        for each in new if not plan.noise else ():
            if self._journal.summed(self._run, each.digest) not in (None, sum_name):
                rule = "must not be in a second sum, whatever it is called: the difference would show it"
                raise InvalidValue("work", rule, repr(each.task.identifier))
        if len(new) < len(asked):
            raise InvalidValue("tasks", "must be those of this sum, all of them", "others as well")
        guaranteed = units * plan.noise
        releases = sum_releases(asked, parts, guaranteed, bench)
        charge(releases)
        for number, each in enumerate(asked):
            row = {"work": work_to_json(each.task.work)["kind"], "sum": sum_name}
            given = releases if number == 0 else ()  # of all together
            self._journal.keep(self._run, each.task.identifier, each.digest, row, None, given)

    def unmask(self, content: Mapping[str, Any]) -> JSONObject:
        """What takes the masks off, if (4)."""
        batch, facts, plan = self._batch(content)
        which = checks.whole("which", content.get("which"), at_least=0, at_most=plan.sums - 1)
        survivors, contributors = content.get("survivors"), facts.get(f"contributors {which}")
        if not isinstance(survivors, list) or contributors is None:
            raise InvalidValue("survivors", "must be of a sum that I am in", repr(survivors)[:60])
        left = fewest(contributors, survivors) - plan.colluders
        if left < LEAST:
            rule = (
                f"must leave {LEAST} contributors besides {plan.colluders} colluders: fewer would be shown"
            )
            raise InvalidValue("survivors", rule, max(0, left))
        once = Once.from_bytes(facts["once"].encode())
        ready = received(
            self._member(plan), _bytes(facts, "book"), self._verify, _bytes(facts, "parcels"), once
        )
        message, after = unmask(ready, once, which, [str(name) for name in survivors])
        self._note(batch, {**facts, "once": after.to_bytes().decode()})
        return {"shares": _text(message)}

    def _member(self, plan: BatchPlan) -> Member:
        """Another secret in every batch, the same after a restart."""
        return Member(plan, self._name, self._secret.derived(b"masks", plan.digest))

    def _batch(self, content: Mapping[str, Any]) -> tuple[str, JSONObject, BatchPlan]:
        batch = content.get("batch")
        facts = self._journal.fact(self._run, f"{BATCH}{batch}") if isinstance(batch, str) else None
        if facts is None:
            raise InvalidValue("batch", "must be one that I gave keys for", repr(batch)[:60])
        return str(batch), facts, BatchPlan.from_bytes(bytes.fromhex(facts["plan"]))

    def _note(self, batch: str, facts: JSONObject) -> None:
        self._journal.note(self._run, **{BATCH + batch: facts})


def sum_releases(
    asked: Sequence[Asked], parts: Sequence[Floats], noise: Floats, bench: Bench
) -> tuple[Release, ...]:
    """(3): what the tasks of one client give away in a sum that carries this noise, (m,) by row.

    Noise that a client adds by itself in every step counts by itself. Empty if nothing is bounded or
    noised: then nothing hides the records but the other parts.
    """
    if all(isinstance(each.task.work, Train) and each.task.work.noise_multiplier for each in asked):
        return tuple(release for each in asked for release in bench.release_of(each) or ())
    moved, number, steps = np.zeros(len(noise)), 0, 0
    for each, share_of in zip(asked, parts, strict=True):
        work = each.task.work
        bound = _bound(each)
        if bound is None:
            return ()
        if isinstance(work, Train):
            if step_count(bench.records, work.training) != 1:
                rule = "must be one where the sum has noise: later ones would look at records again"
                raise InvalidValue("steps", rule, step_count(bench.records, work.training))
            spec, number, steps = work.training, work.round_number, steps + 1
            _require_bounded(spec)
            start = each.task.models[0]
            own = np.asarray(spec.learning_rate * sensitivity(bench.records, spec) + rounding(start, spec))
        else:
            own = np.asarray(2 * bound / bench.records)
            inside = np.broadcast_to(share_of != 0, noise.shape)
            if isinstance(work, Gradients) and inside.any():
                hidden = noise[inside] / np.abs(np.broadcast_to(share_of, noise.shape)[inside])
                require_near(each.task.models[inside], work, hidden)
        moved = moved + np.abs(share_of) * own
    rows = [(float(sd), float(length)) for sd, length in zip(noise, moved, strict=True) if length > 0]
    if not rows or any(sd <= 0 for sd, _ in rows):
        return ()
    return tuple(Release(bench.position, number, sd / length, 1, steps or None) for sd, length in rows)


def _require_bounded(spec: LocalTraining) -> None:
    """What (3) counts by: a plain step on a batch of known size; nothing that rounds before the noise."""
    for name, value, due in (
        ("optimizer", spec.optimizer, "sgd"), ("batches", spec.batches, "passes"),
        ("weight_decay", spec.weight_decay, 0.0),
    ):  # fmt: skip
        if value != due:
            raise InvalidValue(f"training.{name}", f"must be {due!r} where the sum has noise", repr(value))


def _bound(asked: Asked) -> Floats | float | None:
    """The length of what one record adds to the mean of an answer at most, for all rows or (m,) for each;
    None: nothing bounds it."""
    work = asked.task.work
    if isinstance(work, Losses) and work.limit is not None:
        return np.array(limits_of(asked.task))
    if isinstance(work, Train):
        return work.training.clip
    return work.clip if isinstance(work, Gradients) else None


def _part(
    asked: Sequence[Asked], parts: Sequence[Floats], units: Floats, bench: Bench, size: int
) -> tuple[Floats, list[str], int]:
    """The weighted sum of one client's answers in units of the noise, who failed, and steps taken."""
    vector, failed, steps = np.zeros(size), list[str](), 0
    if not asked:
        return vector, failed, steps
    answers = bench.answers(asked)
    rows, columns = answer_shape(asked[0].task)
    if rows * columns + EXTRAS != size or len(units) not in (1, rows):
        raise InvalidValue("shape", f"must be of {size - EXTRAS:,} numbers", f"{rows} x {columns}")
    total = np.zeros((rows, columns))
    for each, share_of in zip(asked, parts, strict=True):
        answer = answers[each.task.identifier]
        if not isinstance(answer, Reply) or not np.isfinite(answer.values).all():
            failed.append(each.task.identifier)
            continue
        total += answer.values.astype(np.float64) * np.reshape(share_of, (-1, 1))
        steps += answer.steps
        if np.isfinite(answer.loss):
            vector[-EXTRAS:] += (answer.loss, 1.0)
    vector[:-EXTRAS] = (total / units.reshape(-1, 1)).ravel()
    return vector, failed, steps


def _share(value: object) -> Floats:
    """(1,) or (m,): of a task in each row of the sum."""
    return checks.vector("share", _numbers("share", value))


def _units(value: object) -> Floats:
    """(1,) or (m,) standard deviations that a part is measured in."""
    return checks.vector("unit", _numbers("unit", value), sign="positive")


def _numbers(name: str, value: object) -> list[float]:
    if not isinstance(value, list) or not value:
        raise InvalidValue(name, "must be a list of numbers", repr(value)[:60])
    return [checks.number(name, entry) for entry in value]


def _bytes(content: Mapping[str, Any], key: str) -> bytes:
    try:
        return base64.b64decode(content[key], validate=True)
    except KeyError as error:
        raise MissingValue(key) from error
    except (TypeError, ValueError, binascii.Error) as error:
        raise InvalidValue(key, "must be bytes in base64", repr(content[key])[:60]) from error


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
