"""The digits problem of the faithfulness vectors, and slow twins of what the mechanism computes."""

from __future__ import annotations

from functools import cache

import numpy as np
from scipy.optimize import minimize
from sklearn.datasets import load_digits

from bonafed.mechanisms.faithful import SoftmaxRegression

MU = 0.003


@cache
def rows() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Training and test features and labels: digits pooled to 4 x 4, a constant, largest norm 1."""
    digits = load_digits()
    x = (digits.data / 16).reshape(-1, 4, 2, 4, 2).mean((2, 4)).reshape(-1, 16)
    x = np.column_stack([x, np.ones(len(x))])
    x /= np.linalg.norm(x, axis=1).max()
    order = np.random.default_rng(0).permutation(len(x))
    train, test = order[:1200], order[1200:]
    return x[train], digits.target[train], x[test], digits.target[test]


def owners(labels: np.ndarray, delta: float, agents: int = 10) -> np.ndarray:
    """Who holds which row: by label, a share 1 - delta of the rows redistributed at random."""
    rng = np.random.default_rng(1)
    if agents == 10:
        owner = labels.copy()
    else:
        owner = np.array([rng.choice(np.arange(y, agents, 10)) for y in labels])
    moved = rng.random(len(labels)) < 1 - delta
    owner[moved] = rng.integers(0, agents, moved.sum())
    return owner


@cache
def digits_problem(delta: float, agents: int = 10) -> SoftmaxRegression:
    """The problem the vectors are about."""
    x, y, _, _ = rows()
    return SoftmaxRegression(x, y, owners(y, delta, agents), 10, MU)


def slow_loss(x: np.ndarray, y: np.ndarray, flat: np.ndarray, mu: float = MU) -> float:
    """Mean cross-entropy plus mu/2 |W|^2, sample by sample."""
    w, total = flat.reshape(x.shape[1], -1), 0.0
    for row, label in zip(x, y, strict=True):
        z = row @ w
        total += np.log(np.exp(z - z.max()).sum()) + z.max() - z[label]
    return total / len(y) + mu / 2 * float(flat @ flat)


def leave_one_out(problem: SoftmaxRegression, agent: int, start: np.ndarray) -> float:
    """min f_-k by SciPy's L-BFGS, from values and gradients of the others only."""
    mix = problem.without_each()[agent]
    found = minimize(
        lambda w: (problem.value(w, mix), problem.gradient(w[None], mix[None])[0]),
        start, jac=True, method="L-BFGS-B", options={"maxiter": 5000, "ftol": 1e-15, "gtol": 1e-10},
    )  # fmt: skip
    return float(found.fun)
