"""The command line: a verb, then a noun. It is thin and names no mechanism.

Options are rendered in one place (`options`), nouns come from the catalogue (`nouns`), and everything that
is printed or written goes through one place (`render`).

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
from typing import Annotated, Any, NoReturn

import typer

from bonafed import __version__
from bonafed.cli.coins import coins_app
from bonafed.cli.compare import compare
from bonafed.cli.federation import federation_app
from bonafed.cli.nouns import CommandGroup, advise_app, audit_app, quote_app
from bonafed.cli.participate import participate
from bonafed.cli.report import report
from bonafed.cli.reproduce import reproduce
from bonafed.cli.runs import runs
from bonafed.cli.settle import settle
from bonafed.cli.sign import keygen, sign
from bonafed.cli.statement import statement
from bonafed.cli.train import train
from bonafed.cli.verify import verify
from bonafed.errors import BonafedError, UnusablePlugin
from bonafed.extras import explained, runs_one_command
from bonafed.text import printable

_ORDER = (
    "advise", "quote", "audit", "keygen", "sign", "verify", "settle", "coins", "train", "statement", "runs",
    "compare", "report", "reproduce", "federation", "participate",
)  # fmt: skip


class _Commands(CommandGroup):
    """Commands in the order in which they are used."""

    def list_commands(self, ctx: Any) -> list[str]:
        names = super().list_commands(ctx)
        return sorted(names, key=_ORDER.index)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:  # Typer would end without a word
            raise _Stopped from stop


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
app.add_typer(quote_app, name="quote")
app.command()(verify)
app.command()(settle)
app.command()(keygen)
app.command()(sign)
app.add_typer(coins_app, name="coins")
app.add_typer(audit_app, name="audit")
app.add_typer(advise_app, name="advise")
app.command()(train)
app.command()(statement)
app.command()(compare)
app.command()(runs)
app.command()(report)
app.command()(reproduce)
app.add_typer(federation_app, name="federation")
app.command()(participate)


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
