"""The operator's side: a `Transport` that starts Flower runs, and replaces those that are lost.

The training loop runs in the operator's process. A Flower run is only the way to the nodes: its ServerApp
(`relay`) connects to a socket of this process and passes bytes on. When the ServerApp is killed, or the
SuperLink started again, that run is over, as Flower resumes none. A new one is started then, and what was
not answered is asked again; members answer a request that they have seen before as they did then.

Names are bound to nodes here, by the key that a node is registered with: one that is not on the roster is
sent nothing, whatever it calls itself.
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import select
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self, final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key

from bonafed import checks
from bonafed.errors import AskFailed, BonafedError
from bonafed.flower.commands import Connection, FlowerFailed, flwr, require_flower
from bonafed.flower.folder import Folder, refresh_flower_settings
from bonafed.flower.frames import BadFrame, is_own, listen, peer, private_folder, read_frame, send_frame
from bonafed.learning.federation import Failure
from bonafed.remote.roster import Membership
from bonafed.text import printable

Tell = Callable[[str], None]
Note = Callable[[int, bytes | Failure], None]  # takes down the answer of a node
_START: Final = 60.0  # seconds in which the ServerApp of a new run is to connect
_LOOK: Final = 10.0  # seconds after which it is looked whether that run has failed
_ANSWER: Final = 60.0  # seconds in which the relay is to say which nodes there are
_LATE: Final = 15.0  # seconds beyond the ttl of a message in which the relay is to say that it expired
_END: Final = 15.0  # seconds in which a relay is to end
_BACK: Final = 30.0  # seconds to wait for nodes after a run was lost; they try again every 20 at least
_LONGEST_REASON: Final = 300  # characters; it may come from a stranger
_NOT_CONNECTED, _RAISED, _EXPIRED = -1, 2, 3  # of the relay's and of Flower's codes
_SAID: Final = {  # what the codes mean
    -2: "answered something that is no message of bonafed",
    _NOT_CONNECTED: "is not connected",
    1: "has a node that was not started by bonafed participate",
    _EXPIRED: "gave no answer in time",
    4: "answered, but the answer was lost",
    5: "is no longer connected",
    7: "has a node that refuses this app",
    8: "has a node that stopped responding",
}


class _Lost(BonafedError):
    """The relay has gone, or does not answer."""


@dataclass(frozen=True, slots=True)
class OnlineNodes:
    """Whose nodes are online."""

    nodes: Mapping[str, int]  # number of the node, by name of the member
    strangers: tuple[str, ...] = ()  # digests of registered keys that are not on the roster; "": no key


class RelayConnection:
    """A Flower run, and the connection to its ServerApp."""

    def __init__(self, connection: socket.socket, run: str) -> None:
        self.run = run  # Flower's number of it
        self._connection = connection
        self._frames: queue.SimpleQueue[tuple[dict[str, Any], bytes] | None] = queue.SimpleQueue()
        who = peer(connection)
        self._process = 0 if who is None else who[0]  # of the ServerApp; 0: unknown
        self._number = 0  # of the last message
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        with suppress(OSError, BadFrame):
            while (frame := read_frame(self._connection)) is not None:
                self._frames.put(frame)
        self._frames.put(None)

    def _send(self, header: Mapping[str, Any], body: bytes = b"") -> None:
        try:
            send_frame(self._connection, header, body)
        except OSError as error:
            raise _Lost("the ServerApp has gone") from error

    def _next(self, deadline: float) -> tuple[dict[str, Any], bytes] | None:
        """The next frame; None after the deadline."""
        try:
            frame = self._frames.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            return None
        if frame is None:
            self._frames.put(None)  # also for whoever asks again
            raise _Lost("the ServerApp has gone")
        return frame

    def nodes(self) -> list[tuple[int, str]]:
        """Nodes that are online: their numbers, and the keys that they are registered with."""
        self._send({"kind": "nodes"})
        deadline = time.monotonic() + _ANSWER
        while (frame := self._next(deadline)) is not None:
            if frame[0]["kind"] == "nodes":
                return [(int(node), str(key)) for node, key in json.loads(frame[1])]
        raise _Lost("the ServerApp does not answer")

    def ask(self, messages: Mapping[int, bytes], ttl: float, note: Note) -> None:
        """Send messages, by the number of a node, and note each answer as it comes."""
        asked: dict[int, int] = {}  # node, by number of the message
        deadline = time.monotonic() + ttl + _LATE
        for node, message in messages.items():
            self._number += 1
            asked[self._number] = node
            try:
                self._send({"kind": "send", "number": self._number, "node": node, "ttl": ttl}, message)
            except _Lost:  # also said below, once the answers that came before are noted
                break
        while asked:
            frame = self._next(deadline)
            if frame is None:
                for node in asked.values():
                    note(node, _expired(ttl))
                return
            header, body = frame
            number = header.get("number")
            if isinstance(number, int) and number in asked:  # others answer an earlier exchange, too late
                note(asked.pop(number), body if header["kind"] == "reply" else _failure(header, ttl))

    def close(self) -> bool:
        """End the relay by closing its socket; whether it is known to have ended."""
        with suppress(OSError):  # it has gone already
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()
        return bool(self._process) and _ends(self._process, _END)


class RelayedTransport(ABC):
    """Reaches the members of a federation through a relay, while it is open: `with ... as transport:`."""

    def __init__(self, membership: Membership, new_runs: int, patience: float, tell: Tell) -> None:
        self.membership = membership
        self._new_runs = new_runs  # Flower runs that may be lost while one exchange goes on
        self._patience = patience  # seconds to wait for the SuperLink after a run was lost
        self._tell = tell  # what the operator should know
        self._resources = ExitStack()
        self._sockets: Path | None = None  # folder; None: not open
        self._relay: RelayConnection | None = None
        self._runs = 0  # started so far

    @abstractmethod
    def _open(self, resources: ExitStack, private: Path) -> Connection:
        """Make ready whatever a run needs; how Flower is reached."""

    @abstractmethod
    def _run(self) -> tuple[Path, Sequence[str]]:
        """The app to run, and options of `flwr run`."""

    @abstractmethod
    def _named(self, relay: RelayConnection) -> OnlineNodes:
        """Whose nodes are online."""

    @final
    def __enter__(self) -> Self:
        require_flower()
        try:
            self._sockets = self._resources.enter_context(private_folder())
            self._connection = self._open(self._resources, self._sockets)
            self._relay = self._start()
        except BaseException:
            self._resources.close()
            raise
        return self

    @final
    def __exit__(self, *_: object) -> None:
        try:
            self._end_run()
        finally:
            self._resources.close()

    @final
    def connected(self) -> Mapping[str, str]:
        """Who is there, as in `Transport.connected`."""
        return {name: self.membership.key_digests[name] for name in sorted(self.online_nodes().nodes)}

    @final
    def online_nodes(self) -> OnlineNodes:
        """Whose nodes are online, members or not."""
        answers: list[OnlineNodes] = []
        self._persist(lambda relay, _fresh: answers.append(self._named(relay)))
        return answers[0]

    @final
    def exchange(self, messages: Mapping[str, bytes], ttl: float) -> Mapping[str, bytes | Failure]:
        """As in `Transport`; in the order of names."""
        checks.positive("ttl", ttl)
        answers: dict[str, bytes | Failure] = {}

        def ask(relay: RelayConnection, fresh: bool) -> None:
            missing = [name for name in messages if name not in answers]
            nodes = self._nodes(relay, missing, _BACK if fresh else 0.0)
            for name in missing:
                if name not in nodes:
                    answers[name] = Failure(_SAID[_NOT_CONNECTED], absent=True)
            names = {nodes[name]: name for name in missing if name in nodes}
            sent = {node: messages[name] for node, name in names.items()}
            relay.ask(sent, ttl, lambda node, answer: answers.update({names[node]: answer}))

        if messages:
            self._persist(ask)
        return {name: answers[name] for name in sorted(answers)}

    def _nodes(self, relay: RelayConnection, names: Sequence[str], patience: float) -> Mapping[str, int]:
        """The nodes of members, including those of `names` that come back in time."""
        end = time.monotonic() + patience
        while True:
            nodes = self._named(relay).nodes
            if all(name in nodes for name in names) or time.monotonic() > end:
                return nodes
            time.sleep(1.0)

    def _persist(self, do: Callable[[RelayConnection, bool], None]) -> None:
        """Do something with the relay, again with that of a new run whenever a run is lost."""
        for left in range(self._new_runs, -1, -1):
            fresh = self._relay is None  # nodes may still be on their way back
            if self._relay is None:
                self._relay = self._start()
            try:
                do(self._relay, fresh)
            except _Lost as loss:
                self._end_run()
                if not left:
                    reason = f"{loss}; {self._new_runs + 1} Flower runs were lost one after the other"
                    raise AskFailed(reason) from loss
                self._tell(f"{loss}: a new Flower run goes on where this one ended")
            else:
                return

    def _start(self) -> RelayConnection:
        """Start a Flower run; after one was lost, try while the SuperLink may be on its way back."""
        end, pause = time.monotonic() + self._patience, 1.0
        while True:
            try:
                return self._try_start()
            except FlowerFailed as error:
                if self._runs == 0:
                    raise
                if time.monotonic() + pause > end:
                    raise AskFailed(f"no Flower run could be started: {error}") from error
                time.sleep(pause)
                pause = min(2 * pause, 10.0)

    def _try_start(self) -> RelayConnection:
        assert self._sockets is not None  # it is open
        path = self._sockets / f"{self._runs}.socket"  # a new one: no earlier ServerApp finds it
        path.unlink(missing_ok=True)
        app, options = self._run()
        with listen(path) as listener:
            arguments = ["run", str(app.absolute()), self._connection.name, *options]
            said = flwr(self._connection, [*arguments, "--run-config", f'socket="{path}"'])
            run = str(said.get("run-id", ""))
            try:
                connection = self._accept(listener, run)
            except BaseException:
                self._stop(run)
                raise
        self._runs += 1
        return RelayConnection(connection, run)

    def _accept(self, listener: socket.socket, run: str) -> socket.socket:
        """The connection of the ServerApp of a run."""
        end = time.monotonic() + _START
        while time.monotonic() < end:
            listener.settimeout(_LOOK)
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                self._require_running(run)
                continue
            if is_own(connection):
                connection.settimeout(None)
                return connection
            connection.close()
        raise FlowerFailed(f"the ServerApp of run {run} did not connect within {_START:.0f} seconds")

    def _require_running(self, run: str) -> None:
        said = flwr(self._connection, ["ls", "--run-id", run, self._connection.name])
        for listed in said.get("runs", ()):
            if str(listed.get("status", "")).startswith("finished"):
                raise FlowerFailed(f"run {run} has ended before its ServerApp connected (see its log)")

    def _end_run(self) -> None:
        relay, self._relay = self._relay, None
        if relay is not None and not relay.close():
            self._stop(relay.run)

    def _stop(self, run: str) -> None:
        with suppress(FlowerFailed):  # it has ended, or the SuperLink has
            flwr(self._connection, ["stop", run, self._connection.name])


@final
class FlowerTransport(RelayedTransport):
    """Reaches the members of the federation in a folder over its SuperLink."""

    def __init__(
        self,
        folder: Path,
        *,
        new_runs: int = 5,
        patience: float = 90.0,
        tell: Tell = lambda _text: None,
    ) -> None:
        self._folder = Folder(folder)
        super().__init__(self._folder.membership(), new_runs, patience, tell)

    def _open(self, resources: ExitStack, private: Path) -> Connection:
        refresh_flower_settings(self._folder, self.membership)
        return Connection(self.membership.name, self._folder.home.absolute())

    def _run(self) -> tuple[Path, Sequence[str]]:
        return self._folder.app, ()

    def _named(self, relay: RelayConnection) -> OnlineNodes:
        named: dict[str, int] = {}
        strangers = []
        for node, key in relay.nodes():
            digest = _digest(key)
            if digest in self.membership.by_digest:
                named[self.membership.by_digest[digest]] = node
            else:
                strangers.append(digest)
        return OnlineNodes(named, tuple(sorted(strangers)))


def _expired(ttl: float) -> Failure:
    return Failure(f"{_SAID[_EXPIRED]} ({ttl:g} seconds)", absent=True)


def _failure(header: Mapping[str, Any], ttl: float) -> Failure:
    """What an error means; who raised one says why in its own words."""
    code = header.get("code")
    reason = printable(" ".join(str(header.get("reason", "")).split()))[:_LONGEST_REASON]
    if code == _EXPIRED:
        return _expired(ttl)
    if code == _RAISED:
        return Failure(reason or "has a node that failed", absent=True)
    said = _SAID.get(code) if isinstance(code, int) else None
    return Failure(said or f"gave no answer (Flower's code {code}: {reason})", absent=True)


def _digest(key: str) -> str:
    """SHA-256 of a public key in DER, in hex; "" for what is no key."""
    try:
        public = load_pem_public_key(key.encode())
    except (ValueError, UnsupportedAlgorithm):
        return ""
    return hashlib.sha256(public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


def _ends(process: int, seconds: float) -> bool:
    """Whether a process ends within so many seconds, even if its parent has not taken note of it."""
    try:
        handle = os.pidfd_open(process)
    except ProcessLookupError:
        return True
    except (AttributeError, OSError):  # a system without such handles
        return False
    try:
        return bool(select.select([handle], [], [], seconds)[0])
    finally:
        os.close(handle)
