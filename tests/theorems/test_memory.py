"""Memory (theory A5): unbiased given the past, its variance, what it does to Proposition 1.

Expectations are sums over all sets of clients that can be drawn, with their probabilities.
"""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bonafed.learning.federation import Failure, Reply, Task
from bonafed.learning.rounds import Participation, drawn_share, unbiased, weighted_mean
from bonafed.learning.server import Server, ServerState, corrections, expected_change
from bonafed.mechanisms.sampling.convergence import ConvergenceModel, remembered_bounds
from bonafed.mechanisms.sampling.quadratic import QuadraticFederation
from tests.oracles.convergence import loss_bounds
from tests.theorems.test_convergence import models

P = 3


@st.composite
def federations(draw, most=5):
    """Updates of a round, what was received before (None: nothing yet), probabilities, g."""
    n = draw(st.integers(1, most))
    vector = st.lists(st.floats(-5, 5), min_size=P, max_size=P).map(np.array)
    updates = [draw(vector) for _ in range(n)]
    received = tuple(draw(st.none() | vector) for _ in range(n))
    q = np.array([draw(st.floats(0.05, 1)) for _ in range(n)])
    return updates, received, q, draw(st.floats(0, 1))


def change_of(who, updates, received, g):
    """What the server does with the updates of those who are in."""
    server, state = Server("memory", g), ServerState(received, None, None)
    tasks = [Task(str(k), str(k), np.zeros((1, P)), None) for k in who.clients]
    replies = {str(k): Reply(updates[k][None]) for k in who.clients}
    total = corrections(tasks, replies, who, server, state, P)
    return expected_change(who.expected, server, state, P) + total.values[0]


def sets(n):
    return itertools.chain.from_iterable(itertools.combinations(range(n), m) for m in range(n + 1))


def moments(outcomes):
    """Mean, and the expected squared distance from it, of (probability, change)."""
    mean = sum(chance * change for chance, change in outcomes)
    return mean, sum(chance * float(np.sum((change - mean) ** 2)) for chance, change in outcomes)


def by_coins(updates, received, q, g):
    """Every set that independent coins can give."""
    n, outcomes = q.size, []
    for inside in sets(n):
        who = np.array(inside, dtype=np.int64)
        chance = math.prod(q[k] if k in inside else 1 - q[k] for k in range(n))
        drawn = Participation(who, 1 / (n * q[who]), expected=np.full(n, 1 / n))
        outcomes.append((chance, change_of(drawn, updates, received, g)))
    return outcomes


@given(federations())
def test_sampling_is_unbiased_given_the_past_and_its_variance_is_that_of_the_corrections(case):
    updates, received, q, g = case
    n = q.size
    mean, variance = moments(by_coins(updates, received, q, g))
    assert mean == pytest.approx(np.mean(updates, axis=0), abs=1e-11)
    expected = 0.0
    for u, y, chance in zip(updates, received, q, strict=True):
        gap = u - (0.0 if y is None else g * y)
        expected += (1 - chance) / chance * float(gap @ gap) / n**2
    assert variance == pytest.approx(expected, rel=1e-9, abs=1e-11)


@given(federations(), st.data())
def test_a_share_drawn_without_replacement_is_unbiased_for_the_mean_over_all_records(case, data):
    updates, received, q, g = case
    n = q.size
    m, sizes = (
        data.draw(st.integers(1, n)),
        np.array(data.draw(st.lists(st.integers(1, 9), min_size=n, max_size=n))),
    )
    chosen = list(itertools.combinations(range(n), m))
    outcomes = [
        (1 / len(chosen), change_of(drawn_share(np.array(who), sizes), updates, received, g))
        for who in chosen
    ]
    mean, variance = moments(outcomes)
    shares = sizes / sizes.sum()
    assert mean == pytest.approx(shares @ np.array(updates), abs=1e-11)
    before = [np.zeros(P) if y is None else g * y for y in received]
    gaps = shares[:, None] * (np.array(updates) - np.array(before))
    spread = float(np.sum((gaps - gaps.mean(0)) ** 2)) / max(1, n - 1)
    assert variance == pytest.approx(n**2 * (1 - m / n) / m * spread, rel=1e-9, abs=1e-10)


def test_in_a_weighted_mean_nobody_knows_the_expected_weight():
    """Why memory draws with other weights: what a client counts depends on who else is in."""
    sizes, updates = np.array([1, 1, 8]), np.eye(3)
    means = [weighted_mean(np.array(who), sizes) for who in itertools.combinations(range(3), 2)]
    mean = sum(who.weights @ updates[who.clients] for who in means) / 3
    assert np.abs(mean - sizes / 10).max() > 0.2
    assert all(who.expected is None for who in means)


def test_the_weights_of_a_contract_come_with_what_they_are_on_average():
    q = np.array([0.2, 1.0, 0.5, 0.8])
    rng, count = np.random.default_rng(0), np.zeros(4)
    for _ in range(4000):
        who = unbiased(rng, q)
        np.add.at(count, who.clients, who.weights)
    assert count / 4000 == pytest.approx(who.expected, abs=5 * np.sqrt((1 - q) / q / 16 / 4000).max())


@given(federations(most=4))
def test_a_client_that_does_not_deliver_is_one_that_was_not_asked(case):
    updates, received, q, g = case
    server, state = Server("memory", g), ServerState(received, None, None)
    everyone = np.arange(q.size)
    who = Participation(everyone, 1 / (q.size * q), expected=np.full(q.size, 1 / q.size))
    tasks = [Task(str(k), str(k), np.zeros((1, P)), None) for k in everyone]
    replies = {str(k): Reply(updates[k][None]) for k in everyone[1:]} | {"0": Failure("lost")}
    total = corrections(tasks, replies, who, server, state, P)
    rest = Participation(who.clients[1:], who.weights[1:], expected=who.expected)
    left = corrections(tasks[1:], replies, rest, server, state, P)
    assert np.array_equal(total.values, left.values)
    assert total.delivered == (False, *left.delivered)


@given(models(), st.floats(0, 1), st.floats(0, 1))
def test_the_recursion_of_the_proof_with_memory_never_exceeds_the_bound(case, share, g):
    v, q, _ = case
    farthest = np.sqrt(np.mean(np.square(v["gradient_bounds"]))) / v["strong_convexity"]
    v = {**v, "initial_distance": share * farthest}
    corrected = remembered_bounds(v["gradient_bounds"], q, g)
    model, rounds = ConvergenceModel(**v, correction_bounds=corrected), np.arange(60)
    assert model.constant == ConvergenceModel(**v).constant
    rates = model.learning_rate(rounds[:, None], np.arange(v["local_steps"]))
    reached = loss_bounds(v, q, rates, corrected)
    stated = np.array([model.bound(q, int(r) + 1) for r in rounds])
    assert np.all(reached <= stated * (1 + 1e-12))


@given(st.floats(0.05, 1), st.integers(1, 20), st.floats(1, 50), st.integers(1, 60))
def test_an_old_update_is_at_most_kappa_times_as_long(q, steps, ratio, rounds):
    """E over how old it is of the squared ratio of rates, that of then to that of now."""
    gamma = max(8 * ratio, steps)
    rate = 1 / (gamma + steps * np.arange(rounds + 1) + steps - 1)  # of the last steps of rounds 0, 1, ...
    ages = np.arange(1, rounds + 1)
    chances = q * (1 - q) ** (ages - 1)
    mean = float(chances @ (rate[rounds - ages] / rate[rounds]) ** 2)
    kappa = float(remembered_bounds([1.0], [q], 1.0)[0]) - 1
    assert mean <= kappa**2 * (1 + 1e-12)


def test_without_memory_the_bound_is_that_of_proposition_1():
    values = {"smoothness": 2.0, "strong_convexity": 0.5, "local_steps": 5, "gradient_bounds": np.ones(4)}
    plain = ConvergenceModel(**values)
    same = ConvergenceModel(**values, correction_bounds=remembered_bounds(np.ones(4), np.full(4, 0.3), 0.0))
    assert same.bound(np.full(4, 0.3), 10) == plain.bound(np.full(4, 0.3), 10)
    alike = ConvergenceModel(**values, correction_bounds=np.full(4, 0.5))  # y_n = update_n, g = 1/2
    assert alike.data_weights == pytest.approx(plain.data_weights / 4)


@given(
    st.integers(1, 3), st.floats(0.1, 1), st.floats(0.1, 1.2), st.floats(0, 1), st.floats(-2, 2),
    st.lists(st.floats(-2, 2), min_size=3, max_size=3),
)  # fmt: skip
def test_the_errors_of_the_smallest_federation_are_those_over_all_coins(n, q, a, g, start, wanted):
    """Three rounds, every set of clients in each of them, through the code of the server."""
    b = np.array(wanted[:n]) - np.mean(wanted[:n])
    exact = np.zeros(4)

    def follow(w, received, chance, rounds):
        exact[rounds] += chance * w**2
        if rounds == 3:
            return
        updates = [np.full(P, -a * (w - target)) for target in b]
        for inside in sets(n):
            who = np.array(inside, dtype=np.int64)
            p = q ** len(inside) * (1 - q) ** (n - len(inside))
            if p == 0:
                continue
            drawn = Participation(who, np.full(who.size, 1 / (n * q)), expected=np.full(n, 1 / n))
            change = change_of(drawn, updates, received, g)
            kept = tuple(updates[k] if k in inside else received[k] for k in range(n))
            follow(w + float(change[0]), kept, chance * p, rounds + 1)

    follow(start, (None,) * n, 1.0, 0)
    federation = QuadraticFederation(n, q, a, float(np.mean(b**2)))
    assert federation.errors(g, 3, start) == pytest.approx(exact, rel=1e-9, abs=1e-9)


def test_at_small_q_everything_that_is_remembered_is_too_much():
    """g = 1 takes all the sampling out of the error where many are in, and explodes where few are."""
    many, few = (QuadraticFederation(20, q, 0.5, 1.0) for q in (0.3, 0.02))
    assert many.growth(1.0) < 1
    assert many.errors(1.0, 400)[-1] < 1e-12 < many.errors(0.5, 400)[-1]
    assert many.errors(0.5, 400)[-1] == pytest.approx(many.errors(0.0, 400)[-1] / 4, rel=0.05)
    assert few.growth(0.0) < 1 < few.growth(1.0)
    assert few.errors(1.0, 400)[-1] > 1e3 * few.errors(0.0, 400)[-1]
