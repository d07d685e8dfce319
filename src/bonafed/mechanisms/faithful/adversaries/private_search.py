"""Does cheating pay where payments are private? Agents scale their gradients, with the same noise as the
truth.

What counts is the mean over the noise of J_k = F_k(w*) + P_k. It is estimated over seeds, each of which
gives the truth and the lie the same noise; the noise added to a payment has mean 0, so what is compared is
the payment without it. Two things are claimed of the corrected protocol (theory C6.2, C6.3):

    faithfulness      no report gains more than G(T_1)/p_k on average, G the bound on unfinished training
    common interest   path by path, what a report gains is what the federation's loss falls by, over p_k

A violation of the first is a gain whose lower confidence limit (Student's t, all tries together at 99.9 %)
is above the bound; of the second, a difference beyond rounding. Of the other variants the first is tried
against 0: the paper claims that the truth is best. Besides factors, an agent pushes the model away in the
last step of phase I and pulls it back in the next: harmless, unless payments are measured against a model
that began between the two.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats

from bonafed import checks
from bonafed.checks import Floats
from bonafed.economics.findings import Finding, Kind
from bonafed.errors import InvalidValue
from bonafed.learning.problems.softmax import SoftmaxRegression
from bonafed.mechanisms.faithful.private.algorithm import private_faithful
from bonafed.mechanisms.faithful.private.noise import PrivateTerms
from bonafed.mechanisms.faithful.private.plan import training_gap
from bonafed.mechanisms.faithful.private.schedule import PrivateOutcome
from bonafed.mechanisms.faithful.protocol.payments import Clusters

FACTORS = (0.5, 0.8, 1.2, 1.4, 2.0, 3.0)  # of the gradient
PUSH = 20.0  # times the longest gradient
_DOUBT = 1e-3  # chance that some gain is found where there is none
_ROUNDING = 1e-9

Report = Callable[[int, Floats, Floats], Floats]  # times asked before, the model, the own gradient


@dataclass(frozen=True, slots=True)
class PrivateAttempt:
    """One way to cheat, and its outcome on average over the noise."""

    agent: int
    name: str
    factor: float | None  # of the gradient, if that is all the deviation is
    gain: float  # mean of what F_k + P_k falls by
    lower: float  # lower confidence limit of the mean
    allowed: float
    fall: float  # mean of what the federation's loss falls by, over p_k
    apart: float  # largest difference of the two, over all paths

    @property
    def pays(self) -> bool:
        """Whether it is a violation."""
        return self.lower > self.allowed


class Lying:
    """An agent whose reports depend on how often it was asked before."""

    def __init__(self, report: Report) -> None:
        self._report, self._requests = report, 0

    def __call__(self, models: Floats, gradients: Floats) -> Floats:
        first, self._requests = self._requests, self._requests + len(models)
        return np.stack([
            self._report(first + row, model, own)
            for row, (model, own) in enumerate(zip(models, gradients, strict=True))
        ])  # fmt: skip


def scaled(factor: float) -> Report:
    """A multiple of the gradient."""
    return lambda _requests, _model, own: factor * own


def push_and_pull(at: int, length: float) -> Report:
    """The truth, and a push in the report number `at` that the next one takes back."""

    def report(requests: int, _model: Floats, own: Floats) -> Floats:
        push = np.full(own.size, length / math.sqrt(own.size))
        return own + push if requests == at else own - push if requests == at + 1 else own

    return report


def private_attack(
    problem: SoftmaxRegression,
    clusters: Clusters,
    agent: int,
    terms: PrivateTerms,
    *,
    seeds: int = 16,
    factors: Sequence[float] = FACTORS,
) -> list[PrivateAttempt]:
    """Everything agent k tries, over seeds of the noise."""
    k, count = checks.whole("agent", agent, at_least=0), checks.whole("seeds", seeds, at_least=2)
    if k >= problem.agents:
        raise InvalidValue("agent", f"must be in 0..{problem.agents - 1}", k)

    def runs(report: Report) -> list[PrivateOutcome]:
        return [
            private_faithful(
                problem, clusters, np.random.default_rng(seed), terms, agents={k: Lying(report)}, payers=[k]
            )
            for seed in range(count)
        ]

    truth = runs(scaled(1.0))
    steps, longest = truth[0].training_steps, PUSH * terms.clip
    tricks: list[tuple[str, float | None, Report]] = [
        *((f"{factor:g} x its gradient", factor, scaled(factor)) for factor in factors),
        ("pushed away and pulled back", None, push_and_pull(steps - 1, longest)),
    ]
    allowed = gain_bound(problem, truth[0], k) if terms.variant == "corrected" else 0.0
    times = stats.t.ppf(1 - _DOUBT / len(tricks), count - 1) / math.sqrt(count)
    overall, total = _overall(problem, truth, k)
    attempts = []
    for name, factor, report in tricks:
        lie, after = _overall(problem, runs(report), k)
        gain, fall = overall - lie, (total - after) / float(problem.weights[k])
        mean = float(gain.mean())
        attempts.append(
            PrivateAttempt(
                k, name, factor, mean, mean - float(times * gain.std(ddof=1)), allowed,
                float(fall.mean()), float(np.abs(gain - fall).max()),
            )
        )  # fmt: skip
    return attempts


def gain_bound(problem: SoftmaxRegression, outcome: PrivateOutcome, agent: int) -> float:
    """What a report can gain agent k by the bound (C6.3), on average over the noise."""
    gap = training_gap(
        outcome.training_steps, outcome.noise.gradient, problem.regulariser, outcome.smoothness,
        problem.size, problem.classes,
    )  # fmt: skip
    return gap / float(problem.weights[agent])


def _overall(
    problem: SoftmaxRegression, outcomes: Sequence[PrivateOutcome], k: int
) -> tuple[Floats, Floats]:
    """(seeds,) F_k + P_k, the noise of the payment apart, and F."""
    losses = problem.losses(np.stack([outcome.model for outcome in outcomes]))
    payments = np.array([outcome.expected_payment(problem, k) for outcome in outcomes])
    return losses[:, k] + payments, losses @ problem.weights


def private_verdicts(problem: SoftmaxRegression, attempts: Sequence[PrivateAttempt]) -> list[Finding]:
    """Faithfulness and common interest, as far as these attempts tell."""
    caught = [attempt for attempt in attempts if attempt.pays]
    best = max(caught or attempts, key=lambda attempt: attempt.lower)
    allowed = f"(allowed {best.allowed:.2g})"
    if caught:
        text = (
            f"agent {best.agent} gains {best.gain:.4g} on average, {best.lower:.4g} at least {allowed}; "
            f"its report: {best.name}"
        )
    else:
        most = max(attempt.gain for attempt in attempts)
        text = (
            f"no deviation pays in {len(attempts)} tries, largest mean gain {max(0.0, most):.2g} {allowed}"
        )
        if best.allowed >= math.log(problem.classes):
            text += "; so large a bound says nothing: too few samples or too small an epsilon"
    faithful = Finding(
        "faithfulness", not caught, text, best.lower, tries=len(attempts), allowed=best.allowed,
        kind=Kind.LIE, unit="loss",
    )  # fmt: skip
    worst = max(attempts, key=lambda attempt: attempt.apart)
    sentence = f"a gain of an agent is one of the federation: they differ by {worst.apart:.2g} at most"
    if worst.apart > _ROUNDING:
        sentence = (
            f"agent {worst.agent}'s gain and what the federation gains, over its weight, differ by "
            f"{worst.apart:.2g}; its report: {worst.name}"
        )
    common = Finding(
        "common interest", worst.apart <= _ROUNDING, sentence, worst.apart, tries=len(attempts),
        allowed=_ROUNDING, kind=Kind.MODEL, unit="loss",
    )  # fmt: skip
    return [faithful, common]
