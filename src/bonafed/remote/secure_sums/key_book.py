"""The keys that members advertise, the book of all of them (theory M5), and the masks that follow (M2).

A key message, for m sums, is

    channel key | mask key 0 | commitment 0 | ... | mask key m-1 | commitment m-1 | signature

with X25519 public keys of 32 bytes. The *channel* key is for what members send each other; a *mask* key
makes the masks of one sum; a *commitment* is a one-way image of the seed of the own mask in it. The
signature is the member's registered identity's, over the plan's digest, its name and all of the keys.

The book holds the messages of those who are present. Its digest covers names and keys, and enters every key
that two members have in common: they understand each other only if they hold the same book.

With PRG a cipher's key stream, read as integers modulo 2^64, member u adds to its vector

    (1)  own mask    PRG(seed_u)
    (2)  pair masks  PRG(key_uv) for every v that comes after u, - PRG(key_uv) for every v before u

key_uv comes from the mask keys of both by X25519, and from all that they must agree on: the book, the
number of the sum and what the sum is about. Members that were told different things share no mask, and
nothing cancels.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bonafed.errors import InvalidValue
from bonafed.remote.secure_sums.plan import BatchPlan
from bonafed.remote.secure_sums.streams import KEY, agreed, derived, framed, number

Sign = Callable[[bytes], bytes]  # with the registered identity of this member
Verify = Callable[[str, bytes, bytes], bool]  # whether a member, by name, has signed the content
LONGEST_SIGNATURE = 512  # bytes


@dataclass(frozen=True, slots=True)
class MemberKeys:
    """What one member advertises."""

    channel: bytes  # 32 bytes
    masks: tuple[bytes, ...]  # (m,) of 32 bytes
    commitments: tuple[bytes, ...]  # (m,) of 32 bytes
    signature: bytes

    def body(self) -> bytes:
        """All of the message but the signature."""
        pairs = zip(self.masks, self.commitments, strict=True)
        return self.channel + b"".join(mask + commitment for mask, commitment in pairs)

    def to_bytes(self) -> bytes:
        """The whole key message, with its signature."""
        return self.body() + self.signature

    @classmethod
    def from_bytes(cls, plan: BatchPlan, name: str, message: bytes, verify: Verify) -> MemberKeys:
        """The keys in a message, if the member of that name has signed them for this plan."""
        what, length = f"keys of {name}", KEY * (1 + 2 * plan.sums)
        if not isinstance(message, bytes) or not length < len(message) <= length + LONGEST_SIGNATURE:
            rule = f"must be {length} bytes and a signature"
            raise InvalidValue(what, rule, _extent(message))
        parts = [message[at : at + KEY] for at in range(0, length, KEY)]
        keys = cls(parts[0], tuple(parts[1::2]), tuple(parts[2::2]), message[length:])
        if not verify(name, to_sign(plan, name, keys.body()), keys.signature):
            raise InvalidValue(what, "must be signed by its registered identity", "another signature")
        return keys


@dataclass(frozen=True, slots=True)
class Book:
    """The keys of all who are present, in the order of the plan."""

    plan: BatchPlan
    keys: Mapping[str, MemberKeys]  # by name; of the threshold at least
    digest: bytes = field(init=False, repr=False)  # SHA-256 of the plan, the names and the keys

    def __post_init__(self) -> None:
        if len(self.keys) < self.plan.threshold:
            rule = f"must be of {self.plan.threshold} members at least"
            raise InvalidValue("keys", rule, f"{len(self.keys)}: {', '.join(self.keys) or 'nobody'}")
        parts = (part for name, keys in self.keys.items() for part in (name.encode(), keys.body()))
        object.__setattr__(self, "digest", hashlib.sha256(framed(self.plan.digest, *parts)).digest())

    @property
    def present(self) -> tuple[str, ...]:
        """Names of those whose keys are here, in the order of the plan."""
        return tuple(self.keys)

    def others(self, name: str) -> tuple[str, ...]:
        """All present members but this one."""
        return tuple(other for other in self.keys if other != name)

    def to_bytes(self) -> bytes:
        """All messages, with nothing for who is absent."""
        keys = self.keys
        return framed(*(keys[name].to_bytes() if name in keys else b"" for name in self.plan.members))

    @classmethod
    def from_bytes(cls, plan: BatchPlan, content: bytes, verify: Verify) -> Book:
        """The book, every signature in it checked."""
        messages = _unframed(content, len(plan.members))
        return cls(
            plan,
            {
                name: MemberKeys.from_bytes(plan, name, message, verify)
                for name, message in zip(plan.members, messages, strict=True)
                if message
            },
        )


def to_sign(plan: BatchPlan, name: str, body: bytes) -> bytes:
    """What a member signs: these keys are mine, in this batch."""
    return framed(b"bonafed secure sums: keys", plan.digest, name.encode(), body)


def commitment(plan: BatchPlan, name: str, which: int, seed: bytes) -> bytes:
    """A one-way image of the seed of a member's own mask; it says nothing else about it (M8)."""
    return derived(seed, "commitment", plan.digest, name.encode(), number(which))


def _unframed(content: bytes, count: int) -> list[bytes]:
    """The parts of a framed text, of which there must be so many."""
    parts, at = [], 0
    for _ in range(count):
        length = int.from_bytes(content[at : at + 4], "little")
        parts.append(content[at + 4 : at + 4 + length])
        at += 4 + length
    if framed(*parts) != content:
        raise InvalidValue("keys", f"must be of {count} members, one after the other", _extent(content))
    return parts


def _extent(message: object) -> str:
    return f"{len(message)} bytes" if isinstance(message, bytes) else type(message).__name__


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
