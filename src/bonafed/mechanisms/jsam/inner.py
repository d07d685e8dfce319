"""How much to spend on privacy for a given selection, in closed form (theory B1).

Problem 3 of the paper: the server chooses selection probabilities p and privacy budgets epsilon to

    minimise  eta (l + sqrt(l^2 + Q sum p_k^2/epsilon_k^2)) + sum epsilon_k v_k,   l = ||p - p^u||_1

with v_k the virtual costs. Given p and the total B = sum epsilon_k v_k, Hoelder's inequality gives

    (1)  min sum p^2/epsilon^2 = W^3/B^2,   W = sum (p_k v_k)^(2/3),
    (2)  attained at epsilon_k = p_k^(2/3) B/(W v_k^(1/3))                        (Theorem 4).

What is left, with z = sqrt(Q) W^(3/2), is convex in B:  min eta (l + sqrt(l^2 + z^2/B^2)) + B. With
mu = eta l^2/z and u >= 1 the largest root of u^3 - u - mu = 0,

    (3)  B = sqrt(eta z/u),   J = eta l + sqrt(eta z) (u^(3/2) + u^(-1/2)).

J grows with l and with W. Without noise to buy off (z = 0): B = 0, J = 2 eta l.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from bonafed import checks
from bonafed.checks import Floats
from bonafed.learning.sections import NoiseAt


class Inner(NamedTuple):
    """The best total for a given selection; arrays of one shape."""

    total: Floats  # B, money in expectation
    objective: Floats  # J


def inner(eta: float, distance: ArrayLike, spread: ArrayLike, noise_scale: float) -> Inner:
    """(3) for l = `distance` and W = `spread`, which broadcast."""
    away, w = np.broadcast_arrays(
        np.asarray(distance, dtype=np.float64), np.asarray(spread, dtype=np.float64)
    )
    with np.errstate(over="ignore"):
        return best_total(eta, away, math.sqrt(noise_scale) * (w * np.sqrt(w)))


def best_total(eta: float, away: Floats, z: Floats) -> Inner:
    """(3) for l = `away` and z, of one shape."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        u = _root(eta * away**2 / z)
        spend = np.sqrt(eta * z)
        root = np.sqrt(u)
        total = spend / root
        objective = eta * away + spend * (u * root + 1 / root)
    free = (z == 0) | ~np.isfinite(u)  # noise costs nothing, or too little for a double to tell
    return Inner(np.where(free, 0.0, total), np.where(free, 2 * eta * away, objective))


def _root(mu: Floats) -> Floats:
    """The largest root of u^3 - u - mu = 0 for mu >= 0, by trigonometry and two Newton steps."""
    k = 1.5 * math.sqrt(3.0) * mu
    low = np.cos(np.arccos(np.minimum(k, 1.0)) / 3)
    high = np.cosh(np.arccosh(np.maximum(k, 1.0)) / 3)
    u = 2 / math.sqrt(3.0) * np.where(k <= 1, low, high)
    for _ in range(2):
        u = u - (u * (u * u - 1) - mu) / (3 * u * u - 1)
    return np.maximum(u, 1.0)


def budgets(selection: Floats, virtual_costs: Floats, total: float) -> Floats:
    """(2): (N,) privacy budgets; 0 where a client is never selected."""
    members = selection > 0
    w = np.cbrt(selection[members] * virtual_costs[members]) ** 2
    result = np.zeros(selection.size)
    result[members] = np.cbrt(selection[members]) ** 2 * total / (w.sum() * np.cbrt(virtual_costs[members]))
    return result


def objective(
    selection: ArrayLike,
    privacy: ArrayLike,
    virtual_costs: ArrayLike,
    eta: float,
    noise_scale: float,
    shares: ArrayLike | None = None,
    noise_at: NoiseAt = "client",
) -> float:
    """The objective of Problem 3, from its definition; `shares` is p^u, uniform if not given.

    With noise on the sum its noise is the largest of p^2/epsilon^2 instead of their sum (theory B10).
    """
    p = checks.vector("selection", selection)
    epsilon = checks.vector("privacy", privacy, length=p.size)
    v = checks.vector("virtual_costs", virtual_costs, length=p.size)
    weight, scale = checks.positive("eta", eta), checks.positive("noise_scale", noise_scale)
    fair = np.full(p.size, 1 / p.size) if shares is None else checks.shares("shares", shares, length=p.size)
    distance = float(np.abs(p - fair).sum())
    members = p > 0
    with np.errstate(divide="ignore", over="ignore"):
        each = (p[members] / epsilon[members]) ** 2
        noise = scale * float(each.max() if noise_at == "sum" else each.sum())
    return weight * (distance + math.sqrt(distance**2 + noise)) + float(epsilon @ v)


def noise_scale(
    delta: float,
    dimension: int,
    rounds: int,
    smoothness: float,
    records: int,
    c2: float = math.sqrt(2.0),
) -> float:
    """Q = 2 c2^2 log(1/delta) D sqrt(T) L (2/M)^2 from its ingredients (theory B0; errata J-9, J-10b).

    D is the number of parameters, T the number of steps of the server's model, M = `records` how many
    records every release averages, the same for all clients: the noise added is sigma 2C/M, not the
    printed sigma C, and Q must be that of the noise that is added. c2 is the constant of Lemma 1; sqrt(2)
    is its value for small epsilon under zCDP. It is not a constant (theory B5), which is why the noise of
    the training itself is calibrated exactly.

    >>> round(noise_scale(delta=1e-5, dimension=650, rounds=1000, smoothness=0.5, records=600), 2)
    5.26
    """
    d = checks.positive("delta", delta)
    checks.between("delta", d, 0.0, 1.0 - 1e-16)
    size, turns = checks.whole("dimension", dimension), checks.whole("rounds", rounds)
    smooth, constant = checks.positive("smoothness", smoothness), checks.positive("c2", c2)
    averaged = checks.whole("records", records)
    printed = 2 * constant * constant * math.log(1 / d) * size * math.sqrt(turns) * smooth
    return printed * (2 / averaged) ** 2
