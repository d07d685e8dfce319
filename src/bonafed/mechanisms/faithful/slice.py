"""Faithful learning as the rest of the product sees it."""

from __future__ import annotations

from bonafed.learning.federation import Federation, Roster
from bonafed.mechanisms.faithful.section import Faithful, FaithfulPrivacy, FaithfulRun, check, own_section
from bonafed.mechanisms.protocol import Config, Slice


def _make(config: Config, members: Roster, parameters: int) -> object:
    from bonafed.mechanisms.faithful.mechanism import make

    return make(config, members, parameters)


def _deviate(config: Config, federation: Federation) -> Federation:
    """Simulated agents that do not report their gradients."""
    texts = own_section(config).agents
    if not texts:
        return federation
    from bonafed.mechanisms.faithful.mechanism import lying

    return lying(config, federation)


SLICE = Slice(
    name="faithful",
    make=_make,
    table="faithful",
    section=Faithful,
    privacy=FaithfulPrivacy,
    training=None,
    run=FaithfulRun,
    check=check,
    claims=("efficiency", "faithfulness", "participation", "budget balance"),
    deviate=_deviate,
)
