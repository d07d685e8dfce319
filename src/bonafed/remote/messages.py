"""What travels between a server and its clients, version 1: a signed header, and numbers.

    message    "BFM1"  u32 header length  header  u32 signature length  signature  body
    header     JSON in ASCII, keys sorted, no spaces, no key twice, with exactly these keys:
                 kind        what is asked or answered
                 run         32 hexadecimal digits; every run has its own
                 sender      name of a member, or "" for the server
                 recipient   likewise
                 answers     SHA-256 of the header of the request that this answers; "" in a request
                 content     an object, by kind
                 body        null, or {"dtype": "<f4" | "<f8" | "<u8", "length": n, "sha256": hex}
    signature  of "bonafed message 1", a zero byte, and the header
    body       n numbers, little-endian

Integers are unsigned, big-endian. The header holds the digest of the body, so that a signature is for all
of a message; it names run, sender, recipient and request, so that a message is of no use anywhere else.
Whoever reads a message checks the signature before anything else is believed.

Whatever carries messages is a `Transport`: bytes out, bytes or a failure back, by the name of the member.
It knows who is connected under which registered key, and reads nothing of what it carries.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from bonafed import checks
from bonafed.errors import BonafedError
from bonafed.learning.federation import Failure

MAGIC: Final = b"BFM1"
SERVER: Final = ""  # the server's name; no member can have it
MOST_HEADER: Final = 1 << 28  # bytes
MOST_SIGNATURE: Final = 1 << 10
_RTOL: Final = 1e-9  # of what two machines compute by the same formulas
_DOMAIN: Final = b"bonafed message 1\0"
_KEYS: Final = ("answers", "body", "content", "kind", "recipient", "run", "sender")
_DTYPES: Final = ("<f4", "<f8", "<u8")
_LENGTH: Final = struct.Struct(">I")
_RUN: Final = re.compile(r"[0-9a-f]{32}")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")

Sign = Callable[[bytes], bytes]
Verify = Callable[[str, bytes, bytes], bool]  # sender, what was signed, signature
JSONObject = dict[str, Any]


class BadMessage(BonafedError):
    """Bytes that are no message, or one that does not belong here; says what is wrong with it."""


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """What is said, by whom, to whom, in which run, and in answer to what."""

    kind: str
    run: str  # 32 hexadecimal digits
    sender: str  # name of a member, or SERVER
    recipient: str  # likewise
    content: Mapping[str, Any] = field(default_factory=dict)  # plain data
    numbers: NDArray[Any] | None = None  # (n,) of one of three kinds
    answers: str = ""  # SHA-256 of the header of the request, in hex; "": this is a request


@dataclass(frozen=True, slots=True, eq=False)
class Sealed:
    """A message as it was signed: evidence that outlives the connection."""

    message: Message
    header: bytes
    signature: bytes

    @property
    def digest(self) -> str:
        """What an answer refers to."""
        return hashlib.sha256(self.header).hexdigest()


def canonical(data: object) -> bytes:
    """Plain data as bytes, the same for the same data."""
    return json.dumps(data, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def digest_of(data: object) -> str:
    """SHA-256 of plain data, in hex."""
    return hashlib.sha256(canonical(data)).hexdigest()


def seal(message: Message, sign: Sign) -> tuple[Sealed, bytes]:
    """The message signed, and as bytes to be sent."""
    body, raw = None, b""
    if message.numbers is not None:
        numbers = np.ascontiguousarray(message.numbers, dtype=message.numbers.dtype.newbyteorder("<"))
        raw = numbers.tobytes()
        body = {
            "dtype": numbers.dtype.str,
            "length": int(numbers.size),
            "sha256": hashlib.sha256(raw).hexdigest(),
        }
    header = canonical(
        {
            "kind": message.kind, "run": message.run, "sender": message.sender,
            "recipient": message.recipient, "answers": message.answers, "content": message.content,
            "body": body,
        }
    )  # fmt: skip
    signature = sign(_DOMAIN + header)
    sealed = Sealed(message, header, signature)
    parts = (MAGIC, _LENGTH.pack(len(header)), header, _LENGTH.pack(len(signature)), signature, raw)
    return sealed, b"".join(parts)


def unseal(data: bytes, verify: Verify) -> Sealed:
    """The message in these bytes, once its signature is known to be its sender's."""
    header, signature, raw = _split(data)
    fields = _fields(header)
    if not verify(fields["sender"], _DOMAIN + header, signature):
        raise BadMessage(f"signature must be that of {fields['sender']!r} or of the server, got another")
    numbers = _numbers(fields["body"], raw)
    message = Message(
        fields["kind"], fields["run"], fields["sender"], fields["recipient"], fields["content"], numbers,
        fields["answers"],
    )  # fmt: skip
    return Sealed(message, header, signature)


def holds(header: bytes, signature: bytes, verify: Verify) -> Message | None:
    """The message of a header that somebody else keeps, without its body; None if it was not signed."""
    fields = _fields(header)
    if not verify(fields["sender"], _DOMAIN + header, signature):
        return None
    return Message(
        fields["kind"], fields["run"], fields["sender"], fields["recipient"], fields["content"],
        answers=fields["answers"],
    )  # fmt: skip


def _split(data: bytes) -> tuple[bytes, bytes, bytes]:
    if data[: len(MAGIC)] != MAGIC:
        raise BadMessage(f"message must begin with {MAGIC.decode()}, got {data[:8]!r}")
    header, rest = _piece(data, len(MAGIC), MOST_HEADER, "header")
    signature, rest = _piece(data, rest, MOST_SIGNATURE, "signature")
    return header, signature, data[rest:]


def _piece(data: bytes, at: int, most: int, name: str) -> tuple[bytes, int]:
    start = at + _LENGTH.size
    if len(data) < start:
        raise BadMessage(f"message must have a {name}, got {len(data):,} bytes")
    (length,) = _LENGTH.unpack(data[at:start])
    if length > most or start + length > len(data):
        raise BadMessage(f"length of the {name} must fit the message, got {length:,} bytes")
    return data[start : start + length], start + length


def _fields(header: bytes) -> JSONObject:
    try:
        fields = json.loads(header.decode("ascii"), object_pairs_hook=_once, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise BadMessage(f"header must be JSON in ASCII, got {type(error).__name__}: {error}") from error
    if not isinstance(fields, dict) or sorted(fields) != list(_KEYS):
        raise BadMessage(f"header must have the keys {', '.join(_KEYS)}, got {_keys(fields)}")
    if not checks.shallow(fields["content"]) or not isinstance(fields["content"], dict):
        raise BadMessage("content must be an object that is not nested too deeply")
    for key in ("kind", "sender", "recipient", "run", "answers"):
        if not isinstance(fields[key], str):
            raise BadMessage(f"{key} must be text, got {fields[key]!r:.60}")
    if not _RUN.fullmatch(fields["run"]):
        raise BadMessage(f"run must be 32 hexadecimal digits, got {fields['run']!r:.60}")
    if fields["answers"] and not _DIGEST.fullmatch(fields["answers"]):
        raise BadMessage(f"answers must be a SHA-256 in hex, got {fields['answers']!r:.80}")
    return fields


def _keys(fields: object) -> str:
    return ", ".join(map(str, fields))[:90] if isinstance(fields, dict) else type(fields).__name__


def _once(pairs: list[tuple[str, object]]) -> JSONObject:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a key is there twice")
    return fields


def _no_number(word: str) -> NoReturn:
    raise ValueError(f"numbers must be finite, got {word}")


def _numbers(body: object, raw: bytes) -> NDArray[Any] | None:
    if body is None:
        if raw:
            raise BadMessage(f"body must be empty, got {len(raw):,} bytes")
        return None
    if not isinstance(body, dict) or sorted(body) != ["dtype", "length", "sha256"]:
        raise BadMessage("body must have the keys dtype, length and sha256")
    if body["dtype"] not in _DTYPES:
        raise BadMessage(f"dtype must be one of {', '.join(_DTYPES)}, got {body['dtype']!r:.60}")
    kind = np.dtype(body["dtype"])
    if type(body["length"]) is not int or body["length"] * kind.itemsize != len(raw):
        raise BadMessage(f"body must hold {body['length']!r:.40} numbers, got {len(raw):,} bytes")
    if hashlib.sha256(raw).hexdigest() != body["sha256"]:
        raise BadMessage("body must have the digest that the header says, got another")
    return np.frombuffer(raw, dtype=kind)


Handle = Callable[[bytes], bytes]  # a participant: a request in, the answer out


class Transport(Protocol):
    """A way to reach the members of a federation."""

    def connected(self) -> Mapping[str, str]:
        """Who is there: name, and SHA-256 in hex of the public key in DER that it is registered with."""
        ...

    def exchange(self, messages: Mapping[str, bytes], ttl: float) -> Mapping[str, bytes | Failure]:
        """Send each its message and wait for the answers, at most `ttl` seconds; by name, sorted."""
        ...


@dataclass(frozen=True, slots=True)
class InProcess:
    """Members in this process: for tests, and to try a federation before it is deployed."""

    handles: Mapping[str, Handle]

    def connected(self) -> Mapping[str, str]:
        return dict.fromkeys(self.handles, "")

    def exchange(self, messages: Mapping[str, bytes], ttl: float) -> Mapping[str, bytes | Failure]:
        return {
            name: self.handles[name](message)
            if name in self.handles
            else Failure("not connected", absent=True)
            for name, message in sorted(messages.items())
        }


def first_difference(said: Any, due: Any, name: str) -> str | None:
    """Where plain data differ from what they should be, numbers but for rounding; None: nowhere."""
    if isinstance(due, dict):
        if not isinstance(said, dict) or said.keys() != due.keys():
            return name
        entries = ((said[key], due[key], f"{name}.{key}") for key in due)
        return next(filter(None, (first_difference(*entry) for entry in entries)), None)
    if isinstance(due, list | tuple):
        if not isinstance(said, list) or len(said) != len(due):
            return name
        rows = (
            (one, other, f"{name}[{at}]") for at, (one, other) in enumerate(zip(said, due, strict=True))
        )
        return next(filter(None, (first_difference(*row) for row in rows)), None)
    if isinstance(due, float) and isinstance(said, int | float) and not isinstance(said, bool):
        return None if math.isclose(said, due, rel_tol=_RTOL, abs_tol=1e-12) else name
    return None if said == due and isinstance(said, bool) == isinstance(due, bool) else name
