"""What every published contract is, whatever the mechanism: this module says it once.

A contract is published before anybody reports. What its file states, and nothing else, fixes the terms of
every client for any reports, so that whoever has the file and the reports computes the same terms.

    shared, and fixed here    format and version, canonical form, digest, reading without trust, the
                              commitment of verifiable coins, settlement by names, the chance of one
                              report, the keys of a config that runs under the contract
    a mechanism's own         `fields` and `from_fields` (what the file states), `terms_for` (allocation
                              and payment), `verify` (checks), `signed`, `prospect` and `settings` (what
                              these come to for participants and for a config)

A mechanism that overrides a shared part is refused where its class is made: two contracts that are signed,
digested or settled in different ways would be two products.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from inspect import getattr_static
from pathlib import Path
from typing import Any, ClassVar, Self

from bonafed import checks
from bonafed.contracts.attendance import Attendance
from bonafed.contracts.canonical import (
    canonical_bytes,
    coin_commitment,
    coins_from_json,
    coins_to_json,
    coins_word,
    digest,
    require_same,
    require_version,
    tidy,
)
from bonafed.contracts.coins import Coins
from bonafed.contracts.terms import Drawn, PaidTerms, Reports
from bonafed.economics.findings import Finding
from bonafed.economics.registry import field as field_of
from bonafed.errors import InvalidValue
from bonafed.files import write_together
from bonafed.learning.federation import Question, Roster
from bonafed.presentation.documents import Document, JSONObject, Shown


class PublishedContract(Shown, ABC):
    """Terms for every report, which anybody can verify. Subclasses are frozen dataclasses.

    Class attributes of a mechanism:
        mechanism: its name in the catalogue.
        format: the word by which its files are recognised.
        noun: what an error about a field of the file begins with.
    """

    mechanism: ClassVar[str]
    format: ClassVar[str]
    version: ClassVar[int] = 1
    noun: ClassVar[str] = "contract"

    clients: int  # how many it is for, at most
    rounds: int  # of the run
    decimals: int  # of an amount that is paid
    coin_commitment: str | None  # SHA-256 of the secret that decides who takes part; None: none binds

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        here = vars(PublishedContract)
        shared = [name for name in sorted(SHARED) if getattr_static(cls, name) is not here[name]]
        if shared:  # by its own body, or by a base that comes before this one
            raise TypeError(f"{cls.__name__} must not override {', '.join(shared)}")

    # shared ---------------------------------------------------------------------------------------

    def to_json(self) -> JSONObject:
        """Plain data to publish; `from_json` rebuilds the contract."""
        coins = coins_to_json(self.coin_commitment)
        return tidy({"format": self.format, "version": self.version, **self.fields(), **coins})

    @classmethod
    def from_json(cls, data: object) -> Self:
        """From a file; every field is checked, and no other is allowed."""
        kind = field_of(data, "format", cls.noun)
        if kind != cls.format:
            raise InvalidValue(f"{cls.noun}.format", f"must be {cls.format!r}", repr(kind)[:60])
        assert isinstance(data, dict)  # otherwise `field_of` would have refused it
        require_version(field_of(data, "version", cls.noun), cls.version, f"{cls.noun}.version")
        contract, commitment = cls.from_fields(data), coins_from_json(data.get("coins"))
        if commitment is not None:
            try:
                contract = contract.with_coins(commitment)
            except InvalidValue as error:
                raise error.renamed(f"{cls.noun}.{error.name}") from error
        require_same(data, contract.to_json(), cls.noun)
        return contract

    @cached_property
    def content(self) -> bytes:
        """The canonical form, byte for byte."""
        return canonical_bytes(self.to_json())

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical form, in hex, as `sha256sum` prints it for the file."""
        return digest(self.content)

    def write(self, path: str | Path) -> str:
        """Write the contract in canonical form and return its digest."""
        write_together({Path(path): self.content})
        return self.digest

    def with_coins(self, commitment: str) -> Self:
        """The same contract with the commitment of the server's secret in it."""
        return replace(self, coin_commitment=coin_commitment(commitment))  # type: ignore[type-var]  # a dataclass

    def settle(self, reports: Reports) -> PaidTerms:
        """The terms of every client, in the order of the reports, which moves no term.

        Whoever does not report does not take part.
        """
        if not reports:
            raise InvalidValue("reports", "must come from at least one client", "none")
        if len(reports) > self.clients:
            rule = f"must come from at most the contract's {self.clients} clients"
            raise InvalidValue("reports", rule, len(reports))
        checks.names("names in reports", reports)
        listed = set(self.question.names)
        for name in reports if listed else ():
            if name not in listed:
                raise InvalidValue("reports", "must come from clients that the contract lists", repr(name))
        stated = {name: checks.non_negative(f"report of {name}", cost) for name, cost in reports.items()}
        return self.terms_for(Drawn(stated) if isinstance(reports, Drawn) else stated)

    def chance(self, client: str, report: float) -> float | None:
        """A client's entry in the lottery for its report; None: it depends on what others report."""
        if not self.is_posted:
            return None
        terms = self.settle({client: checks.non_negative(self.question.name, report)})
        return float(terms.lottery.chances[0])

    def document(self) -> Document:
        """What a participant signs; the file itself is in `files["contract"]`."""
        return replace(self.signed(), files={"contract": self.content})

    def table(self) -> Mapping[str, Any]:
        """The mechanism's table of a config that runs under this contract: every key that it decides.

        None: the key must be left out. Keys that no contract decides are not in it.
        """
        return {
            **self.settings(),
            "decimals": self.decimals,
            "coins": coins_word(self.coin_commitment),
        }

    # a mechanism's own ----------------------------------------------------------------------------

    @property
    def draws(self) -> int | None:
        """Clients drawn in a round, with replacement; None: each takes part by a coin of its own."""
        return None

    @property
    def is_posted(self) -> bool:
        """Whether a client's terms follow from its own report alone."""
        return True

    @property
    @abstractmethod
    def question(self) -> Question:
        """What clients report; simulated ones as the contract believes them to be.

        Its names are the clients that the contract is for; (): anybody, so many at most.
        """

    @abstractmethod
    def fields(self) -> JSONObject:
        """What the file states of the mechanism: all that terms follow from."""

    @classmethod
    @abstractmethod
    def from_fields(cls, data: JSONObject) -> Self:
        """The contract of these fields: each is well formed, not yet known to be worth signing."""

    @abstractmethod
    def terms_for(self, reports: Reports) -> PaidTerms:
        """Allocation and payment for checked reports, in their order."""

    @abstractmethod
    def verify(self) -> Sequence[Finding]:
        """Checks that trust nothing the writer computed."""

    @abstractmethod
    def prospect(self, report: float) -> Document:
        """What a participant with this true cost would earn, and what the best lie would gain.

        Its data hold an `Earning` for each kind of participant under `EARNINGS`, where that can be told.
        """

    @abstractmethod
    def signed(self) -> Document:
        """What a participant is shown of the terms before it signs."""

    @abstractmethod
    def settings(self) -> Mapping[str, Any]:
        """The keys of `table` that this mechanism alone has."""


SHARED = frozenset(
    ("version", "to_json", "from_json", "content", "digest", "write", "with_coins", "settle", "chance",
     "document", "table")
)  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Agreement:
    """The basis of a run: who is in it, what was published, what was reported, what follows for each."""

    members: Roster
    reports: Reports = field(default_factory=dict)
    contract: PublishedContract | None = None  # None: nothing was published
    terms: Any = None  # the mechanism's `Terms`; None: nothing was agreed on
    coins: Coins | None = None  # verifiable ones; None: who takes part follows from run.seed
    silent: tuple[str, ...] = ()  # clients that did not report, and do not take part

    def attendance(self, rounds: int | None) -> Attendance | None:
        """How many will be in the rounds of a run; None: no chance decides it, or the terms do not say."""
        terms = self.terms
        return Attendance.of(terms.lottery, rounds) if rounds and isinstance(terms, PaidTerms) else None

    def to_json(self) -> JSONObject:
        """Plain data, as a run keeps it."""
        return {
            "clients": list(self.members.names),
            "reports": dict(self.reports),
            "contract": None if self.contract is None else self.contract.digest,
            "terms": None if self.terms is None else self.terms.to_json(),
            **({"did_not_report": list(self.silent)} if self.silent else {}),
        }
