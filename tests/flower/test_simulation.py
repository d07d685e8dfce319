"""The same bytes over Flower's simulation engine (Ray)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bonafed.flower.folder import NewFederation, make_federation
from bonafed.flower.participant_process import FAILED
from bonafed.flower.simulation import SimulatedTransport
from bonafed.learning.federation import Failure
from tests.flower.harness import NAMES


@pytest.fixture(scope="module")
def transport(tmp_path_factory):
    folder = tmp_path_factory.mktemp("simulation") / "trial"
    make_federation(folder, NewFederation(NAMES))
    root = str(Path(__file__).parents[2])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]))
        patch.setenv(
            "RAY_memory_monitor_refresh_ms", "0"
        )  # what else runs on the machine is not its affair
        with SimulatedTransport(folder, opener="tests.flower.echo:Echo") as opened:
            yield opened


def test_everybody_answers_its_own_message(transport):
    assert transport.connected() == transport.membership.key_digests
    messages = {name: os.urandom(2_000_000) for name in NAMES}
    for _ in range(2):
        answers = transport.exchange(messages, 60.0)
        assert answers == {name: name.encode() + b":" + message for name, message in messages.items()}


def test_who_fails_says_nothing_of_why_and_the_others_answer(transport):
    answers = transport.exchange({"ada": b"fail", "ben": b"x", "eve": b"x"}, 60.0)
    assert answers["ada"] == Failure(FAILED, absent=True)
    assert answers["ben"] == b"ben:x"
    assert answers["eve"] == Failure("is not connected", absent=True)


def test_a_member_lives_in_one_process(transport):
    first = transport.exchange(dict.fromkeys(NAMES, b"who"), 60.0)
    for _ in range(3):
        assert transport.exchange(dict.fromkeys(NAMES, b"who"), 60.0) == first
