"""Secrets from shares of which some may be wrong, and who is to blame (theory M8).

A secret can be checked once it is found: a mask key against its public key, a seed against its commitment.
With r > t shares it is found, and all wrong shares with it, if at most

    (1)  max(1, (r - t)/2)

of them are wrong: then its polynomial is the one that most shares are on. (More liars together can choose
wrong shares that give the right secret, and a polynomial that honest shares are not on.) A share that is
not on it is a *dispute* between dealer and holder: one of them is wrong, and a single dispute does not say
which. Who disputes with more than half of the others, or with itself, is to blame, unless more than half of
the others lie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import NamedTuple

from bonafed.remote.secure_sums import field
from bonafed.remote.secure_sums.decoding import decoded

Dispute = tuple[str, str]  # two members, one of whom sent something wrong, or the same one twice


class Found(NamedTuple):
    """A secret, and what its shares say about those who gave them."""

    secret: bytes  # 32 bytes
    right: tuple[int, ...]  # places of the shares on its polynomial
    wrong: frozenset[int]  # of those that are not; empty where (1) does not say which ones these are


def secret_from(
    shares: Mapping[int, int], first: tuple[int, ...], fits: Callable[[bytes], bool]
) -> Found | None:
    """The secret that passes its check, tried from `first`, (t,) places, before others; None: not found."""
    count, threshold = len(shares), len(first)
    doubtful: Found | None = None
    for candidate in _candidates(shares, first):
        secret = field.to_secret(candidate(0))
        if secret is None or not fits(secret):
            continue
        right = tuple(place for place, share in shares.items() if candidate(place) == share)
        found = Found(secret, right, frozenset(shares) - frozenset(right))
        if 2 * len(right) > count + threshold - 1 or count == threshold + 1:  # (1)
            return found
        doubtful = doubtful or found._replace(wrong=frozenset())
    return doubtful


def _candidates(shares: Mapping[int, int], first: tuple[int, ...]) -> Iterator[Callable[[int], int]]:
    """Polynomials that may be the one: of these shares, of most, or of all but one."""
    yield partial(field.interpolated, shares, first)
    if len(shares) > len(first) + 1 and (most := decoded(shares, len(first))) is not None:
        yield partial(field.value, most)
    if len(shares) == len(first) + 1:
        for left_out in shares:
            rest = tuple(place for place in shares if place != left_out)
            yield partial(field.interpolated, shares, rest)


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
