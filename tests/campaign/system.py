"""What a command asks of the file system, one operation at a time: recorded, failed, or cut short.

`Shim(root, decide)` stands, in a forked process, between Python and the system calls that open, write,
force to disk, rename, create and remove what lies below `root`. Before each it asks `decide(n, operation)`
and does what that answers: nothing special (None), or one of

    Kill()            SIGKILL now                Kill(halfway=True)    after half of the bytes are written
    Fail(errno)       the error of a system      Fail(e, halfway=True) likewise: a disk that gets full
    Interrupt()       Ctrl-C

Errors look like those of the system: `write` and `fsync` do not say which file they are about.
"""

from __future__ import annotations

import builtins
import io
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

# name of the function in os -> whether its first argument is a descriptor
_CALLS = {
    "open": False, "mkdir": False, "rename": False, "replace": False, "link": False, "symlink": False,
    "unlink": False, "remove": False, "rmdir": False, "chmod": False, "truncate": False, "fsync": True,
    "fdatasync": True, "ftruncate": True, "fchmod": True, "write": True,
}  # fmt: skip
WITHOUT_NAME = ("write", "fsync", "fdatasync", "ftruncate", "truncate", "fchmod")  # of the file, in errors


class Operation(NamedTuple):
    """A system call on a file."""

    call: str  # "write", ...; an open that only reads is "read", one of a file that is there "reopen"
    path: str  # below the root
    size: int = 0  # bytes of a write
    target: str = ""  # the new name of a file that is renamed


class Kill(NamedTuple):
    """End the process as SIGKILL does."""

    halfway: bool = False  # after half of a write


class Fail(NamedTuple):
    """Let the operation fail."""

    errno: int
    halfway: bool = False


class Interrupt(NamedTuple):
    """Ctrl-C, just before the operation."""


Action = Kill | Fail | Interrupt | None
Decide = Callable[[int, Operation], Action]


class Shim:
    """Stands between this process and the file system from `install` on."""

    def __init__(self, root: Path, decide: Decide) -> None:
        self._root, self._decide = root.resolve(), decide
        self._count = 0
        self._real = {name: getattr(os, name) for name in _CALLS}
        self._open = io.open

    def install(self) -> None:
        """Replace the functions of `os` and `io`; for good, in a process that ends soon."""
        for name, by_descriptor in _CALLS.items():
            setattr(os, name, self._wrapped(name, by_descriptor))
        io.open = builtins.open = self._opened  # type: ignore[assignment]  # what pathlib, os.fdopen use

    def _wrapped(self, name: str, by_descriptor: bool) -> Callable[..., Any]:
        real = self._real[name]

        def call(target: Any, *args: Any, **options: Any) -> Any:
            path = _of_descriptor(target) if by_descriptor else _absolute(target, options)
            kind = name
            if name == "open" and not (args and args[0] & (os.O_WRONLY | os.O_RDWR)):
                kind = "read"
            elif (
                name == "open"
                and not args[0] & os.O_EXCL
                and (os.path.lexists(path) or not args[0] & os.O_CREAT)
            ):
                kind = "reopen"
            if name == "write":
                half = args[0][: len(args[0]) // 2]
                self.step(kind, path, len(args[0]), half=lambda: real(target, half))
            elif name in ("rename", "replace"):
                self.step("rename", path, target=_absolute(args[0], {}))
            elif kind in ("mkdir", "open") or os.path.lexists(path):
                self.step(kind, path)  # in all other cases the system says itself that it is not there
            return real(target, *args, **options)

        return call

    def step(
        self, call: str, path: str, size: int = 0, target: str = "", half: Callable[[], Any] | None = None
    ) -> None:
        """An operation is about to happen; may not return, or raise."""
        inside = self._inside(path)
        if inside is None:
            return
        self._count += 1
        operation = Operation(call, inside, size, self._inside(target) or "")
        action = self._decide(self._count, operation)
        if action is None:
            return
        if isinstance(action, Interrupt):
            raise KeyboardInterrupt
        if action.halfway and half is not None:
            half()
        if isinstance(action, Kill):
            os.kill(os.getpid(), signal.SIGKILL)
        else:
            name = () if call in WITHOUT_NAME else (path,)
            raise OSError(action.errno, os.strerror(action.errno), *name)

    def _inside(self, path: str) -> str | None:
        try:
            return str(Path(path).relative_to(self._root))
        except ValueError:
            return None

    def _opened(
        self,
        file: Any,
        mode: str = "r",
        buffering: int = -1,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        closefd: bool = True,
        opener: Any = None,
    ) -> Any:
        writes = set(mode) & set("wax+")
        if isinstance(file, int):
            path = _of_descriptor(file)
        else:
            path = _absolute(file, {})
            self.step("open" if writes else "read", path)
        if not writes or opener is not None:
            return self._open(file, mode, buffering, encoding, errors, newline, closefd, opener)
        raw = _Watched(file, mode.replace("b", "").replace("t", ""), closefd)
        raw.shim, raw.watched = self, path
        if buffering == 0:
            return raw
        buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
        return buffered if "b" in mode else io.TextIOWrapper(buffered, encoding, errors, newline)


class _Watched(io.FileIO):
    """A file that asks before it writes."""

    shim: Shim
    watched: str

    def write(self, data: Any) -> int:
        half = bytes(data[: len(data) // 2])
        self.shim.step("write", self.watched, len(data), half=lambda: super(_Watched, self).write(half))
        return super().write(data)

    def truncate(self, size: int | None = None) -> int:
        self.shim.step("ftruncate", self.watched)
        return super().truncate(size)


def _of_descriptor(descriptor: int) -> str:
    try:
        return str(Path(f"/proc/self/fd/{descriptor}").readlink()).removesuffix(" (deleted)")
    except OSError:
        return ""


def _absolute(target: Any, options: dict[str, Any]) -> str:
    path = os.fsdecode(target)
    folder = options.get("dir_fd", options.get("src_dir_fd"))
    return str(Path.cwd() / path) if folder is None else str(Path(_of_descriptor(folder)) / path)


class Recorder:
    """Records the operations of a command, one line each, into a file outside the root."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._write = os.write

    def __call__(self, _number: int, operation: Operation) -> None:
        self._write(self._descriptor, "\t".join(map(str, operation)).encode() + b"\n")


def recorded(path: Path) -> list[Operation]:
    """What a recorder wrote."""
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = [line.split("\t") for line in lines]
    return [Operation(call, path, int(size), target) for call, path, size, target in rows]


def ends_as(operations: Sequence[Operation]) -> list[str]:
    """Of each operation, the name that its file has in the end: drafts are renamed."""
    renamed = {operation.path: operation.target for operation in operations if operation.call == "rename"}
    return [renamed.get(operation.path, operation.path) for operation in operations]
