"""The coins of a run: they are tossed, kept and opened here, and anybody can check them.

Coins that follow from run.seed make a simulation repeatable, but whoever knows the seed knows them in
advance. Verifiable coins follow the protocol of `bonafed.contracts.coins`, also for simulated clients:

    before round 1   the secret is drawn and put into the private folder; coins.json holds its commitment,
                     the roster and the revealed nonces
    after the last   coins.json also holds the secret, and the private copy is erased

In a simulation one process draws all nonces, so a transcript only shows that nobody chose the coins
*afterwards*; it takes real clients to ensure that nobody chose them beforehand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from bonafed.contracts.coin_checks import RunRecord, check_run
from bonafed.contracts.coins import Coins
from bonafed.contracts.published import PublishedContract
from bonafed.contracts.transcript import Transcript, read_transcript, transcript_bytes, transcript_of
from bonafed.economics.findings import Finding
from bonafed.economics.statement import Statement
from bonafed.errors import InvalidValue, UnreadableFile
from bonafed.mechanisms import catalogue
from bonafed.mechanisms.contract_files import read_contract
from bonafed.runs import folder as folders
from bonafed.runs import private
from bonafed.runs.folder import JSONObject

_SECRET_FILE = private.COINS + ".secret"  # where `private.read_secret` looks for it


def keep(folder: Path, coins: Coins) -> bytes:
    """Put the secret of a new run into the private folder; the content of coins.json, which is shared."""
    private.write_private(folder, _SECRET_FILE, coins.secret, replace=True)
    return unopened(coins)


def unopened(coins: Coins) -> bytes:
    """coins.json as it is before the last round: without the server's secret."""
    return transcript_bytes(transcript_of(coins, opened=False))


def restore(folder: Path) -> Coins:
    """The coins of a run that is resumed."""
    transcript = require_unchanged(folder)
    if transcript.secret is not None:  # the run stopped between opening the coins and writing its summary
        return transcript.coins()
    needed = "who is sampled in the rounds to come follows from it"
    secret = private.read_secret(folder, private.COINS, needed)
    try:
        return transcript.coins(secret)
    except InvalidValue as error:
        raise error.renamed(str(private.private_folder(folder) / _SECRET_FILE)) from error


def opened(coins: Coins) -> bytes:
    """coins.json when the rounds are over: with the server's secret."""
    return transcript_bytes(transcript_of(coins, opened=True))


def require_unchanged(folder: Path) -> Transcript:
    """The transcript in coins.json, as it was written, opened or not."""
    if folders.is_finished(folder):
        folders.content(folder, folders.COINS)
        return read_transcript(folder / folders.COINS)
    transcript = read_transcript(folder / folders.COINS)
    as_it_is = folders.read_bytes(folder / folders.COINS)  # opened where the run ends again
    as_it_began = transcript_bytes(replace(transcript, secret=None))
    folders.require_listed(folder, folders.COINS, as_it_is, as_it_began)
    return transcript


def verify_run(folder: Path) -> list[Finding]:
    """Whether participants and payments are as the contract, the reports and the coins say."""
    folders.read_config(folder)  # refuses a folder without a run
    if not (folder / folders.COINS).is_file():
        rule = 'must be a run whose config says coins = "verifiable": of others nothing can be proved'
        raise InvalidValue("--coins", rule, folder)
    records = folders.read_rounds(folder)
    folders.content(folder, folders.CONTRACT)  # refuses one that was changed
    record = RunRecord(
        read_contract(folder / folders.CONTRACT),
        _reports(folder),
        require_unchanged(folder),
        [_names(folder, line, "participants") for line in records],
        [_names(folder, line, "failed") for line in records],
        [_spend(line) for line in records],
        _statement(folder),
    )
    return [_check_config(folder, record.contract), *check_run(record)]


def _check_config(folder: Path, contract: PublishedContract) -> Finding:
    """Whether config.toml says what the contract does."""
    table = catalogue.entry(contract.mechanism).table
    own = folders.read_config(folder).get(str(table), {})
    for key, value in contract.table().items():
        if own.get(key) != value:
            text = f"{table}.{key} is {own.get(key)!r} in config.toml, {value!r} in the contract"
            return Finding("agreement", False, text)
    return Finding("agreement", True, "config.toml and contract.json say the same")


def _reports(folder: Path) -> dict[str, float]:
    """What every client stated, in the order of the clients."""
    agreement = folders.read_json(folder, folders.AGREEMENT)
    reports = agreement.get("reports")
    if not isinstance(reports, Mapping) or not all(
        isinstance(value, (int, float)) and not isinstance(value, bool) for value in reports.values()
    ):
        raise UnreadableFile(folder / folders.AGREEMENT, "reports must be numbers by client")
    return {str(name): float(value) for name, value in reports.items()}


def _names(folder: Path, line: JSONObject, key: str) -> list[str]:
    names = line.get(key)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        rule = f"{key} of round {line['round']} must be a list of names"
        raise UnreadableFile(folder / folders.METRICS, rule)
    return names


def _spend(line: JSONObject) -> float | None:
    spend = line.get("spend")
    return float(spend) if isinstance(spend, (int, float)) else None


def _statement(folder: Path) -> Statement | None:
    if not folders.is_finished(folder):
        return None
    summary = folders.read_json(folder, folders.SUMMARY)
    try:
        return Statement.from_json(summary["statement"])
    except (KeyError, TypeError, ValueError) as error:
        raise UnreadableFile(folder / folders.SUMMARY, f"must hold a statement ({error!r})") from error
