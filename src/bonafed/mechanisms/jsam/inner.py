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

Where eta is large, J may be all bias 2 eta l, or all noise that a cap leaves, with no digit left for money.
So payments, which are differences of J, are taken term by term: for r = sqrt(l^2 + n)

    (4)  J = eta (l + r) + rest;  l + r rises by  dl (1 + (l_1 + l_0)/(r_1 + r_0)) + dn/(r_1 + r_0).

Here n is the noise of those at a cap, which is the same for most reports; in (3) there is none, and

    (5)  rest = J - 2 eta l = B (1 + 1/(1 + s)),   s = l/sqrt(l^2 + z^2/B^2).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.learning.sections import NoiseAt

_SMALL = math.sqrt(np.finfo(float).tiny)


class Inner(NamedTuple):
    """The best total for a given selection; arrays of one shape."""

    total: Floats  # B, money in expectation
    objective: Floats  # J


class Terms(NamedTuple):
    """Objectives by the terms of (4), all of them money; arrays of one shape."""

    bias: Floats  # eta l
    noise: Floats  # eta sqrt(n)
    rest: Floats

    @classmethod
    def of(cls, eta: float, distance: Floats, noise: Floats, rest: Floats) -> Terms:
        """For l, sqrt(n) and the rest."""
        return cls(eta * distance, eta * noise, rest)

    def at(self, index: NDArray[np.int64]) -> Terms:
        """Some of them."""
        return Terms(*(term[index] for term in self))

    @property
    def root(self) -> Floats:
        """eta r"""
        return np.hypot(self.bias, self.noise)

    @property
    def objective(self) -> Floats:
        """J"""
        return self.bias + self.root + self.rest

    def since(self, before: Terms) -> Rise:
        """(4): J less J before, without the digits that they share."""
        roots = self.root + before.root
        with np.errstate(divide="ignore", invalid="ignore"):
            tilt, share = (
                np.where(roots > 0, both / roots, 0.0)
                for both in (self.bias + before.bias, self.noise + before.noise)
            )
        bias, noise, rest = (one - other for one, other in zip(self, before, strict=True))
        of = [np.where(one == other, 0.0, one + other) for one, other in zip(self, before, strict=True)]
        return Rise(bias * (1 + tilt) + noise * share + rest, of[0] * (1 + tilt) + of[1] * share + of[2])


class Rise(NamedTuple):
    """By how much objectives differ; arrays of one shape."""

    value: Floats
    size: Floats  # of what it is made of: it is right to a few roundings of this


def inner(eta: float, distance: ArrayLike, spread: ArrayLike, noise_scale: float) -> Inner:
    """(3) for l = `distance` and W = `spread`, which broadcast."""
    return best_total(eta, *_inputs(distance, spread, noise_scale))


def total_and_rest(
    eta: float, distance: ArrayLike, spread: ArrayLike, noise_scale: float
) -> tuple[Floats, Floats]:
    """B of (3), and J - 2 eta l by (5)."""
    away, z = _inputs(distance, spread, noise_scale)
    total = best_total(eta, away, z).total
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        s = 1 / np.hypot(1.0, z / (away * total))
    return total, np.where(total > 0, total * (1 + 1 / (1 + s)), 0.0)


def _inputs(distance: ArrayLike, spread: ArrayLike, noise_scale: float) -> tuple[Floats, Floats]:
    """l and z, of one shape."""
    away, w = np.broadcast_arrays(
        np.asarray(distance, dtype=np.float64), np.asarray(spread, dtype=np.float64)
    )
    with np.errstate(over="ignore"):
        return away, math.sqrt(noise_scale) * (w * np.sqrt(w))


def best_total(eta: float, away: Floats, z: Floats) -> Inner:
    """(3) for l = `away` and z, of one shape."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        u = _root(eta * away**2 / z)
        spend = np.sqrt(eta * z)
        whole = (spend > _SMALL) & (spend < np.inf)
        if not whole.all():  # eta z has lost digits
            spend = np.where(whole, spend, math.sqrt(eta) * np.sqrt(z))
        root = np.sqrt(u)
        total = spend / root
        objective = eta * away + spend * (u * root + 1 / root)
        biased = eta * (2 * away)
    free = (z == 0) | ~np.isfinite(u)  # noise costs nothing, or too little for a double to tell
    return Inner(np.where(free, 0.0, total), np.where(free, biased, objective))


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
