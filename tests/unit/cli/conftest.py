"""A mechanism that exists for these tests alone: every feature that the command line can render."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Literal

import numpy as np
import pytest

from bonafed import checks
from bonafed.contracts.canonical import canonical_bytes, digest
from bonafed.economics.findings import Finding
from bonafed.economics.priors import Prior
from bonafed.economics.registry import prior
from bonafed.economics.statement import Statement
from bonafed.errors import InvalidValue
from bonafed.learning.federation import Question
from bonafed.mechanisms import catalogue
from bonafed.mechanisms.protocol import Command, Slice
from bonafed.presentation.documents import Column, Document, Sketch, SketchCurve, Table, pairs
from bonafed.sections import Section, flag, key, one_of, text, word

Shape = Literal["round", "square"]


def whole_numbers(name, values):
    return tuple(checks.whole(name, value) for value in values)


def a_path(name, value):
    return value


def number_or_text(name, value):
    if isinstance(value, str):
        raise InvalidValue(name, "must be a number or the name of a file", repr(value))
    return checks.positive(name, value)


@dataclass(frozen=True)
class Options(Section):
    """One key of every type."""

    clients: int = key(checks.whole, help="How many.")
    budget: float = key(checks.positive, help="Money.", metavar="MONEY")
    shape: Shape = key(one_of(Shape), "round", help="Of the toy.")
    level: float | None = key(checks.positive, None, help="Or none.")
    belief: Prior | None = key(prior, None, help="What is believed.", metavar="KIND:ARGS", flag="prior")
    cap: float | str | None = key(number_or_text, None, help="A number, or a file.")
    name: str = key(word, "toy", help="Any.")
    folder: Path | None = key(a_path, None, help="Anywhere.")
    members: tuple[int, ...] = key(whole_numbers, (), help="Of the group.")
    fast: bool = key(flag, False, help="Do less.")
    checked: bool = key(flag, True, help="Look twice.")
    seed: int = key(checks.seed, 7, help="Of the draws.")
    coins: str | None = key(text, None, help="Commitment.")

    def _agree(self):
        if self.fast and self.members:
            raise InvalidValue("members", "must not be given with fast", list(self.members))


@dataclass(frozen=True)
class ToyContract:
    """Pays every client the same."""

    clients: int
    payment: float
    coin_commitment: str | None = None
    rounds: int = 3
    draws: None = None
    mechanism: str = "toy"

    @property
    def content(self):
        data = {"format": "toy-contract", "clients": self.clients, "payment": self.payment}
        return canonical_bytes({**data, "coins": self.coin_commitment or ""})

    @property
    def digest(self):
        return digest(self.content)

    @property
    def question(self):
        return Question("effort", "hours", lambda n, seed=0: np.random.default_rng(seed).uniform(0, 1, n))

    def with_coins(self, commitment):
        return replace(self, coin_commitment=commitment)

    def chance(self, client, report):
        return 1.0

    def document(self):
        table = pairs("What you sign", [("clients", self.clients), ("SHA-256", self.digest)])
        return Document((table,), {"clients": self.clients, "sha256": self.digest})

    def verify(self):
        holds = self.payment >= 0
        return [Finding("paid", holds, f"{self.payment:g} each"), Finding("secret", None, "not here")]

    def prospect(self, report):
        earned = self.payment - checks.non_negative("cost", report)
        return Document((f"You would earn {earned:.2f}.",), {"earned": earned})

    def settle(self, reports):
        return ToyTerms(self, dict(reports))

    def table(self):
        return {}


@dataclass(frozen=True)
class ToyTerms:
    contract: ToyContract
    reports: dict

    def document(self):
        rows = tuple((name, value, self.contract.payment) for name, value in self.reports.items())
        columns = (Column("client", left=True), Column("effort", ".3f"), Column("payment", ",.2f"))
        lines = "".join(f"{name},{value!r},{pay!r}\n" for name, value, pay in rows)
        return Document(
            (Table("Terms", columns, rows),),
            self.to_json(),
            files={"csv": f"client,effort,payment\n{lines}".encode()},
        )

    def to_json(self):
        return {"clients": [{"client": n, "effort": v} for n, v in self.reports.items()]}


def read(data):
    return ToyContract(int(data["clients"]), float(data["payment"]), data.get("coins") or None)


def figure():
    from bonafed.presentation.figures import sheet

    sheets = sheet(2, 2)
    sheets.subplots().plot([0, 1], [0, 1])
    return sheets


def quote(options):
    if options.name == "broken":
        raise InvalidValue("name", "must not be broken", repr(options.name))
    contract = ToyContract(options.clients, options.budget / options.clients, options.coins)
    columns = (Column("client", left=True), Column("payment", ",.2f"))
    sketch = Sketch(
        "cost",
        (0.0, 1.0),
        (SketchCurve("up", (0.0, 1.0), 0.0, 1.0), SketchCurve("down", (1.0, 0.0), 0.0, 1.0)),
    )
    blocks = (
        Table("Terms to publish", columns, ((options.name, contract.payment),)),
        sketch,
        "note: a toy",
    )
    data = {key: value for key, value in options.table().items() if key != "folder"}
    silent = options.name == "silent"
    return Document(
        blocks,
        {**data, "infinite": float("inf")},
        None if silent else figure,
        {} if silent else {"contract": contract.content},
    )


def attack(options):
    holds = options.shape == "round"
    finding = Finding("truthful", holds, "none found" if holds else "VIOLATED, at 1")
    from bonafed.economics.findings import findings_table

    table = findings_table("Audit of a toy", [finding])
    return Document((table,), {"holds": holds}, holds=holds)


COMMAND = Command(
    "Quote a toy.", Options, quote, "Toys are paid evenly.", "bonafed quote toy --clients 3 --budget 9"
)
SLICE = Slice(
    "toy",
    make=lambda config, members, parameters: None,
    table="toy",
    section=Options,
    read=read,
    quote=COMMAND,
    attack=Command("Attack a toy.", Options, attack),
    advice={"toy-size": Command("How large a toy should be.", Options, quote)},
)


@pytest.fixture
def toy(monkeypatch):
    """The catalogue with the toy in it, and nothing else."""
    module = ModuleType("bonafed.mechanisms.toy.slice")
    module.SLICE = SLICE
    monkeypatch.setitem(sys.modules, "bonafed.mechanisms.toy", ModuleType("bonafed.mechanisms.toy"))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    fit = catalogue.Fit(True, ("none",), True, False, "Pays for toys.", "bonafed quote toy")
    entry = catalogue.Entry(
        "toy",
        "toy",
        "bonafed.mechanisms.toy.slice",
        "pay for toys",
        fit,
        "quote audit advise",
        ("toy-contract",),
    )
    monkeypatch.setattr(catalogue, "CATALOGUE", {"toy": entry})
    monkeypatch.setattr("bonafed.mechanisms.advice.ADVICE", {})  # no advice but the toy's
    return SLICE


@pytest.fixture
def statement():
    """A statement of two clients."""
    return Statement(
        "toy",
        ("ada", "[red]ben[/]"),
        (1234567, -50),
        columns={"rounds": (3, 2)},
        totals={"spend": 12345.67},
    )
