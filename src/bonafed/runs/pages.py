"""Pages of training runs: one by itself, several side by side, and a comparison of mechanisms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bonafed.economics.claims import EXCEEDED, Statement, all_hold, checked, findings_table, kept
from bonafed.mechanisms.contract_files import contract_from_json
from bonafed.presentation.documents import Document, JSONObject, Table, counted
from bonafed.presentation.page import Badge, Block, Details, Link, Page, Part, Words, shown
from bonafed.presentation.page_pictures import picture
from bonafed.runs import folder as folders
from bonafed.runs import listing
from bonafed.runs.comparison import comparison_document
from bonafed.runs.summary import curves, overview_table, statement_of

if TYPE_CHECKING:
    from bonafed.runs.comparing import Comparison

_FOOT = "Made by bonafed from what the runs recorded; the numbers are in this file as data."
_ALT = "Accuracy and loss over the rounds and, where money becomes due round by round, over the money spent"
_OPEN = "Not finished: nothing is owed yet"
_LISTED = 40  # clients whose rows are seen at once


def run_page(folder: Path) -> Page:
    """Of one run, finished or not."""
    overview = listing.overview(folder)
    listing.mark_test_sets([overview])
    name = overview["name"]
    if not overview["finished"]:
        lead = f"{_OPEN}; {counted(overview['rounds'], overview['unit'])} so far."
        so_far = Part("So far", "curves", (listing.table([overview]), _curves([overview])))
        return Page(f"Run {name}", (lead,), (so_far,), {"run": overview}, _FOOT)
    summary, metrics = folders.read_json(folder, folders.SUMMARY), folders.read_rounds(folder)
    statement = statement_of(summary, folder)
    parts = _run_parts(summary, metrics, statement)
    if (folder / folders.CONTRACT).is_file():
        contract = contract_from_json(folders.read_json(folder, folders.CONTRACT))
        parts = (*parts, Part("The contract", "contract", shown(contract.document().blocks)))
    return Page(f"Run {name}", (_kept(statement),), parts, {"run": summary}, _FOOT)


def runs_page(places: Sequence[Path], comparison: Mapping[str, Any] | None = None) -> Page:
    """Of several runs side by side; with the plain data of a comparison, also what lies would gain."""
    rows = [listing.overview(place) for place in places]
    for row, name in zip(rows, listing.distinct_names(places), strict=True):
        row["name"] = name
    listing.mark_test_sets(rows)
    parts: list[Part] = []
    if comparison is not None:
        parts.append(_side_by_side(comparison_document(comparison)))
    table = () if comparison is not None else (listing.table(rows),)
    parts.append(Part("Curves", "runs", (*table, _curves(rows))))
    for number, (place, row) in enumerate(zip(places, rows, strict=True), 1):
        if row["finished"]:
            summary, metrics = folders.read_json(place, folders.SUMMARY), folders.read_rounds(place)
            parts.append(_of_one(row["name"], number, summary, metrics, statement_of(summary, place)))
        else:
            parts.append(Part(f"Run {row['name']}", f"run-{number}", (f"{_OPEN}.",)))
    title = "Mechanisms compared" if comparison is not None else "Runs side by side"
    return Page(title, (_names(rows),), tuple(parts), {"runs": rows, "comparison": comparison}, _FOOT)


def comparison_page(comparison: Comparison) -> Page:
    """Of a comparison that has just been made, whether or not its runs are kept."""
    document = comparison.document()
    ran = [(each.mechanism, each.result) for each in comparison.entrants if each.result is not None]
    parts = [_side_by_side(document), Part("Curves", "runs", (_compared(comparison),))]
    for number, (name, result) in enumerate(ran, 1):
        parts.append(_of_one(name, number, result.summary, result.metrics, result.statement))
    names = ", ".join(name for name, _ in ran)
    lead = Words(
        (
            f"One federation of {counted(comparison.clients, 'client')} under {names}.",
            *_failures(comparison),
        )
    )
    return Page("Mechanisms compared", (lead,), tuple(parts), {"comparison": dict(document.data)}, _FOOT)


def _failures(comparison: Comparison) -> list[str | Link | Badge]:
    """Which mechanisms failed."""
    names = [entrant.mechanism for entrant in comparison.entrants if entrant.failed is not None]
    return [" ", Badge("FAILS"), f": {', '.join(names)} failed, see below."] if names else []


def _names(rows: Sequence[JSONObject]) -> str:
    return f"{counted(len(rows), 'run')}: " + ", ".join(row["name"] for row in rows) + "."


def _side_by_side(document: Document) -> Part:
    blocks = shown(document.blocks)
    if document.figure is not None:
        alt = "Accuracy, money, epsilon and gain of the best lie of every mechanism, as in the table."
        blocks = (*blocks[:1], picture(document.figure(), alt), *blocks[1:])
    return Part("Side by side", "comparison", blocks)


def _of_one(
    name: str, number: int, summary: JSONObject, metrics: Sequence[JSONObject], statement: Statement
) -> Part:
    """One of several runs: what it came to, and what stands behind it."""
    alt = f"Accuracy and loss of {name} by {summary.get('unit', 'round')}."
    details = (
        Details("Curves", (picture(curves(summary, metrics), alt),)),
        Details("Setting and outcome", (overview_table(name, summary),)),
        Details("Statement", _statement_blocks(statement)),
    )
    return Part(f"Run {name}", f"run-{number}", (_kept(statement), *details))


def _run_parts(
    summary: JSONObject, metrics: Sequence[JSONObject], statement: Statement
) -> tuple[Part, ...]:
    unit = summary.get("unit", "round")
    alt = f"Accuracy and loss by {unit} and, where it is due round by round, by money."
    drawn = picture(curves(summary, metrics), alt)
    promised: tuple[Part, ...] = ()
    if statement.findings:
        table = findings_table("Findings", statement.findings)
        promised = (Part("What was promised", "findings", (table,)),)
    return (
        Part("Outcome", "outcome", (overview_table("", summary), drawn)),
        Part("Statement", "statement", _statement_blocks(replace(statement, findings=()))),
        *promised,
    )


def _statement_blocks(statement: Statement) -> tuple[Block, ...]:
    """Every client, what it is owed and the privacy that it gave, with a figure of either."""
    table, *rest = shown(statement.document(None).blocks)
    whole: Block = table
    if len(statement.clients) > _LISTED and isinstance(table, Table):
        whole = Details(f"All {counted(len(statement.clients), 'client')}", (table,))
    drawn = []
    for column in dict.fromkeys((statement.figure_column, "amount", "epsilon")):
        if _says_something(statement, column):
            draw = replace(statement, figure_column=column).document().figure
            assert draw is not None  # statements have one
            drawn.append(picture(draw(), f"A bar for every client: {column}, as in the table."))
    return (whole, *drawn, *rest)


def _says_something(statement: Statement, column: str) -> bool:
    """Whether there is anything to draw: some number other than 0."""
    cells = statement.amounts if column == "amount" else statement.columns.get(column, ())
    return any(isinstance(cell, (int, float)) and cell for cell in cells)


def _kept(statement: Statement) -> Words:
    if not statement.findings:
        return Words(("Nothing was promised, so nothing is to be checked.",))
    found = checked(statement.findings)
    if not found:
        return Words(("Nothing that was promised could be checked.",))
    how_many = f"{counted(len(found), 'promise')} checked: "
    if all(finding.holds for finding in found):
        return Words((how_many, Badge("holds"), ", all kept."))
    fails = not all_hold(found)
    words = f", {kept(found)} kept" if fails else f", the other {len(found) - 1:,} kept"
    parts: list[str | Link | Badge] = [how_many, Badge("FAILS" if fails else EXCEEDED), words]
    parts += [f"; {finding}" for finding in found if not finding.holds]
    return Words((*parts, "."))


def _curves(rows: Sequence[JSONObject]) -> Block:
    from bonafed.runs import figures

    names = ", ".join(row["name"] for row in rows)
    return picture(figures.runs_figure([figures.curve_of(row) for row in rows]), f"{_ALT}: {names}.")


def _compared(comparison: Comparison) -> Block:
    """The curves of all mechanisms in one figure."""
    from bonafed.runs import figures

    ran = [each for each in comparison.entrants if each.result is not None]
    letters = {} if comparison.judged_alike else listing.letters_of([each.test_digest for each in ran])
    drawn = [
        figures.recorded_curve(
            each.mechanism, each.result.summary, each.result.metrics, "", letters.get(each.test_digest)
        )
        for each in ran
        if each.result is not None
    ]
    names = ", ".join(each.mechanism for each in ran)
    return picture(figures.runs_figure(drawn), f"{_ALT}: {names}.")
