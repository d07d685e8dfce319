"""A real federation on this machine: a SuperLink with TLS and authentication, and participants.

Whatever it starts, it ends; `Trial.close` requires that no process is left that names its folder.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from bonafed.flower.commands import register
from bonafed.flower.folder import Folder, NewFederation, make_federation
from bonafed.flower.participating import free_port

NAMES = ("ada", "ben", "cyd", "dan")
ECHO = ("-m", "tests.flower.echo")  # answers "name:message"
PARTICIPATE = ("-m", "bonafed", "participate")
_ROOT = Path(__file__).parents[2]
_CONNECTED = "connected to"
_PATIENCE = 120.0  # seconds until a process that was told to end has ended, on a machine that is busy


class Trial:
    """The processes of one federation."""

    def __init__(self, path: Path, names: Sequence[str] = NAMES) -> None:
        """A folder that exists already is taken as it is."""
        if not path.exists():
            make_federation(path, NewFederation(names, f"127.0.0.1:{free_port()}"))
        self.folder = Folder(path)
        self.membership = self.folder.membership()
        self._superlink: subprocess.Popen[bytes] | None = None
        self._participants: dict[str, subprocess.Popen[bytes]] = {}
        self._ended: list[int] = []  # leaders of process groups

    def start_superlink(self) -> None:
        """Start the SuperLink as the README says, and wait until it answers."""
        log = self.folder.path / "superlink.log"
        command = [sys.executable, "-m", "bonafed", "federation", "serve", str(self.folder.path)]
        with log.open("wb") as file:
            self._superlink = subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True)
        self._wait(log, "Uvicorn running", self._superlink)

    def kill_superlink(self) -> None:
        """As if the machine had failed."""
        assert self._superlink is not None
        self._superlink.kill()
        self._end(self._superlink)

    def register(self) -> None:
        """Register all keys of the roster."""
        register(self.folder)

    def start(self, name: str, program: Sequence[str] = ECHO, settings: Path | None = None) -> None:
        """Start a participant; `said` tells what it says."""
        command = [sys.executable, *program, str(settings or self.folder.settings(name))]
        with self._log(name).open("wb") as file:
            self._participants[name] = subprocess.Popen(
                command, cwd=_ROOT, stdout=file, stderr=file, start_new_session=True
            )

    def await_connected(self, *names: str) -> None:
        """Wait until these participants say that they are connected."""
        for name in names:
            self.await_said(name, _CONNECTED)

    def await_said(self, name: str, text: str) -> None:
        """Wait until a participant says something."""
        self._wait(self._log(name), text, self._participants[name])

    def said(self, name: str) -> str:
        """What a participant said so far."""
        return self._log(name).read_text(errors="replace")

    def stop(self, name: str) -> int:
        """Stop a participant as its user does; its exit code."""
        process = self._participants.pop(name)
        process.terminate()
        self._end(process)
        return process.returncode

    def kill(self, name: str) -> None:
        """Kill a participant and its node."""
        process = self._participants.pop(name)
        process.kill()
        for node in self.processes("bonafed.flower.node", str(self.folder.member(name))):
            os.kill(node, signal.SIGKILL)
        self._end(process)

    def processes(self, *words: str) -> list[int]:
        """Processes of this federation in whose command line all these words are."""
        return [number for number, line in self._own().items() if all(word in line for word in words)]

    def await_ended(self, *words: str, but: Collection[int] = ()) -> list[int]:
        """Wait until no process `but` these has these words in its command line; those left."""
        end = time.monotonic() + _PATIENCE
        while set(left := self.processes(*words)) - set(but) and time.monotonic() < end:
            time.sleep(0.2)
        return left

    def close(self) -> None:
        """End everything, and require that nothing is left."""
        for name in list(self._participants):
            self.stop(name)
        if self._superlink is not None and self._superlink.poll() is None:
            self._superlink.terminate()
            self._end(self._superlink)
        left = self.await_ended()
        groups = [leader for leader in self._ended if _group_exists(leader)]
        for number in left:
            with suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)
        assert not left, f"processes are left: {left}"
        assert not groups, f"process groups are left: {groups}"

    def _log(self, name: str) -> Path:
        return self.folder.path / f"{name}.log"

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        process.wait(_PATIENCE)
        self._ended.append(process.pid)

    def _wait(self, log: Path, text: str, process: subprocess.Popen[bytes]) -> None:
        """Wait until a log says something; its process must not end before."""
        end = time.monotonic() + _PATIENCE
        while text not in log.read_text(errors="replace"):
            assert process.poll() is None, log.read_text(errors="replace")[-2000:]
            assert time.monotonic() < end, log.read_text(errors="replace")[-2000:]
            time.sleep(0.1)

    def _own(self) -> dict[int, str]:
        """Living processes that name this federation's folder, by number: their command lines."""
        own, needle = {}, str(self.folder.path)
        for place in Path("/proc").iterdir():
            if place.name.isdigit() and int(place.name) != os.getpid():
                with suppress(OSError):  # it has just ended, or is somebody else's
                    line = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                    variables = (place / "environ").read_bytes().decode(errors="replace")
                    if line and (needle in line or f"FLWR_HOME={needle}" in variables):
                        own[int(place.name)] = line
        return own


def _group_exists(leader: int) -> bool:
    try:
        os.killpg(leader, 0)
    except ProcessLookupError:
        return False
    return True
