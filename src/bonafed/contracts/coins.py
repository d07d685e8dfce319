"""Coins that nobody chose and anybody can check: commit, reveal, recompute.

A contract is truthful on average over the coins, so the coins must not be known to whoever reports, nor
chosen by whoever samples. They come from a secret of the server and a nonce of every client:

    (1)  the server draws a secret s and publishes H(s) in the contract, before anybody reports;
    (2)  client n draws a nonce x_n and sends H(contract, n, x_n) with its report;
    (3)  the server publishes the roster: every name, its commitment and its chance. From here on nothing
         can be changed. A client looks for its own line, notes the digest of the roster, and only then
    (4)  reveals its nonce, where all can see it. One that does not is not admitted: its coins are never
         heads, draws that fall on it are void, and nobody else's chance changes;
    (5)  beacon = H(roster, s, x_1, ..., x_N). Round r has the uniform whole numbers
             u_{r,1}, u_{r,2}, ... below 2^64, eight bytes each of SHAKE256(beacon, r);
    (6)  sampling: client n is in round r if u_{r,n} < q_n 2^64, each for itself (`draws` is None);
         JSAM: the i-th draw of round r is the first client k with u_{r,i} < (p_1 + ... + p_k) 2^64;
    (7)  after the run the server opens s, and anybody can compute (5) and (6) again.

If one client draws its nonce at random and keeps it to itself until (4), the beacon is a fresh random
number to everybody else. So it is to the server, which (1) and (3) bind before it sees that nonce. If the
server is the honest one, no client knows anything about the coins before it is sampled. What
remains: whoever knows s and all other nonces can still decide *whether* to reveal, so that k clients who
help the server choose among 2^k beacons, at the price of not being admitted and of being listed
(`Coins.withheld`).

Rounding. A coin is heads with probability ceil(q 2^64)/2^64: exactly q for 0 and for every double of at
least 2^-12, otherwise too often by less than 2^-64. A draw falls on k with probability
p_k/(p_1 + ... + p_N) to within 2^-64, and never on a client of chance 0.

H is SHA-256 over a tag and every part with its length before it, so that no two lists of parts read alike.
Pure: randomness arrives as bytes; nothing here reads a clock or a disk.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue

SECRET_BYTES = 32  # of a secret and of a nonce: nobody guesses 256 bits
_TAG = "bonafed coins 1: "  # the version of this protocol; other coins, other tag
_BITS = 64  # of a uniform number
_HEX = re.compile(r"[0-9a-f]{64}")


def commit(secret: bytes) -> str:
    """(1): the commitment that the server publishes; 64 hexadecimal digits.

    >>> commit(bytes(32))[:16]
    '25a7a376132bdfea'
    """
    return _hash("server", _checked_secret("secret", secret)).hex()


def commit_nonce(contract: str, name: str, nonce: bytes) -> str:
    """(2): the commitment that a client sends; valid for this contract and this name only.

    `contract` is the SHA-256 of the contract's canonical form, 64 hexadecimal digits.
    """
    terms = bytes.fromhex(checked_digest("contract", contract))
    secret = _checked_secret(f"nonce of {_shown(name)}", nonce)
    return _hash("client", terms, checks.one_name("name of a client", name).encode(), secret).hex()


@dataclass(frozen=True, slots=True, eq=False)
class CoinRoster:
    """(3): all that is agreed before any nonce is revealed. A client is its place in it, from 0."""

    contract: str  # SHA-256 of the contract's canonical form, hexadecimal
    commitment: str  # of the server's secret, as in the contract
    rounds: int
    draws: int | None  # None: a coin per client and round; m: so many draws per round, with replacement
    names: tuple[str, ...]  # (N,) all different
    commitments: tuple[str, ...]  # (N,) of the nonces
    chances: Floats  # (N,) q_n in [0, 1] of being in a round; with draws p_k, up to a common factor

    def __post_init__(self) -> None:
        checked_digest("contract", self.contract)
        checked_digest("commitment", self.commitment)
        checks.whole("rounds", self.rounds)
        if self.draws is not None:
            checks.whole("draws", self.draws)
        checks.names("names", self.names)
        if len(self.commitments) != len(self.names):
            raise InvalidValue("commitments", f"must have {len(self.names)} values", len(self.commitments))
        for name, commitment in zip(self.names, self.commitments, strict=True):
            checked_digest(f"commitment of {name}", commitment)
        chances = checks.vector("chances", self.chances, length=len(self.names))
        if self.draws is None and chances.max() > 1:
            raise InvalidValue("chances", "must not exceed 1", float(chances.max()))
        if self.draws is not None and not chances.max() > 0:
            raise InvalidValue("chances", "must not all be 0", 0.0)
        object.__setattr__(self, "chances", chances)

    @property
    def digest(self) -> str:
        """64 hexadecimal digits: what a client notes down before it reveals."""
        return _hash("roster", *self._parts()).hex()

    def _parts(self) -> Iterator[bytes]:
        yield bytes.fromhex(self.contract)
        yield bytes.fromhex(self.commitment)
        yield _number(self.rounds)
        yield b"" if self.draws is None else _number(self.draws)
        for name, commitment, chance in zip(self.names, self.commitments, self.chances, strict=True):
            yield name.encode()
            yield bytes.fromhex(commitment)
            yield np.array(chance + 0.0, dtype=">f8").tobytes()  # -0 is 0


@dataclass(frozen=True, slots=True, eq=False)
class Coins:
    """(5): a roster whose commitments have been opened. What does not open is refused under its name."""

    roster: CoinRoster
    secret: bytes = field(repr=False)  # the server's; shown to nobody until the run has ended
    nonces: tuple[bytes | None, ...] = field(repr=False)  # (N,) None: not revealed, not admitted
    _beacon: bytes = field(init=False, repr=False)
    _able: NDArray[np.int64] = field(init=False, repr=False)  # places of those with a chance above 0
    _ends: NDArray[np.uint64] = field(
        init=False, repr=False
    )  # of each of them the last number that is its own

    def __post_init__(self) -> None:
        roster = self.roster
        if not hmac.compare_digest(commit(self.secret), roster.commitment):
            rule = f"must be the one committed to in the contract ({roster.commitment[:12]}...)"
            raise InvalidValue("secret", rule, f"one of commitment {commit(self.secret)[:12]}...")
        if len(self.nonces) != len(roster.names):
            raise InvalidValue("nonces", f"must have {len(roster.names)} values", len(self.nonces))
        for name, nonce, commitment in zip(roster.names, self.nonces, roster.commitments, strict=True):
            if nonce is None:
                continue
            own = commit_nonce(roster.contract, name, nonce)
            if own != commitment:
                rule = f"must be the one committed to ({commitment[:12]}...)"
                raise InvalidValue(f"nonce of {name}", rule, f"one of commitment {own[:12]}...")
        parts = (b"" if nonce is None else nonce for nonce in self.nonces)
        able = np.flatnonzero(roster.chances > 0)
        ends = (_coin_ends if roster.draws is None else _draw_ends)(roster.chances[able])
        object.__setattr__(
            self, "_beacon", _hash("beacon", bytes.fromhex(roster.digest), self.secret, *parts)
        )
        object.__setattr__(self, "_able", able)
        object.__setattr__(self, "_ends", ends)

    @property
    def withheld(self) -> tuple[str, ...]:
        """Clients that committed and did not reveal: not admitted."""
        return tuple(name for name, x in zip(self.roster.names, self.nonces, strict=True) if x is None)

    @property
    def beacon(self) -> str:
        """64 hexadecimal digits, from which all coins follow."""
        return self._beacon.hex()

    def participants(self, round_number: int) -> NDArray[np.int64]:
        """(6): the places of those who are in round 1, 2, ...; repeated if drawn more than once."""
        number = checks.whole("round", round_number, at_most=self.roster.rounds)
        if self.roster.draws is None:
            mine = uniforms(self._beacon, number, len(self.roster.names))[self._able]
            places = self._able[mine <= self._ends]
        else:
            numbers = uniforms(self._beacon, number, self.roster.draws)
            places = self._able[np.searchsorted(self._ends, numbers, side="left")]
        return places[self._admitted[places]]

    @property
    def _admitted(self) -> NDArray[np.bool_]:
        return np.array([nonce is not None for nonce in self.nonces])

    def times_in(self) -> NDArray[np.int64]:
        """(N,) rounds each client is in over the whole run, counted as often as it was drawn."""
        times = np.zeros(len(self.roster.names), dtype=np.int64)
        for number in range(1, self.roster.rounds + 1):
            np.add.at(times, self.participants(number), 1)
        return times


def toss(roster: CoinRoster, secret: bytes, revealed: Mapping[str, bytes]) -> Coins:
    """(5) from the nonces by name; clients without one have not revealed.

    >>> nonces = {"ada": bytes(32), "ben": bytes(31) + b"x"}
    >>> commitments = {name: commit_nonce("0" * 64, name, nonce) for name, nonce in nonces.items()}
    >>> roster = make_roster("0" * 64, commit(bytes(32)), 9, commitments, [0.5, 1.0])
    >>> coins = toss(roster, bytes(32), nonces)
    >>> [coins.participants(number).tolist() for number in (1, 2, 3)]
    [[0, 1], [0, 1], [1]]
    """
    names = set(roster.names)
    for name in revealed:
        if name not in names:
            raise InvalidValue("nonces", "must belong to clients on the roster", _shown(name))
    return Coins(roster, secret, tuple(revealed.get(name) for name in roster.names))


def make_roster(
    contract: str,
    commitment: str,
    rounds: int,
    commitments: Mapping[str, str],
    chances: ArrayLike,
    draws: int | None = None,
) -> CoinRoster:
    """(3) from the commitments by name, in the order of the chances."""
    values = checks.vector("chances", chances, length=len(commitments))
    names, hashes = tuple(commitments), tuple(commitments.values())
    return CoinRoster(contract, commitment, rounds, draws, names, hashes, values)


def uniforms(beacon: bytes, round_number: int, count: int) -> NDArray[np.uint64]:
    """(5): (count,) whole numbers below 2^64 of a round; the first ones do not depend on the count."""
    stream = hashlib.shake_256(_encoded("round", beacon, _number(round_number)))
    return np.frombuffer(stream.digest(8 * count), dtype=">u8").astype(np.uint64)


def _coin_ends(chances: Floats) -> NDArray[np.uint64]:
    """(N,) ceil(q 2^64) - 1 of chances above 0: a number is heads if it is at most that."""
    scaled = np.ceil(np.ldexp(chances, _BITS))  # exact: the exponent moves, and then whole numbers
    return np.array([int(x) - 1 for x in scaled.tolist()], dtype=np.uint64)


def _draw_ends(chances: Floats) -> NDArray[np.uint64]:
    """(N,) ceil((p_1 + ... + p_k)/(p_1 + ... + p_N) 2^64) - 1 of chances above 0: the last number of each.

    In whole numbers, since sums of floats depend on how a machine adds.
    """
    ratios = [p.as_integer_ratio() for p in chances.tolist()]
    common = max(below for _, below in ratios)  # all are powers of 2
    sums = list(accumulate(above * (common // below) for above, below in ratios))
    return np.array([-(-(one << _BITS) // sums[-1]) - 1 for one in sums], dtype=np.uint64)


def _hash(purpose: str, *parts: bytes) -> bytes:
    return hashlib.sha256(_encoded(purpose, *parts)).digest()


def _encoded(purpose: str, *parts: bytes) -> bytes:
    """A tag and parts of any length, each with its length before it."""
    return b"".join(len(part).to_bytes(8, "big") + part for part in ((_TAG + purpose).encode(), *parts))


def _number(value: int) -> bytes:
    return value.to_bytes(8, "big")


def checked_digest(name: str, value: object) -> str:
    """64 hexadecimal digits in lower case."""
    if not isinstance(value, str) or _HEX.fullmatch(value) is None:
        raise InvalidValue(name, "must be 64 hexadecimal digits in lower case", _shown(value))
    return value


def _checked_secret(name: str, value: object) -> bytes:
    if not isinstance(value, bytes):
        raise InvalidValue(name, f"must be {SECRET_BYTES} bytes", type(value).__name__)
    if len(value) != SECRET_BYTES:
        raise InvalidValue(name, f"must be {SECRET_BYTES} bytes", f"{len(value)} bytes")
    return value


def _shown(value: object) -> str:
    """Of an error message."""
    return repr(value)[:60]
