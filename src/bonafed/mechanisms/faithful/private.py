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
from collections.abc import Callable, Collection, Mapping
from typing import Literal, NamedTuple

import numpy as np

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue
from bonafed.learning.federation import Objective
from bonafed.learning.privacy import Releases, noise_multiplier, released, reserve
from bonafed.learning.privacy.added_noise import largest_covered
from bonafed.learning.problems.federation import ProblemFederation
from bonafed.learning.problems.softmax import SoftmaxRegression
from bonafed.learning.sections import NoiseAt
from bonafed.mechanisms.faithful.adversaries.agents import Agent
from bonafed.mechanisms.faithful.clusters import Clusters, cluster_of
from bonafed.mechanisms.faithful.private_account import Noise, PublicFacts, times_counted, unit_noise
from bonafed.mechanisms.faithful.private_schedule import PrivateCourse, PrivateOutcome, PrivateVariant
from bonafed.mechanisms.faithful.requests import deviating
from bonafed.mechanisms.faithful.stepwise import OnStep
from bonafed.randomness import Normals

PrivateCalibration = Literal["exact", "zcdp", "printed"]
PAPER_STEPS = 80, 20  # T_1 and T_2 of the paper's figures
OnNoise = Callable[[Floats], None]  # (K,) noise multipliers


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
    noise_at: NoiseAt = "sum",
) -> Noise:
    """The noise for a promise (alpha, beta) to every sample (F-D8), or the printed one.

    Given the clusters, the noise of a sum is in proportion to its weights, as in the corrected protocol;
    given only their number, it is the same in all sums. It is that of the sum also where the agents add it.
    """
    checks.literal("noise_at", noise_at, NoiseAt)
    n, p = np.asarray(counts, dtype=np.float64), np.asarray(weights, dtype=np.float64)
    rho = privacy_loss(alpha, beta, calibration)
    k = p.size
    if calibration == "printed":
        scale = 16 * math.log(1 / beta) / (n.min() ** 2 * alpha**2)
        sums = training_steps + k * payment_steps
        crowd, payers = times_counted(k, noise_at), times_counted(k - 1, noise_at)
        return Noise(math.sqrt(crowd * clip**2 * sums * scale / k**2), math.sqrt(payers * k * scale), rho)
    share = checks.between("split", split, 1e-6, 1 - 1e-6)
    gradient, payment = unit_noise(n, p, clip, training_steps, payment_steps, clusters, noise_at)
    return Noise(
        gradient / math.sqrt(2 * share * rho), loss_bound * payment / math.sqrt(2 * (1 - share) * rho), rho
    )


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
    noise_at: NoiseAt = "sum",
) -> PrivateOutcome:
    """Train and pay privately. For features of norm at most clip/sqrt(2) nothing is clipped.

    Steps and split are those of `plan_private` where they are not given; of the other variants the paper's
    80, 20 and 1/2. `loss_bound` clips loss differences, and with them the incentive; None: not at all.
    `smoothness` is a bound on L_g that is known without looking at samples; mu + clip^2/4 if not given.

    `on_noise` is called before the first step with the noise of a sum of gradients, for every agent
    relative to what one of its samples moves it by. `on_step` is called after every step with everybody,
    with the norm of the noisy mean: nothing that is not released.
    `agents` holds those who do not report their gradients. With `payers`, only the payments of their
    clusters are computed, the others' are NaN; noise is as for all. `noise_at="client"`: every agent adds
    its own, so that the promise holds also against whoever sees single reports.
    """
    cluster_of(clusters, problem.agents)
    checks.literal("noise_at", noise_at, NoiseAt)
    facts = PublicFacts.of(problem, clusters, checks.positive("clip", clip), noise_at)
    course = private_course(
        facts, alpha=alpha, beta=beta, training_steps=training_steps, payment_steps=payment_steps,
        loss_bound=loss_bound, split=split, calibration=calibration, variant=variant, smoothness=smoothness,
        computed=not isinstance(rng, np.random.Generator),
    )  # fmt: skip
    if on_noise is not None:
        on_noise(course.multipliers())
    normals = Normals(rng) if isinstance(rng, np.random.Generator) else None

    def add(values: Floats, sd: float, _question: bytes, place: int) -> Floats:
        if normals is not None:
            return np.asarray(values + sd * normals.read(place, values.size).reshape(values.shape))
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
            clusters=facts.clusters if variant == "corrected" else count, noise_at=facts.noise_at,
        )  # fmt: skip

    noise = noise_for(alpha, beta)
    if computed:  # noise that is computed keeps a little less than it seems
        sums = choice.all_training_steps + (count - 1) * choice.payment_steps
        numbers = facts.size * sums + p.size
        if alpha <= largest_covered(beta, numbers):
            crowd = times_counted(p.size, facts.noise_at)
            noise = noise_for(*_ideal_promise(alpha, beta, numbers, noise, c, float(p.min()), crowd))
    smooth = facts.smoothness if smoothness is None else checks.positive("smoothness", smoothness)
    return PrivateCourse(
        facts, noise, choice.training_steps, choice.payment_steps, variant, smooth, bound, beta,
        objective or Objective(facts.regulariser),
    )  # fmt: skip


def _ideal_promise(
    alpha: float, beta: float, numbers: int, noise: Noise, clip: float, least: float, crowd: int
) -> tuple[float, float]:
    """The promise left to ideal noise.

    A sum of clipped gradients is as long as C at most, and mu w, which is in it, stays of that order: w is
    within 2 C/mu of 0 but for noise, which 1000 standard deviations allow for. A payment is at most
    B_l/p_k, its noise sigma_P B_l. Noise at the agents is spread over a `crowd` of them: what each reports
    is no longer, its noise at least that of the sum over the root of their number.
    """
    reach = math.sqrt(crowd) * max(4 * clip / noise.gradient, 2 / (least * noise.payment)) + 1000
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
