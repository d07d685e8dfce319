"""Whether some loss has these gradients, by asking a solver for its values."""

import numpy as np


def interpolable(models, reports, mu, smooth, linprog):
    """Whether numbers f_i with f_i - f_j >= c_ij exist, and by how much: Theorem 4 as it is written.

    The largest t with f_i - f_j >= c_ij + t for all pairs; below zero there are no such numbers.
    """
    n = len(models)
    rows, bounds = [], []
    for i in range(n):
        for j in range(n):
            if i == j:
                continue
            step, turn = models[i] - models[j], reports[i] - reports[j]
            c = reports[j] @ step + 1 / (2 * (1 - mu / smooth)) * (
                turn @ turn / smooth + mu * step @ step - 2 * mu / smooth * turn @ step
            )
            row = np.zeros(n + 1)
            row[j], row[i], row[n] = 1, -1, 1
            rows.append(row)
            bounds.append(-c)
    cost = np.zeros(n + 1)
    cost[n] = -1
    found = linprog(cost, A_ub=rows, b_ub=bounds, bounds=[(None, None)] * n + [(-1e3, 1e3)])
    return found.x[n] >= 0, found.x[n]
