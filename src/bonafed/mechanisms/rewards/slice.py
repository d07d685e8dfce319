"""Model rewards as the rest of the product sees them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bonafed.economics.findings import Finding, Kind
from bonafed.economics.statement import NO_WORSE_ALONE
from bonafed.learning.federation import Roster
from bonafed.mechanisms.protocol import Attack, Command, Common, Config, Slice
from bonafed.mechanisms.rewards.cheats import CHEATS_ARE_SEEN, NO_CHEAT_PAYS, cheating_pays, cheats_are_seen
from bonafed.mechanisms.rewards.report import (
    ParameterOptions,
    RewardsAuditOptions,
    RuleOptions,
    audit,
    parameter_advice,
    rule_advice,
)
from bonafed.mechanisms.rewards.section import Rewards, RewardsRun, check, rewards_of
from bonafed.mechanisms.rewards.settlement import MORE_FOR_MORE

if TYPE_CHECKING:
    from bonafed.mechanisms.rewards.mechanism import RewardsMechanism

_CHEATERS = 3  # in a thorough search: the least, the median and the largest contributor


def _make(config: Config, members: Roster, parameters: int) -> RewardsMechanism:
    from bonafed.mechanisms.rewards.mechanism import mechanism

    return mechanism(config, members, parameters)


def _audit(attack: Attack) -> Sequence[Finding]:
    """Search the clients of the run for the known cheat that gains most."""
    from bonafed.mechanisms.rewards.cheat_search import search

    mechanism = attack.mechanism
    if attack.start is None or mechanism is None or mechanism.judges is None:
        why = "not searched: there are no test samples to judge models by"
        return [Finding(NO_CHEAT_PAYS, None, why, kind=Kind.LIE, unit="accuracy")]
    cheaters = 1 if attack.quick else _CHEATERS
    outcomes = search(mechanism, attack.federation, attack.start, cheaters=cheaters)
    measured = rewards_of(attack.config).measured
    return [
        cheating_pays(outcomes, len(mechanism.test_samples().labels)),
        cheats_are_seen(outcomes, measured),
    ]


def _compare(common: Common) -> Mapping[str, Any]:
    """It applies to every federation with classes; nobody is paid, so budgets and costs do not matter."""
    return {"measure": "standalone"}


SLICE = Slice(
    "rewards",
    _make,
    table="rewards",
    section=Rewards,
    privacy=None,
    run=RewardsRun,
    check=check,
    claims=(NO_WORSE_ALONE, MORE_FOR_MORE, NO_CHEAT_PAYS, CHEATS_ARE_SEEN),
    audit=_audit,
    compare=_compare,
    attack=Command(
        "Let clients cheat in every known way, and show whether it pays.",
        RewardsAuditOptions,
        audit,
        "A small federation of handwritten digits is trained once with everybody honest and once for every "
        "cheat: a client that sends nothing, noise, its update enlarged or reversed, its first update "
        "forever, or a copy of another's. A measure that looks at updates detects some of them; "
        "contributions fixed before training detect none. The exit code is 1 if a cheat pays, or if a "
        "measure that looks at updates does not see one.",
        "bonafed audit rewards --measure cosine --classes 3",
    ),
    advice={
        "reward-rule": Command(
            "What does this reward rule make my clients do?",
            RuleOptions,
            rule_advice,
            "Clients weigh what a better model is worth to them against what contributing costs (theory "
            "D5). All equilibria found from several starts are shown: contributions, shares, utilities.",
            "bonafed advise reward-rule --cost 0.1 --cost 0.2 --cost 0.5 --ceiling 2 --sharing 0",
        ),
        "reward-parameters": Command(
            "Which ceiling and sharing coefficient should I take?",
            ParameterOptions,
            parameter_advice,
            "A search over both; a rule is judged by the worst equilibrium it may end in.",
            "bonafed advise reward-parameters --cost 0.1 --cost 0.2 --cost 0.5 --goal welfare",
        ),
    },
)
