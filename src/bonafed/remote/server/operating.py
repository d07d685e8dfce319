"""A run on a federation, as its operator sees it: who is there, how long it will take, and how it goes on.

`operator_of` makes the operator from its key and the roster. `begin` asks everybody on the roster what it
holds; `go_on` continues a run whose server was killed. Both count the time of their exchanges (`Timed`),
from which follows, before the first round, about how long the run will take.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bonafed.errors import InvalidValue, UnreadableFile
from bonafed.learning.data import datasets
from bonafed.learning.data.datasets import Dataset
from bonafed.learning.federation import Failure
from bonafed.mechanisms.protocol import Config, Mechanism
from bonafed.presentation.documents import counted
from bonafed.remote.keys import member_public, operator_public, operator_signer, verifier
from bonafed.remote.messages import Transport
from bonafed.remote.roster import Membership
from bonafed.remote.server.evidence import Evidence, evidence_path
from bonafed.remote.server.federation import ANSWER_WITHIN, EXCLUDE_AFTER, Operator, RemoteFederation
from bonafed.remote.server.secure import SUMS, SecureFederation
from bonafed.sections import named

NO_TEST_DATA = "none"  # as data.name: the server has no test samples
USUAL_EXCHANGES = 25  # of a mechanism that ends by itself
_ENDING = 1  # exchanges after the last round: the statement
_LOOK = 1.0  # seconds between looks at who is connected


@dataclass(slots=True)
class Timed:
    """A way to members that counts exchanges, bytes and seconds."""

    transport: Transport
    clock: Callable[[], float] = time.perf_counter
    exchanges: int = 0
    seconds: float = 0.0
    sent: int = 0  # bytes
    received: int = 0  # bytes
    slowest: list[float] = field(default_factory=list)  # seconds of every exchange

    def connected(self) -> Mapping[str, str]:
        return self.transport.connected()

    def exchange(self, messages: Mapping[str, bytes], ttl: float) -> Mapping[str, bytes | Failure]:
        start = self.clock()
        came = self.transport.exchange(messages, ttl)
        taken = self.clock() - start
        self.exchanges += 1
        self.seconds += taken
        self.slowest.append(taken)
        self.sent += sum(map(len, messages.values()))
        self.received += sum(len(answer) for answer in came.values() if isinstance(answer, bytes))
        return came


def operator_of(
    membership: Membership,
    key: Path,
    transport: Transport,
    *,
    answer_within: float = ANSWER_WITHIN,
    exclude_after: int = EXCLUDE_AFTER,
    colluders: int | None = None,
    tell: Callable[[str], None] = lambda _text: None,
) -> Operator:
    """The operator whose private key is in this file, and whose public key is on the roster."""
    members = {name: member_public(text, f"members.{name}") for name, text in membership.members.items()}
    public = operator_public(membership.operator.encode(), "federation.operator")
    sign, verify = operator_signer(key), verifier(public, members)
    if not verify("", b"mine", sign(b"mine")):
        raise InvalidValue("operator key", "must be the one on the roster", key)
    return Operator(
        membership.name, membership.members, sign, verify, transport, answer_within, exclude_after, tell,
        colluders,
    )  # fmt: skip


def wait_for(
    transport: Transport,
    membership: Membership,
    seconds: float,
    tell: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
) -> tuple[str, ...]:
    """Who is connected under its registered key, once everybody is, or after so many seconds."""
    end, told = clock() + seconds, ""
    while True:
        there = transport.connected()
        missing = [name for name in membership.members if name not in there]
        if not missing or clock() >= end:
            break
        if (text := f"waiting for {', '.join(missing)}") != told:
            tell(text)
            told = text
        time.sleep(min(_LOOK, max(0.0, end - clock())))
    if missing:
        tell(f"not connected, and so not in this run: {', '.join(missing)}")
    return tuple(name for name in membership.members if name in there)


def begin(operator: Operator, config: Config, folder: Path, digests: Mapping[str, str]) -> RemoteFederation:
    """A new run of its own number; who does not answer is not in it."""
    path = evidence_path(folder)
    if path.exists():
        if Evidence(path).has_terms:
            raise InvalidValue("run.folder", "must be new: the records of another run are beside it", path)
        path.unlink()  # of an attempt that ended before anything was agreed on
    kind = RemoteFederation if operator.colluders is None else SecureFederation
    return kind.gather(operator, config, secrets.token_hex(16), Evidence(path, digests))


def go_on(operator: Operator, folder: Path, digests: Mapping[str, str]) -> RemoteFederation:
    """The federation of a run that was stopped."""
    path = evidence_path(folder)
    if not path.is_file():
        raise UnreadableFile(
            path, "no such file: this run was not on a federation, or its records are lost"
        )
    records = Evidence(path, digests)
    if records.secure is None:
        return RemoteFederation.again(operator, records)
    return SecureFederation.again(replace(operator, colluders=records.secure), records)


def public_test_set(config: Config, on_progress: Callable[[str], None] | None = None) -> Dataset | None:
    """The server's own test samples, if it has any; of a file without a test part, all of its samples.

    The training samples of a known data set are not looked at: the participants hold theirs.
    """
    section = config.data
    if section.name == NO_TEST_DATA:
        return None
    folder = Path(section.folder).expanduser().absolute() if section.folder else None
    with named("data", dataset="name"):
        dataset = datasets.load(
            section.name, folder=folder, seed=config.run.seed, on_progress=on_progress,
            choices=section.choices,
        )  # fmt: skip
    if datasets.is_own_file(section.name) and not len(dataset.test_labels):
        dataset = replace(dataset, test_features=dataset.features, test_labels=dataset.labels)
    return dataset


def expectation(mechanism: Mechanism[Any], timed: Timed, members: int, *, secure: bool = False) -> str:
    """How many exchanges are to come, and about how long they will take, in words."""
    rounds = mechanism.exchanges
    ahead = USUAL_EXCHANGES if rounds is None else rounds
    if secure:  # keys and shares for a batch of sums, masked parts and the end of the masks for each
        ahead = 2 * ahead + 2 * math.ceil(ahead / SUMS)
    ahead += _ENDING
    each = timed.seconds / timed.exchanges if timed.exchanges else 0.0
    about = "some " if rounds is None else ""
    return (
        f"{counted(members, 'participant')}; {about}{counted(ahead, 'exchange')} to come, about "
        f"{_duration(ahead * each)} at {each:.2g} s each, as the first {timed.exchanges} took"
    )


def _duration(seconds: float) -> str:
    if seconds < 90:
        return counted(max(1, round(seconds)), "second")
    return counted(round(seconds / 60), "minute") if seconds < 7200 else f"{seconds / 3600:.1f} hours"
