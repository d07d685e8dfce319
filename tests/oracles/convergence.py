"""Proposition 1's proof as a recursion: the distance to the optimum, local step by local step.

Lemmas 1 to 3 of Li et al. (2020), with D, Gamma and the sampling variance of Proposition 1. In local step t

    d <- (1 - mu eta) d + eta^2 (D + 6 L Gamma)

and at the end of a round, when only some of the clients come back, with the rate of its last step

    d <- d + 4 eta^2 E^2 sum_n G_n^2/(N^2 q_n),

with memory H_n for G_n. The loss is at most L d/2 above the least one. Both steps ask that no rate of a
round is more than twice the last one, which holds for every rate here.
"""

from __future__ import annotations

import numpy as np


def loss_bounds(values, q, rates, corrections=None):
    """(rounds,) the bound on the loss after every round, for rates (rounds, E) of the local steps."""
    lip, mu, steps = values["smoothness"], values["strong_convexity"], values["local_steps"]
    bounds, noise = np.array(values["gradient_bounds"]), np.array(values["gradient_noise"])
    n = bounds.size
    drift = np.sum((noise / n) ** 2) + 8 * steps**2 * np.mean(bounds**2) + 6 * lip * values["heterogeneity"]
    added = bounds if corrections is None else np.asarray(corrections)
    sampling = 4 * steps**2 * np.sum(added**2 / q) / n**2
    distance, found = values["initial_distance"] ** 2, []
    for of_round in np.asarray(rates).tolist():
        for rate in of_round:
            distance = (1 - mu * rate) * distance + rate**2 * drift
        distance += of_round[-1] ** 2 * sampling
        found.append(lip * distance / 2)
    return np.array(found)
