"""The account of a federation that the server cannot look into."""

import numpy as np
import pytest

from bonafed.contracts.terms import Turns
from bonafed.errors import BadUpdate, InvalidValue
from bonafed.learning.federation import Reply, Roster
from bonafed.learning.function_federation import FunctionFederation
from bonafed.learning.privacy import Ledger
from bonafed.mechanisms import fedavg
from bonafed.runs.config import from_tables

TABLES = {
    "data": {"name": "digits", "classes": 10},
    "partition": {"kind": "iid", "clients": 3},
    "model": {"name": "softmax"},
    "training": {"rounds": 4, "learning_rate": 0.1, "batch_size": 10, "epochs": 1},
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
        "training": {**TABLES["training"], "epochs": None, "steps": 1, **training},
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


MOVES = {"ada": 1.0, "ben": 2.0, "cleo": 5.0}  # what each changes every weight by; records 30, 40, 50


def moving(**instead):
    """Clients that answer with their move, or with something else."""
    return lambda tasks: {
        task.identifier: instead.get(task.client, np.full((1, 6), MOVES[task.client])) for task in tasks
    }


def one_round(config, ask, adding=False):
    """The change of the first weight, the state and the line of a round."""
    mechanism = fedavg.SLICE.make(config, MEMBERS, 6)
    federation = FunctionFederation(MEMBERS, ask)
    if adding:
        adding = Adding()
        adding.honest, federation = federation, adding
    state = mechanism.begin(mechanism.agree(MEMBERS, {}), np.zeros(6))
    after, what = mechanism.advance(state, federation)
    return float(after.model[0]), after, what


OPEN = {name: table for name, table in TABLES.items() if name != "privacy"}
SKIP = {**TABLES, "training": {**TABLES["training"], "on_bad_update": "skip"}}
NAN = np.full((1, 6), np.nan)


@pytest.mark.parametrize("tables", [OPEN, TABLES], ids=["open", "private"])
def test_who_is_absent_is_left_out_of_the_mean_and_named(tables):
    """Under "raise", the default; also where privacy is promised."""
    change, state, what = one_round(from_tables(tables), moving(ben=None))
    assert change == pytest.approx((30 * 1.0 + 50 * 5.0) / 80)
    assert what.participants == ["ada", "ben", "cleo"]
    assert what.failed == ["ben"]
    assert state.participations.tolist() == [1, 1, 1]
    assert state.delivered.tolist() == [1, 0, 1]
    if tables is TABLES:
        assert [release.client for release in what.releases] == [0, 2]
        assert what.steps == 8  # 3 of ada, 5 of cleo
        assert state.releases.tolist() == [1, 0, 1]


def test_a_failure_that_may_depend_on_records_changes_nothing_and_is_not_told():
    whole = (30 * 1.0 + 50 * 5.0) / 120  # its share is lost
    change, state, what = one_round(from_tables(SKIP), moving(ben=NAN))
    assert change == pytest.approx(whole)
    assert what.failed == []
    assert state.delivered.tolist() == [1, 1, 1]
    assert [release.client for release in what.releases] == [0, 1, 2]
    change, state, what = one_round(from_tables(SKIP), moving(ben=NAN, ada=None))
    assert change == pytest.approx(50 * 5.0 / 90)
    assert what.failed == ["ada"]
    assert state.delivered.tolist() == [0, 1, 1]


def test_with_noise_on_the_sum_the_share_of_the_absent_is_lost():
    """The noise stays, and would be magnified with the sum."""
    change, state, what = one_round(on_sum(), moving(ben=None), adding=True)
    assert change == pytest.approx((30 * 1.0 + 50 * 5.0) / 120)
    assert what.failed == ["ben"]
    assert [release.client for release in what.releases] == [0, 2]
    assert state.lost[1] == 0 < state.lost[0]


@pytest.mark.parametrize("tables", [OPEN, TABLES], ids=["open", "private"])
def test_raise_is_about_answers_that_came(tables):
    config = from_tables(tables)
    assert one_round(config, moving(ben=TimeoutError()))[2].failed == ["ben"]
    assert one_round(config, moving(ada=None, ben=None, cleo=None))[0] == 0
    for unusable in (NAN, ValueError("no records"), np.zeros(6)):
        with pytest.raises(BadUpdate, match="update of client ben in round 1"):
            one_round(config, moving(ada=None, ben=unusable))


def test_turns_are_counts_that_fit():
    turns = Turns.of([2, 0], asked=np.array([2, 3]))
    assert (turns.delivered.tolist(), turns.asked.tolist()) == ([2, 0], [2, 3])
    assert turns.columns == {"participations": [2, 0], "sampled": [2, 3]}
    assert Turns.of((1, 2)).columns == {"participations": [1, 2]}
    for bad, message in (
        (([1], [1, 2]), "asked must be 1, one per client, got 2"),
        (([1, 3], [1, 2]), "delivered must be at most what client 1 was asked for, 2, got 3"),
        (([-1],), "delivered must be a whole number of at least 0, got -1"),
        (([1.5],), "delivered must be a whole number of at least 0, got 1.5"),
    ):
        with pytest.raises(InvalidValue) as refused:
            Turns.of(*bad)
        assert str(refused.value) == message
