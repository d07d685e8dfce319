"""The command line: a verb, then a noun. It is thin and names no mechanism.

Options are rendered in one place (`options`), nouns come from the catalogue (`nouns`), and everything that
is printed or written goes through one place (`presentation.terminal`). A command is imported when it is
typed, so that the start takes no time for the others.

An error is one line on standard error, `error: name rule, got value`, with exit code 2. A claim or check
that fails gives exit code 1, a closed output pipe 141, Ctrl-C 130. A command that fails writes nothing,
except for the folder of a training run that has completed a round, or waits for a client that it needs:
that run can be resumed.
"""

from __future__ import annotations

import io
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Annotated, Any, NamedTuple, NoReturn

import typer

from bonafed import __version__
from bonafed.cli.options import CommandGroup
from bonafed.errors import BonafedError, UnusablePlugin
from bonafed.extras import explained, runs_one_command
from bonafed.text import printable


class _Command(NamedTuple):
    """Where a command is, so that only the one that is typed is imported."""

    module: str  # of this package
    attribute: str  # a function, or a Typer of its own
    summary: str  # the first sentence of its help


_COMMANDS = {  # in the order in which they are used
    "advise": _Command("nouns", "advise_app", "Answer questions that come up before there is a config."),
    "quote": _Command(
        "nouns", "quote_app", "The contract to publish under a mechanism, what it costs, and what it buys."
    ),
    "audit": _Command(
        "nouns", "audit_app", "Try to game a mechanism, and show the lie that pays if there is one."
    ),
    "keygen": _Command(
        "sign",
        "keygen",
        "Make a key to sign contracts with: KEY.pem for yourself, KEY.pub.pem for everybody.",
    ),
    "sign": _Command("sign", "sign", "Sign a published contract, into CONTRACT.json.sig."),
    "verify": _Command(
        "verify", "verify", "Verify a published contract: its terms, truthfulness, rationality and spend."
    ),
    "settle": _Command(
        "settle", "settle", "Settle a published contract: the terms of every client for what it states."
    ),
    "coins": _Command(
        "coins",
        "coins_app",
        "Verifiable coins: nobody chooses who is in a round, and anybody can check it.",
    ),
    "train": _Command(
        "train",
        "train",
        "Train as a config file says: clients simulated on this machine, or those of a federation.",
    ),
    "statement": _Command(
        "statement",
        "statement",
        "Show the statement of a finished run: a row per client, the totals, and what was promised.",
    ),
    "runs": _Command("runs", "runs", "List and compare training runs, finished or not."),
    "compare": _Command(
        "compare",
        "compare",
        "Compare mechanisms on one federation: accuracy, money, privacy, and the best lie of each.",
    ),
    "report": _Command(
        "report", "report", "Make a page to look at and to pass on, of a contract, a run, or several runs."
    ),
    "reproduce": _Command(
        "reproduce", "reproduce", "Put the papers' claims to the test; without a name, list them."
    ),
    "federation": _Command(
        "federation",
        "federation_app",
        "A federation over Flower: set it up, register its members, see who is there.",
    ),
    "participate": _Command(
        "participate",
        "participate",
        "Take part in a federation until stopped (Ctrl-C): one process with your data, and a Flower node.",
    ),
}


class _Commands(CommandGroup):
    """All commands; each is imported when it is typed."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        names: dict[str, Any] = dict.fromkeys(_COMMANDS)
        self.commands = names  # by which Typer knows what somebody may have meant

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return _imported(cmd_name) if cmd_name in _COMMANDS else None

    def summaries(self, ctx: Any) -> list[tuple[str, str]]:
        return [(name, command.summary) for name, command in _COMMANDS.items()]

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:  # Typer would end without a word
            raise _Stopped from stop


@cache
def _imported(name: str) -> Any:
    """A command as Click knows it."""
    module, attribute, _ = _COMMANDS[name]
    target = getattr(import_module(f"bonafed.cli.{module}"), attribute)
    if isinstance(target, typer.Typer):
        return typer.main.get_group(target)
    alone = typer.Typer(add_completion=False, rich_markup_mode=None)
    alone.command(name)(target)
    return typer.main.get_command(alone)


class _Stopped(Exception):
    """Ctrl-C, in a command that has no more to say about it."""


app = typer.Typer(
    name="bonafed",
    cls=_Commands,
    help="Contracts for federated learning under which honesty is every participant's best choice.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(show: bool) -> None:
    if show:
        typer.echo(f"bonafed {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and stop.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    """Contracts for federated learning under which honesty is every participant's best choice."""


_PRINTERS = ("rich", "typer", "click")  # packages that print
_PIPE_CLOSED = 141  # what shells report for a program stopped this way; 1 would be a verdict
_INTERRUPTED = 130  # likewise after Ctrl-C

# The root of the errors Typer reports; newer versions of Typer carry their own copy of Click.
_UsageProblem = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


@cache
def command() -> Any:
    """The whole command line, as Click knows it; made once."""
    return typer.main.get_command(app)


def main() -> None:
    """Entry point of the `bonafed` command."""
    runs_one_command()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names may contain letters that the terminal cannot show
            stream.reconfigure(errors="backslashreplace")
    try:
        with explained(), _plain_warnings():
            code = command()(prog_name="bonafed", standalone_mode=False)
    except BonafedError as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"{error.filename or _unnamed(error)}: {error.strerror or error}")
    except MemoryError:
        _fail("this does not fit into memory; ask for fewer clients, rounds or points")
    except (typer.Abort, KeyboardInterrupt, _Stopped):
        typer.echo("stopped by the user", err=True)
        sys.exit(_INTERRUPTED)
    except SystemExit:  # Typer and Rich exit with 1 when their output pipe is closed
        sys.exit(_PIPE_CLOSED)
    except Exception as error:
        if not isinstance(error, _UsageProblem):
            raise
        _usage_problem(error)
    else:
        sys.exit(code if isinstance(code, int) else 0)


@contextmanager
def _plain_warnings() -> Iterator[None]:
    """Show a mechanism that was passed over as a line, not as a place in the code."""
    with warnings.catch_warnings():
        show: Any = warnings.showwarning

        def in_a_line(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if issubclass(category, UnusablePlugin):
                typer.echo("warning: " + printable(" ".join(str(message).split())), err=True)
            else:
                show(message, category, *where, **more)

        warnings.showwarning = in_a_line
        yield


def _unnamed(error: OSError) -> str:
    """What an error of the system that names no file is about: all files that are written are named."""
    innermost = [frame for frame, _ in traceback.walk_tb(error.__traceback__)][-1]
    package = str(innermost.f_globals.get("__name__", "")).partition(".")[0]
    return "standard output" if package in _PRINTERS else "file"


def _usage_problem(error: Any) -> NoReturn:
    if type(error).__name__ == "NoArgsIsHelpError":  # its message is the help page
        typer.echo(error.format_message(), err=True)
        sys.exit(2)
    param = getattr(error, "param", None)
    if type(error).__name__ == "MissingParameter" and param is not None:
        _fail(f"{param.make_metavar(error.ctx)} is required")
    _fail(error.format_message())


def _fail(message: str) -> NoReturn:
    typer.echo("error: " + printable(" ".join(message.split())), err=True)
    sys.exit(2)
