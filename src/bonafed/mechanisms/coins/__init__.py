"""Verifiable coins: who is sampled in which round is chosen by nobody, and anybody can check it."""

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
    "Roster",
    "Transcript",
    "check_openings",
    "check_rounds",
    "commit",
    "commit_nonce",
    "make_roster",
    "read_transcript",
    "toss",
    "transcript_bytes",
    "transcript_from_json",
    "transcript_of",
]
