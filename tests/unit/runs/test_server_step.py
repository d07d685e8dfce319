"""Memory and the server's optimizer in a run: their state is the run's, and every round is the twin's."""

from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import pytest
from tests.laws import protocol, worlds
from tests.oracles import server as twin

from bonafed.errors import InvalidValue
from bonafed.learning.federation import Failure, Reply, Roster
from bonafed.learning.function_federation import FunctionFederation
from bonafed.mechanisms.sampling.mechanism import make as make_sampling
from bonafed.runs import config, training
from bonafed.runs.prepare import prepare

MEMORY = ("training", "aggregation", "memory")
SERVER = {
    "momentum": [("training", "server_optimizer", "momentum"), ("training", "server_learning_rate", 0.5)],
    "adam": [("training", "server_optimizer", "adam"), ("training", "server_learning_rate", 0.05)],
}
PRIVATE = [
    ("privacy", "clip", 1.0), ("privacy", "epsilon", 2.0), ("privacy", "delta", 1e-5),
    ("privacy", "noise", "reproducible"),
]  # fmt: skip
RUNS = {
    "memory": ("sampling", [MEMORY]),
    "memory, private": ("sampling", [MEMORY, *PRIVATE]),
    "memory, share of the clients": ("fedavg", [MEMORY, ("training", "participation", 0.5)]),
    "momentum": ("fedavg", SERVER["momentum"]),
    "adam": ("fedavg", SERVER["adam"]),
    "memory and momentum": ("sampling", [MEMORY, *SERVER["momentum"]]),
    "memory and adam, private": ("sampling", [MEMORY, *SERVER["adam"], *PRIVATE]),
}


@pytest.mark.parametrize("name", RUNS)
def test_killed_anywhere_it_ends_with_the_same_bits(name, tmp_path):
    mechanism, changes = RUNS[name]
    made = worlds.setting(mechanism, *changes)
    protocol.config_survives_toml(made.config, tmp_path)
    protocol.state_survives_arrays(made)
    protocol.resumes_to_the_same_bits(made, tmp_path, really=name == "memory and adam, private")


@pytest.mark.parametrize("name", RUNS)
def test_clients_elsewhere_and_two_cores_come_to_the_same_bits(name):
    mechanism, changes = RUNS[name]
    made = worlds.setting(mechanism, *changes)
    assert made.mechanism.needs == ("replies" if MEMORY in changes else "total")
    here = training.train(made)
    with worlds.elsewhere(made) as clients:
        far = prepare(made.config, dataset=worlds.small(), federation=clients)
        protocol.same_result(here, training.train(far), bits=True)
    two = worlds.setting(mechanism, *changes, ("run", "cores", 2))
    protocol.same_result(here, training.train(two), bits=True)


SAMPLED = {
    "data": {"name": "small"},
    "partition": {"kind": "iid", "clients": 5},
    "model": {"name": "softmax"},
    "training": {
        "rounds": 8, "learning_rate": 0.1, "on_bad_update": "skip", "server_optimizer": "adam",
        "server_learning_rate": 0.1,
    },
    "sampling": {"prior": "uniform:0.5,1.5", "total_budget": 24.0},
}  # fmt: skip
NAMES = ("ada", "ben", "cyd", "dan", "eve")
COSTS = dict(zip(NAMES, (0.6, 0.8, 1.0, 1.2, 1.6), strict=True))  # the last is not admitted
MEMBERS = Roster(NAMES, np.array([30, 40, 50, 60, 70]), (4,), 2)
FAILS = {(3, "ada"), (4, "ben"), (5, "ada"), (5, "ben"), (5, "cyd"), (5, "dan")}


def update(task):
    """A change that depends on the client, the round and the model."""
    number = task.work.round_number
    rng = np.random.default_rng([number, NAMES.index(task.client)])
    return 0.1 * rng.standard_normal((1, 6)) - 0.2 * task.models


def answer(tasks):
    return {
        task.identifier: None if (task.work.round_number, task.client) in FAILS else Reply(update(task))
        for task in tasks
    }


def test_every_round_is_that_of_the_twin_with_failures_and_somebody_who_is_not_admitted():
    mechanism = make_sampling(config.from_tables(SAMPLED), MEMBERS, 6)
    federation = FunctionFederation(MEMBERS, answer)
    agreement = mechanism.agree(MEMBERS, COSTS)
    state, start = mechanism.begin(agreement, np.full(6, 0.5)), np.full(6, 0.5)
    q, rounds, found = agreement.terms.probability, [], []
    assert q[4] == 0
    failed = 0
    while state.round_number < mechanism.rounds:
        before = state.model
        state, what = mechanism.advance(state, federation)
        failed += len(what.failed)
        delivered = [name for name in what.participants if name not in what.failed]
        rounds.append({
            NAMES.index(name): update(_task(name, state.round_number, before))[0].tolist()
            for name in delivered
        })  # fmt: skip
        found.append(state.model)
        assert "eve" not in what.participants
    assert failed >= 3  # at one time everybody
    weights = {k: 1 / (4 * q[k]) for k in range(4)}
    expected = {**dict.fromkeys(range(4), 1 / 4), 4: 0.0}
    changes = twin.memory_changes(rounds, weights, expected, 0.5, 6)
    assert np.array(found) == pytest.approx(np.array(twin.models(start, changes, "adam", 0.1)), rel=1e-9)
    note = mechanism.settle(state, federation).notes[-1]
    seen = len({client for updates in rounds for client in updates})
    assert note == f"the server remembers the last update of {seen} of 5 clients, 6 numbers each, " + (
        f"{seen * 48 / 1e6:.3g} MB"
    )


@dataclass
class _Asked:
    client: str
    work: object
    models: np.ndarray


@dataclass
class _Work:
    round_number: int


def _task(name, number, model):
    return _Asked(name, _Work(number), model[None])


@dataclass(frozen=True)
class OnlySums:
    """A federation that adds up in secret."""

    inner: object
    offers = ("total",)

    @property
    def members(self):
        return self.inner.members

    @property
    def vouched(self):
        return ()

    def report(self, question):
        return self.inner.report(question)

    def total(self, tasks, shares, noise=0.0):
        return self.inner.total(tasks, shares, noise)

    def replies(self, tasks):
        raise AssertionError("nobody may ask")


def test_a_federation_that_only_adds_up_is_refused_by_name_unless_sums_are_enough():
    made = worlds.setting("sampling")
    clients = OnlySums(worlds.clients_of(made))
    with pytest.raises(InvalidValue) as refused:
        prepare(made.config, dataset=worlds.small(), federation=clients)
    assert str(refused.value) == (
        'federation must offer replies, which this run needs; training.aggregation = "plain" needs only '
        "total, got total"
    )
    plain = worlds.setting("sampling", ("training", "aggregation", "plain"))
    summed = prepare(plain.config, dataset=worlds.small(), federation=OnlySums(worlds.clients_of(plain)))
    protocol.same_result(training.train(plain), training.train(summed), bits=True)
    with pytest.raises(InvalidValue, match=r"^federation must offer replies, which this run needs, got"):
        prepare(worlds.setting("rewards").config, dataset=worlds.small(), federation=clients)


def test_rules_that_do_not_know_how_often_somebody_is_in_are_refused():
    with ExitStack() as stack:
        stack.enter_context(worlds.registered())
        with pytest.raises(InvalidValue) as refused:
            worlds.setting(worlds.PRICE_LOTTERY.name, MEMORY)
    assert str(refused.value) == (
        'training.aggregation must be "plain": the expected weight of a client in a round is not known '
        'beforehand, got "memory"'
    )


def test_a_round_without_anybody_repeats_half_of_what_is_remembered(make, small):
    """g sum of p_n y_n, whoever it was received from."""
    nobody = {"data": {"name": "d"}, "model": {"name": "softmax"}, **SAMPLED}
    nobody["training"] = {"rounds": 5, "learning_rate": 0.1, "on_bad_update": "skip"}
    mechanism = make_sampling(config.from_tables(nobody), MEMBERS, 6)
    agreement = mechanism.agree(MEMBERS, COSTS)
    state = mechanism.begin(agreement, np.zeros(6))
    state, _ = mechanism.advance(state, FunctionFederation(MEMBERS, answer))
    received = [np.zeros(6) if y is None else y for y in state.server.received]
    lost = FunctionFederation(MEMBERS, lambda tasks: {task.identifier: Failure("lost") for task in tasks})
    after, _ = mechanism.advance(state, lost)
    assert after.model - state.model == pytest.approx(0.5 * sum(received[:4]) / 4, rel=1e-12)
    assert all(
        a is b for a, b in zip(after.server.received, state.server.received, strict=True)
    )  # what was received stays


def test_memory_where_hardly_anybody_is_in_is_warned_of(make, small):
    paid = ("sampling.prior=uniform:0.5,1.5", "training.aggregation=memory")
    few = prepare(make(*paid, "sampling.total_budget=10", "training.rounds=20"), dataset=small)
    (warning,) = few.warnings
    turns = sum(len(record["participants"]) for record in training.train(few).metrics)
    assert 0 < turns < 20
    assert warning.startswith(f"{turns / 20:.2g} clients are in a round on average: what is remembered of")
    assert list(prepare(make(*paid, "sampling.total_budget=15"), dataset=small).warnings) == []


@pytest.mark.parametrize(("way", "is_like"), [("momentum", "plain SGD"), ("adam", "in the sign of every")])
def test_local_optimizers_with_one_local_step_are_told_for_what_they_are(make, small, way, is_like):
    one = ("training.steps=1", f"training.optimizer={way}")
    (warning,) = prepare(make(*one), dataset=small).warnings
    assert warning.startswith(
        f'training.optimizer = "{way}" begins anew in every round: with one local step'
    )
    assert is_like in warning
    for fine in (("training.steps=2", one[1]), ("training.steps=1",)):
        assert prepare(make(*fine), dataset=small).warnings == []


def test_with_one_local_step_momentum_is_sgd_and_the_servers_is_not(make, small):
    def final(*changes):
        made = prepare(make("training.steps=1", "training.learning_rate=0.05", *changes), dataset=small)
        return training.train(made).summary["test_loss"]

    assert final("training.optimizer=momentum") == pytest.approx(final(), rel=1e-6)  # single precision
    assert final("training.server_optimizer=momentum") < final()
