"""Any module as a problem: the softmax again, and a network that is not convex."""

import numpy as np
import pytest
import torch
from tests.oracles.coalition import Coalition
from torch import nn

from bonafed.errors import InvalidValue
from bonafed.learning.engine import programs
from bonafed.learning.engine.jobs import Samples
from bonafed.learning.problems.modules import ModuleProblem
from bonafed.mechanisms.faithful import SoftmaxRegression, faithful, minimise, vcg_payments
from bonafed.mechanisms.faithful.protocol.variants import ProtocolRules

RNG = np.random.default_rng(5)
N, D, CLASSES, AGENTS, MU = 90, 4, 3, 3, 0.05
X = RNG.normal(size=(N, D)) / 2
Y = RNG.integers(0, CLASSES, N)
OWNER = np.sort(RNG.integers(0, AGENTS, N))
SAMPLES = Samples(torch.from_numpy(X).float(), torch.from_numpy(Y))
EXACT = SoftmaxRegression(X.astype(np.float32), Y, OWNER, CLASSES, MU)


def linear_problem():
    module = nn.Sequential(nn.Linear(D, CLASSES))
    module[0].bias.data.zero_()
    return ModuleProblem(module, SAMPLES, OWNER, MU, EXACT.smoothness + 1, strongly_convex=True)


def as_module(models):
    """(m, d C) of the softmax as (m, C d + C) of a linear layer without bias."""
    matrix = models.reshape(-1, D, CLASSES).transpose(0, 2, 1).reshape(len(models), -1)
    return np.hstack([matrix, np.zeros((len(models), CLASSES))])


def test_a_linear_module_is_the_softmax():
    problem = linear_problem()
    models = RNG.normal(size=(2, EXACT.size))
    mix = RNG.random((2, AGENTS))
    mix[0, 1] = 0.0
    ours = problem.gradient(as_module(models), mix)[:, : EXACT.size]
    assert ours == pytest.approx(as_module(EXACT.gradient(models, mix))[:, : EXACT.size], abs=1e-6)
    assert problem.losses(as_module(models)) == pytest.approx(EXACT.losses(models), abs=1e-6)
    direction = RNG.normal(size=(1, EXACT.size))
    bent = problem.hessian_product(as_module(models)[0], mix[0], as_module(direction)[0])
    exact = as_module(EXACT.hessian_product(models[0], mix[0], direction[0])[None])[0]
    assert bent[: EXACT.size] == pytest.approx(exact[: EXACT.size], abs=1e-6)
    hessian = problem.hessian(as_module(models)[0], mix[0])
    assert hessian @ as_module(direction)[0] == pytest.approx(bent, abs=1e-9)


def test_chunks_change_nothing(monkeypatch):
    problem, models = linear_problem(), as_module(RNG.normal(size=(2, EXACT.size)))
    mix = np.array([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]])  # chunks in which one model has no sample
    whole = problem.gradient(models, mix), problem.losses(models)
    monkeypatch.setattr(programs, "MOST_SAMPLES", 14)  # 7 of each of two models
    assert problem.gradient(models, mix) == pytest.approx(whole[0], abs=1e-6)
    assert problem.losses(models) == pytest.approx(whole[1], abs=1e-6)


def test_payments_of_a_linear_module_are_certified():
    problem = linear_problem()
    outcome = faithful(problem, rules=ProtocolRules(variant="stepwise", training_steps=400, epsilon=1e-4))
    exact = vcg_payments(problem, outcome.model)
    assert (outcome.payments.error <= 1e-4).all()
    slack = outcome.integration_error + 1e-6
    assert (exact.amount - outcome.payments.amount <= outcome.payments.error + slack).all()
    assert (exact.amount - outcome.payments.amount >= -slack).all()
    best = problem.value(minimise(problem, problem.weights), problem.weights)
    assert problem.value(outcome.model, problem.weights) - best <= outcome.training_error + 1e-7


def test_a_network_is_paid_by_gradients_without_a_certificate():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(D, 6), nn.Tanh(), nn.Linear(6, CLASSES))
    problem = ModuleProblem(module, SAMPLES, OWNER, MU, smoothness=2.0)
    outcome = faithful(
        problem,
        rules=ProtocolRules(variant="stepwise", training_steps=30, payment_steps=25),
        start=problem.start,
    )
    assert outcome.payments.steps == 25
    assert np.isnan(outcome.payments.error).all()
    assert np.isnan(outcome.training_error)
    # the integral of the reports is the difference of the losses it runs over
    mixes = problem.without_each()
    shared, apart = problem.losses(outcome.model[None])[0], problem.losses(outcome.payments.models)
    difference = ((shared - apart) * mixes).sum(1) / problem.weights
    assert outcome.payments.amount == pytest.approx(difference, rel=0.02, abs=1e-5)


def test_a_regulariser_above_the_stated_smoothness_is_paid_by_steps():
    """What is not convex may state any smoothness; the number of steps decides, not convergence."""
    module = nn.Sequential(nn.Linear(D, 6), nn.Tanh(), nn.Linear(6, CLASSES))
    problem = ModuleProblem(module, SAMPLES, OWNER, 2.0, smoothness=2.0)
    assert (
        faithful(
            problem,
            rules=ProtocolRules(variant="stepwise", training_steps=3, payment_steps=4),
            start=problem.start,
        ).payments.steps
        == 4
    )


def test_a_coalition_is_the_problem_of_its_members_alone():
    members = [0, 2]
    inside = np.isin(OWNER, members)
    alone = SoftmaxRegression(
        X.astype(np.float32)[inside], Y[inside], np.searchsorted(members, OWNER[inside]), CLASSES, MU
    )
    part = Coalition(EXACT, members)
    models, mix = RNG.normal(size=(2, EXACT.size)), RNG.random((2, 2))
    assert part.weights == pytest.approx([0.5, 0.5])
    assert part.gradient(models, mix) == pytest.approx(alone.gradient(models, mix), abs=1e-12)
    assert part.losses(models) == pytest.approx(alone.losses(models), abs=1e-12)
    assert part.hessian(models[0], mix[0]) == pytest.approx(alone.hessian(models[0], mix[0]), abs=1e-12)
    exact, alone_exact = vcg_payments(part, models[0]), vcg_payments(alone, models[0])
    assert exact.amount == pytest.approx(alone_exact.amount, abs=1e-9)
    product = part.hessian_product(models[0], mix[0], models[1])
    assert product == pytest.approx(part.hessian(models[0], mix[0]) @ models[1], abs=1e-12)


@pytest.mark.parametrize("members", [[0], [0, 0], [0, 3], [-1, 1]])
def test_a_coalition_needs_two_different_agents(members):
    with pytest.raises(InvalidValue, match="members must be two different agents"):
        Coalition(EXACT, members)


@pytest.mark.parametrize(
    ("owner", "message"),
    [(OWNER[:-1], "owner must be 90 whole numbers"), (np.where(OWNER == 1, 2, OWNER), "agent 1 must have")],
)
def test_bad_owners_are_refused(owner, message):
    with pytest.raises(InvalidValue, match=message):
        ModuleProblem(nn.Linear(D, CLASSES), SAMPLES, owner, MU, 1.0)
