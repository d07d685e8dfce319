"""Shamir's sharing of 256-bit secrets, over the integers modulo a prime (theory M4).

A secret s is the value at 0 of a polynomial of degree t - 1 whose other coefficients are uniform; the share
of member number x is its value at x. Any t shares give the polynomial, by Lagrange. Fewer say nothing: for
every s there are equally many polynomials through them.

The prime is the smallest above 2^256, so that every secret of 32 bytes is an element; shares have 33 bytes.
Python's integers take longer for some values than for others: whoever can time a member's computation to
the nanosecond is outside of what is protected here.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache

PRIME = 2**256 + 297
WIDTH = 33  # bytes of a share
_RAW = 64  # random bytes of a coefficient: reduced, it is uniform up to 2^-255


def polynomial(secret: bytes, randomness: bytes) -> list[int]:
    """Coefficients, the secret first; the randomness has `raw_length(threshold)` bytes."""
    rest = (randomness[at : at + _RAW] for at in range(0, len(randomness), _RAW))
    return [int.from_bytes(secret), *(int.from_bytes(part) % PRIME for part in rest)]


def raw_length(threshold: int) -> int:
    """Random bytes for a polynomial that takes so many shares to find."""
    return _RAW * (threshold - 1)


def value(coefficients: Sequence[int], place: int) -> int:
    """The polynomial there, by Horner's rule."""
    result = 0
    for coefficient in reversed(coefficients):
        result = (result * place + coefficient) % PRIME
    return result


def interpolated(shares: Mapping[int, int], places: Collection[int], at: int = 0) -> int:
    """What the polynomial through the shares of these members is at a place; at 0 it is the secret."""
    chosen = tuple(places)
    weights = _lagrange(chosen, at)
    return sum(weight * shares[place] for weight, place in zip(weights, chosen, strict=True)) % PRIME


@lru_cache(maxsize=1024)
def _lagrange(places: tuple[int, ...], at: int) -> tuple[int, ...]:
    """Weights of the shares: prod over j != i of (at - x_j)/(x_i - x_j)."""
    above = [math.prod(at - other for other in places if other != place) for place in places]
    below = [math.prod(place - other for other in places if other != place) for place in places]
    return tuple(a % PRIME * pow(b, -1, PRIME) % PRIME for a, b in zip(above, below, strict=True))


def to_bytes(share: int) -> bytes:
    """A share in 33 bytes."""
    return share.to_bytes(WIDTH)


def to_secret(value: int) -> bytes | None:
    """The 32 bytes that an element of the field stands for; None: it is none of those that are shared."""
    return value.to_bytes(WIDTH)[1:] if value < 2**256 else None


def from_bytes(content: bytes) -> list[int]:
    """Shares one after the other; what is no element of the field agrees with no other share."""
    return [int.from_bytes(content[at : at + WIDTH]) for at in range(0, len(content), WIDTH)]
