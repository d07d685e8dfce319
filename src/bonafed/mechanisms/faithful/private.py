"""Faithful learning with differential privacy (Algorithm 2, corrected; theory C6).

All runs begin at w_0 = 0, which nobody has influenced: the shared one with everybody's weights v = p, and
one without each cluster, v = p outside C_l and 0 inside. With |v| the sum of the weights, h = 1/L_g and
theta = sqrt(mu h), a run takes T accelerated steps

    y = (x + theta z)/(1 + theta),   g = (sum_j v_j gbar_j(y) + |v| N(0, sigma^2))/|v|
    x <- y - h g,                    z <- (1 - theta) z + theta y - (theta/mu) g

gbar: gradients per sample clipped to C. x is w* after T_1 steps with everybody, W_l after T_2 without C_l,
and

    for k in C_l:  P_k = (1/p_k) sum_{j != k} p_j dbar_j + regulariser + N(0, sigma_P^2 B_l^2).

W_l does not depend on what k reports, which makes the truth best (theory C6.2), and where T_1 = T_2 both
models are equally unfinished and equally noisy, so that neither is in the payment. The printed protocol
begins the runs without C_l at w*, which k has shaped: `variant="printed"`, with plain steps. `"continued"`
also lets everybody go on from there, and charges differences to that. Overstating pays under both (theory
C6.4).

dbar_j is the mean over j's samples of the loss difference l(w*) - l(W), clipped to +-B_l with B_l = min(B,
C |w* - W|), which is free of private data given what was released, and no clip at all unless B is the
smaller. Losses are never sent in clear: only the sum over j != k leaves the aggregation (erratum F-D3). The
regulariser knows no data, so it is neither clipped nor noised. The step length must know none either: the
L_g of the samples at hand would tell their largest norm, so in its place stands mu + C^2/4, which is L_g
for features of norm C/sqrt(2), unless a bound is known from elsewhere.

Composition (F-D6): agent k is not asked in the run of its own cluster, so a sample enters T_1 + (L-1) T_2
noisy gradient sums and K - 1 payments. Calibration (F-D8), for replacing one sample: a sum of weight |v|
has sensitivity 2 C p_k/n_k and noise |v| sigma, so it counts for 1/|v|^2 of one with everybody; s of the
privacy loss rho goes to gradients, 1 - s to payments, with

    exact    rho = mu^2/2 for the Gaussian mechanism of mean mu that is (alpha, beta)-private (the default)
    zcdp     rho = (sqrt(ln(1/beta) + alpha) - sqrt(ln(1/beta)))^2
    printed  the paper's (52), (53), which keep neither the composition nor alpha (F-D6, F-D7)

T_1, T_2 and s follow from the error they lead to (`private_plan`) where they are not given. Every release
is recorded per agent; the statement at the end is computed from the record.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import BadReport, InvalidValue
from bonafed.learning.federation import Federation, Gradients, Losses, Objective, Task
from bonafed.learning.privacy import Ledger, Release, Releases, noise_multiplier, released, reserve
from bonafed.learning.privacy.arithmetic import largest_covered
from bonafed.learning.problems.convex import SoftmaxRegression
from bonafed.learning.problems.federation import ProblemFederation
from bonafed.mechanisms.faithful.agents import Agent
from bonafed.mechanisms.faithful.asking import deviating
from bonafed.mechanisms.faithful.clusters import Clusters, cluster_of
from bonafed.mechanisms.faithful.stepwise import OnStep

PrivateCalibration = Literal["exact", "zcdp", "printed"]
PrivateVariant = Literal["corrected", "continued", "printed"]
PAPER_STEPS = 80, 20  # T_1 and T_2 of the paper's figures
OnNoise = Callable[[Floats], None]  # (K,) noise multipliers


class Noise(NamedTuple):
    """Standard deviations of the noise."""

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

    @classmethod
    def of(cls, problem: SoftmaxRegression, clusters: Clusters, clip: float) -> PublicFacts:
        """Of a problem, whose samples are not looked at."""
        counts = problem.counts.astype(np.float64)
        return cls(
            counts, problem.weights, clusters, problem.regulariser, clip, problem.size, problem.classes
        )

    @property
    def smoothness(self) -> float:
        """L_g for features of norm C/sqrt(2) at most."""
        return self.regulariser + self.clip**2 / 4

    @property
    def curvature(self) -> float:
        """lambda, the mean eigenvalue."""
        return self.regulariser + self.clip**2 / 2 * (1 - 1 / self.classes) / self.size


@dataclass(frozen=True, slots=True, eq=False)
class PrivateOutcome:
    """The result of the private protocol."""

    model: Floats  # (P,) w*
    payments: Floats  # (K,) noisy
    models: Floats  # (K, P) noisy, trained without the agent's cluster
    noise: Noise
    ledger: Ledger  # every release of every agent
    beta: float
    variant: PrivateVariant
    training_steps: int  # T_1
    payment_steps: int  # T_2
    smoothness: float  # L_g that the steps were made for
    clip: float  # C
    loss_bound: float  # B, perhaps infinite

    def epsilon(self, agent: int) -> float:
        """The privacy an agent has given away, at beta, from the record."""
        return self.ledger.epsilon(agent, self.beta)

    @property
    def differences_clipped(self) -> bool:
        """Whether a loss difference in a payment may have been clipped: not up to C |w* - W|."""
        far = np.nanmax(np.linalg.norm(self.models - self.model, axis=1))
        return bool(self.clip * far > self.loss_bound)

    def expected_payment(self, problem: SoftmaxRegression, agent: int) -> float:
        """P_k without the noise that is added to it: what it is on average, given the models.

        Nobody but a simulation may know it.
        """
        p, shared, without = float(problem.weights[agent]), self.model, self.models[agent]
        mix = problem.weights.copy()
        mix[agent] = 0.0
        limit = _limit(shared, without, self.clip, self.loss_bound)
        change = float(mix @ problem.clipped_differences(shared, without, limit))
        return change / p + _data_free(p, problem.regulariser, shared, without)


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
    counts: Floats,
    weights: Floats,
    *,
    clip: float,
    alpha: float,
    beta: float,
    training_steps: int,
    payment_steps: int,
    clusters: int | Clusters,
    loss_bound: float = 1.0,
    split: float = 0.5,
    calibration: PrivateCalibration = "exact",
) -> Noise:
    """The noise for a promise (alpha, beta) to every sample (F-D8), or the printed one.

    Given the clusters, the noise of a sum is in proportion to its weights, as in the corrected protocol;
    given only their number, it is the same in all sums.
    """
    n, p = np.asarray(counts, dtype=np.float64), np.asarray(weights, dtype=np.float64)
    rho = privacy_loss(alpha, beta, calibration)
    k = p.size
    if calibration == "printed":
        scale = 16 * math.log(1 / beta) / (n.min() ** 2 * alpha**2)
        sums = training_steps + k * payment_steps
        return Noise(math.sqrt(clip**2 * sums * scale / k**2), math.sqrt(k * scale), rho)
    share = checks.between("split", split, 1e-6, 1 - 1e-6)
    gradient, payment = unit_noise(n, p, clip, training_steps, payment_steps, clusters)
    return Noise(
        gradient / math.sqrt(2 * share * rho), loss_bound * payment / math.sqrt(2 * (1 - share) * rho), rho
    )


def unit_noise(
    counts: Floats, weights: Floats, clip: float, training_steps: int, payment_steps: int,
    clusters: int | Clusters,
) -> tuple[float, float]:  # fmt: skip
    """(F-D8) sigma and sigma_P that make the loss of gradients, and that of payments, rho = 1/2 each."""
    times = _sums(weights, training_steps, payment_steps, clusters)
    gradient = float((np.sqrt(times) * 2 * clip * weights / counts).max())
    return gradient, math.sqrt(_payments_squared(weights, counts))


def _sums(p: Floats, training_steps: int, payment_steps: int, clusters: int | Clusters) -> Floats:
    """(K,) noisy sums that an agent's samples enter (F-D6); one of weight |v| < 1 counts for 1/|v|^2."""
    if isinstance(clusters, int):
        return np.full(p.size, training_steps + (clusters - 1) * payment_steps, dtype=np.float64)
    of = cluster_of(clusters, p.size)
    each = 1 / (1 - np.bincount(of, p)) ** 2  # (L,)
    return np.asarray(training_steps + payment_steps * (each.sum() - each[of]))


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
    training_steps: int | None = None,
    payment_steps: int | None = None,
    loss_bound: float | None = None,
    split: float | None = None,
    calibration: PrivateCalibration = "exact",
    variant: PrivateVariant = "corrected",
    smoothness: float | None = None,
    on_noise: OnNoise | None = None,
    on_step: OnStep | None = None,
    agents: Mapping[int, Agent] | None = None,
    payers: Collection[int] | None = None,
) -> PrivateOutcome:
    """Train and pay privately. For features of norm at most clip/sqrt(2) nothing is clipped.

    Steps and split are those of `plan_private` where they are not given; of the other variants the paper's
    80, 20 and 1/2. `loss_bound` clips loss differences, and with them the incentive; None: not at all.
    `smoothness` is a bound on L_g that is known without looking at samples; mu + clip^2/4 if not given.

    `on_noise` is called before the first step with the noise of a sum of gradients, for every agent
    relative to what one of its samples moves it by. `on_step` is called after every step with everybody,
    with the norm of the noisy mean: nothing that is not released.
    `agents` holds those who do not report their gradients. With `payers`, only the payments of their
    clusters are computed, the others' are NaN; noise is as for all.
    """
    cluster_of(clusters, problem.agents)
    facts = PublicFacts.of(problem, clusters, checks.positive("clip", clip))
    course = private_course(
        facts, alpha=alpha, beta=beta, training_steps=training_steps, payment_steps=payment_steps,
        loss_bound=loss_bound, split=split, calibration=calibration, variant=variant, smoothness=smoothness,
        computed=not isinstance(rng, np.random.Generator),
    )  # fmt: skip
    if on_noise is not None:
        on_noise(course.multipliers(1.0))

    def add(values: Floats, sd: float, _question: bytes, _offset: int) -> Floats:
        return released(rng, values, sd)

    federation = deviating(ProblemFederation.of(problem, add), agents)
    walk = course.begin()
    while walk.steps < course.training_steps:
        walk = course.step(walk, federation)
        if on_step is not None:
            on_step(walk.steps, walk.model, walk.norm)
    return course.finish(walk, federation, payers)


def private_course(
    facts: PublicFacts,
    *,
    alpha: float,
    beta: float,
    training_steps: int | None = None,
    payment_steps: int | None = None,
    loss_bound: float | None = None,
    split: float | None = None,
    calibration: PrivateCalibration = "exact",
    variant: PrivateVariant = "corrected",
    smoothness: float | None = None,
    computed: bool = True,
    objective: Objective | None = None,
) -> PrivateCourse:
    """The protocol from what is public; `computed`: the noise has a finite number of digits."""
    count = len(facts.clusters)
    if count < 2:
        raise InvalidValue("clusters", "must be at least 2: without everybody there is no model", count)
    checks.literal("variant", variant, PrivateVariant)
    bound = math.inf if loss_bound is None else checks.positive("loss_bound", loss_bound)
    choice = _choose(
        facts, training_steps, payment_steps, split, alpha=alpha, beta=beta, calibration=calibration,
        variant=variant,
    )  # fmt: skip
    p, c = facts.weights, facts.clip

    def noise_for(epsilon: float, delta: float) -> Noise:
        return calibrate(
            facts.counts, p, clip=c, alpha=epsilon, beta=delta, training_steps=choice.all_training_steps,
            payment_steps=choice.payment_steps, split=choice.split, calibration=calibration,
            clusters=facts.clusters if variant == "corrected" else count,
        )  # fmt: skip

    noise = noise_for(alpha, beta)
    if computed:  # noise that is computed keeps a little less than it seems
        sums = choice.all_training_steps + (count - 1) * choice.payment_steps
        numbers = facts.size * sums + p.size
        if alpha <= largest_covered(beta, numbers):
            noise = noise_for(*_ideal_promise(alpha, beta, numbers, noise, c, float(p.min())))
    smooth = facts.smoothness if smoothness is None else checks.positive("smoothness", smoothness)
    return PrivateCourse(
        facts, noise, choice.training_steps, choice.payment_steps, variant, smooth, bound, beta,
        objective or Objective(facts.regulariser),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class Walk:
    """A run of noisy steps: how far it has come."""

    model: Floats  # (P,) x
    ahead: Floats  # (P,) z of accelerated steps
    steps: int = 0
    norm: float = math.nan  # of the last noisy mean


@dataclass(frozen=True, slots=True, eq=False)
class PrivateCourse:
    """The private protocol, step by step, from what is public."""

    facts: PublicFacts
    noise: Noise
    training_steps: int  # T_1
    payment_steps: int  # T_2
    variant: PrivateVariant
    smoothness: float  # L_g that the steps are made for
    loss_bound: float  # B, perhaps infinite
    beta: float
    objective: Objective

    def begin(self) -> Walk:
        """At 0, which nobody has influenced."""
        return Walk(np.zeros(self.facts.size), np.zeros(self.facts.size))

    def multipliers(self, weight: float) -> Floats:
        """(K,) noise of a sum of gradients over what one sample of each agent moves it by."""
        return _Books(self.facts, self.noise).multipliers(weight)

    def step(self, walk: Walk, federation: Federation) -> Walk:
        """One more step with everybody."""
        where = f"private training step {walk.steps + 1}"
        offset = walk.steps * self.facts.size
        return self._step(walk, federation, self.facts.weights, where, offset)

    def _step(self, walk: Walk, federation: Federation, mix: Floats, where: str, offset: int) -> Walk:
        rate, mu = 1 / self.smoothness, self.facts.regulariser
        if self.variant != "corrected":  # gradient steps, as printed
            g = self._mean(federation, walk.model, mix, where, offset)
            return Walk(walk.model - rate * g, walk.ahead, walk.steps + 1, float(np.linalg.norm(g)))
        # Nesterov's steps for mu-strongly convex functions, which (C6.3) is about
        theta, x, z = math.sqrt(mu * rate), walk.model, walk.ahead
        y = (x + theta * z) / (1 + theta)
        g = self._mean(federation, y, mix, where, offset)
        x, z = y - rate * g, (1 - theta) * z + theta * y - theta / mu * g
        return Walk(np.asarray(x), np.asarray(z), walk.steps + 1, float(np.linalg.norm(g)))

    def _mean(self, federation: Federation, model: Floats, mix: Floats, where: str, offset: int) -> Floats:
        """(P,) the mean gradient of the agents in the mix, by their weights, with noise."""
        total = float(mix.sum())
        work = Gradients(self.objective, self.facts.clip, offset)
        sd = self._weight(mix) * self.noise.gradient
        return np.asarray(_noisy_sum(federation, model[None], mix, work, where, sd)[0] / total)

    def _weight(self, mix: Floats) -> float:
        """Of the noise of a sum, in units of sigma."""
        return float(mix.sum()) if self.variant == "corrected" else 1.0

    def finish(
        self, walk: Walk, federation: Federation, payers: Collection[int] | None = None
    ) -> PrivateOutcome:
        """Phase II, after the training steps; with `payers` of their clusters only."""
        facts, p = self.facts, self.facts.weights
        books, offset = _Books(facts, self.noise), walk.steps * facts.size
        books.gradient(p, self._weight(p), walk.steps)
        begin, w = walk.model, walk.model

        def descend(start: Floats, mix: Floats, which: str) -> Floats:
            nonlocal offset
            at = Walk(start, start)
            while at.steps < self.payment_steps:
                at = self._step(at, federation, mix, f"private {which} step {at.steps + 1}", offset)
                offset += facts.size
            books.gradient(mix, self._weight(mix), self.payment_steps)
            return at.model

        if self.variant == "continued":
            w = descend(w, p, "continued")
        agents = p.size
        payments, models = np.full(agents, np.nan), np.full((agents, facts.size), np.nan)
        of = cluster_of(facts.clusters, agents)
        for number, members in enumerate(facts.clusters):
            if payers is not None and not set(payers) & set(members.tolist()):
                continue
            start = np.zeros(facts.size) if self.variant == "corrected" else begin
            at = descend(start, np.where(of == number, 0.0, p), f"without cluster {number}")
            models[members] = at
            for k in members.tolist():
                books.payment(k)
                payments[k], draws = self._pay(federation, w, at, k, offset)
                offset += draws
        return PrivateOutcome(
            w, payments, models, self.noise, books.ledger(), self.beta, self.variant, walk.steps,
            self.payment_steps, self.smoothness, facts.clip, self.loss_bound,
        )  # fmt: skip

    def _pay(
        self, federation: Federation, shared: Floats, without: Floats, k: int, offset: int
    ) -> tuple[float, int]:
        """P_k with its noise, and how many numbers were drawn for that."""
        p, mix = float(self.facts.weights[k]), self.facts.weights.copy()
        mix[k] = 0.0
        limit = _limit(shared, without, self.facts.clip, self.loss_bound)
        work, sd = Losses(self.objective, limit, offset), self.noise.payment * limit
        # sum of p_j dbar_j, j != k
        change = _noisy_sum(
            federation, np.stack([shared, without]), mix, work, f"private payment {k}", sd * p
        )
        free = _data_free(p, self.facts.regulariser, shared, without)
        return float(change[0, 0]) / p + free, int(sd > 0)


def _noisy_sum(
    federation: Federation, models: Floats, mix: Floats, work: Gradients | Losses, where: str, sd: float
) -> Floats:
    """The noisy sum over the agents in the mix; a client that does not answer ends the run."""
    names = federation.members.names
    who = np.flatnonzero(mix).tolist()
    tasks = [Task(f"{where}, {names[k]}", names[k], models, work) for k in who]
    total = federation.total(tasks, mix[who], noise=sd)
    for task, k in zip(tasks, who, strict=True):
        if task.identifier in total.failures:
            reason = total.failures[task.identifier].reason
            raise BadReport(k, where, reason, models[0], "a private sum needs everybody", names[k])
    return total.values


def _limit(shared: Floats, without: Floats, clip: float, bound: float) -> float:
    """B_l."""
    return min(bound, clip * float(np.linalg.norm(shared - without)))


def _data_free(p: float, mu: float, shared: Floats, without: Floats) -> float:
    """What the regulariser adds to a payment."""
    return (1 - p) / p * (mu / 2 * float(shared @ shared - without @ without))


def _ideal_promise(
    alpha: float, beta: float, numbers: int, noise: Noise, clip: float, least: float
) -> tuple[float, float]:
    """The promise left to ideal noise.

    A sum of clipped gradients is as long as C at most, and mu w, which is in it, stays of that order: w is
    within 2 C/mu of 0 but for noise, which 1000 standard deviations allow for. A payment is at most
    B_l/p_k, its noise sigma_P B_l.
    """
    reach = max(4 * clip / noise.gradient, 2 / (least * noise.payment)) + 1000
    promise = reserve(alpha, beta, numbers, reach)
    return promise.epsilon, promise.delta


class _Choice(NamedTuple):
    training_steps: int  # T_1
    payment_steps: int  # T_2
    split: float
    all_training_steps: int  # with everybody


def _choose(
    facts: PublicFacts, training_steps: int | None, payment_steps: int | None, split: float | None, *,
    alpha: float, beta: float, calibration: PrivateCalibration, variant: PrivateVariant,
) -> _Choice:  # fmt: skip
    """The values given, and for the others the choice of the plan or the paper."""
    from bonafed.mechanisms.faithful.private_plan import plan_private  # avoids a circular import

    if training_steps is not None:
        checks.whole("training_steps", training_steps)
    if payment_steps is not None:
        checks.whole("payment_steps", payment_steps)
    if None in (training_steps, payment_steps, split) and variant == "corrected":
        plan = plan_private(
            facts, alpha=alpha, beta=beta, training_steps=training_steps, payment_steps=payment_steps,
            split=split, calibration=calibration,
        )  # fmt: skip
        return _Choice(plan.training_steps, plan.payment_steps, plan.split, plan.training_steps)
    first = PAPER_STEPS[0] if training_steps is None else training_steps
    second = PAPER_STEPS[1] if payment_steps is None else payment_steps
    further = second if variant == "continued" else 0
    return _Choice(first, second, 0.5 if split is None else split, first + further)


class _Books:
    """Counts the releases every agent's samples enter, in multiples of their own sensitivity."""

    def __init__(self, facts: PublicFacts, noise: Noise) -> None:
        self._p, self._n, self._clip, self._noise = facts.weights, facts.counts, facts.clip, noise
        self._gradients: Counter[tuple[int, float]] = Counter()  # of an agent, in sums with this weight
        self._payments: list[int] = []

    def multipliers(self, weight: float) -> Floats:
        """(K,) noise of a sum of gradients over what one sample of each agent moves it by."""
        return np.asarray(weight * self._noise.gradient / (2 * self._clip * self._p / self._n))

    def gradient(self, mix: Floats, weight: float, times: int) -> None:
        """So many noisy sums of the agents in the mix, with noise weight * sigma."""
        self._gradients.update({(int(j), weight): times for j in np.flatnonzero(mix)})

    def payment(self, k: int) -> None:
        """One noisy payment of agent k: a sum over all others."""
        self._payments.append(k)

    def ledger(self) -> Ledger:
        """All releases."""
        releases = [
            Release(j, 1, float(self.multipliers(weight)[j]), times)
            for (j, weight), times in sorted(self._gradients.items())
        ]
        for j in range(self._p.size):
            for k in self._payments:
                if k != j:
                    own = 2 * self._p[j] / (self._p[k] * self._n[j])
                    releases.append(Release(j, 2, self._noise.payment / own, 1))
        return Ledger(tuple(releases))
