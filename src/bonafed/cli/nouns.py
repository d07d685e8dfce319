"""Verbs whose nouns come from the catalogue: `bonafed quote NAME`, `audit NAME`, `advise QUESTION`.

A mechanism states its commands as data (`protocol.Command`): options, help text, a function that answers.
Listing the nouns needs only the catalogue; a mechanism is imported when its noun is typed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from bonafed.cli.coin_secret import new_coin_secret, write_with_secret
from bonafed.cli.options import CommandGroup, Json, Plot, named_by_flags, parameters, section_of
from bonafed.cli.sign import contract_files
from bonafed.errors import BonafedError, InvalidValue, UnusablePlugin
from bonafed.mechanisms import advice
from bonafed.mechanisms.catalogue import entry, pass_over, usable, with_verb
from bonafed.presentation import terminal

if TYPE_CHECKING:
    from bonafed.mechanisms.protocol import Command
    from bonafed.sections import Section

_EXTREME = 12.0  # powers of ten from 1, below which arithmetic that fails is a mistake of ours
_COINS = "coins"  # the key of a section that holds the commitment to the coins
_Save = Annotated[
    Path | None,
    typer.Option(metavar="CONTRACT.json", help="Write the contract, for `bonafed verify` and `settle`."),
]
_Sign = Annotated[
    Path | None,
    typer.Option(metavar="KEY.pem", help="With --save: also sign the contract, into CONTRACT.json.sig."),
]
_CommitCoins = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="With --save: draw a secret that decides who is in a round, keep it in this new file, and "
        "put its commitment into the contract.",
    ),
]
_Csv = Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the table, with all digits.")]
_PUBLISHING = {"save": _Save, "sign": _Sign}


@dataclass(frozen=True, slots=True)
class Verb:
    """A command that takes a noun."""

    summary: str
    nouns: Callable[[], Mapping[str, str]]  # summaries by name
    command: Callable[[str], Command]  # of a noun; one that is unknown is refused
    publishes: bool = False  # whether it can write a contract
    tabulates: bool = False  # whether it can write a CSV


def group_of(verb: Verb) -> typer.Typer:
    """The commands of a verb, each made when it is typed."""

    class Nouns(CommandGroup):
        """Typer's groups know their commands in advance; this one looks them up."""

        def list_commands(self, ctx: Any) -> list[str]:
            return list(verb.nouns())

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            return _command(verb, cmd_name)

        def summaries(self, ctx: Any) -> list[tuple[str, str]]:
            return list(verb.nouns().items())

    group = typer.Typer(cls=Nouns, no_args_is_help=True, rich_markup_mode=None, help=verb.summary)

    @group.callback()
    def _group() -> None:
        pass

    _group.__doc__ = verb.summary
    return group


def _command(verb: Verb, noun: str) -> Any:
    """A mechanism's command as a Typer command."""
    command = verb.command(noun)
    commits = verb.publishes and _COINS in command.options.__dataclass_fields__
    more: dict[str, Any] = dict(_PUBLISHING) if verb.publishes else {}
    if commits:
        more["commit_coins"] = _CommitCoins
    if verb.tabulates:
        more["csv"] = _Csv
    flags = parameters(command.options, without=[_COINS] if commits else ())
    flags += [
        Parameter("as_json", Parameter.KEYWORD_ONLY, default=False, annotation=Json),
        Parameter("plot", Parameter.KEYWORD_ONLY, default=None, annotation=Plot),
        *(Parameter(n, Parameter.KEYWORD_ONLY, default=None, annotation=kind) for n, kind in more.items()),
    ]

    def run(**arguments: Any) -> None:
        own = {item.name for item in flags} - {"as_json", "plot", *more}
        values = {name: value for name, value in arguments.items() if name in own}
        outputs = {name: value for name, value in arguments.items() if name not in own}
        _answer(command, values, **outputs)

    run.__signature__ = Signature(flags)  # type: ignore[attr-defined]  # what Typer reads
    example = f"Example: {command.example}" if command.example else ""
    text = "\n\n".join(filter(None, (command.summary, command.details, example)))
    app = typer.Typer(add_completion=False, rich_markup_mode=None)
    app.command(noun, help=text)(run)
    return typer.main.get_command(app)


def _answer(
    command: Command,
    values: dict[str, Any],
    as_json: bool,
    plot: Path | None,
    save: Path | None = None,
    sign: Path | None = None,
    commit_coins: Path | None = None,
    csv: Path | None = None,
) -> None:
    """Refuse outputs that cannot be written, answer, write all files together, then show the answer."""
    terminal.require_outputs({"--plot": plot, "--save": save, "--csv": csv})
    if sign is not None and save is None:
        raise InvalidValue("--sign", "requires --save", sign)
    secret = None
    if commit_coins is not None:
        secret = new_coin_secret(commit_coins, save)
        values[_COINS] = secret.commitment
    options = section_of(command.options, values)
    with terminal.working("working"), named_by_flags(command.options), _extremes_named(options):
        document = command.answer(options)
        outputs = terminal.figure_file(document, plot)
        if csv is not None:
            outputs[csv] = terminal.file_content(document, csv, "csv", "--csv")
        if save is not None:
            outputs |= contract_files(save, terminal.file_content(document, save, "contract"), sign)
    paths = list(outputs)
    if secret is None:
        terminal.write_together(outputs)
    else:
        write_with_secret(outputs, secret)
        paths.append(secret.path)
    terminal.show(document, as_json=as_json, outputs=paths)


@contextmanager
def _extremes_named(options: Section) -> Iterator[None]:
    """A number so extreme that the arithmetic ends is refused by its name."""
    try:
        yield
    except (ArithmeticError, ValueError) as error:
        name, value, powers = _most_extreme(options)
        if isinstance(error, BonafedError) or powers < _EXTREME:
            raise
        raise InvalidValue(
            name, "must be neither too large nor too small to compute with", value
        ) from error


def _most_extreme(options: Section) -> tuple[str, float, float]:
    """The option with the number furthest from 1, the number, and by how many powers of ten."""
    extreme = ("", 1.0, 0.0)
    for name in options.__dataclass_fields__:
        given = getattr(options, name)
        for value in given if isinstance(given, (tuple, list)) else (given,):
            if isinstance(value, (int, float)) and value:
                powers = abs(math.log10(abs(value)))
                extreme = max(extreme, (name, value, powers), key=lambda one: one[2])
    return extreme


def _nouns(verb: str) -> Mapping[str, str]:
    return {mechanism.name: mechanism.summary for mechanism in with_verb(verb)}


def _quote(name: str) -> Command:
    command = entry(name, "quote").load().quote
    assert command is not None  # as the catalogue says
    return command


def _attack(name: str) -> Command:
    command = entry(name, "audit").load().attack
    assert command is not None  # as the catalogue says
    return command


def _advice() -> Mapping[str, Command]:
    """All questions with an answer, those about all mechanisms first."""
    questions = dict(advice.ADVICE)
    for mechanism in usable(with_verb("advise")):
        own = mechanism.load().advice
        if taken := questions.keys() & own.keys():  # of a mechanism from outside
            reason = f"others answer the questions {', '.join(sorted(taken))}"
            pass_over(UnusablePlugin(mechanism.package, mechanism.name, reason))
            continue
        questions |= own
    return questions


def _answer_to(question: str) -> Command:
    questions = _advice()
    if question not in questions:
        raise InvalidValue("question", "must be one of " + ", ".join(questions), repr(question))
    return questions[question]


quote_app = group_of(
    Verb(
        "The contract to publish under a mechanism, what it costs, and what it buys.",
        lambda: _nouns("quote"),
        _quote,
        publishes=True,
    )
)
audit_app = group_of(
    Verb(
        "Try to game a mechanism, and show the lie that pays if there is one.",
        lambda: _nouns("audit"),
        _attack,
    )
)
advise_app = group_of(
    Verb(
        "Answer questions that come up before there is a config.",
        lambda: {name: command.summary for name, command in _advice().items()},
        _answer_to,
    )
)
