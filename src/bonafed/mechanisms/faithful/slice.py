"""Faithful learning as the rest of the product sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bonafed.economics.findings import Finding
from bonafed.learning.data.real_federations.choices import FEDERATIONS
from bonafed.learning.federation import Federation, Roster
from bonafed.mechanisms.faithful.section import (
    NAMES,
    Faithful,
    FaithfulAuditOptions,
    FaithfulPrivacy,
    FaithfulRun,
    by_exchanges,
    check,
    own_section,
)
from bonafed.mechanisms.faithful.theory import parameter_advice, population_advice
from bonafed.mechanisms.protocol import Attack, Command, Common, Config, Slice
from bonafed.presentation.documents import Document

if TYPE_CHECKING:
    from bonafed.mechanisms.faithful.mechanism import FaithfulLearning
    from bonafed.mechanisms.faithful.private.mechanism import PrivateLearning

_REGULARISER = 0.003  # of a comparison


def _make(config: Config, members: Roster, parameters: int) -> FaithfulLearning | PrivateLearning:
    from bonafed.mechanisms.faithful.mechanism import make

    return make(config, members, parameters)


def _deviate(config: Config, federation: Federation) -> Federation:
    """The federation with the simulated agents that cheat."""
    if not own_section(config).agents:
        return federation
    from bonafed.mechanisms.faithful.mechanism import lying

    return lying(config, federation)


def _audit(attack: Attack) -> Sequence[Finding]:
    """Make the run again with an agent that reports multiples of its gradient."""
    from bonafed.mechanisms.faithful.adversaries.audit_of_run import audit_run

    return audit_run(attack)


def _search(options: FaithfulAuditOptions) -> Document:
    """Let agents cheat, and report whether it pays."""
    from bonafed.mechanisms.faithful.report import audit

    return audit(options)


def _compare(common: Common) -> Mapping[str, Any] | str:
    """Payments promise something only where the loss is strongly convex."""
    if common.model != "softmax":
        return f"payments promise nothing for {common.model}, whose loss is not convex; use softmax"
    if common.data in FEDERATIONS:
        return {}  # the regulariser that belongs to the data, see `_defaults`
    return {"regulariser": _REGULARISER}


def _defaults(name: str, tables: Mapping[str, Any]) -> Mapping[str, Any]:
    """Exchanges are few: about half of them change the model, and a checkpoint holds all reports so far."""
    table: Mapping[str, Any] = tables.get(name, {})
    if name == "run" and by_exchanges(tables):
        return {"checkpoint_every": 10, "evaluate_every": 5, **table}
    data = tables.get("data")
    if name == "faithful" and isinstance(data, Mapping) and data.get("name") in [*FEDERATIONS]:
        return {"regulariser": FEDERATIONS[data["name"]].regulariser, **table}
    return table


def _unit(config: Config) -> str:
    """What one round of a run is; its config is resolved."""
    return "exchange" if own_section(config).variant == "exchanges" else "gradient step"


SLICE = Slice(
    name="faithful",
    make=_make,
    table="faithful",
    section=Faithful,
    privacy=FaithfulPrivacy,
    training=None,
    run=FaithfulRun,
    check=check,
    unit=_unit,
    defaults=_defaults,
    claims=NAMES,
    audit=_audit,
    compare=_compare,
    deviate=_deviate,
    attack=Command(
        "Let agents cheat in faithful learning, and show whether it pays, here and under plain averaging.",
        FaithfulAuditOptions,
        _search,
        "An agent reports multiples of its gradient (and the best multiple, by search), the opposite, "
        "zeros, old or noisy gradients, those of flipped labels or of another agent, or drops out; all "
        "against the protocol. A gain counts only above what the certificate allows, twice epsilon "
        "and the integration error. For the private variants, gains are averaged over the noise and judged "
        "by their lower confidence limit. Pairs that collude are shown too; no such mechanism promises "
        "anything against them. Also checks efficiency, participation and budget balance. The exit code is "
        "1 if a violation is found; the witness is shown.",
        "bonafed audit faithful --delta 0.9 --plot cheating.png",
    ),
    advice={
        "join": Command(
            "Should an agent join a federation, payment included, or learn alone?",
            population_advice.AgentOptions,
            population_advice.join,
            example="bonafed advise join --counts 100,400,400 --delta 0.2 --agent 0",
        ),
        "federate-or-cluster": Command(
            "One model for all, one for each group of agents, or everybody alone?",
            population_advice.GroupOptions,
            population_advice.federate,
            example="bonafed advise federate-or-cluster --counts 200,200,200,200 --groups 0,1/2,3",
        ),
        "manipulation": Command(
            "How far would an agent exaggerate its gradient if nobody paid, and what would it gain?",
            population_advice.AgentOptions,
            population_advice.manipulation,
            example="bonafed advise manipulation --counts 100,400,400 --delta 0.2",
        ),
        "clusters": Command(
            "How many clusters of agents keep payments close to VCG?",
            parameter_advice.ClusterOptions,
            parameter_advice.clusters,
            example="bonafed advise clusters --agents 100 --epsilon 0.5",
        ),
        "privacy-tradeoff": Command(
            "How much do noise and privacy leave of the model and the payments?",
            parameter_advice.PrivacyOptions,
            parameter_advice.privacy_tradeoff,
            example="bonafed advise privacy-tradeoff --agents 10 --samples 10000 --epsilon 10",
        ),
        "faithfulness": Command(
            "What could an agent gain by a lie at most, with privacy and without?",
            parameter_advice.PromiseOptions,
            parameter_advice.faithfulness,
            example="bonafed advise faithfulness --agents 10 --samples 10000 --epsilon 10",
        ),
    },
)
