"""The account of a federation that the server cannot look into."""

import numpy as np
import pytest

from bonafed.learning.federation import Reply, Roster
from bonafed.learning.functions import FunctionFederation
from bonafed.mechanisms import fedavg
from bonafed.runs.config import from_tables

TABLES = {
    "data": {"name": "digits", "classes": 10},
    "partition": {"kind": "iid", "clients": 3},
    "model": {"name": "softmax"},
    "training": {"rounds": 4, "learning_rate": 0.1, "batch_size": 10},
    "privacy": {"clip": 1.0, "epsilon": 2.0, "delta": 1e-5},
}
MEMBERS = Roster(("ada", "ben", "cleo"), np.array([30, 40, 50]), (4,), 2)


def answer(tasks):
    """Changes without a word about releases."""
    return {task.identifier: Reply(np.zeros((1, 6))) for task in tasks}


def test_clients_who_report_no_release_are_charged_what_they_were_asked_for():
    mechanism = fedavg.SLICE.make(from_tables(TABLES), MEMBERS, 6)
    federation = FunctionFederation(MEMBERS, answer)
    state = mechanism.begin(mechanism.agree(MEMBERS, {}), np.zeros(6))
    while state.round_number < mechanism.rounds:
        state, what = mechanism.advance(state, federation)
        assert [release.times for release in what.releases] == [1, 1, 1]
    statement = mechanism.settle(state, federation)
    assert statement.columns["epsilon"] == pytest.approx([2.0] * 3, rel=0.01)
    assert max(statement.columns["epsilon"]) <= 2.0
