"""Model rewards as the rest of the product sees them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bonafed.learning.federation import Roster
from bonafed.mechanisms.protocol import Common, Config, Slice
from bonafed.mechanisms.rewards.section import Rewards, RewardsRun, check

if TYPE_CHECKING:
    from bonafed.mechanisms.rewards.mechanism import RewardsMechanism


def _make(config: Config, members: Roster, parameters: int) -> RewardsMechanism:
    from bonafed.mechanisms.rewards.mechanism import mechanism

    return mechanism(config, members, parameters)


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
    compare=_compare,
)
