"""`bonafed coins`: the steps of verifiable coins in a federation of your own, one command each."""

from __future__ import annotations

import csv
import io
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, TypeVar

import typer
from rich.markup import escape
from rich.table import Table

from bonafed.cli import inputs, tables
from bonafed.cli.coin_secret import hex_line, read_hex
from bonafed.cli.quote import Json
from bonafed.economics.claims import Finding
from bonafed.errors import InvalidValue, UnreadableFile
from bonafed.files import require_different, require_writable, write_secret, write_together
from bonafed.mechanisms.coins import SECRET_BYTES, Coins, commit_nonce
from bonafed.mechanisms.coins import toss as toss_coins
from bonafed.mechanisms.coins.contracts import (
    check_contract,
    committed_contract,
    contract_roster,
    require_own_line,
)
from bonafed.mechanisms.coins.transcript import (
    Transcript,
    check_openings,
    read_transcript,
    transcript_bytes,
    transcript_of,
)
from bonafed.mechanisms.contracts.canonical import read_object

coins_app = typer.Typer(
    help="Verifiable coins: who is sampled is chosen by nobody, and anybody can check it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
_ROWS = 20  # clients shown
T = TypeVar("T")

Contract = Annotated[Path, typer.Argument(metavar="CONTRACT.json", hidden=True)]
RosterFile = Annotated[Path, typer.Argument(metavar="ROSTER.json", hidden=True)]
Client = Annotated[str | None, typer.Option(metavar="NAME", help="The name you report under (required).")]
Nonces = Annotated[
    Path | None,
    typer.Option(metavar="FILE.csv", help="What was revealed: columns client and nonce."),
]
Secret = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The server's secret (quote --commit-coins).")
]


@coins_app.command()
def nonce(
    contract: Contract,
    client: Client = None,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to keep the nonce; a new file (required).")
    ] = None,
    as_json: Json = False,
) -> None:
    """For a client: draw a nonce, keep it, and print the commitment to send with the report.

    The file is readable by its owner alone. Show it to nobody before the roster is published.

    Example: bonafed coins nonce contract.json --client ada --save ada.nonce
    """
    name, place = _given("--client", client), _given("--save", save)
    agreed = committed_contract(read_object(contract))
    value = secrets.token_bytes(SECRET_BYTES)
    commitment = commit_nonce(agreed.digest, name, value)
    write_secret(place, hex_line(value))
    if as_json:
        tables.say_json({"client": name, "contract": agreed.digest, "commitment": commitment})
        return
    typer.echo(f"commitment of {name}: {commitment}")
    typer.echo(f"wrote {place}; reveal what is in it when `bonafed coins reveal` says so")


@coins_app.command()
def roster(
    contract: Contract,
    reports: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv", help="A row per client: columns client, cost, commitment (required)."
        ),
    ] = None,
    save: Annotated[
        Path | None, typer.Option(metavar="ROSTER.json", help="Write the roster, to publish (required).")
    ] = None,
    as_json: Json = False,
) -> None:
    """For the server: everybody's name, commitment and chance, fixed before any nonce is revealed.

    Example: bonafed coins roster contract.json --reports stated.csv --save roster.json
    """
    source, place = _given("--reports", reports), _given("--save", save)
    require_different("--save", place, "the contract", contract)
    require_different("--save", place, "--reports", source)
    require_writable(place)
    listed = inputs.read_columns(source, ("client", "cost", "commitment"))
    commitments = _by_client(source, listed, "commitment")
    stated = inputs.read_costs(source)
    made = contract_roster(read_object(contract), stated, commitments)
    write_together({place: transcript_bytes(Transcript(made, (None,) * len(made.names)))})
    if as_json:
        tables.say_json({"clients": len(made.names), "rounds": made.rounds, "roster": made.digest})
        return
    typer.echo(f"roster of {len(made.names):,} clients: {made.digest}")
    typer.echo(f"wrote {place}")


@coins_app.command()
def reveal(
    contract: Contract,
    roster_file: Annotated[
        Path | None,
        typer.Option("--roster", metavar="ROSTER.json", help="As the server published it (required)."),
    ] = None,
    client: Client = None,
    nonce_file: Annotated[
        Path | None,
        typer.Option("--nonce", metavar="FILE", help="As `coins nonce` kept it (required)."),
    ] = None,
    cost: Annotated[float | None, typer.Option(help="The cost you reported (required).")] = None,
    as_json: Json = False,
) -> None:
    """For a client: make sure that your line of the roster is right, then print the nonce to reveal.

    Note the digest that is printed: the coins of the end must be of that roster. The roster must be the
    same for everybody: compare digests. Reveal where all can see it, not to the server alone.

    Example: bonafed coins reveal contract.json --roster roster.json --client ada --nonce ada.nonce --cost 1
    """
    name, stated = _given("--client", client), _given("--cost", cost)
    published = read_transcript(_given("--roster", roster_file)).roster
    value = read_hex(_given("--nonce", nonce_file))
    chance = require_own_line(published, read_object(contract), name, value, stated)
    if as_json:
        said = {"client": name, "chance": chance, "roster": published.digest, "nonce": value.hex()}
        tables.say_json(said)
        return
    typer.echo(f"{name}: in a round with probability {chance:.6g}")
    typer.echo(f"roster to note down: {published.digest}")
    typer.echo(f"nonce to reveal: {value.hex()}")


@coins_app.command()
def toss(
    roster_file: RosterFile,
    nonces: Nonces = None,
    secret: Secret = None,
    save: Annotated[
        Path | None, typer.Option(metavar="WHO.csv", help="Write who is in which round.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Who is in which round. The server tosses before the first round, anybody after the last.

    Before the coins are opened this needs --nonces and --secret, and what it writes lets everybody who
    reads it know the rounds to come. Of opened coins it needs nothing else.

    Example: bonafed coins toss roster.json --nonces revealed.csv --secret server.secret --save who.csv
    """
    if save is not None:
        require_different("--save", save, "the roster", roster_file)
        require_writable(save)
    coins = _coins(roster_file, nonces, secret)
    written = {} if save is None else {save: _who(coins)}
    write_together(written)
    if as_json:
        rounds = [coins.participants(number).tolist() for number in range(1, coins.roster.rounds + 1)]
        tables.say_json({"clients": list(coins.roster.names), "rounds": rounds})
        return
    _show_times(roster_file, coins)
    tables.say_written(tables.new_console(), written)


@coins_app.command(name="open")
def open_command(
    roster_file: RosterFile,
    nonces: Nonces = None,
    secret: Secret = None,
    save: Annotated[
        Path | None,
        typer.Option(metavar="COINS.json", help="Write the opened coins, to publish (required)."),
    ] = None,
) -> None:
    """For the server, after the last round: publish the secret, so that anybody can verify.

    Example: bonafed coins open roster.json --nonces revealed.csv --secret server.secret --save coins.json
    """
    place = _given("--save", save)
    require_different("--save", place, "the roster", roster_file)
    require_writable(place)
    coins = _coins(roster_file, nonces, secret)
    write_together({place: transcript_bytes(transcript_of(coins, opened=True))})
    typer.echo(f"wrote {place}; anybody can check it: bonafed verify CONTRACT.json --coins {place}")


def check_coins(path: Path, contract: Path | None) -> tuple[list[Finding], Coins | None]:
    """What `bonafed verify --coins` checks: a run, or opened coins, against a contract if one is given."""
    if path.is_dir():
        from bonafed.runs.coins import verify_run

        if contract is not None:
            raise InvalidValue("CONTRACT.json", "must not be given with the coins of a run", contract)
        return verify_run(path), None
    transcript = read_transcript(path)
    found, coins = check_openings(transcript)
    if contract is not None:
        found.insert(0, check_contract(transcript.roster, read_object(contract)))
    return found, coins


def verify_coins(path: Path, contract: Path | None, as_json: bool) -> None:
    """Show what `check_coins` finds; exit code 1 if a check fails."""
    checks, coins = check_coins(path, contract)
    holds = all(check.holds for check in checks)
    if as_json:
        listed = [{"check": c.claim, "holds": c.holds, "detail": c.text} for c in checks]
        tables.say_json({"holds": holds, "checks": listed})
    else:
        _show_checks(path, checks)
        if holds and coins is not None:
            _show_times(path, coins)
    if not holds:
        raise typer.Exit(1)


def _show_checks(path: Path, checks: Sequence[Finding]) -> None:
    """Names come from clients and are shown as they are; digests in full, to be compared."""
    title = f"Verification of the coins of {escape(str(path))}"
    table = Table(title=title, title_justify="left", title_style="bold")
    for column in ("check", "", "detail"):
        table.add_column(column, overflow="fold")
    for check in checks:
        table.add_row(check.claim, "ok" if check.holds else "FAILS", escape(check.text))
    console = tables.new_console()
    console.print(table)
    holds = all(check.holds for check in checks)
    console.print("[green]Every check holds.[/]" if holds else "[red]A check fails.[/]")


def _coins(path: Path, nonces: Path | None, secret: Path | None) -> Coins:
    transcript = read_transcript(path)
    if transcript.secret is not None and nonces is None and secret is None:
        return transcript.coins()
    why = ": the coins are not opened"
    source, kept = _given("--nonces", nonces, why), _given("--secret", secret, why)
    listed = _by_client(source, inputs.read_columns(source, ("client", "nonce")), "nonce")
    revealed = {name: _nonce(source, name, value) for name, value in listed.items()}
    return toss_coins(transcript.roster, read_hex(kept), revealed)


def _given(name: str, value: T | None, why: str = "") -> T:
    """An option that a command cannot do without."""
    if value is None:
        raise InvalidValue(name, f"must be given{why}", "nothing")
    return value


def _nonce(path: Path, name: str, value: str) -> bytes:
    try:
        return bytes.fromhex(value)
    except ValueError as error:
        raise InvalidValue(f"{path}: nonce of {name}", "must be hexadecimal digits", value[:60]) from error


def _by_client(path: Path, rows: Sequence[tuple[str, ...]], what: str) -> dict[str, str]:
    """The last column by the first; nobody twice, and nobody without."""
    found: dict[str, str] = {}
    for name, *_, value in rows:
        if name in found:
            raise UnreadableFile(path, f"client must not be there twice, got {name!r}")
        if not name or not value:
            raise UnreadableFile(path, f"client and {what} must not be empty, got {name!r} and {value!r}")
        found[name] = value
    return found


def _who(coins: Coins) -> bytes:
    """A row per round and participant."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["round", "client"])
    for number in range(1, coins.roster.rounds + 1):
        writer.writerows([number, coins.roster.names[place]] for place in coins.participants(number))
    return text.getvalue().encode()


def _show_times(path: Path, coins: Coins) -> None:
    times = coins.times_in()
    rows = [
        [escape(name), f"{chance:.4f}", f"{int(count):,}"]
        for name, chance, count in zip(coins.roster.names, coins.roster.chances, times, strict=True)
    ][:_ROWS]
    more = times.size - len(rows)
    caption = f"and {more:,} clients more" if more else ""
    title = f"Coins of {escape(str(path))}: {coins.roster.rounds:,} rounds"
    columns = ["client", "probability", "rounds it is in"]
    tables.new_console().print(tables.plain_table(title, caption, columns, rows))
