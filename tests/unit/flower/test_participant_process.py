"""A participant's process answers one message at a time, and survives failures and nonsense."""

import struct
import threading

import pytest

from bonafed.flower import participant_process as keeping
from bonafed.flower.frames import connect, private_folder, read_frame, send_frame
from bonafed.flower.participant_process import FAILED, ParticipantProcess


@pytest.fixture
def told():
    return []


@pytest.fixture
def place():
    with private_folder() as folder:
        yield folder / "participant"


def ask(place, message, kind="message"):
    with connect(str(place)) as connection:
        send_frame(connection, {"kind": kind}, message)
        return read_frame(connection)


def test_messages_are_answered(place, told):
    with (
        ParticipantProcess(place, lambda message: message[::-1], told.append),
        connect(str(place)) as connection,
    ):
        for message in (b"abc", b"", bytes(3_000_000)):
            send_frame(connection, {"kind": "message"}, message)
            assert read_frame(connection) == ({"kind": "reply"}, message[::-1])
    assert told == []


def test_a_failure_is_told_here_and_not_there(place, told):
    def fail(_message):
        raise ValueError("my cost is 0.7")

    with ParticipantProcess(place, fail, told.append):
        assert ask(place, b"x") == ({"kind": "failure", "reason": FAILED}, b"")
    assert "0.7" not in FAILED
    assert told == ["a message could not be handled: ValueError: my cost is 0.7"]


def test_it_knows_whether_it_is_idle(place, told):
    began, go_on = threading.Event(), threading.Event()

    def handle(message):
        began.set()
        go_on.wait(30)
        return message

    with ParticipantProcess(place, handle, told.append) as process:
        assert process.is_idle(0.0)
        asking = threading.Thread(target=ask, args=(place, b"x"))
        asking.start()
        assert began.wait(30)
        assert not process.is_idle(0.0)
        go_on.set()
        assert process.is_idle(30.0)
        asking.join()


def test_one_message_at_a_time(place, told):
    busy, most, both = [], [], threading.Barrier(2)

    def handle(message):
        busy.append(message)
        most.append(len(busy))
        threading.Event().wait(0.05)
        busy.pop()
        return message

    def ask_too(_number):
        both.wait(5)
        assert ask(place, b"x") is not None

    with ParticipantProcess(place, handle, told.append):
        threads = [threading.Thread(target=ask_too, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert most == [1, 1]


@pytest.mark.parametrize(
    "data", [b"\0\0", struct.pack(">IQ", 2, 0) + b"[]", struct.pack(">IQ", 1 << 30, 0)]
)
def test_nonsense_closes_one_connection_and_no_more(place, told, data):
    with ParticipantProcess(place, lambda message: message, told.append):
        with connect(str(place)) as connection:
            connection.sendall(data)
            connection.shutdown(1)
            assert connection.recv(10) == b""
        assert ask(place, b"x", kind="order") is None
        assert ask(place, b"x") == ({"kind": "reply"}, b"x")
    assert [line.partition(":")[0] for line in told] == ["a connection was closed"] * 2


def test_other_users_are_refused(place, told, monkeypatch):
    monkeypatch.setattr(keeping, "is_own", lambda _connection: False)
    with ParticipantProcess(place, lambda message: message, told.append), connect(str(place)) as connection:
        assert connection.recv(10) == b""
    assert told == ["a connection by another user was refused"]
