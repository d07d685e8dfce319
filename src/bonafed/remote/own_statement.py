"""A participant's own statement: what its ledger says of the runs it was in, beside what it was told."""

from __future__ import annotations

from typing import Any

from bonafed.economics.claims import Finding, Statement, all_hold, findings_table
from bonafed.errors import InvalidValue
from bonafed.presentation.documents import Block, Cell, Column, Document, JSONObject, Table, pairs
from bonafed.remote.accounts import OwnAccount, own_account
from bonafed.remote.journal import Journal
from bonafed.remote.rosters import roster_from_json

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
    found = [one for one in runs if one.startswith(run)]
    if len(found) != 1:
        listed = ", ".join(one[:_SHORT] for one in runs[-10:])
        raise InvalidValue("--run", f"must name one of my runs: {listed}", repr(run))
    return found[0]


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
    found: list[str] = journal.fact(run, "differences") or []
    text = "; ".join(found) if found else "says of me what my ledger says"
    findings.append(Finding("statement", not found, text, float(len(found))))
    return findings
