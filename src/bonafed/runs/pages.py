"""Pages: of a contract, of one training run, of several side by side, and of a comparison of mechanisms.

The page of a contract shows what is signed, whether that is worth it, and what it means at one's own cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bonafed.contracts.published import PublishedContract
from bonafed.contracts.terms import EARNINGS
from bonafed.economics.findings import EXCEEDED, all_hold, checked, findings_table, kept
from bonafed.economics.statement import Statement
from bonafed.errors import InvalidValue
from bonafed.mechanisms.contract_files import contract_from_json
from bonafed.presentation.documents import Cell, Column, Document, JSONObject, Table, counted
from bonafed.presentation.page import Badge, Block, Details, Link, Page, Part, Point, Slider, Words, shown
from bonafed.presentation.page_pictures import picture
from bonafed.runs import folder as folders
from bonafed.runs import listing
from bonafed.runs.compare import comparison_document
from bonafed.runs.summary import curves, overview_table, statement_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from bonafed.runs.compare import Comparison

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


def runs_page(runs: Sequence[Path], comparison: Mapping[str, Any] | None = None) -> Page:
    """Of several runs side by side; with the plain data of a comparison, also what lies would gain."""
    rows = [listing.overview(run) for run in runs]
    for row, name in zip(rows, listing.distinct_names(runs), strict=True):
        row["name"] = name
    listing.mark_test_sets(rows)
    parts: list[Part] = []
    if comparison is not None:
        parts.append(_side_by_side(comparison_document(comparison)))
    table = () if comparison is not None else (listing.table(rows),)
    parts.append(Part("Curves", "runs", (*table, _curves(rows))))
    for number, (run, row) in enumerate(zip(runs, rows, strict=True), 1):
        if row["finished"]:
            summary, metrics = folders.read_json(run, folders.SUMMARY), folders.read_rounds(run)
            parts.append(_of_one(row["name"], number, summary, metrics, statement_of(summary, run)))
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
    """A badge and the names of the mechanisms that failed; nothing if none did."""
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
    findings = checked(statement.findings)
    if not findings:
        return Words(("Nothing that was promised could be checked.",))
    how_many = f"{counted(len(findings), 'promise')} checked: "
    if all(finding.holds for finding in findings):
        return Words((how_many, Badge("holds"), ", all kept."))
    fails = not all_hold(findings)
    words = f", {kept(findings)} kept" if fails else f", the other {len(findings) - 1:,} kept"
    parts: list[str | Link | Badge] = [how_many, Badge("FAILS" if fails else EXCEEDED), words]
    parts += [f"; {finding}" for finding in findings if not finding.holds]
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


_KIND = 20  # letters of a kind of participant in a legend
_PLACES = 30  # steps of the slider, about
_DRAWS = 400  # costs of simulated clients, from which the range of the slider is taken
_BEYOND = 0.1  # how much further it goes, so that one sees where the contract ends
Tell = Callable[[str], None]


def contract_page(contract: PublishedContract, name: str, tell: Tell = lambda _text: None) -> Page:
    """What a participant wants to know before it signs; `name` is where the contract was found."""
    document = contract.document()
    tell("verifying")
    findings = contract.verify()
    holds = all_hold(findings)
    word, rest = ("holds", "every check") if holds else ("FAILS", "at least one check")
    curve: tuple[Block, ...] = ()
    if document.figure is not None:
        alt = "The terms of the contract for every cost; the slider below and its table have the numbers."
        curve = (picture(document.figure(), alt),)
    return Page(
        f"Contract {name}",
        (Words(("Verified while this page was made: ", Badge(word), f", {rest}.")),),
        (
            Part("What you sign", "terms", (*shown(document.blocks), *curve)),
            Part("What you would earn", "earnings", _earnings(contract, tell)),
            Part("Checks", "checks", (findings_table("Verification", findings),)),
        ),
        {"contract": dict(document.data), "findings": [finding.to_json() for finding in findings]},
        "Made by bonafed from the contract alone; nothing its author computed was trusted.",
    )


def costs_to_show(contract: PublishedContract) -> list[float]:
    """Round costs over the range that the contract believes in, and a little beyond."""
    simulate, size = contract.question.simulate, contract.clients or 1
    if simulate is None:
        return []
    seeds = range(math.ceil(_DRAWS / size))
    believed = np.concatenate([np.asarray(simulate(size, seed), dtype=float) for seed in seeds])
    low, high = float(believed.min()), float(believed.max())
    room = _BEYOND * (high - low) or _BEYOND * high or 1.0
    step = _round_step((high - low + 2 * room) / _PLACES)
    first, last = math.floor(max(0.0, low - room) / step), math.ceil((high + room) / step)
    return [round(k * step, 12) for k in range(first, last + 1)]


def _round_step(step: float) -> float:
    """The next of 1, 2, 2.5, 5 and 10 times a power of ten.

    >>> _round_step(0.034), _round_step(7.0)
    (0.05, 10.0)
    """
    power = 10.0 ** math.floor(math.log10(step))
    return float(next(round(k * power, 12) for k in (1, 2, 2.5, 5, 10) if k * power >= step * (1 - 1e-9)))


def _earnings(contract: PublishedContract, tell: Tell) -> tuple[Block, ...]:
    """By moving a slider; the same as a table and a curve."""
    question = contract.question
    costs = costs_to_show(contract)
    prospects: list[tuple[float, Document]] = []
    for number, cost in enumerate(costs, 1):
        tell(f"what a {question.name} of {cost:g} would earn ({number} of {len(costs)})")
        try:
            prospects.append((cost, contract.prospect(cost)))
        except InvalidValue as error:
            return (f"What one would earn {error.rule}.",)
    if not prospects:
        return ("The contract does not say which costs it is for.",)
    points = tuple(_point(cost, prospect) for cost, prospect in prospects)
    name = f"my {question.name}"
    slider = Slider(
        "mine", f"Move to your {question.name} ({question.unit})", name, points, len(points) // 2
    )
    table = _table(prospects, f"my {question.name} ({question.unit})")
    earned = [(cost, each) for cost, prospect in prospects for each in prospect.data.get(EARNINGS, ())]
    if not earned:
        return (slider, table)
    alt = "What is paid and what is left after the cost, by cost; the table below has the numbers."
    figure = picture(_figure(earned, f"{question.name} ({question.unit})"), alt)
    caption = "Over the whole run, on average. The best lie is the most profitable other statement found."
    return (slider, caption, figure, Details(f"For {len(points)} costs, as a table", (table,)))


def _point(cost: float, prospect: Document) -> Point:
    facts, words = [], []
    for each in prospect.data.get(EARNINGS, ()):
        kind = f", {each['kind']}" if each["kind"] else ""
        facts += [(f"{name}{kind}", value) for name, value in _told(each)]
    for block in shown(prospect.blocks):
        if isinstance(block, str):
            words.append(block)
        elif isinstance(block, Table):
            words += [line for line in str(block).splitlines() if line] if not facts else [block.caption]
    return Point(f"{cost:g}", tuple(facts), tuple(filter(None, words)))


def _told(each: Mapping[str, Any]) -> list[tuple[str, str]]:
    """One earning in words."""
    if not each["admitted"]:
        return [("I am not admitted", "I am paid nothing")]
    told = [("I am paid", f"{each['paid']:,.4g}"), ("left after my cost", f"{each['left']:,.4g}")]
    if each["lie"] is None:
        return [*told, ("best lie", "there is nothing to lie about")]
    best = f"to state {each['lie']:.6g}"
    if each["gain"] > 0:
        return [*told, ("best lie", f"{best}, which gains {each['gain']:.2g}")]
    return [*told, ("best lie", f"none gains; the best, {best}, loses {-each['gain']:.2g}")]


def _table(prospects: Sequence[tuple[float, Document]], name: str) -> Table:
    """The same without a slider."""
    rows: list[tuple[Cell, ...]] = []
    known = all(EARNINGS in prospect.data for _, prospect in prospects)
    if not known:
        told = tuple((cost, " ".join(str(prospect).split())) for cost, prospect in prospects)
        return Table("What every cost earns", (Column(name, "g"), Column("what it earns", left=True)), told)
    for cost, prospect in prospects:
        for each in prospect.data[EARNINGS]:
            terms = [each[name] if each["admitted"] else None for name in ("paid", "left", "lie", "gain")]
            rows.append((cost, each["kind"] or None, each["admitted"], *terms))
    columns = (
        Column(name, "g"), Column("who", left=True), Column("admitted"), Column("paid", ",.4g"),
        Column("left after the cost", ",.4g"), Column("best lie", ".4g"), Column("it gains", ".2g"),
    )  # fmt: skip
    kept = [k for k in range(len(columns)) if any(row[k] is not None for row in rows)]
    return Table(
        "What every cost earns over the run, on average",
        tuple(columns[k] for k in kept),
        tuple(tuple(row[k] for k in kept) for row in rows),
    )


def _figure(earned: Sequence[tuple[float, Mapping[str, Any]]], label: str) -> Figure:
    """What is paid and what is left, by cost."""
    from bonafed.presentation.figures import BLUE, GREY, RED, STYLES, sheet, words

    figure = sheet(6.4, 3.4)
    axes = figure.subplots()
    for number, kind in enumerate(dict.fromkeys(each["kind"] for _, each in earned)):
        points = [(cost, each) for cost, each in earned if each["kind"] == kind and each["admitted"]]
        of, style = f", {words(kind, _KIND)}" if kind else "", STYLES[number % len(STYLES)]
        for name, colour, told in (("paid", RED, "paid"), ("left", BLUE, "left after the cost")):
            values = [each[name] for _, each in points]
            axes.plot([c for c, _ in points], values, style, color=colour, lw=1.6, label=f"{told}{of}")
    axes.axhline(0.0, color=GREY, lw=0.6)
    axes.set(xlabel=label, ylabel="money over the run, on average")
    axes.set_title("What a participant earns by its cost", loc="left")
    axes.legend(frameon=False, fontsize=8)
    return figure
