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
from typing import Literal, NamedTuple

import numpy as np

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue, MissingValue
from bonafed.learning.privacy import Ledger, Release, noise_multiplier
from bonafed.learning.problems.softmax import SoftmaxRegression
from bonafed.learning.sections import NoiseAt
from bonafed.mechanisms.faithful.protocol.payments import Clusters, cluster_of

PrivateVariant = Literal["corrected", "printed"]
PrivateCalibration = Literal["exact", "zcdp", "printed"]
PAPER_STEPS = 80, 20  # T_1 and T_2 of the paper's figures


class NoiseScales(NamedTuple):
    """Standard deviations of the noise, whoever adds it."""

    gradient: float  # sigma, on weighted sums of gradients, per unit of their weights
    payment: float  # sigma_P, on payments, per unit of loss bound
    rho: float  # zCDP-equivalent privacy loss that was calibrated for


@dataclass(frozen=True, slots=True)
class PrivateTerms:
    """What a private protocol is run with.

    Steps and split are those of the plan where they are left out; of the other variants the paper's 80, 20
    and 1/2. For features of norm at most clip/sqrt(2) nothing is clipped.
    """

    alpha: float  # the promise to every sample, (alpha, beta)-differential privacy
    beta: float
    variant: PrivateVariant = "corrected"
    clip: float = math.sqrt(2.0)  # C, largest norm of a sample's gradient
    noise_at: NoiseAt = "sum"  # "client": every agent adds its own, against whoever sees single reports
    training_steps: int | None = None  # T_1
    payment_steps: int | None = None  # T_2
    split: float | None = None  # s, the share of the privacy loss that goes to gradients
    calibration: PrivateCalibration = "exact"
    loss_bound: float | None = None  # B, clips loss differences, and with them the incentive; None: no clip
    smoothness: float | None = None  # L_g, known without looking at samples; None: mu + clip^2/4


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

    def __init__(self, facts: PublicFacts, noise: NoiseScales) -> None:
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
        """Every release of every agent, with its noise."""
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


def privacy_loss(alpha: float, beta: float, calibration: PrivateCalibration = "exact") -> float:
    """rho: how much zero-concentrated privacy loss (alpha, beta) allows (erratum F-D7).

    >>> round(privacy_loss(1.0, 1e-5), 6), round(privacy_loss(1.0, 1e-5, "zcdp"), 6)
    (0.035926, 0.02082)
    """
    checks.literal("calibration", calibration, PrivateCalibration)
    a, b = checks.positive("alpha", alpha), _beta(beta)
    if calibration == "printed":
        return a**2 / (4 * math.log(1 / b))
    multiplier = noise_multiplier(a, b, variant="exact" if calibration == "exact" else "zcdp")
    return 1 / (2 * multiplier**2)


def _beta(beta: float) -> float:
    b = checks.number("beta", beta)
    if not 0 < b < 1:
        raise InvalidValue("beta", "must be between 0 and 1, ends excluded", b)
    return b


def calibrate(
    counts: Floats, weights: Floats, terms: PrivateTerms, clusters: int | Clusters
) -> NoiseScales:
    """The noise for a promise (alpha, beta) to every sample (F-D8), or the printed one.

    Given the clusters, the noise of a sum is in proportion to its weights, as in the corrected protocol;
    given only their number, it is the same in all sums. It is that of the sum also where the agents add it.
    The terms must name both numbers of steps; sigma_P is that for their loss bound, 1 if they have none.
    """
    alpha, noise_at = terms.alpha, terms.noise_at
    checks.literal("noise_at", noise_at, NoiseAt)
    if terms.training_steps is None or terms.payment_steps is None:
        name = "training_steps" if terms.training_steps is None else "payment_steps"
        raise MissingValue(name, "is required: the noise depends on it")
    n, p = np.asarray(counts, dtype=np.float64), np.asarray(weights, dtype=np.float64)
    rho = privacy_loss(alpha, terms.beta, terms.calibration)
    k = p.size
    if terms.calibration == "printed":
        scale = 16 * math.log(1 / terms.beta) / (n.min() ** 2 * alpha**2)
        sums = terms.training_steps + k * terms.payment_steps
        crowd, payers = times_counted(k, noise_at), times_counted(k - 1, noise_at)
        return NoiseScales(
            math.sqrt(crowd * terms.clip**2 * sums * scale / k**2), math.sqrt(payers * k * scale), rho
        )
    split = checks.between("split", 0.5 if terms.split is None else terms.split, 1e-6, 1 - 1e-6)
    gradient, payment = unit_noise(
        n, p, terms.clip, terms.training_steps, terms.payment_steps, clusters, noise_at
    )
    bound = 1.0 if terms.loss_bound is None else terms.loss_bound
    return NoiseScales(
        gradient / math.sqrt(2 * split * rho), bound * payment / math.sqrt(2 * (1 - split) * rho), rho
    )
