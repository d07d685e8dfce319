"""Plain federated averaging (McMahan et al. 2017): nobody is asked for anything, nobody is paid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bonafed.learning.federation import Roster
from bonafed.mechanisms.averaging import Averaging, Unpaid
from bonafed.mechanisms.protocol import Common, Config, Slice


def _make(config: Config, members: Roster, parameters: int) -> Averaging:
    return Averaging.of(config, members, parameters, Unpaid)


def _compare(common: Common) -> Mapping[str, Any]:
    """Applies to every federation."""
    return {}


SLICE = Slice("fedavg", _make, compare=_compare)
