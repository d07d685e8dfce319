"""Training that claims do by themselves: from drawn weights, and of problems whose constants are known."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from bonafed.checks import Floats
from bonafed.learning.privacy import noise_multiplier
from bonafed.mechanisms.jsam import allocate
from bonafed.mechanisms.jsam.convergence import GradientBound, gradient_bound
from bonafed.papers.cells import train_module
from bonafed.presentation.documents import JSONObject

_SPREAD = 0.05  # of the first weights


def train_from_drawn_weights(arguments: JSONObject, folder: Path) -> JSONObject:
    """A run of softmax regression whose first weights are drawn, not 0: with weights of 0 all clients have
    the same loss, by which BBM chooses."""
    import torch

    from bonafed.learning import models
    from bonafed.learning.data import datasets

    told = arguments["tables"]
    data = datasets.load(told["data"]["name"])
    module = models.build("softmax", data.features.shape[1:], data.classes, told["run"]["seed"])
    rng = torch.Generator().manual_seed(told["run"]["seed"])
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.normal_(0.0, _SPREAD, generator=rng)
    return train_module(arguments, folder, module)


_DELTA = 1e-5
_RADIUS = math.sqrt(2.0)  # R: a gradient of softmax regression on features of norm 1 is at most this
_SMOOTH = 0.5  # L of the same


def descend(arguments: JSONObject, _: Path) -> JSONObject:
    """A run of DP-SGD in the letter of (6) to (9), without clipping: the measured norm, and the bounds.

    Features have norm 1, so that gradients have a norm of at most sqrt(2) = R = C and L = 1/2; F is bounded
    below by 0. Clients hold the digits sorted by label; JSAM selects them at the weight eta.
    """
    from bonafed.learning.data import datasets

    data = datasets.load("digits")
    rng = np.random.default_rng(arguments["seed"])
    features = np.asarray(data.features, dtype=np.float64).reshape(len(data.labels), -1)
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    targets = np.eye(data.classes)[np.asarray(data.labels, dtype=int)]
    n, turns, m = arguments["clients"], arguments["rounds"], arguments["clients_per_round"]
    order = np.argsort(data.labels, kind="stable")[: len(data.labels) // n * n]
    x, y = (part[order].reshape(n, -1, part.shape[1]) for part in (features, targets))
    plan = allocate(np.sort(2 * rng.random(n)), arguments["eta"], 1.0)
    p, records = plan.selection, x.shape[1]
    sd = np.zeros(n)
    for k in np.flatnonzero(p):
        expected = max(1, math.ceil(p[k] * m * turns))
        sd[k] = noise_multiplier(arguments["scale"] * plan.privacy[k], _DELTA, expected) * 2 / records
    shape = (x.shape[2], y.shape[2])
    w, squares, first = np.zeros(shape), [], 0.0
    for turn in range(turns):
        each, loss = _gradients(w, x, y)
        first = loss if turn == 0 else first
        squares.append(float((each.mean(0) ** 2).sum()))
        who = rng.choice(n, size=m, p=p)
        noise = rng.standard_normal((m, *shape)) * (sd[who] * _RADIUS)[:, None, None]
        w = w - (each[who] + noise).mean(0) / math.sqrt(turns)
    bound = gradient_bound(
        p, sd, rounds=turns, clients_per_round=m, dimension=w.size, smoothness=_SMOOTH, gradient=_RADIUS,
        start_gap=first,
    )  # fmt: skip
    return {"norm": math.sqrt(float(np.mean(squares))), "selected": plan.threshold, **_plain(bound)}


def _gradients(w: Floats, x: Floats, y: Floats) -> tuple[Floats, float]:
    """(n, d, classes) of each client, and the mean loss."""
    scores = x @ w
    scores -= scores.max(2, keepdims=True)
    odds = np.exp(scores)
    odds /= odds.sum(2, keepdims=True)
    loss = -float(np.log((odds * y).sum(2)).mean())
    return np.asarray(np.swapaxes(x, 1, 2) @ (odds - y) / x.shape[1]), loss


def swing(rounds: int, gradient: float) -> tuple[float, GradientBound]:
    """A line with a kink, |w| smoothed within R/L of 0, without noise: steps swing across the kink, where
    the gradient keeps its norm; and the bounds for it."""
    smooth = 4 * math.sqrt(rounds)
    edge, step = gradient / smooth, 1 / math.sqrt(rounds)
    w = step * gradient / 2  # half a step away, so that each step lands as far on the other side
    value = gradient * (abs(w) - edge / 2)
    squares = []
    for _ in range(rounds):
        slope = gradient * max(-1.0, min(1.0, w / edge))
        squares.append(slope**2)
        w -= step * slope
    bound = gradient_bound(
        [1.0], [0.0], rounds=rounds, clients_per_round=1, dimension=1, smoothness=smooth, gradient=gradient,
        start_gap=value,
    )  # fmt: skip
    return math.sqrt(float(np.mean(squares))), bound


def _plain(bound: GradientBound) -> JSONObject:
    return {
        name: getattr(bound, name) for name in ("bias", "noise", "start", "curvature", "total", "printed")
    }
