"""The server's step beside its slow twin, its state as arrays, and what is not a model any more."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles import server as twin

from bonafed.errors import BadModel, InvalidValue
from bonafed.learning.federation import Failure, Reply, Task
from bonafed.learning.rounds import Participation
from bonafed.learning.server import (
    Server,
    corrections,
    expected_change,
    remembering,
    stepped,
)

N, P, ROUNDS = 4, 3, 6
Q = np.array([0.3, 0.5, 0.9, 1.0])


@st.composite
def histories(draw):
    """Who delivered what, round by round; some rounds nobody."""
    vector = st.lists(st.floats(-3, 3), min_size=P, max_size=P)
    return [draw(st.dictionaries(st.integers(0, N - 1), vector, max_size=N)) for _ in range(ROUNDS)]


def run(server, history, start, cut=None):
    """The models of all rounds; with `cut`, the state is written and read back after that round."""
    model, state, found = np.array(start, dtype=np.float64), server.begin(N, P), []
    for number, updates in enumerate(history, start=1):
        clients = np.array(sorted(updates), dtype=np.int64)
        who = Participation(clients, 1 / (N * Q[clients]), expected=np.full(N, 1 / N))
        tasks = [Task(str(k), str(k), model[None], None) for k in clients]
        replies = {str(k): Reply(np.array([updates[k]])) for k in clients}
        if server.remembers:
            total = corrections(tasks, replies, who, server, state, P)
            change = expected_change(who.expected, server, state, P) + total.values[0]
            state = remembering(state, tasks, replies, who)
        else:
            change = np.zeros(P)
            for client, weight in zip(clients, who.weights, strict=True):
                change += weight * np.array(updates[client])
        model, state = stepped(model, change, server, state, number)
        if number == cut:
            state = server.restore({name: values.copy() for name, values in state.arrays().items()})
        found.append(model)
    return np.array(found)


SIDES = [
    Server(aggregation, *rest)
    for aggregation in ("plain", "memory")
    for rest in ((0.5,), (0.25, "momentum", 0.7, 0.8), (1.0, "adam", 0.1, 0.7, 0.95, 0.01))
]


@pytest.mark.parametrize("server", SIDES, ids=lambda server: f"{server.aggregation} {server.optimizer}")
@given(history=histories(), start=st.lists(st.floats(-1, 1), min_size=P, max_size=P))
def test_every_round_is_that_of_the_twin_and_states_survive(server, history, start):
    weights, g = dict(enumerate(1 / (N * Q))), server.memory_weight if server.remembers else 0.0
    changes = twin.memory_changes(history, weights, dict.fromkeys(range(N), 1 / N), g, P)
    expected = twin.models(
        start, changes, server.optimizer, server.learning_rate, server.momentum, server.beta_2, server.tau
    )
    found = run(server, history, start)
    assert found == pytest.approx(np.array(expected), rel=1e-9, abs=1e-9)
    for cut in (1, 3):
        assert np.array_equal(run(server, history, start, cut), found)


def test_only_clients_of_whom_something_was_received_take_room():
    server = Server("memory")
    state = server.begin(5, 7)
    assert state.arrays()["received"].size == 0
    model = np.zeros((1, 7), dtype=np.float32)
    tasks = [Task(str(k), str(k), model, None) for k in (3, 1)]
    who = Participation(np.array([3, 1]), np.ones(2), expected=np.full(5, 0.2))
    state = remembering(state, tasks, {"3": Reply(np.ones((1, 7))), "1": Failure("lost")}, who)
    assert state.arrays()["received"].shape == (1, 7)
    assert state.arrays()["received"].dtype == np.float32  # as the model is
    assert state.arrays()["received_from"].tolist() == [False, False, False, True, False]
    assert server.restore(state.arrays()).received[3].tolist() == [1.0] * 7
    assert not Server().begin(5, 7).arrays()


@pytest.mark.parametrize(
    ("server", "missing"),
    [
        (Server("memory"), "received"),
        (Server(optimizer="momentum"), "server_first"),
        (Server(optimizer="adam"), "server_second"),
    ],
)
def test_a_checkpoint_of_another_server_is_refused(server, missing):
    arrays = {name: values for name, values in server.begin(3, 2).arrays().items() if name != missing}
    with pytest.raises(InvalidValue, match=f"^checkpoint must hold {missing}, of a server that goes on as"):
        server.restore({"model": np.zeros(2), **arrays})


def test_what_is_not_finite_is_no_model():
    for server in (Server(), Server(optimizer="momentum"), Server(optimizer="adam", learning_rate=1e308)):
        far = np.full(2, 1.0 if server.optimizer == "adam" else 1e39)
        with pytest.raises(BadModel, match="round 3"):
            stepped(np.zeros(2, dtype=np.float32), far, server, server.begin(1, 2), 3)


def test_adam_of_the_server_is_as_printed():
    """Algorithm 2 of Reddi et al. (2021): v begins at tau^2, nothing is corrected for the beginning."""
    server = Server(optimizer="adam", learning_rate=0.1, momentum=0.9, beta_2=0.99, tau=1e-3)
    after, state = stepped(np.zeros(1), np.array([0.5]), server, server.begin(1, 1), 1)
    second = 0.99 * 1e-6 + 0.01 * 0.25
    assert state.first[0] == pytest.approx(0.05, rel=1e-15)
    assert state.second[0] == pytest.approx(second, rel=1e-15)
    assert after[0] == pytest.approx(0.1 * 0.05 / (second**0.5 + 1e-3), rel=1e-15)
