"""Losses of agents sample by sample, in plain loops: what `learning.problems` computes tile by tile."""

from __future__ import annotations

import numpy as np


class PlainSoftmax:
    """Softmax regression: each agent's mean cross-entropy + mu/2 |w|^2."""

    def __init__(self, features, labels, owner, classes, mu):
        self.classes, self.mu, agents = classes, mu, int(owner.max()) + 1
        pairs = [*zip(features, labels, owner, strict=True)]
        self.own = [[(x, y) for x, y, k in pairs if k == agent] for agent in range(agents)]

    def chances(self, x, w):
        """(C,) the predictions for one sample."""
        z = np.exp(x @ w.reshape(-1, self.classes))
        return z / z.sum()

    def cross_entropy(self, x, y, w):
        """The loss of one sample."""
        return -np.log(self.chances(x, w)[y])

    def slope(self, x, y, w):
        """(P,) the gradient of one sample."""
        return np.outer(x, self.chances(x, w) - np.eye(self.classes)[y]).ravel()

    def bend(self, x, _y, w):
        """(P, P) the Hessian of one sample."""
        s = self.chances(x, w)
        return np.kron(np.outer(x, x), np.diag(s) - np.outer(s, s))

    def mean(self, value, agent):
        """The mean of a function of a sample over an agent's samples."""
        return sum(value(x, y) for x, y in self.own[agent]) / len(self.own[agent])

    def loss(self, agent, w):
        """F_k(w)."""
        return self.mean(lambda x, y: self.cross_entropy(x, y, w), agent) + self.mu / 2 * w @ w

    def gradient(self, agent, w, clip=np.inf):
        """(P,) grad F_k(w), each sample's part scaled to norm `clip` at most."""

        def clipped(x, y):
            g = self.slope(x, y, w)
            return g * min(1.0, clip / max(np.linalg.norm(g), 1e-300))

        return self.mean(clipped, agent) + self.mu * w

    def hessian(self, agent, w):
        """(P, P) of F_k at w."""
        return self.mean(lambda x, y: self.bend(x, y, w), agent) + self.mu * np.eye(w.size)


class PlainRidge(PlainSoftmax):
    """Least squares: each agent's mean squared error/2 + mu/2 |w|^2."""

    def __init__(self, features, targets, owner, mu):
        super().__init__(features, targets, owner, 1, mu)

    def cross_entropy(self, x, y, w):
        """The loss of one sample."""
        return (x @ w - y) ** 2 / 2

    def slope(self, x, y, w):
        """(P,) the gradient of one sample."""
        return (x @ w - y) * x

    def bend(self, x, _y, _w):
        """(P, P) the Hessian of one sample."""
        return np.outer(x, x)


def mixed(mix, of_agent):
    """(m, ...) sum_j mix_ij of_agent(j, i), one by one."""
    return np.stack([
        sum(share * of_agent(agent, row) for agent, share in enumerate(shares))
        for row, shares in enumerate(mix)
    ])  # fmt: skip
