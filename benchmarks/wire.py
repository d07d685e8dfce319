"""What a federation on this machine uses: bytes through a proxy, and CPU seconds of all its processes."""

from __future__ import annotations

import os
import socket
import socketserver
import threading
from contextlib import suppress
from dataclasses import dataclass

from benchmarks.peers.common import family, stat


class Wire(socketserver.ThreadingTCPServer):
    """Passes bytes between nodes and the SuperLink, unread, and counts them."""

    daemon_threads = True

    def __init__(self, target: str) -> None:
        super().__init__(("127.0.0.1", 0), _Passing)
        host, _, port = target.rpartition(":")
        self.target = (host, int(port))
        self.up = self.down = 0  # bytes from and to nodes
        self.lock = threading.Lock()
        threading.Thread(target=self.serve_forever, args=(0.1,), daemon=True).start()

    @property
    def address(self) -> str:
        """Where nodes connect; the certificate is for the host, whatever the port."""
        return f"127.0.0.1:{self.server_address[1]}"

    def handle_error(self, *_: object) -> None:
        """A connection that breaks is the business of its two ends."""


class _Passing(socketserver.BaseRequestHandler):
    server: Wire

    def handle(self) -> None:
        with socket.create_connection(self.server.target) as far:
            for end in (far, self.request):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            back = threading.Thread(target=self._pass, args=(far, self.request, "down"), daemon=True)
            back.start()
            self._pass(self.request, far, "up")
            back.join()

    def _pass(self, source: socket.socket, sink: socket.socket, way: str) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                sink.sendall(data)
                with self.server.lock:
                    setattr(self.server, way, getattr(self.server, way) + len(data))
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


@dataclass(frozen=True)
class Reading:
    """All counters at one moment."""

    clock: float  # seconds
    cpu: float  # seconds
    up: int  # bytes from all nodes
    down: int  # bytes to them
    messages: int  # that the first node has received


def cpu_seconds() -> float:
    """Of everything that this process has started, without itself."""
    processes = sum(sum(map(int, stat(pid)[11:15])) for pid in family())
    return (processes - sum(map(int, stat(os.getpid())[11:13]))) / os.sysconf("SC_CLK_TCK")
