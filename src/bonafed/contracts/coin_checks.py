"""The coins of a run that has ended: everything that follows from them, computed again.

The contract and the reports are taken as given. From these follow everybody's chance and payment; from
the opened secrets who took part in which round; from both together the money of every round and every
client's amount. `check_run` compares all of this with what the run has recorded.

One thing no coin can tell: whether a participant delivered. Who did not is taken from the record, and is
not paid for that round; `check_run` counts and names them, so that they can hold it against what they
signed. A server that claims a false absence is found out by its participants, not here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bonafed.contracts.coins import Coins
from bonafed.contracts.published import PublishedContract
from bonafed.contracts.roster import check_contract, settle_paid
from bonafed.contracts.terms import PaidTerms, Reports, Turns
from bonafed.contracts.transcript import Transcript, check_openings, check_rounds
from bonafed.economics.findings import Finding
from bonafed.economics.statement import Statement
from bonafed.presentation.documents import counted

_RTOL = 1e-12  # sums of money, added up in another order
_SAME = 1e-10  # what is computed by the same formulas, perhaps on two machines
_NAMED = 5  # clients in a text


@dataclass(frozen=True, slots=True, eq=False)
class RunRecord:
    """What a run recorded."""

    contract: PublishedContract
    reports: Reports
    transcript: Transcript
    participants: Sequence[Sequence[str]]  # names, of every round
    failed: Sequence[Sequence[str]]  # of these, who did not deliver
    spend: Sequence[float | None]  # money, of every round
    statement: Statement | None  # None: the run has not ended


def check_run(record: RunRecord) -> list[Finding]:
    """Whether exactly those took part and were paid whom contract, reports and coins determine."""
    openings, coins = check_openings(record.transcript)
    findings = [check_contract(record.transcript.roster, record.contract), *openings]
    if coins is None or not findings[0].holds:
        return findings
    terms = settle_paid(record.contract, record.reports)
    findings.append(_check_chances(terms, coins))
    if not findings[-1].holds:
        return findings
    findings.append(_check_participants(coins, record))
    if not findings[-1].holds:
        return findings
    findings.append(_check_deliveries(record))
    if findings[-1].holds is False:
        return findings
    return [*findings, _check_spend(terms, coins, record), *_check_statement(terms, coins, record)]


def _check_chances(terms: PaidTerms, coins: Coins) -> Finding:
    """Whether every client has the chance on the roster that its report entitles it to."""
    roster = coins.roster
    if roster.names != terms.clients:
        return Finding("chances", False, "the roster lists other clients than those who reported")
    wrong = _first_difference(roster.chances.tolist(), terms.lottery.chances.tolist())
    if wrong is not None:
        chance, due = float(roster.chances[wrong]), float(terms.lottery.chances[wrong])
        text = f"client {roster.names[wrong]}: {chance!r} on the roster, {due!r} by contract and report"
        return Finding("chances", False, text)
    text = f"of {counted(len(roster.names), 'client')}, as contract and reports say"
    return Finding("chances", True, text)


def _first_difference(values: Sequence[object], due: Sequence[object]) -> int | None:
    """The first place where two columns differ; numbers by more than machines do."""
    for place, (one, other) in enumerate(zip(values, due, strict=True)):
        if isinstance(one, float) and isinstance(other, float):
            if not math.isclose(one, other, rel_tol=_SAME, abs_tol=0.0):
                return place
        elif one != other:
            return place
    return None


def _check_participants(coins: Coins, record: RunRecord) -> Finding:
    places = {name: place for place, name in enumerate(coins.roster.names)}
    for number, names in enumerate(record.participants, 1):
        for name in names:
            if name not in places:
                text = f"round {number}: client {name}, who is not on the roster, took part"
                return Finding("participants", False, text)
    return check_rounds(coins, [[places[name] for name in names] for names in record.participants])


def _check_deliveries(record: RunRecord) -> Finding:
    """Who did not deliver, by the record: nobody more often than it was in. Coins say no more."""
    absences: Counter[str] = Counter()
    for number, (names, missing) in enumerate(zip(record.participants, record.failed, strict=True), 1):
        for name, times in Counter(missing).items():
            if times > names.count(name):
                text = f"round {number}: client {name} failed {counted(times, 'time')}, but was in "
                text += f"{names.count(name)}"
                return Finding("deliveries", False, text)
        absences.update(missing)
    total, missing_ones = sum(map(len, record.participants)), absences.total()
    if not missing_ones:
        return Finding("deliveries", True, f"all {counted(total, 'participation')}, by the record")
    worst = ", ".join(f"{name} {times}" for name, times in absences.most_common(_NAMED))
    more = ", ..." if len(absences) > _NAMED else ""
    text = (
        f"{missing_ones:,} of {counted(total, 'participation')} not delivered by the record, and not paid: "
        f"{worst}{more}. Coins cannot tell; what participants signed can"
    )
    return Finding("deliveries", None, text, float(missing_ones))


def _rounds(coins: Coins, record: RunRecord) -> Iterator[tuple[list[int], Turns]]:
    """Of every round, who delivered, and everybody's turns up to it; the coins say who was in."""
    places = {name: place for place, name in enumerate(coins.roster.names)}
    asked = np.zeros(len(places), dtype=np.int64)
    delivered = asked.copy()
    for number, missing in enumerate(record.failed, 1):
        in_it = np.bincount(coins.participants(number), minlength=len(places))
        there = in_it - np.bincount([places[name] for name in missing], minlength=len(places))
        asked, delivered = asked + in_it, delivered + there
        yield np.repeat(np.arange(len(places)), there).tolist(), Turns(delivered, asked)


def _check_spend(terms: PaidTerms, coins: Coins, record: RunRecord) -> Finding:
    """Whether the money of every round is due to those who delivered in it."""
    for number, (spend, (who, turns)) in enumerate(
        zip(record.spend, _rounds(coins, record), strict=True), 1
    ):
        due = terms.due_in(number, who, turns)
        if spend is None or not math.isclose(spend, due, rel_tol=_RTOL, abs_tol=0.0):
            return Finding("spend", False, f"round {number}: {spend} were spent, the coins say {due:.10g}")
    total = math.fsum(spend or 0.0 for spend in record.spend)
    text = f"{total:.10g} in {counted(len(record.spend), 'round')}, as the coins say"
    return Finding("spend", True, text)


def _check_statement(terms: PaidTerms, coins: Coins, record: RunRecord) -> list[Finding]:
    """Whether the statement has everybody's terms and participations, and the amount that is due."""
    statement, names = record.statement, coins.roster.names
    if statement is None:
        return [Finding("statement", False, "none yet: the run has not ended")]
    if statement.clients != names:
        return [Finding("statement", False, "lists other clients than the roster")]
    *_, (_, turns) = _rounds(coins, record)
    due: dict[str, Sequence[object]] = {
        **terms.columns, **turns.columns, "amounts": terms.amounts(turns)
    }  # fmt: skip
    columns: dict[str, Sequence[object]] = {**statement.columns, "amounts": statement.amounts}
    findings = []
    for claim, values in due.items():
        if claim not in columns:
            findings.append(Finding(claim, False, "not in the statement"))
            continue
        wrong = _first_difference(columns[claim], values)
        if wrong is None:
            text = f"of {counted(len(names), 'client')}, as in the statement"
            findings.append(Finding(claim, True, text))
        else:
            value, right = columns[claim][wrong], values[wrong]
            text = f"client {names[wrong]}: {value} in the statement, {right} by contract, report and coins"
            findings.append(Finding(claim, False, text))
    return findings
