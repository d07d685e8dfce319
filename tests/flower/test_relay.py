"""The relay and the executor by themselves: a reply that is announced and never sent holds up nobody."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from types import SimpleNamespace

import pytest
from flwr.app import Error, Message, RecordDict
from flwr.supercore.constant import TaskType
from flwr.supercore.task_identity import TaskIdentity

from bonafed.flower.frames import BadContent, packed, private_folder, read_frame, send_frame, unpacked
from bonafed.flower.node import Clock, Executor
from bonafed.flower.participant_process import ParticipantProcess
from bonafed.flower.relay import NOT_OURS, NOT_SENT, Relay


@pytest.fixture(autouse=True)
def identity(monkeypatch):
    """Flower's messages are made in the name of a task."""
    for name in ("_task_id", "_run_id", "_node_id"):
        monkeypatch.setattr(TaskIdentity, name, 1)


class Grid:
    """Nodes 1, 2, ... answer as the test says."""

    def __init__(self, acts):
        self.acts, self.over = acts, threading.Event()
        self.replies = {}

    def get_nodes(self):
        return [SimpleNamespace(node_id=node, public_key=b"\xff" * node) for node in self.acts]

    def push_messages(self, messages):
        (message,) = messages
        node = message.metadata.dst_node_id
        if self.acts[node] == "offline":
            return [""]
        content = RecordDict() if self.acts[node] == "other" else packed(b"re:" + unpacked(message.content))
        answer = Error(2, "said why") if self.acts[node] == "error" else content
        self.replies[str(node)] = Message(answer, reply_to=message)
        return [str(node)]

    def pull_messages(self, identifiers):
        (identifier,) = identifiers
        act = self.acts[int(identifier)]
        if act == "announced":
            self.over.wait()
        if act == "run over":
            raise RuntimeError("the run is not running")
        return [self.replies[identifier]]


@pytest.fixture
def relayed():
    ours, theirs = socket.socketpair()
    ours.settimeout(30)
    grids = []

    def start(acts):
        grids.append(Grid(acts))
        relay = threading.Thread(target=Relay(grids[0], theirs).serve, daemon=True)
        relay.start()
        return ours, relay

    with ours, theirs:
        yield start
        ours.shutdown(socket.SHUT_RDWR)
        for grid in grids:
            grid.over.set()
        for thread in threading.enumerate():
            if thread is not threading.main_thread():
                thread.join(10)


def test_nodes_and_their_keys_are_told(relayed):
    ours, _ = relayed({1: "", 2: ""})
    send_frame(ours, {"kind": "nodes"})
    header, body = read_frame(ours)
    assert header == {"kind": "nodes"}
    assert json.loads(body) == [[1, "\xff"], [2, "\xff\xff"]]


def test_each_reply_comes_by_itself(relayed):
    acts = {1: "announced", 2: "answer", 3: "offline", 4: "error", 5: "other"}
    ours, relay = relayed(acts)
    for node in acts:
        send_frame(ours, {"kind": "send", "number": 10 * node, "node": node, "ttl": 60.0}, b"x")
    frames = {}
    while len(frames) < 4:  # all but the first, whose reply never arrives
        header, body = read_frame(ours)
        frames[header.pop("number")] = header, body
    assert frames[20] == ({"kind": "reply"}, b"re:x")
    assert frames[30][0]["code"] == NOT_SENT
    assert frames[40][0] == {"kind": "error", "code": 2, "reason": "said why"}
    assert frames[50][0]["code"] == NOT_OURS
    assert relay.is_alive()


def test_the_end_of_the_run_ends_the_relay(relayed, monkeypatch):
    monkeypatch.setattr(threading, "excepthook", lambda _problem: None)  # Flower's log would have it
    ours, relay = relayed({1: "run over"})
    send_frame(ours, {"kind": "send", "number": 1, "node": 1, "ttl": 60.0}, b"x")
    assert read_frame(ours) is None
    relay.join(10)
    assert not relay.is_alive()


def executed(kind, content):
    """What an executor replies to a task of this kind."""
    told = []
    with (
        private_folder() as folder,
        ParticipantProcess(folder / "participant", lambda message: b"re:" + message, told.append),
    ):
        executor = Executor("127.0.0.1:1", b"secret", str(folder / "participant"), Clock())
        return executor._reply(Message(content, 1, "query"), kind)


def test_the_executor_passes_bytes_on():
    for size in (0, 3, 5_000_000):
        assert unpacked(executed(TaskType.CLIENT_APP, packed(bytes(size))).content) == b"re:" + bytes(size)


@pytest.mark.parametrize("kind", [kind for kind in TaskType if kind != TaskType.CLIENT_APP])
def test_tasks_of_other_kinds_are_refused(kind):
    reply = executed(kind, packed(b"x"))
    assert reply.error.reason == "must be a message of bonafed: this node runs no apps"


def test_a_participant_that_is_gone_is_an_error():
    executor = Executor("127.0.0.1:1", b"secret", "/nowhere/participant", Clock())
    reply = executor._reply(Message(packed(b"x"), 1, "query"), TaskType.CLIENT_APP)
    assert reply.error.reason == "the participant's process cannot be reached"


def test_other_content_is_no_message():
    from flwr.app import ArrayRecord, ConfigRecord

    for content in (
        RecordDict(),
        RecordDict({"bonafed": ConfigRecord({"message": 3})}),
        RecordDict({"bonafed": ConfigRecord({"other": b"x"})}),
        RecordDict({"bonafed": ArrayRecord()}),
    ):
        with pytest.raises(BadContent):
            unpacked(content)


def test_neither_imports_torch():
    code = "import sys, bonafed.flower.node, bonafed.flower.relay; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
