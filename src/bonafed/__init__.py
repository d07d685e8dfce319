"""bonafed: the incentive layer of federated learning.

Contracts under which honesty is every participant's best choice: designed, tried by search, paid.

    bonafed.sampling, jsam, faithful, rewards    the mechanisms, a module each
    bonafed.train(config, ...)                   a run: model, metrics, statement, findings
    bonafed.audit(menu_or_mechanism, ...)        search for a profitable lie
    bonafed.verify(contract)                     check what somebody else published
    bonafed.compare(config, ...)                 one federation under every mechanism that applies
    bonafed.register(slice)                      a mechanism of your own, for this session

Importing this imports none of what trains; mechanisms and runs are loaded when they are used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from bonafed.economics import (
    Discrete,
    Empirical,
    Finding,
    NormalMixture,
    ScaledBeta,
    Statement,
    TruncatedExponential,
    TruncatedNormal,
    Uniform,
    audit,
    from_scipy,
)
from bonafed.errors import BonafedError, InvalidValue, NoSolution, ReportRefused, UnreadableFile

if TYPE_CHECKING:
    from bonafed.front import compare, read_contract, register, train, verify
    from bonafed.mechanisms import faithful, jsam, rewards, sampling

__version__ = "0.1.0"

__all__ = [
    "BonafedError",
    "Discrete",
    "Empirical",
    "Finding",
    "InvalidValue",
    "NoSolution",
    "NormalMixture",
    "ReportRefused",
    "ScaledBeta",
    "Statement",
    "TruncatedExponential",
    "TruncatedNormal",
    "Uniform",
    "UnreadableFile",
    "__version__",
    "audit",
    "compare",
    "faithful",
    "from_scipy",
    "jsam",
    "read_contract",
    "register",
    "rewards",
    "sampling",
    "train",
    "verify",
]

_MECHANISMS = ("faithful", "jsam", "rewards", "sampling")
_FRONT = ("compare", "read_contract", "register", "train", "verify")


def __getattr__(name: str) -> Any:
    """Mechanisms and runs, loaded on first use."""
    if name in _MECHANISMS:
        return importlib.import_module(f"bonafed.mechanisms.{name}")
    if name in _FRONT:
        return getattr(importlib.import_module("bonafed.front"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
