"""Sums of vectors that nobody sees one by one: masks that cancel, after Bonawitz et al. 2017 (theory M).

Values and functions of bytes; somebody else carries the bytes. A batch of sums over the same members takes
two exchanges to set up, and every sum two more.

    exchange    a member                        the server
    keys        advertise(member, sign)         gathered(plan, messages, verify), the book
    shares      share(member, book, ...)        parcels_for(book, messages)
    input       received(...), masked(...)      collected(book, which, messages, about), the survivors
    unmasking   unmask(ready, ..., survivors)   revealed(pending, answers), the sum

The parcels travel with the first input. With threshold t and c colluding members, 2t > n + c, a server that
follows no rules learns one sum over t - c honest members at least, or nothing (M7).

    plan             what a batch is agreed to be
    key_book         keys that members advertise, the book of them all, and the masks that follow
    streams          keys from keys, streams that mask, and numbers modulo 2^64
    client, server   the two sides
    sharing          shares of secrets; wrong ones, and whose they are
    sealed_answers   answers that open only together
"""

from bonafed.remote.secure_sums.client import (
    Member,
    Noisy,
    Once,
    Ready,
    advertise,
    masked,
    received,
    share,
    unmask,
)
from bonafed.remote.secure_sums.key_book import Book, Sign, Verify
from bonafed.remote.secure_sums.plan import BatchPlan, threshold_for
from bonafed.remote.secure_sums.server import (
    Masked,
    Revealed,
    SumFailed,
    collected,
    gathered,
    parcels_for,
    revealed,
)
from bonafed.remote.secure_sums.streams import Bounded, bounded

__all__ = [
    "BatchPlan",
    "Book",
    "Bounded",
    "Masked",
    "Member",
    "Noisy",
    "Once",
    "Ready",
    "Revealed",
    "Sign",
    "SumFailed",
    "Verify",
    "advertise",
    "bounded",
    "collected",
    "gathered",
    "masked",
    "parcels_for",
    "received",
    "revealed",
    "share",
    "threshold_for",
    "unmask",
]
