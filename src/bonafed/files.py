"""Writing results: all of them or none, and never half a file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from bonafed.errors import InvalidValue


def write_together(contents: Mapping[Path, bytes]) -> None:
    """Write every file completely beside its place first, then move all into place."""
    for path in contents:
        require_writable(path)
    partials = {path: path.with_name(path.name + ".partial") for path in contents}
    try:
        for path, data in contents.items():
            try:
                partials[path].write_bytes(data)
            except OSError as error:  # its message names the partial file, or none
                raise OSError(error.errno, error.strerror, str(path)) from error
        for path, partial in partials.items():
            partial.replace(path)
    finally:
        for partial in partials.values():
            partial.unlink(missing_ok=True)


PICTURES = (".png", ".svg", ".pdf")


def require_picture(path: Path) -> None:
    """A figure can be written there."""
    if path.suffix.lower() not in PICTURES:
        raise InvalidValue("--plot", "must end in .png, .svg or .pdf", path)
    require_writable(path)


def require_writable(path: Path) -> None:
    """A file can be written there: its folder exists and it is not a folder itself."""
    if not path.parent.is_dir():
        raise InvalidValue("output", "must be in an existing folder", path)
    if path.is_dir():
        raise InvalidValue("output", "must not be a folder", path)


def require_different(name: str, path: Path, other: str, other_path: Path) -> None:
    """Two outputs of one command go to different files."""
    if path.resolve() == other_path.resolve():
        raise InvalidValue(name, f"must not be the same file as {other}", path)


def write_secret(path: Path, data: bytes) -> None:
    """A new file that only its owner may read; one that exists is never replaced."""
    require_writable(path)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    try:
        handle = os.open(path, flags, 0o600)
    except FileExistsError as error:
        rule = "must be a new file: a secret is used once and never replaced"
        raise InvalidValue("secret", rule, path) from error
    with os.fdopen(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
