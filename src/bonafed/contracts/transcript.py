"""Coins as a file, and their verification by someone who did not toss them.

One file walks through the protocol of `tossing`: as a roster it has neither nonces nor secret, then the
nonces that were revealed, in the end the secret. Nothing in it is trusted: keys are strict, every
commitment is opened again, and what does not open is named.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bonafed import checks
from bonafed.contracts.coins import CoinRoster, Coins, checked_digest
from bonafed.economics.findings import Finding
from bonafed.errors import InvalidValue, MissingValue, UnreadableFile
from bonafed.presentation.documents import counted

FORMAT = "bonafed-coins"
VERSION = 1
_KEYS = ("format", "version", "contract", "commitment", "rounds", "draws", "clients", "secret")
_CLIENT_KEYS = ("name", "commitment", "chance", "nonce")
JSONObject = dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Transcript:
    """What has been published so far."""

    roster: CoinRoster
    nonces: tuple[bytes | None, ...] = field(repr=False)  # (N,) None: not revealed
    secret: bytes | None = field(default=None, repr=False)  # None: not opened yet

    def coins(self, secret: bytes | None = None) -> Coins:
        """The coins, of the secret in the file or, before that is opened, of the one at hand."""
        key = self.secret if secret is None else secret
        if key is None:
            raise MissingValue("secret", "must be opened: there are no coins without it")
        return Coins(self.roster, key, self.nonces)


def transcript_of(coins: Coins, *, opened: bool) -> Transcript:
    """What may be shown: with the secret once the run has ended, without it before."""
    return Transcript(coins.roster, coins.nonces, coins.secret if opened else None)


def transcript_bytes(transcript: Transcript) -> bytes:
    """The content of a file."""
    roster = transcript.roster
    data = {
        "format": FORMAT,
        "version": VERSION,
        "contract": roster.contract,
        "commitment": roster.commitment,
        "rounds": roster.rounds,
        "draws": roster.draws,
        "clients": [
            {"name": name, "commitment": commitment, "chance": chance, "nonce": nonce and nonce.hex()}
            for name, commitment, chance, nonce in zip(
                roster.names, roster.commitments, roster.chances.tolist(), transcript.nonces, strict=True
            )
        ],
        "secret": transcript.secret and transcript.secret.hex(),
    }
    return (json.dumps(data, indent=1, allow_nan=False) + "\n").encode()


def read_transcript(path: Path | str) -> Transcript:
    """From a file; every field is checked, but nothing is opened yet."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"), object_pairs_hook=_object)
    except OSError as error:
        raise UnreadableFile(path, error.strerror or str(error)) from error
    except InvalidValue as error:
        raise UnreadableFile(path, str(error)) from error
    except RecursionError as error:
        raise UnreadableFile(path, "not JSON: nested too deeply") from error
    except ValueError as error:
        raise UnreadableFile(path, f"not JSON: {error}") from error
    if not checks.shallow(data):
        raise UnreadableFile(path, "not JSON of coins: nested too deeply")
    try:
        return transcript_from_json(data)
    except InvalidValue as error:
        raise error.renamed(f"{path}: {error.name}") from error


def transcript_from_json(data: object) -> Transcript:
    """The same from plain data."""
    fields = _exactly("coins", data, _KEYS)
    if fields["format"] != FORMAT:
        raise InvalidValue("format", f"must be {FORMAT!r}", repr(fields["format"])[:60])
    if fields["version"] != VERSION or isinstance(fields["version"], bool):
        raise InvalidValue("version", f"must be {VERSION}", repr(fields["version"])[:60])
    if not isinstance(fields["clients"], list) or not fields["clients"]:
        raise InvalidValue("clients", "must be a non-empty list", repr(fields["clients"])[:60])
    clients = [_exactly("client", entry, _CLIENT_KEYS) for entry in fields["clients"]]
    roster = CoinRoster(
        fields["contract"],
        fields["commitment"],
        _whole("rounds", fields["rounds"]),
        None if fields["draws"] is None else _whole("draws", fields["draws"]),
        tuple(client["name"] for client in clients),
        tuple(client["commitment"] for client in clients),
        checks.vector("chances", [checks.number("chance", client["chance"]) for client in clients]),
    )
    nonces = tuple(_bytes(f"nonce of {client['name']}", client["nonce"]) for client in clients)
    return Transcript(roster, nonces, _bytes("secret", fields["secret"]))


def check_openings(transcript: Transcript) -> tuple[list[Finding], Coins | None]:
    """Whether everything that was committed to opens; the coins, if it does."""
    roster = transcript.roster
    findings = [
        Finding(
            "roster",
            True,
            f"{counted(len(roster.names), 'client')}, {counted(roster.rounds, 'round')}, {roster.digest}",
        )
    ]
    try:
        coins = transcript.coins()
    except InvalidValue as error:
        return [*findings, Finding("commitments", False, str(error))], None
    withheld = coins.withheld
    detail = f"the server's secret and {len(roster.names) - len(withheld):,} nonces open them"
    if withheld:
        more = ", ..." if len(withheld) > 5 else ""
        detail += f"; not revealed, not admitted: {', '.join(withheld[:5])}{more}"
    return [*findings, Finding("commitments", True, detail)], coins


def check_rounds(coins: Coins, rounds: Sequence[Sequence[int]]) -> Finding:
    """Whether the coins chose those who took part; the first difference otherwise."""
    expected = coins.roster.rounds
    if len(rounds) != expected:
        return Finding(
            "participants", False, f"{len(rounds):,} rounds are recorded, but {expected:,} were agreed"
        )
    total = 0
    for number, recorded in enumerate(rounds, 1):
        due = sorted(coins.participants(number).tolist())
        total += len(due)
        if sorted(recorded) != due:
            return Finding("participants", False, f"round {number}: {_difference(coins, due, recorded)}")
    text = f"{counted(total, 'participation')} in {counted(expected, 'round')}, as the coins say"
    return Finding("participants", True, text)


def _difference(coins: Coins, due: list[int], recorded: Sequence[int]) -> str:
    names = coins.roster.names
    for client in sorted({*due, *recorded}):
        times_due, times = due.count(client), list(recorded).count(client)
        if times_due != times:
            name = names[client] if 0 <= client < len(names) else f"{client}, who is not on the roster,"
            return f"client {name} took part {_times(times)}, the coins say {_times(times_due)}"
    raise AssertionError("the lists differ")


def _times(count: int) -> str:
    return {0: "not at all", 1: "once"}.get(count, f"{count} times")


def _object(pairs: list[tuple[str, Any]]) -> JSONObject:
    fields: JSONObject = {}
    for name, value in pairs:
        if name in fields:
            raise InvalidValue(name[:60], "must occur once", "two")
        fields[name] = value
    return fields


def _exactly(what: str, data: object, keys: tuple[str, ...]) -> Mapping[str, Any]:
    """An object with these keys and no other."""
    if not isinstance(data, dict):
        raise InvalidValue(what, "must be an object", repr(data)[:60])
    for key in keys:
        if key not in data:
            raise MissingValue(f"{what}.{key}")
    for key in data:
        if key not in keys:
            raise InvalidValue(f"{what}.{key}"[:60], "is unknown", repr(data[key])[:60])
    return data


def _whole(name: str, value: object) -> int:
    """A JSON integer: nobody writes 3.0 for a count."""
    if not isinstance(value, int):
        raise InvalidValue(name, "must be a whole number", repr(value)[:60])
    return checks.whole(name, value)


def _bytes(name: str, value: object) -> bytes | None:
    """A secret or a nonce as it is written; both have as many digits as a digest."""
    return None if value is None else bytes.fromhex(checked_digest(name, value))
