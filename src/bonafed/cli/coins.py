"""`bonafed coins`: verifiable coins in a federation of your own, one command for each step."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from bonafed.cli.coin_secret import hex_line, read_hex
from bonafed.cli.options import CommandGroup, Json, missing, number
from bonafed.contracts.coins import SECRET_BYTES, commit_nonce
from bonafed.contracts.coins import toss as toss_coins
from bonafed.contracts.roster import contract_roster, require_commitment, require_own_line
from bonafed.contracts.transcript import Transcript, read_transcript, transcript_bytes, transcript_of
from bonafed.errors import InvalidValue, UnreadableFile
from bonafed.files import write_secret
from bonafed.mechanisms.contract_files import read_contract
from bonafed.presentation import terminal
from bonafed.presentation.documents import Column, Document, Table, counted
from bonafed.reports import read_columns, read_costs
from bonafed.text import csv_bytes

if TYPE_CHECKING:
    from bonafed.contracts.coins import Coins
    from bonafed.contracts.published import PublishedContract

coins_app = typer.Typer(
    cls=CommandGroup,
    help="Verifiable coins: nobody chooses who is in a round, and anybody can check it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
_ROWS = 20  # clients listed
T = TypeVar("T")

ContractFile = Annotated[Path, typer.Argument(metavar="CONTRACT.json", hidden=True)]
RosterFile = Annotated[Path, typer.Argument(metavar="ROSTER.json", hidden=True)]
Client = Annotated[str | None, typer.Option(metavar="NAME", help="The name you report under (required).")]
Nonces = Annotated[
    Path | None,
    typer.Option(metavar="FILE.csv", help="The revealed nonces: columns client and nonce."),
]
Secret = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The server's secret (quote --commit-coins).")
]


@coins_app.command()
def nonce(
    contract_file: ContractFile,
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
    name, output = _require("--client", client), _require("--save", save)

    contract = _read(contract_file)
    require_commitment(contract)
    value = secrets.token_bytes(SECRET_BYTES)
    commitment = commit_nonce(contract.digest, name, value)
    write_secret(output, hex_line(value))
    if as_json:
        terminal.say_json({"client": name, "contract": contract.digest, "commitment": commitment})
        return
    terminal.tell(f"commitment of {name}: {commitment}")
    terminal.tell(f"wrote {output}; reveal its content only when `bonafed coins reveal` tells you to")


@coins_app.command()
def roster(
    contract_file: ContractFile,
    reports: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv",
            help="A row per client: columns client, commitment, and its report, such as cost (required).",
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
    source, output = _require("--reports", reports), _require("--save", save)
    terminal.require_outputs({"--save": output}, {"the contract": contract_file, "--reports": source})

    contract = _read(contract_file)
    column = contract.question.name
    commitments = _by_client(source, read_columns(source, ("client", column, "commitment")), "commitment")
    costs = dict(zip(commitments, read_costs(source, column).tolist(), strict=True))
    new_roster = contract_roster(contract, costs, commitments)
    terminal.write_together(
        {output: transcript_bytes(Transcript(new_roster, (None,) * len(new_roster.names)))}
    )
    if as_json:
        terminal.say_json(
            {"clients": len(new_roster.names), "rounds": new_roster.rounds, "roster": new_roster.digest}
        )
        return
    terminal.tell(f"roster of {counted(len(new_roster.names), 'client')}: {new_roster.digest}")
    terminal.tell(f"wrote {output}")


@coins_app.command()
def reveal(
    contract_file: ContractFile,
    roster_file: Annotated[
        Path | None,
        typer.Option("--roster", metavar="ROSTER.json", help="As the server published it (required)."),
    ] = None,
    client: Client = None,
    nonce_file: Annotated[
        Path | None,
        typer.Option("--nonce", metavar="FILE", help="As `coins nonce` kept it (required)."),
    ] = None,
    cost: Annotated[
        float | None, typer.Option(help="The cost you reported (required).", parser=number)
    ] = None,
    as_json: Json = False,
) -> None:
    """For a client: make sure that your line of the roster is right, then print the nonce to reveal.

    Note the digest that is printed: the coins opened at the end must belong to that roster. The roster must
    be the same for everybody: compare digests. Reveal the nonce to everybody, not to the server alone.

    Example: bonafed coins reveal contract.json --roster roster.json --client ada --nonce ada.nonce --cost 1
    """
    name, own_cost = _require("--client", client), _require("--cost", cost)

    public_roster = read_transcript(_require("--roster", roster_file)).roster
    value = read_hex(_require("--nonce", nonce_file))
    chance = require_own_line(public_roster, _read(contract_file), name, value, own_cost)
    if as_json:
        answer = {"client": name, "chance": chance, "roster": public_roster.digest, "nonce": value.hex()}
        terminal.say_json(answer)
        return
    terminal.tell(f"{name}: in a round with probability {chance:.6g}")
    terminal.tell(f"roster to note down: {public_roster.digest}")
    terminal.tell(f"nonce to reveal: {value.hex()}")


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

    Before the coins are opened this needs --nonces and --secret, and whoever reads its output knows the
    rounds to come. Once they are opened it needs nothing else.

    Example: bonafed coins toss roster.json --nonces revealed.csv --secret server.secret --save who.csv
    """
    terminal.require_outputs({"--save": save}, {"the roster": roster_file})
    coins = _coins(roster_file, nonces, secret)
    outputs = {} if save is None else {save: _who(coins)}
    terminal.write_together(outputs)
    if as_json:
        rounds = [coins.participants(number).tolist() for number in range(1, coins.roster.rounds + 1)]
        terminal.say_json({"clients": list(coins.roster.names), "rounds": rounds})
        return
    terminal.show(Document((rounds_table(roster_file, coins),)), as_json=False, outputs=outputs)


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
    output = _require("--save", save)
    terminal.require_outputs({"--save": output}, {"the roster": roster_file})

    coins = _coins(roster_file, nonces, secret)
    terminal.write_together({output: transcript_bytes(transcript_of(coins, opened=True))})
    terminal.tell(f"wrote {output}; anybody can check it: bonafed verify CONTRACT.json --coins {output}")


def _read(path: Path) -> PublishedContract:
    return read_contract(path)


def _coins(path: Path, nonces: Path | None, secret: Path | None) -> Coins:
    transcript = read_transcript(path)
    if transcript.secret is not None and nonces is None and secret is None:
        return transcript.coins()
    why = ": the coins are not opened"
    nonce_file, secret_file = _require("--nonces", nonces, why), _require("--secret", secret, why)
    texts = _by_client(nonce_file, read_columns(nonce_file, ("client", "nonce")), "nonce")
    values = {name: _nonce(nonce_file, name, value) for name, value in texts.items()}
    return toss_coins(transcript.roster, read_hex(secret_file), values)


def _require(name: str, value: T | None, why: str = "") -> T:
    """The value of an option that the command cannot do without."""
    if value is None:
        raise missing(name, why)
    return value


def _nonce(path: Path, name: str, value: str) -> bytes:
    try:
        return bytes.fromhex(value)
    except ValueError as error:
        raise InvalidValue(f"{path}: nonce of {name}", "must be hexadecimal digits", value[:60]) from error


def _by_client(path: Path, rows: Sequence[tuple[str, ...]], what: str) -> dict[str, str]:
    """The last column by the first; every client has a value."""
    for name, *_, value in rows:
        if not value:
            raise UnreadableFile(path, f"client and {what} must not be empty, got {name!r} and {value!r}")
    return {name: value for name, *_, value in rows}


def _who(coins: Coins) -> bytes:
    """A row per round and participant."""
    rows = (
        (number, coins.roster.names[index])
        for number in range(1, coins.roster.rounds + 1)
        for index in coins.participants(number)
    )
    return csv_bytes([("round", "client"), *rows])


def rounds_table(path: Path, coins: Coins) -> Table:
    """How many rounds each client is in."""
    times, withheld = coins.times_in(), {*coins.withheld}
    rows = tuple(
        (
            name,
            float(chance),
            "not admitted: its nonce was not revealed" if name in withheld else int(count),
        )
        for name, chance, count in zip(coins.roster.names, coins.roster.chances, times, strict=True)
    )[:_ROWS]
    more = times.size - len(rows)
    columns = (Column("client", left=True), Column("probability", ".4f"), Column("rounds it is in", ","))
    title = f"Coins of {path}: {counted(coins.roster.rounds, 'round')}"
    return Table(title, columns, rows, f"and {counted(more, 'more client')}" if more else "")
