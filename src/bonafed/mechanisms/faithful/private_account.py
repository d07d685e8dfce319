"""What private faithful learning releases, and in how much noise: one count to calibrate and to account by.

A sum over the agents with weights v, |v| in all, has noise of standard deviation |v| sigma, a payment
sigma_P per unit of the loss bound, whoever adds it (theory C6). Who does decides what a sample of agent j
gets of that, n_v being the number of agents in the sum:

    noise_at    what is released of j                       noise over what a sample of j moves it by
    "sum"       the sum, with its noise added once          |v| sigma n_j/(2 C p_j)
    "client"    j's own report, with noise of its own,      |v| sigma n_j/(2 C p_j)/sqrt(n_v)
                |v| sigma/(sqrt(n_v) p_j)

So with noise at the agents a sum counts n_v times, and one without a cluster n_v/|v|^2 times, what one with
everybody and noise on the sum would; a payment, which is a sum over K - 1 agents, K - 1 times.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from bonafed.checks import Floats
from bonafed.learning.privacy import Ledger, Release
from bonafed.learning.problems.softmax import SoftmaxRegression
from bonafed.learning.sections import NoiseAt
from bonafed.mechanisms.faithful.clusters import Clusters, cluster_of


class Noise(NamedTuple):
    """Standard deviations of the noise, whoever adds it."""

    gradient: float  # sigma, on weighted sums of gradients, per unit of their weights
    payment: float  # sigma_P, on payments, per unit of loss bound
    rho: float  # zCDP-equivalent privacy loss that was calibrated for


@dataclass(frozen=True, slots=True, eq=False)
class PublicFacts:
    """All that a private protocol, and its plan, may know of a federation."""

    counts: Floats  # (K,) n_k
    weights: Floats  # (K,) p
    clusters: Clusters
    regulariser: float  # mu
    clip: float  # C
    size: int  # P
    classes: int
    noise_at: NoiseAt = "sum"

    @classmethod
    def of(
        cls, problem: SoftmaxRegression, clusters: Clusters, clip: float, noise_at: NoiseAt = "sum"
    ) -> PublicFacts:
        """Of a problem, whose samples are not looked at."""
        counts = problem.counts.astype(np.float64)
        return cls(
            counts, problem.weights, clusters, problem.regulariser, clip, problem.size, problem.classes,
            noise_at,
        )  # fmt: skip

    @property
    def smoothness(self) -> float:
        """L_g for features of norm C/sqrt(2) at most."""
        return self.regulariser + self.clip**2 / 4

    @property
    def curvature(self) -> float:
        """lambda, the mean eigenvalue."""
        return self.regulariser + self.clip**2 / 2 * (1 - 1 / self.classes) / self.size


def times_counted(agents: int, noise_at: NoiseAt) -> int:
    """What a sum of so many agents counts for, over one of everybody's whose noise is added once."""
    return agents if noise_at == "client" else 1


def unit_noise(
    counts: Floats, weights: Floats, clip: float, training_steps: int, payment_steps: int,
    clusters: int | Clusters, noise_at: NoiseAt = "sum",
) -> tuple[float, float]:  # fmt: skip
    """(F-D8) sigma and sigma_P that make the loss of gradients, and that of payments, rho = 1/2 each."""
    times = _sums(weights, training_steps, payment_steps, clusters, noise_at)
    gradient = float((np.sqrt(times) * 2 * clip * weights / counts).max())
    crowd = times_counted(weights.size - 1, noise_at)
    return gradient, math.sqrt(crowd * _payments_squared(weights, counts))


class VarianceCost(NamedTuple):
    """How many times the variance sums have where agents add noise of their own, not all once."""

    gradients: float
    payments: float


def variance_cost(
    facts: PublicFacts, training_steps: int, payment_steps: int, *, in_proportion: bool = True
) -> VarianceCost:
    """What noise at the agents costs, all else equal; `in_proportion`: noise is by the weights of a sum."""
    clusters = facts.clusters if in_proportion else len(facts.clusters)
    given = facts.counts, facts.weights, facts.clip, training_steps, payment_steps, clusters
    own, once = unit_noise(*given, "client"), unit_noise(*given, "sum")
    return VarianceCost((own[0] / once[0]) ** 2, (own[1] / once[1]) ** 2)


def _sums(
    p: Floats, training_steps: int, payment_steps: int, clusters: int | Clusters, noise_at: NoiseAt
) -> Floats:
    """(K,) noisy sums that an agent's samples enter (F-D6); one of weight |v| < 1 counts for 1/|v|^2.

    Given only the number of clusters all sums have the same noise, and one without a cluster is taken to
    be over as many agents as it can be.
    """
    everybody = times_counted(p.size, noise_at) * training_steps
    if isinstance(clusters, int):
        others = times_counted(p.size - 1, noise_at) * (clusters - 1) * payment_steps
        return np.full(p.size, everybody + others, dtype=np.float64)
    of = cluster_of(clusters, p.size)
    crowds = np.array([times_counted(p.size - len(members), noise_at) for members in clusters])
    each = crowds / (1 - np.bincount(of, p)) ** 2  # (L,)
    return np.asarray(everybody + payment_steps * (each.sum() - each[of]))


def _payments_squared(p: Floats, n: Floats) -> float:
    """max over j of sum_{k != j} (2 p_j/(p_k n_j))^2: what one sample does to all payments together."""
    per = (2 * p[:, None] / (p[None, :] * n[:, None])) ** 2
    np.fill_diagonal(per, 0.0)
    return float(per.sum(1).max())


class Books:
    """Counts the releases every agent's samples enter, in multiples of their own sensitivity."""

    def __init__(self, facts: PublicFacts, noise: Noise) -> None:
        self._p, self._n, self._clip, self._noise = facts.weights, facts.counts, facts.clip, noise
        self._at = facts.noise_at
        # of an agent, in sums of which it sees so much of sigma
        self._gradients: Counter[tuple[int, float]] = Counter()
        self._payments: list[int] = []

    def multipliers(self, weight: float, agents: int) -> Floats:
        """(K,) noise of a sum of gradients of so many agents over what one sample of each moves it by."""
        return self._seen(weight / math.sqrt(times_counted(agents, self._at)))

    def _seen(self, share: float) -> Floats:
        return np.asarray(share * self._noise.gradient / (2 * self._clip * self._p / self._n))

    def gradient(self, mix: Floats, weight: float, times: int) -> None:
        """So many noisy sums of the agents in the mix, with noise weight * sigma."""
        agents = np.flatnonzero(mix)
        share = weight / math.sqrt(times_counted(agents.size, self._at))
        self._gradients.update({(int(j), share): times for j in agents})

    def payment(self, k: int) -> None:
        """One noisy payment of agent k: a sum over all others."""
        self._payments.append(k)

    def ledger(self) -> Ledger:
        """All releases."""
        releases = [
            Release(j, 1, float(self._seen(share)[j]), times)
            for (j, share), times in sorted(self._gradients.items())
        ]
        noise = self._noise.payment / math.sqrt(times_counted(self._p.size - 1, self._at))
        for j in range(self._p.size):
            for k in self._payments:
                if k != j:
                    own = 2 * self._p[j] / (self._p[k] * self._n[j])
                    releases.append(Release(j, 2, noise / own, 1))
        return Ledger(tuple(releases))
