"""An audit of a run: what would one of its agents have gained by reporting something else?

Multiples of its gradient; and in a run by exchanges, where there is time, lies that aim at the searches and
at the segment (`one_against_all`).

The run itself is made again from the same start, once with the truth and once for every lie, with as many
steps and the same payments. Compared is what the agent minimises, J_k = F_k(w) + P_k with its true loss. A
run whose training stopped too early is attacked as it is: there a lie may pay, and the search shows it.

A gain counts above 2 epsilon, for training and for payments; where the run's statement certifies
faithfulness, the error of the integration is allowed on both sides as well. By exchanges it counts above
what (C9.7) says of the run: its training error over the agent's weight, the error of its integration, and
epsilon, as residual and integration of any lie are half of that at most. Where the statement certifies
nothing, the audit never says that the claim holds. A lie that the protocol recognises gains nothing by it:
either the run stops, or it goes on without the agent, which is then left with the others' model and owes
nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from bonafed.economics.findings import Finding, Kind, Witness
from bonafed.errors import BadReport, Diverged
from bonafed.learning.federation import Federation
from bonafed.mechanisms.faithful.adversaries.agents import Agent, Deviating, agent_kind, amplify
from bonafed.mechanisms.faithful.adversaries.one_against_all import Trick, aimed
from bonafed.mechanisms.faithful.adversaries.search import FACTORS
from bonafed.mechanisms.faithful.mechanism import FaithfulLearning, lying
from bonafed.mechanisms.faithful.protocol.payments import FaithfulOutcome
from bonafed.mechanisms.faithful.section import own_section
from bonafed.mechanisms.faithful.state import FaithfulState
from bonafed.mechanisms.protocol import Attack

_CLAIM = "faithfulness"
_QUICK = (0.5, 1.5, 3.0, 5.0)  # factors of the gradient; FACTORS where there is time


def audit_run(attack: Attack) -> Sequence[Finding]:
    """One finding: the best lie of the first honest agent, or of each if the audit need not be quick."""
    cheating = {agent_kind("agents", text)[0] for text in own_section(attack.config).agents}
    honest = [k for k in range(len(attack.federation.members)) if k not in cheating]
    reason = _why_not(attack) or ("" if honest else "no agent follows the protocol")
    if reason:
        return [Finding(_CLAIM, None, f"not searched: {reason}", kind=Kind.LIE, unit="loss")]
    truth, promised = _honest_run(attack)
    lies, refused = [], 0
    for agent in honest[:1] if attack.quick else honest:
        for trick in _tricks(attack, truth):
            gain = _gain(attack, truth, agent, trick)
            if gain is None:
                refused += 1
            else:
                lies.append(_Lie(gain, agent, trick))
    best = max(lies, key=lambda lie: lie.gain, default=None)
    name = "" if best is None else attack.federation.members.names[best.agent]
    return [_finding(best, name, len(lies), refused, _allowed(attack, truth, promised), promised)]


class _Lie(NamedTuple):
    """What an agent tried."""

    gain: float  # over the truth, in units of loss
    agent: int
    trick: Trick


def _tricks(attack: Attack, truth: FaithfulOutcome) -> list[Trick]:
    """What every agent tries."""
    factors = _QUICK if attack.quick else FACTORS
    tricks = [Trick(f"{f:g} times its gradient", partial(amplify, f), f) for f in factors]
    if attack.quick or truth.exchanges is None:
        return tricks
    return [*tricks, *aimed(attack.mechanism.problem, truth.training_steps, attack.config.run.seed)]


def _allowed(attack: Attack, truth: FaithfulOutcome, promised: bool) -> float:
    """Above what a gain counts."""
    epsilon, weights = own_section(attack.config).epsilon, attack.mechanism.problem.weights
    if truth.exchanges is not None and promised:
        return truth.training_error / float(weights.min()) + epsilon + truth.integration_error
    return 2 * epsilon + (2 * truth.integration_error if promised else 0.0)


def _finding(
    best: _Lie | None, name: str, played: int, refused: int, allowed: float, promised: bool
) -> Finding:
    """Of these lies, the best of which is told by the agent of that name."""
    tries, gain = played + refused, 0.0 if best is None else best.gain
    stopped = f"; {refused} of them stopped the run" if refused else ""
    if best is not None and gain > allowed:
        case = f"agent {name} gains {gain:.4g} by reporting {best.trick.name}"
        factor = math.nan if best.trick.factor is None else best.trick.factor
        witness = Witness(case, report=factor, gain=gain, client=best.agent)
        text = f"VIOLATED, {case} (allowed {allowed:.2g})"
        return Finding(_CLAIM, False, text, gain, witness, tries, allowed, Kind.LIE, "loss")
    largest = f"largest gain {max(gain, 0.0):.2g}"
    text = f"no false report pays in {tries} tries, {largest}{stopped}"
    if not promised:
        text = f"the statement does not certify it; {text}"
    holds = True if promised else None
    return Finding(_CLAIM, holds, text, gain, tries=tries, allowed=allowed, kind=Kind.LIE, unit="loss")


def _why_not(attack: Attack) -> str:
    """Why there is nothing to search, if so."""
    if attack.config.privacy is not None:
        return "gains from private payments are averages over the noise (bonafed audit faithful)"
    if attack.mechanism is None or attack.start is None:
        return "there is no run to repeat"
    if not hasattr(attack.federation, "oracle"):
        return "the samples are not at hand"
    return ""


def _gain(attack: Attack, truth: FaithfulOutcome, agent: int, trick: Trick) -> float | None:
    """What the agent gains by the lie, in units of loss; None: the protocol stopped the run."""
    name = attack.federation.members.names[agent]
    try:
        lie = attack.mechanism.outcome(*_trained(attack, {name: trick.make()}))
    except (BadReport, Diverged):
        return None
    return float(truth.overall[agent] - lie.overall[agent])


def _honest_run(attack: Attack) -> tuple[FaithfulOutcome, bool]:
    """The run again as it was, and whether its statement certifies that no lie pays."""
    state, federation = _trained(attack, {})
    mechanism: FaithfulLearning = attack.mechanism
    findings = mechanism.settle(state, federation).findings
    promised = any(finding.claim == _CLAIM and finding.holds is True for finding in findings)
    return mechanism.outcome(state, federation), promised


def _trained(attack: Attack, lies: Mapping[str, Agent]) -> tuple[FaithfulState, Federation]:
    """The run again, with these agents by name that lie; agents of the config cheat as they did."""
    mechanism: FaithfulLearning = attack.mechanism
    clients = attack.federation
    if isinstance(clients, Deviating):  # begin with new ones: some remember what they were asked
        clients = lying(attack.config, clients.honest)
    federation: Federation = Deviating(clients, lies) if lies else clients
    assert attack.start is not None  # `_why_not` looked
    state = mechanism.begin(attack.agreement, attack.start)
    while not mechanism.finished(state):
        state, _ = mechanism.advance(state, federation)
    return state, federation
