"""Constants of convergence from records, against enumeration, finite differences and closed forms."""

from itertools import combinations

import numpy as np
import pytest
from scipy.optimize import minimize

from bonafed.errors import InvalidValue
from bonafed.learning.problems.constants import batch_moments, estimate_constants

MU = 0.05


def loss(w, x, y, classes, mu=MU):
    z = x @ w.reshape(-1, classes)
    top = z.max(axis=1)
    log_sum = top + np.log(np.exp(z - top[:, None]).sum(axis=1))
    return float(np.mean(log_sum - z[np.arange(len(y)), y]) + mu / 2 * w @ w)


def gradient(w, x, y, classes, mu=MU, step=1e-6):
    """By finite differences: shares nothing with the code."""
    found = np.empty_like(w)
    for k in range(w.size):
        e = np.zeros_like(w)
        e[k] = step
        found[k] = (loss(w + e, x, y, classes, mu) - loss(w - e, x, y, classes, mu)) / (2 * step)
    return found


def some_records(seed=0, n=6, d=3, classes=3):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.integers(0, classes, n)


@pytest.mark.parametrize("size", [1, 2, 4, 6, 9])
def test_moments_are_those_of_all_batches(size):
    x, y = some_records()
    models = np.random.default_rng(1).normal(size=(2, 9))
    found = batch_moments(x, y, models, 3, MU, size)
    for place, w in enumerate(models):
        whole = gradient(w, x, y, 3)
        batches = [gradient(w, x[list(b)], y[list(b)], 3) for b in combinations(range(6), min(size, 6))]
        assert found[0, place] == pytest.approx(np.mean([g @ g for g in batches]), rel=1e-6)
        spread = np.mean([(g - whole) @ (g - whole) for g in batches])
        assert found[1, place] == pytest.approx(spread, rel=1e-5, abs=1e-8)


def test_one_record_has_no_noise():
    x, y = some_records(n=1)
    assert batch_moments(x, y, np.ones((1, 9)), 3, MU, 5)[1, 0] == 0.0


def estimated(parts=None, seed=0, n=30, d=4, classes=3, batch=2):
    x, y = some_records(seed, n, d, classes)
    parts = parts or [np.arange(0, 10), np.arange(10, 18), np.arange(18, 30)]
    found = estimate_constants(x, y, parts, classes=classes, regulariser=MU, batch_size=batch)
    return found, np.hstack([x, np.ones((n, 1))]), y, parts


def hessian(w, x, y, classes, step=1e-4):
    columns = [
        (gradient(w + step * e, x, y, classes) - gradient(w - step * e, x, y, classes)) / (2 * step)
        for e in np.eye(w.size)
    ]
    return np.array(columns)


def test_no_curvature_of_any_client_is_above_smoothness_or_below_strong_convexity():
    found, x, y, parts = estimated()
    rng = np.random.default_rng(3)
    for w in (np.zeros(15), rng.normal(size=15), 5 * rng.normal(size=15)):
        for part in parts:
            values = np.linalg.eigvalsh(hessian(w, x[part], y[part], 3))
            assert values[-1] <= found.smoothness + 1e-4
            assert values[0] >= found.strong_convexity - 1e-4
    assert values[0] == pytest.approx(found.strong_convexity, abs=1e-4)  # along a change of all classes


def test_smoothness_is_reached_with_two_classes():
    found, x, y, parts = estimated(classes=2)
    largest = max(np.linalg.eigvalsh(hessian(np.zeros(10), x[p], y[p], 2))[-1] for p in parts)
    assert found.smoothness == pytest.approx(largest, abs=1e-4)


def test_minima_are_those_of_a_general_solver():
    found, x, y, parts = estimated()

    def mean(w):
        return float(np.mean([loss(w, x[p], y[p], 3) for p in parts]))

    best = minimize(mean, np.zeros(15), method="BFGS", options={"gtol": 1e-8})
    own = [minimize(loss, np.zeros(15), (x[p], y[p], 3), "BFGS", options={"gtol": 1e-8}).fun for p in parts]
    assert found.least_loss == pytest.approx(best.fun, abs=1e-7)
    assert found.heterogeneity == pytest.approx(best.fun - np.mean(own), abs=1e-6)
    assert found.initial_distance == pytest.approx(np.linalg.norm(best.x), abs=1e-3)


def test_gradients_are_bounded_on_the_way():
    found, x, y, parts = estimated()
    start = [gradient(np.zeros(15), x[p], y[p], 3) for p in parts]
    assert np.all(found.gradient_bounds >= [np.linalg.norm(g) for g in start])
    assert np.all(found.gradient_bounds >= found.gradient_noise)
    longest = np.linalg.norm(x, axis=1).max()
    assert np.all(found.gradient_bounds <= np.sqrt(2) * longest + MU * found.initial_distance)
    assert np.all(estimated(batch=30)[0].gradient_noise == 0.0)


def test_clients_with_the_same_records_are_not_heterogeneous():
    x, y = some_records(n=8)
    found = estimate_constants(
        np.vstack([x, x]), np.tile(y, 2), [np.arange(8), np.arange(8, 16)], classes=3, regulariser=MU,
        batch_size=4,
    )  # fmt: skip
    assert found.heterogeneity == pytest.approx(0.0, abs=1e-7)
    assert found.gradient_bounds[0] == pytest.approx(found.gradient_bounds[1], rel=1e-12)


def test_nonsense_is_refused():
    x, y = some_records()
    parts = [np.arange(3), np.arange(3, 6)]
    with pytest.raises(InvalidValue, match="regulariser must be positive"):
        estimate_constants(x, y, parts, classes=3, regulariser=0.0, batch_size=2)
    with pytest.raises(InvalidValue, match="batch_size must be a whole number"):
        estimate_constants(x, y, parts, classes=3, regulariser=MU, batch_size=0)
    with pytest.raises(InvalidValue, match="parts must be records of every client"):
        estimate_constants(x, y, [np.arange(6), np.arange(0)], classes=3, regulariser=MU, batch_size=2)
