"""Options of the command line from a section: each key becomes a flag, and its rule checks the value.

A section declares its keys once (`bonafed.sections`); here they become the parameters of a command:

    clients: int = key(checks.whole, help="How many.")        --clients INTEGER  How many. (required)
    seed: int = key(checks.seed, 0, help="Of the draws.")     --seed INTEGER  Of the draws. (default: 0)
    members: tuple[int, ...] = key(...)                       --members 1,2 --members 3
    scheme: Literal["a", "b"] = key(...)                      --scheme [a|b]
    fast: bool = key(flag, False)                             --fast

Values of any other type, such as a prior, are passed on as text, which the rule of the key parses.
`CommandGroup` lists commands with whole sentences.
"""

from __future__ import annotations

import types
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, Field, fields
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import typer
from typer.core import TyperGroup

from bonafed.errors import InvalidValue, MissingValue
from bonafed.sections import Section, is_required
from bonafed.text import numeral, whole_numeral

S = TypeVar("S", bound=Section)
_ABOUT_PRESENCE = ("must not be given", "requires")  # how such rules begin
_PLAIN = (bool, int, float, str, Path)


class CommandGroup(TyperGroup):
    """Lists commands with their whole first sentence, which Click would cut short."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(self.summaries(ctx))

    def summaries(self, ctx: Any) -> list[tuple[str, str]]:
        """Every command with one sentence about it."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        return [(name, command.get_short_help_str(10_000)) for name, command in commands if command]


def number(text: str | float) -> float:
    """A number as it is typed; defaults are numbers already."""
    try:
        return numeral(text) if isinstance(text, str) else text
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a valid float.") from None


def whole_number(text: str | int) -> int:
    """A whole number as it is typed."""
    try:
        return whole_numeral(text) if isinstance(text, str) else text
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a valid integer.") from None


number.__name__, whole_number.__name__ = "float", "integer"  # which Typer shows in help texts
_PARSERS: dict[type, Any] = {float: number, int: whole_number}

Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs, nothing else.")]
Plot = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Also draw a figure, into a .png, .svg or .pdf file.")
]


def parameters(kind: type[Section], without: Collection[str] = ()) -> list[Parameter]:
    """A parameter of a Typer command for every key of a section, except those in `without`."""
    hints = get_type_hints(kind)
    return [_parameter(item, hints[item.name]) for item in fields(kind) if item.name not in without]


def section_of(kind: type[S], values: Mapping[str, Any]) -> S:
    """The section of the values that were typed (None: not typed); errors name the option."""
    arguments = {}
    hints = get_type_hints(kind)
    for item in fields(kind):
        value = values.get(item.name)
        if value is None or value == []:
            if is_required(item):
                raise missing(flag_of(item))
            continue
        arguments[item.name] = _value(flag_of(item), value, hints[item.name])
    with named_by_flags(kind):
        return kind(**kind.reading(arguments))


@contextmanager
def named_by_flags(kind: type[Section]) -> Iterator[None]:
    """Errors inside name the option: always where its spelling is its own, else where it is about whether
    it is given at all, `--highest must not be given with --prior`; a value that is wrong is the quantity's,
    `budget must be positive, got -3.0`."""
    try:
        yield
    except InvalidValue as error:
        item = kind.__dataclass_fields__.get(error.name)
        about_presence = isinstance(error, MissingValue) or error.rule.startswith(_ABOUT_PRESENCE)
        if item is None or not (item.metadata.get("flag") or about_presence):
            raise
        raise error.renamed(flag_of(item)) from error


def flag_of(item: Field[Any]) -> str:
    """The spelling of a key as an option."""
    own = item.metadata.get("flag") or item.name
    return "--" + own.removeprefix("--").replace("_", "-")


def missing(flag: str, why: str = "") -> MissingValue:
    """The error for an option, or an argument, that a command cannot do without."""
    return MissingValue(flag, f"is required{why}")


def _parameter(item: Field[Any], hint: Any) -> Parameter:
    kind, several = _shape(hint)
    default = _default(item, several)
    text = str(item.metadata.get("help") or "")
    if is_required(item):
        text = f"{text} (required)".strip()
    elif default is not None and default is not False and default != "":
        text = f"{text} (default: {'yes' if default is True else default})".strip()
    metavar = "[" + "|".join(get_args(_alone(hint))) + "]" if get_origin(_alone(hint)) is Literal else None
    if several:
        metavar = {int: "N,N,...", float: "X,X,..."}.get(kind, "A,A,...")
    flag = flag_of(item)
    if kind is bool and default is True:
        flag = f"{flag}/--no-{flag[2:]}"
    option = typer.Option(
        flag,
        help=text,
        metavar=item.metadata.get("metavar") or metavar,
        show_default=False,  # without Rich, Typer writes it with a backslash
        parser=None if several else _PARSERS.get(kind),
    )
    value_type: Any = list[str] if several else kind
    annotation = Annotated[value_type | None, option] if default is None else Annotated[value_type, option]
    return Parameter(item.name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _alone(hint: Any) -> Any:
    """The type without None; text for a choice of several."""
    if get_origin(hint) not in (Union, types.UnionType):
        return hint
    rest = [part for part in get_args(hint) if part is not type(None)]
    if len(rest) == 1:
        return rest[0]
    return float if set(rest) <= {int, float} else str


def _shape(hint: Any) -> tuple[type, bool]:
    """The type that Typer reads, and whether it takes several values."""
    alone = _alone(hint)
    if get_origin(alone) is tuple:
        return _shape(get_args(alone)[0])[0], True
    return (alone if alone in _PLAIN else str), False


def _default(item: Field[Any], several: bool) -> Any:
    """The default as shown in the help text; None if none is shown."""
    if item.default is MISSING:
        return None
    if several:
        return None
    return item.default if isinstance(item.default, _PLAIN) else None


def _value(flag: str, value: Any, hint: Any) -> Any:
    """The value as the key holds it: a tuple of a list, a number where numbers and text may be."""
    if isinstance(value, list):
        kind, _ = _shape(hint)
        return tuple(_entry(flag, word.strip(" "), kind) for text in value for word in text.split(","))
    if isinstance(value, str) and float in get_args(hint):
        try:
            return numeral(value)
        except ValueError:
            return value
    return value


def _entry(flag: str, word: str, kind: type) -> Any:
    """One entry of a list with commas."""
    if kind not in (int, float):
        return kind(word)
    try:
        return whole_numeral(word) if kind is int else numeral(word)
    except ValueError:
        numbers = "whole numbers" if kind is int else "numbers"
        raise InvalidValue(flag, f"must be {numbers} NUMBER,NUMBER,...", repr(word)) from None
