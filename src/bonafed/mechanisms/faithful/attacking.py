"""An audit of a run: what would one of its agents have gained by reporting a multiple of its gradient?

The run itself is made again from the same start, once with the truth and once for every lie, with as many
steps and the same payments. Compared is what the agent minimises, J_k = F_k(w) + P_k with its true loss. A
run whose training stopped too early is attacked as it is: there a lie may pay, and the search shows it.

A gain counts above 2 epsilon, for training and for payments; where the run's statement certifies
faithfulness, the error of the integration is allowed on both sides as well. Where it does not, the audit
never says that the claim holds. A lie that the protocol recognises gains nothing by it: either the run
stops, or it goes on without the agent, which is then left with the others' model and owes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bonafed.economics.claims import Finding, Witness
from bonafed.errors import BadReport, Diverged
from bonafed.learning.federation import Federation
from bonafed.mechanisms.faithful.agents import Agent, agent_kind, amplify
from bonafed.mechanisms.faithful.cheating import FACTORS
from bonafed.mechanisms.faithful.deviating import Deviating
from bonafed.mechanisms.faithful.mechanism import FaithfulLearning, lying
from bonafed.mechanisms.faithful.outcome import Outcome
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
        return [Finding(_CLAIM, None, f"not searched: {reason}")]
    truth, promised = _honest_run(attack)
    liars, factors = (honest[:1], _QUICK) if attack.quick else (honest, FACTORS)
    lies, refused = [], 0
    for agent in liars:
        for factor in factors:
            gain = _gain(attack, truth, agent, factor)
            if gain is None:
                refused += 1
            else:
                lies.append(_Lie(gain, factor, agent))
    allowed = 2 * own_section(attack.config).epsilon + (2 * truth.integration_error if promised else 0.0)
    name = "" if not lies else attack.federation.members.names[max(lies).agent]
    return [_finding(lies, name, refused, allowed, promised)]


class _Lie(NamedTuple):
    """A multiple of its gradient that an agent reported."""

    gain: float  # over the truth, in units of loss
    factor: float
    agent: int


def _finding(lies: Sequence[_Lie], name: str, refused: int, allowed: float, promised: bool) -> Finding:
    """Of these lies, the best of which is told by the agent of that name."""
    tries = len(lies) + refused
    stopped = f"; {refused} of them stopped the run" if refused else ""
    best = max(lies, default=_Lie(0.0, 1.0, 0))
    if best.gain > allowed:
        case = f"agent {name} gains {best.gain:.4g} by reporting {best.factor:g} times its gradient"
        witness = Witness(case, report=best.factor, gain=best.gain, client=best.agent)
        text = f"VIOLATED, {case} (allowed {allowed:.2g})"
        return Finding(_CLAIM, False, text, best.gain, witness, tries, allowed)
    largest = f"largest gain {max(best.gain, 0.0):.2g}"
    text = f"no multiple of its gradient pays in {tries} tries, {largest}{stopped}"
    if not promised:
        text = f"the statement does not certify it; {text}"
    return Finding(_CLAIM, True if promised else None, text, best.gain, tries=tries, allowed=allowed)


def _why_not(attack: Attack) -> str:
    """Why there is nothing to search, if so."""
    if attack.config.privacy is not None:
        return "gains from private payments are averages over the noise (bonafed audit faithful)"
    if attack.mechanism is None or attack.start is None:
        return "there is no run to repeat"
    if not hasattr(attack.federation, "oracle"):
        return "the samples are not at hand"
    return ""


def _gain(attack: Attack, truth: Outcome, agent: int, factor: float) -> float | None:
    """What the agent gains by the lie, in units of loss; None: the protocol stopped the run."""
    name = attack.federation.members.names[agent]
    try:
        lie = attack.mechanism.outcome(*_trained(attack, {name: amplify(factor)}))
    except (BadReport, Diverged):
        return None
    return float(truth.overall[agent] - lie.overall[agent])


def _honest_run(attack: Attack) -> tuple[Outcome, bool]:
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
