"""The masks of a sum: one per pair of members, which cancels, and one of each member's own (theory M2).

With PRG a cipher's key stream, read as integers modulo 2^64, member u adds to its vector

    (1)  own mask    PRG(seed_u)
    (2)  pair masks  PRG(key_uv) for every v that comes after u, - PRG(key_uv) for every v before u

key_uv comes from the mask keys of both by X25519, and from all that they must agree on: the book, the
number of the sum and what the sum is about. Members that were told different things share no mask, and
nothing cancels.
"""

from __future__ import annotations

from bonafed.remote.secure_sums.key_book import Book
from bonafed.remote.secure_sums.streams import agreed, derived, number


def own_mask(book: Book, which: int, about: bytes, seed: bytes) -> bytes:
    """(1): the key of the stream of a member's own mask."""
    return derived(seed, "own mask", book.digest, number(which), about)


def pair_mask(
    book: Book, which: int, about: bytes, name: str, private: bytes, other: str
) -> tuple[int, bytes]:
    """(2): sign and key of the stream that `name`, whose private mask key this is, adds for another."""
    common = agreed(private, book.keys[other].masks[which], other)
    first, second = sorted((name, other), key=book.plan.members.index)
    key = derived(common, "pair mask", book.digest, number(which), about, first.encode(), second.encode())
    return (1 if name == first else -1), key
