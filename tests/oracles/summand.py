"""A participant in secure sums, written from the page on the wire format alone: no line of the product.

It keeps its secrets in plain sight and forgets nothing; what it is asked is for the test to say.
"""

import hashlib
import json
import math
import secrets
import struct

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

PRIME = 2**256 + 297


def framed(*parts):
    return b"".join(struct.pack("<I", len(part)) + part for part in parts)


def u32(number):
    return struct.pack("<I", number)


def derived(key, label, *parts):
    return HKDF(SHA256(), 32, None, framed(b"bonafed secure sums 1", label.encode(), *parts)).derive(key)


def stream(key, words):
    cipher = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    return np.frombuffer(cipher.update(bytes(8 * words)), dtype="<u8")


def sealed(key, content):
    return AESGCM(key).encrypt(bytes(12), content, None)


def dh(private, public):
    return private.exchange(X25519PublicKey.from_public_bytes(public))


def public(private):
    return private.public_key().public_bytes_raw()


def shared(secret, needed, places):
    """So many of the shares, each of 33 bytes, are needed to find the secret."""
    rest = [secrets.randbelow(PRIME) for _ in range(needed - 1)]
    polynomial = [int.from_bytes(secret, "big"), *rest]
    return {
        x: (sum(a * x**k for k, a in enumerate(polynomial)) % PRIME).to_bytes(33, "big") for x in places
    }


class Summand:
    """One member in one batch."""

    def __init__(self, name, plan_bytes, sign):
        self.name, self.sign = name, sign
        self.digest, self.plan = hashlib.sha256(plan_bytes).digest(), json.loads(plan_bytes)
        self.names, self.count = self.plan["members"], self.plan["sums"]
        self.channel = X25519PrivateKey.generate()
        self.masks = [X25519PrivateKey.generate() for _ in range(self.count)]
        self.seeds = [secrets.token_bytes(32) for _ in range(self.count)]

    def keys(self):
        body = public(self.channel)
        for j in range(self.count):
            committed = derived(self.seeds[j], "commitment", self.digest, self.name.encode(), u32(j))
            body += public(self.masks[j]) + committed
        return body + self.sign(framed(b"bonafed secure sums: keys", self.digest, self.name.encode(), body))

    def shares(self, book):
        """Our parcels for the others; the book is taken to be right."""
        self.book, at, length = {}, 0, 32 * (1 + 2 * self.count)
        for name in self.names:
            (size,) = struct.unpack("<I", book[at : at + 4])
            if size:
                self.book[name] = book[at + 4 : at + 4 + length]
            at += 4 + size
        listed = [part for name, body in self.book.items() for part in (name.encode(), body)]
        self.book_digest = hashlib.sha256(framed(self.digest, *listed)).digest()
        self.others = [name for name in self.book if name != self.name]
        self.common = {
            other: derived(
                dh(self.channel, self.book[other][:32]), "channel", self.book_digest, *self.pair(other)
            )
            for other in self.others
        }
        places, needed = range(1, len(self.names) + 1), self.plan["threshold"]
        self.dealt = [
            [shared(secret, needed, places) for secret in (mask.private_bytes_raw(), seed)]
            for mask, seed in zip(self.masks, self.seeds, strict=True)
        ]
        return b"".join(
            sealed(
                self.parcel_key(self.name, other),
                b"".join(shares[self.place(other)] for both in self.dealt for shares in both),
            )
            for other in self.others
        )

    def input(self, which, vector, about, parcels):
        """The masked part; of a plan without noise."""
        size = len(parcels) // len(self.others)
        self.held = {
            other: AESGCM(self.parcel_key(other, self.name)).decrypt(
                bytes(12), parcels[size * k : size * (k + 1)], None
            )
            for k, other in enumerate(self.others)
        }
        assert float.fromhex(self.plan["noise"]) == 0.0
        _, exponent = math.frexp(len(self.names) * float.fromhex(self.plan["bound"]))
        words = np.array([round(x * 2.0 ** (62 - exponent)) % 2**64 for x in vector], dtype="<u8")
        name = (self.book_digest, u32(which), about)
        words = words + stream(derived(self.seeds[which], "own mask", *name), len(words))
        for other in self.others:
            theirs = self.book[other][32 + 64 * which : 64 + 64 * which]
            key = derived(dh(self.masks[which], theirs), "pair mask", *name, *self.pair(other))
            mask = stream(key, len(words))
            words = words + mask if self.place(self.name) < self.place(other) else words - mask
        return words.tobytes()

    def unmask(self, which, survivors):
        marks = bytes(name in survivors for name in self.names)
        content = b""
        for name in self.book:
            kind = 1 if name in survivors else 0
            if name == self.name:
                content += self.dealt[which][kind][self.place(name)]
            else:
                at = 33 * (2 * which + kind)
                content += self.held[name][at : at + 33]
        key = secrets.token_bytes(32)
        parts = shared(key, self.plan["threshold"] - 1, range(1, len(self.names) + 1))

        def token(owner, helper, other):
            about = (self.book_digest, u32(which), marks)
            return derived(self.common[other], "token", owner.encode(), helper.encode(), *about)

        answer = sealed(key, content)
        for other in self.others:
            if other in survivors:
                answer += sealed(token(self.name, other, other), parts[self.place(other)])
                answer += token(other, self.name, other)
        return answer

    def place(self, name):
        return self.names.index(name) + 1

    def pair(self, other):
        return tuple(name.encode() for name in sorted((self.name, other), key=self.names.index))

    def parcel_key(self, sender, receiver):
        other = receiver if sender == self.name else sender
        return derived(self.common[other], "parcel", sender.encode(), receiver.encode())
