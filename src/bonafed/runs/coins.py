"""The coins of a run: tossed, kept, opened, and checked by anybody.

Where a mechanism's coins follow from run.seed, a simulation can be repeated, and whoever knows the seed
knows them in advance. Verifiable ones follow the protocol of `bonafed.mechanisms.coins`, for simulated
clients as well:

    before round 1   the secret is drawn and lies in the private folder; coins.json holds its commitment,
                     the roster and the revealed nonces
    after the last   coins.json holds the secret too, and the private copy is erased

In a simulation one process draws all nonces, so that a transcript shows that nobody chose the coins
*afterwards*; that nobody chose them before is what real clients add.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from bonafed.errors import InvalidValue
from bonafed.mechanisms.coins import SECRET_BYTES, Coins, commit, commit_nonce, make_roster
from bonafed.mechanisms.coins import toss as toss_coins
from bonafed.mechanisms.coins.transcript import read_transcript, transcript_bytes, transcript_of
from bonafed.mechanisms.protocol import Agreement, Lottery
from bonafed.runs import folder as folders
from bonafed.runs import private

_SECRET_FILE = private.COINS + ".secret"  # where `private.read_secret` looks for it


def toss(
    agreement: Agreement, lottery: Lottery, rounds: int, entropy: Callable[[int], bytes]
) -> tuple[Agreement, Coins]:
    """The whole protocol with clients that all reveal; the agreement with the server's commitment in it."""
    if agreement.contract is None:
        raise InvalidValue(
            "coins", "must follow from run.seed: there is no contract to commit in", "verifiable"
        )
    secret = entropy(SECRET_BYTES)
    commitment = commit(secret)
    contract = agreement.contract.with_coins(commitment)
    names = agreement.members.names
    nonces = {name: entropy(SECRET_BYTES) for name in names}
    promised = {name: commit_nonce(contract.digest, name, nonce) for name, nonce in nonces.items()}
    roster = make_roster(contract.digest, commitment, rounds, promised, lottery.chances, lottery.draws)
    return replace(agreement, contract=contract), toss_coins(roster, secret, nonces)


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
