"""What an update was worth: Shapley values, leave-one-out, and the cosine of gradients.

A value function v takes coalitions as rows of a (m, n) array of booleans and returns their (m,) worths.

    Shapley      phi_i = sum over S without i of |S|! (n-|S|-1)!/n! (v(S + i) - v(S)),
                 the mean over all orders of what i adds when it comes. The only division that is
                     efficient   sum phi = v(all) - v(nobody),
                     symmetric   players that always add the same get the same,
                     null        a player that never adds anything gets 0,
                     additive    phi(v + w) = phi(v) + phi(w).
                 Exact from all 2^n coalitions, or the mean over sampled orders with its standard error.
                 Orders are drawn in pairs, one the reverse of the other: who comes early in one comes late
                 in the other, so where returns diminish the pair's mean varies less. It does not vary at
                 all where only pairs of players interact.
    leave one out   v(all) - v(all but i). Not efficient: of two clients with the same data neither seems
                 to add anything.
    cosine       CGSV (Xu et al., 2021): how much an update points the way of the weighted mean of all.

Shapley values over rounds in which not everybody took part complete what was not seen: ComFedSV (Fan, Fang,
Zhou, Pei, Friedlander, Liu, Zhang, *Improving fairness for data valuation in federated learning*, ICDE
2022). In round t only coalitions S of those present, A_t, can be valued; two clients with the same data, of
whom one was asked more often, then get different shares. So the matrix of worths

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
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue

Masks = NDArray[np.bool_]  # (m, n) coalitions: who is in
Value = Callable[[Masks], Floats]  # (m, n) coalitions -> (m,) worths

EXACT_UP_TO = 10  # players: 1,024 coalitions
_MOST = 20  # players of an exact computation: a million coalitions
_NORM_FLOOR = 1e-7  # CGSV adds it to every norm


class ShapleyValues(NamedTuple):
    """Shares of the players, with standard errors."""

    value: Floats  # (n,) phi; sums to v(all) - v(nobody) to rounding, sampled or not
    error: Floats  # (n,) standard error over the sampled orders; 0 where exact
    evaluations: int  # coalitions whose worth was asked for
    exact: bool


def _worths(value: Value, coalitions: Masks) -> Floats:
    worths = np.asarray(value(coalitions), dtype=np.float64)
    if worths.shape != (coalitions.shape[0],):
        raise InvalidValue("value", f"must return {coalitions.shape[0]} worths", f"shape {worths.shape}")
    if not np.isfinite(worths).all():
        who = np.flatnonzero(coalitions[int(np.flatnonzero(~np.isfinite(worths))[0])]).tolist()
        raise InvalidValue("value", "must be finite for every coalition", f"NaN or inf for {who}")
    return worths


def shapley_exact(value: Value, players: int) -> ShapleyValues:
    """From all 2^n coalitions, each asked for once."""
    n = checks.whole("players", players)
    if n > _MOST:
        raise InvalidValue("players", f"must be at most {_MOST} for exact values: sample orders instead", n)
    codes = np.arange(2**n)
    masks = (codes[:, None] >> np.arange(n)) & 1 == 1
    v, size = _worths(value, masks), masks.sum(1)
    weight = np.array([1 / (n * math.comb(n - 1, s)) for s in range(n)])  # |S|!(n-|S|-1)!/n!
    phi = np.empty(n)
    for i in range(n):
        without = codes[~masks[:, i]]
        phi[i] = weight[size[without]] @ (v[without | 1 << i] - v[without])
    return ShapleyValues(phi, np.zeros(n), v.size, True)


def shapley_sampled(
    value: Value, players: int, *, orders: int, rng: np.random.Generator, antithetic: bool = True
) -> ShapleyValues:
    """From `orders` random orders; a coalition that comes up again is not asked for again.

    With `antithetic`, every second order is the reverse of the one before, and the standard error is that
    of independent pairs.
    """
    n, m = checks.whole("players", players), checks.whole("orders", orders, at_least=2)
    if antithetic and (m % 2 or m < 4):
        raise InvalidValue("orders", "must be even and at least 4: they are drawn in pairs", m)
    sequences = rng.permuted(np.tile(np.arange(n), (m // 2 if antithetic else m, 1)), axis=1)
    if antithetic:
        sequences = np.stack([sequences, sequences[:, ::-1]], axis=1).reshape(m, n)
    # place[o, i]: when player i comes in order o. The k-th prefix holds those with place < k.
    position = np.argsort(sequences, axis=1)
    prefixes = position[:, None, :] < np.arange(n + 1)[:, None]  # (m, n+1, n)
    flat = prefixes.reshape(-1, n)
    _, first, back = np.unique(np.packbits(flat, axis=1), axis=0, return_index=True, return_inverse=True)
    v = _worths(value, flat[first])[back.reshape(-1)].reshape(m, n + 1)
    added = np.take_along_axis(np.diff(v, axis=1), position, axis=1)  # (m, n) what each player added
    units = added.reshape(-1, 2, n).mean(1) if antithetic else added
    error = units.std(0, ddof=1) / math.sqrt(units.shape[0])
    return ShapleyValues(units.mean(0), error, first.size, False)


def shapley(
    value: Value, players: int, *, orders: int, rng: np.random.Generator, antithetic: bool = True
) -> ShapleyValues:
    """Exact for at most 10 players, sampled beyond."""
    if checks.whole("players", players) <= EXACT_UP_TO:
        return shapley_exact(value, players)
    return shapley_sampled(value, players, orders=orders, rng=rng, antithetic=antithetic)


def leave_one_out(value: Value, players: int) -> Floats:
    """(n,) v(all) - v(all but i)."""
    n = checks.whole("players", players)
    v = _worths(value, np.vstack([np.ones((1, n), dtype=bool), ~np.eye(n, dtype=bool)]))
    return np.asarray(v[0] - v[1:])


class CosineStep(NamedTuple):
    """One round of CGSV, before rewards."""

    normalised: Floats  # (N, P) u_i, updates of length `scale`
    aggregate: Floats  # (P,) their mean, weighted by importance
    cosine: Floats  # (N,) phi_i in [-1, 1], between u_i and the aggregate; 0 where either is zero
    importance: Floats  # (N,) r_i > 0, smoothed over rounds, sum 1


def cosine_step(
    updates: ArrayLike,
    importance: ArrayLike | None,
    sizes: ArrayLike,
    *,
    scale: float,
    memory: float = 0.95,
    least: float = 1e-3,
) -> CosineStep:
    """u_i = scale d_i/(|d_i| + 1e-7), aggregate = sum w_i u_i, r <- memory r + (1 - memory) cos (CGSV).

    In the first round (`importance` is None) w = sizes/sum and r starts from 0; later w = r. r is raised
    to `least` and made to sum to 1. An update of zeros (an absent client, a free rider) has cosine 0, so
    its importance fades by `memory` per round.
    """
    d = np.asarray(updates, dtype=np.float64)
    if d.ndim != 2 or d.shape[0] == 0:
        raise InvalidValue("updates", "must be (clients, parameters)", f"shape {d.shape}")
    if not np.isfinite(d).all():
        who = int(np.flatnonzero(~np.isfinite(d).all(1))[0])
        raise InvalidValue("updates", "must be finite", f"NaN or inf from client {who}")
    n = checks.vector("sizes", sizes, sign="positive", length=d.shape[0])
    gamma, alpha = checks.positive("scale", scale), checks.between("memory", memory, 0.0, 1.0)
    floor = checks.positive("least", least)
    if importance is None:
        weights, before = n / n.sum(), np.zeros(d.shape[0])
    else:
        weights = before = checks.vector("importance", importance, length=d.shape[0])
    u = gamma * d / (np.linalg.norm(d, axis=1, keepdims=True) + _NORM_FLOOR)
    # einsum, not `@`: BLAS splits sums by threads and kernels, and importance decides rewards.
    total = np.einsum("i,ip->p", weights, u)
    lengths = np.linalg.norm(u, axis=1) * np.sqrt((total**2).sum())
    along = np.einsum("ip,p->i", u, total)
    cosine = np.divide(along, lengths, out=np.zeros(d.shape[0]), where=lengths > 0)
    after = np.maximum(alpha * before + (1 - alpha) * cosine, floor)
    return CosineStep(u, total, cosine, after / after.sum())


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
