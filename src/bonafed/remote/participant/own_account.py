"""A participant's own account of a run: where the server's statement differs from it, and how it is shown.

A participant counts by itself what it answered, what of that the server has said that it counts, and what
its records have lost. A statement must say the same of it: participations, privacy and, where clients are
paid by terms that everybody can compute, the amount that follows from them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from bonafed.contracts.published import Agreement
from bonafed.contracts.terms import PaidTerms, Turns
from bonafed.economics.findings import Finding, all_hold, findings_table
from bonafed.economics.statement import Statement
from bonafed.errors import InvalidValue
from bonafed.learning.federation import Roster
from bonafed.learning.privacy.ledger import Ledger
from bonafed.presentation.documents import Block, Cell, Column, Document, JSONObject, Table, pairs
from bonafed.remote.participant.journal import Journal
from bonafed.remote.roster import roster_from_json

_RTOL = 1e-6  # of an epsilon that two sides compute


@dataclass(frozen=True, slots=True)
class OwnAccount:
    """What a participant's own ledger says of a run."""

    client: str
    answered: int  # tasks
    accepted: int  # of these, what the server says that it counts
    participations: int  # accepted tasks of local training
    asked: int  # tasks of local training that were answered, accepted or not
    sold: float | None  # epsilon; None: no privacy was promised
    given: float | None  # epsilon of everything that left, whether or not it arrived
    counted: float | None  # epsilon of what the server says that it counts

    def to_json(self) -> JSONObject:
        """The account as plain data."""
        return {name: getattr(self, name) for name in self.__slots__}


def own_account(journal: Journal, run: str, client: str, members: Roster) -> OwnAccount:
    """The account of a run by the journal alone."""
    position, sold = members.index[client], journal.fact(run, "sold")
    tasks = [name for name in journal.identifiers(run) if name not in ("describe", "report", "agree")]
    accepted = set(journal.identifiers(run, accepted=True))
    counted = [name for name in tasks if name in accepted]
    training = {name for name in tasks if _work(journal, run, name) == "train"}
    trained = len(training & set(counted))
    epsilon = given = None
    if sold is not None:
        epsilon = Ledger(tuple(journal.releases(run, position, accepted=True))).epsilon(position, sold[1])
        given = Ledger(tuple(journal.releases(run, position))).epsilon(position, sold[1])
    return OwnAccount(
        client,
        len(tasks),
        len(counted),
        trained,
        len(training),
        None if sold is None else sold[0],
        given,
        epsilon,
    )


def _work(journal: Journal, run: str, identifier: str) -> Any:
    answered = journal.answered(run, identifier)
    return None if answered is None else answered.answer.get("work")


def differences(said: object, account: OwnAccount, agreement: Agreement, name: str) -> list[str]:
    """What a statement says otherwise than my ledger, in words; empty if both agree."""
    try:
        statement = Statement.from_json(said)  # type: ignore[arg-type]  # whatever it is
        row, position = statement.row(name), statement.clients.index(name)
        cells = {column: statement.columns[column][position] for column in statement.columns}
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        return [f"the statement cannot be read ({type(error).__name__})"]
    differing = []
    told = cells.get("participations")
    if told is not None and told != account.participations:
        differing.append(f"participations: {told} in the statement, {account.participations} in my ledger")
    epsilon = cells.get("epsilon")
    if (
        account.counted is not None
        and isinstance(epsilon, int | float)
        and not math.isclose(epsilon, account.counted, rel_tol=_RTOL, abs_tol=1e-9)
    ):
        differing.append(f"epsilon: {epsilon:.6g} in the statement, {account.counted:.6g} in my ledger")
    if isinstance(agreement.terms, PaidTerms) and "participations" in statement.columns:
        delivered = [int(cell) for cell in statement.columns["participations"]]  # type: ignore[arg-type]
        asked = [int(cell) for cell in statement.columns.get("sampled", delivered)]  # type: ignore[arg-type]
        due = agreement.terms.amounts(Turns.of(delivered, asked))[position]
        if statement.amounts[position] != due:
            differing.append(
                f"amount: {row['amount']} in the statement, {statement.written(due)} by the terms"
            )
    return differing


_SHORT = 8  # digits of a run that are enough to name it


def my_document(journal: Journal, client: str, run: str | None = None) -> Document:
    """All runs in one table, and the account of one of them: the last, or the one that is named."""
    runs = [one for one in journal.runs if journal.fact(one, "report") is not None]
    if not runs:
        raise InvalidValue("participant.folder", "must hold a run", "none yet")
    chosen = _named(runs, run)
    accounts = {one: _account(journal, one, client) for one in runs}
    columns = (
        Column("run", left=True), Column("mechanism", left=True), Column("state", left=True),
        Column("answered"), Column("participations"), Column("epsilon given", ".4g"), Column("amount"),
    )  # fmt: skip
    rows = tuple(_row(journal, one, client, accounts[one]) for one in runs)
    findings = _findings(journal, chosen, accounts[chosen])
    blocks: list[Block] = [
        Table(f"Runs of {client}", columns, rows, "amount: what the server owes me; below zero I owe it"),
        pairs(f"My ledger of run {chosen[:_SHORT]}", _pairs(journal, chosen, accounts[chosen])),
        findings_table("What I was told, against my ledger", findings),
    ]
    data: JSONObject = {
        "client": client, "runs": runs, "run": chosen, "account": accounts[chosen].to_json(),
        "statement": journal.fact(chosen, "statement"), "differences": journal.fact(chosen, "differences"),
        "findings": [finding.to_json() for finding in findings],
    }  # fmt: skip
    return Document(tuple(blocks), data, holds=all_hold(findings))


def _named(runs: list[str], run: str | None) -> str:
    if run is None:
        return runs[-1]
    matching = [one for one in runs if one.startswith(run)]
    if len(matching) != 1:
        listed = ", ".join(one[:_SHORT] for one in runs[-10:])
        raise InvalidValue("--run", f"must name one of my runs: {listed}", repr(run))
    return matching[0]


def _account(journal: Journal, run: str, client: str) -> OwnAccount:
    return own_account(journal, run, client, roster_from_json(journal.fact(run, "report")["members"]))


def _statement(journal: Journal, run: str) -> Statement | None:
    data = journal.fact(run, "statement")
    try:
        return None if data is None else Statement.from_json(data)
    except (KeyError, TypeError, ValueError):
        return None  # what was sent was none, which the differences say


def _state(journal: Journal, run: str) -> str:
    if journal.fact(run, "statement") is not None:
        return "DISPUTED" if journal.fact(run, "differences") else "settled"
    return "agreed" if journal.answered(run, "agree") is not None else "not agreed"


def _row(journal: Journal, run: str, client: str, account: OwnAccount) -> tuple[Cell, ...]:
    statement = _statement(journal, run)
    amount = None
    if statement is not None and client in statement.clients:
        amount = f"{statement.row(client)['amount']} {statement.unit}"
    return (
        run[:_SHORT], _mechanism(journal, run), _state(journal, run), account.answered,
        account.participations, account.given, amount,
    )  # fmt: skip


def _mechanism(journal: Journal, run: str) -> str:
    from bonafed.mechanisms import catalogue

    tables: dict[str, Any] = journal.fact(run, "describe")["config"]
    return catalogue.of_table(tables).name


def _pairs(journal: Journal, run: str, account: OwnAccount) -> list[tuple[str, Cell]]:
    reported = journal.answered(run, "report")
    rows: list[tuple[str, Cell]] = [
        ("run", run),
        ("state", _state(journal, run)),
        ("reported", None if reported is None else reported.answer["report"]),
        ("tasks answered", account.answered),
        ("of these counted by the server", account.accepted),
        ("participations that count", account.participations),
        ("epsilon sold", account.sold),
        ("epsilon given, whether or not it arrived", account.given),
        ("epsilon of what the server counts", account.counted),
    ]
    return [(name, value) for name, value in rows if value is not None]


def _findings(journal: Journal, run: str, account: OwnAccount) -> list[Finding]:
    findings = []
    if account.sold is not None and account.given is not None:
        fine = account.given <= account.sold * (1 + 1e-9)
        text = f"{account.given:.4g} of {account.sold:.4g} were given"
        findings.append(Finding("within what I sold", fine, text, account.given, allowed=account.sold))
    if journal.fact(run, "statement") is None:
        findings.append(Finding("statement", None, "none has come yet"))
        return findings
    differing: list[str] = journal.fact(run, "differences") or []
    text = "; ".join(differing) if differing else "says of me what my ledger says"
    findings.append(Finding("statement", not differing, text, float(len(differing))))
    return findings
