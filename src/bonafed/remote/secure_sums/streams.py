"""Keys from keys, and masks from keys: HKDF-SHA256 and AES-256 in counter mode.

Every derived key is named by a label and by all that it is for, each part with its length in front, so that
no two purposes share a key. A key that encrypts is used for one message only; hence nonces are all zero.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

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
    """A counter as part of a name."""
    return struct.pack("<I", value)


def derived(key: bytes, label: str, *parts: bytes) -> bytes:
    """The key for a purpose."""
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
    """So many pseudo-random bytes."""
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
