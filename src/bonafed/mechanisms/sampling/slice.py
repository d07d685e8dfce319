"""Truthful client sampling as the rest of the product sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bonafed.contracts.per_turn import approach_order
from bonafed.economics.audit import CLAIMS, audit
from bonafed.economics.contracts import Allocation
from bonafed.economics.findings import Finding
from bonafed.learning.federation import Roster
from bonafed.mechanisms.protocol import Attack, Common, Config, Slice
from bonafed.mechanisms.sampling.advice import CONVERGENCE
from bonafed.mechanisms.sampling.benchmark import BenchmarkContract
from bonafed.mechanisms.sampling.commands import ATTACK, QUOTE
from bonafed.mechanisms.sampling.contracts import read
from bonafed.mechanisms.sampling.menus import complete_information
from bonafed.mechanisms.sampling.published import SamplingContract
from bonafed.mechanisms.sampling.rules import PriorFreeContract, audit_sequence
from bonafed.mechanisms.sampling.section import SamplingSection, check
from bonafed.mechanisms.sampling.settlement import NAME

_QUICK, _LONG = 101, 401  # reports of the first sweep
_CLIENTS = 5  # clients that may lie where all are decided together


def _make(config: Config, members: Roster, parameters: int) -> Any:
    from bonafed.mechanisms.sampling.mechanism import make

    return make(config, members, parameters)


def _audit(subject: Attack) -> Sequence[Finding]:
    """Looks for a profitable lie in the contract of a run, and for anything else it promises."""
    contract, points = subject.agreement.contract, _QUICK if subject.quick else _LONG
    if isinstance(contract, SamplingContract):
        findings: list[Finding] = []
        for menu in contract.plan.menus:
            prior, share = menu.prior, menu.budget
            findings += audit(
                menu, prior.low, prior.high, budget=share, prior=prior, points=points
            ).findings
        return findings
    costs = np.array(list(subject.agreement.reports.values()))
    if isinstance(contract, PriorFreeContract):
        order = approach_order(contract.digest, list(subject.agreement.reports))
        rules = contract.rules
        late = np.full(rules.clients - costs.size, rules.highest)
        return audit_sequence(rules, [np.concatenate([costs[order], late])], points).findings
    assert isinstance(contract, BenchmarkContract)
    prior = contract.prior
    if contract.scheme == "uniform":
        menu = contract.menu
        return audit(menu, prior.low, prior.high, budget=menu.budget, prior=prior, points=points).findings
    per_round = contract.total_budget / contract.rounds
    some = range(min(_CLIENTS, costs.size))
    report = audit(
        _KnownCosts(per_round), prior.low, prior.high, budget=per_round, profiles=[costs], clients=some,
        points=points, names=list(subject.agreement.reports),
    )  # fmt: skip
    return report.findings


class _KnownCosts:
    """Complete information, where the true costs are what clients state."""

    def __init__(self, per_round: float) -> None:
        self.per_round = per_round  # money

    def allocate(self, reports: Any) -> Allocation:
        """Everybody at once."""
        terms = complete_information(reports, self.per_round / len(reports))
        return Allocation(terms.probability, terms.probability * terms.payment)


def _compare(common: Common) -> Mapping[str, Any] | str:
    """Applies where there is money for participation, and a belief about what it costs."""
    if common.budget is None or common.costs is None:
        return "needs a budget and a prior of the cost of taking part"
    if common.training is not None and common.training.participation != 1:
        return "chooses participants itself: training.participation must be 1"
    return {
        "prior": common.costs.to_json() if hasattr(common.costs, "to_json") else common.costs,
        "total_budget": common.budget,
    }


SLICE = Slice(
    NAME,
    _make,
    table="sampling",
    section=SamplingSection,
    check=check,
    claims=CLAIMS,
    read=read,
    audit=_audit,
    compare=_compare,
    quote=QUOTE,
    attack=ATTACK,
    advice={"convergence": CONVERGENCE},
)
