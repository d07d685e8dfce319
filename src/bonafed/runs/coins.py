"""The coins of a run under a contract or under JSAM: tossed, kept, opened, and checked by anybody.

With `coins = "seed"` who takes part follows from run.seed, so that a simulation can be repeated; whoever
knows the seed knows it in advance. With `coins = "verifiable"` the run follows the protocol of
`bonafed.mechanisms.coins`, for the simulated clients as well:

    before round 1   the secret is drawn and lies in the private folder; coins.json holds its commitment,
                     the roster and the revealed nonces
    after the last   coins.json holds the secret too, and the private copy is erased

Client n is named by its number. In a simulation one process draws all nonces, so that a transcript shows
that nobody chose the coins *afterwards*; that nobody chose them before is what real clients add.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bonafed import checks
from bonafed.checks import Floats
from bonafed.economics.claims import Finding
from bonafed.economics.registry import prior_from_json
from bonafed.errors import InvalidValue, UnreadableFile
from bonafed.mechanisms.coins import (
    SECRET_BYTES,
    Coins,
    Roster,
    commit,
    commit_nonce,
    make_roster,
    toss,
)
from bonafed.mechanisms.coins.transcript import (
    check_openings,
    check_rounds,
    read_transcript,
    transcript_bytes,
    transcript_of,
)
from bonafed.mechanisms.contracts.canonical import canonical_bytes, digest
from bonafed.mechanisms.sampling.menus import complete_information, uniform_menu
from bonafed.mechanisms.sampling.plan import plan
from bonafed.runs import folder as folders
from bonafed.runs import private
from bonafed.runs.folder import JSONObject

VERIFIABLE = "verifiable"
_SECRET_FILE = private.COINS + ".secret"  # where `private.read_secret` looks for it
_PAYING = ("contract", "jsam")  # tables of a config under which clients are paid
_OWN = ("cost_seed",)  # what only the simulation knows of the clients
_RTOL = 1e-12  # sums of money, added up in another order


def simulate(tables: Mapping[str, Any], chances: Floats, entropy: Callable[[int], bytes]) -> Coins:
    """The whole protocol with clients that all reveal; `tables` are those of the resolved config."""
    secret = entropy(SECRET_BYTES)
    commitment = commit(secret)
    agreed = agreement(tables, chances.size, commitment)
    nonces = {str(client): entropy(SECRET_BYTES) for client in range(chances.size)}
    promised = {name: commit_nonce(agreed, name, nonce) for name, nonce in nonces.items()}
    roster = make_roster(agreed, commitment, _rounds(tables), promised, chances, _draws(tables))
    return toss(roster, secret, nonces)


def agreement(tables: Mapping[str, Any], clients: int, commitment: str) -> str:
    """What stands for the contract in a run: SHA-256 of what was agreed, with the server's commitment."""
    kind = _kind(tables)
    terms = {key: value for key, value in tables[kind].items() if key not in _OWN and value is not None}
    agreed = {"rounds": _rounds(tables), "clients": clients, kind: {**terms, "coins": commitment}}
    return digest(canonical_bytes(agreed))


def _kind(tables: Mapping[str, Any]) -> str:
    return next(kind for kind in _PAYING if tables.get(kind) is not None)


def _rounds(tables: Mapping[str, Any]) -> int:
    return int(tables["training"]["rounds"])


def _draws(tables: Mapping[str, Any]) -> int | None:
    return int(tables["jsam"]["clients_per_round"]) if _kind(tables) == "jsam" else None


def keep(folder: Path, coins: Coins) -> bytes:
    """Put the secret of a run that begins where it is not shared; what is shared, for coins.json."""
    private.write_private(folder, _SECRET_FILE, coins.secret, replace=True)
    return transcript_bytes(transcript_of(coins, opened=False))


def kept(folder: Path) -> Coins:
    """Those of a run that is resumed."""
    transcript = read_transcript(folder / folders.COINS)
    if transcript.secret is not None:  # it was ended between opening and its summary
        return transcript.coins()
    needed = "who is sampled in the rounds to come follows from it"
    return transcript.coins(private.read_secret(folder, private.COINS, needed))


def open_coins(folder: Path, coins: Coins) -> None:
    """Publish the secret of a run whose rounds have ended."""
    folders.write(folder / folders.COINS, transcript_bytes(transcript_of(coins, opened=True)))
    private.erase_secret(folder, private.COINS)


def verify_run(folder: Path) -> list[Finding]:
    """Whether those who took part and were paid are those the coins say.

    Trusts no number but the chances of the roster, which are for every client to check before it reveals,
    and the reports that payments follow from; under [jsam] the payments themselves.
    """
    tables = folders.read_config(folder)
    if not any(isinstance(tables.get(kind), Mapping) for kind in _PAYING):
        raise InvalidValue("--coins", "must be a run under [contract] or [jsam]", folder)
    if tables[_kind(tables)].get("coins") != VERIFIABLE:
        rule = f'must be a run whose config says coins = "{VERIFIABLE}": of others nothing can be proved'
        raise InvalidValue("--coins", rule, folder)
    transcript = read_transcript(folder / folders.COINS)
    openings, coins = check_openings(transcript)
    found = [_check_agreement(tables, transcript.roster), *openings]
    if coins is None:
        return found
    records = folders.read_rounds(folder)
    rounds = [_participants(folder, record) for record in records]
    found.append(check_rounds(coins, rounds))
    return found if not found[-1].holds else [*found, *_check_money(folder, coins, rounds, records)]


def _check_agreement(tables: JSONObject, roster: Roster) -> Finding:
    """Whether the roster is of this run: what was agreed has the digest it begins with."""
    meant = agreement(tables, len(roster.names), roster.commitment)
    if meant != roster.contract:
        detail = f"config.toml agrees on {meant[:12]}..., the roster is of {roster.contract[:12]}..."
        return Finding("agreement", False, detail)
    for name, given, due in (
        ("rounds", roster.rounds, _rounds(tables)),
        ("draws per round", roster.draws, _draws(tables)),
    ):
        if given != due:
            return Finding("agreement", False, f"{name} {given} on the roster, {due} in config.toml")
    return Finding("agreement", True, meant)


def _participants(folder: Path, record: JSONObject) -> list[int]:
    found = record.get("participants")
    if not isinstance(found, list) or not all(type(client) is int for client in found):
        rule = f"the participants of round {record['round']} must be a list of numbers"
        raise UnreadableFile(folder / folders.METRICS, rule)
    return found


def _check_money(
    folder: Path, coins: Coins, rounds: Sequence[Sequence[int]], records: Sequence[JSONObject]
) -> list[Finding]:
    """Whether the summary states these chances and participations, and the money that follows from them."""
    summary = folders.read_json(folder, folders.SUMMARY)
    by_draws = coins.roster.draws is not None
    chances, times = ("selection", "times_drawn") if by_draws else ("probability", "participations")
    payment = _numbers(folder, summary, "payment", coins)
    terms = [] if by_draws else [_check_terms(folder, summary, coins, payment)]
    counted = coins.times_in().astype(np.float64)
    if by_draws:  # paid once, before the first round
        due, per_round = payment, [math.fsum(payment), *[0.0] * (len(rounds) - 1)]
    else:
        due, per_round = counted * payment, [math.fsum(payment[list(who)]) for who in rounds]
    found = [
        *terms,
        _compare(coins, "chances", _numbers(folder, summary, chances, coins), coins.roster.chances, 0.0),
        _compare(coins, "participations", _numbers(folder, summary, times, coins), counted, 0.0),
    ]
    if not by_draws:
        found.append(_compare(coins, "money", _numbers(folder, summary, "paid", coins), due))
    for number, (record, money) in enumerate(zip(records, per_round, strict=True), 1):
        if not _is_close(record.get("spend"), money):
            detail = f"round {number}: {record.get('spend')} were spent, the coins say {money:.10g}"
            return [*found, Finding("spend", False, detail)]
    total, stated = math.fsum(due), summary.get("spend")
    detail = f"{stated} in the summary, {total:.10g} follow from the coins"
    return [*found, Finding("spend", _is_close(stated, total), detail)]


def _check_terms(folder: Path, summary: JSONObject, coins: Coins, payment: Floats) -> Finding:
    """Whether payments are those of the contract in config.toml for the reports that the summary states."""
    tables = folders.read_config(folder)
    given, reports = tables["contract"], _numbers(folder, summary, "reports", coins)
    prior, money, rounds = prior_from_json(given["prior"]), given["total_budget"], _rounds(tables)
    share = money / rounds / reports.size
    if given["scheme"] == "optimal":
        confidence = given.get("confidence")
        due = plan(prior, money, reports.size, rounds, confidence=confidence).menu.price(reports)[1]
    elif given["scheme"] == "uniform":
        due = uniform_menu(prior, share).price(reports)[1]
    else:
        due = complete_information(reports, share).payment
    return _compare(coins, "payments", payment, due)


def _compare(coins: Coins, name: str, stated: Floats, due: Floats, rtol: float = _RTOL) -> Finding:
    wrong = np.flatnonzero(np.abs(stated - due) > rtol * np.abs(due))
    if wrong.size:
        client = wrong[0]
        said, is_due = (f"{values[client]:.17g}" for values in (stated, due))
        detail = f"client {coins.roster.names[client]}: {said} in the summary, {is_due} by the coins"
        return Finding(name, False, detail)
    return Finding(name, True, f"of {stated.size:,} clients, as in the summary")


def _is_close(stated: object, due: float) -> bool:
    return isinstance(stated, (int, float)) and abs(stated - due) <= _RTOL * abs(due)


def _numbers(folder: Path, summary: JSONObject, name: str, coins: Coins) -> Floats:
    """(N,) of the summary."""
    try:
        return checks.vector(name, summary.get(name, []), length=len(coins.roster.names))
    except InvalidValue as error:
        raise InvalidValue(f"{folder / folders.SUMMARY}: {error.name}", error.rule, error.value) from error
