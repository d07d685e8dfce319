"""Agents with unequal numbers of samples, around every place where samples are cut into tiles."""

from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.oracles.convex import PlainRidge, PlainSoftmax, mixed
from torch import nn

from bonafed.learning import evaluate as evaluation
from bonafed.learning.engine import programs
from bonafed.learning.engine.jobs import Samples
from bonafed.learning.problems import convex, softmax
from bonafed.learning.problems.convex import RidgeRegression, tiles
from bonafed.learning.problems.minima import descend, minima
from bonafed.learning.problems.modules import ModuleProblem
from bonafed.learning.problems.softmax import SoftmaxRegression

D, CLASSES, MU = 2, 3, 0.1  # D: features of a sample
NEAR = {"rel": 1e-9, "abs": 1e-12}  # of doubles, added in different orders
NODES = np.array([0.0, 0.3, 1.0])


class Case(NamedTuple):
    """Agents, and how the samples are cut."""

    tile: int  # samples at a time
    counts: tuple[int, ...]  # samples of each agent
    models: int
    seed: int


@st.composite
def cases(draw):
    """Two or three agents, each of a number of samples next to a multiple of the tile."""
    tile = draw(st.integers(1, 3))
    edges = sorted({1, *(m * tile + off for m in (1, 2) for off in (-1, 0, 1))} - {0})
    counts = draw(st.lists(st.sampled_from(edges), min_size=2, max_size=3))
    return Case(tile, tuple(counts), draw(st.integers(1, 3)), draw(st.integers(0, 999)))


def samples_of(case):
    """Features (n, D), labels (n,) and owners (n,), the agents' samples shuffled together."""
    rng, n = np.random.default_rng(case.seed), sum(case.counts)
    owner = rng.permutation(np.repeat(np.arange(len(case.counts)), case.counts))
    return rng.normal(size=(n, D)), rng.integers(0, CLASSES, n), owner, rng


def models_and_mixes(case, rng, size):
    """Models (m, P) and mixes: of all agents, of none of the first, and of each alone.

    They are read-only, as what comes in a message is.
    """
    agents = len(case.counts)
    models, mix = rng.normal(size=(case.models, size)), rng.random((case.models, agents))
    without = mix * (np.arange(agents) != 0)
    alone = [np.tile(row, (case.models, 1)) for row in np.eye(agents)]
    for values in (models, mix, without, *alone):
        values.flags.writeable = False
    return models, [mix, without, *alone]


@given(cases())
@example(Case(4, (1, 12), 2, 0))  # what an agent with fewer samples than the rest has tiles of
def test_softmax_regression_is_that_of_plain_loops(case):
    x, y, owner, rng = samples_of(case)
    plain = PlainSoftmax(x, y, owner, CLASSES, MU)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(convex, "TILE", case.tile * case.models * CLASSES)
        patch.setattr(softmax, "_ROWS", case.tile)
        check_problem(SoftmaxRegression(x, y, owner, CLASSES, MU), plain, case, rng)
        check_what_softmax_adds(SoftmaxRegression(x, y, owner, CLASSES, MU), plain, case, rng)


@given(cases())
def test_ridge_regression_is_that_of_plain_loops(case):
    x, _, owner, rng = samples_of(case)
    targets = rng.normal(size=len(x))
    problem = RidgeRegression(x, targets, owner, MU)
    check_problem(problem, PlainRidge(x, targets, owner, MU), case, rng)


def check_problem(problem, plain, case, rng):
    """Gradients, losses, slopes, Hessians and their products, for several models and mixes at once."""
    models, mixes = models_and_mixes(case, rng, problem.size)
    directions, agents = rng.normal(size=models.shape), range(problem.agents)
    losses = [[plain.loss(k, w) for k in agents] for w in models]
    gradients = np.array([[plain.gradient(k, w) for w in models] for k in agents])
    hessians = np.array([[plain.hessian(k, w) for w in models] for k in agents])
    assert problem.losses(models) == pytest.approx(np.array(losses), **NEAR)
    own = np.stack([problem.losses_of(models, k) for k in agents], axis=1)
    assert own == pytest.approx(np.array(losses), **NEAR)
    each = models[np.arange(problem.agents) % case.models]
    assert problem.own_losses(each) == pytest.approx([plain.loss(k, each[k]) for k in agents], **NEAR)
    for mix in mixes:
        gradient = mixed(mix, lambda k, i: gradients[k, i])
        hessian = mixed(mix, lambda k, i: hessians[k, i])
        assert problem.gradient(models, mix) == pytest.approx(gradient, **NEAR)
        assert problem.hessian(models[0], mix[0]) == pytest.approx(hessian[0], **NEAR)
        first = problem.hessian_product(models[0], mix[0], directions[0])
        assert first == pytest.approx(hessian[0] @ directions[0], **NEAR)
        here = problem.expand(models, mix)
        assert here.losses == pytest.approx(np.array(losses), **NEAR)
        assert here.gradients == pytest.approx(gradient, **NEAR)
        which = np.arange(case.models)[::-1][: 1 + case.seed % case.models]
        products = np.stack([hessian[i] @ directions[i] for i in which])
        assert here.product(directions[which], which) == pytest.approx(products, **NEAR)
    # one model for all mixes
    here = problem.expand(models[:1], mixes[0])
    shared = mixed(mixes[0], lambda k, _: gradients[k, 0])
    assert here.gradients == pytest.approx(shared, **NEAR)
    end = rng.normal(size=problem.size)
    for k in agents:
        ways = [(w, end - w) for w in models]
        slopes = [[plain.gradient(k, w + t * way) @ way for t in NODES] for w, way in ways]
        assert problem.slopes(models, end, NODES, k) == pytest.approx(np.array(slopes), **NEAR)


def check_what_softmax_adds(problem, plain, case, rng):
    """Clipped gradients and changes of losses, and the inverse of a Hessian."""
    models, mixes = models_and_mixes(case, rng, problem.size)
    for mix in mixes:
        clipped = mixed(mix, lambda k, i: plain.gradient(k, models[i], 0.5))
        assert problem.clipped_gradient(models, mix, 0.5) == pytest.approx(clipped, **NEAR)
    for k, mix in zip(range(problem.agents), mixes[2:], strict=True):
        own = mixed(mix[:1], lambda k, _: plain.gradient(k, models[0]))
        assert problem.only(k).gradient(models[:1], np.ones((1, 1))) == pytest.approx(own, **NEAR)
    first, second = rng.normal(size=(2, problem.size))

    def change(x, y):
        return np.clip(plain.cross_entropy(x, y, first) - plain.cross_entropy(x, y, second), -0.3, 0.3)

    changes = np.array([plain.mean(change, k) for k in range(problem.agents)])
    assert problem.clipped_differences(first, second, 0.3) == pytest.approx(changes, **NEAR)
    inverse, hessian = (
        problem.preconditioner(models[0], mixes[0][0]),
        problem.hessian(models[0], mixes[0][0]),
    )
    assert hessian @ inverse(models)[0] == pytest.approx(models[0], rel=1e-7, abs=1e-9)


@settings(max_examples=30)
@given(cases())
def test_a_module_is_that_of_plain_loops(case):
    x, y, owner, rng = samples_of(case)
    module = nn.Linear(D, CLASSES, bias=False)
    samples = Samples(torch.from_numpy(x), torch.from_numpy(y))
    problem = ModuleProblem(module, samples, owner, MU, 5.0, strongly_convex=True)
    plain = PlainSoftmax(x, y, owner, CLASSES, MU)
    models, mixes = models_and_mixes(case, rng, problem.size)
    turned = models.reshape(-1, CLASSES, D).transpose(0, 2, 1).reshape(models.shape)  # of plain loops
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(programs, "MOST_SAMPLES", case.tile * case.models)
        losses = [[plain.loss(k, w) for k in range(problem.agents)] for w in turned]
        assert problem.losses(models) == pytest.approx(np.array(losses), **NEAR)
        for mix in mixes:
            gradient = mixed(mix, lambda k, i: plain.gradient(k, turned[i]))
            gradient = gradient.reshape(-1, D, CLASSES).transpose(0, 2, 1).reshape(models.shape)
            assert problem.gradient(models, mix) == pytest.approx(gradient, **NEAR)


@settings(max_examples=15)
@given(cases(), st.integers(1, 3))
def test_minima_do_not_depend_on_how_many_are_searched_together(case, together):
    x, y, owner, _ = samples_of(case)
    problem = SoftmaxRegression(x, y, owner, CLASSES, MU)
    whole = minima(problem, problem.without_each())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(softmax, "_KEPT", together * len(x) * CLASSES)
        assert minima(problem, problem.without_each()) == pytest.approx(whole, abs=1e-9)


@settings(max_examples=30)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))
def test_evaluation_is_that_of_one_sample_at_a_time(samples, models, at_once):
    rng = np.random.default_rng(samples * 100 + models * 10 + at_once)
    x, y = rng.normal(size=(samples, D)), rng.integers(0, CLASSES, samples)
    program = programs.program_for(
        nn.Linear(D, CLASSES, bias=False).double(), "cross-entropy", torch.zeros(1, D)
    )
    weights = rng.normal(size=(models, program.size))
    plain = PlainSoftmax(x, y, np.zeros(samples, dtype=int), CLASSES, 0.0)
    turned = weights.reshape(-1, CLASSES, D).transpose(0, 2, 1).reshape(weights.shape)
    each = np.array([[plain.cross_entropy(*xy, w) for xy in zip(x, y, strict=True)] for w in turned])
    right = [
        [plain.chances(row, w).argmax() == label for row, label in zip(x, y, strict=True)] for w in turned
    ]
    batch = Samples(torch.from_numpy(x), torch.from_numpy(y))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluation, "_SAMPLES_AT_ONCE", at_once)
        patch.setattr(programs, "MOST_SAMPLES", at_once)
        scores = evaluation.evaluate_models(program, weights, batch)
        losses = evaluation.sample_losses(program, torch.from_numpy(weights), batch)
    assert losses == pytest.approx(each, **NEAR)
    assert scores.loss == pytest.approx(each.mean(1), **NEAR)
    assert scores.accuracy == pytest.approx(np.mean(right, axis=1))


@given(st.integers(0, 20), st.integers(1, 20))
def test_tiles_hold_every_row_once_and_none_is_empty(samples, most):
    cut = tiles(samples, most)
    assert [row for tile in cut for row in range(samples)[tile]] == [*range(samples)]
    assert all(0 < tile.stop - tile.start <= most for tile in cut)


def test_a_loss_without_curvature_is_minimised_without_a_stand_in(monkeypatch):
    """Rounding may leave its Hessian with negative eigenvalues, of which nothing can be made."""
    x, y = np.random.default_rng(0).normal(size=(9, D)), np.arange(9) % CLASSES
    problem = SoftmaxRegression(x, y, np.zeros(9, dtype=int), CLASSES, 1e-20)
    flat = -1e-20 * np.eye(problem.size)
    monkeypatch.setattr(SoftmaxRegression, "preconditioner", lambda *_: convex.dense(flat))
    start = np.zeros(problem.size)
    found = descend(problem, np.ones((1, 1)), start, tolerance=np.array([1e-3]), steps=20)
    assert found.converged
    assert found.losses[0] < problem.losses(start[None])[0, 0]
