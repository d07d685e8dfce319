"""Statements: the account at the end of a run, for every mechanism.

A `Statement` has a row per client, totals, findings, notes. One sign convention for all mechanisms:

    amount > 0    the server owes the client
    amount < 0    the client owes the server

Amounts are whole numbers of the smallest unit (cents, say), rounded so that what was promised holds after
rounding: see `bonafed.economics.money`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import index
from typing import TYPE_CHECKING, Any

from bonafed.economics.findings import Finding, findings_table
from bonafed.errors import InvalidValue
from bonafed.presentation.documents import (
    Cell,
    Column,
    Document,
    JSONObject,
    Shown,
    Table,
    counted,
    pairs,
    plain,
    plain_cell,
)
from bonafed.text import csv_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_ROWS = 20  # clients shown; all of them are in the CSV and in the plain data
_NAMED = 5  # clients that a note names
COVERED = "stated costs are covered"  # a claim: nobody is paid less than what it stated
NO_WORSE_ALONE = "no worse than alone"  # a claim: joining beats a model of one's own
NO_WORSE = "no_worse_than_alone"  # a column: for whom that is so
SIGN = "amount: what the server owes the client; below zero the client owes the server"


def within_error(
    clients: Sequence[str], payments: Iterable[float], errors: Iterable[float], how: str = "certified to"
) -> list[str]:
    """A note on payments that are no larger than what they may be off by; none where all are larger.

    >>> within_error(("ada", "ben", "cem"), (0.5, 0.0004, 0.0), (1e-3, 1e-3, 1e-3))
    ['the payment of ben is not larger than the error it is certified to, 0.001: it may as well be 0']
    """
    small = [
        (name, error)
        for name, payment, error in zip(clients, payments, errors, strict=True)
        if 0 < abs(payment) <= error
    ]
    if not small:
        return []
    names = ", ".join(name for name, _ in small[:_NAMED])
    more = f" and {len(small) - _NAMED:,} more" if len(small) > _NAMED else ""
    largest = max(error for _, error in small)
    if len(small) == 1:
        sentence = f"the payment of {names} is not larger than the error it is {how}, {largest:.2g}: it"
    else:
        sentence = (
            f"the payments of {names}{more} are not larger than the errors they are {how}, up to "
            f"{largest:.2g}: they"
        )
    return [f"{sentence} may as well be 0"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Statement(Shown):
    """The account of a run; made by a mechanism's `settle`."""

    mechanism: str
    clients: tuple[str, ...]  # names, in the order of the roster
    amounts: tuple[int, ...]  # (N,) smallest units that the server owes each client; below 0 it is owed
    unit: str = "money"  # what an amount is in; "loss" where payments are in units of loss
    decimals: int = 2  # decimals of an amount: the smallest unit is 10^-decimals
    # further columns with one cell per client, such as participations, epsilon or accuracy
    columns: Mapping[str, Sequence[Cell]] = field(default_factory=dict)
    forms: Mapping[str, str] = field(default_factory=dict)  # how a column's numbers are written
    totals: Mapping[str, Cell] = field(default_factory=dict)  # of the whole run, beside the total amount
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)  # plain data for programs, shown nowhere
    figure_column: str = "amount"  # the column that the figure shows
    run: str = ""  # of which run it is

    def __post_init__(self) -> None:
        for name, cells in {"amounts": self.amounts, **self.columns}.items():
            if len(cells) != len(self.clients):
                raise InvalidValue(name, f"must have {len(self.clients)} entries", len(cells))
        columns = {name: tuple(map(plain_cell, cells)) for name, cells in self.columns.items()}
        kinds: Mapping[str, Any] = {
            "amounts": tuple(map(index, self.amounts)), "columns": columns,  # never a fraction of a unit
            "totals": {name: plain_cell(cell) for name, cell in self.totals.items()},
            "facts": plain(self.facts),
        }  # fmt: skip
        for name, value in kinds.items():  # of Python's own kinds, whatever made them
            object.__setattr__(self, name, value)

    @property
    def amount(self) -> tuple[float, ...]:
        """(N,) in whole units."""
        return tuple(minor / 10**self.decimals for minor in self.amounts)

    @property
    def total(self) -> float:
        """What the server owes all clients together, less what it is owed."""
        return float(sum(self.amounts) / 10**self.decimals)

    def row(self, client: str) -> dict[str, Cell]:
        """The row of one client."""
        if client not in self.clients:
            names = ", ".join(map(repr, self.clients[:10])) + (", ..." if len(self.clients) > 10 else "")
            raise InvalidValue("client", f"must be one of the run's clients: {names}", repr(client))
        index = self.clients.index(client)
        rest = {name: cells[index] for name, cells in self.columns.items()}
        return {"client": client, "amount": self.written(self.amounts[index]), **rest}

    def only(self, client: str) -> Statement:
        """The statement of one client."""
        self.row(client)  # refuses unknown clients
        index = self.clients.index(client)
        columns = {name: (cells[index],) for name, cells in self.columns.items()}
        own_amount = (self.amounts[index],)
        return replace(self, clients=(client,), amounts=own_amount, columns=columns, totals={})

    def written(self, minor: int) -> str:
        """An amount with all its digits."""
        sign, whole = "-" if minor < 0 else "", abs(minor)
        if not self.decimals:
            return f"{sign}{whole}"
        return f"{sign}{whole // 10**self.decimals}.{whole % 10**self.decimals:0{self.decimals}d}"

    def _shown(self, minor: int) -> str:
        """An amount for people: in groups of three digits."""
        whole, point, rest = self.written(minor).partition(".")
        sign, digits = ("-", whole[1:]) if whole.startswith("-") else ("", whole)
        return f"{sign}{int(digits):,}{point}{rest}"

    def to_csv(self) -> bytes:
        """A row per client, all digits; `client` and `amount` first."""
        header = ("client", "amount", *self.columns)
        rows = map(self.row, self.clients)
        return csv_bytes([header, *([plain(row[name]) for name in header] for row in rows)])

    def table(self, most: int | None = _MOST_ROWS) -> Table:
        """A row per client, of the first ones or (None) of all."""
        columns = (
            Column("client", left=True),
            Column(f"amount ({self.unit})"),
            *(Column(name.replace("_", " "), self.forms.get(name, "")) for name in self.columns),
        )
        rows = [
            (client, self._shown(amount), *tuple(self.row(client).values())[2:])
            for client, amount in zip(self.clients[:most], self.amounts, strict=False)
        ]
        more = len(self.clients) - len(rows)
        rest = f"; and {counted(more, 'more client')}: --csv and --json list all of them"
        caption = SIGN + (rest if more else "")
        return Table(f"Statement of {self.run or self.mechanism}", columns, tuple(rows), caption)

    def document(self, most: int | None = _MOST_ROWS) -> Document:
        """Rows per client, totals, findings, notes."""
        total: tuple[str, Cell] = ("amount in all", f"{self._shown(sum(self.amounts))} {self.unit}")
        named = [
            (name.replace("_", " "), f"{cell:,.6g}" if isinstance(cell, float) else cell)
            for name, cell in self.totals.items()
        ]
        blocks: list[Table | str] = [self.table(most)]
        if len(self.clients) > 1 or named:
            blocks.append(pairs("", [total, *named]))
        if self.findings:
            blocks.append(findings_table("What was promised", self.findings))
        blocks += [f"note: {note}" for note in self.notes]
        return Document(tuple(blocks), self.to_json(), self._draw, {"csv": self.to_csv()})

    def _draw(self) -> Figure:
        from bonafed.presentation.figures import statement_figure

        return statement_figure(self)

    def to_json(self) -> JSONObject:
        """Plain data from which `from_json` makes the same statement."""
        return {
            "mechanism": self.mechanism, "run": self.run, "unit": self.unit, "decimals": self.decimals,
            "clients": list(self.clients), "amounts": list(self.amounts),
            "columns": plain(self.columns), "forms": dict(self.forms), "totals": plain(self.totals),
            "findings": [finding.to_json() for finding in self.findings], "notes": list(self.notes),
            "facts": dict(self.facts), "figure_column": self.figure_column,
        }  # fmt: skip

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Statement:
        """The statement that `to_json` made these plain data of."""
        return cls(
            mechanism=data["mechanism"], run=data["run"], unit=data["unit"], decimals=data["decimals"],
            clients=tuple(data["clients"]), amounts=tuple(data["amounts"]),
            columns={name: tuple(cells) for name, cells in data["columns"].items()},
            forms=data["forms"], totals=data["totals"],
            findings=tuple(map(Finding.from_json, data["findings"])), notes=tuple(data["notes"]),
            facts=data["facts"], figure_column=data["figure_column"],
        )  # fmt: skip
