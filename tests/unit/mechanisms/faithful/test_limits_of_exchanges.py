"""Where exchanges cannot come to an end that means something: refused, stopped, or said by the certificate."""

import numpy as np
import pytest

from bonafed.errors import BadReport, Diverged, InvalidValue
from bonafed.mechanisms.faithful import RidgeRegression, SoftmaxRegression, faithful, vcg_payments
from bonafed.mechanisms.faithful import exchanges as protocol
from bonafed.mechanisms.faithful.asking import federation_of


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
            faithful(problem, variant=variant)
    with pytest.raises(InvalidValue, match=rule):
        vcg_payments(problem, np.zeros(problem.size))


def test_nobody_is_left_out_if_that_leaves_one_agent_all_the_weight():
    problem = softmax([0.5, 0.5, 1e-17])
    with pytest.raises(BadReport, match="leaving it out would leave one agent alone"):
        faithful(problem, agents={1: lambda _w, g: g * np.nan}, on_bad_report="leave out")


@pytest.mark.parametrize(("most", "what"), [(4, "training does"), (12, "payments do")])
def test_exchanges_have_an_end_that_says_what_helps(monkeypatch, most, what):
    problem = softmax([0.6, 0.4], mu=1e-3)
    course = protocol.Exchanges(problem, federation_of(problem), 1e-9)
    at = course.begin()
    assert protocol.MOST_EXCHANGES == 5_000
    monkeypatch.setattr(protocol, "MOST_EXCHANGES", most)
    rule = (
        rf"^{what} not converge to epsilon = 1e-09 in {most} exchanges, the most there are: a larger epsilon "
        r"or regulariser helps, or scaled features \(L_g/mu is .*\)$"
    )
    with pytest.raises(Diverged, match=rule):
        while not at.done:
            at = course.advance(at)
    assert at.exchanges == most
    with pytest.raises(Diverged, match=rule):  # resumed
        faithful(problem, epsilon=1e-9, resume=at)


def test_honest_agents_whose_rounding_is_above_the_goal_come_to_that_end():
    """With L/mu = 5e5 a search counts as stuck after 7e5 exchanges only."""
    with pytest.raises(Diverged, match=r"^training does not converge to epsilon = 1e-40 in 5,000 exchanges"):
        faithful(softmax([0.6, 0.4], mu=1e-6), epsilon=1e-40)
