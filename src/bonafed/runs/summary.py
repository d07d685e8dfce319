"""The outcome of a run: plain data for summary.json, notes for the user, and a document to show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bonafed.economics.findings import Finding, Kind
from bonafed.economics.statement import NO_WORSE, Statement
from bonafed.errors import UnreadableFile
from bonafed.presentation.documents import Cell, Document, Table, counted, pairs
from bonafed.runs.folder import SUMMARY, JSONObject

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bonafed.runs.prepare import Setting


def summarise(setting: Setting, records: Sequence[JSONObject], statement: Statement) -> JSONObject:
    """The outcome as plain data, including the statement."""
    config = setting.config
    own = [record for record in records if not record["phase"]]
    last = own[-1]
    failures = [client for record in own for client in record["failed"]]
    accuracies = [value for record in own if (value := record["test_accuracy"]) is not None]
    spends = [record["spend"] for record in own if record["spend"] is not None]
    epsilon = statement.totals.get("largest_epsilon")
    return {
        "mechanism": config.mechanism,
        "data": config.data.name,
        "model": config.model.name,
        "parameters": setting.program.size,
        "clients": len(setting.agreement.members),
        "class_names": list(setting.agreement.members.class_names),
        "rounds": len(own),
        "unit": setting.unit,
        "train_loss": last["train_loss"],
        "test_loss": last["test_loss"],
        "test_accuracy": last["test_accuracy"],
        "best_test_accuracy": max(accuracies, default=None),
        "mean_participants": sum(len(set(record["participants"])) for record in own) / len(own),
        "mean_draws": sum(len(record["participants"]) for record in own) / len(own),
        "empty_rounds": sum(not record["participants"] for record in own),
        "no_worse_than_alone": _no_worse(statement),
        "steps": sum(record["steps"] for record in own),
        "failures": len(failures),
        "failed_clients": sorted(set(failures)),
        "seconds": round(sum(record["seconds"] for record in records), 3),
        "spend": math.fsum(spends) if spends else None,
        "budget": budget_of(statement.findings),
        "epsilon": epsilon,
        "protects_against": statement.totals.get("protects_against"),
        "statement": statement.to_json(),
        "notes": list(statement.notes),
    }


def _no_worse(statement: Statement) -> str | None:
    """For how many clients that is so; None: nobody can tell."""
    known = [fine for fine in statement.columns.get(NO_WORSE, ()) if fine is not None]
    return f"{sum(map(bool, known)):,} of {len(known):,}" if known else None


def budget_of(findings: Sequence[Finding]) -> JSONObject | None:
    """What came of the budget of money, as plain data; None: there was none."""
    for finding in findings:
        if finding.kind is Kind.BUDGET and finding.unit == "money":
            over = finding.number - finding.allowed
            return {
                "budget": finding.allowed, "spent": finding.number, "over": over,
                "over_share": over / finding.allowed, "verdict": finding.verdict, "text": finding.text,
            }  # fmt: skip
    return None


def budget_in_words(budget: JSONObject) -> str:
    """What came of the budget, in a few words.

    >>> budget_in_words({"verdict": "exceeded", "budget": 60.0, "over": 12.0, "over_share": 0.2})
    '60.00, exceeded by 12.00 (20.0%)'
    """
    if budget["over"] <= 0:
        return f"{budget['budget']:,.2f}, {budget['verdict']}"
    return f"{budget['budget']:,.2f}, exceeded by {budget['over']:,.2f} ({budget['over_share']:.1%})"


def notes(setting: Setting, records: Sequence[JSONObject]) -> list[str]:
    """What the user should know about the training, one sentence each."""
    own = [record for record in records if not record["phase"]]
    sentences = list(setting.notes)
    quiet = setting.config.noise is not None  # private runs report no training loss
    losses = [record["test_loss" if quiet else "train_loss"] for record in own]
    finite = [loss for loss in losses if loss is not None]
    grows = bool(finite) and finite[-1] > finite[0]
    if grows:
        grew = f"the {'test' if quiet else 'training'} loss grew from {finite[0]:.4g} to {finite[-1]:.4g}"
        sentences.append(f"{grew}: the learning rate may be too large{' for this noise' if quiet else ''}")
    last = next((r["test_loss"] for r in reversed(own) if r["test_loss"] is not None), None)
    classes = setting.agreement.members.classes  # 0 where a roster does not say
    if setting.program.loss == "cross-entropy" and classes and last is not None and not grows:
        guess = math.log(classes)
        if last > 2 * guess:
            sentences.append(
                f"the test loss, {last:.4g}, is above that of guessing, {guess:.4g}: "
                "the learning rate may be too large"
            )
    active = [record for record in own if record["participants"]]
    if active and all(len(r["failed"]) == len(r["participants"]) for r in active):
        sentences.append("all updates were left out, the model is unchanged")
    unheld = sum(len(r["failed"]) == len(r["participants"]) for r in active)
    if 0 < unheld < len(active):
        sentences.append(
            f"{unheld:,} of {counted(len(own), setting.unit)} had participants of whom none delivered: the "
            "model stayed as it was, and nobody is paid for that; secure sums hold no round of fewer than "
            "two participants"
        )
    empty = len(own) - len(active)
    if active and empty:
        sentences.append(
            f"{empty:,} of {counted(len(own), setting.unit)} had nobody in them, and left the model as it "
            "was: more money, or the same money for fewer rounds, leaves fewer of them empty"
        )
    if not active:
        sentences.append(
            "nobody took part in any round, the model is unchanged: the budget buys too little"
        )
    return sentences


def statement_of(summary: JSONObject, folder: Path | None) -> Statement:
    """The statement in a summary; one written by an older version is refused."""
    try:
        statement = Statement.from_json(summary["statement"])
    except (KeyError, TypeError) as error:
        path = SUMMARY if folder is None else folder / SUMMARY
        raise UnreadableFile(path, f"must hold the statement of a run ({error})") from error
    return statement if statement.run or folder is None else replace(statement, run=folder.name)


def run_document(summary: JSONObject, metrics: Sequence[JSONObject], folder: Path | None) -> Document:
    """What a run came to, and its statement."""
    statement = statement_of(summary, folder)
    title = "Run" if folder is None else f"Run {folder.name}"
    blocks = (overview_table(title, summary), *statement.document().blocks)
    where = () if folder is None else (f"in {folder}",)
    return Document((*blocks, *where), summary, lambda: curves(summary, metrics))


def overview_table(title: str, summary: JSONObject) -> Table:
    """What was run, and what came out."""
    return pairs(title, _rows(summary))


def _rows(summary: JSONObject) -> list[tuple[str, Cell]]:
    unit = summary.get("unit", "round")  # older summaries do not say
    rows: list[tuple[str, Any]] = [
        ("mechanism", summary["mechanism"]),
        ("data", summary["data"]),
        ("model", f"{summary['model']}, {summary['parameters']:,} parameters"),
        ("clients", f"{summary['clients']:,}"),
        ("classes", ", ".join(summary.get("class_names", ())) or None),
        (f"{unit}s", f"{summary['rounds']:,}"),
        (f"participants per {unit}", f"{summary['mean_participants']:,.4g}"),
        (f"draws per {unit}", _draws(summary)),
        (f"{unit}s without anybody", _empty(summary)),
        ("no worse than alone", _clients(summary)),
        ("training loss", _digits(summary["train_loss"])),
        ("test loss", _digits(summary["test_loss"])),
        ("test accuracy", _percent(summary["test_accuracy"])),
        ("best test accuracy", _percent(summary["best_test_accuracy"])),
        ("money spent", None if summary["spend"] is None else f"{summary['spend']:,.2f}"),
        ("budget", None if summary.get("budget") is None else budget_in_words(summary["budget"])),
        ("largest epsilon", _digits(summary["epsilon"])),
        ("epsilon holds against", summary.get("protects_against")),
        ("failures", summary["failures"] or None),
        ("seconds of training", f"{summary['seconds']:,.2f}"),
    ]
    return [(name, value) for name, value in rows if value is not None]


def _empty(summary: JSONObject) -> str | None:
    empty = summary.get("empty_rounds")
    return f"{empty:,} of {summary['rounds']:,}" if empty else None


def _draws(summary: JSONObject) -> str | None:
    """Where a client may be drawn several times in a round: how many draws there are."""
    draws = summary["mean_draws"]
    return None if draws == summary["mean_participants"] else f"{draws:,.4g}"


def _clients(summary: JSONObject) -> str | None:
    """For how many clients joining was worth it; only where they pay are payments spoken of."""
    count = summary.get("no_worse_than_alone")
    if count is None:
        return None
    pays = "payment" in summary["statement"]["columns"]
    return f"{count} clients, with their payments" if pays else f"{count} clients"


def _digits(value: float | None) -> str | None:
    return None if value is None else f"{value:.4g}"


def _percent(value: float | None) -> str | None:
    return None if value is None else f"{value:.2%}"


def curves(summary: JSONObject, metrics: Sequence[JSONObject]) -> Figure:
    """Accuracy and loss over the rounds, and over the money."""
    from bonafed.runs.figures import curves_figure

    return curves_figure(summary, metrics)
