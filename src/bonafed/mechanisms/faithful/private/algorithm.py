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
begins the runs without C_l at w*, which k has shaped: `variant="printed"`, with plain steps. Overstating
pays there (theory C6.4).

dbar_j is the mean over j's samples of the loss difference l(w*) - l(W), clipped to +-B_l with B_l = min(B,
C |w* - W|), which is free of private data given what was released, and no clip at all unless B is the
smaller. Single losses are never shown: only the sum over j != k leaves the aggregation (erratum F-D3). The
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

T_1, T_2 and s follow from the error they lead to (`plan`) where they are not given. Every release
is recorded per agent; the statement at the end is computed from the record.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from bonafed import checks
from bonafed.checks import Floats
from bonafed.errors import InvalidValue
from bonafed.learning.federation import Objective
from bonafed.learning.privacy import Releases, released, reserve
from bonafed.learning.privacy.added_noise import largest_covered
from bonafed.learning.problems.federation import ProblemFederation
from bonafed.learning.problems.softmax import SoftmaxRegression
from bonafed.learning.sections import NoiseAt
from bonafed.mechanisms.faithful.adversaries.agents import Agent
from bonafed.mechanisms.faithful.private.noise import (
    PAPER_STEPS,
    NoiseScales,
    PrivateTerms,
    PrivateVariant,
    PublicFacts,
    calibrate,
    times_counted,
)
from bonafed.mechanisms.faithful.private.plan import plan_private
from bonafed.mechanisms.faithful.private.schedule import PrivateOutcome, PrivateProtocol
from bonafed.mechanisms.faithful.protocol.payments import Clusters, cluster_of
from bonafed.mechanisms.faithful.protocol.requests import deviating
from bonafed.mechanisms.faithful.protocol.stepwise import OnStep
from bonafed.randomness import Normals

OnNoise = Callable[[Floats], None]  # (K,) noise multipliers


def private_faithful(
    problem: SoftmaxRegression,
    clusters: Clusters,
    rng: np.random.Generator | Releases,
    terms: PrivateTerms,
    *,
    agents: Mapping[int, Agent] | None = None,
    payers: Collection[int] | None = None,
    on_noise: OnNoise | None = None,
    on_step: OnStep | None = None,
) -> PrivateOutcome:
    """Train and pay privately.

    `agents` holds those who do not report their gradients. With `payers`, only the payments of their
    clusters are computed, the others' are NaN; noise is as for all. `on_noise` is called before the first
    step with the noise of a sum of gradients, for every agent relative to what one of its samples moves it
    by. `on_step` is called after every step with everybody, with the norm of the noisy mean: nothing that
    is not released.
    """
    cluster_of(clusters, problem.agents)
    checks.literal("noise_at", terms.noise_at, NoiseAt)
    facts = PublicFacts.of(problem, clusters, checks.positive("clip", terms.clip), terms.noise_at)
    protocol = private_protocol(facts, terms, computed=not isinstance(rng, np.random.Generator))
    if on_noise is not None:
        on_noise(protocol.multipliers())
    normals = Normals(rng) if isinstance(rng, np.random.Generator) else None

    def add(values: Floats, sd: float, _question: bytes, place: int) -> Floats:
        if normals is not None:
            return np.asarray(values + sd * normals.read(place, values.size).reshape(values.shape))
        return released(rng, values, sd)

    federation = deviating(ProblemFederation.of(problem, add), agents)
    walk = protocol.begin()
    while walk.steps < protocol.training_steps:
        walk = protocol.step(walk, federation)
        if on_step is not None:
            on_step(walk.steps, walk.model, walk.norm)
    return protocol.finish(walk, federation, payers)


def private_protocol(
    facts: PublicFacts, terms: PrivateTerms, *, computed: bool = True, objective: Objective | None = None
) -> PrivateProtocol:
    """The protocol from what is public; `computed`: the noise has a finite number of digits.

    The facts must be those of the terms: the same clip, and the same place for the noise.
    """
    if (facts.clip, facts.noise_at) != (terms.clip, terms.noise_at):
        rule = f"must have the clip and noise_at of the terms, {terms.clip:g} and {terms.noise_at!r}"
        raise InvalidValue("facts", rule, f"{facts.clip:g} and {facts.noise_at!r}")
    count = len(facts.clusters)
    if count < 2:
        raise InvalidValue("clusters", "must be at least 2: without everybody there is no model", count)
    checks.literal("variant", terms.variant, PrivateVariant)
    bound = math.inf if terms.loss_bound is None else checks.positive("loss_bound", terms.loss_bound)
    steps = _choose(facts, terms)
    p = facts.weights
    clusters = facts.clusters if terms.variant == "corrected" else count

    def noise_for(epsilon: float, delta: float) -> NoiseScales:
        """Payments have noise per unit of the loss bound."""
        chosen = replace(
            terms, alpha=epsilon, beta=delta, training_steps=steps.training_steps,
            payment_steps=steps.payment_steps, split=steps.split, loss_bound=None,
        )  # fmt: skip
        return calibrate(facts.counts, p, chosen, clusters)

    noise = noise_for(terms.alpha, terms.beta)
    if computed:  # noise that is computed keeps a little less than it seems
        sums = steps.training_steps + (count - 1) * steps.payment_steps
        numbers = facts.size * sums + p.size
        if terms.alpha <= largest_covered(terms.beta, numbers):
            crowd = times_counted(p.size, facts.noise_at)
            noise = noise_for(*_ideal_promise(terms, numbers, noise, float(p.min()), crowd))
    smooth = terms.smoothness
    smooth = facts.smoothness if smooth is None else checks.positive("smoothness", smooth)
    return PrivateProtocol(
        facts, noise, steps.training_steps, steps.payment_steps, terms.variant, smooth, bound, terms.beta,
        objective or Objective(facts.regulariser),
    )  # fmt: skip


def _ideal_promise(
    terms: PrivateTerms, numbers: int, noise: NoiseScales, least: float, crowd: int
) -> tuple[float, float]:
    """The promise left to ideal noise.

    A sum of clipped gradients is as long as C at most, and mu w, which is in it, stays of that order: w is
    within 2 C/mu of 0 but for noise, which 1000 standard deviations allow for. A payment is at most
    B_l/p_k, its noise sigma_P B_l. Noise at the agents is spread over a `crowd` of them: what each reports
    is no longer, its noise at least that of the sum over the root of their number.
    """
    reach = math.sqrt(crowd) * max(4 * terms.clip / noise.gradient, 2 / (least * noise.payment)) + 1000
    promise = reserve(terms.alpha, terms.beta, numbers, reach)
    return promise.epsilon, promise.delta


class _StepChoice(NamedTuple):
    training_steps: int  # T_1
    payment_steps: int  # T_2
    split: float


def _choose(facts: PublicFacts, terms: PrivateTerms) -> _StepChoice:
    """The values given, and for the others the choice of the plan or the paper."""
    first, second, split = terms.training_steps, terms.payment_steps, terms.split
    if first is not None:
        checks.whole("training_steps", first)
    if second is not None:
        checks.whole("payment_steps", second)
    if None in (first, second, split) and terms.variant == "corrected":
        plan = plan_private(facts, terms)
        return _StepChoice(plan.training_steps, plan.payment_steps, plan.split)
    first = PAPER_STEPS[0] if first is None else first
    second = PAPER_STEPS[1] if second is None else second
    return _StepChoice(first, second, 0.5 if split is None else split)
