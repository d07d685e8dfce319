"""The account of a federation that the server cannot look into."""

import numpy as np
import pytest

from bonafed.errors import InvalidValue
from bonafed.learning.federation import Reply, Roster
from bonafed.learning.functions import FunctionFederation
from bonafed.learning.privacy import Ledger
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


def on_sum(**training):
    """The same run with noise on the sum, one step a round."""
    return from_tables({
        **TABLES,
        "training": {**TABLES["training"], "steps": 1, **training},
        "privacy": {**TABLES["privacy"], "noise_at": "sum"},
    })  # fmt: skip


def test_a_federation_that_cannot_add_noise_to_a_sum_is_refused_before_anybody_is_asked():
    mechanism = fedavg.SLICE.make(on_sum(), MEMBERS, 6)
    state = mechanism.begin(mechanism.agree(MEMBERS, {}), np.zeros(6))
    asked = []
    federation = FunctionFederation(MEMBERS, lambda tasks: asked.extend(tasks) or answer(tasks))
    with pytest.raises(
        InvalidValue, match=r"^noise must be 0: .* \(with noise_at = \"client\" each adds its"
    ):
        mechanism.advance(state, federation)
    assert asked == []


class Adding:
    """A federation that adds noise to sums, and counts what it was asked for."""

    def __init__(self):
        self.honest, self.asked = FunctionFederation(MEMBERS, answer), []

    def total(self, tasks, shares, noise=0.0):
        self.asked.append(([task.work for task in tasks], noise))
        return self.honest.total(tasks, shares)

    def __getattr__(self, name):
        return getattr(self.honest, name)


def test_clients_are_asked_to_clip_and_to_add_nothing_and_the_ledger_has_the_actual_noise():
    mechanism, federation = fedavg.SLICE.make(on_sum(weight_decay=0.5), MEMBERS, 6), Adding()
    state = mechanism.begin(mechanism.agree(MEMBERS, {}), np.full(6, 0.25))
    releases = []
    while state.round_number < mechanism.rounds:
        before = state.model
        state, what = mechanism.advance(state, federation)
        assert state.model == pytest.approx(before * (1 - 0.1 * 0.5))  # the decay, by the server
        releases += what.releases
    for works, noise in federation.asked:
        assert noise > 0
        assert all(work.noise_multiplier == 0 and work.training.clip == 1.0 for work in works)
        assert all(work.training.weight_decay == 0 for work in works)
    promised = state.noise_multipliers
    assert all(release.multiplier >= promised[release.client] * (1 - 1e-12) for release in releases)
    statement = mechanism.settle(state, federation)
    spent = [Ledger(tuple(releases)).epsilon(client, 1e-5) for client in range(3)]
    assert statement.columns["epsilon"] == pytest.approx(spent, rel=1e-9)
    # weights n/120, batches of 10: whoever has most records needs most noise, and the others get it too
    assert spent[2] == pytest.approx(2.0, rel=0.01)
    assert spent[0] < spent[1] < spent[2] <= 2.0
