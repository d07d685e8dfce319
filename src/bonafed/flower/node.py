"""A participant's node: Flower's SuperNode, and an executor that passes messages to the participant.

Flower sends the server's app to every node and runs it there, with the rights of whoever started the node.
This node never does. Its SuperNode is started with `--isolation process`, so that it starts no executor of
Flower's own, and the executor here, a thread, takes every task, hands the bytes of its message to the
participant's socket, and returns the answer. It neither installs nor loads what came with a task, of
whatever type it is. Tasks are given out against a secret of this process (`--superexec-auth-secret-file`),
so that nobody else on the machine can fetch them.

This also makes a message cheap: Flower's own executor starts a process for each.

A node that was killed is counted as connected for up to a minute, in which another one with its key is
refused. So a node that comes back first says that the earlier one has left.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import flwr.supernode.start_client_internal as supernode_loop
import httpx
from flwr.app import Error, Message
from flwr.common.constant import ErrorCode, SubStatus
from flwr.proto.fleet_pb2 import DeactivateNodeRequest
from flwr.proto.runtime_pb2 import AcquireTaskRequest, SendTaskHeartbeatRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.cli.flower_supernode import flower_supernode
from flwr.supernode.fleet_http_client import FleetHttpClient
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from bonafed.flower.frames import BadContent, BadFrame, connect, packed, read_frame, send_frame, unpacked
from bonafed.remote.keys import read_member_key

_POLL: Final = 0.1  # seconds before the SuperNode is tried again
_REST: Final = 1.0  # seconds between two looks for a task, without any sign of one
_LOOK: Final = 0.5  # seconds between two looks for a message at the SuperLink, while a run is going on
_IDLE: Final = 3.0  # ... and otherwise, as Flower has it
_GOING_ON: Final = 300.0  # seconds after a message
_WAIT: Final = 0.1  # seconds between two looks for the executor's answer; Flower's own are 0.5
_ACQUIRE: Final = "/flwr.proto.Runtime/AcquireTask"
_COMPONENT: Final = "bonafed participate"
_NOT_READY: Final = (httpx.TransportError, httpx.HTTPStatusError)


class Clock:
    """The module `time` for the loop of the SuperNode, whose pauses are long for runs of many exchanges.

    A short pause is one in which the loop waits for an answer: there is a task, which the executor takes
    then. Looking for one all the time would keep a processor busy while nothing happens.
    """

    def __init__(self) -> None:
        self.last_message = time.monotonic()
        self._task = threading.Event()  # there is one

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)

    def await_task(self) -> None:
        """Pause until there is a task, or for a while."""
        self._task.wait(_REST)
        self._task.clear()

    def sleep(self, seconds: float) -> None:
        """Pause, but not as long."""
        if seconds < _IDLE:
            self._task.set()
            time.sleep(min(seconds, _WAIT))
        else:
            going_on = time.monotonic() - self.last_message < _GOING_ON
            time.sleep(_LOOK if going_on else seconds)


class Executor:
    """Takes the tasks of a SuperNode, one at a time."""

    def __init__(self, address: str, secret: bytes, participant: str, clock: Clock) -> None:
        self._address = address  # of the SuperNode, for executors
        self._participant = participant  # path of its socket
        self._clock = clock
        guard = SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=[_ACQUIRE])
        self._client = self._new_client(guard)
        self._types = [str(kind) for kind in TaskType]

    def _new_client(self, guard: Any) -> RuntimeHttpClient:
        return RuntimeHttpClient.from_server_address(
            self._address,
            insecure=True,  # both ends are in this process
            root_certificates=None,
            interceptors=[RuntimeVersionHttpInterceptor(component_name=_COMPONENT), guard],
        )

    def work(self) -> None:
        """Take tasks until the process ends."""
        while True:
            try:
                answer = self._client.AcquireTask(AcquireTaskRequest(supported_task_types=self._types))
            except _NOT_READY:  # the SuperNode is starting, or ending
                time.sleep(_POLL)
                continue
            if not answer.token:
                self._clock.await_task()
                continue
            self._clock.last_message = time.monotonic()
            try:
                self._execute(answer.token, answer.task.type)
            except Exception as error:  # what a server may send is not foreseen here; the node must go on
                print(f"a task failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)

    def _execute(self, token: str, kind: str) -> None:
        client = self._new_client(RuntimeTokenHttpInterceptor(token))
        heart = HeartbeatSender(lambda: _beat(client))
        heart.start()
        try:
            message, context, _, _ = pull_task_input(client)
            push_message(client, self._reply(message, kind), context)
            push_task_output(client, None, SubStatus.COMPLETED, "")
        finally:
            if heart.is_running:
                heart.stop()
            client.close()

    def _reply(self, message: Message, kind: str) -> Message:
        """The participant's answer, or an error that says nothing of what happened here."""
        try:
            if kind != TaskType.CLIENT_APP:
                raise BadContent("must be a message of bonafed: this node runs no apps")
            with connect(self._participant) as connection:
                answer = _ask(connection, unpacked(message.content))
        except BadContent as error:
            return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, str(error)), reply_to=message)
        except (BadFrame, OSError):
            reason = "the participant's process cannot be reached"
            return Message(Error(ErrorCode.CLIENT_APP_RAISED_EXCEPTION, reason), reply_to=message)
        return Message(packed(answer), reply_to=message)


def _ask(connection: socket.socket, message: bytes) -> bytes:
    send_frame(connection, {"kind": "message"}, message)
    frame = read_frame(connection)
    if frame is None:
        raise BadFrame("the participant's process has ended")
    header, body = frame
    if header["kind"] != "reply":
        raise BadContent(str(header["reason"]))
    return body


def _beat(client: RuntimeHttpClient) -> bool:
    try:
        return bool(client.SendTaskHeartbeat(SendTaskHeartbeatRequest()).success)
    except _NOT_READY:
        return False


def main() -> None:
    """Run the node until it is told to stop, or its parent has gone."""
    options = _options()
    clock = Clock()
    # replaces the pauses only: were the name another one, the node would be slower, and work
    vars(supernode_loop)["time"] = clock
    executor = Executor(
        f"127.0.0.1:{options.port}", options.secret.read_bytes(), options.participant, clock
    )

    def execute() -> None:
        try:
            executor.work()
        finally:  # a node that takes no tasks is of no use: it ends, and is started again
            os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=execute, name="executor", daemon=True).start()
    threading.Thread(target=_follow, args=(os.getppid(),), name="parent", daemon=True).start()
    if options.earlier is not None:
        with suppress(*_NOT_READY):  # it had left, or the SuperLink is not there
            _take_leave(options)
    certificates = [] if options.certificate is None else ["--root-certificates", options.certificate]
    sys.argv = [
        "flower-supernode", "--isolation", "process", "--superexec-auth-secret-file", str(options.secret),
        "--host", "127.0.0.1", "--port", options.port, "--superlink", options.address,
        "--auth-supernode-private-key", str(options.key), *certificates,
    ]  # fmt: skip
    flower_supernode()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Started by bonafed participate.")
    parser.add_argument("participant", help="path of the socket of the participant's process")
    parser.add_argument("secret", type=Path, help="file with the secret against which tasks are given out")
    parser.add_argument("port", help="where the SuperNode serves the executor")
    parser.add_argument("address", help="of the SuperLink")
    parser.add_argument("key", type=Path, help="the member's private key")
    parser.add_argument("--certificate", help="that vouches for the SuperLink")
    parser.add_argument("--earlier", type=int, help="number of this member's earlier node")
    return parser.parse_args()


def _take_leave(options: argparse.Namespace) -> None:
    """Say that the earlier node of this member has left."""
    key = read_member_key(options.key)
    version = RuntimeVersionHttpInterceptor(component_name=_COMPONENT)
    interceptors = [version, NodeAuthHttpInterceptor(key, key.public_key())]
    with FleetHttpClient.from_server_address(
        options.address, False, options.certificate, interceptors=interceptors
    ) as client:
        client.DeactivateNode(DeactivateNodeRequest(node_id=options.earlier))


def _follow(parent: int) -> None:
    """End with the parent, however that ends."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
