"""Whoever reports gradients of no loss can be told by cycles of reports, and nobody honest is."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from bonafed.mechanisms.faithful import RidgeRegression, SoftmaxRegression
from bonafed.mechanisms.faithful.protocol.reports import EarlierReports, Hearing, contradiction
from tests.oracles.interpolation import interpolable

seeds = st.integers(0, 10_000)


def honest(seed, kind, mu):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((12, 3))
    if kind == "softmax":
        return SoftmaxRegression(x, rng.integers(0, 3, 12), np.zeros(12, dtype=int), 3, mu)
    return RidgeRegression(x, rng.standard_normal(12), np.zeros(12, dtype=int), mu)


@pytest.mark.parametrize("kind", ["softmax", "ridge"])
@settings(max_examples=40)
@given(seed=seeds, length=st.floats(-4, 3), near=st.integers(0, 14), single=st.booleans())
def test_nobody_honest_is_named(kind, seed, length, near, single):
    problem, rng = honest(seed, kind, 0.1), np.random.default_rng(seed)
    models = 10.0**length * rng.standard_normal((9, problem.size))
    models = np.concatenate([models, models[:4] + 10.0**-near, models[:2], np.zeros((1, problem.size))])
    reports = problem.gradient(models, np.ones((len(models), 1)))
    precision = 1e-5 if single else 1e-9
    if single:
        reports = reports.astype(np.float32).astype(float)
    scale = problem.gradient_bound + problem.smoothness * np.linalg.norm(models, axis=1)
    assert contradiction(models, reports, 0.1, problem.smoothness, precision * scale) == 0


@settings(max_examples=30)
@given(seed=seeds, bend=st.floats(0, 1.5))
def test_it_is_the_linear_programme_of_the_theorem(seed, bend):
    """Gradients of a quadratic, turned a little: a twin asks a solver for the values f_i."""
    rng = np.random.default_rng(seed)
    mu, smooth = 0.5, 2.0
    half = rng.standard_normal((3, 3))
    field = np.eye(3) + 0.2 * (half + half.T) / np.linalg.norm(half) + bend * (half - half.T) / 4
    models = rng.standard_normal((6, 3))
    reports = models @ field.T
    found = contradiction(models, reports, mu, smooth, np.zeros(6))
    possible, margin = interpolable(models, reports, mu, smooth, linprog)
    if abs(margin) > 1e-7:
        assert (found == 0) == possible


def test_a_field_that_turns_passes_in_pairs_and_not_in_cycles():
    mu, smooth = 0.1, 1.0
    turn = np.array([[0.0, -1.0], [1.0, 0.0]])
    field = 0.55 * np.eye(2) + 0.3 * turn
    models = np.array([[np.cos(a), np.sin(a)] for a in np.linspace(0, 2 * np.pi, 7)[:-1]])
    reports = models @ field.T
    for i in range(6):
        off = reports[i] - reports - 0.55 * (models[i] - models)
        assert (
            np.linalg.norm(off, axis=1) <= 0.45 * np.linalg.norm(models[i] - models, axis=1) + 1e-12
        ).all()
    assert contradiction(models, reports, mu, smooth, np.full(6, 1e-9)) > 0.01
    assert contradiction(models, models * 0.55, mu, smooth, np.full(6, 1e-9)) == 0


def test_scale_is_that_of_the_checks():
    problem = honest(0, "softmax", 0.1)
    checks = Hearing(problem, "gradients", {0: EarlierReports(np.zeros((1, 9)), np.zeros((1, 9)))})
    assert checks.scale(np.zeros(9), np.zeros(9), np.array([2.0])) == pytest.approx(
        problem.gradient_bound + 2 * problem.smoothness
    )
