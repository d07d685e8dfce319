"""Shamir's sharing of 256-bit secrets, over the integers modulo a prime (theory M4), and wrong shares (M8).

A secret s is the value at 0 of a polynomial of degree t - 1 whose other coefficients are uniform; the share
of member number x is its value at x. Any t shares give the polynomial, by Lagrange. Fewer say nothing: for
every s there are equally many polynomials through them.

The prime is the smallest above 2^256, so that every secret of 32 bytes is an element; shares have 33 bytes.
Python's integers take longer for some values than for others: whoever can time a member's computation to
the nanosecond is outside of what is protected here.

Decoding is by the algorithm of Gao (2003). Let e of r shares of a polynomial f of degree below t be wrong,
2e <= r - t. Then f can be computed. It is the only one that agrees with so many shares, since two of degree
below t agree in t - 1 points at most. With g the product of (X - x_i) and h the polynomial through all r
shares, the extended Euclidean algorithm on g and h is stopped at the first remainder of degree below
(r + t)/2, u g + v h. There v is zero where shares are wrong, and the remainder is f v. Polynomials are
lists of coefficients modulo the prime, lowest first, without zeros at the end.

A secret can be checked once it is computed: a mask key against its public key, a seed against its
commitment. With r > t shares the secret is computed, and all wrong shares are identified, if at most

    (1)  max(1, (r - t)/2)

of them are wrong: then its polynomial is the one that most shares are on. (More liars together can choose
wrong shares that give the right secret, and a polynomial that honest shares are not on.) A share that is
not on it is a *dispute* between dealer and holder: one of them is wrong, and a single dispute does not say
which. Who disputes with more than half of the others, or with itself, is to blame, unless more than half of
the others lie.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

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


def value(coefficients: Sequence[int], point: int) -> int:
    """The polynomial there, by Horner's rule."""
    result = 0
    for coefficient in reversed(coefficients):
        result = (result * point + coefficient) % PRIME
    return result


def interpolated(shares: Mapping[int, int], points: Collection[int], at: int = 0) -> int:
    """What the polynomial through the shares of these members is at a point; at 0 it is the secret."""
    chosen = tuple(points)
    weights = _lagrange(chosen, at)
    return sum(weight * shares[point] for weight, point in zip(weights, chosen, strict=True)) % PRIME


@lru_cache(maxsize=1024)
def _lagrange(points: tuple[int, ...], at: int) -> tuple[int, ...]:
    """Weights of the shares: prod over j != i of (at - x_j)/(x_i - x_j)."""
    above = [math.prod(at - other for other in points if other != point) for point in points]
    below = [math.prod(point - other for other in points if other != point) for point in points]
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


Polynomial = list[int]


def decoded(shares: Mapping[int, int], threshold: int) -> Polynomial | None:
    """f, from its values by point; None: too many are wrong."""
    remainder, last = _through(shares), _vanishing(shares)
    factor: Polynomial = [1]
    last_factor: Polynomial = []
    while 2 * (len(remainder) - 1) >= len(shares) + threshold:
        quotient, rest = _divided(last, remainder)
        last, remainder = remainder, rest
        factor, last_factor = _minus(last_factor, _product(quotient, factor)), factor
    quotient, rest = _divided(remainder, factor)
    return None if rest or len(quotient) > threshold else quotient


def _vanishing(points: Mapping[int, int]) -> Polynomial:
    """The polynomial g, the product of all (X - x_i)."""
    result: Polynomial = [1]
    for point in points:
        result = _product(result, [-point % PRIME, 1])
    return result


def _through(shares: Mapping[int, int]) -> Polynomial:
    """h, by Newton's rule: at every new point a multiple of what vanishes at all before is added."""
    result: Polynomial = []
    vanishing: Polynomial = [1]
    for point, share in shares.items():
        missing = (share - value(result, point)) * pow(value(vanishing, point), -1, PRIME)
        result = _minus(result, [-missing * each % PRIME for each in vanishing])
        vanishing = _product(vanishing, [-point % PRIME, 1])
    return result


def _divided(above: Polynomial, below: Polynomial) -> tuple[Polynomial, Polynomial]:
    """Quotient and remainder of a division of polynomials."""
    rest, inverse = list(above), pow(below[-1], -1, PRIME)
    quotient = [0] * max(0, len(above) - len(below) + 1)
    for shift in reversed(range(len(quotient))):
        multiple = rest[shift + len(below) - 1] * inverse % PRIME
        quotient[shift] = multiple
        for at, each in enumerate(below):
            rest[shift + at] = (rest[shift + at] - multiple * each) % PRIME
    return _trimmed(quotient), _trimmed(rest)


def _product(one: Polynomial, other: Polynomial) -> Polynomial:
    result = [0] * (len(one) + len(other))
    for at, each in enumerate(one):
        for shift, factor in enumerate(other):
            result[at + shift] = (result[at + shift] + each * factor) % PRIME
    return _trimmed(result)


def _minus(one: Polynomial, other: Polynomial) -> Polynomial:
    longer = max(len(one), len(other))
    padded = zip(one + [0] * (longer - len(one)), other + [0] * (longer - len(other)), strict=True)
    return _trimmed([(a - b) % PRIME for a, b in padded])


def _trimmed(polynomial: Polynomial) -> Polynomial:
    while polynomial and not polynomial[-1]:
        polynomial.pop()
    return polynomial


Dispute = tuple[str, str]  # two members, one of whom sent something wrong, or the same one twice


class SharedSecret(NamedTuple):
    """A secret, and what its shares say about those who gave them."""

    secret: bytes  # 32 bytes
    right: tuple[int, ...]  # points of the shares on its polynomial
    wrong: frozenset[int]  # of those that are not; empty where (1) does not say which ones these are


def secret_from(
    shares: Mapping[int, int], first: tuple[int, ...], fits: Callable[[bytes], bool]
) -> SharedSecret | None:
    """The secret that passes its check, tried from `first`, (t,) points, before others; None: not found."""
    count, threshold = len(shares), len(first)
    doubtful: SharedSecret | None = None
    for candidate in _candidates(shares, first):
        secret = to_secret(candidate(0))
        if secret is None or not fits(secret):
            continue
        right = tuple(point for point, share in shares.items() if candidate(point) == share)
        shared = SharedSecret(secret, right, frozenset(shares) - frozenset(right))
        if 2 * len(right) > count + threshold - 1 or count == threshold + 1:  # (1)
            return shared
        doubtful = doubtful or shared._replace(wrong=frozenset())
    return doubtful


def _candidates(shares: Mapping[int, int], first: tuple[int, ...]) -> Iterator[Callable[[int], int]]:
    """Polynomials that may be the one: of these shares, of most, or of all but one."""
    yield partial(interpolated, shares, first)
    if len(shares) > len(first) + 1 and (most := decoded(shares, len(first))) is not None:
        yield partial(value, most)
    if len(shares) == len(first) + 1:
        for left_out in shares:
            rest = tuple(point for point in shares if point != left_out)
            yield partial(interpolated, shares, rest)


def to_blame(disputes: Iterable[Dispute], others: int) -> list[str]:
    """Who disputes with itself, or with more than half of so many others.

    >>> to_blame([("ada", "dan"), ("ben", "dan"), ("ada", "ben")], others=3)
    ['ada', 'ben', 'dan']
    >>> to_blame([("ada", "dan"), ("dan", "ben")], others=3)
    ['dan']
    """
    partners: dict[str, set[str]] = {}
    for one, other in disputes:
        partners.setdefault(one, set()).add(other)
        partners.setdefault(other, set()).add(one)
    return sorted(
        name for name, with_whom in partners.items() if name in with_whom or 2 * len(with_whom) > others
    )
