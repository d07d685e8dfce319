"""Faithful learning in few exchanges: as accurate as certified, on the digits and on random problems."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from bonafed.learning.problems.convex import SoftmaxRegression
from bonafed.mechanisms.faithful import faithful, vcg_payments

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
    done = faithful(problem, epsilon=epsilon)
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
