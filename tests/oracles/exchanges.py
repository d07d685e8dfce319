"""A slow and obvious twin of faithful learning in few exchanges: one agent at a time, matrices written out.

The inverse Hessian is a matrix that is updated pair by pair, every f_-k is searched by itself, gradients
and slopes are asked of one agent at a time, and the integral is a sum over pieces. There is no careful
search: problems on which one is needed have no twin.
"""

import math
from itertools import pairwise

import numpy as np

from bonafed.mechanisms.faithful.protocol.searches import FIRST, MEMORY, PATIENCE


def _inverse(pairs):
    """H of the pairs, oldest first, by Broyden, Fletcher, Goldfarb and Shanno's formula."""
    s, y = pairs[-1]
    h = (s @ y) / (y @ y) * np.eye(s.size)
    for s, y in pairs:
        left = np.eye(s.size) - np.outer(s, y) / (s @ y)
        h = left @ h @ left.T + np.outer(s, s) / (s @ y)
    return h


class _Walk:
    """One search: where it is, its pairs, and the best it has seen."""

    def __init__(self, model, gradient, mu, smooth, goal, pairs=()):
        self.model, self.gradient, self.best = model, gradient, (model, gradient)
        self.mu, self.smooth, self.goal, self.pairs = mu, smooth, goal, list(pairs)
        self.mark, self.since = np.linalg.norm(gradient), 0

    @property
    def done(self):
        return np.linalg.norm(self.best[1]) <= self.goal

    def trials(self):
        if not self.pairs:
            return [self.model - length * self.gradient / self.smooth for length in FIRST]
        step = -_inverse(self.pairs[-MEMORY:]) @ self.gradient
        longest = np.linalg.norm(self.gradient) / self.mu
        return [self.model + step * min(1, longest / np.linalg.norm(step))]

    def hear(self, models, gradients):
        """Returns the trial that makes a pair."""
        norms = [np.linalg.norm(g) for g in gradients]
        least = int(np.argmin(norms))
        if norms[least] < np.linalg.norm(self.best[1]):
            self.best = models[least], gradients[least]
        ways = [w - self.model for w in models]
        if norms[least] <= self.goal:
            pick, go = least, True
        else:
            slopes = [g @ d / np.linalg.norm(d) for g, d in zip(gradients, ways, strict=True)]
            pick = int(np.argmin(np.abs(slopes)))
            go = gradients[pick] @ ways[pick] <= 0.9 * abs(self.gradient @ ways[pick])
        self.pairs.append((ways[pick], gradients[pick] - self.gradient))
        if go:
            self.model, self.gradient = models[pick], gradients[pick]
        now = np.linalg.norm(self.best[1])
        self.mark, self.since = (now, 0) if now <= self.mark / 2 else (self.mark, self.since + 1)
        assert self.since < PATIENCE, "the twin has no careful search"
        return pick


def slow_exchanges(problem, epsilon, bend):
    """Model, payments, residuals and quadrature errors (K,), exchanges; `bend` is R of a direction."""
    p, mu, smooth, agents = problem.weights, problem.regulariser, problem.smoothness, range(problem.agents)

    def report(k, model):
        return problem.gradient(model[None], problem.one(k)[None])[0]

    # training
    heard = [(np.zeros(problem.size), [report(k, np.zeros(problem.size)) for k in agents], None)]
    total = sum(p[k] * heard[0][1][k] for k in agents)
    walk = _Walk(heard[0][0], total, mu, smooth, math.sqrt(2 * mu * epsilon * p.min()))
    exchanges = 1
    while not walk.done:
        models, begun = walk.trials(), walk.model
        reports = [[report(k, w) for k in agents] for w in models]
        pick = walk.hear(models, [sum(p[k] * r[k] for k in agents) for r in reports])
        for row, (w, r) in enumerate(zip(models, reports, strict=True)):
            heard.append((w, r, begun if row == pick else None))
        exchanges += 1
    w = walk.best[0]
    # payments
    lengths, walks = [], []
    for k in agents:
        others = [j for j in agents if j != k]

        def without(reports, others=others):
            return sum(p[j] * reports[j] for j in others)

        known = {model.tobytes(): without(reports) for model, reports, _ in heard}
        pairs = [
            (model - begun, known[model.tobytes()] - known[begun.tobytes()])
            for model, _, begun in heard
            if begun is not None
        ]
        rest = 1 - p[k]
        goal = math.sqrt(epsilon * rest * mu * p[k])
        search = _Walk(w, known[w.tobytes()], rest * mu, rest * smooth, goal, pairs)
        length = 0
        while length == 0 or not search.done:
            models = search.trials()
            search.hear(models, [without({j: report(j, v) for j in others}) for v in models])
            length += 1
        lengths.append(length)
        walks.append(search)
    exchanges += max(lengths) + 1
    # the way
    residuals = np.array([
        s.best[1] @ s.best[1] / (2 * (1 - p[k]) * mu * p[k]) for k, s in enumerate(walks)
    ])  # fmt: skip
    pieces = 1
    for k, search in enumerate(walks):
        d = w - search.best[0]
        rise = sum(p[j] * (report(j, w) - report(j, search.best[0])) @ d for j in agents if j != k)
        while max(rise, 0) / pieces * min(bend(d) / pieces / 12, 0.5) > epsilon / 2 * p[k]:
            pieces += 1
    payments, errors = np.zeros(len(walks)), np.zeros(len(walks))
    for k, search in enumerate(walks):
        d = w - search.best[0]
        phi = [
            sum(p[j] * report(j, search.best[0] + i / pieces * d) @ d for j in agents if j != k)
            for i in range(pieces + 1)
        ]
        for a, b in pairwise(phi):
            payments[k] += (a + b) / 2 / pieces / p[k]
            errors[k] += (b - a) / pieces * min(bend(d) / pieces / 12, 0.5) / p[k]
    return w, payments, residuals, errors, exchanges
