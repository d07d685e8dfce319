"""Faithful learning in few exchanges: as accurate as certified, on the digits and on random problems."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from bonafed.errors import InvalidValue
from bonafed.mechanisms.faithful import (
    RidgeRegression,
    SoftmaxRegression,
    faithful,
    minimise,
    vcg_payments,
)
from bonafed.mechanisms.faithful.protocol.exchanges import ExchangesProgress
from bonafed.mechanisms.faithful.protocol.variants import ProtocolRules
from tests.oracles.exchanges import slow_exchanges

MU = 0.003


def digits(agents, delta):
    """The digits with a constant, 8x8, among so many agents; a share `delta` of each is of its own kind."""
    data = load_digits()
    x = np.hstack([data.data / 16, np.ones((len(data.data), 1))])
    x /= np.linalg.norm(x, axis=1).max()
    rng = np.random.default_rng(1)
    owner = np.where(rng.random(len(x)) < 1 - delta, rng.integers(0, agents, len(x)), data.target % agents)
    return SoftmaxRegression(x, data.target, owner, 10, MU, longest=1.0)


@pytest.mark.parametrize("agents", [4, 6, 10])
@pytest.mark.parametrize(("epsilon", "most"), [(1e-3, 30), (1e-5, 40)])
@pytest.mark.parametrize("delta", [0.05, 0.5])
def test_the_digits_take_few_exchanges_and_payments_are_within_their_certificate(
    agents, epsilon, most, delta
):
    problem = digits(agents, delta)
    done = faithful(problem, rules=ProtocolRules(epsilon=epsilon))
    assert done.exchanges <= most
    exact = vcg_payments(problem, done.model)
    short = exact.amount - done.payments.amount
    assert (short >= -done.integration_error).all()
    assert (short <= done.payments.error + done.integration_error).all()
    assert done.payments.error.max() <= epsilon / 2
    assert done.integration_error <= epsilon / 2
    gradient = problem.gradient(done.model[None], problem.weights[None])[0]
    assert done.training_error == pytest.approx(gradient @ gradient / (2 * MU), rel=1e-6)
    assert done.training_error <= epsilon * problem.weights.min()


def softmax(seed, agents, dominated=False, alike=False, mu=None):
    """A random problem; perhaps one agent has nearly all the weight, or all have the same samples."""
    rng = np.random.default_rng(seed)
    features, classes, rows = int(rng.integers(2, 6)), int(rng.integers(2, 5)), int(rng.integers(4, 15))
    x = rng.standard_normal((agents * rows, features))
    owner = np.repeat(np.arange(agents), rows)
    y = rng.integers(0, classes, agents * rows)
    y[:classes] = np.arange(classes)
    if alike:
        x, y = np.tile(x[:rows], (agents, 1)), np.tile(y[:rows], agents)
    x *= rng.choice([1.0, 5.0]) / np.linalg.norm(x, axis=1).max()
    weights = rng.dirichlet(np.ones(agents)) + 0.01
    if dominated:
        weights[0] += 100
    mu = 10 ** rng.uniform(-2, 0) if mu is None else mu
    return SoftmaxRegression(x, y, owner, classes, mu, weights / weights.sum())


def ridge(seed, agents, dominated=False, alike=False, mu=None):
    base = softmax(seed, agents, dominated, alike, mu)
    rng = np.random.default_rng(seed)
    y = rng.standard_normal(base._data.owner.size)
    if alike:
        y = np.tile(y[: y.size // agents], agents)
    return RidgeRegression(base._data.features, y, base._data.owner, base.regulariser, base.weights)


PROBLEMS = {"softmax": softmax, "ridge": ridge}
kinds = pytest.mark.parametrize("kind", PROBLEMS)
epsilons = st.floats(-6, -2).map(lambda x: 10.0**x)


def within_certificate(problem, done, epsilon):
    exact = vcg_payments(problem, done.model).amount
    short = exact - done.payments.amount
    largest = np.abs(problem.losses(done.payments.models)).max()
    rounding = 1e-14 * (1 + largest) / problem.weights  # of the exact payments: differences of losses
    assert (short >= -done.integration_error - rounding).all()
    assert (short <= done.payments.error + done.integration_error + rounding).all()
    assert done.payments.error.max() <= epsilon / 2
    assert done.integration_error <= epsilon / 2
    best = problem.value(minimise(problem, problem.weights), problem.weights)
    gap = problem.value(done.model, problem.weights) - best
    assert -1e-12 <= gap <= done.training_error + 1e-12
    assert done.training_error <= epsilon * problem.weights.min()


@kinds
@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000), agents=st.integers(2, 6), dominated=st.booleans(), alike=st.booleans(),
    epsilon=epsilons,
)  # fmt: skip
def test_payments_are_within_their_certificate(kind, seed, agents, dominated, alike, epsilon):
    problem = PROBLEMS[kind](seed, agents, dominated, alike)
    done = faithful(problem, rules=ProtocolRules(epsilon=epsilon))
    within_certificate(problem, done, epsilon)
    assert done.exchanges <= 60
    if kind == "ridge":
        # slopes are linear: two nodes are exact, and all that is left is the rounding of doubles
        ways = np.linalg.norm(done.model - done.payments.models, axis=1)
        farthest = np.linalg.norm([*done.payments.models, done.model], axis=1)
        scale = problem.gradient_bound + problem.smoothness * np.maximum(farthest[:-1], farthest[-1])
        rounding = 1e-12 * scale * ways * (1 - problem.weights) / problem.weights
        assert done.integration_error == pytest.approx(rounding.max(), rel=1e-9, abs=0)
        assert done.gauss_distance <= 1e-9 * (1 + done.payments.amount.max())


@kinds
@settings(max_examples=15)
@given(seed=st.integers(0, 10_000), agents=st.integers(2, 4), epsilon=epsilons)
def test_the_slow_twin_comes_to_the_same(kind, seed, agents, epsilon):
    problem = PROBLEMS[kind](seed, agents, mu=0.2)
    done = faithful(problem, rules=ProtocolRules(epsilon=epsilon))

    def bend(way):
        if kind == "ridge":
            return 0.0
        parts = way.reshape(-1, problem.classes).T
        longest = np.linalg.norm(problem._data.features, axis=1).max()
        return longest * max(np.linalg.norm(a - b) for a in parts for b in parts)

    model, payments, residuals, errors, exchanges = slow_exchanges(problem, epsilon, bend)
    assert done.exchanges == exchanges
    np.testing.assert_allclose(done.model, model, atol=1e-7)
    np.testing.assert_allclose(done.payments.amount, payments, atol=1e-7)
    np.testing.assert_allclose(done.payments.error, residuals, atol=1e-7 * epsilon + 1e-9)
    assert done.integration_error == pytest.approx(errors.max(), abs=1e-7)


def test_agents_that_are_alike_owe_nothing():
    problem = softmax(3, 4, alike=True)
    done = faithful(problem, rules=ProtocolRules(epsilon=1e-6))
    assert (np.abs(done.payments.amount) <= 1e-6).all()
    within_certificate(problem, done, 1e-6)


def test_an_agent_whose_gradient_is_zero_is_no_obstacle():
    """Without features its loss is constant but for the regulariser."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((30, 3)) / 4
    x[:10] = 0
    problem = RidgeRegression(x, rng.standard_normal(30), np.repeat(np.arange(3), 10), 0.1)
    assert not problem.gradient(np.zeros((1, 3)), problem.one(0)[None]).any()
    done = faithful(problem, rules=ProtocolRules(epsilon=1e-6))
    within_certificate(problem, done, 1e-6)


def test_a_start_at_the_minimum_is_left_alone():
    problem = softmax(5, 3)
    w = minimise(problem, problem.weights)
    done = faithful(problem, rules=ProtocolRules(epsilon=1e-3), start=w)
    assert done.training_steps == 1
    assert np.array_equal(done.model, w)


def test_stricter_is_longer_and_closer():
    problem = digits(4, 0.5)
    loose, strict = (faithful(problem, rules=ProtocolRules(epsilon=epsilon)) for epsilon in (1e-2, 1e-6))
    assert loose.exchanges < strict.exchanges <= 50
    exact = vcg_payments(problem, strict.model).amount
    assert np.abs(strict.payments.amount - exact).max() <= 1e-6


def test_the_value_of_gauss_and_legendre_is_close_to_exact_payments():
    problem = digits(4, 0.5)
    done = faithful(problem, rules=ProtocolRules(epsilon=1e-3))
    others = problem.losses(np.concatenate([done.model[None], done.payments.models]))
    mixes = problem.without_each()
    way = ((others[0] - others[1:]) * mixes).sum(1) / problem.weights  # what the loss falls, exactly
    assert done.gauss_distance == pytest.approx(np.abs(done.payments.amount - way).max(), abs=1e-9)


def test_what_only_steps_have_is_refused_by_name():
    problem = softmax(1, 3)
    for name, value in (
        ("training_steps", 10), ("payment_steps", 5), ("step_share", 0.5), ("rule", "left"),
    ):  # fmt: skip
        with pytest.raises(
            InvalidValue,
            match=rf'^{name} must not be given with variant = "exchanges", which ends by itself',
        ):
            faithful(problem, rules=ProtocolRules(**{name: value}))
    with pytest.raises(InvalidValue, match=r"^variant must be one of exchanges, stepwise, printed"):
        faithful(problem, rules=ProtocolRules(variant="corrected"))
    with pytest.raises(InvalidValue, match=r"^resume must not be given with variant = .stepwise."):
        faithful(
            problem,
            rules=ProtocolRules(variant="stepwise"),
            resume=ExchangesProgress(np.zeros(problem.size)),
        )
    with pytest.raises(InvalidValue, match=r"^epsilon must be positive, got 0"):
        faithful(problem, rules=ProtocolRules(epsilon=0))
