"""`bonafed participate`: the participant in this process, and its node as a child, restarted if it dies.

What becomes of the connection is said in one line each; all that the node writes goes to `flower.log` in
the participant's folder. On SIGINT or SIGTERM everything ends, and no process is left.
"""

from __future__ import annotations

import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import IO, Any, Final

from bonafed.errors import UnreadableFile
from bonafed.files import open_log, write_secret, write_together
from bonafed.flower.commands import environment, require_flower
from bonafed.flower.frames import private_folder
from bonafed.flower.participant_process import ParticipantProcess
from bonafed.remote.keys import key_digest, read_member_key
from bonafed.remote.messages import Handle
from bonafed.remote.participant.settings import ParticipantSettings

LOG, NUMBER = "flower.log", "flower.node"  # in a participant's folder: what its node writes, and its number
Tell = Callable[[str], None]
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0  # seconds before a node that died is started again
_STEADY: Final = 60.0  # seconds after which a node did not die at once
_ENDING: Final = 15.0  # seconds in which a node is to end by itself
_FINISHING: Final = 3.0  # seconds in which a message that is being handled may still be finished
_NODE: Final = re.compile(r"SuperNode ID: (\d+)")
_CONNECTED: Final = re.compile(r"SuperNode ID: \d+|Connection successful after")
_LOST: Final = re.compile(r"Connection attempt failed, retrying")
_REFUSED: Final = re.compile(r"\[code: 2004\]")
_UNTRUSTED: Final = re.compile(r"SSL/TLS handshake error|CERTIFICATE_VERIFY_FAILED")
_OTHER_VERSION: Final = re.compile(r"runtime version mismatch")
_ENDED: Final = re.compile(r"Exit Code: (\d+)")


def participate(
    settings: ParticipantSettings, handle: Handle, tell: Tell = print, stop: threading.Event | None = None
) -> bool:
    """Answer a federation's messages with `handle` until told to stop, by a signal or by the event.

    Whether no message is being handled any more: who stops in the middle of one is asked again.
    """
    require_flower()
    digest = key_digest(read_member_key(settings.key).public_key())
    if settings.certificate is not None and not settings.certificate.is_file():
        raise UnreadableFile(settings.certificate, "no such file")
    settings.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    ending = stop or threading.Event()
    with (
        private_folder() as sockets,
        _told_by_signals(ending),
        ParticipantProcess(sockets / "participant", handle, tell) as process,
    ):
        write_secret(sockets / "secret", secrets.token_bytes(32))
        with open_log(settings.folder / LOG) as log:
            _Supervisor(settings, digest, sockets, log, tell, ending).run()
    tell("stopped")
    return process.is_idle(_FINISHING)


class _Supervisor:
    """Keeps a node running, and says what becomes of its connection."""

    def __init__(
        self, settings: ParticipantSettings, digest: str, sockets: Path, log: IO[bytes], tell: Tell,
        ending: threading.Event,
    ) -> None:  # fmt: skip
        self._settings = settings
        self._sockets = sockets  # folder of the participant's socket and the node's secret
        self._log = log
        self._tell, self._ending = tell, ending
        self._said = ""  # last: nothing is said twice in a row
        vouching = settings.certificate or "this system"
        self._news = {
            _CONNECTED: f"connected to {settings.federation} at {settings.address} as {settings.name}",
            _LOST: f"no connection to {settings.address}; trying again",
            _REFUSED: f"refused: {settings.address} has not registered the key of {settings.name}, {digest}"
            " (its operator does: bonafed federation register), or has a node with it; trying again",
            _UNTRUSTED: f"refused: {settings.address} shows no certificate that {vouching} vouches for",
            _OTHER_VERSION: f"refused: {settings.address} has another version of Flower",
        }

    def run(self) -> None:
        """Run nodes until told to stop."""
        pause = _FIRST_PAUSE
        while not self._ending.is_set():
            began = time.monotonic()
            self._run_node()
            if time.monotonic() - began > _STEADY:
                pause = _FIRST_PAUSE
            self._ending.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _run_node(self) -> None:
        """One node, from its start to its end."""
        node = subprocess.Popen(
            self._command(), env=environment(self._sockets / "flower"), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        reader = threading.Thread(target=self._read, args=(node.stdout,), daemon=True)
        reader.start()
        try:
            while node.poll() is None and not self._ending.wait(0.2):
                pass
        finally:
            _end(node)
            reader.join(5.0)

    def _command(self) -> list[str]:
        settings, vouching, earlier = self._settings, self._settings.certificate, self._earlier()
        return [
            sys.executable, "-m", "bonafed.flower.node",
            str(self._sockets / "participant"), str(self._sockets / "secret"), str(free_port()),
            settings.address, str(settings.key),
            *([] if vouching is None else ["--certificate", str(vouching)]),
            *([] if earlier is None else ["--earlier", earlier]),
        ]  # fmt: skip

    def _earlier(self) -> str | None:
        """The number of this member's earlier node, where there was one."""
        try:
            text = (self._settings.folder / NUMBER).read_text(encoding="ascii").strip()
        except (OSError, ValueError):
            return None
        return text if text.isdigit() else None

    def _read(self, output: IO[bytes]) -> None:
        """Keep what the node writes, and say what it means."""
        ended = ""  # the code with which the node says that it ends, unless the reason was said
        for line in output:
            self._log.write(line)
            self._log.flush()
            text = line.decode("utf-8", "replace")
            if (code := _ENDED.search(text)) is not None:
                ended = code[1]
            if (node := _NODE.search(text)) is not None:
                write_together({self._settings.folder / NUMBER: f"{node[1]}\n".encode("ascii")})
            for sign, news in self._news.items():
                if sign.search(text):
                    self._say(news)
                    ended = ""
        if ended and not self._ending.is_set():
            where = self._settings.folder / LOG
            self._say(f"the node ended with Flower's code {ended} and is started again (see {where})")

    def _say(self, text: str) -> None:
        if text != self._said:
            self._said = text
            self._tell(text)


def _end(node: subprocess.Popen[bytes]) -> None:
    """End a node and all that it started."""
    if node.poll() is None:
        node.terminate()
        with suppress(subprocess.TimeoutExpired):
            node.wait(_ENDING)
    with suppress(ProcessLookupError, PermissionError):  # nobody is left in its group
        os.killpg(node.pid, signal.SIGKILL)
    node.wait()


def free_port() -> int:
    """A port of this machine that is free just now; a node that finds it taken is started again."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _told_by_signals(ending: threading.Event) -> Iterator[None]:
    """SIGINT and SIGTERM set the event; only the main thread of a process is told of signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(_number: int, _frame: FrameType | None) -> None:
        ending.set()

    before: dict[signal.Signals, Any] = {
        number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
