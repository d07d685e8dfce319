"""Answers that open only if enough members were asked the same (theory M6).

A member's answer about the survivors of a sum is sealed with a key of its own, K. It shares K among the
other survivors so that t - 1 of them are needed, and seals each one's part with a *token* that only the two
of them can compute, for this sum and this set of survivors:

    answer of v  =  sealed(K, shares)  |  for every other survivor w:  sealed(token(v, w), part of K for w)
                                                                        |  token(w, v)

token(owner, helper) opens the owner's part for that helper, and the helper gives it away with its own
answer. So the server opens v's answer once t members, v among them, have answered about the same survivors:
the consistency check of Bonawitz et al., without an exchange of its own.

The two directions have different tokens. With the same token for both, a member would give away the keys of
its own lock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bonafed.remote.secure_sums import sharing
from bonafed.remote.secure_sums.key_book import Book
from bonafed.remote.secure_sums.sharing import Dispute
from bonafed.remote.secure_sums.streams import KEY, TAG, derived, number, sealed, stream, unsealed

_PART = sharing.WIDTH + TAG  # bytes of a sealed part of a key
_ENTRY = _PART + KEY  # with the token for the other's


class Unmasking(NamedTuple):
    """What an answer is about."""

    book: Book
    which: int  # number of the sum
    survivors: tuple[str, ...]  # in the order of the plan

    def name(self) -> tuple[bytes, ...]:
        """Its name in a derived key."""
        here = frozenset(self.survivors)
        return (
            self.book.digest,
            number(self.which),
            bytes(member in here for member in self.book.plan.members),
        )


class Opened(NamedTuple):
    """What answers contain, and what is wrong with those that do not open."""

    contents: Mapping[str, bytes]  # by name, of those that could be opened
    disputes: frozenset[Dispute]  # owner and helper, where the token does not open the part
    broken: frozenset[str]  # owners whose parts were enough, and make no key of the lock


def length(asked: Unmasking, content: int) -> int:
    """Bytes of an answer with so many bytes in it."""
    return content + TAG + _ENTRY * (len(asked.survivors) - 1)


def locked(
    asked: Unmasking, name: str, secret: bytes, channels: Mapping[str, bytes], content: bytes
) -> bytes:
    """The answer of a survivor; channels are the keys that it has in common with each other member."""
    plan = asked.book.plan
    key = derived(secret, "lock", name.encode(), *asked.name())
    randomness = derived(secret, "lock shares", name.encode(), *asked.name())
    threshold = plan.threshold - 1  # of the others
    shared = sharing.polynomial(key, stream(randomness, sharing.raw_length(threshold)))
    parts = [sealed(key, content)]
    for other in _others(asked, name):
        part = sharing.to_bytes(sharing.value(shared, plan.number_of(other)))
        parts.append(sealed(_token(asked, channels[other], name, other), part))
        parts.append(_token(asked, channels[other], other, name))
    return b"".join(parts)


def opened(asked: Unmasking, answers: Mapping[str, bytes], content: int) -> Opened:
    """What the answers, each of the right length, contain: so many bytes each."""
    plan = asked.book.plan
    contents: dict[str, bytes] = {}
    disputes: set[Dispute] = set()
    broken: set[str] = set()
    for owner, answer in answers.items():
        parts: dict[int, int] = {}
        for helper in answers:
            if helper == owner:
                continue
            part = _entry(asked, answer, content, owner, helper)[:_PART]
            token = _entry(asked, answers[helper], content, helper, owner)[_PART:]
            if (inside := unsealed(token, part)) is None:
                disputes.add((owner, helper))
            else:
                parts[plan.number_of(helper)] = int.from_bytes(inside)
        if len(parts) < plan.threshold - 1:
            continue
        key = sharing.to_secret(sharing.interpolated(parts, tuple(parts)[: plan.threshold - 1]))
        if key is None or (shares := unsealed(key, answer[: content + TAG])) is None:
            broken.add(owner)
        else:
            contents[owner] = shares
    return Opened(contents, frozenset(disputes), frozenset(broken))


def _token(asked: Unmasking, channel: bytes, owner: str, helper: str) -> bytes:
    return derived(channel, "token", owner.encode(), helper.encode(), *asked.name())


def _others(asked: Unmasking, name: str) -> Sequence[str]:
    return [other for other in asked.survivors if other != name]


def _entry(asked: Unmasking, answer: bytes, content: int, name: str, other: str) -> bytes:
    """What a member's answer says about another."""
    at = content + TAG + _ENTRY * _others(asked, name).index(other)
    return answer[at : at + _ENTRY]
