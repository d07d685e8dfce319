"""Where exchanges cannot come to an end that means something: refused, stopped, or certified as it is."""

import numpy as np
import pytest
from tests.oracles.asking import asked_problem

from bonafed.errors import BadReport, Diverged, InvalidValue
from bonafed.mechanisms.faithful import RidgeRegression, SoftmaxRegression, faithful, minimise, vcg_payments
from bonafed.mechanisms.faithful.accounts import ComparedLosses, accounts_from
from bonafed.mechanisms.faithful.protocol import exchanges as protocol
from bonafed.mechanisms.faithful.protocol.requests import federation_of
from bonafed.mechanisms.faithful.protocol.variants import ProtocolRules


def softmax(weights, mu=0.1):
    rng = np.random.default_rng(0)
    agents = len(weights)
    x = rng.standard_normal((20 * agents, 3))
    x /= np.linalg.norm(x, axis=1).max()
    return SoftmaxRegression(
        x, rng.integers(0, 3, len(x)), np.arange(len(x)) % agents, 3, mu, np.array(weights)
    )


def ridge(weights):
    rng = np.random.default_rng(0)
    return RidgeRegression(
        rng.standard_normal((20, 3)) / 4, rng.standard_normal(20), np.arange(20) % 2, 0.1, np.array(weights)
    )


@pytest.mark.parametrize("make", [softmax, ridge])
@pytest.mark.parametrize("weights", [[1.0, 1e-17], [1 - 1e-10, 1e-10]])
def test_a_weight_that_is_all_but_one_is_refused(make, weights):
    problem = make(weights)
    rule = r"^weights must leave the others of every agent 1e-09 or more of 1, got (1\.0|0\.9999999999)$"
    for variant in ("exchanges", "stepwise"):
        with pytest.raises(InvalidValue, match=rule):
            faithful(problem, rules=ProtocolRules(variant=variant))
    with pytest.raises(InvalidValue, match=rule):
        vcg_payments(problem, np.zeros(problem.size))


def test_nobody_is_left_out_if_that_leaves_one_agent_all_the_weight():
    problem = softmax([0.5, 0.5, 1e-17])
    with pytest.raises(BadReport, match="leaving it out would leave one agent alone"):
        faithful(
            problem, rules=ProtocolRules(on_bad_report="leave out"), agents={1: lambda _w, g: g * np.nan}
        )


@pytest.mark.parametrize(("most", "what"), [(4, "training does"), (12, "payments do")])
def test_exchanges_have_an_end_that_says_what_helps(monkeypatch, most, what):
    problem = softmax([0.6, 0.4], mu=1e-3)
    course = protocol.Exchanges(problem, federation_of(problem), 1e-9)
    at = course.begin()
    assert protocol.MOST_EXCHANGES == 5_000
    monkeypatch.setattr(protocol, "MOST_EXCHANGES", most)
    rule = (
        rf"^{what} not converge to epsilon = 1e-09 in {most} exchanges, the most there are: a larger "
        r"epsilon or regulariser helps, or scaled features \(L_g/mu is .*\)$"
    )
    for _ in range(most):
        at = course.advance(at)
    with pytest.raises(Diverged, match=rule):
        course.advance(at)
    with pytest.raises(Diverged, match=rule):  # resumed
        faithful(problem, rules=ProtocolRules(epsilon=1e-9), resume=at)


def test_honest_agents_whose_rounding_is_above_the_goal_come_to_that_end():
    """With L/mu = 5e5 a search counts as stuck after 7e5 exchanges only."""
    problem = softmax([0.6, 0.4], mu=1e-6)
    with pytest.raises(Diverged, match=r"^training does not converge to epsilon = 1e-40 in 5,000 "):
        faithful(problem, rules=ProtocolRules(epsilon=1e-40))


def apart(weights, mu):
    """Agents whose labels follow a model of their own each."""
    rng, agents = np.random.default_rng(0), len(weights)
    x = rng.standard_normal((40 * agents, 5))
    x /= np.linalg.norm(x, axis=1).max()
    models, owner = 3 * rng.standard_normal((agents, 5, 3)), np.repeat(np.arange(agents), 40)
    y = [np.argmax(x[i] @ models[k] + 0.3 * rng.gumbel(size=3)) for i, k in enumerate(owner)]
    return SoftmaxRegression(x, np.array(y), owner, 3, mu, np.array(weights))


def in_singles(problem):
    """The same agents, whose gradients are computed in single floats."""
    x, y, mu = problem._data.features.astype(np.float32), problem._labels, np.float32(problem.regulariser)

    def gradient(k, w):
        mine = problem._data.owner == k
        z = x[mine] @ w.astype(np.float32).reshape(-1, problem.classes)
        p = np.exp(z - z.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        p[np.arange(len(p)), y[mine]] -= 1
        return (x[mine].T @ p / np.float32(len(p))).ravel() + mu * w.astype(np.float32)

    def ask(sent):
        return {k: np.array([gradient(k, w) for w in models], np.float64) for k, models in sent.items()}

    return asked_problem(
        ask, problem.weights, size=problem.size, regulariser=problem.regulariser,
        smoothness=problem.smoothness, gradient_bound=problem.gradient_bound, bounded=True,
        classes=problem.classes,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("mu", "weights", "epsilon"),
    [
        (1e-8, [0.9998, 1e-4, 1e-4], 1e-5), (1e-6, [0.9998, 1e-4, 1e-4], 1e-3),
        (1e-8, [0.4, 0.3, 0.3], 1e-5), (0.01, [0.4, 0.3, 0.3], 1e-3),
    ],
)  # fmt: skip
def test_payments_of_agents_in_single_floats_are_within_their_certificate(mu, weights, epsilon):
    problem = apart(weights, mu)
    agreed, federation = in_singles(problem)
    done = faithful(agreed, federation, rules=ProtocolRules(epsilon=epsilon))
    short = vcg_payments(problem, done.model).amount - done.payments.amount
    assert (short >= -done.integration_error).all()
    assert (short <= done.payments.error + done.integration_error).all()
    best = problem.value(minimise(problem, problem.weights), problem.weights)
    assert problem.value(done.model, problem.weights) - best <= done.training_error
    unknown = np.full(problem.agents, np.nan)
    made = accounts_from(
        agreed, done, ComparedLosses(unknown, unknown), done.training_error, epsilon=epsilon
    )
    found = {finding.claim: finding for finding in made.checks}
    if done.payments.error.max() > epsilon or done.training_error > epsilon * min(weights):
        assert found["faithfulness"].holds is False
    else:
        gain = float(found["faithfulness"].text.rpartition(" ")[2])
        exact = done.payments.error.max() + 2 * done.integration_error + done.training_error / min(weights)
        assert gain >= 0.99 * exact
