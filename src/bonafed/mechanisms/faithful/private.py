"""Faithful learning with differential privacy (Algorithm 2, corrected; theory C6).

    phase I    w <- w - eta_1 (sum_k p_k gbar_k(w) + N(0, sigma^2)), gbar: gradients per sample clipped to C
    phase II   for every cluster l, from W = w*, with eta_l = 1/((1 - p(C_l)) L_g):
               W <- W - eta_l (sum_{j not in C_l} p_j gbar_j(W) + N(0, sigma^2))
               for k in C_l:  P_k = (1/p_k) sum_{j != k} p_j dbar_j + regulariser + N(0, sigma_P^2 B_l^2)

dbar_j is the mean over j's samples of the loss difference l(w*) - l(W), clipped to +-B_l with
B_l = min(B, C |w* - W|), which is free of private data given what was released. Losses are never sent in
clear: only the sum over j != k leaves the aggregation (erratum D3). The regulariser knows no data, so it is
neither clipped nor noised. The step length must know none either: the L_g of the samples at hand would tell
their largest norm, so in its place stands mu + C^2/4, which is L_g for features of norm C/sqrt(2), unless
a bound is known from elsewhere.

Composition (D6): agent k is not asked in the run of its own cluster, so a sample enters T_1 + (L-1) T_2
noisy gradient sums and K - 1 payments. Calibration (D8), for replacing one sample: sums have sensitivity
2 C max p_k/n_k; s of the privacy loss rho goes to gradients, 1 - s to payments, with

    exact    rho = mu^2/2 for the Gaussian mechanism of mean mu that is (alpha, beta)-private (the default)
    zcdp     rho = (sqrt(ln(1/beta) + alpha) - sqrt(ln(1/beta)))^2
    printed  the paper's (52), (53), which keep neither the composition nor alpha (D6, D7)

Every release is recorded per agent; the statement at the end is computed from the record.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue
from bonafed.learning.privacy import Ledger, Release, Releases, noise_multiplier, released
from bonafed.mechanisms.faithful.clusters import Clusters, cluster_of
from bonafed.mechanisms.faithful.problems import SoftmaxRegression
from bonafed.mechanisms.faithful.protocol import Aggregation, OnStep

PrivateCalibration = Literal["exact", "zcdp", "printed"]
OnNoise = Callable[[Floats], None]  # (K,) noise multipliers


class Noise(NamedTuple):
    """Standard deviations of the noise."""

    gradient: float  # sigma, on weighted sums of gradients
    payment: float  # sigma_P, on payments, per unit of loss bound
    rho: float  # zCDP-equivalent privacy loss that was calibrated for


@dataclass(frozen=True, slots=True, eq=False)
class PrivateOutcome:
    """What the private protocol came to."""

    model: Floats  # (P,) w*
    payments: Floats  # (K,) noisy
    models: Floats  # (K, P) noisy, trained without the agent's cluster
    noise: Noise
    ledger: Ledger  # every release of every agent
    beta: float

    def epsilon(self, agent: int) -> float:
        """The privacy an agent has given away, at beta, from the record."""
        return self.ledger.epsilon(agent, self.beta)


def privacy_loss(alpha: float, beta: float, calibration: PrivateCalibration = "exact") -> float:
    """rho: how much zero-concentrated privacy loss (alpha, beta) allows (erratum D7).

    >>> round(privacy_loss(1.0, 1e-5), 6), round(privacy_loss(1.0, 1e-5, "zcdp"), 6)
    (0.035926, 0.02082)
    """
    checks.literal("calibration", calibration, PrivateCalibration)
    a, b = checks.positive("alpha", alpha), _beta(beta)
    if calibration == "printed":
        return a**2 / (4 * math.log(1 / b))
    multiplier = noise_multiplier(a, b, variant="exact" if calibration == "exact" else "printed")
    return 1 / (2 * multiplier**2)


def _beta(beta: float) -> float:
    b = checks.number("beta", beta)
    if not 0 < b < 1:
        raise InvalidValue("beta", "must be between 0 and 1, ends excluded", b)
    return b


def calibrate(
    counts: Floats,
    weights: Floats,
    *,
    clip: float,
    alpha: float,
    beta: float,
    training_steps: int,
    payment_steps: int,
    clusters: int,
    loss_bound: float = 1.0,
    split: float = 0.5,
    calibration: PrivateCalibration = "exact",
) -> Noise:
    """The noise for a promise (alpha, beta) to every sample (D8), or the printed one."""
    n, p = np.asarray(counts, dtype=np.float64), np.asarray(weights, dtype=np.float64)
    rho = privacy_loss(alpha, beta, calibration)
    k = p.size
    if calibration == "printed":
        scale = 16 * math.log(1 / beta) / (n.min() ** 2 * alpha**2)
        sums = training_steps + k * payment_steps
        return Noise(math.sqrt(clip**2 * sums * scale / k**2), math.sqrt(k * scale), rho)
    share = checks.between("split", split, 1e-6, 1 - 1e-6)
    sums = training_steps + (clusters - 1) * payment_steps
    sensitivity = 2 * clip * float((p / n).max())
    gradient = math.sqrt(sums * sensitivity**2 / (2 * share * rho))
    return Noise(gradient, loss_bound * math.sqrt(_payments_squared(p, n) / (2 * (1 - share) * rho)), rho)


def _payments_squared(p: Floats, n: Floats) -> float:
    """max over j of sum_{k != j} (2 p_j/(p_k n_j))^2: what one sample does to all payments together."""
    per = (2 * p[:, None] / (p[None, :] * n[:, None])) ** 2
    np.fill_diagonal(per, 0.0)
    return float(per.sum(1).max())


def private_faithful(
    problem: SoftmaxRegression,
    clusters: Clusters,
    rng: np.random.Generator | Releases,
    *,
    alpha: float,
    beta: float,
    clip: float = math.sqrt(2.0),
    training_steps: int = 80,
    payment_steps: int = 20,
    loss_bound: float = 1.0,
    split: float = 0.5,
    calibration: PrivateCalibration = "exact",
    smoothness: float | None = None,
    on_noise: OnNoise | None = None,
    on_step: OnStep | None = None,
    reports: Aggregation | None = None,
) -> PrivateOutcome:
    """Train and pay privately. For features of norm at most clip/sqrt(2) nothing is clipped.

    `smoothness` is a bound on L_g that is known without looking at samples; mu + clip^2/4 if not given.

    `on_noise` hears before the first step how much noise a sum of gradients will have, for every agent over
    what one of its samples moves it by. `on_step` hears of every step of phase I, with the norm of the
    noisy sum: nothing that is not released.
    `reports` is where sums over agents come from, computed here if not given.
    """
    of, count = cluster_of(clusters, problem.agents), len(clusters)
    if count < 2:
        raise InvalidValue("clusters", "must be at least 2: without everybody there is no model", count)
    c, bound = checks.positive("clip", clip), checks.positive("loss_bound", loss_bound)
    turns = checks.whole("training_steps", training_steps)
    payment_turns = checks.whole("payment_steps", payment_steps)
    p, n = problem.weights, problem.counts.astype(np.float64)
    noise = calibrate(
        n, p, clip=c, alpha=alpha, beta=beta, training_steps=turns, payment_steps=payment_turns,
        clusters=count, split=split, calibration=calibration,
    )  # fmt: skip
    books, sums = _Books(p, n, c, noise), reports or Aggregation(problem)
    if on_noise is not None:
        on_noise(books.gradient_multipliers)

    def noisy(model: Floats, mix: Floats) -> Floats:
        books.gradient(mix)
        return released(rng, sums.clipped_sum(model, mix, c), noise.gradient)

    w, smooth = np.zeros(problem.size), problem.regulariser + c**2 / 4
    if smoothness is not None:
        smooth = checks.positive("smoothness", smoothness)
    for step in range(turns):
        g = noisy(w, p)
        w = w - g / smooth
        if on_step is not None:
            on_step(step + 1, w, float(np.linalg.norm(g)))
    payments, models = np.empty(problem.agents), np.empty((problem.agents, problem.size))
    for number, members in enumerate(clusters):
        mix = np.where(of == number, 0.0, p)
        step, at = 1 / (mix.sum() * smooth), w
        for _ in range(payment_turns):
            at = at - step * noisy(at, mix)
        models[members] = at
        payments[members] = _pay(problem, sums, w, at, members, c, bound, noise, rng, books)
    return PrivateOutcome(w, payments, models, noise, books.ledger(), beta)


def _pay(
    problem: SoftmaxRegression, sums: Aggregation, shared: Floats, without: Floats,
    members: NDArray[np.int64], clip: float, bound: float, noise: Noise,
    rng: np.random.Generator | Releases,
    books: _Books,
) -> Floats:  # fmt: skip
    p, mu = problem.weights, problem.regulariser
    limit = min(bound, clip * float(np.linalg.norm(shared - without)))
    data_free = mu / 2 * float(shared @ shared - without @ without)
    found = np.empty(len(members))
    for place, k in enumerate(members):
        mix = p.copy()
        mix[k] = 0.0
        books.payment(int(k))
        change = sums.loss_change(shared, without, mix, limit)  # sum of p_j dbar_j, j != k
        others = change / p[k] + (1 - p[k]) / p[k] * data_free
        found[place] = released(rng, np.asarray(others), noise.payment * limit) if limit else others
    return found


class _Books:
    """Counts the releases every agent's samples enter, in multiples of their own sensitivity."""

    def __init__(self, p: Floats, n: Floats, clip: float, noise: Noise) -> None:
        self._p, self._n, self._clip, self._noise = p, n, clip, noise
        self._gradients = np.zeros(p.size, dtype=np.int64)
        self._payments: list[int] = []

    @property
    def gradient_multipliers(self) -> Floats:
        """(K,) noise of a sum of gradients over what one sample of each agent moves it by."""
        return np.asarray(self._noise.gradient / (2 * self._clip * self._p / self._n))

    def gradient(self, mix: Floats) -> None:
        """One noisy sum of the agents in the mix."""
        self._gradients += mix > 0

    def payment(self, k: int) -> None:
        """One noisy payment of agent k: a sum over all others."""
        self._payments.append(k)

    def ledger(self) -> Ledger:
        """All of it."""
        found = []
        for j, multiplier in enumerate(self.gradient_multipliers.tolist()):
            if self._gradients[j]:
                found.append(Release(j, 1, multiplier, int(self._gradients[j])))
            for k in self._payments:
                if k != j:
                    own = 2 * self._p[j] / (self._p[k] * self._n[j])
                    found.append(Release(j, 2, self._noise.payment / own, 1))
        return Ledger(tuple(found))
