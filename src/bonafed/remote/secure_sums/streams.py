"""Keys from keys, streams from keys, and the integers modulo 2^64 that streams hide (theory M3).

Keys come from HKDF-SHA256, streams from AES-256 in counter mode. Every derived key is named by a label and
by all that it is for, each part with its length in front, so that no two purposes share a key. A key that
encrypts is used for one message only; hence nonces are all zero.

    (1)  x is added as round(x 2^f) modulo 2^64; a sum of n is off by n 2^-(f+1) per number at most
    (2)  a vector longer than the bound is scaled down to it as a whole; one with NaN or infinity is zero

A sum of numbers within the plan's limits is below 2^62 in size, so that it is read from the ring without
doubt; doubles have 53 bits, and the result is rounded to them once.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from bonafed.checks import Floats
from bonafed.errors import InvalidValue

Words = NDArray[np.uint64]  # elements of the ring of integers modulo 2^64
KEY = 32  # bytes of a secret, of a key, and of a public key
TAG = 16  # bytes that authenticated encryption adds
_PROTOCOL = b"bonafed secure sums 1"
_NONCE = bytes(12)
_PIECE = 16_384  # words made at once: they and the sum stay in the processor's cache
_SILENCE = bytes(8 * _PIECE)  # encrypted, it is the key stream


def framed(*parts: bytes) -> bytes:
    """The parts in one text, from which they can be told again.

    >>> framed(b"a", b"bc") == framed(b"ab", b"c")
    False
    """
    return b"".join(struct.pack("<I", len(part)) + part for part in parts)


def number(value: int) -> bytes:
    """The bytes of a counter, as part of a name."""
    return struct.pack("<I", value)


def derived(key: bytes, label: str, *parts: bytes) -> bytes:
    """The key for one purpose, named by a label and its parts."""
    info = framed(_PROTOCOL, label.encode(), *parts)
    return HKDF(algorithm=SHA256(), length=KEY, salt=None, info=info).derive(key)


def public_key(private: bytes) -> bytes:
    """The X25519 public key of 32 private bytes."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def agreed(private: bytes, public: bytes, whose: str) -> bytes:
    """What the holders of two X25519 keys have in common; a key of small order is refused."""
    try:
        return X25519PrivateKey.from_private_bytes(private).exchange(
            X25519PublicKey.from_public_bytes(public)
        )
    except ValueError as error:
        raise InvalidValue(f"public key of {whose}", "must be a point of large order", "another") from error


def sealed(key: bytes, content: bytes) -> bytes:
    """Encrypted and authenticated, with a key that is used for this content only."""
    return AESGCM(key).encrypt(_NONCE, content, None)


def unsealed(key: bytes, content: bytes) -> bytes | None:
    """What was sealed with the key; None: nothing was, or it was altered."""
    try:
        return AESGCM(key).decrypt(_NONCE, content, None)
    except InvalidTag:
        return None


def stream(key: bytes, length: int) -> bytes:
    """So many pseudo-random bytes, determined by the key."""
    return _encryptor(key).update(bytes(length))


def add_streams(words: Words, signed: Iterable[tuple[int, bytes]]) -> None:
    """Add (sign 1) or subtract (-1) the streams of keys, in place, modulo 2^64."""
    makers = [(sign, _encryptor(key)) for sign, key in signed]
    piece = np.empty(_PIECE, dtype="<u8")
    view = piece.data.cast("B")
    for first in range(0, words.size, _PIECE):
        part = words[first : first + _PIECE]
        for sign, maker in makers:
            maker.update_into(_SILENCE, view)
            (np.add if sign > 0 else np.subtract)(part, piece[: part.size], out=part)


def _encryptor(key: bytes) -> CipherContext:
    return Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()


class Bounded(NamedTuple):
    """A vector that keeps the bound, and what was done to it."""

    values: Floats  # (P,)
    factor: float  # 1: nothing; below: scaled by it; 0: it was not finite, and zeros stand for it


def bounded(vector: Floats, bound: float) -> Bounded:
    """The vector, scaled down to the bound where it is longer: clause (2).

    >>> bounded(np.array([3.0, 4.0]), 1.0)
    Bounded(values=array([0.6, 0.8]), factor=0.2)
    >>> bounded(np.array([3.0, np.nan]), 1.0)
    Bounded(values=array([0., 0.]), factor=0.0)
    """
    largest = float(np.abs(vector).max(initial=0.0))
    if not np.isfinite(largest):
        return Bounded(np.zeros(vector.shape), 0.0)
    if largest == 0:
        return Bounded(vector, 1.0)
    direction = vector / largest  # squares of the numbers themselves may overflow
    length = float(np.linalg.norm(direction))
    if length <= bound / largest:
        return Bounded(vector, 1.0)
    return Bounded(direction * (bound / length), bound / length / largest)


def to_ring(values: Floats, fraction_bits: int) -> Words:
    """Fixed-point numbers modulo 2^64: clause (1)."""
    return np.rint(values * 2.0**fraction_bits).astype(np.int64).view(np.uint64)


def from_ring(words: Words, fraction_bits: int) -> Floats:
    """What a sum stands for; words from 2^63 are negative."""
    return np.asarray(words.view(np.int64) * 2.0**-fraction_bits, dtype=np.float64)
