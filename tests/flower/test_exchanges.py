"""Bytes over a real federation: what is asked is answered, by whom it was asked, whatever is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from bonafed.flower.link import FlowerTransport
from bonafed.flower.participant_process import FAILED
from bonafed.learning.federation import Failure
from bonafed.remote.keys import make_member_key
from tests.flower.harness import NAMES, Trial


@pytest.fixture(scope="module")
def opened(trial: Trial):
    """A transport, and what it tells."""
    everything: list[str] = []
    with FlowerTransport(trial.folder.path, tell=everything.append) as transport:
        yield transport, everything
    assert not trial.processes("flwr-serverapp")


@pytest.fixture
def told(opened) -> list[str]:
    opened[1].clear()
    return opened[1]


@pytest.fixture
def transport(opened, told: list[str]) -> FlowerTransport:
    return opened[0]


def echoes(messages):
    return {name: name.encode() + b":" + message for name, message in messages.items()}


def test_everybody_answers_its_own_message_and_answers_are_sorted_by_name(transport, told):
    messages = {name: name.upper().encode() for name in reversed(NAMES)}
    for _ in range(2):
        answers = transport.exchange(messages, 60.0)
        assert answers == echoes(messages)
        assert list(answers) == sorted(NAMES)
    assert not told


def test_nobody_asked_nobody_answers(transport):
    assert transport.exchange({}, 60.0) == {}


def test_long_messages_and_empty_ones_travel(transport):
    messages = {"ada": os.urandom(11_000_000), "ben": b""}
    assert transport.exchange(messages, 120.0) == echoes(messages)


def test_who_is_connected_is_known_by_its_registered_key(trial, transport):
    assert transport.connected() == trial.membership.key_digests
    assert transport.online_nodes().strangers == ()


def test_who_fails_says_nothing_of_why_and_the_others_answer(trial, transport):
    answers = transport.exchange({"ada": b"fail", "ben": b"x"}, 60.0)
    assert answers == {"ada": Failure(FAILED, absent=True), "ben": b"ben:x"}
    assert "my cost" in trial.said("ada")  # the participant itself is told


def test_who_is_late_is_a_failure_and_goes_on_afterwards(transport):
    answers = transport.exchange({"ada": b"wait 8", "ben": b"x"}, 4.0)
    assert answers["ben"] == b"ben:x"
    assert answers["ada"] == Failure("gave no answer in time (4 seconds)", absent=True)
    assert transport.exchange({"ada": b"y"}, 60.0) == {"ada": b"ada:y"}


def test_a_serverapp_killed_in_the_middle_is_replaced_and_asks_again(trial, transport, told):
    kill_soon = threading.Timer(1.0, lambda: [os.kill(p, 9) for p in trial.processes("flwr-serverapp")])
    kill_soon.start()
    messages = dict.fromkeys(NAMES, b"wait 3")
    assert transport.exchange(messages, 60.0) == echoes(messages)
    assert told == ["the ServerApp has gone: a new Flower run goes on where this one ended"]


def test_a_node_that_is_not_registered_is_refused_and_sent_nothing(trial, transport, tmp_path):
    text = trial.folder.settings("ada").read_text()
    for name in ("ca.crt", "operator.pub.pem"):
        (tmp_path / name).write_bytes((trial.folder.member("ada") / name).read_bytes())
    make_member_key(tmp_path / "key")
    settings = tmp_path / "me.toml"
    settings.write_text(text.replace('folder = "state"', f'folder = "{trial.folder.path}/liar"'))
    trial.start("liar", settings=settings)  # it calls itself ada
    trial.await_said("liar", "refused: ")
    assert "has not registered the key of ada" in trial.said("liar")
    assert "connected to" not in trial.said("liar")
    assert trial.stop("liar") == 0
    assert transport.exchange({"ada": b"x"}, 60.0) == {"ada": b"ada:x"}


def test_a_registered_node_that_is_not_on_the_roster_is_a_stranger(trial, tmp_path):
    """The roster of an operator who knows only three of the four."""
    import shutil

    from bonafed.flower.folder import Folder
    from bonafed.remote.roster import Membership

    shutil.copytree(trial.folder.path, tmp_path / "trial")
    own = trial.membership
    three = {name: key for name, key in own.members.items() if name != "dan"}
    Membership(own.name, own.address, own.operator, three).write(Folder(tmp_path / "trial").roster)
    with FlowerTransport(tmp_path / "trial") as transport:
        assert transport.online_nodes().strangers == (own.key_digests["dan"],)
        assert sorted(transport.connected()) == ["ada", "ben", "cyd"]
        assert transport.exchange({"dan": b"x"}, 60.0) == {"dan": Failure("is not connected", absent=True)}
    done = subprocess.run(
        [sys.executable, "-m", "bonafed", "federation", "status", str(tmp_path / "trial"), "--json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    status = json.loads(done.stdout)
    assert [member["connected"] for member in status["members"]] == [True, True, True]
    assert status["strangers"] == [own.key_digests["dan"]]


def test_stopped_by_ctrl_c_leaves_no_run(trial, transport):
    others = set(trial.processes("flwr-serverapp"))
    script = (
        "import signal, sys; from pathlib import Path; from bonafed.flower.link import FlowerTransport\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # who starts it may ignore it
        "with FlowerTransport(Path(sys.argv[1])) as transport:\n"
        "    print('asking', flush=True)\n"
        "    transport.exchange({'ada': b'wait 5'}, 60.0)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(trial.folder.path)],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"asking\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(120) != 0
    process.stdout.close()
    assert set(trial.await_ended("flwr-serverapp", but=others)) == others


def test_a_killed_participant_is_a_failure_and_comes_back(trial, transport):
    kill_soon = threading.Timer(2.0, trial.kill, ["cyd"])
    kill_soon.start()
    answers = transport.exchange({"cyd": b"wait 30", "dan": b"x"}, 8.0)
    assert answers["dan"] == b"dan:x"
    assert isinstance(answers["cyd"], Failure)
    trial.start("cyd")
    trial.await_connected("cyd")
    assert transport.exchange({"cyd": b"y"}, 60.0) == {"cyd": b"cyd:y"}


def test_a_superlink_that_was_killed_and_started_again_goes_on(trial, transport):
    messages = dict.fromkeys(NAMES, b"wait 2")

    def restart() -> None:
        trial.kill_superlink()
        time.sleep(1.0)
        trial.start_superlink()

    restart_soon = threading.Timer(1.0, restart)
    restart_soon.start()
    answers = transport.exchange(messages, 90.0)
    restart_soon.join()
    assert answers == echoes(messages)


def test_a_participant_stops_in_the_middle_of_a_message_and_is_no_longer_connected(trial, transport):
    assert isinstance(transport.exchange({"ben": b"wait 300"}, 3.0)["ben"], Failure)
    assert trial.stop("ben") == 0
    assert trial.said("ben").splitlines()[-1] == "stopped"
    assert transport.exchange({"ben": b"x"}, 60.0) == {"ben": Failure("is not connected", absent=True)}
    trial.start("ben")
    trial.await_connected("ben")
