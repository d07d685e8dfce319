"""Training that claims do by themselves, and its bound with all terms (theorem 1, equation (13)).

The server takes T steps of size alpha = R/(C sqrt(T)) on the mean of what m clients release, each drawn
with replacement by p; a release is a clipped gradient plus noise of standard deviation sigma_k C. F is
L-smooth, gradients have a norm of at most R, and clipping scales them by C/R but for a relative error G.
Then the mean release is C/R (grad F + b) with |b| <= R (l + G), l = ||p - p^u||_1, and the descent lemma

    E F(w_{t+1}) <= F(w_t) - |grad F|^2/sqrt(T) + |grad F| |b|/sqrt(T) + L/(2T) (R^2 + R^2 noise),
    noise = D (1/m) sum p_k sigma_k^2 = D T sum p_k^2 sigma_k^2/T_k,   T_k = p_k m T

gives, summed over t, X^2 <= R (l + G) X + A for X, the root of the mean of E|grad F|^2, with

    A = (F(w_1) - F*)/sqrt(T) + L R^2/(2 sqrt(T)) + L R^2 sqrt(T) D/2 sum p_k^2 sigma_k^2/T_k

and so   X <= R/2 (l + G) + sqrt(R^2/4 (l + G)^2 + A).                                                  (1)

As printed, (13) splits the root of A into a sum, and differs in two places:

    erratum J-9     it has D sqrt(T L) for D sqrt(T) L in the noise;
    erratum J-15    L R^2/(2 sqrt(T)) stands beside the roots, not under one. It is the square of a gradient
                    norm, as is what it belongs with; where L is of the order of sqrt(T) and R is small
                    the printed bound is below what training does.

Noise that fits Definition 1 has a standard deviation of sigma_k 2C/M (errata J-10, J-10b): give that,
in units of C, as `noise`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike

from bonafed import checks
from bonafed.checks import Floats
from bonafed.learning.privacy import noise_multiplier
from bonafed.mechanisms.jsam import allocate
from bonafed.papers.cells import train_module
from bonafed.presentation.documents import JSONObject

_SPREAD = 0.05  # of the first weights


def train_from_drawn_weights(arguments: JSONObject, folder: Path) -> JSONObject:
    """A run of softmax regression whose first weights are drawn, not 0: with weights of 0 all clients have
    the same loss, by which BBM chooses."""
    import torch

    from bonafed.learning import models
    from bonafed.learning.data import datasets

    tables = arguments["tables"]
    data = datasets.load(tables["data"]["name"])
    module = models.build("softmax", data.features.shape[1:], data.classes, tables["run"]["seed"])
    rng = torch.Generator().manual_seed(tables["run"]["seed"])
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0.0, _SPREAD, generator=rng)
    return train_module(arguments, folder, module)


# The bound of theorem 1


@dataclass(frozen=True, slots=True)
class GradientBound:
    """A bound on the root mean square of the gradient norm over a run; terms under its root are squares."""

    bias: float  # R/2 (l + G), which does not vanish however long one trains
    noise: float  # under the root: of the noise that clients add
    start: float  # under the root: (F(w_1) - F*)/sqrt(T)
    curvature: float  # L R^2/(2 sqrt(T)): under the root, in print beside it
    total: float  # (1)
    printed: float  # (13), letter by letter


def gradient_bound(
    selection: ArrayLike,
    noise: ArrayLike,
    *,
    rounds: int,
    clients_per_round: int,
    dimension: int,
    smoothness: float,
    gradient: float,
    start_gap: float,
    clipping_error: float = 0.0,
    shares: ArrayLike | None = None,
) -> GradientBound:
    """(1) and (13) for a selection p and noise of standard deviation `noise` times the clip, (N,) each.

    `gradient` is R, `start_gap` F(w_1) - F*, `clipping_error` G; `shares` is p^u, uniform if not given.

    >>> alike = gradient_bound([0.5, 0.5], [0.1, 0.1], rounds=100, clients_per_round=2, dimension=10,
    ...     smoothness=0.5, gradient=1.0, start_gap=1.0)
    >>> round(alike.total, 4), alike.bias
    (0.3553, 0.0)
    """
    p = checks.vector("selection", selection)
    sd = checks.vector("noise", noise, length=p.size)
    fair = np.full(p.size, 1 / p.size) if shares is None else checks.shares("shares", shares, length=p.size)
    turns, drawn = checks.whole("rounds", rounds), checks.whole("clients_per_round", clients_per_round)
    size, smooth = checks.whole("dimension", dimension), checks.positive("smoothness", smoothness)
    most, gap = checks.positive("gradient", gradient), checks.non_negative("start_gap", start_gap)
    error = checks.non_negative("clipping_error", clipping_error)
    off = float(np.abs(p - fair).sum()) + error
    per_release = _noise_per_release(p, sd, drawn * turns)
    root = math.sqrt(turns)
    bias, curvature, start = most / 2 * off, smooth * most**2 / (2 * root), gap / root
    noisy = smooth * most**2 * root * size / 2 * per_release
    total = bias + math.sqrt(bias**2 + noisy + start + curvature)
    literal = 2 * size * math.sqrt(turns * smooth) * per_release
    printed = bias + most / 2 * math.sqrt(off**2 + literal) + math.sqrt(start) + curvature
    return GradientBound(bias, noisy, start, curvature, total, printed)


def _noise_per_release(p: Floats, sd: Floats, releases: int) -> float:
    """sum p_k^2 sigma_k^2/T_k with T_k = p_k m T, the number of releases to be expected of client k."""
    return float((p * sd**2).sum()) / releases


# Training whose constants are known

_DELTA = 1e-5
_RADIUS = math.sqrt(2.0)  # R: a gradient of softmax regression on features of norm 1 is at most this
_SMOOTH = 0.5  # L of the same


def descend(arguments: JSONObject, _: Path) -> JSONObject:
    """A run of DP-SGD in the letter of (6) to (9), without clipping: the measured norm, and the bounds.

    Features have norm 1, so that gradients have a norm of at most sqrt(2) = R = C and L = 1/2; F is bounded
    below by 0. Clients hold the digits sorted by label; JSAM selects them at the weight eta.
    """
    from bonafed.learning.data import datasets

    data = datasets.load("digits")
    rng = np.random.default_rng(arguments["seed"])
    features = np.asarray(data.features, dtype=np.float64).reshape(len(data.labels), -1)
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    targets = np.eye(data.classes)[np.asarray(data.labels, dtype=int)]
    n, turns, m = arguments["clients"], arguments["rounds"], arguments["clients_per_round"]
    order = np.argsort(data.labels, kind="stable")[: len(data.labels) // n * n]
    x, y = (part[order].reshape(n, -1, part.shape[1]) for part in (features, targets))
    plan = allocate(np.sort(2 * rng.random(n)), arguments["eta"], 1.0)
    p, records = plan.selection, x.shape[1]
    sd = np.zeros(n)
    for k in np.flatnonzero(p):
        expected = max(1, math.ceil(p[k] * m * turns))
        sd[k] = noise_multiplier(arguments["scale"] * plan.privacy[k], _DELTA, expected) * 2 / records
    shape = (x.shape[2], y.shape[2])
    w, squares, first = np.zeros(shape), [], 0.0
    for turn in range(turns):
        each, loss = _gradients(w, x, y)
        first = loss if turn == 0 else first
        squares.append(float((each.mean(0) ** 2).sum()))
        who = rng.choice(n, size=m, p=p)
        noise = rng.standard_normal((m, *shape)) * (sd[who] * _RADIUS)[:, None, None]
        w = w - (each[who] + noise).mean(0) / math.sqrt(turns)
    bound = gradient_bound(
        p, sd, rounds=turns, clients_per_round=m, dimension=w.size, smoothness=_SMOOTH, gradient=_RADIUS,
        start_gap=first,
    )  # fmt: skip
    return {"norm": math.sqrt(float(np.mean(squares))), "selected": plan.threshold, **_plain(bound)}


def _gradients(w: Floats, x: Floats, y: Floats) -> tuple[Floats, float]:
    """(n, d, classes) of each client, and the mean loss."""
    scores = x @ w
    scores -= scores.max(2, keepdims=True)
    odds = np.exp(scores)
    odds /= odds.sum(2, keepdims=True)
    loss = -float(np.log((odds * y).sum(2)).mean())
    return np.asarray(np.swapaxes(x, 1, 2) @ (odds - y) / x.shape[1]), loss


def swing(rounds: int, gradient: float) -> tuple[float, GradientBound]:
    """A line with a kink, |w| smoothed within R/L of 0, without noise: steps swing across the kink, where
    the gradient keeps its norm; and the bounds for it."""
    smooth = 4 * math.sqrt(rounds)
    edge, step = gradient / smooth, 1 / math.sqrt(rounds)
    w = step * gradient / 2  # half a step away, so that each step lands as far on the other side
    value = gradient * (abs(w) - edge / 2)
    squares = []
    for _ in range(rounds):
        slope = gradient * max(-1.0, min(1.0, w / edge))
        squares.append(slope**2)
        w -= step * slope
    bound = gradient_bound(
        [1.0], [0.0], rounds=rounds, clients_per_round=1, dimension=1, smoothness=smooth, gradient=gradient,
        start_gap=value,
    )  # fmt: skip
    return math.sqrt(float(np.mean(squares))), bound


def _plain(bound: GradientBound) -> JSONObject:
    return {
        name: getattr(bound, name) for name in ("bias", "noise", "start", "curvature", "total", "printed")
    }
