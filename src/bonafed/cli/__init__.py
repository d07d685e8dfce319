"""The command line: one file per command, thin.

Errors are one line on standard error, `error: name rule, got value`, and exit code 2; a claim or a
check that fails is exit code 1, output that nobody reads 141. Nothing is written when a command fails, but
for the folder of a training run that has kept a round: it can be resumed.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any, NoReturn

import typer

from bonafed import __version__
from bonafed.cli.audit import audit_app
from bonafed.cli.coins import coins_app
from bonafed.cli.jsam import jsam_app
from bonafed.cli.quote import quote
from bonafed.cli.runs import runs
from bonafed.cli.settle import settle
from bonafed.cli.sign import keygen, sign
from bonafed.cli.train import train
from bonafed.cli.verify import verify
from bonafed.errors import BonafedError

app = typer.Typer(
    name="bonafed",
    help="Contracts for federated learning under which honesty is every participant's best choice.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command()(quote)
app.command()(verify)
app.command()(settle)
app.command()(keygen)
app.command()(sign)
app.add_typer(coins_app, name="coins")
app.add_typer(jsam_app, name="jsam")
app.add_typer(audit_app, name="audit")
app.command()(train)
app.command()(runs)


def _version(wanted: bool) -> None:
    if wanted:
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


_PIPE_CLOSED = 141  # what shells report of programs that are stopped so; 1 would be a verdict

# The root of the errors Typer reports; newer versions of Typer carry their own copy of Click.
_UsageProblem = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


def main() -> None:
    """Entry point of the `bonafed` command."""
    try:
        code = app(prog_name="bonafed", standalone_mode=False)
    except BonafedError as error:
        _fail(str(error))
    except OSError as error:
        _fail(f"{error.filename or 'file'}: {error.strerror or error}")
    except MemoryError:
        _fail("this does not fit into memory; ask for fewer clients, rounds or points")
    except (typer.Abort, KeyboardInterrupt):
        _fail("stopped by the user; nothing was written")
    except SystemExit:  # of Typer and Rich, with 1: nobody reads what they write
        sys.exit(_PIPE_CLOSED)
    except Exception as error:
        if not isinstance(error, _UsageProblem):
            raise
        _usage_problem(error)
    else:
        sys.exit(code if isinstance(code, int) else 0)


def _usage_problem(error: Any) -> NoReturn:
    if type(error).__name__ == "NoArgsIsHelpError":  # its message is the help page
        typer.echo(error.format_message(), err=True)
        sys.exit(2)
    _fail(error.format_message())


def _fail(message: str) -> NoReturn:
    typer.echo("error: " + " ".join(message.split()), err=True)
    sys.exit(2)
