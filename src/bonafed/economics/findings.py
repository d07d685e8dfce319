"""Findings: what a check or a search came to, for every mechanism.

A `Finding` is the claim and its kind, whether it holds, a number with its unit and, where it does not hold,
a witness that anybody can recompute. Verification of a contract, an audit by search, the promises checked
at the end of a run and the coins of a run all speak in findings.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from bonafed.checks import finite_or_none
from bonafed.presentation.documents import (
    Column,
    JSONObject,
    Table,
)

if TYPE_CHECKING:
    pass

EXCEEDED = "exceeded"  # the verdict on a budget that was promised on average, say, and was not enough


class Kind(StrEnum):
    """What a claim is about."""

    LIE = "lie"  # what a participant gains by saying or doing something else than the truth
    PARTICIPATION = "participation"  # what a participant loses by taking part
    BUDGET = "budget"  # what the server spends
    PRIVACY = "privacy"  # what a record gives away
    ALLOCATION = "allocation"  # who does how much
    MODEL = "model"  # how good a model is
    RECORD = "record"  # numbers that follow from each other: anybody can compute them again


# what an audit by search claims
_SEARCHED = {
    "truthful": Kind.LIE, "individually rational": Kind.PARTICIPATION, "within budget": Kind.BUDGET,
    "monotone": Kind.ALLOCATION, "feasible": Kind.ALLOCATION,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Witness:
    """A case in which a claim fails; anyone can recompute it."""

    text: str  # the case in one line
    true_cost: float = math.nan
    report: float = math.nan  # the lie, or the report at which the claim fails
    gain: float = math.nan  # how much is won by lying, lost by joining, or overspent
    client: int | None = None  # which participant, for a mechanism
    others: tuple[float, ...] | None = None  # all reports of that case, for a mechanism

    def __post_init__(self) -> None:
        """Of Python's own kinds, as a finding is."""
        for name in ("true_cost", "report", "gain"):
            object.__setattr__(self, name, float(getattr(self, name)))
        if self.client is not None:
            object.__setattr__(self, "client", int(self.client))
        if self.others is not None:
            object.__setattr__(self, "others", tuple(map(float, self.others)))


@dataclass(frozen=True, slots=True)
class Finding:
    """What the check of one claim, or the search for a violation of it, came to."""

    claim: str
    holds: bool | None  # None: not claimed for this case; the text says why
    text: str  # one line, without the name of the claim
    number: float = math.nan  # what was measured: the largest gain, a deviation, ...; NaN: nothing
    witness: Witness | None = None  # the case, where a search found one
    tries: int = 0  # cases looked at by a search
    allowed: float = 0.0  # a number up to this is no violation
    kind: Kind = Kind.RECORD  # what the claim is about
    unit: str = ""  # of the number: "money", "loss"; "": it has none

    def __post_init__(self) -> None:
        """Of Python's own kinds, whatever made them: a finding is written and sent."""
        holds = None if self.holds is None else bool(self.holds)
        kinds = {"holds": holds, "number": float(self.number), "tries": int(self.tries)}
        for name, value in {**kinds, "allowed": float(self.allowed)}.items():
            object.__setattr__(self, name, value)

    @classmethod
    def searched(
        cls,
        claim: str,
        tries: int,
        largest: float,
        witness: Witness | None,
        *,
        kind: Kind | None = None,
        unit: str = "",
    ) -> Finding:
        """Of a search over so many cases whose largest violation is this; a witness breaks the claim.

        The kind is that of the claims of `economics.audit`, unless another is given.
        """
        about = _SEARCHED.get(claim, Kind.RECORD) if kind is None else kind
        if witness is not None:
            text = f"VIOLATED, {witness.text}"
            return cls(claim, False, text, largest, witness, tries, kind=about, unit=unit)
        noun, broken = ("gain", "profitable lie") if about is Kind.LIE else ("violation", "violation")
        cases = "1 try" if tries == 1 else f"{tries:,} tries"
        # a claim that holds with room to spare has a negative violation: that is none at all
        text = f"no {broken} found in {cases}, largest {noun} {max(0.0, largest):.2g}"
        return cls(claim, True, text, largest, None, tries, kind=about, unit=unit)

    @property
    def exceeded(self) -> bool:
        """Whether more was spent than the budget, which was not promised for every run."""
        return self.kind is Kind.BUDGET and self.holds is None and self.number > self.allowed

    @property
    def verdict(self) -> str:
        """The finding in one word, as tables show it."""
        if self.exceeded:
            return EXCEEDED
        return {True: "holds", False: "FAILS", None: "not claimed"}[self.holds]

    def to_json(self) -> JSONObject:
        """Plain data from which `from_json` makes the same finding."""
        case = self.witness
        witness = None if case is None else {
            "text": case.text, "true_cost": finite_or_none(case.true_cost),
            "report": finite_or_none(case.report), "gain": finite_or_none(case.gain),
            "client": case.client, "reports": None if case.others is None else list(case.others),
        }  # fmt: skip
        return {
            "claim": self.claim, "kind": self.kind.value, "holds": self.holds, "verdict": self.verdict,
            "text": self.text, "number": finite_or_none(self.number), "unit": self.unit,
            "tries": self.tries, "allowed": finite_or_none(self.allowed), "witness": witness,
        }  # fmt: skip

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Finding:
        """Of plain data; files of older versions do not say what kind a claim is."""
        case = data.get("witness")
        witness = None if case is None else Witness(
            str(case["text"]), _number(case["true_cost"]), _number(case["report"]),
            _number(case["gain"]), case["client"],
            None if case["reports"] is None else tuple(case["reports"]),
        )  # fmt: skip
        return cls(
            data["claim"],
            data["holds"],
            data["text"],
            _number(data["number"]),
            witness,
            data["tries"],
            _number(data["allowed"]),
            Kind(data.get("kind", Kind.RECORD)),
            data.get("unit", ""),
        )

    def __str__(self) -> str:
        return f"{self.claim}: {self.text}"


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def findings_table(title: str, findings: Iterable[Finding], caption: str = "") -> Table:
    """A row per finding."""
    columns = (Column("", left=True), Column("", left=True), Column("finding", left=True))
    return Table(title, columns, tuple((f.claim, f.verdict, f.text) for f in findings), caption)


def all_hold(findings: Iterable[Finding]) -> bool:
    """Whether no claim fails; what is not claimed does not count."""
    return all(finding.holds is not False for finding in findings)


def checked(findings: Iterable[Finding]) -> list[Finding]:
    """Those that say how it came out; a budget that was exceeded is one, whatever was promised about it."""
    return [finding for finding in findings if finding.holds is not None or finding.exceeded]


def kept(findings: Iterable[Finding]) -> int:
    """How many of the findings hold."""
    return sum(finding.holds is True for finding in findings)
