"""Every mechanism there is, one line each; importing this imports none of them.

Whoever adds a mechanism adds its folder, with a `SLICE` in it, and a line here.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING, Literal

from bonafed.errors import InvalidValue, OldName

if TYPE_CHECKING:
    from bonafed.mechanisms.protocol import Slice


Burden = Literal["none", "participation", "privacy"]


@dataclass(frozen=True, slots=True)
class Fit:
    """Whom a mechanism is for, as data that `bonafed advise mechanism` compares with a situation."""

    money: bool  # whether money changes hands
    burdens: tuple[Burden, ...]  # what joining may cost clients, for the mechanism to make up for it
    one_model: bool  # all clients get the same model
    needs_prior: bool  # something must be believed about the clients' costs
    promise: str  # what it does for whom, in a sentence
    begin: str  # the command to begin with
    begin_blind: str = ""  # the same where nothing is known about costs; empty: that makes no difference


@dataclass(frozen=True, slots=True)
class Entry:
    """A mechanism by name."""

    name: str
    table: str | None  # of a config, by which a run under it is recognised; None: without any other table
    place: str  # the module that holds its SLICE, in this package
    summary: str  # a few words of help
    fit: Fit | None = None  # None: `bonafed advise mechanism` does not mention it
    verbs: str = ""  # commands that have it as a noun, besides train
    # of its contract files: whoever reads one loads the mechanism that it belongs to, and no other
    formats: tuple[str, ...] = ()

    def load(self) -> Slice:
        """The slice itself."""
        place = f"{__package__}.{self.place}"
        loaded: Slice = importlib.import_module(place).SLICE
        return loaded

    @property
    def example(self) -> Traversable:
        """A config to begin with: in the mechanism's folder, or among `examples` if it is one module."""
        folder, _, module = self.place.rpartition(".")
        package = resources.files(__package__)
        return package / folder / "example.toml" if folder else package / "examples" / f"{module}.toml"


_ENTRIES = (
    Entry(
        "fedavg",
        None,
        "fedavg",
        "plain federated averaging: nobody is paid",
        Fit(
            False,
            ("none",),
            True,
            False,
            "Trains one model; takes for granted that clients join and do what they are told.",
            "bonafed train --write-example fedavg",
        ),
    ),
    Entry(
        "sampling",
        "sampling",
        "sampling.slice",
        "pay for taking part, under a budget",
        Fit(
            True,
            ("participation",),
            True,
            False,
            "Pays clients for each round they are in, within a budget; stating the true cost is best.",
            "bonafed quote sampling",
            "bonafed quote sampling --prior-free --highest C",
        ),
        "quote audit advise",
        ("bonafed-sampling-contract", "bonafed-prior-free-rules", "bonafed-sampling-benchmark"),
    ),
    Entry(
        "jsam",
        "jsam",
        "jsam.slice",
        "buy privacy, and pay for it",
        Fit(
            True,
            ("privacy",),
            True,
            True,
            "Buys as much of each client's privacy as the model is worth; stating the true cost is best.",
            "bonafed quote jsam",
        ),
        "quote audit",
        ("bonafed-jsam-contract",),
    ),
    Entry(
        "faithful",
        "faithful",
        "faithful.slice",
        "one model, and what each owes for it",
        Fit(
            True,
            ("none",),
            True,
            False,
            "Charges everybody what it costs the others, so that honest gradients are best for each.",
            "bonafed train --write-example faithful",
        ),
        "audit advise",
    ),
    Entry(
        "rewards",
        "rewards",
        "rewards.slice",
        "better models for more contribution",
        Fit(
            False,
            ("none", "participation"),
            False,
            False,
            "Gives clients that contribute more a better model while it trains; no money is needed.",
            "bonafed train --write-example rewards",
        ),
        "audit advise",
    ),
)
CATALOGUE: Mapping[str, Entry] = {item.name: item for item in _ENTRIES}
_OLD_TABLES = {"contract": "sampling"}  # of a config, by the name that they had


def entry(name: str) -> Entry:
    """The mechanism with this name."""
    if name not in CATALOGUE:
        raise InvalidValue("mechanism", "must be one of " + ", ".join(CATALOGUE), repr(name))
    return CATALOGUE[name]


def with_verb(verb: str) -> list[Entry]:
    """Mechanisms that have such a command."""
    return [entry for entry in CATALOGUE.values() if verb in entry.verbs.split()]


def of_table(tables: Mapping[str, object]) -> Entry:
    """The mechanism whose table is among these; the one without a table if none is."""
    for old, new in _OLD_TABLES.items():
        if old in tables:
            raise OldName(f"[{old}]", f"is now [{new}]: rename the table")
    mine = [entry for entry in CATALOGUE.values() if entry.table is not None and entry.table in tables]
    if len(mine) > 1:
        first, second = mine[0].table, mine[1].table
        raise InvalidValue(str(second), f"must not be given with {first}", f"a section [{second}]")
    return mine[0] if mine else next(e for e in CATALOGUE.values() if e.table is None)


def of_format(kind: object) -> Entry:
    """The mechanism whose contract files have this format."""
    readable = [name for entry in CATALOGUE.values() for name in entry.formats]
    for entry in CATALOGUE.values():
        if kind in entry.formats:
            return entry
    raise InvalidValue("contract.format", "must be one of " + ", ".join(readable), repr(kind)[:60])
