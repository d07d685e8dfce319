"""The ServerApp: connects to the operator's socket, and passes bytes between it and the nodes.

It knows neither names nor what a message says. The operator's process asks, and gets answers as they come:

    {"kind": "nodes"}                                      {"kind": "nodes"}: [[node, key], ...] in JSON
    {"kind": "send", "number": n, "node": v, "ttl": t}:    {"kind": "reply", "number": n}: its reply, or
      a message                                            {"kind": "error", "number": n, "code", "reason"}

The key of a node is the one it is registered with, in PEM. The relay ends when the socket is closed.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import suppress
from typing import Any, Final

from flwr.app import Context, Message
from flwr.serverapp import Grid, ServerApp

from bonafed.flower.frames import (
    MESSAGE_TYPE,
    BadContent,
    BadFrame,
    connect,
    packed,
    read_frame,
    send_frame,
    unpacked,
)

SOCKET: Final = "socket"  # key of the run's config: path of the operator's socket
NOT_SENT, NOT_OURS = -1, -2  # codes beside Flower's: the node takes no message; its reply is none of ours
_SHORTEST: Final = 0.2  # seconds between two looks for a reply
_PER_WAITING: Final = (
    0.02  # ... at least so many for each that is waited for, or there would be only looking
)
_AFTER: Final = 10.0  # seconds beyond its ttl in which Flower is to say that a message has expired


def main(grid: Grid, context: Context) -> None:
    """Serve the operator's requests until it closes the socket."""
    with connect(str(context.run_config[SOCKET])) as connection:
        Relay(grid, connection).serve()


app = ServerApp()
app.main()(main)


class Relay:
    """One connection to the operator's process."""

    def __init__(self, grid: Grid, connection: socket.socket) -> None:
        self._grid, self._connection = grid, connection
        self._lock = threading.Lock()
        self._waiting = 0  # messages without a reply so far

    def serve(self) -> None:
        """Answer requests until the other side ends."""
        while (frame := read_frame(self._connection)) is not None:
            header, body = frame
            if header["kind"] == "nodes":
                # a simulated node has random bytes for a key
                nodes = [
                    (node.node_id, node.public_key.decode("latin-1")) for node in self._grid.get_nodes()
                ]
                self._write({"kind": "nodes"}, json.dumps(nodes).encode())
            else:
                self._send(header, body)

    def _send(self, header: dict[str, Any], body: bytes) -> None:
        number, ttl = int(header["number"]), float(header["ttl"])
        message = Message(packed(body), int(header["node"]), MESSAGE_TYPE, ttl=ttl)
        identifiers = list(self._grid.push_messages([message]))
        if not identifiers or not identifiers[0]:
            self._write({"kind": "error", "number": number, "code": NOT_SENT, "reason": ""})
            return
        with self._lock:
            self._waiting += 1
        # Each reply is waited for by itself: Flower hands out a reply once it is announced, and then waits
        # until all of it has arrived. A node that announces one and never sends it must not hold up others.
        arguments = (number, identifiers[0], time.monotonic() + ttl + _AFTER)
        threading.Thread(target=self._await, args=arguments, daemon=True).start()

    def _await(self, number: int, identifier: str, deadline: float) -> None:
        replies: list[Message] = []
        try:
            while not replies and time.monotonic() < deadline:
                time.sleep(max(_SHORTEST, _PER_WAITING * self._waiting))
                replies = list(self._grid.pull_messages([identifier]))
        except BaseException:
            with suppress(OSError):  # already closed
                self._connection.shutdown(socket.SHUT_RDWR)  # this run is over, and the relay with it
            raise
        finally:
            with self._lock:
                self._waiting -= 1
        with suppress(OSError):  # the operator has gone
            for reply in replies[:1]:
                self._pass_on(number, reply)

    def _pass_on(self, number: int, reply: Message) -> None:
        if reply.has_error():
            code, reason = reply.error.code, reply.error.reason or ""
            self._write({"kind": "error", "number": number, "code": code, "reason": reason[:1000]})
            return
        try:
            self._write({"kind": "reply", "number": number}, unpacked(reply.content))
        except (BadContent, BadFrame) as error:  # no bytes, or too many
            self._write({"kind": "error", "number": number, "code": NOT_OURS, "reason": str(error)})

    def _write(self, header: dict[str, Any], body: bytes = b"") -> None:
        with self._lock:
            send_frame(self._connection, header, body)
