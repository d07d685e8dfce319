"""Whether there is any loss as agreed on that has all of an agent's reports as its gradients.

Pairs of reports can all be consistent (theory C3.4), and still be the gradients of nothing: a field that
turns, say. With h = g - mu w, reports g_i at models w_i are gradients of one mu-strongly convex, L-smooth
function if and only if there are numbers f_i, its values without mu/2 |w|^2, such that for all i, j

    f_i - f_j >= c_ij,      c_ij = h_j·(w_i - w_j) + |h_i - h_j|^2/(2 (L - mu))

(Taylor, Hendrickx, Glineur 2017, Theorem 4). Such numbers exist if and only if no cycle i, j, k, ... has a
positive sum c_ij + c_jk + ...; the longest ways between all pairs tell (Floyd, Warshall). An honest report
is within tau S_i of the gradient, so its c_ij are off by at most

    tau (S_i + 2 S_j) |w_i - w_j| + tau^2 (S_i + S_j)^2/(2 (L - mu)):

twice that is taken off, the second half for rounding here. So nobody honest is named.
"""

from __future__ import annotations

import numpy as np

from bonafed.checks import Floats


def contradiction(models: Floats, reports: Floats, mu: float, smooth: float, slack: Floats) -> float:
    """By how much reports (n, P) at models (n, P) miss being gradients of one loss; 0 if they may be.

    `slack` (n,) is tau S_i. The number is in units of loss, the sum of the first cycle that was found.
    """
    if smooth <= mu or len(models) < 2:
        return 0.0  # only |w|^2 has that curvature: pairs of reports tell
    h = reports - mu * models
    longest = np.empty((len(models), len(models)))
    for j in range(len(models)):
        ways, turns = models - models[j], h - h[j]
        lengths = np.sqrt((ways**2).sum(1))
        allowed = (slack + 2 * slack[j]) * lengths + (slack + slack[j]) ** 2 / (2 * (smooth - mu))
        longest[:, j] = (ways * h[j]).sum(1) + (turns**2).sum(1) / (2 * (smooth - mu)) - 2 * allowed
    np.fill_diagonal(longest, 0.0)
    for k in range(len(models)):
        longest = np.maximum(longest, longest[:, [k]] + longest[[k]])
        if (worst := float(longest.diagonal().max())) > 0:
            return worst
    return 0.0
