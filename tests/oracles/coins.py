"""Verifiable coins, slow and obvious: from the words of the protocol, sharing nothing with the package."""

import hashlib
import struct
from fractions import Fraction


def encoded(purpose, *parts):
    whole = b""
    for part in (f"bonafed coins 1: {purpose}".encode(), *parts):
        whole += struct.pack(">Q", len(part)) + part
    return whole


def sha(purpose, *parts):
    return hashlib.sha256(encoded(purpose, *parts)).digest()


def beacon(contract, secret, rounds, draws, clients):
    """`clients`: (name, chance, nonce or None, nonce commitment) each."""
    listed = [
        part
        for name, chance, _, commitment in clients
        for part in (name.encode(), bytes.fromhex(commitment), struct.pack(">d", chance))
    ]
    several = b"" if draws is None else struct.pack(">Q", draws)
    roster = sha(
        "roster",
        bytes.fromhex(contract),
        sha("server", secret),
        struct.pack(">Q", rounds),
        several,
        *listed,
    )
    return sha("beacon", roster, secret, *(nonce or b"" for _, _, nonce, _ in clients))


def uniform(seed, round_number, place):
    """The exact fraction of a place in a round, one at a time."""
    stream = hashlib.shake_256(encoded("round", seed, struct.pack(">Q", round_number)))
    return Fraction(int.from_bytes(stream.digest(8 * place + 8)[-8:], "big"), 2**64)


def participants(contract, secret, rounds, draws, clients, round_number):
    seed = beacon(contract, secret, rounds, draws, clients)
    chances = [Fraction(chance) for _, chance, _, _ in clients]
    if draws is None:
        found = [n for n, q in enumerate(chances) if uniform(seed, round_number, n) < q]
    else:
        found = []
        for place in range(draws):
            u, k = uniform(seed, round_number, place), 0
            while not u < sum(chances[: k + 1]) / sum(chances):
                k += 1
            found.append(k)
    return [n for n in found if clients[n][2] is not None]
