"""Terms: what a contract and all reports come to for every client, and what is owed for it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.contracts.attendance import Attendance, Lottery
from bonafed.economics.discrete import Empirical
from bonafed.economics.priors import Prior
from bonafed.errors import InvalidValue
from bonafed.presentation.documents import Cell, Document, JSONObject, Shown

Ints = NDArray[np.int64]
Reports = Mapping[str, float]  # what each client states, by name


class Drawn(dict[str, float]):
    """Simulated reports, drawn from what a contract believes about clients."""


@dataclass(frozen=True, slots=True, eq=False)
class Turns:
    """How often everybody was to take part, and how often it delivered; clients are places in the roster.

    A client delivers if its answer comes and can be used. Where privacy is promised, whether it can be used
    stays secret, and every answer counts. A missing answer (`Failure.absent`) never does.

    >>> Turns.of([2, 3], asked=[2, 4]).columns
    {'participations': [2, 3], 'sampled': [2, 4]}
    """

    delivered: Ints  # (N,) with multiplicity
    asked: Ints  # (N,) likewise, at least as often

    def __post_init__(self) -> None:
        if self.asked.shape != self.delivered.shape:
            raise InvalidValue("asked", f"must be {self.delivered.size}, one per client", self.asked.size)
        if (self.delivered > self.asked).any():
            place = int(np.argmax(self.delivered > self.asked))
            rule = f"must be at most what client {place} was asked for, {self.asked[place]}"
            raise InvalidValue("delivered", rule, int(self.delivered[place]))

    @classmethod
    def of(cls, delivered: Sequence[int] | Ints, asked: Sequence[int] | Ints | None = None) -> Turns:
        """From counts (N,) each; without `asked`, everybody always delivered."""
        given = _counts("delivered", delivered)
        return cls(given, given if asked is None else _counts("asked", asked))

    @property
    def columns(self) -> dict[str, list[int]]:
        """Of a statement: deliveries and, where some are missing, how often each was to take part."""
        delivered, asked = self.delivered.tolist(), self.asked.tolist()
        return {"participations": delivered} | ({} if asked == delivered else {"sampled": asked})


def _counts(name: str, values: Sequence[int] | Ints) -> Ints:
    return np.array([checks.whole(name, value, at_least=0) for value in values], dtype=np.int64)


class Terms(Protocol):
    """What was agreed with every client: the contract applied to the reports."""

    def document(self) -> Document:
        """A row per client, the money, cautions; `files["csv"]` has all digits."""
        ...

    def to_json(self) -> JSONObject:
        """Plain data: everything that was promised."""
        ...


class PaidTerms(Shown, ABC):
    """Terms of clients that are paid for taking part: anybody can compute the money again.

    Clients are places, 0, 1, ..., in the order of `clients`. Only what was delivered is paid for, so that
    whoever keeps its answers to itself to save their cost gains nothing by it (theory A7, B11).
    """

    clients: tuple[str, ...]  # (N,) names
    rounds: int
    decimals: int  # of an amount: the smallest unit is 10^-decimals

    @property
    @abstractmethod
    def columns(self) -> Mapping[str, Sequence[Cell]]:
        """(N,) each: the columns of the statement that follow from contract and reports alone."""

    @property
    @abstractmethod
    def lottery(self) -> Lottery:
        """Who takes part in a round, as coins decide it."""

    @abstractmethod
    def due_in(self, round_number: int, who: Sequence[int], turns: Turns) -> float:
        """Money that becomes due in round 1, 2, ... in which these deliver; `turns` with this round."""

    @abstractmethod
    def amounts(self, turns: Turns) -> tuple[int, ...]:
        """(N,) smallest units owed after the run for the turns of each, rounded."""

    @abstractmethod
    def to_json(self) -> JSONObject:
        """Plain data: everything that was promised."""

    @property
    def attendance(self) -> Attendance:
        """How many will be in a round, for these reports."""
        return Attendance.of(self.lottery, self.rounds)


def did_not_report(reported: int, clients: int, consequence: str) -> str:
    """A caution where not everybody has reported, and what follows for those who did.

    >>> did_not_report(2, 3, ", and their money is not spent")
    '2 of 3 clients have reported; the others do not take part, and their money is not spent'
    """
    return f"{reported:,} of {clients:,} clients have reported; the others do not take part{consequence}"


def past_reports(reports: Floats, prior: Prior) -> int:
    """How many reports are among the past costs that a prior was estimated from.

    Each past cost stands for one report at most, whatever the order.
    """
    if not isinstance(prior, Empirical):
        return 0
    return (Counter(reports.tolist()) & Counter(prior.samples.tolist())).total()


@dataclass(frozen=True, slots=True)
class Earning:
    """What a participant can expect at its true cost; money is over the run, on average.

    Prospects hold them as plain data under `EARNINGS`, one for each kind of participant that a contract
    tells apart, so that whoever shows a contract need not know whose it is.
    """

    kind: str  # of participant; "": there is one
    admitted: bool  # whether the cost leads to terms
    paid: float
    left: float  # after the cost
    lie: float | None  # the best other report that was found; None: there is nothing to lie about
    gain: float  # what it would win; negative: it loses


EARNINGS = "earnings"
