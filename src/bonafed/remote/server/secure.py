"""The server's side of secure sums: a federation that never sees what is in them (theory M).

A batch of sums is set up in two exchanges; each sum takes two more: masked parts of all members, whether or
not they have a task, and what takes the masks off. Everybody in the batch takes part in every sum, with
zeros if it has nothing to add, so that who is in is all that masks depend on.

Parts are measured in units of the noise that the sum is to carry, so that one batch serves rounds of
different noise, and rows of different noise in one round.

A sum of which fewer than two parts besides those of colluders would be left is not asked for: it would show
one of them (`participant.summing`, (4)). Its tasks count as not delivered.

Nobody gives its part of a sum twice, or opens it for two sets of survivors. So what a sum has come to is on
disk before the masks are taken off (`KeptSum`): a server that is killed in between goes on with the same
survivors.
"""

from __future__ import annotations

import base64
import binascii
import io
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from bonafed.checks import Floats
from bonafed.contracts.published import Agreement
from bonafed.economics.statement import Statement
from bonafed.errors import AskFailed, InvalidValue, UnreadableFile
from bonafed.files import write_together
from bonafed.learning.data.archives import NPZ_ERRORS
from bonafed.learning.federation import (
    Failure,
    Need,
    Reply,
    Roster,
    Task,
    Total,
    answer_shape,
    checked_shares,
)
from bonafed.learning.privacy import variance_inflation
from bonafed.remote.messages import JSONObject, Sealed, digest_of
from bonafed.remote.secure_sums import (
    BatchPlan,
    Book,
    Masked,
    SumFailed,
    collected,
    gathered,
    parcels_for,
    revealed,
    threshold_for,
)
from bonafed.remote.secure_sums.sealed_answers import Unmasking
from bonafed.remote.server.evidence import Evidence
from bonafed.remote.server.federation import Operator, RemoteFederation
from bonafed.remote.sums import (
    EXTRAS,
    LEAST,
    about_sum,
    common_work,
    contributing,
    digest_of_models,
    fewest,
)
from bonafed.remote.tasks import Asked, pack_tasks

SUMS: Final = 16  # that a batch is set up for
BOUND: Final = 2.0**10  # largest norm of a member's part without noise: numbers are exact to 2^-50
NOISY_BOUND: Final = 2.0**20  # the same in units of the noise
_FEWER = "too few contributors: the sum would show a single part"


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Keys and shares for several sums."""

    book: Book
    parcels: Mapping[str, bytes]  # for each member, from all others
    used: int  # sums so far

    @property
    def name(self) -> str:
        """By which members know it."""
        return self.book.plan.digest.hex()


class KeptSum:
    """What must outlive a killed server: the batch, and the sum whose masks are being taken off."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def write(self, batch: Batch, request: str = "", pending: Masked | None = None) -> None:
        """Keep it, as a whole."""
        if self._path is None:
            return
        facts = {
            "plan": batch.book.plan.to_bytes().decode(), "book": _text(batch.book.to_bytes()),
            "parcels": {name: _text(parcel) for name, parcel in batch.parcels.items()},
            "used": batch.used, "request": request,
            "which": None if pending is None else pending.round.which,
            "survivors": None if pending is None else list(pending.round.survivors),
            "about": None if pending is None else _text(pending.about),
        }  # fmt: skip
        words = np.zeros(0, dtype=np.uint64) if pending is None else pending.words
        buffer = io.BytesIO()
        np.savez(buffer, facts=np.frombuffer(json.dumps(facts).encode(), dtype=np.uint8), words=words)
        write_together({self._path: buffer.getvalue()}, private=True)

    def read(self, verify: Any) -> tuple[Batch, str, Masked | None] | None:
        """What was kept; None: nothing."""
        if self._path is None or not self._path.is_file():
            return None
        try:
            with np.load(self._path, allow_pickle=False) as archive:
                facts, words = json.loads(archive["facts"].tobytes()), archive["words"]
            plan = BatchPlan.from_bytes(facts["plan"].encode())
            book = Book.from_bytes(plan, _bytes(facts["book"]), verify)
            parcels = {name: _bytes(parcel) for name, parcel in facts["parcels"].items()}
            batch = Batch(book, parcels, facts["used"])
            pending = None
            if facts["which"] is not None:
                at = Unmasking(book, facts["which"], tuple(facts["survivors"]))
                pending = Masked(at, _bytes(facts["about"]), words)
            return batch, facts["request"], pending
        except (*NPZ_ERRORS, KeyError, TypeError, InvalidValue) as error:
            raise UnreadableFile(self._path, f"must be what a run of secure sums kept ({error})") from error


class SecureFederation(RemoteFederation):
    """Clients whose answers are added up in secret; single ones cannot be had."""

    offers: ClassVar[tuple[Need, ...]] = ("total",)
    because: ClassVar[str] = ", as with --secure-sums the server sees no single answer"

    def __init__(self, operator: Operator, run: str, members: Roster, records: Evidence) -> None:
        super().__init__(operator, run, members, records)
        self._batch: Batch | None = None
        self._holders: set[tuple[str, str]] = set()  # batch and member that has its parcels
        self._kept = KeptSum(records.beside(".sums.npz"))

    def replies(self, tasks: Sequence[Task]) -> Mapping[str, Reply | Failure]:
        raise InvalidValue("federation", "must offer replies, which this needs", "secure sums")

    def total(self, tasks: Sequence[Task], shares: Floats, noise: float | Floats = 0.0) -> Total:
        if not tasks:
            return Total(np.zeros((1, 1)), ())
        parts, shape = checked_shares(tasks, shares), answer_shape(tasks[0])
        sds = np.atleast_1d(np.asarray(noise, dtype=np.float64))
        noisy = bool((sds > 0).any())
        request = digest_of(
            [[task.identifier, Asked(task, 0.0).digest] for task in tasks] + [parts.tolist(), sds.tolist()]
        )
        pending, infos = self._resumed(request), dict[str, JSONObject]()
        if pending is None:
            if fewest(contributing(_by_client(tasks, parts)), self.members.names) - self._colluders < LEAST:
                return self._nobody(tasks, shape)
            batch = self._ready(shape[0] * shape[1] + EXTRAS, noisy)
            pending, infos = self._masked(batch, tasks, parts, sds if noisy else np.ones(1), request)
        survivors = set(pending.round.survivors)
        if fewest(contributing(_by_client(tasks, parts)), survivors) - self._colluders < LEAST:
            return self._nobody(tasks, shape)
        opened = self._opened(pending)
        units = (sds if noisy else np.ones(1)).reshape(-1, 1)
        values = opened[:-EXTRAS].reshape(shape) * units
        return self._told(tasks, values, survivors, infos, None if noisy else opened[-EXTRAS:])

    def account(self, statement: Statement, agreement: Agreement) -> Statement:
        """The statement, with what the threat model of its sums is."""
        plan = None if self._batch is None else self._batch.book.plan
        if plan is None:
            return super().account(statement, agreement)
        notes = [
            f"the server saw sums only, of {len(plan.members)} participants, of whom {plan.colluders} may "
            f"collude with it and {plan.tolerated} may drop out of a sum"
        ]
        if plan.noise:
            more = variance_inflation(len(plan.members), dropouts=plan.tolerated, colluders=plan.colluders)
            notes.append(
                "everybody added a share of the noise, with a margin for both: sums carry "
                f"{more:.3g} times the variance that was planned for if nobody drops out"
            )
        return super().account(replace(statement, notes=(*statement.notes, *notes)), agreement)

    @property
    def _colluders(self) -> int:
        return self._operator.colluders or 0

    def _resumed(self, request: str) -> Masked | None:
        """The sum of this request, if the server was killed before its masks were off."""
        if self._batch is not None:
            return None
        kept = self._kept.read(self._operator.verify)
        if kept is None:
            return None
        self._batch = kept[0]
        return kept[2] if kept[1] == request else None

    def _nobody(self, tasks: Sequence[Task], shape: tuple[int, int]) -> Total:
        failures = {task.identifier: Failure(_FEWER, absent=True) for task in tasks}
        return Total(np.zeros(shape), (False,) * len(tasks), failures)

    def _ready(self, size: int, noisy: bool) -> Batch:
        """A batch with a sum left, of all members that are still asked."""
        batch, there = self._batch, self._asked_members()
        if batch is not None:
            plan = batch.book.plan
            fits = (plan.size, bool(plan.noise)) == (size, noisy) and batch.used < plan.sums
            if fits and set(plan.members) == set(there):
                return batch
        context = f"{self.run} {secrets.token_hex(8)}".encode()
        plan = BatchPlan(
            tuple(there), threshold_for(len(there), self._colluders), size,
            NOISY_BOUND if noisy else BOUND, SUMS, context, self._colluders, 1.0 if noisy else 0.0,
        )  # fmt: skip
        try:
            offer: JSONObject = {"plan": _text(plan.to_bytes())}
            keys = self._bytes_of(self._ask("keys", dict.fromkeys(there, offer)), "keys")
            book, _ = gathered(plan, keys, self._operator.verify)
            content = {"batch": plan.digest.hex(), "book": _text(book.to_bytes())}
            shared = self._bytes_of(self._ask("shares", dict.fromkeys(book.keys, content)), "shares")
            self._batch = Batch(book, parcels_for(book, shared), 0)
        except SumFailed as error:
            raise AskFailed(f"a batch of secure sums could not be set up: {error}") from error
        self._kept.write(self._batch)
        return self._batch

    def _asked_members(self) -> list[str]:
        after = self._operator.exclude_after
        return [name for name in self.members.names if self._faults[name] < after]

    def _masked(
        self, batch: Batch, tasks: Sequence[Task], parts: Floats, units: Floats, request: str
    ) -> tuple[Masked, dict[str, JSONObject]]:
        """The sum with its masks on; on disk before anybody is asked to take them off."""
        which, contents, numbers = batch.used, dict[str, JSONObject](), dict[str, NDArray[Any] | None]()
        _require_alike(tasks)
        shares = {
            name: [one.tolist() for one in own]
            for name, own in _by_client(tasks, parts).items()
            if name in batch.book.keys  # who was excluded adds nothing
        }
        common: JSONObject = {
            "batch": batch.name, "which": which, "unit": units.tolist(), "parts": shares,
            "shape": list(answer_shape(tasks[0])), "models": digest_of_models(tasks[0].models),
            "work": common_work(tasks[0].work),
        }  # fmt: skip
        for name in batch.book.keys:
            own = [at for at, task in enumerate(tasks) if task.client == name]
            rows, numbers[name] = pack_tasks([Asked(tasks[at], 0.0) for at in own]) if own else ([], None)
            contents[name] = {
                **common, "tasks": rows, "shares": [np.atleast_1d(parts[at]).tolist() for at in own],
                "accepted": self._accepted[name],
            }  # fmt: skip
            if (batch.name, name) not in self._holders:
                contents[name]["parcels"] = _text(batch.parcels[name])
        answers = self._ask("input", contents, numbers)
        infos, words, reasons = dict[str, JSONObject](), dict[str, bytes](), list[str]()
        for name, answer in answers.items():
            if isinstance(answer, Failure):
                reasons.append(f"{name}: {answer.reason}")
            elif answer.message.numbers is not None:
                infos[name] = dict(answer.message.content)
                if not isinstance(infos[name].get("failed"), list):
                    infos[name]["failed"] = []
                words[name] = answer.message.numbers.astype("<u8").tobytes()
                self._holders.add((batch.name, name))
                self._records.keep(answer)
        try:
            pending = collected(batch.book, which, words, about_sum(common))
        except SumFailed as error:
            raise AskFailed(f"a secure sum could not be made: {error}; {'; '.join(reasons)}") from error
        self._batch = replace(batch, used=which + 1)
        self._kept.write(self._batch, request, pending)
        return pending, infos

    def _opened(self, pending: Masked) -> Floats:
        at = pending.round
        content = {
            "batch": at.book.plan.digest.hex(), "which": at.which, "survivors": list(at.survivors)
        }  # fmt: skip
        answers = self._ask("unmask", dict.fromkeys(at.survivors, content))
        try:
            opened = revealed(pending, self._bytes_of(answers, "shares"))
        except SumFailed as error:
            raise AskFailed(f"the masks of a secure sum could not be taken off: {error}") from error
        for name, failure in opened.failures.items():
            self._fault(name, failure.reason)
        return opened.values

    def _told(
        self, tasks: Sequence[Task], values: Floats, survivors: set[str], infos: Mapping[str, JSONObject],
        extras: Floats | None,
    ) -> Total:  # fmt: skip
        """Who is in the sum; of losses only the mean."""
        failures, steps = dict[str, Failure](), 0
        for task in tasks:
            if task.client not in survivors:
                failures[task.identifier] = Failure("not in the sum", absent=True)
            elif task.identifier in infos.get(task.client, {}).get("failed", ()):
                failures[task.identifier] = Failure("must be finite, got NaN or inf")
        for name in sorted(survivors):
            own = [task.identifier for task in tasks if task.client == name]
            fine = [identifier for identifier in own if identifier not in failures]
            self._accepted[name] = fine
            self._counted[name] += [one for one in fine if one not in self._counted[name]]
            self._records.count(name, fine)
            taken = infos.get(name, {}).get("steps", 0)
            steps += taken if isinstance(taken, int) and 0 <= taken < 10**9 else 0
        loss = float("nan")
        if extras is not None and extras[1] >= 0.5:
            loss = float(extras[0] / round(float(extras[1])))
        delivered = tuple(task.identifier not in failures for task in tasks)
        return Total(values, delivered, failures, loss, steps)

    def _bytes_of(self, answers: Mapping[str, Sealed | Failure], key: str) -> dict[str, bytes]:
        """What each answered under a key; who answered something else is at fault."""
        contents = dict[str, bytes]()
        for name, answer in answers.items():
            if isinstance(answer, Sealed):
                try:
                    contents[name] = _bytes(answer.message.content[key])
                except (KeyError, TypeError, ValueError, binascii.Error) as error:
                    self._fault(name, f"{key} must be bytes in base64, got {type(error).__name__}")
        return contents


def _by_client(tasks: Sequence[Task], parts: Floats) -> dict[str, list[Floats]]:
    """The shares of each client's tasks, (1,) or (m,) each."""
    shares = dict[str, list[Floats]]()
    for task, part in zip(tasks, parts, strict=True):
        shares.setdefault(task.client, []).append(np.atleast_1d(part))
    return shares


def _require_alike(tasks: Sequence[Task]) -> None:
    """In a sum nobody is told anything of its own: members would not give their parts."""
    first = tasks[0]
    for task in tasks[1:]:
        same = task.models is first.models or np.array_equal(task.models, first.models)
        if not same or common_work(task.work) != common_work(first.work):
            raise InvalidValue(
                "tasks", "must be the same work on the same models in a secure sum", task.client
            )


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)
