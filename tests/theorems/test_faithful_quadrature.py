"""The lemma behind payments by one exchange (theory C9.4, C9.5): how far the trapezoid rule can be off.

    phi increasing, |phi''| <= R phi'   ==>   |integral - trapezoid| <= D (h/2)(coth x - 1/x) <= R h^2 D/12,
    x = R h/2, on a piece of length h along which phi rises by D.

Adversaries: phi' whose logarithm is piecewise linear with slopes up to R, so that phi and its integral are
known in closed form; and segments of softmax losses, whose R is the largest distance of two classes' parts.
"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bonafed.mechanisms.faithful import RidgeRegression, SoftmaxRegression
from bonafed.mechanisms.faithful.protocol.path_integral import Nodes, nodes_for, quadrature_bound
from tests.oracles.quadrature import moments_along, random_exponentials

ADVERSARIES = 5000
seeds = st.integers(0, 10_000)


def sharp(rise, bend, length=1.0):
    """The lemma's first bound, written down directly."""
    x = bend * length / 2
    mean = 1 / math.tanh(x) - 1 / x if x > 0.01 else x / 3 - x**3 / 45  # without cancellation
    return rise * length / 2 * mean


@pytest.fixture(scope="module")
def adversaries():
    rng = np.random.default_rng(0)
    return [random_exponentials(rng) for _ in range(ADVERSARIES)]


def error_of(phi, nodes):
    """(trapezoid's error, its rise), both over the rise."""
    at = np.array([[phi(float(t)) for t in nodes.all]])
    rise = phi(1.0) - phi(0.0)
    return abs(float(nodes.trapezoid(at)[0]) - phi.integral()) / rise, float(
        nodes.error(at, np.array([phi.bend]))[0]
    ) / rise


def test_no_phi_is_further_off_than_the_lemma_says_and_some_are_as_far(adversaries):
    ratios = []
    for phi in adversaries:
        rise = phi(1.0)
        ratios.append(abs(rise / 2 - phi.integral()) / sharp(rise, phi.bend))
    assert 0.999 < max(ratios) < 1 + 1e-10  # nothing smaller would do


@pytest.mark.parametrize("pieces", [1, 2, 7])
def test_the_certificate_holds_for_every_phi_and_is_not_vacuous(adversaries, pieces):
    nodes = Nodes(pieces)
    found = np.array([error_of(phi, nodes) for phi in adversaries[:: 1 if pieces == 1 else 5]])
    assert found[:, 0].max() > 1e-3
    worst = float((found[:, 0] / (found[:, 1] + 1e-13)).max())
    assert 0.5 < worst < 1, worst


def test_an_understated_bend_is_not_a_certificate(adversaries):
    """The control: the same test catches a bound that is made for smoother functions."""
    rises = np.array([phi(1.0) for phi in adversaries])
    bends = np.array([phi.bend for phi in adversaries])
    errors = np.array([abs(phi(1.0) / 2 - phi.integral()) for phi in adversaries])
    assert (errors <= quadrature_bound(1, rises, bends) * (1 + 1e-9)).all()
    assert (errors > quadrature_bound(1, rises, bends / 2) * (1 + 1e-9)).any()


def test_as_many_pieces_are_taken_as_the_certificate_asks_for(adversaries):
    some = adversaries[:300]
    rise, bend = np.array([phi(1.0) for phi in some]), np.array([phi.bend for phi in some])
    for share in (1e-1, 1e-3):
        for at in range(len(some)):
            allowed = share * rise[at : at + 1]
            nodes = nodes_for(rise[at : at + 1], bend[at : at + 1], allowed)
            assert quadrature_bound(nodes.pieces, rise[at : at + 1], bend[at : at + 1]) <= allowed
            if nodes.pieces > 1:
                fewer = quadrature_bound(nodes.pieces - 1, rise[at : at + 1], bend[at : at + 1])
                assert fewer > allowed * (1 - 1e-8)  # pieces are rounded up safely


def random_softmax(seed, agents=3):
    rng = np.random.default_rng(seed)
    classes, features = int(rng.integers(2, 5)), int(rng.integers(1, 4))
    x = rng.standard_normal((12, features))
    x /= np.linalg.norm(x, axis=1).max()
    problem = SoftmaxRegression(x, rng.integers(0, classes, 12), np.arange(12) % agents, classes, 0.01)
    start, end = 10.0 ** rng.uniform(-1, 1.3) * rng.standard_normal((2, problem.size))
    return x, classes, problem, start, end


@given(seed=seeds)
def test_the_third_derivative_along_a_segment_is_at_most_r_times_the_second(seed):
    x, classes, problem, start, end = random_softmax(seed)
    way = end - start
    bend = float(problem.third_derivative(way[None])[0])
    share = np.full(12, 1 / 12)
    for t in np.linspace(0, 1, 7):
        second, third = moments_along(x, share, start, way, classes, t)
        assert abs(third) <= bend * second * (1 + 1e-9)


def test_no_smaller_r_would_do():
    """One sample of norm 1, two classes, a prediction that is almost sure: the quotient tends to R."""
    start, end = np.array([8.0, -8.0]), np.array([9.0, -9.0])
    problem = SoftmaxRegression(np.ones((2, 1)), np.array([0, 1]), np.array([0, 1]), 2, 0.01)
    way = end - start
    second, third = moments_along(np.ones((1, 1)), np.ones(1), start, way, 2, 0.0)
    assert abs(third) / second > 0.9999 * problem.third_derivative(way[None])[0]


@given(seed=seeds)
def test_the_certificate_holds_on_segments_of_the_softmax(seed):
    """The loss difference is known from the losses themselves."""
    _, _, problem, start, end = random_softmax(seed)
    way, mix = end - start, problem.without_each()[0]
    others = [j for j in range(problem.agents) if mix[j]]
    for pieces in (1, 3):
        nodes = Nodes(pieces)
        slopes = sum(mix[j] * problem.slopes(start[None], end, nodes.all, j) for j in others)
        exact = problem.value(end, mix) - problem.value(start, mix)
        error = float(nodes.error(slopes, problem.third_derivative(way[None]))[0])
        scale = 1e-12 * (1 + np.abs(slopes).max())
        assert abs(float(nodes.trapezoid(slopes)[0]) - exact) <= error + scale


def saturating_segment(length):
    """Agents 1 and 2 are almost sure of their class at the end: phi' falls as fast as it can."""
    labels = np.array([1, 0, 0])
    problem = SoftmaxRegression(np.ones((3, 1)), labels, np.arange(3), 2, 1e-9)
    start = np.array([3.0, -3.0])
    return problem, start, start + length * np.array([1.0, -1.0]) / 2


def test_on_segments_of_the_softmax_the_certificate_is_not_vacuous():
    quotients = []
    for length in (0.1, 0.5, 1.0):
        problem, start, end = saturating_segment(length)
        mix, nodes = problem.without_each()[0], Nodes(1)
        slopes = sum(mix[j] * problem.slopes(start[None], end, nodes.all, j) for j in (1, 2))
        exact = problem.value(end, mix) - problem.value(start, mix)
        error = float(nodes.error(slopes, problem.third_derivative((end - start)[None]))[0])
        quotients.append(abs(float(nodes.trapezoid(slopes)[0]) - exact) / error)
    assert 0.5 < max(quotients) < 1


@given(seed=seeds)
def test_for_ridge_regression_the_trapezoid_is_exact(seed):
    rng = np.random.default_rng(seed)
    problem = RidgeRegression(rng.standard_normal((12, 3)), rng.standard_normal(12), np.arange(12) % 3, 0.1)
    start, end = rng.standard_normal((2, 3))
    assert problem.third_derivative((end - start)[None]) == 0
    nodes, mix = Nodes(1), problem.without_each()[1]
    slopes = sum(mix[j] * problem.slopes(start[None], end, nodes.all, j) for j in (0, 2))
    exact = problem.value(end, mix) - problem.value(start, mix)
    assert float(nodes.trapezoid(slopes)[0]) == pytest.approx(exact, rel=1e-10, abs=1e-12)
