"""A member's side of secure sums: four messages, each a function of its secret and of what it is asked.

    advertise   keys for all sums of the batch, signed
    share       shares of all its secrets, a sealed parcel for every other member
    masked      its vector of one sum, masked
    unmask      for one sum: of every survivor a share of the seed of its own mask, of everybody else a
                share of its mask key; never both of one member, and locked (theory M6)

Between the second and the third it takes in the parcels of the others (`received`). A member with the same
secret and the same stored `Once` gives the same answers, however often it was started in between.

`Once` holds what a member has done in a batch, so that it does nothing twice in two ways (theory M8).
Everything a member sends is determined by its secret and by what it is asked. Asked the same again, after a
restart for instance, it answers the same. Asked something else in the same step, it refuses:

    keys         one set of keys per batch, under which it shares its secrets
    input j      one vector in sum j: the difference of two under the same mask would be readable
    survivors j  one set of survivors of sum j: no client's two secrets are both given away

Every step returns the value to go on with. It must be on disk before the step's message is sent.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

import numpy as np

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue
from bonafed.remote.secure_sums import sharing
from bonafed.remote.secure_sums.key_book import (
    Book,
    MemberKeys,
    Sign,
    Verify,
    commitment,
    own_mask,
    pair_mask,
    to_sign,
)
from bonafed.remote.secure_sums.plan import BatchPlan
from bonafed.remote.secure_sums.sealed_answers import Unmasking, locked
from bonafed.remote.secure_sums.streams import (
    KEY,
    TAG,
    add_streams,
    agreed,
    bounded,
    derived,
    number,
    public_key,
    sealed,
    stream,
    to_ring,
    unsealed,
)


@dataclass(frozen=True, slots=True)
class Once:
    """What was done, by its place, with a digest of how.

    >>> done = Once(bytes(32)).noted("input 0", b"one digest")
    >>> done.noted("input 0", b"one digest") == done
    True
    >>> done.noted("input 0", b"another")
    Traceback (most recent call last):
        ...
    bonafed.errors.InvalidValue: input 0 must be what it was the first time, got something else
    """

    plan: bytes  # digest of the plan of the batch
    seen: Mapping[str, bytes] = field(default_factory=lambda: MappingProxyType({}))

    @classmethod
    def of(cls, plan: BatchPlan) -> Once:
        """Nothing done yet; only for a batch that this member has never taken part in."""
        return cls(plan.digest)

    def noted(self, what: str, content: bytes) -> Once:
        """With this done, too; refused if it was done in another way before."""
        known = self.seen.get(what)
        if known == content:
            return self
        if known is not None:
            raise InvalidValue(what, "must be what it was the first time", "something else")
        return Once(self.plan, MappingProxyType({**self.seen, what: content}))

    def to_bytes(self) -> bytes:
        """To be stored; nothing in it is secret."""
        seen = {what: content.hex() for what, content in self.seen.items()}
        return json.dumps({"plan": self.plan.hex(), "seen": seen}, sort_keys=True).encode()

    @classmethod
    def from_bytes(cls, content: bytes) -> Once:
        """The value that `to_bytes` stored."""
        try:
            stored = json.loads(content)
            seen = {str(what): bytes.fromhex(digest) for what, digest in stored["seen"].items()}
            return cls(bytes.fromhex(stored["plan"]), MappingProxyType(seen))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise InvalidValue("once", "must be what was stored", type(error).__name__) from error


Kind = Literal["mask key", "seed"]
KINDS: tuple[Kind, Kind] = ("mask key", "seed")  # in the order in which a parcel has their shares
Noisy = Callable[[Floats, float], Floats]  # a vector, with noise of that standard deviation on every number


@dataclass(frozen=True, slots=True)
class Member:
    """A member in a batch."""

    plan: BatchPlan
    name: str
    secret: bytes = field(repr=False)  # 32 random bytes; best a fresh one per batch, deleted after it

    def __post_init__(self) -> None:
        if self.name not in self.plan.members:
            raise InvalidValue("member", "must be in the plan", repr(self.name))
        if not isinstance(self.secret, bytes) or len(self.secret) != KEY:
            raise InvalidValue("secret", f"must be {KEY} bytes", "something else")  # not the secret itself

    def own(self, purpose: str, *parts: bytes) -> bytes:
        """A secret of this member's for a purpose in this batch."""
        return derived(self.secret, purpose, self.plan.digest, self.name.encode(), *parts)


@dataclass(frozen=True, slots=True)
class Ready:
    """A member that holds everybody's shares and can take part in the sums of the batch."""

    member: Member
    book: Book
    channels: Mapping[str, bytes] = field(repr=False)  # key in common with each other present member
    held: Mapping[str, bytes] = field(repr=False)  # shares of each other's secrets, sum after sum


def advertise(member: Member, sign: Sign) -> bytes:
    """The first message: keys for all sums, signed."""
    return _keys(member, sign).to_bytes()


def share(member: Member, book: bytes, verify: Verify, once: Once) -> tuple[bytes, Once]:
    """The second message: for every other present member a parcel of shares, in the order of the plan."""
    keys = _read(member, book, verify)
    after = _same_plan(member, once).noted("keys", keys.digest)
    others = keys.others(member.name)
    points = [member.plan.number_of(other) for other in others]
    dealt = [
        _dealt(member, keys, which, kind, points) for which in range(member.plan.sums) for kind in KINDS
    ]
    parcels = [
        sealed(
            _parcel_key(channel, member.name, other),
            b"".join(sharing.to_bytes(shares[index]) for shares in dealt),
        )
        for index, (other, channel) in enumerate(_channels(member, keys).items())
    ]
    return b"".join(parcels), after


def received(member: Member, book: bytes, verify: Verify, parcels: bytes, once: Once) -> Ready:
    """Take in the others' parcels; all of them must be there, made under the same book (M5)."""
    keys = _read(member, book, verify)
    if _same_plan(member, once).seen.get("keys") != keys.digest:
        raise InvalidValue("keys", "must be those that this member has shared its secrets under", "others")
    others, size = keys.others(member.name), parcel_length(member.plan)
    if not isinstance(parcels, bytes) or len(parcels) != size * len(others):
        rule = f"must be {len(others)} of {size} bytes"
        raise InvalidValue("parcels", rule, len(parcels) if isinstance(parcels, bytes) else type(parcels))
    channels, held = _channels(member, keys), {}
    for index, other in enumerate(others):
        key = _parcel_key(channels[other], other, member.name)
        inside = unsealed(key, parcels[size * index : size * (index + 1)])
        if inside is None:
            raise InvalidValue(
                f"parcel of {other}", "must be sealed for this member and these keys", "another"
            )
        held[other] = inside
    return Ready(member, keys, channels, held)


def masked(
    ready: Ready,
    once: Once,
    which: int,
    vector: Floats,
    about: bytes = b"",
    noisy: Noisy | None = None,
) -> tuple[bytes, Once]:
    """The third message: the vector of one sum, bounded, with a share of the noise, under its masks.

    `about` describes what all members must have been told alike, such as a digest of the models and of
    everybody's weights: with those who were told otherwise, nothing cancels (M2). Where the plan has noise,
    `noisy` adds it, after the bound and before the mask: other noise in every sum, also to zeros (M9).
    """
    member, plan, book = ready.member, ready.member.plan, ready.book
    which = _whichever(plan, which)
    values = np.asarray(vector, dtype=np.float64)
    if values.shape != (plan.size,):
        raise InvalidValue("vector", f"must have shape ({plan.size},)", values.shape)
    if bool(plan.noise) != (noisy is not None):
        raise InvalidValue("noisy", f"must {'' if plan.noise else 'not '}be given with this plan", noisy)
    values = bounded(values, plan.bound).values
    if noisy is not None:
        values = noisy(values, plan.noise_share)
        if values.shape != (plan.size,) or not np.isfinite(values).all():
            raise InvalidValue("noisy", f"must give {plan.size} finite numbers", "others")
        values = np.clip(values, -plan.limit, plan.limit)
    words = to_ring(values, plan.fraction_bits)
    private = member.own("mask key", number(which))
    masks = [pair_mask(book, which, about, member.name, private, other) for other in ready.held]
    add_streams(words, [(1, own_mask(book, which, about, member.own("seed", number(which)))), *masks])
    message = words.astype("<u8", copy=False).tobytes()
    return message, _same_plan(member, once).noted(f"input {which}", hashlib.sha256(message).digest())


def unmask(ready: Ready, once: Once, which: int, survivors: Collection[str]) -> tuple[bytes, Once]:
    """The fourth message: what takes the masks off the sum over the survivors, and off nothing else."""
    member, plan, book = ready.member, ready.member.plan, ready.book
    which = _whichever(plan, which)
    asked = Unmasking(book, which, survivors_in_order(book, survivors))
    if member.name not in asked.survivors or f"input {which}" not in _same_plan(member, once).seen:
        rule = f"must include {member.name}, who has given its input of sum {which}"
        raise InvalidValue("survivors", rule, "others")
    after = once.noted(f"survivors {which}", asked.name()[-1])
    shares = []
    for dealer in book.present:
        kind: Kind = "seed" if dealer in asked.survivors else "mask key"
        if dealer == member.name:
            shares.append(sharing.to_bytes(_dealt(member, book, which, kind, [plan.number_of(dealer)])[0]))
        else:
            at = sharing.WIDTH * (len(KINDS) * which + KINDS.index(kind))
            shares.append(ready.held[dealer][at : at + sharing.WIDTH])
    return locked(asked, member.name, member.own("answers"), ready.channels, b"".join(shares)), after


def survivors_in_order(book: Book, survivors: Collection[str]) -> tuple[str, ...]:
    """The survivors in the order of the plan: some of those present, and as many as the threshold."""
    if unknown := sorted(set(survivors) - set(book.keys)):
        raise InvalidValue("survivors", "must be among those whose keys are in the book", unknown[0])
    listed = tuple(name for name in book.keys if name in survivors)
    if len(listed) < book.plan.threshold:
        rule = f"must be {book.plan.threshold} at least, the threshold"
        raise InvalidValue("survivors", rule, len(listed))
    return listed


def parcel_length(plan: BatchPlan) -> int:
    """Bytes of a sealed parcel: two shares for every sum."""
    return len(KINDS) * sharing.WIDTH * plan.sums + TAG


def _keys(member: Member, sign: Sign) -> MemberKeys:
    plan, name, masks, commitments = member.plan, member.name, [], []
    for which in range(plan.sums):
        masks.append(public_key(member.own("mask key", number(which))))
        commitments.append(commitment(plan, name, which, member.own("seed", number(which))))
    keys = MemberKeys(public_key(member.own("channel")), tuple(masks), tuple(commitments), b"")
    return MemberKeys(keys.channel, keys.masks, keys.commitments, sign(to_sign(plan, name, keys.body())))


def _read(member: Member, content: bytes, verify: Verify) -> Book:
    """The book, with this member's own keys in it."""
    book = Book.from_bytes(member.plan, content, verify)
    own = book.keys.get(member.name)
    if own is None or own.body() != _keys(member, lambda _: b"").body():
        raise InvalidValue(f"keys of {member.name}", "must be in the book as it sent them", "others")
    return book


def _channels(member: Member, book: Book) -> dict[str, bytes]:
    """The key that this member has in common with each other one, under this book."""
    private, plan = member.own("channel"), member.plan
    result = {}
    for other in book.others(member.name):
        pair = sorted((member.name, other), key=plan.members.index)
        common = agreed(private, book.keys[other].channel, other)
        result[other] = derived(common, "channel", book.digest, *(name.encode() for name in pair))
    return result


def _parcel_key(channel: bytes, sender: str, receiver: str) -> bytes:
    return derived(channel, "parcel", sender.encode(), receiver.encode())


def _dealt(member: Member, book: Book, which: int, kind: Kind, points: Sequence[int]) -> list[int]:
    """Shares of one of this member's own secrets, for members by their numbers."""
    randomness = member.own("shares", book.digest, kind.encode(), number(which))
    length = sharing.raw_length(member.plan.threshold)
    shared = sharing.polynomial(member.own(kind, number(which)), stream(randomness, length))
    return [sharing.value(shared, point) for point in points]


def _same_plan(member: Member, once: Once) -> Once:
    if once.plan != member.plan.digest:
        raise InvalidValue("once", "must be of the same batch", "another plan's")
    return once


def _whichever(plan: BatchPlan, which: int) -> int:
    return checks.whole("which", which, at_least=0, at_most=plan.sums - 1)
