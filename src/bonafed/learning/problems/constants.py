"""The constants of convergence theorems, estimated from the clients' records.

For softmax regression, F_n the mean cross-entropy of client n's records plus mu/2 |w|^2:

    L        the largest eigenvalue of any client's (1/n_k) sum of x x', halved, plus mu: the Hessian of the
             cross-entropy in the logits is at most 1/2. A bound at every model, reached with two classes.
    mu       that of the regulariser: along a common change of all classes nothing else curves.
    G_n      the root of the mean squared norm of a batch's gradient, the largest on the straight way from
             w_0 = 0 to w*. An estimate: iterates need not stay on it.
    sigma_n  the same of the distance between a batch's gradient and that of all of the client's records.
    Gamma    F* less the mean of the clients' own minima.

A batch is b of the n_k records, each set of b as likely as any other, so that its mean gradient has the
variance of a single one times (n_k - b)/(b (n_k - 1)).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue
from bonafed.learning.problems.minima import minimise, models_alone
from bonafed.learning.problems.softmax import SoftmaxRegression

_PLACES = 5  # on the way from w_0 to w*, ends included
_CLOSE = 1e-8  # of a minimum, in units of loss


@dataclass(frozen=True, slots=True, eq=False)
class ConvergenceConstants:
    """What the convergence of federated averaging depends on, for N clients."""

    smoothness: float  # L
    strong_convexity: float  # mu
    gradient_bounds: Floats  # (N,) G_n
    gradient_noise: Floats  # (N,) sigma_n
    heterogeneity: float  # Gamma >= 0
    initial_distance: float  # |w_0 - w*|
    least_loss: float  # F*


def estimate_constants(
    features: ArrayLike, labels: ArrayLike, parts: Sequence[NDArray[np.int64]], *, classes: int,
    regulariser: float, batch_size: int,
) -> ConvergenceConstants:  # fmt: skip
    """The constants of softmax regression with an intercept; every client weighs 1/N.

    `features` (n, ...) are the records of all clients, `parts` those of each.
    """
    size = checks.whole("batch_size", batch_size)
    mu = checks.positive("regulariser", regulariser)
    if not parts or min(part.size for part in parts) == 0:
        raise InvalidValue("parts", "must be records of every client", [part.size for part in parts])
    flat = np.asarray(features, dtype=np.float64)
    rows = np.hstack([flat.reshape(len(flat), -1), np.ones((len(flat), 1))])
    y = np.asarray(labels)
    order = np.concatenate(parts)
    owner = np.repeat(np.arange(len(parts)), [part.size for part in parts])
    problem = SoftmaxRegression(rows[order], y[order], owner, classes, mu)
    best = minimise(problem, problem.weights, tolerance=float(np.sqrt(2 * mu * _CLOSE)))
    alone = models_alone(problem, _CLOSE)
    least = problem.value(best, problem.weights)
    own = float(np.diagonal(problem.losses(alone)).mean())
    way = np.linspace(0.0, 1.0, _PLACES)[:, None] * best
    moments = np.array([batch_moments(rows[part], y[part], way, classes, mu, size) for part in parts])
    bounds, noise = np.sqrt(moments.max(axis=2)).T
    return ConvergenceConstants(
        max(_curvature(rows[part]) for part in parts) / 2 + mu, mu, bounds, noise,
        max(0.0, least - own), float(np.linalg.norm(best)), least,
    )  # fmt: skip


def batch_moments(
    features: Floats, labels: NDArray[np.int64], models: Floats, classes: int, regulariser: float, size: int
) -> Floats:
    """(2, m) of a batch's gradient: its mean squared norm, and that of its distance from all records'.

    Models (m, P) are (d, classes) each, flattened.
    """
    count, squares = len(labels), np.square(features).sum(axis=1)
    batch = min(size, count)
    share = (count - batch) / (batch * (count - 1)) if count > 1 else 0.0
    moments = np.empty((2, len(models)))
    for column, model in enumerate(models):
        weights = model.reshape(-1, classes)
        z = features @ weights
        z -= z.max(axis=1, keepdims=True)
        np.exp(z, out=z)
        z /= z.sum(axis=1, keepdims=True)
        z[np.arange(count), labels] -= 1  # residuals: the gradient of a record is their product with it
        mean = features.T @ z / count
        single = float((np.square(z).sum(axis=1) * squares).mean() - np.square(mean).sum())
        noise = max(0.0, single) * share
        moments[:, column] = float(np.square(mean + regulariser * weights).sum()) + noise, noise
    return moments


def _curvature(rows: Floats) -> float:
    """The largest eigenvalue of (1/n) sum of x x'."""
    gram = rows @ rows.T if rows.shape[0] < rows.shape[1] else rows.T @ rows
    return float(np.linalg.eigvalsh(gram)[-1] / len(rows))
