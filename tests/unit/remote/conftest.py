"""Federations in one process: every participant with its own key, journal, records and policy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from bonafed.contracts.signatures import make_keys
from bonafed.economics.findings import Finding
from bonafed.learning.sections import Data, Partition
from bonafed.mechanisms.jsam import verification
from bonafed.mechanisms.jsam.published import JsamContract
from bonafed.remote.keys import (
    key_digest,
    make_member_key,
    member_public,
    member_signer,
    operator_public,
    operator_signer,
    read_member_key,
    verifier,
)
from bonafed.remote.messages import Handle, InProcess
from bonafed.remote.participant.journal import Journal
from bonafed.remote.participant.local_data import open_holding
from bonafed.remote.participant.participant import Participant
from bonafed.remote.participant.policy import Policy
from bonafed.remote.server.evidence import Evidence
from bonafed.remote.server.federation import Operator, RemoteFederation
from bonafed.remote.server.secure import SecureFederation
from bonafed.runs.config import from_tables
from bonafed.runs.prepare import Setting, prepare, under
from bonafed.runs.training import RunResult, train

NAMES = ("ada", "ben", "eve", "joe")
RUN = "5" * 32


@dataclass
class World:
    """Four clinics that hold parts of the digits, and an operator."""

    folder: Path
    names: tuple[str, ...] = NAMES
    costs: Mapping[str, float] = field(
        default_factory=lambda: {"ada": 0.61, "ben": 0.95, "eve": 1.32, "joe": 0.55}
    )
    policies: dict[str, Policy] = field(default_factory=dict)
    partition: Partition = field(default_factory=lambda: Partition("iid", 4))
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.operator_pem = self.folder / "operator.pem"
        public = make_keys(self.operator_pem)
        self.operator_public = operator_public(public.read_bytes())
        self.keys = {}
        for name in self.names:
            beside = make_member_key(self.folder / name)
            self.keys[name] = beside.read_text().strip()
        self.participants: dict[str, Participant] = {}
        self.journals: dict[str, Journal] = {}
        for name in self.names:
            self.start(name)

    def start(self, name: str) -> Participant:
        """Start a participant, or start it again from its folder."""
        if name in self.journals:
            self.journals[name].close()
        self.journals[name] = Journal(self.folder / f"{name}.ledger")
        secret = self.folder / f"{name}.secret"
        if not secret.exists():
            secret.write_bytes(bytes([self.names.index(name) + 1]) * 32)
        number = self.names.index(name)
        self.participants[name] = Participant(
            name, "clinics", open_holding(Data("digits"), self.partition, number),
            {"cost": self.costs[name]}, self.policies.get(name, Policy()), self.journals[name],
            member_signer(read_member_key(self.folder / name)),
            lambda keys: verifier(
                self.operator_public, {name: member_public(text) for name, text in keys.items()}
            ),
            secret.read_bytes(), self.told.append,
            {other: key_digest(member_public(text)) for other, text in self.keys.items()},
        )  # fmt: skip
        return self.participants[name]

    @property
    def handles(self) -> dict[str, Handle]:
        return {name: participant.handle for name, participant in self.participants.items()}

    def operator(self, transport: Any = None, **options: Any) -> Operator:
        members = {name: member_public(text) for name, text in self.keys.items()}
        return Operator(
            "clinics", self.keys, operator_signer(self.operator_pem),
            verifier(self.operator_public, members), transport or InProcess(self.handles),
            tell=self.told.append, **options,
        )  # fmt: skip

    def records(self, path: Path | None = None) -> Evidence:
        return Evidence(path, {name: key_digest(member_public(text)) for name, text in self.keys.items()})

    def gather(
        self,
        tables: Mapping[str, Any],
        *,
        transport: Any = None,
        run: str = RUN,
        contract: Any = None,
        records: Evidence | None = None,
        **options: Any,
    ) -> RemoteFederation:
        config = from_tables(tables) if contract is None else under(tables, contract)
        kind = RemoteFederation if options.get("colluders") is None else SecureFederation
        return kind.gather(self.operator(transport, **options), config, run, records or self.records())

    def prepare(self, tables: Mapping[str, Any], **options: Any) -> Setting:
        federation = self.gather(tables, **options)
        contract = options.get("contract")
        config = from_tables(tables) if contract is None else under(tables, contract)
        from bonafed.learning.data import datasets

        return prepare(config, federation=federation, contract=contract, dataset=datasets.load("digits"))

    def train(self, tables: Mapping[str, Any], folder: Path | None = None, **options: Any) -> RunResult:
        return train(self.prepare(tables, **options), folder)

    def locally(self, tables: Mapping[str, Any], **options: Any) -> RunResult:
        """The same run on one machine."""
        config = from_tables({**tables, "partition": self.partition.table()})
        if options.get("contract") is not None:
            config = under({**tables, "partition": self.partition.table()}, options["contract"])
        return train(prepare(config, **options))


_VERIFIED: dict[str, list[Finding]] = {}


@pytest.fixture(autouse=True, scope="module")
def verified_once() -> Iterator[None]:
    """All participants live in this process: what one has found of a contract, by its digest, all know.

    What a verification finds is tested with the contracts; a JSAM contract takes a second.
    """
    honest = verification.verify

    def verify(contract: JsamContract) -> list[Finding]:
        if contract.digest not in _VERIFIED:
            _VERIFIED[contract.digest] = honest(contract)
        return _VERIFIED[contract.digest]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(verification, "verify", verify)
        yield


TABLES: dict[str, Any] = {
    "data": {"name": "digits"},
    "partition": {"kind": "iid", "clients": 4},
    "model": {"name": "softmax"},
    "training": {"rounds": 3, "batch_size": 48, "learning_rate": 0.1},
}


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def make_world(tmp_path: Path) -> Callable[..., World]:
    def make(**options: Any) -> World:
        place = tmp_path / f"world{len(list(tmp_path.iterdir()))}"
        place.mkdir()
        return World(place, **options)

    return make


def changed(tables: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {**tables, **more}


__all__ = ["NAMES", "RUN", "TABLES", "World", "changed", "replace"]
