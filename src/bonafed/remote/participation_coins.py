"""Who takes part: randomness that nobody knows before it reports, and nobody chooses after.

(1) run.seed. The server commits to it in its first message, SHA-256 of a salt and the seed, and opens it
    with the terms, when all reports are signed.
(2) Verifiable coins (`contracts.coins`), where the published contract commits the server to a secret:
    every report comes with the commitment to a nonce of the client's own; the terms come with everybody's
    commitments; who accepts the terms reveals its nonce with that. After the last round the server opens
    its secret, and every client computes again in which rounds it was to be.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from bonafed import checks
from bonafed.contracts.coins import Coins, checked_digest, commit_nonce, toss
from bonafed.contracts.published import PublishedContract
from bonafed.contracts.roster import contract_roster
from bonafed.contracts.terms import Reports
from bonafed.errors import InvalidValue, MissingValue
from bonafed.learning.noise import Secret
from bonafed.remote.messages import JSONObject

SALT_BYTES = 16


def seed_commitment(seed: int, salt: bytes) -> str:
    """(1): what binds the server to a seed that nobody can guess from it."""
    return hashlib.sha256(b"bonafed seed 1\0" + salt + str(seed).encode()).hexdigest()


def opened_seed(opening: object, commitment: object) -> int:
    """The seed that the server was bound to."""
    if not isinstance(opening, dict) or sorted(opening) != ["salt", "value"]:
        raise MissingValue("seed", "must be opened with the terms")
    seed = checks.seed("seed", opening["value"])
    try:
        salt = bytes.fromhex(opening["salt"])
    except (TypeError, ValueError) as error:
        raise InvalidValue("salt of the seed", "must be hexadecimal", repr(opening["salt"])[:60]) from error
    if len(salt) != SALT_BYTES or seed_commitment(seed, salt) != commitment:
        raise InvalidValue("seed", "must be the one committed to before anybody reported", seed)
    return seed


def own_nonce(secret: Secret, run: str) -> bytes:
    """(2): a client's nonce, another one in every run; nobody else knows it before it is revealed."""
    return secret.derived(b"nonce", run.encode())


def own_commitment(contract: PublishedContract | None, name: str, secret: Secret, run: str) -> str | None:
    """What goes with a report; None: the contract has no coins to toss."""
    if contract is None or contract.coin_commitment is None:
        return None
    return commit_nonce(contract.digest, name, own_nonce(secret, run))


def revealed(
    contract: PublishedContract | None, reports: Reports, said: object, name: str, secret: Secret, run: str
) -> str | None:
    """A client's nonce, once the commitments that the coins will come from are known to hold its own."""
    mine = own_commitment(contract, name, secret, run)
    if contract is None or mine is None:
        return None
    if not isinstance(said, dict) or said.get(name) != mine:
        raise InvalidValue("commitments", "must hold mine: I do not reveal", repr(said)[:60])
    commitments = {str(one): checked_digest(f"commitment of {one}", value) for one, value in said.items()}
    contract_roster(contract, reports, commitments)  # refuses what does not fit contract and reports
    return own_nonce(secret, run).hex()


def tossed(
    contract: PublishedContract,
    reports: Reports,
    commitments: Mapping[str, str],
    nonces: Mapping[str, bytes],
    secret: bytes,
) -> Coins:
    """The coins of a run, on the server's side."""
    return toss(contract_roster(contract, reports, commitments), secret, nonces)


def coins_to_json(coins: Coins) -> JSONObject:
    """The coins when the rounds are over: with the server's secret."""
    return {
        "secret": coins.secret.hex(),
        "nonces": {
            name: None if nonce is None else nonce.hex()
            for name, nonce in zip(coins.roster.names, coins.nonces, strict=True)
        },
    }


def times_by_coins(
    contract: PublishedContract, reports: Reports, commitments: Mapping[str, str], said: object, name: str
) -> int:
    """How often a client was to take part, computed from what the server opened."""
    if not isinstance(said, dict) or sorted(said) != ["nonces", "secret"]:
        raise MissingValue("coins", "must be opened with the statement")
    nonces: dict[str, Any] = {
        one: bytes.fromhex(checked_digest(f"nonce of {one}", value))
        for one, value in dict(said["nonces"]).items()
        if value is not None
    }
    secret = bytes.fromhex(checked_digest("secret", said["secret"]))
    coins = tossed(contract, reports, commitments, nonces, secret)
    return int(coins.times_in()[coins.roster.names.index(name)])
