"""Members of a secure sum in one process, walked through it message by message; and its formula by hand.

`Walk` carries bytes between both sides as a network would, and lets a test alter, drop or replay them.
`masked_by_hand` computes a masked vector from the statement of the protocol, number by number.
"""

import hashlib
import hmac
import struct
from dataclasses import dataclass, field

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from bonafed.remote.secure_sums import (
    BatchPlan,
    Member,
    Once,
    advertise,
    collected,
    gathered,
    masked,
    parcels_for,
    received,
    revealed,
    share,
    threshold_for,
    unmask,
)

NAMES = ("ada", "ben", "cleo", "dan", "eve", "fay", "gus", "hal", "ida", "jon", "kay", "leo")


def signature(name, content):
    """Stands for an identity key: nobody forges it in these tests."""
    return hashlib.sha256(name.encode() + b": " + content).digest()


def signer(name):
    return lambda content: signature(name, content)


def verify(name, content, signed):
    return signed == signature(name, content)


def secret_of(name, salt=""):
    return hashlib.sha256(f"secret of {name}{salt}".encode()).digest()


def plan_for(
    n, *, colluders=0, threshold=None, size=3, sums=1, bound=8.0, context=b"run 1, batch 1", noise=0.0
):
    t = threshold_for(n, colluders) if threshold is None else threshold
    return BatchPlan(NAMES[:n], t, size, bound, sums, context, colluders, noise)


@dataclass
class Walk:
    """All members, set up for the sums of a plan; `once` is what each would have on disk."""

    plan: BatchPlan
    absent: tuple = ()  # who never sends keys
    members: dict = field(init=False)
    once: dict = field(init=False)

    def __post_init__(self):
        plan, here = self.plan, [name for name in self.plan.members if name not in self.absent]
        self.members = {name: Member(plan, name, secret_of(name)) for name in here}
        keys = {name: advertise(self.members[name], signer(name)) for name in here}
        self.book, failures = gathered(plan, keys, verify)
        assert not failures
        self.book_bytes, self.once, sent = self.book.to_bytes(), {}, {}
        for name in here:
            sent[name], self.once[name] = share(self.members[name], self.book_bytes, verify, Once.of(plan))
        self.shared, self.parcels = sent, parcels_for(self.book, sent)
        self.ready = {name: self.receive(name, self.parcels[name]) for name in here}

    def receive(self, name, parcels):
        return received(self.members[name], self.book_bytes, verify, parcels, self.once[name])

    def inputs(self, which, vectors, about=b"", noisy=None):
        """Masked vectors by name; `about` may differ from member to member."""
        messages = {}
        for name, vector in vectors.items():
            told = about[name] if isinstance(about, dict) else about
            hide = None if noisy is None else noisy[name]
            messages[name], self.once[name] = masked(
                self.ready[name], self.once[name], which, vector, told, hide
            )
        return messages

    def answers(self, which, survivors, answering=None):
        messages = {}
        for name in survivors if answering is None else answering:
            messages[name], self.once[name] = unmask(self.ready[name], self.once[name], which, survivors)
        return messages

    def total(self, which, vectors, silent=(), about=b""):
        """The sum over those who send a vector, of whom the silent do not answer about it."""
        pending = collected(self.book, which, self.inputs(which, vectors, about), about)
        survivors = pending.round.survivors
        return revealed(
            pending, self.answers(which, survivors, [name for name in survivors if name not in silent])
        )


def vectors_for(plan, seed=0, names=None):
    rng = np.random.default_rng(seed)
    drawn = {name: rng.standard_normal(plan.size) for name in plan.members}
    scale = plan.bound / (1.01 * max(np.linalg.norm(vector) for vector in drawn.values()))
    return {name: scale * drawn[name] for name in (plan.members if names is None else names)}


def on_grid(plan, vectors):
    """What the vectors add up to in exact arithmetic, on the grid of the plan."""
    scale = 2**plan.fraction_bits
    sums = [sum(round(float(vector[k]) * scale) for vector in vectors.values()) for k in range(plan.size)]
    return np.array([total / scale for total in sums])


# --- the formula ------------------------------------------------------------------------------------


def derived(key, label, *parts):
    """RFC 5869 with an empty salt, one block of output."""
    info = b"".join(
        struct.pack("<I", len(part)) + part for part in (b"bonafed secure sums 1", label.encode(), *parts)
    )
    extracted = hmac.new(bytes(32), key, hashlib.sha256).digest()
    return hmac.new(extracted, info + b"\x01", hashlib.sha256).digest()


def _numbers(key, size):
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(8 * size))
    return list(struct.unpack(f"<{size}Q", stream))


def masked_by_hand(plan, book_digest, secrets, name, which, vector, about):
    """M2 and M3, with the secrets of all members that are present."""
    counter = struct.pack("<I", which)

    def own(owner, purpose):
        return derived(secrets[owner], purpose, plan.digest, owner.encode(), counter)

    scale = 2**plan.fraction_bits
    numbers = [round(float(x) * scale) for x in vector]
    mask = _numbers(derived(own(name, "seed"), "own mask", book_digest, counter, about), plan.size)
    numbers = [a + b for a, b in zip(numbers, mask, strict=True)]
    mine = X25519PrivateKey.from_private_bytes(own(name, "mask key"))
    for other in secrets:
        if other == name:
            continue
        theirs = X25519PrivateKey.from_private_bytes(own(other, "mask key")).public_key()
        common = mine.exchange(X25519PublicKey.from_public_bytes(theirs.public_bytes_raw()))
        before = plan.members.index(name) < plan.members.index(other)
        pair = (name, other) if before else (other, name)
        key = derived(common, "pair mask", book_digest, counter, about, *(one.encode() for one in pair))
        sign = 1 if before else -1
        numbers = [a + sign * b for a, b in zip(numbers, _numbers(key, plan.size), strict=True)]
    return struct.pack(f"<{plan.size}Q", *(number % 2**64 for number in numbers))
