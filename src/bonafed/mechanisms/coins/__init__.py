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

__all__ = ["SECRET_BYTES", "Coins", "Roster", "commit", "commit_nonce", "make_roster", "toss"]
