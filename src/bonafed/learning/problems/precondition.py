"""Cheap stand-ins for the inverse of a softmax Hessian, so that conjugate gradients need few products.

With x_i the features, s_i the predicted class probabilities and v_i the weight of sample i, the Hessian is

    H = sum_i v_i (diag(s_i) - s_i s_i') (x) x_i x_i'  +  mu I.

In the basis V of the eigenvectors of sum_i v_i x_i x_i', whose eigenvalues lambda of real data fall fast:

    (top)    on the first r directions H is computed exactly and factorised, a matrix of r C rows;
    (rest)   on the others, where mu outweighs most of the curvature, it is taken for a product: lambda_i
             times the eigenvalues sigma_c of S = sum_i v_i (diag(s_i) - s_i s_i'), plus mu;
    (mixed)  what couples the two is dropped.

Where r is the number of features this is H itself. It only affects how fast a result is reached, never the
result.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy  # its submodules load on first use

from bonafed.checks import Floats

_ROWS = 4096  # samples at a time
Precondition = Callable[[Floats], Floats]  # (m, P) -> (m, P), close to the inverse Hessian times each row


@dataclass(frozen=True, slots=True, eq=False)
class Basis:
    """Directions of the features, by how much they vary."""

    values: Floats  # (d,) lambda, falling
    vectors: Floats  # (d, d) columns


@dataclass(frozen=True, slots=True, eq=False)
class TwoLevel:
    """The inverse of the matrix above."""

    basis: Basis
    factor: tuple[Floats, bool]  # Cholesky of the top, (r C, r C), feature by feature
    turn: Floats  # (C, C) eigenvectors of S, columns
    scale: Floats  # (d - r, C) lambda_i sigma_c + mu
    classes: int  # C

    def __call__(self, residuals: Floats) -> Floats:
        m, c = residuals.shape[0], self.classes
        v = self.basis.vectors
        d, r = v.shape[0], v.shape[0] - self.scale.shape[0]
        rotated = v.T @ residuals.reshape(m, d, c).transpose(1, 2, 0).reshape(d, c * m)
        top = scipy.linalg.cho_solve(self.factor, rotated[:r].reshape(r * c, m), check_finite=False)
        rest = np.einsum("ab,iam->ibm", self.turn, rotated[r:].reshape(-1, c, m)) / self.scale[:, :, None]
        back = np.einsum("ab,ibm->iam", self.turn, rest)
        full = np.concatenate([top.reshape(r, c * m), back.reshape(-1, c * m)])
        return np.asarray((v @ full).reshape(d, c, m).transpose(2, 0, 1).reshape(m, d * c))


def basis_of(features: Floats, weights: Floats) -> Basis:
    """The eigenvectors of sum_i weights_i x_i x_i'."""
    second = np.zeros((features.shape[1], features.shape[1]))
    for i in range(0, len(features), _ROWS):
        scaled = features[i : i + _ROWS] * np.sqrt(weights[i : i + _ROWS])[:, None]
        second += scaled.T @ scaled
    values, vectors = np.linalg.eigh(second)
    return Basis(np.maximum(values[::-1], 0.0), np.ascontiguousarray(vectors[:, ::-1]))


def two_level(basis: Basis, top: Floats, chances: Floats, weights: Floats, mu: float) -> TwoLevel:
    """From the features in the first r directions (n, r), the chances of the classes (n, C) and v (n,)."""
    (n, r), c = top.shape, chances.shape[1]
    # sum v (diag(s) - s s') (x) x x' = diagonal blocks - Y'Y with the rows of Y = sqrt(v) x (x) s
    h, root = np.zeros((r * c, r * c)), np.sqrt(weights)[:, None] * chances
    for i in range(0, n, _ROWS):
        y = (top[i : i + _ROWS, :, None] * root[i : i + _ROWS, None, :]).reshape(-1, r * c)
        h -= y.T @ y
    blocks = h.reshape(r, c, r, c)
    for a in range(c):
        blocks[:, a, :, a] += (top * (weights * chances[:, a])[:, None]).T @ top
    h[np.diag_indices(r * c)] += mu
    s = np.diag(weights @ chances) - (chances * weights[:, None]).T @ chances
    sigma, turn = np.linalg.eigh(s)
    scale = basis.values[r:, None] * np.maximum(sigma, 0.0) + mu
    return TwoLevel(basis, scipy.linalg.cho_factor(h, lower=True), turn, scale, c)


def dense(hessian: Floats) -> Precondition:
    """The inverse itself, where the Hessian is small."""
    factor = scipy.linalg.cho_factor(hessian, lower=True)
    return lambda residuals: np.asarray(scipy.linalg.cho_solve(factor, residuals.T).T)
