"""Payments in one batch: certificates, what the batch may change, the systems it solves, its stand-ins."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from bonafed.errors import InvalidValue
from bonafed.learning.problems import convex as problems
from bonafed.learning.problems import softmax
from bonafed.learning.problems.convex import Problem
from bonafed.learning.problems.minima import descend, solve
from bonafed.mechanisms.faithful import (
    RidgeRegression,
    SoftmaxRegression,
    minimise,
    newton_payments,
    vcg_payments,
)
from tests.oracles.faithful import leave_one_out

seeds = st.integers(0, 10_000)
ROUNDING = 1e-12  # of losses around 1, over weights of 1/10 and more


def softmax_problem(seed, agents=4, mu=0.05, features=3, samples=40, classes=3):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((samples, features))
    x /= np.linalg.norm(x, axis=1).max()
    owner = np.concatenate([np.arange(agents), rng.integers(0, agents, samples - agents)])
    weights = rng.dirichlet(np.full(agents, 5.0))
    weights = 0.5 * weights + 0.5 / agents
    return SoftmaxRegression(
        x, (owner + rng.integers(0, 2, samples)) % classes, owner, classes, mu, weights
    )


def ridge_problem(seed, agents=4):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((40, 3))
    owner = np.concatenate([np.arange(agents), rng.integers(0, agents, 40 - agents)])
    return RidgeRegression(x, x @ [1.0, -1.0, 0.5] + owner / agents, owner, 0.1)


def digits_64(agents=10, samples=400, mu=0.003):
    """640 parameters: more than the part of the Hessian that is factorised."""
    data = load_digits()
    x, y = data.data[:samples], data.target[:samples]
    owner = np.where(np.arange(samples) % 3 == 0, y % agents, np.arange(samples) % agents)
    return SoftmaxRegression(x / np.linalg.norm(x, axis=1, keepdims=True), y, owner, 10, mu)


@given(seed=seeds, epsilon=st.sampled_from([1e-1, 1e-3, 1e-6]), mu=st.sampled_from([0.5, 0.05, 0.002]))
def test_a_payment_is_within_its_certificate_and_that_within_epsilon(seed, epsilon, mu):
    problem = softmax_problem(seed, mu=mu)
    model = minimise(problem, problem.weights)
    exact = vcg_payments(problem, model).amount
    found = vcg_payments(problem, model, epsilon=epsilon)
    assert np.all(found.error <= epsilon)
    assert np.all(found.amount <= exact + ROUNDING)
    assert np.all(exact <= found.amount + found.error + ROUNDING)


@given(seed=seeds, steps=st.integers(1, 3), tolerance=st.sampled_from([0.5, 0.05, 1e-6]))
def test_newton_steps_are_within_their_certificate_however_roughly_solved(seed, steps, tolerance):
    problem = softmax_problem(seed)
    model = minimise(problem, problem.weights)
    exact = vcg_payments(problem, model).amount
    found = newton_payments(problem, model, steps, tolerance)
    assert found.steps == steps
    assert np.all(found.amount <= exact + ROUNDING)
    assert np.all(exact <= found.amount + found.error + ROUNDING)


def test_certificates_are_not_vacuous():
    problem = digits_64()
    model = minimise(problem, problem.weights)
    exact = vcg_payments(problem, model).amount
    rough = vcg_payments(problem, model, epsilon=1e-3)
    off = exact - rough.amount
    assert off.max() > 1e-7  # an epsilon that is met with nothing to spare would hide a wrong certificate
    assert np.all(rough.error <= 1e4 * np.maximum(off, 1e-7))


def test_payments_of_a_model_larger_than_its_stand_in_are_those_of_separate_optimisations():
    problem = digits_64()
    assert problem.size > problems.TOP
    model = minimise(problem, problem.weights)
    assert np.linalg.norm(problem.gradient(model[None], problem.weights[None])) <= 1e-12
    paid = vcg_payments(problem, model)
    for k in (0, 7):
        apart = problem.value(model, problem.without_each()[k]) - leave_one_out(problem, k, model)
        assert paid.amount[k] == pytest.approx(apart / problem.weights[k], rel=1e-7)


@pytest.mark.parametrize("make", [digits_64, lambda: softmax_problem(5, agents=7)])
def test_the_size_of_batch_and_tile_changes_payments_by_rounding_only(monkeypatch, make):
    problem = make()
    model = minimise(problem, problem.weights)
    together = vcg_payments(problem, model).amount
    steps = newton_payments(problem, model).amount
    cells = problem.counts.sum() * problem.classes
    for kept in (1, 3):
        monkeypatch.setattr(softmax, "_KEPT", kept * cells)
        assert problem.models_per_batch == kept
        assert vcg_payments(problem, model).amount == pytest.approx(together, abs=ROUNDING)
    monkeypatch.undo()
    monkeypatch.setattr(problems, "TILE", 97)
    assert vcg_payments(problem, model).amount == pytest.approx(together, abs=ROUNDING)
    assert newton_payments(problem, model).amount == pytest.approx(steps, abs=ROUNDING)
    monkeypatch.undo()
    assert np.array_equal(vcg_payments(make(), model).amount, together)  # the same batch: the same bits


@pytest.mark.parametrize("top", [3, 30, 150])
def test_the_stand_in_never_changes_what_is_found(monkeypatch, top):
    problem = softmax_problem(2, features=20, samples=120, classes=10, mu=0.01)
    model = minimise(problem, problem.weights)
    exact = vcg_payments(problem, model).amount
    monkeypatch.setattr(problems, "TOP", top)
    weaker = softmax_problem(2, features=20, samples=120, classes=10, mu=0.01)
    assert vcg_payments(weaker, model).amount == pytest.approx(exact, abs=ROUNDING)
    stand_in = weaker.preconditioner(model, weaker.weights)
    matrix = stand_in(np.eye(weaker.size))
    assert matrix == pytest.approx(matrix.T, rel=1e-9, abs=1e-9)
    assert np.linalg.eigvalsh(matrix)[0] > 0


@given(seed=seeds)
def test_a_stand_in_of_full_size_is_the_inverse(seed):
    problem = softmax_problem(seed)
    rng = np.random.default_rng(seed)
    model, mix = rng.standard_normal(problem.size), rng.random(problem.agents)
    right = rng.standard_normal((2, problem.size))
    found = problem.preconditioner(model, mix)(right)
    assert found @ problem.hessian(model, mix) == pytest.approx(right, rel=1e-8, abs=1e-9)


@pytest.mark.parametrize("make", [softmax_problem, ridge_problem])
@given(seed=seeds)
def test_an_expansion_is_losses_gradient_and_hessian(make, seed):
    problem, rng = make(seed), np.random.default_rng(seed)
    mix = rng.random((3, problem.agents))
    one = rng.standard_normal((1, problem.size))
    for models in (one, rng.standard_normal((3, problem.size))):
        each = np.repeat(models, 3, 0) if len(models) == 1 else models
        found = problem.expand(models, mix)
        assert found.losses == pytest.approx(problem.losses(each), rel=1e-12)
        assert found.gradients == pytest.approx(problem.gradient(each, mix), rel=1e-10, abs=1e-12)
        for rows in ([0, 1, 2], [2, 0], [1, 2, 0]):
            directions = rng.standard_normal((len(rows), problem.size))
            for at, product in enumerate(found.product(directions, np.array(rows))):
                expected = problem.hessian(each[rows[at]], mix[rows[at]]) @ directions[at]
                assert product == pytest.approx(expected, rel=1e-9, abs=1e-11)


@given(seed=seeds, tolerance=st.sampled_from([0.3, 1e-3, 1e-9]), plain=st.booleans())
def test_many_systems_are_each_solved_to_their_residual(seed, tolerance, plain):
    rng = np.random.default_rng(seed)
    roots = rng.standard_normal((5, 8, 8))
    matrices = roots @ roots.transpose(0, 2, 1) + 0.5 * np.eye(8)
    right = rng.standard_normal((5, 8))
    middle = np.linalg.inv(matrices.mean(0))
    goal = tolerance * np.linalg.norm(right, axis=1)

    def product(x, rows):
        return np.einsum("ide,ie->id", matrices[rows], x)

    found, _ = solve(product, None if plain else lambda r: r @ middle, right, goal)
    left = np.linalg.norm(right - product(found, np.arange(5)), axis=1)
    assert np.all(left <= goal * (1 + 1e-6))
    assert np.all((right * found).sum(1) > 0)  # a direction of descent


def test_a_direction_without_curvature_is_followed_as_it_is():
    right = np.array([[1.0, 2.0], [3.0, 1.0]])
    bends = np.array([[-1.0, -1.0], [2.0, 4.0]])
    found, turns = solve(lambda x, rows: bends[rows] * x, None, right, np.full(2, 1e-9))
    assert np.array_equal(found[0], right[0])
    assert found[1] == pytest.approx(right[1] / bends[1], rel=1e-9)
    assert turns == 2


@pytest.mark.parametrize("size", [1.0, 30.0])
def test_any_start_leads_to_the_minimum(size):
    problem = softmax_problem(3, mu=0.01)
    expected = minimise(problem, problem.weights)
    start = size * np.random.default_rng(0).standard_normal(problem.size)
    assert minimise(problem, problem.weights, start) == pytest.approx(expected, abs=1e-9)
    big = digits_64(samples=200)
    start = size * np.random.default_rng(0).standard_normal(big.size)
    assert minimise(big, big.weights, start) == pytest.approx(minimise(big, big.weights), abs=1e-8)


class Plain(Problem):
    """Another's losses, through the abstract questions only, as a user's own problem would answer them."""

    def __init__(self, problem):
        self._problem = problem
        self.weights, self.regulariser, self.size = problem.weights, problem.regulariser, problem.size

    smoothness = property(lambda self: self._problem.smoothness)

    def gradient(self, models, mix):
        return self._problem.gradient(models, mix)

    def losses(self, models):
        return self._problem.losses(models)

    def hessian(self, model, mix):
        return self._problem.hessian(model, mix)

    def hessian_product(self, model, mix, direction):
        return self._problem.hessian_product(model, mix, direction)


@pytest.mark.parametrize("top", [4, 600])
def test_a_problem_of_ones_own_needs_the_abstract_questions_only(monkeypatch, top):
    monkeypatch.setattr(problems, "TOP", top)  # 4: too small for its Hessian, so plain conjugate gradients
    problem = softmax_problem(8)
    own = Plain(problem)
    model = minimise(own, own.weights)
    assert model == pytest.approx(minimise(problem, problem.weights), abs=1e-10)
    assert vcg_payments(own, model).amount == pytest.approx(vcg_payments(problem, model).amount, abs=1e-11)
    two = newton_payments(problem, model).amount
    assert newton_payments(own, model).amount == pytest.approx(two, abs=1e-9)


def test_few_passes_are_enough_and_solved_problems_leave_the_batch():
    problem = digits_64()
    model = minimise(problem, problem.weights)
    asked = []
    expand = problem.expand

    def counting(models, mix):
        asked.append(mix.shape[0])
        return expand(models, mix)

    object.__setattr__(problem, "expand", counting)
    mixes = problem.without_each()
    norms = np.where(np.arange(10) < 5, 1e-3, 1e-10)
    found = descend(problem, mixes, model, steps=100, tolerance=norms)
    assert found.converged
    assert found.products <= 10
    assert asked[-1] <= 5
    assert len(asked) <= 14


def test_bad_input_is_refused_by_name():
    problem = softmax_problem(0)
    model = np.zeros(problem.size)
    cases = [
        ("tolerance", lambda: vcg_payments(problem, model, tolerance=0.0)),
        ("epsilon", lambda: vcg_payments(problem, model, epsilon=-1.0)),
        ("steps", lambda: newton_payments(problem, model, steps=0)),
        ("tolerance", lambda: newton_payments(problem, model, tolerance=np.nan)),
    ]
    for name, call in cases:
        with pytest.raises(InvalidValue) as caught:
            call()
        assert caught.value.name == name
