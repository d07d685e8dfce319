"""Options as data: a section is a frozen value whose every key carries its rule and its help text.

A table of a config file is a section, and so are the options of a command: whoever declares one gets it
read from TOML, rendered as options on the command line, written back and documented. An unknown key, a
missing one and an impossible value are refused under their name, `run.seed must be a whole number of at
least 0, got -1`; where several are wrong, all are told at once.

>>> @dataclass(frozen=True)
... class Door(Section):
...     width: float = key(checks.positive, help="In metres.")
...     colour: str = key(word, "red", help="Any.")
>>> Door(0.9).table()
{'width': 0.9, 'colour': 'red'}
>>> section_from(Door, "door", {"widht": 1.0})
Traceback (most recent call last):
    ...
bonafed.errors.InvalidValues: 2 mistakes: (1) door.widht is unknown (did you mean width?), got 1.0; \
(2) door.width is required
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, Field, dataclass, field, fields
from typing import Any, TypeVar

from bonafed import checks
from bonafed.errors import InvalidValue, InvalidValues, MissingValue, refuse

Check = Callable[[str, Any], Any]
S = TypeVar("S", bound="Section")


def key(
    check: Check,
    default: Any = MISSING,
    *,
    help: str = "",
    metavar: str | None = None,
    flag: str | None = None,
    example: str | None = None,
) -> Any:
    """A key with its rule; None as default: may be left out.

    `flag` is its name on the command line if not the key's own, `metavar` what stands for its value there.
    `example` is a value as it stands in a file, shown where the key is required and not there.
    """
    metadata = {
        "check": _optional(check) if default is None else check, "help": help, "metavar": metavar,
        "flag": flag, "example": example,
    }  # fmt: skip
    return field(metadata=metadata) if default is MISSING else field(default=default, metadata=metadata)


def _optional(check: Check) -> Check:
    return lambda name, value: None if value is None else check(name, value)


@dataclass(frozen=True)
class Section:
    """A table of a file, or the options of a command; every value is checked by the rule of its key."""

    def __post_init__(self) -> None:
        problems: list[InvalidValue] = []
        for item in fields(self):
            check: Check = item.metadata["check"]
            with told_at_once(problems):
                object.__setattr__(self, item.name, check(item.name, getattr(self, item.name)))
        if not problems:  # rules between keys are about keys that keep their own
            with told_at_once(problems):
                problems.extend(self._agree() or ())
        refuse(problems)

    def _agree(self) -> Iterable[InvalidValue] | None:
        """What is wrong by the rules between keys: all that is, or the first one raised."""
        return None

    def table(self) -> dict[str, Any]:
        """The section as plain data, from which `section_from` makes the same one."""
        return {item.name: _plain(getattr(self, item.name)) for item in fields(self)}

    @classmethod
    def reading(cls, table: Mapping[str, Any]) -> dict[str, Any]:
        """The values of the keys from a table as it stands in a file."""
        return dict(table)


def _plain(value: Any) -> Any:
    if hasattr(value, "to_json"):  # a prior, say
        return value.to_json()
    return list(value) if isinstance(value, tuple) else value


def section_from(kind: type[S], name: str, table: Mapping[str, Any]) -> S:
    """A section from plain data; errors name `name.key`."""
    values = kind.reading(table)
    items = {item.name: item for item in fields(kind)}
    problems: list[InvalidValue] = [
        unknown(f"{name}.", entry, value, list(items))
        for entry, value in values.items()
        if entry not in items
    ]
    for entry, item in items.items():
        if entry not in values and is_required(item):
            problems.append(MissingValue(f"{name}.{entry}", _required(entry, item)))
    if not problems:
        with named(name):
            return kind(**values)
    with told_at_once(problems), named(name):  # a section that cannot be made still shows what is wrong
        refuse(broken_rules(items.values(), values))
    raise InvalidValues(problems) if len(problems) > 1 else problems[0]


def _required(entry: str, item: Field[Any]) -> str:
    example = item.metadata.get("example")
    return "is required" if example is None else f"is required, such as {entry} = {example}"


def broken_rules(items: Iterable[Field[Any]], values: Mapping[str, Any]) -> list[InvalidValue]:
    """The values that break the rules of their own keys."""
    problems: list[InvalidValue] = []
    for item in items:
        if item.name in values:
            with told_at_once(problems):
                item.metadata["check"](item.name, values[item.name])
    return problems


@contextmanager
def told_at_once(problems: list[InvalidValue]) -> Iterator[None]:
    """What is refused inside is kept with what else is wrong, to be told together."""
    try:
        yield
    except InvalidValue as error:
        problems.extend(error.problems)


def plain_values(kind: type[Section], name: str, table: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a table that need not be complete, held against their rules, as plain data.

    What means the same is then the same: "uniform:0,1" and the table of that prior, 50 and 50.0.
    """
    rules: dict[str, Check] = {item.name: item.metadata["check"] for item in fields(kind)}
    values = {}
    for entry, value in kind.reading(table).items():
        if entry not in rules:
            raise unknown(f"{name}.", entry, value, list(rules))
        with named(name):
            values[entry] = _plain(rules[entry](entry, value))
    return values


def is_required(item: Field[Any]) -> bool:
    """Whether a key has no default."""
    return item.default is MISSING and item.default_factory is MISSING


@contextmanager
def named(section: str, **names: str) -> Iterator[None]:
    """Errors raised inside are reported under the section's name, some under another key's.

    `model="name"` is a key of the section, `clip="privacy.clip"` one of another section.
    """
    try:
        yield
    except InvalidValue as error:
        raise error.named(lambda name: _under(section, name, names)) from error


def _under(section: str, name: str, names: Mapping[str, str]) -> str:
    key = names.get(name, name)
    return key if name in names and "." in key else f"{section}.{key}"


def unknown(prefix: str, key: str, value: object, keys: Sequence[str]) -> InvalidValue:
    """The error for an unknown key, suggesting the nearest known one."""
    near = difflib.get_close_matches(key, keys, 1)
    hint = f"did you mean {near[0]}?" if near else "known keys: " + ", ".join(keys)
    return InvalidValue(f"{prefix}{key}", f"is unknown ({hint})", repr(value))


def text(name: str, value: object) -> str:
    """The rule of a key that takes any text."""
    if not isinstance(value, str):
        raise InvalidValue(name, "must be text", repr(value))
    return value


def word(name: str, value: object) -> str:
    """Text that is not empty."""
    if not text(name, value):
        raise InvalidValue(name, "must not be empty", repr(value))
    return str(value)


def flag(name: str, value: object) -> bool:
    """The rule of a key that is true or false."""
    if not isinstance(value, bool):
        raise InvalidValue(name, "must be true or false", repr(value))
    return value


def natural(name: str, value: object) -> int:
    """0, 1, 2, ..."""
    return checks.whole(name, value, at_least=0)


def one_of(options: object) -> Check:
    """One of the words of a `Literal` type."""
    return lambda name, value: checks.literal(name, value, options)


def texts(name: str, value: object, example: str) -> Sequence[str]:
    """A list of texts."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InvalidValue(name, f"must be a list such as {example}", repr(value))
    for entry in value:
        if not isinstance(entry, str):
            raise InvalidValue(name, f"must be a list of texts such as {example}", repr(entry)[:60])
    return value


def exactly_one(**ways: object) -> str:
    """The one of several options that is there; their names with _ for -."""
    present = [name for name, value in ways.items() if value is not None]
    if len(present) != 1:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in ways)
        raise InvalidValue("input", f"must be one of {flags}", ("none", "", "two", "three")[len(present)])
    return present[0]


def at_most_one(**ways: object) -> None:
    """Refuse options that exclude each other."""
    present = [(f"--{name.replace('_', '-')}", value) for name, value in ways.items() if value is not None]
    if len(present) > 1:
        raise InvalidValue(present[1][0], f"must not be given with {present[0][0]}", present[1][1])
