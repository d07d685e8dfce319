"""An audit of a run: what would one of its agents have gained by multiples of its gradient?

The samples must be at hand, as those of simulated clients are. Gains are those at the fixed points of
training, with exact payments; what the certificate allows is epsilon for training and for payments each.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bonafed.economics.claims import Finding, Witness
from bonafed.learning.problems.convex import Problem
from bonafed.learning.problems.minima import minima, minimise
from bonafed.mechanisms.faithful.agents import best_response
from bonafed.mechanisms.faithful.cheating import CLOSE, FACTORS, safe_factor
from bonafed.mechanisms.faithful.common import weights_of
from bonafed.mechanisms.faithful.mechanism import objective_of
from bonafed.mechanisms.faithful.section import own_section
from bonafed.mechanisms.protocol import Attack

_CLAIM = "faithfulness"
_QUICK = (0.5, 2.0)  # factors, besides the best one


def audit_run(attack: Attack) -> Sequence[Finding]:
    """One finding: the best lie of one agent, or of all where there is time."""
    config, federation = attack.config, attack.federation
    if config.privacy is not None:
        text = "not searched in a run: private payments are judged on average (bonafed audit faithful)"
        return [Finding(_CLAIM, None, text)]
    if config.model.name != "softmax" or not hasattr(federation, "oracle"):
        why = "the loss is not convex" if config.model.name != "softmax" else "samples are not at hand"
        return [Finding(_CLAIM, None, f"not searched: {why}")]
    section, members = own_section(config), federation.members
    problem: Problem = federation.oracle(objective_of(config, members), weights_of(section, members))
    who = [0] if attack.quick else range(problem.agents)
    cases = [_best_lie(problem, k, attack.quick) for k in who]
    tries = sum(count for _, _, count in cases)
    gain, factor, agent = max((gain, factor, k) for (gain, factor, _), k in zip(cases, who, strict=True))
    allowed = 2 * section.epsilon
    if gain <= allowed:
        text = f"no multiple of its gradient pays in {tries} tries, largest gain {max(gain, 0.0):.2g}"
        return [Finding(_CLAIM, True, text, gain, tries=tries, allowed=allowed)]
    name = members.names[agent]
    text = f"agent {name} gains {gain:.4g} by reporting {factor:.4g} x its gradient (allowed {allowed:.2g})"
    witness = Witness(text, report=factor, gain=gain, client=agent)
    return [Finding(_CLAIM, False, text, gain, witness, tries, allowed)]


def _best_lie(problem: Problem, agent: int, quick: bool) -> tuple[float, float, int]:
    """The gain of the best factor, the factor, and how many were tried."""
    p, others = float(problem.weights[agent]), problem.without_each()[agent]
    shared = minimise(problem, problem.weights, tolerance=CLOSE)
    pivot = minima(problem, others[None], shared, CLOSE)[0]
    base, tried = problem.value(pivot, others), 0

    def overall(factor: float) -> float:
        nonlocal tried
        tried += 1
        mix = problem.weights.copy()
        mix[agent] *= factor
        model = minimise(problem, mix, shared, CLOSE)
        return problem.value(model, problem.one(agent)) + (problem.value(model, others) - base) / p

    high = min(FACTORS[-1], safe_factor(problem, agent))
    best = best_response(overall, FACTORS[0], high, points=3 if quick else 9)
    truth = overall(1.0)
    gains = {best.factor: best.gain} | {f: truth - overall(f) for f in _QUICK if f <= high}
    factor = max(gains, key=gains.__getitem__)
    return float(np.float64(gains[factor])), factor, tried
