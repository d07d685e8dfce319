"""The bound on training that JSAM's objective is made of, with all its terms (theorem 1, equation (13)).

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

import numpy as np
from numpy.typing import ArrayLike

from bonafed import checks
from bonafed.checks import Floats


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
