"""The page of a contract: what is signed, whether that is worth it, and what it means at one's own cost."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bonafed.contracts.published import PublishedContract
from bonafed.contracts.terms import EARNINGS
from bonafed.economics.claims import all_hold, findings_table
from bonafed.errors import InvalidValue
from bonafed.presentation.documents import Cell, Column, Document, Table
from bonafed.presentation.page import Badge, Block, Details, Page, Part, Point, Slider, Words, shown
from bonafed.presentation.page_pictures import picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
    kept = [place for place in range(len(columns)) if any(row[place] is not None for row in rows)]
    return Table(
        "What every cost earns over the run, on average",
        tuple(columns[place] for place in kept),
        tuple(tuple(row[place] for place in kept) for row in rows),
    )


def _figure(earned: Sequence[tuple[float, Mapping[str, Any]]], label: str) -> Figure:
    """What is paid and what is left, by cost."""
    from bonafed.presentation.figures import BLUE, GREY, RED, STYLES, sheet, words

    figure = sheet(6.4, 3.4)
    axes = figure.subplots()
    for number, kind in enumerate(dict.fromkeys(each["kind"] for _, each in earned)):
        mine = [(cost, each) for cost, each in earned if each["kind"] == kind and each["admitted"]]
        of, style = f", {words(kind, _KIND)}" if kind else "", STYLES[number % len(STYLES)]
        for name, colour, told in (("paid", RED, "paid"), ("left", BLUE, "left after the cost")):
            values = [each[name] for _, each in mine]
            axes.plot([c for c, _ in mine], values, style, color=colour, lw=1.6, label=f"{told}{of}")
    axes.axhline(0.0, color=GREY, lw=0.6)
    axes.set(xlabel=label, ylabel="money over the run, on average")
    axes.set_title("What a participant earns by its cost", loc="left")
    axes.legend(frameon=False, fontsize=8)
    return figure
