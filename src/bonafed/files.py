"""Writing results: all of them or none, never half a file, and never through a link.

There is one way to write a file. Its content goes into a draft beside its place, a new file with a random
name (O_EXCL and O_NOFOLLOW: nobody can have put a link there), is forced to disk, and is then renamed. A
crash leaves the old content or the new one. Whatever fails, no draft stays behind; only a process that is
killed can leave one, `.bonafed-<random>.partial`.

An output that is a symbolic link is refused: following it would overwrite a file that nobody named, and
replacing it would destroy the link. A file that is replaced keeps its permissions; a new one has those that
the umask leaves, and a secret is its owner's alone.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from bonafed.errors import InvalidValue

_NO_LINKS = getattr(os, "O_NOFOLLOW", 0)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | _NO_LINKS | getattr(os, "O_BINARY", 0)
APPENDING = os.O_RDWR | os.O_APPEND | os.O_CREAT | _NO_LINKS | getattr(os, "O_BINARY", 0)
_DRAFT = re.compile(r"\.bonafed-[0-9a-f]{16}\.partial")
_EVERYBODY, _OWNER = 0o666, 0o600  # permissions of a new file, before the umask


def write_together(contents: Mapping[Path, bytes], *, private: bool = False) -> None:
    """Write every file completely beside its place first, then move all into place.

    If one cannot be moved, those that were are put back. With `private`, only their owner may read them.
    """
    for path in contents:
        require_writable(path)
    with ExitStack() as cleaning:
        drafts = {path: _draft(path, data, private, cleaning) for path, data in contents.items()}
        before = _kept(contents, private, cleaning) if len(contents) > 1 else {}
        moved: list[Path] = []
        try:
            for path, draft in drafts.items():
                with named(path):
                    draft.replace(path)
                moved.append(path)
        except BaseException:
            for path in moved:
                old = before.get(path)
                if old is None:
                    path.unlink()
                else:
                    old.replace(path)
            raise
    for folder in dict.fromkeys(path.parent for path in contents):
        sync_folder(folder)


def open_log(path: Path) -> IO[bytes]:
    """A log that begins anew, for its owner only; never through a link."""
    with named(path):
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | _NO_LINKS, _OWNER)
    return os.fdopen(handle, "wb")


def write_new(path: Path, data: bytes, name: str, rule: str) -> None:
    """A new file that only its owner may read; one that exists is refused by `name` and `rule`."""
    require_writable(path)
    try:
        _create(path, data, _OWNER)
    except FileExistsError as error:
        raise InvalidValue(name, rule, path) from error
    try:
        sync_folder(path.parent)
    except BaseException:  # Ctrl-C
        path.unlink()
        raise


def write_secret(path: Path, data: bytes) -> None:
    """A new file that only its owner may read; one that exists is never replaced."""
    write_new(path, data, "secret", "must be a new file: a secret is used once and never replaced")


@contextmanager
def named(path: Path) -> Iterator[None]:
    """An error of the system inside is about this file; its message may name a draft, or no file at all."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(path)) from error


def is_draft(path: Path) -> bool:
    """Whether a process that was killed left this."""
    return _DRAFT.fullmatch(path.name) is not None


def remove_drafts(folder: Path) -> None:
    """Remove what processes that were killed left in a folder; nobody else may be writing there."""
    for path in folder.iterdir():
        if is_draft(path):
            path.unlink()


def sync_folder(folder: Path) -> None:
    """Force the names in a folder to disk."""
    with suppress(OSError):  # not every system lets a folder be opened
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def write_all(handle: int, data: bytes) -> None:
    """Write all bytes: the system may take fewer at a time."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]


def _draft(path: Path, data: bytes, private: bool, cleaning: ExitStack) -> Path:
    """A new file beside `path` with this content, removed when `cleaning` ends unless it was moved."""
    draft = path.with_name(f".bonafed-{secrets.token_hex(8)}.partial")
    cleaning.callback(draft.unlink, missing_ok=True)
    with named(path):
        _create(draft, data, _OWNER if private else _EVERYBODY, like=None if private else path)
    return draft


def _kept(contents: Mapping[Path, bytes], private: bool, cleaning: ExitStack) -> dict[Path, Path]:
    """Copies of the files that are about to be replaced."""
    kept = {}
    for path in contents:
        if path.is_file():
            with named(path):
                old = path.read_bytes()
            kept[path] = _draft(path, old, private, cleaning)
    return kept


def _create(path: Path, data: bytes, mode: int, like: Path | None = None) -> None:
    """A new file, whole and on disk, or none; with the permissions of `like`, where that exists."""
    handle = os.open(path, _NEW, mode)
    try:
        try:
            if like is not None and like.exists() and hasattr(os, "fchmod"):
                os.fchmod(handle, like.stat().st_mode & 0o777)
            write_all(handle, data)
            os.fsync(handle)
        finally:
            os.close(handle)
    except BaseException as error:
        path.unlink()
        if isinstance(error, OSError):
            raise OSError(error.errno, error.strerror or str(error), str(path)) from error
        raise


PICTURES = (".png", ".svg", ".pdf")


def require_picture(path: Path) -> None:
    """A figure can be written there."""
    if path.suffix.lower() not in PICTURES:
        raise InvalidValue("--plot", "must end in .png, .svg or .pdf", path)
    require_writable(path)


def require_writable(path: Path) -> None:
    """A file can be written there: its folder exists, and it is no folder, link or device itself."""
    if not path.parent.is_dir():
        raise InvalidValue("output", "must be in an existing folder", path)
    if path.is_dir():
        raise InvalidValue("output", "must not be a folder", path)
    if path.is_symlink():
        raise InvalidValue("output", "must not be a symbolic link: name the file itself", path)
    if path.exists() and not path.is_file():
        raise InvalidValue("output", "must be a file", path)


def require_different(name: str, path: Path, other: str, other_path: Path) -> None:
    """Two outputs of one command go to different files."""
    if path.resolve() == other_path.resolve():
        raise InvalidValue(name, f"must not be the same file as {other}", path)
