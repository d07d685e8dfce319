"""A participant's process, with data, model and secrets: it answers one message at a time.

It listens on a socket of its own user. A request is a frame {"kind": "message"} with the message as its
body; the answer {"kind": "reply"} with the reply, or {"kind": "failure"} if the handler raised. What it
raised is told to the participant, never to the server: it may name files, or a cost.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from bonafed.flower.frames import BadFrame, is_own, listen, read_frame, send_frame
from bonafed.remote.messages import Handle

FAILED: Final = "the participant's program failed on this message"
_LOG: Final = logging.getLogger(__name__)


class ParticipantProcess:
    """Serves a socket while it is open; `with ParticipantProcess(path, handle):`."""

    def __init__(self, path: Path, handle: Handle, tell: Callable[[str], None] = _LOG.error) -> None:
        self._handle, self._tell = handle, tell
        self._listener = listen(path)
        self._one_at_a_time = threading.Lock()
        self._thread = threading.Thread(target=self._serve, name="participant", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # already closed
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def is_idle(self, seconds: float) -> bool:
        """Whether no message is being handled, within so many seconds."""
        if not self._one_at_a_time.acquire(timeout=seconds):
            return False
        self._one_at_a_time.release()
        return True

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # closed
                return
            # the executor may have been killed and started again while a message is still being handled
            threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def _converse(self, connection: socket.socket) -> None:
        with connection:
            if not is_own(connection):
                self._tell("a connection by another user was refused")
                return
            try:
                while (frame := read_frame(connection)) is not None:
                    header, body = frame
                    if header.get("kind") != "message":
                        raise BadFrame("must be a message")
                    self._answer(connection, body)
            except BadFrame as error:
                self._tell(f"a connection was closed: {error}")
            except OSError:  # the other side has gone
                return

    def _answer(self, connection: socket.socket, message: bytes) -> None:
        with self._one_at_a_time:
            try:
                reply = self._handle(message)
            except Exception as error:  # whatever the handler raises must not end the participant
                self._tell(f"a message could not be handled: {type(error).__name__}: {error}")
                _LOG.debug("a message could not be handled", exc_info=True)
                send_frame(connection, {"kind": "failure", "reason": FAILED})
                return
        send_frame(connection, {"kind": "reply"}, reply)
