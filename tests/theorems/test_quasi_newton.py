"""The search for a minimum from gradients: few requests, and never worse than plain steps (theory C3.6)."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from bonafed.mechanisms.faithful.protocol.searches import PATIENCE, Curvature, QuasiNewtonSearch, norm
from tests.oracles.faithful import digits_problem

seeds = st.integers(0, 10_000)
conditions = st.floats(0, 4).map(lambda x: 10.0**x)


def run(gradient, start, curvature, target, most=10_000):
    """The search to its end: itself, and how many requests it took."""
    search = QuasiNewtonSearch.at(start, gradient(start))
    for requests in range(most):
        if search.norm <= target or search.stuck(curvature):
            return search, requests
        trials = search.trials(curvature)
        search, _ = search.after(trials, np.stack([gradient(model) for model in trials]), target)
    raise AssertionError("no end")


def quadratic(seed, condition, size=8):
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((size, size)))[0]
    bends = np.geomspace(1, condition, size)
    return (basis * bends) @ basis.T, 3 * rng.standard_normal(size)


@given(seed=seeds, condition=conditions)
def test_a_quadratic_is_minimised_in_few_requests(seed, condition):
    hessian, linear = quadratic(seed, condition)
    goal = 1e-6 * norm(linear)
    search, requests = run(lambda w: hessian @ w - linear, np.zeros(8), Curvature(1, condition), goal)
    assert search.norm <= goal
    assert np.allclose(search.best_gradient, hessian @ search.best_model - linear, atol=goal)
    assert requests <= 60  # plain steps take ln(1e6) times the condition


@given(seed=seeds, condition=st.floats(1.1, 100), size=st.integers(2, 6))
def test_answers_that_are_gradients_of_nothing_but_pass_the_checks_cannot_keep_it_from_its_end(
    seed, condition, size
):
    """A field that turns: any two answers are consistent, and no function has them as gradients."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.standard_normal((size, size)))[
        0
    ]  # a rotation: as far from symmetric as allowed
    field = (condition + 1) / 2 * np.eye(size) + (condition - 1) / 2 * turn
    linear = rng.standard_normal(size)
    goal, curvature = 1e-6 * norm(linear), Curvature(1, condition)
    search, requests = run(lambda w: field @ w - linear, np.zeros(size), curvature, goal)
    assert search.norm <= goal
    assert requests <= math.ceil(math.log2(1e6)) * (PATIENCE + math.log(2) * condition + 1)


@settings(max_examples=20)
@given(seed=seeds)
def test_random_answers_end_as_stuck(seed):
    rng = np.random.default_rng(seed)
    search, _ = run(lambda _w: rng.standard_normal(6), np.zeros(6), Curvature(1, 10), 1e-9)
    assert search.stuck(Curvature(1, 10))


def test_careful_requests_hold_the_plain_step_from_the_best_model():
    search = QuasiNewtonSearch.at(np.zeros(2), np.array([1.0, 0.0]), np.eye(2), np.eye(2))
    curvature = Curvature(0.1, 2.0)
    worse = np.array([[0.0, 3.0]])
    for _ in range(PATIENCE):
        assert len(search.trials(curvature)) == 1
        search, _ = search.after(search.trials(curvature), worse, 1e-3)
    assert search.careful
    assert search.model.tolist() == [0.0, 0.0]  # back at the model of the smallest gradient
    assert search.trials(curvature)[1].tolist() == [-0.5, 0.0]
    better, _ = search.after(search.trials(curvature), np.array([[9.0, 9.0], [0.4, 0.0]]), 1e-3)
    assert better.best_model.tolist() == [-0.5, 0.0]
    assert not better.careful  # the gradient has halved


def test_no_step_is_longer_than_the_way_to_the_minimum_can_be():
    flat = np.array([[1e-9, 0.0]])  # a pair with hardly any curvature
    search = QuasiNewtonSearch.at(np.zeros(2), np.array([1.0, 0.0]), np.array([[1.0, 0.0]]), flat)
    (trial,) = search.trials(Curvature(0.1, 2.0))
    assert np.allclose(trial, [-10.0, 0.0])


def test_pairs_without_curvature_are_not_used():
    bent, odd = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[2.0, 0.0], [0.0, -1.0]])
    search = QuasiNewtonSearch.at(np.zeros(2), np.array([1.0, 1.0]), bent, odd)
    (trial,) = search.trials(Curvature(1e-3, 10.0))
    assert np.allclose(trial, [-0.5, -0.5])


@pytest.mark.parametrize("delta", [0.05, 0.5, 0.9])
def test_it_needs_about_as_many_requests_as_scipy_with_values(delta):
    """SciPy's L-BFGS has values to search along a line with; this has none."""
    problem = digits_problem(delta)
    curvature = Curvature(problem.regulariser, problem.smoothness)

    def gradient(w):
        return problem.gradient(w[None], problem.weights[None])[0]

    goal, calls = 1e-5, []

    def told(w):
        calls.append(norm(gradient(w)))
        return problem.value(w, problem.weights), gradient(w)

    minimize(told, np.zeros(problem.size), jac=True, method="L-BFGS-B",
             options={"maxiter": 1000, "ftol": 0, "gtol": 1e-9, "maxcor": 30})  # fmt: skip
    theirs = next(number for number, size in enumerate(calls, 1) if size <= goal)
    search, requests = run(gradient, np.zeros(problem.size), curvature, goal)
    assert search.norm <= goal
    assert requests + 1 <= 1.5 * theirs
