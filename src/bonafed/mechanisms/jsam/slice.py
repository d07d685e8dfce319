"""Joint client selection and privacy compensation as the rest of the product sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bonafed.economics.audit import Claim, audit
from bonafed.economics.findings import Finding, Kind
from bonafed.economics.priors import Prior
from bonafed.learning.federation import Roster
from bonafed.mechanisms.jsam.audit_command import ATTACK
from bonafed.mechanisms.jsam.published import JsamContract, by_name
from bonafed.mechanisms.jsam.quote_command import QUOTE
from bonafed.mechanisms.jsam.section import JsamSection, check
from bonafed.mechanisms.protocol import Attack, Common, Config, Slice

CLAIMS: tuple[Claim, ...] = ("truthful", "individually rational", "monotone", "feasible")
_QUICK, _LONG = 31, 101  # reports of the first sweep
_LIARS = 5  # clients that may lie; all of them if there is time
_NEARLY = 0.95  # of what the cap lets be spent
_SMOOTHNESS = 0.5  # of cross-entropy with features of norm 1; Q decides what is bought, not what is true


def _make(config: Config, members: Roster, parameters: int) -> Any:
    from bonafed.mechanisms.jsam.mechanism import make

    return make(config, members, parameters)


def _audit(subject: Attack) -> Sequence[Finding]:
    """Looks for a profitable lie in the contract of a run, at what its clients reported."""
    contract = subject.agreement.contract
    if not isinstance(contract, JsamContract):
        section = subject.config.own
        assert isinstance(section, JsamSection)  # a run under this mechanism
        why = "a hard budget depends on the reports" if section.budget is not None else section.scheme
        return [Finding("truthful", None, f"not claimed: {why}", kind=Kind.LIE, unit="money")]
    names = sorted(subject.agreement.reports, key=by_name)
    caps = contract.caps(names)
    reports = np.array([subject.agreement.reports[name] for name in names])
    liars = np.unique(np.linspace(0, reports.size - 1, min(_LIARS, reports.size)).round().astype(int))
    return audit(
        contract.responding(caps), contract.prior.low, contract.prior.high, profiles=[reports],
        clients=liars.tolist() if subject.quick else None, claims=CLAIMS,
        points=_QUICK if subject.quick else _LONG,
        quantity_limit=np.inf if caps is None else float(np.max(caps)), unit="over the run",
        names=names,
    ).findings  # fmt: skip


def _spendable(common: Common, prior: Prior) -> float:
    """The budget, or nearly all that everybody at the cap, paid the highest cost, would take of it."""
    assert common.budget is not None  # checked before
    if common.max_epsilon is None:
        return common.budget
    return min(common.budget, _NEARLY * common.clients * common.max_epsilon * prior.high)


def _compare(common: Common) -> Mapping[str, Any] | str:
    """Applies where there is money for privacy, and a belief about what it costs."""
    if common.budget is None or common.sensitivities is None:
        return "needs a budget and a prior of the cost of a unit of epsilon"
    if common.clip is None:
        return "needs clip, the largest norm of one record's gradient"
    training = common.training
    if training is not None and training.participation != 1:
        return "chooses participants itself: training.participation must be 1"
    if training is not None and training.optimizer != "sgd":
        return "needs plain steps: training.optimizer must be sgd"
    if training is not None and training.server_optimizer != "sgd":
        return "needs plain steps: training.server_optimizer must be sgd"
    smoothness = None if training is None else training.smoothness
    prior = common.sensitivities
    table = {
        "prior": prior.to_json() if hasattr(prior, "to_json") else prior,
        "expected_budget": _spendable(common, prior),
        "smoothness": smoothness or _SMOOTHNESS,
        "clip": common.clip,
        "delta": common.delta,
        "max_epsilon": common.max_epsilon,
        "clients_per_round": common.clients,  # as many turns as if everybody took part
    }
    return {name: value for name, value in table.items() if value is not None}


SLICE = Slice(
    JsamContract.mechanism,
    _make,
    table="jsam",
    section=JsamSection,
    privacy=None,
    check=check,
    claims=CLAIMS,
    read=JsamContract.from_json,
    audit=_audit,
    compare=_compare,
    quote=QUOTE,
    attack=ATTACK,
)
