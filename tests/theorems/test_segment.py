"""The way between two models: the lemma, its constant, and what an honest answer is."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad

from bonafed.errors import UnusableReport
from bonafed.learning.problems.agreed import FederatedProblem
from bonafed.learning.problems.convex import Problem
from bonafed.mechanisms.faithful import RidgeRegression, SoftmaxRegression, faithful, vcg_payments
from bonafed.mechanisms.faithful.protocol.path_integral import (
    MOST_PIECES,
    Nodes,
    Way,
    nodes_for,
    quadrature_bound,
    require_slopes,
)
from bonafed.mechanisms.faithful.protocol.variants import ProtocolRules
from tests.oracles.asking import asked_problem

seeds = st.integers(0, 10_000)
lengths = st.floats(-3, 2).map(lambda x: 10.0**x)


def softmax(seed, scale=1.0, mu=0.1):
    rng = np.random.default_rng(seed)
    x = scale * rng.standard_normal((24, 3))
    return SoftmaxRegression(x, rng.integers(0, 4, 24), np.arange(24) % 3, 4, mu)


def ridge(seed, scale=1.0, mu=0.1):
    rng = np.random.default_rng(seed)
    return RidgeRegression(
        scale * rng.standard_normal((24, 3)), rng.standard_normal(24), np.arange(24) % 3, mu
    )


PROBLEMS = {"softmax": softmax, "ridge": ridge}
kinds = pytest.mark.parametrize("kind", PROBLEMS)


@settings(max_examples=200)
@given(seed=seeds, bend=st.floats(0.1, 50), pieces=st.integers(1, 12))
def test_the_lemma(seed, bend, pieces):
    """phi' is the exponential of anything whose slope is within +-R: steps up and down at random places."""
    rng = np.random.default_rng(seed)
    turns = np.sort(rng.random(6))
    slopes = bend * rng.uniform(-1, 1, 7) if rng.random() < 0.5 else bend * rng.choice([-1, 1], 7)
    edges = np.concatenate([[0], turns, [1]])
    logs = np.concatenate([[0], np.cumsum(slopes * np.diff(edges))])

    def derivative(t):
        return np.exp(np.interp(t, edges, logs))

    fine = np.unique(np.concatenate([np.linspace(0, 1, 4001), edges, np.arange(pieces + 1) / pieces]))
    middle = (fine[:-1] + fine[1:]) / 2
    steps = np.diff(fine)
    simpson = steps * (derivative(fine[:-1]) + 4 * derivative(middle) + derivative(fine[1:])) / 6
    phi = np.concatenate([[0], np.cumsum(simpson)])
    # the integral of phi is that of (1 - t) phi'
    whole = ((1 - middle) * simpson).sum()
    ends = phi[np.searchsorted(fine, np.arange(pieces + 1) / pieces)]
    trapezoid = (ends[:-1] + ends[1:]).sum() / (2 * pieces)
    rise = np.diff(ends)
    bound = (rise / pieces * np.minimum(bend / pieces / 12, 0.5)).sum()
    assert abs(trapezoid - whole) <= bound * (1 + 1e-3) + 1e-9
    assert bound == pytest.approx(float(quadrature_bound(pieces, np.array([phi[-1]]), np.array([bend]))[0]))


@settings(max_examples=40)
@given(seed=seeds, scale=st.floats(0.1, 3), length=lengths)
def test_the_constant_of_the_softmax_bounds_its_third_derivative(seed, scale, length):
    problem, rng = softmax(seed, scale), np.random.default_rng(seed)
    way = length * rng.standard_normal((1, problem.size))
    start = rng.standard_normal((1, problem.size))
    mix, h = problem.weights, 1e-4 / max(1, length * scale)
    second = [
        float(way[0] @ problem.hessian_product((start + t * way)[0], mix, way[0])) for t in (-h, 0, h)
    ]
    third = (second[2] - second[0]) / (2 * h)
    (bend,) = problem.third_derivative(way)
    regular = problem.regulariser * float(way[0] @ way[0])  # has no part in the third
    assert abs(third) <= bend * (second[1] - regular) * (1 + 1e-3) + 1e-6 * second[1]
    agreed = FederatedProblem(
        mix, size=problem.size, regulariser=0.1, smoothness=1.0, classes=problem.classes
    )
    longest = np.linalg.norm(problem._data.features, axis=1).max()
    assert agreed.third_derivative(way) * longest == pytest.approx(bend)
    parts = way.reshape(-1, problem.classes).T
    assert bend == pytest.approx(longest * max(np.linalg.norm(a - b) for a in parts for b in parts))


def test_without_classes_nothing_is_known_of_the_third_derivative_and_least_squares_have_none():
    known = {"size": 6, "regulariser": 0.1, "smoothness": 1.0}
    ways = np.ones((2, 6))
    assert FederatedProblem([0.5, 0.5], **known).third_derivative(ways).tolist() == [np.inf, np.inf]
    assert FederatedProblem([0.5, 0.5], **known, classes=0).third_derivative(ways).tolist() == [0, 0]
    assert ridge(0).third_derivative(np.ones((2, 3))).tolist() == [0, 0]


@kinds
@given(seed=seeds, length=lengths)
@settings(max_examples=30)
def test_slopes_are_gradients_times_the_way(kind, seed, length):
    problem, rng = PROBLEMS[kind](seed), np.random.default_rng(seed)
    starts, end = (
        length * rng.standard_normal((3, problem.size)),
        length * rng.standard_normal(problem.size),
    )
    nodes = np.sort(rng.random(5))
    for k in range(3):
        found = problem.slopes(starts, end, nodes, k)
        for i, start in enumerate(starts):
            for at, t in enumerate(nodes):
                model = (start + t * (end - start))[None]
                slope = float(problem.gradient(model, problem.one(k)[None])[0] @ (end - start))
                assert found[i, at] == pytest.approx(slope, rel=1e-9, abs=1e-12 * (1 + length**2))
        np.testing.assert_allclose(
            found, Problem.slopes(problem, starts, end, nodes, k), rtol=1e-9, atol=1e-12
        )


@given(rise=st.floats(0, 100), bend=st.floats(0, 30), allowed=st.floats(1e-4, 1), known=st.booleans())
def test_there_are_as_many_nodes_as_the_certificate_asks_for(rise, bend, allowed, known):
    r, b, a = np.array([rise]), np.array([bend if known else np.inf]), np.array([allowed])
    nodes = nodes_for(r, b, a)
    if nodes.pieces < MOST_PIECES:
        assert quadrature_bound(nodes.pieces, r, b)[0] <= allowed
    if nodes.pieces > 1:
        assert quadrature_bound(nodes.pieces - 1, r, b)[0] > allowed * (1 - 1e-9)
    assert (np.diff(nodes.all) > 0).all()
    assert nodes.all[0] == 0
    assert nodes.all[-1] == 1


def test_both_rules_integrate():
    nodes = Nodes(10)
    values = np.stack([np.exp(nodes.all), 3 * nodes.all + 1])
    assert nodes.gauss(values)[0] == pytest.approx(np.e - 1, abs=1e-14)
    assert nodes.trapezoid(values)[1] == pytest.approx(2.5)
    exact, _ = quad(np.exp, 0, 1)
    off = abs(nodes.trapezoid(values)[0] - exact)
    assert 0 < off <= nodes.error(values, np.array([1.0, 0.0]))[0]
    assert nodes.error(values, np.array([1.0, 0.0]))[1] == 0


@kinds
@pytest.mark.parametrize("single", [False, True])
@settings(max_examples=40)
@given(
    seed=seeds, length=lengths, near=st.integers(0, 12), pieces=st.integers(1, 40), scale=st.floats(0.1, 5)
)
def test_nobody_honest_is_refused_on_the_way(kind, single, seed, length, near, pieces, scale):
    """Near and far, so close that all is rounding; in doubles and in single precision."""
    problem, rng = PROBLEMS[kind](seed, scale), np.random.default_rng(seed)
    problem.precision = 1e-5 if single else 1e-9
    end = length * rng.standard_normal(problem.size)
    starts = np.stack([length * rng.standard_normal(problem.size), end + 10.0**-near, end])
    ways, nodes = end - starts, Nodes(pieces).all
    kind_of = np.float32 if single else np.float64
    mix = np.tile(problem.one(1), (3, 1))
    norms = np.maximum(np.linalg.norm(starts, axis=1), np.linalg.norm(end))
    way = Way(
        (ways**2).sum(1), problem.third_derivative(ways),
        problem.gradient_bound + problem.smoothness * norms,
        (problem.gradient(starts, mix).astype(kind_of) * ways).sum(1),
        (problem.gradient(np.tile(end, (3, 1)), mix).astype(kind_of) * ways).sum(1),
    )  # fmt: skip
    slopes = problem.slopes(starts, end, nodes, 1)
    require_slopes(problem, 1, way, nodes, slopes.astype(kind_of).astype(float))
    if not single and np.sqrt(way.squares[0]) > 0.1:
        with pytest.raises(UnusableReport, match="agent 1"):
            require_slopes(problem, 1, way, nodes, slopes[:, ::-1])


def test_where_the_third_derivative_is_unknown_many_nodes_certify_less():
    """The bracket of a function that increases: first order in the length of a piece."""
    problem = softmax(4)

    def ask(sent):
        return {k: problem.gradient(w, np.tile(problem.one(k), (len(w), 1))) for k, w in sent.items()}

    agreed = {
        "size": problem.size, "regulariser": 0.1, "smoothness": problem.smoothness, "precision": 1e-9,
        "gradient_bound": problem.gradient_bound, "bounded": True,
    }  # fmt: skip
    done = faithful(*asked_problem(ask, problem.weights, **agreed), rules=ProtocolRules(epsilon=1e-3))
    exact = vcg_payments(problem, done.model).amount
    assert done.integration_error <= 0.5e-3
    assert (np.abs(exact - done.payments.amount) <= done.payments.error + done.integration_error).all()
    strict = faithful(*asked_problem(ask, problem.weights, **agreed), rules=ProtocolRules(epsilon=1e-6))
    assert strict.integration_error > 0.5e-6  # more nodes than anybody is sent: it says so
    exact = vcg_payments(problem, strict.model).amount
    assert (
        np.abs(exact - strict.payments.amount) <= strict.payments.error + strict.integration_error
    ).all()
