"""Ready-made parts of a slice, so that whoever adds a mechanism writes only what is new about it.

PlainTerms      the terms of every client as columns: what an agreement keeps and shows
promises_kept   findings of a statement: stated costs are covered, and the budget was kept
Subject         a rule as an audit sees it: reports in, what each gives and gets out
audit_of        `Slice.audit`: looks for a profitable lie in a run, by search
audit_command   `bonafed audit NAME`, with the options of the mechanism's own table
quote_command   `bonafed quote NAME`, of a contract that publishes its table (`contracts.offers`)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, make_dataclass
from functools import partial
from typing import Any, get_type_hints

import numpy as np
from numpy.typing import ArrayLike

from bonafed import checks
from bonafed.contracts.offers import MOST_CLIENTS, MOST_ROUNDS, NOT_PUBLISHED, OfferContract
from bonafed.economics import money
from bonafed.economics.audit import AuditReport, audit
from bonafed.economics.budgets import BudgetPromise
from bonafed.economics.contracts import Allocation
from bonafed.economics.findings import Finding, Kind, findings_table
from bonafed.economics.priors import Prior
from bonafed.economics.statement import COVERED
from bonafed.errors import InvalidValue
from bonafed.mechanisms.protocol import Attack, Command
from bonafed.presentation.documents import Cell, Column, Document, JSONObject, Shown, Table, counted
from bonafed.sections import Section, is_required, key
from bonafed.text import csv_bytes


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PlainTerms(Shown):
    """What was agreed with every client, a cell of every column for each.

    >>> print(PlainTerms(("ada", "ben"), {"payment": (1.5, 0.0)}))
    Terms
    client  payment
    ada         1.5
    ben           0
    """

    clients: tuple[str, ...]  # (N,) names
    columns: Mapping[str, Sequence[Cell]]  # (N,) each
    cautions: tuple[str, ...] = ()  # warnings before the first round, one sentence each

    def __post_init__(self) -> None:
        for name, cells in self.columns.items():
            if len(cells) != len(self.clients):
                raise InvalidValue(name, f"must have {len(self.clients)} entries", len(cells))

    def document(self) -> Document:
        """A row per client; `files["csv"]` has all digits."""
        rows = tuple(zip(self.clients, *self.columns.values(), strict=True))
        columns = (
            Column("client", left=True),
            *(Column(name.replace("_", " "), ".6g") for name in self.columns),
        )
        content = csv_bytes([("client", *self.columns), *rows])
        blocks: list[Table | str] = [Table("Terms", columns, rows), *self.cautions]
        return Document(tuple(blocks), self.to_json(), files={"csv": content})

    def to_json(self) -> JSONObject:
        """Plain data."""
        columns = {name: list(cells) for name, cells in self.columns.items()}
        return {"clients": list(self.clients), **columns, "cautions": list(self.cautions)}


def promises_kept(
    amounts: Sequence[int], costs: ArrayLike, times: Sequence[int], budget: float
) -> tuple[Finding, ...]:
    """Whether every amount covers so many times the stated cost, and all together stay within the budget.

    The budget is promised in every run; `BudgetPromise` knows other promises. Amounts are in cents; a cost
    is money for one participation. Both are compared as written in decimal.

    >>> for finding in promises_kept([270], costs=[0.9], times=[3], budget=2.7):
    ...     print(finding)
    stated costs are covered: the smallest surplus over a stated cost is 0.00
    budget: 2.70 spent of 2.70; promised in every run
    """
    least = min(a - b for a, b in zip(amounts, money.owed(costs, costs, times), strict=True)) / 100
    covers = f"the smallest surplus over a stated cost is {least:.2f}"
    short = f"a client is paid {-least:.2f} less than the cost it stated"
    return (
        Finding(
            COVERED, least >= 0, covers if least >= 0 else short, -least, kind=Kind.PARTICIPATION,
            unit="money",
        ),
        BudgetPromise(budget).finding(amounts),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """A rule as an audit sees it; money is per round, in expectation over its random draws."""

    decide: Callable[[Any], Allocation]  # (N,) costs -> what each gives and gets
    prior: Prior  # costs it is tried with, and the range of lies
    budget: float | None = None  # of all clients together, for every profile of costs; None: no claim
    limit: float = 1.0  # largest feasible quantity

    def allocate(self, reports: ArrayLike) -> Allocation:
        """The decision for these reports."""
        return self.decide(np.asarray(reports, dtype=np.float64))

    def search(self, profiles: Sequence[ArrayLike], points: int) -> AuditReport:
        """Look for a violation of every claim in these profiles of costs."""
        low, high = self.prior.low, self.prior.high
        return audit(
            self, low, high, budget=self.budget, profiles=profiles, points=points, quantity_limit=self.limit
        )


SubjectOf = Callable[[Any, int, int], Subject]  # the mechanism's own table, clients, rounds
_QUICK, _THOROUGH = 41, 201  # reports to try for each client
_PROFILES = 3  # drawn for an audit on the command line


def audit_of(subject_of: SubjectOf) -> Callable[[Attack], Sequence[Finding]]:
    """The audit of a run: every client of it lies, the others report what they did."""

    def look(attack: Attack) -> Sequence[Finding]:
        names, rounds = attack.agreement.members.names, attack.config.local.rounds
        costs = [attack.agreement.reports[name] for name in names]
        subject = subject_of(attack.config.own, len(names), rounds)
        return subject.search([costs], _QUICK if attack.quick else _THOROUGH).findings

    return look


def audit_command(name: str, section: type[Section], subject_of: SubjectOf) -> Command:
    """`bonafed audit NAME`: options are the keys of the mechanism's table, clients, rounds and a seed."""
    more: list[tuple[str, type, Any]] = [
        ("clients", int, key(checks.whole, 10, help="How many take part.")),
        ("rounds", int, key(checks.whole, 10, help="Of training.")),
        ("points", int, key(checks.whole, _THOROUGH, help="Reports to try for each client.")),
        ("seed", int, key(checks.seed, 0, help="Seed of the costs that the search tries.")),
    ]
    options = make_dataclass("AuditOptions", more, bases=(section,), frozen=True)

    def answer(options: Any) -> Document:
        subject = subject_of(options, options.clients, options.rounds)
        rng = np.random.default_rng(options.seed)
        profiles = [subject.prior.sample(rng, options.clients) for _ in range(_PROFILES)]
        report = subject.search(profiles, options.points)
        costs = f"costs from {subject.prior.low:g} to {subject.prior.high:g}"
        caption = f"{counted(options.clients, 'client')}, {counted(options.rounds, 'round')}, {costs}"
        table = findings_table(f"Audit of {name}", report.findings, caption)
        data = {"mechanism": name, "findings": [finding.to_json() for finding in report.findings]}
        return Document((table,), data, holds=report.passed)

    return Command(
        "Try to game it: every client lies, one at a time.", options, answer,
        details="A claim that survives is not proved; the search says how many lies it tried.",
        example=_example("audit", name, section),
    )  # fmt: skip


def quote_command(name: str, section: type[Section], contract_of: Callable[..., OfferContract]) -> Command:
    """`bonafed quote NAME`: options are the published keys of the mechanism's table, clients and rounds."""
    offered = [item for item in fields(section) if item.name not in NOT_PUBLISHED]
    more: list[tuple[str, Any, Any]] = [
        ("clients", int, key(partial(checks.whole, at_most=MOST_CLIENTS), help="How many may report.")),
        ("rounds", int, key(partial(checks.whole, at_most=MOST_ROUNDS), help="Of training.")),
    ]
    hints = get_type_hints(section)
    required, others = (
        [(item.name, hints[item.name], _again(item)) for item in offered if is_required(item) == needed]
        for needed in (True, False)
    )
    options = make_dataclass("QuoteOptions", [*required, *more, *others], bases=(Section,), frozen=True)

    def answer(options: Any) -> Document:
        offer = section(**{item.name: getattr(options, item.name) for item in offered})
        return contract_of(offer, options.clients, options.rounds).document()

    return Command(
        "The contract to publish, and the most it can cost.", options, answer,
        details="What the contract states is all that terms follow from, whatever is reported.",
        example=_example("quote", name, section),
    )  # fmt: skip


def _example(verb: str, name: str, section: type[Section]) -> str:
    """A call of a command, made of the examples of the keys that it requires; "": one of these has none."""
    examples = {item.name: item.metadata["example"] for item in fields(section) if is_required(item)}
    if None in examples.values():
        return ""
    flags = [f"--{name.replace('_', '-')} {example}" for name, example in examples.items()]
    return " ".join(["bonafed", verb, name, *flags, "--clients 5", "--rounds 10"])


def _again(item: Field[Any]) -> Any:
    """The same key, for another class."""
    return field(metadata=item.metadata) if is_required(item) else field(
        default=item.default, metadata=item.metadata
    )  # fmt: skip
