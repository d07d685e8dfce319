"""Where exchanges cannot come to an end that means something: refused, stopped, or said by the certificate."""

import numpy as np
import pytest

from bonafed.errors import BadReport, InvalidValue
from bonafed.mechanisms.faithful import RidgeRegression, SoftmaxRegression, faithful, vcg_payments


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
