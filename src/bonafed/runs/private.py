"""The private folder of a run: what must not be shared, kept apart from what may be.

`runs/mine` can be shared; `runs/mine.private` cannot. It holds the secrets that the run needs to go on, and
what only the simulation knows. The folder has mode 0700, its files 0600; both are newly created, and never
reached through a symbolic link.
"""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from bonafed.errors import InvalidValue, UnreadableFile
from bonafed.files import remove_drafts, sync_folder, write_together

SECRET_BYTES = 32
NOISE = "noise"  # the secret that keys the noise of a run
COINS = "coins"  # the secret of the server that its coins come from
SIMULATION = "simulation.json"  # what only a simulation knows; no promise of privacy covers it
_ENDING = ".secret"
_NO_LINKS = getattr(os, "O_NOFOLLOW", 0)


def private_folder(folder: Path) -> Path:
    """The private folder, beside the folder of the run."""
    return folder.with_name(folder.name + ".private")


def require_no_secret(folder: Path) -> None:
    """Require a private folder without a secret: one would belong to a run that was moved away."""
    private = private_folder(folder)
    if os.path.lexists(private) and (private.is_symlink() or not private.is_dir()):
        raise InvalidValue("private folder", "must be a folder", private)
    for path in private.glob("*" + _ENDING):
        rule = "must hold no secret of another run: move it to where that run is now, or delete it"
        raise InvalidValue("private folder", rule, path)


def create_secret(folder: Path, name: str) -> bytes:
    """A new secret from the operating system, on disk before anything can depend on it."""
    value = secrets.token_bytes(SECRET_BYTES)
    write_private(folder, name + _ENDING, value)
    return value


def holds_secret(folder: Path, name: str) -> bool:
    """Whether the secret of a run is there."""
    return (private_folder(folder) / (name + _ENDING)).is_file()


def read_secret(folder: Path, name: str, needed_for: str) -> bytes:
    """A secret of a run that is resumed; in the error, `needed_for` says what it is needed for."""
    path = private_folder(folder) / (name + _ENDING)
    if not path.is_file() or path.is_symlink():
        rule = f"must exist to resume: {needed_for}; a new run makes its own"
        raise InvalidValue(f"secret {path}", rule, "no such file")
    _make_folder(folder)  # refuses links, and revokes rights that a copy or a backup gave to others
    path.chmod(0o600)
    value = _read(path)
    if len(value) != SECRET_BYTES:
        raise UnreadableFile(path, f"must hold {SECRET_BYTES} bytes, got {len(value)}")
    return value


def erase_secret(folder: Path, name: str) -> None:
    """Overwrite and delete a secret, if it exists, and its folder, if it is then empty."""
    path = private_folder(folder) / (name + _ENDING)
    try:
        handle = os.open(path, os.O_WRONLY | _NO_LINKS)
    except FileNotFoundError:
        pass
    else:
        with suppress(OSError), os.fdopen(handle, "wb") as file:  # on a full disk it can still be removed
            file.write(bytes(os.fstat(file.fileno()).st_size))
            file.flush()
            os.fsync(file.fileno())
        path.unlink()
    if path.parent.is_dir() and not path.parent.is_symlink():
        remove_drafts(path.parent)
    with suppress(OSError):  # it has other files, or never existed
        path.parent.rmdir()


def erase_secrets(folder: Path) -> None:
    """Erase what a run kept until its end."""
    for name in (NOISE, COINS):
        erase_secret(folder, name)


def write_private(folder: Path, name: str, data: bytes, *, replace: bool = False) -> Path:
    """Write a file in the private folder of a run as a whole, forced to disk; new unless `replace`."""
    private = _make_folder(folder)
    path = private / name
    if os.path.lexists(path) and not replace:
        raise InvalidValue("private file", "must not exist yet", path)
    write_together({path: data}, private=True)
    return path


def _make_folder(folder: Path) -> Path:
    private = private_folder(folder)
    private.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        private.mkdir(mode=0o700)
        sync_folder(private.parent)
    status = os.lstat(private)
    if not stat.S_ISDIR(status.st_mode):
        raise InvalidValue("private folder", "must be a folder", private)
    if hasattr(os, "geteuid") and status.st_uid != os.geteuid():
        raise InvalidValue("private folder", "must belong to the user running this", private)
    if stat.S_IMODE(status.st_mode) & 0o077:
        private.chmod(0o700)
    return private


def _read(path: Path) -> bytes:
    try:
        handle = os.open(path, os.O_RDONLY | _NO_LINKS)
    except OSError as error:
        raise UnreadableFile(path, error.strerror or str(error)) from error
    with os.fdopen(handle, "rb") as file:
        return file.read()
