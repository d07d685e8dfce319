"""Contracts that are published before anybody reports, and the agreement that a run is based on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from bonafed.contracts.coins import Coins
from bonafed.contracts.terms import Reports, Terms
from bonafed.economics.claims import Finding
from bonafed.learning.federation import Question, Roster
from bonafed.presentation.documents import Document, JSONObject


class Contract(Protocol):
    """What is published before anybody reports: terms for every report, which anybody can verify."""

    @property
    def mechanism(self) -> str:
        """A name of the catalogue."""
        ...

    @property
    def content(self) -> bytes:
        """The canonical form, byte for byte."""
        ...

    @property
    def digest(self) -> str:
        """SHA-256 of the canonical form, in hex."""
        ...

    @property
    def clients(self) -> int | None:
        """How many it is for; None: any number."""
        ...

    @property
    def rounds(self) -> int:
        """Of the run."""
        ...

    @property
    def draws(self) -> int | None:
        """Clients drawn in a round, with replacement; None: each takes part by a coin of its own."""
        ...

    @property
    def coin_commitment(self) -> str | None:
        """SHA-256 of the secret that decides who takes part, in hex; None: no secret binds the server."""
        ...

    @property
    def question(self) -> Question:
        """What clients report; simulated ones as the contract believes them to be."""
        ...

    def with_coins(self, commitment: str) -> Contract:
        """The same contract with the commitment of the server's secret in it."""
        ...

    def chance(self, client: str, report: float) -> float | None:
        """A client's entry in the lottery for its report; None: it depends on what others report."""
        ...

    def document(self) -> Document:
        """What a participant signs."""
        ...

    def verify(self) -> Sequence[Finding]:
        """Checks that trust nothing the writer computed."""
        ...

    def prospect(self, report: float) -> Document:
        """What a participant with this true cost would earn, and what the best lie would gain.

        Its data hold an `Earning` for each kind of participant under `EARNINGS`, where that can be told.
        """
        ...

    def settle(self, reports: Reports) -> Terms:
        """The terms of every client; the order of the reports does not matter."""
        ...

    def table(self) -> Mapping[str, Any]:
        """The mechanism's table of a config that runs under this contract: every key that it decides.

        None: the key must be left out. Keys that no contract decides are not in it.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Agreement:
    """The basis of a run: who is in it, what was published, what was reported, what follows for each."""

    members: Roster
    reports: Reports = field(default_factory=dict)
    contract: Contract | None = None  # None: nothing was published
    terms: Any = None  # the mechanism's `Terms`; None: nothing was agreed on
    coins: Coins | None = None  # verifiable ones; None: who takes part follows from run.seed
    silent: tuple[str, ...] = ()  # clients that did not report, and do not take part

    def to_json(self) -> JSONObject:
        """Plain data, as a run keeps it."""
        return {
            "clients": list(self.members.names),
            "reports": dict(self.reports),
            "contract": None if self.contract is None else self.contract.digest,
            "terms": None if self.terms is None else self.terms.to_json(),
            **({"did_not_report": list(self.silent)} if self.silent else {}),
        }
