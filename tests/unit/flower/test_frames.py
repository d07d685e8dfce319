"""Frames: what is sent is read, and what is no frame is refused."""

import os
import socket
import stat
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bonafed.errors import InvalidValue
from bonafed.flower import frames
from bonafed.flower.frames import BadFrame, connect, is_own, listen, private_folder, read_frame, send_frame


@pytest.fixture
def pair():
    one, other = socket.socketpair()
    with one, other:
        yield one, other


@given(
    header=st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=3),
    body=st.binary(max_size=1000),
)
def test_frames_read_back(header, body):
    one, other = socket.socketpair()
    with one, other:
        send_frame(one, header, body)
        send_frame(one, {})
        assert read_frame(other) == (header, body)
        assert read_frame(other) == ({}, b"")


def test_the_end_between_two_frames_is_no_error(pair):
    pair[0].close()
    assert read_frame(pair[1]) is None


@pytest.mark.parametrize(
    "data",
    [
        b"\0",
        struct.pack(">IQ", 2, 5) + b"{}" + b"1234",
        struct.pack(">IQ", 2, 0) + b"[]",
        struct.pack(">IQ", 2, 0) + b"{x",
        struct.pack(">IQ", 2, 0) + b"\xff\xff",
        struct.pack(">IQ", 5000, 0) + b"[" * 5000,
        struct.pack(">IQ", frames.MOST_HEADER + 1, 0),
        struct.pack(">IQ", 2, frames.MOST_BODY + 1) + b"{}",
    ],
    ids=["cut", "body cut", "list", "no JSON", "no text", "deep", "long header", "long body"],
)
def test_what_is_no_frame_is_refused(pair, data):
    pair[0].sendall(data)
    pair[0].close()
    with pytest.raises(BadFrame):
        read_frame(pair[1])


def test_a_frame_that_would_be_refused_is_not_sent(pair):
    with pytest.raises(BadFrame, match="must not exceed"):
        send_frame(pair[0], {"long": "x" * frames.MOST_HEADER})


def test_sockets_are_for_their_owner_only():
    with private_folder() as folder:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        with listen(folder / "1.socket") as listener, connect(str(folder / "1.socket")) as client:
            assert stat.S_IMODE((folder / "1.socket").stat().st_mode) == 0o600
            served, _ = listener.accept()
            with served:
                assert is_own(served)
                assert frames.peer(client) == (os.getpid(), os.getuid())
    assert not folder.exists()


def test_a_folder_too_deep_for_sockets_is_refused(tmp_path, monkeypatch):
    deep = tmp_path / ("x" * 90)
    deep.mkdir()
    monkeypatch.setattr(frames.tempfile, "tempdir", str(deep))
    with pytest.raises(InvalidValue, match="TMPDIR"), private_folder():
        pass
    assert list(deep.iterdir()) == []
