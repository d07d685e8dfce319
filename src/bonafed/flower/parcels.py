"""Bytes as the content of a Flower message, and back.

A short message is a value, a long one an array of bytes: Flower sends arrays in pieces, so that they may be
large, but with a request for each of the parts that an array consists of.
"""

from __future__ import annotations

from typing import Final

from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

from bonafed.errors import BonafedError

MESSAGE_TYPE: Final = "query"
_RECORD: Final = "bonafed"
_MESSAGE: Final = "message"
_KIND: Final = "bonafed.bytes"
_SHORT: Final = 1 << 20  # bytes


class BadParcel(BonafedError):
    """The content of a Flower message that is none of ours."""


def packed(data: bytes) -> RecordDict:
    """Bytes as the content of a message."""
    if len(data) <= _SHORT:
        return RecordDict({_RECORD: ConfigRecord({_MESSAGE: data})})
    return RecordDict({_RECORD: ArrayRecord({_MESSAGE: Array("uint8", (len(data),), _KIND, data)})})


def unpacked(content: RecordDict) -> bytes:
    """The bytes in the content of a message."""
    short, long = content.config_records.get(_RECORD), content.array_records.get(_RECORD)
    value: object = None
    if short is not None:
        value = short.get(_MESSAGE)
    elif long is not None and _MESSAGE in long and long[_MESSAGE].stype == _KIND:
        value = long[_MESSAGE].data
    if not isinstance(value, bytes):
        raise BadParcel("must be a message of bonafed, got other content")
    return value
