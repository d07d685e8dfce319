"""What a private run of faithful learning can achieve, from what is public before it begins (theory C6).

Two kinds of numbers. One is certain: by (C6.3) the shared model's loss is, on average over the noise, at
most

    (1 - theta)^T ln(classes) + (1 - (1 - theta)^T) sigma^2 P/(L_g theta),     theta = sqrt(mu/L_g),

above its minimum, P the parameters; what a report can gain an agent is at most that over p_k (C6.2).

The other is an estimate, to choose T_1, T_2 and the split by and to warn: losses are taken to be quadratic
with all eigenvalues at their mean, lambda = mu + C^2/2 (1 - 1/classes)/P, the trace of a softmax Hessian
for features of norm C/sqrt(2) over P. Steps are then linear: after T of them the share r_T of the start is
left (at most; it oscillates), and each coordinate has variance sigma^2 V_T. With o = 1 - p_k, the distance
D = sqrt(2 ln(classes)/lambda) from w_0 to w°, a payment of the size S that agents as unlike as `unlike`
says owe, S = p_k (unlike C)^2/(2 o lambda), and |w° - w_-k| = A = sqrt(2 p_k S/(o lambda)), a payment is
off by

    bias    r_2^2 S + (o lambda/p_k) |r_1 - r_2^2| A D + (o/p_k) |r_1^2 - r_2^2| lambda D^2/2
            + (o lambda P/(2 p_k)) sigma^2 |V_1 - V_2| + (q - p_k)^2 (unlike C)^2/(2 o lambda p_k)
    noise   (o lambda/p_k) sigma sqrt((A + r_1 D)^2 V_1 + (r_2 D)^2 V_2), through gradients of f_-k;
            (o lambda/p_k) sigma^2 sqrt(P (V_1^2 + V_2^2)/2), through its curvature;
            sigma_P C sqrt(A^2 + P sigma^2 (V_1 + V_2)), added to it

(q the weight of k's cluster), and the model's loss by r_1^2 ln(classes) + lambda P sigma^2 V_1/2. The plan
is the choice with the least sum of the two errors, of the agent whose payment is off most.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from bonafed import checks
from bonafed.checks import Floats
from bonafed.learning.problems.convex import Ints
from bonafed.mechanisms.faithful.private.noise import (
    NoiseScales,
    PrivateCalibration,
    PrivateTerms,
    PublicFacts,
    privacy_loss,
    unit_noise,
)
from bonafed.mechanisms.faithful.protocol.payments import cluster_of

UNLIKE = 0.05  # mean gradient of an agent at the shared model, over the longest there can be
_STEPS = tuple(sorted({round(4 * 1.2**i) for i in range(36)}))  # 4 .. 2363
_SHARES = (1.0, 0.7, 0.5)  # of the training steps that payments take
_SPLITS = np.array([0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99])
_MOST_ALPHA = 1e6
_MOST_TIMES = 1e9  # as many samples


@dataclass(frozen=True, slots=True, eq=False)
class PrivateFaithfulPlan:
    """A choice of steps and split, and its errors; losses and payments in units of loss."""

    training_steps: int  # T_1
    payment_steps: int  # T_2
    split: float
    noise: NoiseScales
    model_error: float  # of the shared model's loss, estimated
    payment_error: Floats  # (K,) estimated
    payment_scale: Floats  # (K,) S: what moderately unlike agents owe
    training_gap: float  # certain: F(w*) - min F at most, on average over the noise
    gain_bound: Floats  # (K,) certain: what a report can gain, on average over the noise

    @property
    def usable(self) -> bool:
        """Whether payments are estimated to be off by less than they are."""
        return bool((self.payment_error <= self.payment_scale).all())

    @property
    def _score(self) -> float:
        return self.model_error + float(self.payment_error.max())


def training_gap(steps: int, sigma: float, mu: float, smoothness: float, size: int, classes: int) -> float:
    """(C6.3) E F(w*) - min F at most, after accelerated steps from 0 with noise sigma per coordinate.

    >>> round(training_gap(100, 0.0, 0.003, 0.503, 170, 10), 5)
    0.00074
    """
    theta = math.sqrt(mu / smoothness)
    remainder = (1 - theta) ** steps
    return remainder * math.log(classes) + (1 - remainder) * sigma**2 * size / (smoothness * theta)


def plan_private(facts: PublicFacts, terms: PrivateTerms, *, unlike: float = UNLIKE) -> PrivateFaithfulPlan:
    """The steps and split with the least error; those that the terms name are taken as they are."""
    rho, split = privacy_loss(terms.alpha, terms.beta, terms.calibration), terms.split
    apart = checks.between("unlike", unlike, 1e-6, 1.0)
    splits = _SPLITS if split is None else np.array([checks.between("split", split, 1e-6, 1 - 1e-6)])
    of = cluster_of(facts.clusters, facts.weights.size)
    each = (
        _best_split(facts, of, rho, first, second, splits, apart)
        for first, second in _pairs(terms.training_steps, terms.payment_steps)
    )
    return min(each, key=lambda plan: plan._score)


def _pairs(training_steps: int | None, payment_steps: int | None) -> Iterator[tuple[int, int]]:
    firsts = _STEPS if training_steps is None else (checks.whole("training_steps", training_steps),)
    for first in firsts:
        if payment_steps is not None:
            yield first, checks.whole("payment_steps", payment_steps)
        else:
            yield from ((first, max(1, round(share * first))) for share in _SHARES)


def _best_split(
    facts: PublicFacts, of: Ints, rho: float, first: int, second: int, splits: Floats, unlike: float
) -> PrivateFaithfulPlan:
    """The plan with these steps; all splits at once. `of` (K,) is the cluster of each agent."""
    clip, lam, size, p = facts.clip, facts.curvature, facts.size, facts.weights
    gradient, payment = unit_noise(facts.counts, p, clip, first, second, facts.clusters, facts.noise_at)
    sigma = (gradient / np.sqrt(2 * splits * rho))[:, None]  # (splits, 1), against (K,) agents
    sigma_p = (payment / np.sqrt(2 * (1 - splits) * rho))[:, None]
    theta = math.sqrt(facts.regulariser / facts.smoothness)
    decay, spread = _steps(lam / facts.smoothness, theta, max(first, second, _STEPS[-1]))
    (r1, r2), (v1, v2) = decay[[first, second]], spread[[first, second]] / facts.smoothness**2
    o, mates = 1 - p, np.bincount(of, p)[of] - p
    scale = p * (unlike * clip) ** 2 / (2 * o * lam)
    start, away = math.sqrt(2 * math.log(facts.classes) / lam), np.sqrt(2 * p * scale / (o * lam))
    pull = o * lam / p
    bias = (
        r2**2 * scale + pull * abs(r1 - r2**2) * away * start + pull * abs(r1**2 - r2**2) * start**2 / 2
        + pull * size / 2 * sigma**2 * abs(v1 - v2) + (mates * unlike * clip) ** 2 / (2 * o * lam * p)
    )  # fmt: skip
    slope = (pull * sigma) ** 2 * ((away + r1 * start) ** 2 * v1 + (r2 * start) ** 2 * v2)
    curvature = (pull * sigma**2) ** 2 * size * (v1**2 + v2**2) / 2
    addition = (sigma_p * clip) ** 2 * (away**2 + size * sigma**2 * (v1 + v2))
    error = np.sqrt(bias**2 + slope + curvature + addition)  # (splits, K)
    model = r1**2 * math.log(facts.classes) + lam * size * sigma[:, 0] ** 2 * v1 / 2
    at = int((error.max(1) + model).argmin())
    noise = NoiseScales(float(sigma[at, 0]), float(sigma_p[at, 0]), rho)
    gap = training_gap(first, noise.gradient, facts.regulariser, facts.smoothness, size, facts.classes)
    return PrivateFaithfulPlan(
        first, second, float(splits[at]), noise, float(model[at]), error[at], scale, gap, gap / p
    )


@lru_cache(maxsize=64)
def _steps(bend: float, theta: float, most: int) -> tuple[Floats, Floats]:
    """After 0, 1, .. accelerated steps on one coordinate with h lambda = bend: r_T at most, and V_T/h^2.

    theta/mu = h/theta, so with noise e in the gradient and both x and z in units of h
    x <- (1 - bend) y - e, z <- (1 - theta) z + theta y - (bend y + e)/theta.
    """
    mean = np.array([1.0, theta]) / (1 + theta)  # y from (x, z)
    step = np.stack([(1 - bend) * mean, np.array([0.0, 1 - theta]) + (theta - bend / theta) * mean])
    at, pulse = np.ones(2), np.array([-1.0, -1 / theta])
    decay, spread = np.empty(most + 1), np.zeros(most + 1)
    for t in range(most + 1):
        decay[t] = at[0]
        if t < most:
            spread[t + 1] = spread[t] + pulse[0] ** 2
        at, pulse = step @ at, step @ pulse
    return np.maximum.accumulate(np.abs(decay[::-1]))[::-1], spread


class Enough(NamedTuple):
    """What would make payments usable, all else equal; None: nothing within reason."""

    samples: int | None  # of all agents together
    alpha: float | None


def enough_for_payments(
    facts: PublicFacts, *, alpha: float, beta: float, calibration: PrivateCalibration = "exact",
    unlike: float = UNLIKE,
) -> Enough:  # fmt: skip
    """The least number of samples, or alpha, whose best plan is usable; to two digits, rounded up."""
    return _enough(_Known.of(facts), alpha, beta, calibration, unlike)


@dataclass(frozen=True)
class _Known:
    """Facts that are equal if their numbers are."""

    numbers: tuple[object, ...]
    facts: PublicFacts = field(compare=False)

    @classmethod
    def of(cls, facts: PublicFacts) -> _Known:
        each = (getattr(facts, item.name) for item in fields(facts))
        return cls(tuple(_hashable(value) for value in each), facts)


def _hashable(value: object) -> object:
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value


@lru_cache(maxsize=64)  # every participant asks, about the same facts
def _enough(
    known: _Known, alpha: float, beta: float, calibration: PrivateCalibration, unlike: float
) -> Enough:
    facts = known.facts

    terms = PrivateTerms(alpha=alpha, beta=beta, calibration=calibration)

    def with_samples(times: float) -> bool:
        more = replace(facts, counts=facts.counts * times)
        return plan_private(more, terms, unlike=unlike).usable

    def with_alpha(times: float) -> bool:
        return plan_private(facts, replace(terms, alpha=alpha * times), unlike=unlike).usable

    times, factor = _least(with_samples, _MOST_TIMES), _least(with_alpha, _MOST_ALPHA / alpha)
    total = float(facts.counts.sum())
    return Enough(
        None if times is None else int(_two_digits(total * times)),
        None if factor is None else _two_digits(alpha * factor),
    )


def plan_warning(facts: PublicFacts, plan: PrivateFaithfulPlan, *, alpha: float, beta: float) -> str | None:
    """A warning before training if payments will be mostly noise; None if not."""
    if plan.usable:
        return None
    worst = int((plan.payment_error / plan.payment_scale).argmax())
    enough = enough_for_payments(facts, alpha=alpha, beta=beta)
    samples = "no number of samples" if enough.samples is None else f"{enough.samples:,} samples in all"
    epsilon = "no epsilon" if enough.alpha is None else f"an epsilon of {enough.alpha:g}"
    return (
        f"payments will be more noise than signal: one is expected to be off by about "
        f"{plan.payment_error[worst]:.2g}, where an agent whose mean gradient is a twentieth of the longest"
        f" owes {plan.payment_scale[worst]:.2g}; {samples}, or {epsilon}, would be enough"
    )


def _least(usable: Callable[[float], bool], most: float) -> float | None:
    """The least factor between 1 and `most` that is enough, to five per cent; None if there is none."""
    low, high = 1.0, 1.0
    while not usable(high):
        if high >= most:
            return None
        low, high = high, min(4 * high, most)
    while high > 1.05 * low:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if usable(middle) else (middle, high)
    return high


def _two_digits(value: float) -> float:
    """The number rounded up to two digits."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 1)
    return math.ceil(value / unit * (1 - 1e-12)) * unit
