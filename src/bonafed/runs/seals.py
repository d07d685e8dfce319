"""Files that vouch for themselves and for others: a flipped bit, a cut or another run's file is told.

    JSON         an object whose last key, `sha256`, is the digest of the file without it
    archive      an .npz whose last 64 bytes, a comment to other readers, are the digest of those before
    SHA256SUMS   a digest and a name per line, as `sha256sum --check` reads them; the first line, a comment
                 to it, is the digest of the others

A digest is no signature. It protects against damage and against files that were mixed up, not against
somebody who rewrites a file together with everything that vouches for it.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bonafed.errors import UnreadableFile

JSONObject = dict[str, Any]
_OWN = "sha256"  # key of a JSON file that holds the digest of the rest
_HEX = 64  # digits of a SHA-256
_SEALED = re.compile(rb'(.*),\n "sha256": "([0-9a-f]{64})"\n\}\n', re.DOTALL)
_TITLE = "# SHA-256 of the lines below: "
_LINE = re.compile(r"([0-9a-f]{64})  (.+)")
_DAMAGED = "was changed since it was written: it does not match the SHA-256 that it ends with"


def sha256(content: bytes) -> str:
    """In hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def to_json(value: Mapping[str, Any]) -> bytes:
    """The content of a JSON file in the folder of a run."""
    return (json.dumps(value, indent=1, allow_nan=False) + "\n").encode()


def sealed_json(value: Mapping[str, Any]) -> bytes:
    """The content of a JSON file that vouches for itself."""
    return to_json({**value, _OWN: sha256(to_json(value))})


def open_json(path: Path, content: bytes) -> JSONObject:
    """What `sealed_json` was given; checked before anything is parsed."""
    match = _SEALED.fullmatch(content)
    if match is None:
        raise UnreadableFile(path, "nothing vouches for it: an older bonafed wrote it, or it is damaged")
    rest = match[1] + b"\n}\n"
    if sha256(rest).encode() != match[2]:
        raise UnreadableFile(path, _DAMAGED)
    return parsed_json(path, rest)


def parsed_json(path: Path, content: bytes) -> JSONObject:
    """The object in the content of a JSON file."""
    try:
        value = json.loads(content.decode("utf-8"))
    except RecursionError as error:
        raise UnreadableFile(path, "not JSON: nested too deeply") from error
    except ValueError as error:
        raise UnreadableFile(path, f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise UnreadableFile(path, "must be an object")
    return value


def sealed_archive(arrays: Mapping[str, NDArray[Any]]) -> tuple[bytes, str]:
    """The content of an .npz that vouches for itself, and the SHA-256 of all of it: one pass makes both."""
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    with zipfile.ZipFile(buffer, "a") as archive:
        archive.comment = bytes(_HEX)
    content = buffer.getbuffer()[:-_HEX]
    digest = hashlib.sha256(content)
    seal = digest.hexdigest().encode()
    digest.update(seal)
    return bytes(content) + seal, digest.hexdigest()


def open_archive(content: bytes) -> dict[str, NDArray[Any]]:
    """What `sealed_archive` was given; ValueError if it is damaged, before anything is unpacked."""
    if sha256(content[:-_HEX]).encode() != content[-_HEX:]:
        raise ValueError(_DAMAGED)
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


def sums(digests: Mapping[str, str]) -> bytes:
    """The content of SHA256SUMS."""
    lines = "".join(f"{digest}  {name}\n" for name, digest in digests.items()).encode()
    return f"{_TITLE}{sha256(lines)}\n".encode() + lines


def open_sums(path: Path, content: bytes) -> dict[str, str]:
    """What `sums` was given."""
    title, _, lines = content.partition(b"\n")
    if title != f"{_TITLE}{sha256(lines)}".encode():
        raise UnreadableFile(path, "was changed since it was written: it does not match its first line")
    found = [_LINE.fullmatch(line) for line in lines.decode().splitlines()]
    return {match[2]: match[1] for match in found if match is not None}
