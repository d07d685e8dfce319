"""An audit of a run: what would one of its agents have gained by reporting a multiple of its gradient?

It needs the samples, so clients must be simulated. Gains are those at the fixed points of training, with
exact payments; the certificate allows epsilon for training and epsilon for payments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

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
_QUICK = (0.5, 2.0)  # factors tried besides those of the search


def audit_run(attack: Attack) -> Sequence[Finding]:
    """One finding: the best lie of the first agent, or of all agents if the audit need not be quick."""
    config, federation = attack.config, attack.federation
    reason = _why_not(attack)
    if reason:
        return [Finding(_CLAIM, None, f"not searched: {reason}")]
    section, members = own_section(config), federation.members
    oracle: Callable[..., Problem] = federation.oracle  # type: ignore[attr-defined]  # `_why_not` looked
    problem = oracle(objective_of(config, members), weights_of(section, members))
    lies = [_best_lie(problem, k, attack.quick) for k in ([0] if attack.quick else range(problem.agents))]
    tries = sum(lie.tries for lie in lies)
    gain, factor, agent, _ = max(lies)
    allowed = 2 * section.epsilon
    if gain <= allowed:
        text = f"no multiple of its gradient pays in {tries} tries, largest gain {max(gain, 0.0):.2g}"
        return [Finding(_CLAIM, True, text, gain, tries=tries, allowed=allowed)]
    name = members.names[agent]
    text = f"agent {name} gains {gain:.4g} by reporting {factor:.4g} x its gradient (allowed {allowed:.2g})"
    witness = Witness(text, report=factor, gain=gain, client=agent)
    return [Finding(_CLAIM, False, text, gain, witness, tries, allowed)]


def _why_not(attack: Attack) -> str:
    """Why there is nothing to search, if so."""
    config = attack.config
    if config.privacy is not None:
        return "gains from private payments are averages over the noise (bonafed audit faithful)"
    # a module of the user's own is not the linear one, whatever the name in the config
    if config.model.name != "softmax" or not getattr(attack.mechanism, "linear", True):
        return "the loss is not known to be convex"
    if own_section(config).variant == "printed":
        return "printed payments are not near the exact ones (bonafed audit faithful --variant printed)"
    if not hasattr(attack.federation, "oracle"):
        return "the samples are not at hand"
    return ""


class _Lie(NamedTuple):
    """The best multiple of its gradient that an agent can report."""

    gain: float  # over the truth, in units of loss
    factor: float
    agent: int
    tries: int  # factors that the search evaluated


def _best_lie(problem: Problem, agent: int, quick: bool) -> _Lie:
    p, others = float(problem.weights[agent]), problem.without_each()[agent]
    shared = minimise(problem, problem.weights, tolerance=CLOSE)
    pivot = minima(problem, others[None], shared, CLOSE)[0]
    base, tries = problem.value(pivot, others), 0

    def overall(factor: float) -> float:
        nonlocal tries
        tries += 1
        mix = problem.weights.copy()
        mix[agent] *= factor
        model = minimise(problem, mix, shared, CLOSE)
        return problem.value(model, problem.one(agent)) + (problem.value(model, others) - base) / p

    high = min(FACTORS[-1], safe_factor(problem, agent))
    best = best_response(overall, FACTORS[0], high, points=3 if quick else 9)
    truth = overall(1.0)
    gains = {best.factor: best.gain} | {f: truth - overall(f) for f in _QUICK if f <= high}
    factor = max(gains, key=gains.__getitem__)
    return _Lie(float(gains[factor]), factor, agent, tries)
