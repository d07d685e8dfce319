"""The operator's side against relays that are played here: answers, errors, losses, silence."""

import json
import threading
from contextlib import suppress

import pytest

from bonafed.errors import AskFailed
from bonafed.flower import link
from bonafed.flower.commands import Connection, FlowerFailed
from bonafed.flower.folder import NewFederation, make_federation
from bonafed.flower.frames import connect, read_frame, send_frame
from bonafed.flower.link import OnlineNodes, RelayedTransport
from bonafed.learning.federation import Failure

NAMES = ("ada", "ben", "cyd")


class Played(RelayedTransport):
    """Runs whose ServerApps are threads of the test: each plays one of `scripts`, in turn."""

    def __init__(self, membership, scripts, new_runs=2, patience=0.5):
        self.told, self.stopped, self.status = [], [], "running"
        super().__init__(membership, new_runs, patience, self.told.append)
        self.scripts = list(scripts)

    def _open(self, resources, private):
        return Connection("played", private)

    def _run(self):
        return self.membership_folder, ()

    def _named(self, relay):
        return OnlineNodes({name: node for node, name in relay.nodes()})

    def flwr(self, connection, arguments):
        """In place of Flower's command."""
        if arguments[0] == "stop":
            self.stopped.append(arguments[1])
            return {}
        if arguments[0] == "ls":
            return {"runs": [{"status": self.status}]}
        script = self.scripts.pop(0) if self.scripts else None
        if script is None:
            raise FlowerFailed("flwr run: no SuperLink")
        socket_path = json.loads(arguments[-1].partition("=")[2])
        threading.Thread(target=self._play, args=(script, socket_path), daemon=True).start()
        return {"run-id": f"run {len(self.scripts)}"}

    def _play(self, script, socket_path):
        with suppress(OSError), connect(socket_path) as connection:
            while (frame := read_frame(connection)) is not None:
                header, body = frame
                if header["kind"] == "nodes":
                    nodes = list(enumerate(script.get("online", NAMES), 1))
                    send_frame(connection, {"kind": "nodes"}, json.dumps(nodes).encode())
                    continue
                act = script.get(header["node"], "answer")
                number = {"number": header["number"]}
                if act == "die":
                    return
                if act == "answer":
                    send_frame(connection, {"kind": "reply", **number}, b"re:" + body)
                    send_frame(connection, {"kind": "reply", "number": 10**6}, b"of another exchange")
                elif act != "silence":
                    send_frame(
                        connection, {"kind": "error", **number, "code": act, "reason": "as\n\x1bsaid"}
                    )


@pytest.fixture
def play(tmp_path, monkeypatch):
    membership = make_federation(tmp_path / "trial", NewFederation(NAMES))
    monkeypatch.setattr(link, "require_flower", lambda: None)
    for name, seconds in (("_LATE", 0.3), ("_BACK", 0.0), ("_END", 0.0), ("_START", 0.5), ("_LOOK", 0.2)):
        monkeypatch.setattr(link, name, seconds)

    def started(*scripts, **options):
        transport = Played(membership, scripts, **options)
        transport.membership_folder = tmp_path
        monkeypatch.setattr(link, "flwr", transport.flwr)
        return transport

    return started


MESSAGES = {name: name.encode() for name in reversed(NAMES)}
ALL = {name: b"re:" + name.encode() for name in NAMES}


def test_answers_in_the_order_of_names(play):
    with play({}) as transport:
        assert list(transport.exchange(MESSAGES, 5.0).items()) == list(ALL.items())
        assert transport.exchange({"ben": b"x"}, 5.0) == {"ben": b"re:x"}
        assert transport.connected() == transport.membership.key_digests
        assert transport.exchange({}, 5.0) == {}
    assert transport.told == []


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (-1, "is not connected"),
        (-2, "answered something that is no message of bonafed"),
        (1, "has a node that was not started by bonafed participate"),
        (2, "as \\x1bsaid"),
        (3, "gave no answer in time (5 seconds)"),
        (4, "answered, but the answer was lost"),
        (5, "is no longer connected"),
        (8, "has a node that stopped responding"),
        (77, "gave no answer (Flower's code 77: as \\x1bsaid)"),
    ],
)
def test_errors_are_failures_of_those_they_are_about(play, code, reason):
    with play({2: code}) as transport:
        assert transport.exchange(MESSAGES, 5.0) == {**ALL, "ben": Failure(reason, absent=True)}


def test_silence_ends(play):
    with play({2: "silence"}) as transport:
        late = Failure("gave no answer in time (0.2 seconds)", absent=True)
        assert transport.exchange(MESSAGES, 0.2) == {**ALL, "ben": late}


def test_who_is_not_connected_is_not_asked(play):
    with play({"online": ("ada", "cyd")}) as transport:
        missing = Failure("is not connected", absent=True)
        assert transport.exchange({"ada": b"ada", "ben": b"x"}, 5.0) == {"ada": ALL["ada"], "ben": missing}
        assert list(transport.connected()) == ["ada", "cyd"]


def test_a_lost_run_is_replaced_and_only_who_did_not_answer_is_asked_again(play):
    # cyd, ben, ada are asked in this order: cyd has answered when the first run dies
    with play({2: "die"}, {3: "die"}) as transport:
        assert transport.exchange(MESSAGES, 5.0) == ALL
    assert transport.told == ["the ServerApp has gone: a new Flower run goes on where this one ended"]
    assert transport.stopped == ["run 1", "run 0"]  # as it is not known here that they ended


def test_too_many_lost_runs_end_the_exchange(play):
    with play(*[{1: "die"}] * 4) as transport, pytest.raises(AskFailed, match="3 Flower runs were lost"):
        transport.exchange(MESSAGES, 5.0)
    assert len(transport.scripts) == 1


def test_a_superlink_that_does_not_come_back_ends_the_exchange(play):
    with play({1: "die"}) as transport, pytest.raises(AskFailed, match="no SuperLink"):
        transport.exchange(MESSAGES, 5.0)


def test_a_superlink_that_is_not_there_is_said_at_once(play):
    transport = play()
    with pytest.raises(FlowerFailed, match="no SuperLink"), transport:
        pass


def test_a_serverapp_that_never_connects_is_said_and_its_run_stopped(play, monkeypatch):
    monkeypatch.setattr(Played, "_play", lambda *_: None)
    transport = play({})
    with pytest.raises(FlowerFailed, match="did not connect within"), transport:
        pass
    assert transport.stopped == ["run 0"]


def test_a_run_that_fails_at_once_is_said(play, monkeypatch):
    monkeypatch.setattr(Played, "_play", lambda *_: None)
    monkeypatch.setattr(link, "_START", 60.0)
    transport = play({})
    transport.status = "finished:failed"
    with pytest.raises(FlowerFailed, match="has ended before its ServerApp connected"), transport:
        pass


def test_a_ttl_must_be_positive(play):
    with play({}) as transport, pytest.raises(ValueError, match="ttl must be positive"):
        transport.exchange(MESSAGES, 0.0)
