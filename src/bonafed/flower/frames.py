"""Bytes on their way: frames between two processes of one user, and the content of Flower messages.

    frame    u32 length of the header, u64 length of the body, header, body    (unsigned, big-endian)

Sockets lie in a folder that only their owner may enter (mode 0700), have mode 0600 themselves, and whoever
connects must be the same user, where the system says who it is.

In a Flower message a short content is a value, a long one an array of bytes: Flower sends arrays in pieces,
so that they may be large, but with a request for each of the parts that an array consists of.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bonafed.errors import BonafedError, InvalidValue

if TYPE_CHECKING:  # Flower takes a second to import, and most of what reads frames needs none of it
    from flwr.app import RecordDict

_LENGTHS: Final = struct.Struct(">IQ")
MOST_HEADER: Final = 1 << 16  # bytes
MOST_BODY: Final = (1 << 31) - 1  # bytes; Flower itself carries no more in one message
_LONGEST_PATH: Final = (
    100  # bytes of a socket's path; the least that systems allow is 104 with a zero at the end
)
_CREDENTIALS: Final = struct.Struct("3i")  # process, user and group


class BadFrame(BonafedError):
    """Bytes that are no frame; says why."""


def send_frame(connection: socket.socket, header: Mapping[str, Any], body: bytes = b"") -> None:
    """Send a frame; one that is too long is refused."""
    head = json.dumps(header, separators=(",", ":")).encode()
    if len(head) > MOST_HEADER or len(body) > MOST_BODY:
        raise BadFrame(f"a frame must not exceed {MOST_BODY} bytes, got {len(head)} and {len(body)}")
    connection.sendall(_LENGTHS.pack(len(head), len(body)) + head)
    if body:
        connection.sendall(body)


def read_frame(connection: socket.socket) -> tuple[dict[str, Any], bytes] | None:
    """The next frame; None where the other side has ended between two frames."""
    lengths = _exactly(connection, _LENGTHS.size, may_end=True)
    if not lengths:
        return None
    head_length, body_length = _LENGTHS.unpack(lengths)
    if head_length > MOST_HEADER or body_length > MOST_BODY:
        raise BadFrame(f"a frame must not exceed {MOST_BODY} bytes, got {head_length} and {body_length}")
    head = _exactly(connection, head_length)
    body = _exactly(connection, body_length)
    try:
        header = json.loads(head)
    except (ValueError, RecursionError) as error:
        raise BadFrame("the header of a frame must be JSON") from error
    if not isinstance(header, dict):
        raise BadFrame("the header of a frame must be an object")
    return header, bytes(body)


def _exactly(connection: socket.socket, count: int, may_end: bool = False) -> bytearray:
    """So many bytes; with `may_end` perhaps none at all."""
    data = bytearray(count)
    view, done = memoryview(data), 0
    while done < count:
        got = connection.recv_into(view[done:], min(count - done, 1 << 20))
        if not got:
            if may_end and not done:
                return bytearray()
            raise BadFrame(f"a frame ended after {done} of {count} bytes")
        done += got
    return data


@contextmanager
def private_folder() -> Iterator[Path]:
    """A folder for sockets that only this user may enter, and that is removed in the end."""
    path = Path(tempfile.mkdtemp(prefix="bonafed-"))  # mode 0700
    try:
        if len(os.fsencode(path / "0000.socket")) > _LONGEST_PATH:
            rule = f"must leave room for paths of at most {_LONGEST_PATH} bytes"
            raise InvalidValue("folder for temporary files (TMPDIR)", rule, path.parent)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def listen(path: Path) -> socket.socket:
    """A new socket at this path, for its owner only."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        mask = os.umask(0o177)  # so that it never has any other mode
        try:
            listener.bind(str(path))
        finally:
            os.umask(mask)
        listener.listen(1)
    except BaseException:
        listener.close()
        raise
    return listener


def connect(path: str) -> socket.socket:
    """A connection to the socket at this path."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
    except BaseException:
        connection.close()
        raise
    return connection


def peer(connection: socket.socket) -> tuple[int, int] | None:
    """Process and user at the other side; None where the system does not say."""
    if not hasattr(socket, "SO_PEERCRED"):
        return None
    size = _CREDENTIALS.size
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    process, user, _ = _CREDENTIALS.unpack(credentials)
    return process, user


def is_own(connection: socket.socket) -> bool:
    """Whether the other side is this user; the folder keeps others out where the system does not say."""
    who = peer(connection)
    return who is None or who[1] == os.getuid()


MESSAGE_TYPE: Final = "query"
_RECORD: Final = "bonafed"
_MESSAGE: Final = "message"
_KIND: Final = "bonafed.bytes"
_SHORT: Final = 1 << 20  # bytes


class BadContent(BonafedError):
    """The content of a Flower message that is none of ours."""


def packed(data: bytes) -> RecordDict:
    """Bytes as the content of a Flower message."""
    from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

    if len(data) <= _SHORT:
        return RecordDict({_RECORD: ConfigRecord({_MESSAGE: data})})
    return RecordDict({_RECORD: ArrayRecord({_MESSAGE: Array("uint8", (len(data),), _KIND, data)})})


def unpacked(content: RecordDict) -> bytes:
    """The bytes in the content of a Flower message."""
    short, long = content.config_records.get(_RECORD), content.array_records.get(_RECORD)
    value: object = None
    if short is not None:
        value = short.get(_MESSAGE)
    elif long is not None and _MESSAGE in long and long[_MESSAGE].stype == _KIND:
        value = long[_MESSAGE].data
    if not isinstance(value, bytes):
        raise BadContent("must be a message of bonafed, got other content")
    return value
