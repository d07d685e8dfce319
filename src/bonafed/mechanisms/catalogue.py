"""Every mechanism there is; importing this imports none of them.

Those of bonafed are listed here. Those of other packages are the entry points of the group
`bonafed.mechanisms`: each names an `Entry`, or a function that returns one. A notebook calls
`bonafed.register`. All of them are then looked up in the same way, by name, table or contract format.

What bonafed has itself is looked up first, so that packages from outside are only imported where they can
matter. A package that cannot be used is named in a warning and passed over.
"""

from __future__ import annotations

import importlib
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import metadata, resources
from importlib.resources.abc import Traversable
from typing import TYPE_CHECKING, Literal

from bonafed.errors import BonafedError, InvalidValue, OldName, UnusablePlugin

if TYPE_CHECKING:
    from bonafed.mechanisms.protocol import Slice


Burden = Literal["none", "participation", "privacy"]
PLUGINS = "bonafed.mechanisms"  # the group of entry points of packages that have a mechanism
VERBS = ("quote", "audit", "advise")


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
    module: str  # the module that holds its SLICE, by its absolute name
    summary: str  # a few words of help
    fit: Fit | None = None  # None: `bonafed advise mechanism` does not mention it
    verbs: str = ""  # commands that have it as a noun, besides train
    # of its contract files: whoever reads one loads the mechanism that it belongs to, and no other
    formats: tuple[str, ...] = ()
    example_file: str = "example.toml"  # a config to begin with, in the package that holds the module
    package: str = ""  # where it comes from; filled in for what is not a part of bonafed
    registered: Slice | None = None  # the slice itself, of a mechanism that a notebook registered

    def load(self) -> Slice:
        """The slice itself."""
        if self.registered is not None:
            return self.registered
        if not self.package:
            loaded: Slice = importlib.import_module(self.module).SLICE
            return loaded
        try:
            return _matching(self, importlib.import_module(self.module).SLICE)
        except (Exception, SystemExit) as error:  # whatever its code does when it is imported
            raise UnusablePlugin(self.package, self.name, _reason(error)) from error

    @property
    def example(self) -> Traversable:
        """A config to begin with."""
        package = self.module.rpartition(".")[0]
        if not self.package:
            return resources.files(package) / self.example_file
        try:
            example = resources.files(package) / self.example_file
        except Exception as error:
            raise UnusablePlugin(self.package, self.name, _reason(error)) from error
        if not example.is_file():
            raise UnusablePlugin(self.package, self.name, f"it has no {self.example_file}")
        return example


_ENTRIES = (
    Entry(
        "fedavg",
        None,
        "bonafed.mechanisms.fedavg",
        "plain federated averaging: nobody is paid",
        Fit(
            False,
            ("none",),
            True,
            False,
            "Trains one model; takes for granted that clients join and do what they are told.",
            "bonafed train --write-example fedavg",
        ),
        example_file="examples/fedavg.toml",
    ),
    Entry(
        "sampling",
        "sampling",
        "bonafed.mechanisms.sampling.slice",
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
        "posted-price",
        "posted_price",
        "bonafed.mechanisms.posted_price.slice",
        "one price for taking part, under a cap",
        Fit(
            True,
            ("participation",),
            True,
            False,
            "Pays one posted price for each delivery; no run spends more than the cap, whatever costs are.",
            "bonafed quote posted-price",
        ),
        "quote audit",
        ("bonafed-posted-price",),
    ),
    Entry(
        "jsam",
        "jsam",
        "bonafed.mechanisms.jsam.slice",
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
        "bonafed.mechanisms.faithful.slice",
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
        "bonafed.mechanisms.rewards.slice",
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
CATALOGUE: Mapping[str, Entry] = {item.name: item for item in _ENTRIES}  # those of bonafed
_registered: dict[str, Entry] = {}  # in this process, by `register`
# of a config, whatever the mechanism: none can have one of these for its own
_SHARED_TABLES = ("data", "partition", "model", "training", "privacy", "run", "compare")
_OLD_TABLES = {"contract": "sampling"}  # of a config, by the name that they had
_NAME, _TABLE = re.compile(r"[a-z][a-z0-9-]{0,39}"), re.compile(r"[a-z][a-z0-9_]{0,39}")
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def mechanisms() -> Mapping[str, Entry]:
    """Every mechanism by name: those of bonafed, of packages that are installed, and registered ones."""
    return {**CATALOGUE, **_installed(), **_registered}


def _bonafed_first() -> Iterator[Mapping[str, Entry]]:
    """Where to look something up: other packages are imported only if bonafed does not have it."""
    yield CATALOGUE
    yield mechanisms()


def entry(name: str, verb: str = "") -> Entry:
    """The mechanism with this name; where a verb is given, one that has such a command."""
    for entries in _bonafed_first():
        if name in entries and (not verb or verb in entries[name].verbs.split()):
            return entries[name]
    names = [item.name for item in with_verb(verb)] if verb else [*mechanisms()]
    raise InvalidValue("mechanism", "must be one of " + ", ".join(names), repr(name))


def with_verb(verb: str) -> list[Entry]:
    """Mechanisms that have such a command."""
    return [item for item in mechanisms().values() if verb in item.verbs.split()]


def of_table(tables: Mapping[str, object]) -> Entry:
    """The mechanism whose table is among these; the one without a table if none is."""
    for old, new in _OLD_TABLES.items():
        if old in tables:
            raise OldName(f"[{old}]", f"is now [{new}]: rename the table")
    known = {*_SHARED_TABLES, *(item.table for item in CATALOGUE.values())}
    entries = CATALOGUE if known.issuperset(tables) else mechanisms()
    present = [item for item in entries.values() if item.table is not None and item.table in tables]
    if len(present) > 1:
        first, second = present[0].table, present[1].table
        raise InvalidValue(str(second), f"must not be given with {first}", f"a section [{second}]")
    return present[0] if present else next(item for item in entries.values() if item.table is None)


def of_format(kind: object) -> Entry:
    """The mechanism whose contract files have this format."""
    for entries in _bonafed_first():
        for item in entries.values():
            if kind in item.formats:
                return item
    readable = [name for item in mechanisms().values() for name in item.formats]
    raise InvalidValue("contract.format", "must be one of " + ", ".join(readable), repr(kind)[:60])


def usable(entries: Iterable[Entry]) -> list[Entry]:
    """Those that can be loaded; a package with one that cannot is named in a warning."""
    kept = []
    for item in entries:
        try:
            if item.package:
                item.load()
        except UnusablePlugin as error:
            pass_over(error)
        else:
            kept.append(item)
    return kept


def pass_over(error: UnusablePlugin) -> None:
    """Warn that something is left out, and why."""
    warnings.warn(error, stacklevel=2)


def register(
    mechanism: Slice, *, summary: str = "", fit: Fit | None = None, formats: Sequence[str] = ()
) -> None:
    """Let this process know a mechanism; one of the same name that was registered before is replaced."""
    verbs = " ".join(verb for verb, command in _commands(mechanism).items() if command)
    module = getattr(mechanism.make, "__module__", "__main__")
    item = Entry(
        mechanism.name, mechanism.table, module, summary, fit, verbs, tuple(formats),
        package="this session", registered=mechanism,
    )  # fmt: skip
    registered_others = [other for name, other in _registered.items() if name != item.name]
    _require_room(item, [*CATALOGUE.values(), *_installed().values(), *registered_others])
    _registered[item.name] = item


@cache
def _installed() -> Mapping[str, Entry]:
    """The mechanisms of other packages; one that cannot be used is named in a warning."""
    entries: dict[str, Entry] = {}
    try:
        points = sorted(
            metadata.entry_points(group=PLUGINS), key=lambda point: (_package(point), point.name)
        )
    except Exception as error:  # a package whose list of entry points cannot be read
        pass_over(UnusablePlugin("(unknown)", PLUGINS, _reason(error)))
        return {}
    for point in points:
        try:
            item = _entry_of(point)
            _require_room(item, [*CATALOGUE.values(), *entries.values()])
        except (Exception, SystemExit) as error:  # whatever its code does when it is imported
            pass_over(UnusablePlugin(_package(point), point.name, _reason(error)))
        else:
            entries[item.name] = item
    return entries


def _entry_of(point: metadata.EntryPoint) -> Entry:
    value = point.load()
    item = value() if callable(value) else value
    if not isinstance(item, Entry):
        raise InvalidValue(point.value, "must be an Entry of bonafed.mechanisms.catalogue", repr(item)[:60])
    return replace(item, package=_package(point), registered=None)


def _package(point: metadata.EntryPoint) -> str:
    return "(unknown)" if point.dist is None else f"{point.dist.name} {point.dist.version}"


def _reason(error: BaseException) -> str:
    return str(error) if isinstance(error, BonafedError) else f"{type(error).__name__}: {error}"


def _require_room(item: Entry, others: Iterable[Entry]) -> None:
    """Refuse an entry that cannot be read, or whose name, table or format is taken."""
    _require_shape(item)
    if item.table in (*_SHARED_TABLES, *_OLD_TABLES):
        raise InvalidValue("table", "must not be a table of every config", repr(item.table))
    for other in others:
        owner = other.package or "bonafed"
        if item.name == other.name:
            raise InvalidValue("name", f"belongs to a mechanism of {owner}", repr(item.name))
        if item.table == other.table:
            raise InvalidValue("table", f"belongs to {other.name} of {owner}", repr(item.table))
        for kind in item.formats:
            if kind in other.formats:
                raise InvalidValue("formats", f"must not hold one of {other.name} of {owner}", repr(kind))


def _require_shape(item: Entry) -> None:
    """Refuse an entry whose fields are of the wrong type or form."""
    rules = {"name": _NAME, "table": _TABLE, "module": _MODULE}
    for name, pattern in rules.items():
        value = getattr(item, name)
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise InvalidValue(name, f"must be of the form {pattern.pattern}", repr(value)[:60])
    for name in ("summary", "verbs", "example_file"):
        if not isinstance(getattr(item, name), str):
            raise InvalidValue(name, "must be text", repr(getattr(item, name))[:60])
    if item.fit is not None and not isinstance(item.fit, Fit):
        raise InvalidValue("fit", "must be a Fit, or None", repr(item.fit)[:60])
    if not isinstance(item.formats, tuple) or not all(isinstance(kind, str) for kind in item.formats):
        raise InvalidValue("formats", "must be a tuple of texts", repr(item.formats)[:60])
    for verb in item.verbs.split():
        if verb not in VERBS:
            raise InvalidValue("verbs", "must be of " + ", ".join(VERBS), repr(verb))


def _matching(item: Entry, loaded: object) -> Slice:
    """The slice of a package from outside, if it is one and is what its entry says."""
    from bonafed.mechanisms.protocol import Slice  # whoever wrote it has; whoever only lists has not

    if not isinstance(loaded, Slice):
        raise InvalidValue("SLICE", "must be a Slice of bonafed.mechanisms.protocol", repr(loaded)[:60])
    for name in ("name", "table"):
        stated, value = getattr(item, name), getattr(loaded, name)
        if value != stated:
            raise InvalidValue(f"SLICE.{name}", f"must be {stated!r}, as in its entry", repr(value))
    commands = _commands(loaded)
    for verb in item.verbs.split():
        if not commands[verb]:
            raise InvalidValue("verbs", f"must not name {verb}, which the SLICE does not have", item.verbs)
    if item.formats and loaded.read is None:
        raise InvalidValue("formats", "must be empty without a function that reads them", item.formats)
    return loaded


def _commands(mechanism: Slice) -> Mapping[str, object]:
    """What a slice has for every verb; empty or None: nothing."""
    return {"quote": mechanism.quote, "audit": mechanism.attack, "advise": mechanism.advice}
