"""Private faithful learning, one run after the other and one payment after the other: slow and obvious."""

import math

import numpy as np


def one_by_one(problem, clusters, rng, noise, *, steps, variant, clip, smoothness, loss_bound=math.inf):
    """(P,) the shared model, (K,) payments and (K, P) the models without, as theory C6 states them.

    `steps` are T_1 and T_2; noise is drawn in the order in which it is written down here.
    """
    mu, h, p = problem.regulariser, 1 / smoothness, problem.weights
    theta = math.sqrt(mu * h)

    def run(start, v, count):
        x, z = start, start
        weight = v.sum() if variant == "corrected" else 1.0
        for _ in range(count):
            y = (x + theta * z) / (1 + theta) if variant == "corrected" else x
            total = problem.clipped_gradient(y[None], v[None], clip)[0]
            total = total + weight * noise.gradient * rng.standard_normal(problem.size)
            g = total / v.sum()
            x, z = y - h * g, (1 - theta) * z + theta * y - theta / mu * g
        return x

    shared = run(np.zeros(problem.size), p, steps[0])
    payments, models = np.empty(p.size), np.empty((p.size, problem.size))
    for members in clusters:
        inside = np.isin(np.arange(p.size), members)
        start = np.zeros(problem.size) if variant == "corrected" else shared
        without = run(start, np.where(inside, 0.0, p), steps[1])
        limit = min(loss_bound, clip * float(np.linalg.norm(shared - without)))
        for k in members:
            others = np.where(np.arange(p.size) == k, 0.0, p)
            change = float(others @ problem.clipped_differences(shared, without, limit))
            change += noise.payment * limit * p[k] * rng.standard_normal()
            free = (1 - p[k]) / p[k] * (mu / 2 * float(shared @ shared - without @ without))
            models[k], payments[k] = without, change / p[k] + free
    return shared, payments, models
