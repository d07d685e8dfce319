"""Verifiable coins: who is sampled in which round is chosen by nobody, and anybody can check it."""

from bonafed.mechanisms.coins.contracts import (
    CommittedContract,
    check_contract,
    committed_contract,
    contract_roster,
    require_own_line,
)
from bonafed.mechanisms.coins.tossing import (
    SECRET_BYTES,
    Coins,
    Roster,
    commit,
    commit_nonce,
    make_roster,
    toss,
)
from bonafed.mechanisms.coins.transcript import (
    Transcript,
    check_openings,
    check_rounds,
    read_transcript,
    transcript_bytes,
    transcript_from_json,
    transcript_of,
)

__all__ = [
    "SECRET_BYTES",
    "Coins",
    "CommittedContract",
    "Roster",
    "Transcript",
    "check_contract",
    "check_openings",
    "check_rounds",
    "commit",
    "commit_nonce",
    "committed_contract",
    "contract_roster",
    "make_roster",
    "read_transcript",
    "require_own_line",
    "toss",
    "transcript_bytes",
    "transcript_from_json",
    "transcript_of",
]
