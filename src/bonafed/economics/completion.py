"""Shapley values over rounds in which not everybody took part, by completing what was not seen.

ComFedSV (Fan, Fang, Zhou, Pei, Friedlander, Liu, Zhang, *Improving fairness for data valuation in federated
learning*, ICDE 2022). In round t only coalitions S of those present, A_t, can be valued; two clients with
the same data, of whom one was asked more often, then get different shares. So the matrix of worths

    U[t, S] = v_t(S) - v_t(nobody),    known for S within A_t,

is completed by one of low rank, W H^T, with

    W, H = arg min  sum over known (t, S) of (U[t, S] - w_t . h_S)^2 + ridge (|W|^2 + |H|^2),

and shares are Shapley's of the completed worths, added up over rounds:

    phi_i = sum over t, and over S without i, of |S|! (n-|S|-1)!/n! w_t . (h_{S+i} - h_S),    h_nobody = 0.

What nobody adds is 0 and not fitted. A coalition that was never within anybody's A_t has h_S = 0; the paper
therefore asks for a round in which everybody is present. The minimum is sought by alternating least
squares from the singular vectors of what is known, so nothing is drawn; like every search of a function
that is not convex it may end in a stationary point that is not the least.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.economics.contribution import Masks
from bonafed.errors import InvalidValue

_STEPS = 500  # of alternating least squares, at most
_SETTLED = 1e-10  # relative change of the objective at which it ends


class Factors(NamedTuple):
    """A matrix of low rank."""

    rounds: Floats  # (T, r) W
    coalitions: Floats  # (M, r) H
    objective: float

    @property
    def matrix(self) -> Floats:
        """(T, M) W H^T."""
        return np.asarray(np.einsum("tr,mr->tm", self.rounds, self.coalitions))


def complete(worths: ArrayLike, known: ArrayLike, *, rank: int = 3, ridge: float = 1e-3) -> Factors:
    """The factors of a matrix (T, M) of which some entries are known; the others may hold anything."""
    seen = np.asarray(known, dtype=bool)
    values = np.where(seen, np.asarray(worths, dtype=np.float64), 0.0)
    if values.ndim != 2 or not values.size:
        raise InvalidValue("worths", "must be (rounds, coalitions)", f"shape {values.shape}")
    if not np.isfinite(values).all():
        raise InvalidValue("worths", "must be finite where they are known", "NaN or inf")
    weight = checks.positive("ridge", ridge)
    columns = min(checks.whole("rank", rank), *values.shape)
    left, size, right = np.linalg.svd(values, full_matrices=False)
    w = left[:, :columns] * np.sqrt(size[:columns])
    h = right[:columns].T * np.sqrt(size[:columns])
    before = math.inf
    for _ in range(_STEPS):
        w = _least_squares(h, values, seen, weight)
        h = _least_squares(w, values.T, seen.T, weight)
        missed = np.where(seen, values - np.einsum("tr,mr->tm", w, h), 0.0)
        after = float((missed**2).sum() + weight * ((w**2).sum() + (h**2).sum()))
        if before - after <= _SETTLED * after:
            break
        before = after
    return Factors(w, h, after)


def _least_squares(other: Floats, values: Floats, seen: NDArray[np.bool_], ridge: float) -> Floats:
    """(k, r) the rows that are best for the other factor, each by itself."""
    moments = np.einsum("km,mr,mq->krq", seen.astype(np.float64), other, other)
    moments += ridge * np.eye(other.shape[1])
    return np.asarray(np.linalg.solve(moments, np.einsum("km,mr->kr", values, other)[..., None])[..., 0])


def coalitions_of(players: int, orders: ArrayLike | None = None) -> Masks:
    """(M, n) all coalitions of somebody; or those that come up when players join in these orders (m, n)."""
    n = checks.whole("players", players)
    if orders is None:
        return np.asarray((np.arange(1, 2**n)[:, None] >> np.arange(n)) & 1 == 1)
    position = np.argsort(np.asarray(orders), axis=1)
    prefixes = position[:, None, :] < np.arange(1, n + 1)[:, None]
    return np.unique(prefixes.reshape(-1, n), axis=0)


def shares(total: Floats, masks: Masks, orders: ArrayLike | None = None) -> Floats:
    """(n,) Shapley's shares of worths (M,) of coalitions (M, n); nobody is worth 0.

    Without orders, `masks` must be all coalitions, and shares are exact; with them (m, n), the mean of what
    each player adds when it comes.
    """
    n = masks.shape[1]
    worth = {mask.tobytes(): value for mask, value in zip(masks, total.tolist(), strict=True)}
    worth[np.zeros(n, dtype=bool).tobytes()] = 0.0
    shares = np.zeros(n)
    if orders is not None:
        for order in np.asarray(orders):
            joined = np.zeros(n, dtype=bool)
            for player in order:
                before = worth[joined.tobytes()]
                joined[player] = True
                shares[player] += worth[joined.tobytes()] - before
        return shares / len(np.asarray(orders))
    for mask in masks:
        size = int(mask.sum())
        part = 1 / (n * math.comb(n - 1, size - 1))  # (|S|-1)! (n-|S|)!/n! of S without one of its players
        for player in np.flatnonzero(mask):
            without = mask.copy()
            without[player] = False
            shares[player] += part * (worth[mask.tobytes()] - worth[without.tobytes()])
    return shares
