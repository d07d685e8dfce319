"""The digits federation of the rewards vectors, and slow twins of what the mechanism computes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import ceil

import numpy as np
from sklearn.datasets import load_digits

from bonafed.learning.federation import Roster
from bonafed.learning.function_federation import FunctionFederation

CLIENTS, CLASSES = 20, 10
LAYERS = [slice(0, 640), slice(640, 650)]  # 64 x 10 weights and 10 biases, as one flat vector


@dataclass(frozen=True, slots=True, eq=False)
class DigitsFederation:
    """Softmax regression on 8 x 8 digits, split among 20 clients; a local round is 5 full-batch steps."""

    blocks: list[tuple[np.ndarray, np.ndarray]]  # each client's features (n_i, 65) and one-hot labels
    validation: tuple[np.ndarray, np.ndarray]
    test: tuple[np.ndarray, np.ndarray]
    steps: int = 5
    rate: float = 4.0
    decay: float = 1e-4

    @property
    def sizes(self) -> np.ndarray:
        return np.array([len(x) for x, _ in self.blocks], dtype=float)

    @property
    def federation(self) -> FunctionFederation:
        return federated(self.local, len(self.blocks))

    def local(self, models: np.ndarray, _round_number: int, present: np.ndarray) -> np.ndarray:
        who = np.flatnonzero(present)
        w = models.reshape(-1, 65, 10).copy()
        ends = np.cumsum(self.sizes[who]).astype(int)
        rows = list(zip(who, [0, *ends[:-1]], ends, strict=True))
        y = np.concatenate([self.blocks[i][1] for i in who])
        z, n = np.empty(y.shape), np.repeat(self.sizes[who], self.sizes[who].astype(int))[:, None]
        for _ in range(self.steps):
            for i, a, b in rows:
                np.matmul(self.blocks[i][0], w[i], out=z[a:b])
            d = (softmax(z) - y) / n
            for i, a, b in rows:
                w[i] -= self.rate * (self.blocks[i][0].T @ d[a:b] + self.decay * w[i])
        return w.reshape(models.shape) - models

    def accuracy(self, models: np.ndarray, part: str = "test") -> np.ndarray:
        x, y = getattr(self, part)
        return np.array([np.mean((x @ m.reshape(65, 10)).argmax(1) == y) for m in models])

    def loss(self, models: np.ndarray) -> np.ndarray:
        x, y = self.test
        each = [softmax(x @ m.reshape(65, 10))[np.arange(len(y)), y] for m in models]
        return np.array([-np.log(p).mean() for p in each])

    def validation_accuracy(self, models: np.ndarray) -> np.ndarray:
        return self.accuracy(models, "validation")


def softmax(z: np.ndarray) -> np.ndarray:
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


@cache
def digits_federation(partition: str, seed: int) -> DigitsFederation:
    """The vectors' data: 1000 rows to train, 250 to validate, 547 to test."""
    digits = load_digits()
    x = np.column_stack([digits.data / 16, np.ones(len(digits.data))])
    x /= np.linalg.norm(x, axis=1).max()
    y = digits.target
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(x))
    train, validation, test = order[:1000], order[1000:1250], order[1250:]
    parts = PARTITIONS[partition](y[train], rng)
    rows = [train[part] for part in parts]
    blocks = [(x[part], np.eye(CLASSES)[y[part]]) for part in rows]
    return DigitsFederation(blocks, (x[validation], y[validation]), (x[test], y[test]))


def _by_class(y: np.ndarray, rng: np.random.Generator, holders: list[list[int]]) -> list[np.ndarray]:
    found: list[list[np.ndarray]] = [[] for _ in range(CLIENTS)]
    for label in range(CLASSES):
        rows = rng.permutation(np.flatnonzero(y == label))
        for i, part in zip(holders[label], np.array_split(rows, len(holders[label])), strict=True):
            found[i].append(part)
    return [np.concatenate(part) for part in found]


def _three_classes(y: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    held = []
    for i in range(CLIENTS):
        first = i % CLASSES
        others = [c for c in range(CLASSES) if c != first]
        held.append({first, *rng.choice(others, 2, replace=False).tolist()})
    return _by_class(y, rng, [[i for i in range(CLIENTS) if c in held[i]] for c in range(CLASSES)])


def _quantity(y: np.ndarray, rng: np.random.Generator) -> list[np.ndarray]:
    n = len(y)
    w = np.maximum(rng.dirichlet([0.5] * CLIENTS), 12 / n)
    w /= w.sum()
    return np.split(rng.permutation(n), (np.cumsum(w)[:-1] * n).astype(int))


PARTITIONS = {
    "C3": _three_classes,
    "quantity": _quantity,
    "iid": lambda y, rng: _by_class(y, rng, [list(range(CLIENTS))] * CLASSES),
}


def slow_rate(p: float, ceiling: float, kappa: float) -> float:
    return min((p / ceiling) ** (1 - kappa), 1.0)


def slow_rewards(updates: np.ndarray, sets: np.ndarray, present: np.ndarray, own: str) -> np.ndarray:
    """Procedure 2 update by update, for sets already drawn."""
    n = sum(bool(p) for p in present)
    rewards = np.zeros_like(updates)
    for i in range(len(updates)):
        members = [j for j in range(len(updates)) if sets[i, j]]
        others = [j for j in members if j != i]
        if own == "unbiased" and others:
            rewards[i] = updates[i] / n
            for j in others:
                rewards[i] += (n - 1) / n * updates[j] / len(others)
        else:
            for j in members:
                rewards[i] += updates[j] / len(members)
    return rewards


def slow_sets(rates: list[float], rng: np.random.Generator) -> list[list[int]]:
    """S_i drawn the obvious way, everybody present."""
    n = len(rates)
    found = []
    for i, gamma in enumerate(rates):
        others = [j for j in range(n) if j != i]
        size = ceil(gamma * (n - 1) - 1e-9)
        found.append([i, *rng.choice(others, size, replace=False).tolist()])
    return found


def federated(local, clients: int) -> FunctionFederation:
    """Clients "0", "1", ... whose updates are rows of local(models (N, P), round, present (N,))."""

    def answers(tasks):
        who = [int(task.client) for task in tasks]
        models = np.zeros((clients, tasks[0].models.shape[1]), dtype=tasks[0].models.dtype)
        present = np.zeros(clients, dtype=bool)
        models[who], present[who] = np.concatenate([task.models for task in tasks]), True
        updates = local(models, tasks[0].work.round_number, present)
        return {task.identifier: updates[i : i + 1] for i, task in zip(who, tasks, strict=True)}

    names = tuple(str(i) for i in range(clients))
    return FunctionFederation(Roster(names, np.ones(clients, dtype=np.int64)), answers)


def gradient_step(targets: np.ndarray, rate: float):
    """Local training on F_i(w) = |w - a_i|^2/2: one exact gradient step."""
    return lambda models, _round_number, _present: rate * (targets - models)


def quadratic(targets: np.ndarray, rate: float) -> FunctionFederation:
    """The federation of these clients."""
    return federated(gradient_step(targets, rate), len(targets))
