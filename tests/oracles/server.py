"""The server's step, number by number: what `bonafed.learning.server` computes with arrays.

Everything is a list of Python floats, of one round after the other; nothing is kept that a formula does not
name. Rounds are mappings from who delivered to its update.
"""

import math


def memory_changes(rounds, weights, expected, g, size):
    """The change of every round with memory; weights and expected weights by client."""
    last = {client: [0.0] * size for client in expected}
    changes = []
    for updates in rounds:
        change = []
        for i in range(size):
            value = sum(g * expected[client] * last[client][i] for client in expected)
            for client, update in updates.items():
                value += weights[client] * (update[i] - g * last[client][i])
            change.append(value)
        for client, update in updates.items():
            last[client] = list(update)
        changes.append(change)
    return changes


def models(start, changes, way, rate=1.0, beta=0.9, beta_2=0.99, tau=1e-3):
    """The model after every round."""
    model, first, second, found = list(start), [0.0] * len(start), [tau**2] * len(start), []
    for change in changes:
        for i, d in enumerate(change):
            if way == "sgd":
                model[i] += rate * d
            elif way == "momentum":
                first[i] = beta * first[i] + d
                model[i] += rate * first[i]
            else:
                first[i] = beta * first[i] + (1 - beta) * d
                second[i] = beta_2 * second[i] + (1 - beta_2) * d * d
                model[i] += rate * first[i] / (math.sqrt(second[i]) + tau)
        found.append(list(model))
    return found
