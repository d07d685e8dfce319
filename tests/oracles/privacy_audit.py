"""How much privacy was given away: a lower bound on epsilon from what was released, many times over.

A mechanism is run n times on each of two neighbouring data sets, and every run releases a row of numbers.
The first quarter of the rows is there to learn how to tell the two apart: the linear discriminant, and a
threshold. The others count how often that guess is wrong. With probability 1 - f at least, the true rates
of both errors are below their Clopper-Pearson limits a and b, and then, whatever was learned,

    gaussian   a mechanism with the privacy of one Gaussian release of mean mu has
               mu >= Phi^-1(1 - a) - Phi^-1(b), so that epsilon at delta is that of this mu or more
    any        an (epsilon, delta)-private mechanism has epsilon >= log((1 - b - delta)/a)

So a mechanism that keeps its promise exceeds it here with probability f at most. The first is close to what
is given away where noise is Gaussian, and presumes that the promise is of this kind, as that of a ledger of
Gaussian releases is; the second presumes nothing, and is far below the truth where delta is small.

Shares nothing with `bonafed.learning.privacy`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr, ndtri
from scipy.stats import beta


class Leak(NamedTuple):
    """Lower bounds on what was given away."""

    mu: float  # mean of the Gaussian release that gives away as much, over its noise
    gaussian: float  # epsilon of that, at delta
    any: float  # epsilon at delta, whatever the mechanism


def measure(first, second, delta, false_alarm):
    """What rows (n, Q) released on one data set and on its neighbour give away, but for chance."""
    first, second = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    learning, judging = zip(*(np.split(rows, [len(rows) // 4]) for rows in (first, second)), strict=True)
    direction, share = _discriminant(*learning), false_alarm / 4  # two bounds from two rates each
    scores = [rows @ direction for rows in learning]
    candidates = np.quantile(np.concatenate(scores), np.linspace(0.02, 0.98, 97))
    found = []
    for value in (_mu, lambda a, b: _any_epsilon(a, b, delta)):
        best = candidates[np.argmax(value(*_error_limits(*scores, candidates, share)))]
        judged = _error_limits(*(rows @ direction for rows in judging), np.array([best]), share)
        found.append(float(value(*judged)[0]))
    mu, epsilon = found
    return Leak(mu, epsilon_of(mu, delta), epsilon)


def least_advantage(first, second, false_alarm):
    """A lower bound on the total variation between rows (n, Q) of one data set and of its neighbour."""
    learning, judging = zip(*(np.split(rows, [len(rows) // 4]) for rows in (first, second)), strict=True)
    direction = _discriminant(*learning)
    scores = [rows @ direction for rows in learning]
    candidates = np.quantile(np.concatenate(scores), np.linspace(0.02, 0.98, 97))
    a, b = _error_limits(*scores, candidates, false_alarm / 2)
    best = candidates[np.argmin(a + b)]
    a, b = _error_limits(*(rows @ direction for rows in judging), np.array([best]), false_alarm / 2)
    return float(1 - a[0] - b[0])


def epsilon_of(mu, delta):
    """The epsilon of one Gaussian release of this mean over noise."""
    if mu <= 0 or delta_of(mu, 0.0) <= delta:
        return 0.0
    return brentq(lambda eps: delta_of(mu, eps) - delta, 0.0, mu * mu / 2 + 40 * mu, xtol=1e-12)


def mu_of(epsilon, delta):
    """The mean over noise of one Gaussian release that is just (epsilon, delta)-private."""
    return brentq(lambda mu: delta_of(mu, epsilon) - delta, 1e-9, 100.0, xtol=1e-13)


def delta_of(mu, epsilon):
    """The delta of one Gaussian release at epsilon (Balle and Wang 2018)."""
    return float(ndtr(mu / 2 - epsilon / mu) - math.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu)))


def error_limit(wrong, n, share):
    """Clopper-Pearson: a rate of errors above this makes so few of n with probability `share` at most."""
    wrong = np.asarray(wrong)
    return np.where(wrong >= n, 1.0, beta.ppf(1 - share, wrong + 1, np.maximum(n - wrong, 1)))


def _discriminant(first, second):
    """(Q,) the direction that separates two clouds of equal covariance best."""
    spread = np.atleast_2d(np.cov(first.T) + np.cov(second.T)) / 2
    return np.linalg.solve(spread, second.mean(0) - first.mean(0))


def _error_limits(first, second, thresholds, share):
    """Upper limits on how often the first is taken for the second, and the second for the first."""
    wrong = (first[:, None] > thresholds).sum(0), (second[:, None] <= thresholds).sum(0)
    return error_limit(wrong[0], first.size, share), error_limit(wrong[1], second.size, share)


def _mu(a, b):
    """What errors at rates a and b at most say of the mean; 0 if nothing."""
    return np.maximum(0.0, ndtri(1 - a) - ndtri(b))


def _any_epsilon(a, b, delta):
    """What errors at rates a and b at most say of epsilon; 0 if nothing."""
    one, other = np.maximum(1 - b - delta, a) / a, np.maximum(1 - a - delta, b) / b
    return np.log(np.maximum(one, other))
