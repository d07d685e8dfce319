"""Secrets of verifiable coins as files: hexadecimal digits that only their owner may read."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from bonafed.contracts.coins import SECRET_BYTES, commit
from bonafed.errors import InvalidValue, UnreadableFile
from bonafed.files import require_different, require_writable, write_secret, write_together


class CoinSecret(NamedTuple):
    """The server's secret for a contract that is about to be written."""

    path: Path
    value: bytes

    @property
    def commitment(self) -> str:
        """What the contract publishes about the secret."""

        return commit(self.value)


def new_coin_secret(path: Path, save: Path | None) -> CoinSecret:
    """The secret of --commit-coins: drawn now, written together with the contract."""
    if save is None:
        raise InvalidValue("--commit-coins", "requires --save: the contract commits to it", path)
    require_writable(path)
    return CoinSecret(path, secrets.token_bytes(SECRET_BYTES))


def write_with_secret(outputs: Mapping[Path, bytes], secret: CoinSecret) -> None:
    """Write all or nothing: no contract without its secret, no secret without its contract."""
    for path in outputs:  # including the signature
        require_different("--commit-coins", secret.path, "another output", path)
    write_secret(secret.path, hex_line(secret.value))
    try:
        write_together(outputs)
    except BaseException:
        if not all(path.is_file() and path.read_bytes() == data for path, data in outputs.items()):
            secret.path.unlink()  # otherwise Ctrl-C came after everything was written
        raise


def hex_line(value: bytes) -> bytes:
    """A secret as the content of a file."""
    return (value.hex() + "\n").encode()


def read_hex(path: Path) -> bytes:
    """The secret in a file written by `hex_line`."""
    try:
        return bytes.fromhex(path.read_text(encoding="ascii").strip())
    except OSError as error:
        raise UnreadableFile(path, error.strerror or str(error)) from error
    except ValueError as error:
        raise UnreadableFile(path, f"must hold {2 * SECRET_BYTES} hexadecimal digits") from error
