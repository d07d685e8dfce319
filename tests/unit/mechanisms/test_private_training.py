"""How long to train in noise (theory P9): the arithmetic, the theorem behind it, the word before a run."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bonafed.learning.privacy import noise_multiplier
from bonafed.learning.privacy.planning import DWARFED, noise_share, rate_for, steps_for
from bonafed.learning.rounds import weighted_mean
from bonafed.learning.work import LocalTraining
from bonafed.mechanisms.private_training import (
    PRIVATE_TRAINING,
    Course,
    PrivateOptions,
    advise,
    course_of,
    noise_note,
)
from bonafed.runs import config, prepare

DIGITS = {"records": 144, "clients": 10, "epsilon": 1.0, "delta": 1e-5, "clip": 1.0, "parameters": 650}


@given(
    st.integers(1, 400), st.integers(1, 5), st.floats(0.1, 20), st.floats(0.1, 4), st.integers(1, 400),
    st.integers(1, 30), st.floats(0.01, 3), st.integers(1, 400),
)  # fmt: skip
def test_the_course_of_a_run_adds_up_every_step_of_everybody(n, clients, eps, clip, size, rounds, rate, b):
    spec = LocalTraining(batch_size=b, learning_rate=rate, epochs=1, clip=clip)
    sizes = np.full(clients, n)
    who, multiplier = weighted_mean(range(clients), sizes), noise_multiplier(eps, 1e-5, rounds)
    course = course_of([(who, spec)] * rounds, sizes, np.full(clients, multiplier), size)
    variance = furthest = 0.0
    for _ in range(rounds * clients * math.ceil(n / b)):
        variance += size * (rate / clients * multiplier * 2 * clip / min(b, n)) ** 2
        furthest += rate * clip / clients
    assert course.noise == pytest.approx(math.sqrt(variance), rel=1e-9)
    assert course.furthest == pytest.approx(furthest, rel=1e-9)
    assert course.time == pytest.approx(rounds * math.ceil(n / b) * rate, rel=1e-9)
    assert course.whole == (b >= n)
    if n % min(b, n) == 0:  # full batches: the share of the theory, whatever rounds and rate are
        share = noise_share([1 / clients] * clients, eps, n, 1e-5, size, batch_size=b)
        assert course.share == pytest.approx(share, rel=1e-9)


@given(
    st.floats(0.01, 1), st.floats(0.01, 10), st.floats(0.01, 10), st.integers(1, 200), st.floats(0, 3),
)  # fmt: skip
def test_the_bound_holds_for_quadratic_losses_where_everything_can_be_computed(
    share, smooth, far, rounds, noise
):
    """E w_(t+1)^2 = (1 - eta L)^2 E w_t^2 + eta^2 T V, exactly, for the loss L w^2/2."""
    rate, square, losses = share / (2 * smooth), far**2, []
    for _ in range(rounds):
        losses.append(smooth * square / 2)
        square = (1 - rate * smooth) ** 2 * square + rate**2 * rounds * noise**2
    tau = rate * rounds
    assert np.mean(losses) <= (far**2 / tau + tau * noise**2) * (1 + 1e-12)


@given(
    st.integers(10, 5000),
    st.integers(1, 500),
    st.floats(0.1, 20),
    st.integers(1, 10**5),
    st.floats(0.1, 10),
    st.integers(1, 300),
    st.sampled_from(["client", "sum"]),
)
def test_plans_balance_progress_and_noise(records, clients, eps, size, clip, rounds, noise_at):
    asked = PrivateOptions(records, clients, size, eps, 1e-5, clip, noise_at, rounds)
    plan = asked.plan()
    multiplier = noise_multiplier(eps, 1e-5, plan.steps * rounds)
    per_weight = multiplier * 2 * clip / records / (clients if noise_at == "sum" else math.sqrt(clients))
    assert plan.noise == pytest.approx(per_weight * math.sqrt(size), rel=1e-9)
    assert 1 <= plan.steps <= (1 if noise_at == "sum" else 5)
    assert 0 < plan.learning_rate * clip <= 4 * (1 + 1e-12)
    assert plan.batch_size == records
    assert plan.dwarfed == (plan.share > 1 / 3)
    time = rounds * plan.steps * plan.learning_rate
    assert time <= 10 / (clip * plan.share) * (1 + 1e-9)  # tau = D/sqrt(V), D = 10
    if plan.learning_rate * clip < 4 * (1 - 1e-12):
        assert time == pytest.approx(10 / (clip * plan.share), rel=1e-9)
    elif plan.steps == 1 or noise_at == "sum":
        pass  # as far as stable steps go
    else:  # with a step less, the largest stable rate would not reach it
        assert (plan.steps - 1) * rounds * 4 / clip < 10 / (clip * plan.share) * (1 + 1e-9)
    unit = replace(asked, clip=1.0).plan()
    assert (unit.steps, unit.share) == (plan.steps, plan.share)  # the clip is a unit of both
    assert unit.learning_rate == pytest.approx(plan.learning_rate * clip, rel=1e-9)  # 1/C, not 1/C^2


def test_more_records_clients_and_epsilon_leave_less_noise_and_smaller_batches_more():
    ten, forty = [0.1] * 10, [1 / 40] * 40
    base = noise_share(ten, 1.0, 144, 1e-5, 650)
    assert noise_share(ten, 1.0, 288, 1e-5, 650) == pytest.approx(base / 2)
    assert noise_share(forty, 1.0, 144, 1e-5, 650) == pytest.approx(base / 2)
    assert noise_share(forty, 1.0, 144, 1e-5, 650, on_sum=True) == pytest.approx(base / 2 / 40**0.5)
    assert noise_share(ten, 1.0, 144, 1e-5, 650, batch_size=36) == pytest.approx(2 * base)
    assert noise_share(ten, 1.0, 144, 1e-5, 650, batch_size=999) == base
    assert noise_share(ten, 1.0, 144, 1e-5, 650, batch_size=36, batches="poisson") == pytest.approx(
        base / 2
    )
    assert noise_share(ten, 2.0, 144, 1e-5, 650) < 0.6 * base


def test_whoever_releases_nothing_brings_no_noise():
    alone = noise_share([1.0], [2.0], [30], 1e-5, 21)
    assert noise_share([1.0, 0.0, 0.0], [2.0, 1.0, 0.0], [30, 30, 0], 1e-5, 21) == alone
    assert noise_share([0.5, 0.5], [0.0, 0.0], [30, 30], 1e-5, 21) == 0
    assert (steps_for(0.0, 20), rate_for(0.0, 2.0, 20)) == (5, 2.0)  # nothing is in the way


def test_one_who_sells_little_makes_the_noise_of_a_sum_and_hardly_that_of_the_others():
    weights, sizes = [0.5, 0.5], [30, 30]
    both = [noise_share(weights, [0.1, 8.0], sizes, 1e-5, 21, on_sum=at) for at in (True, False)]
    first = noise_share([0.5], 0.1, 30, 1e-5, 21)
    assert both[0] == first
    assert first < both[1] < 1.01 * first
    assert first > DWARFED


def test_what_is_said():
    document = advise(PrivateOptions(**DIGITS))
    assert str(document).startswith(
        "Train 20 rounds of 1 step at learning rate 1.2, with batches of all records: batch_size = 144,"
    )
    assert "It takes about 181 records for each client, or 16 clients, or a larger epsilon." in str(
        document
    )
    assert document.data["dwarfed"]
    assert document.data["adjacency"] == "replace one"
    assert "not to be compared with epsilons for adding or removing" in str(document)
    enough = {**DIGITS, "records": 181}
    assert not advise(PrivateOptions(**enough)).data["dwarfed"]
    assert not advise(PrivateOptions(**{**DIGITS, "clients": 16})).data["dwarfed"]
    assert [row["epsilon"] for row in document.data["table"]] == [0.5, 1, 2, 4, 8]


def test_one_of_something_is_not_several():
    alone = advise(PrivateOptions(**{**DIGITS, "records": 1, "clients": 1, "parameters": 1}))
    assert "1 client of 1 record, 1 weight\n" in str(alone)
    assert "10 clients of 144 records, 650 weights" in str(advise(PrivateOptions(**DIGITS)))


def test_the_help_says_where_noise_can_be_added():
    assert "noise at every client or once on the sum (--noise-at)" in PRIVATE_TRAINING.details


def test_notes_before_a_run():
    common = {"records": 100, "clients": 10, "parameters": 650, "whole": True, "rounds": 20}
    dwarfed = Course(noise=5.0, furthest=10.0, time=10.0, **common)
    assert noise_note(dwarfed, 1.0, 1e-5, 1.0) == (
        "noise dwarfs the signal: over the run, noise moves the model by 5, clipped gradients by 10 at most"
        ": bonafed advise private-training --records 100 --clients 10 --parameters 650 --epsilon 1.0 "
        "--delta 1e-05 --clip 1.0 --rounds 20"
    )
    small = Course(noise=5.0, furthest=10.0, time=10.0, **{**common, "whole": False})
    assert "at most; batches of all records need less: bonafed" in noise_note(small, 1.0, 1e-5, 1.0)
    long = Course(noise=100.0, furthest=1000.0, time=1000.0, **common)
    assert "its learning rates add up to 1e+03, about 100 would do" in noise_note(long, 1.0, 1e-5, 1.0)
    clipped = noise_note(long, 1.0, 1e-5, 0.5)
    assert "about 200 would do" in clipped  # 1/C, not 1/C^2
    assert noise_note(Course(noise=10.0, furthest=100.0, time=100.0, **common), 1.0, 1e-5, 1.0) is None
    assert noise_note(Course(noise=0.0, furthest=0.0, time=0.0, **common), 1.0, 1e-5, 1.0) is None


def made(**privacy):
    tables = {
        "data": {"name": "digits"},
        "partition": {"kind": "iid", "clients": 10},
        "model": {"name": "softmax"},
        "training": {"rounds": 12, "learning_rate": 1.0, "batch_size": 150},
        "privacy": {"clip": 1.0, "delta": 1e-5, "noise": "reproducible", **privacy},
        "run": {"cores": 1},
    }
    return prepare.prepare(config.from_tables(tables))


def test_a_run_whose_noise_dwarfs_its_signal_says_so():
    (warning,) = made(epsilon=1.0).warnings
    assert warning.startswith("noise dwarfs the signal: over the run, noise moves the model by 5.0")
    assert "--records 144 --clients 10 --parameters 650 --epsilon 1.0" in warning
    assert list(made(epsilon=8.0).warnings) == []
    assert list(made(epsilon=0.5, batches="poisson").warnings)  # whatever the batches
