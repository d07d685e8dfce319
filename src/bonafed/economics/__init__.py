"""The economics core: what the server believes, what it offers, and whether an offer can be gamed.

Pure: NumPy and SciPy only, no clock, disk, network or global random state.
"""

from bonafed.door import guard
from bonafed.economics.audit import AuditReport, audit
from bonafed.economics.contracts import Allocation, Menu, Settlement
from bonafed.economics.discrete import Discrete, Empirical
from bonafed.economics.findings import Finding, Witness
from bonafed.economics.normals import NormalMixture, TruncatedNormal
from bonafed.economics.priors import (
    IronedInterval,
    Prior,
    ScaledBeta,
    TruncatedExponential,
    Uniform,
    from_scipy,
)
from bonafed.economics.registry import prior_from_json
from bonafed.economics.statement import Statement

__all__ = [
    "Allocation",
    "AuditReport",
    "Discrete",
    "Empirical",
    "Finding",
    "IronedInterval",
    "Menu",
    "NormalMixture",
    "Prior",
    "ScaledBeta",
    "Settlement",
    "Statement",
    "TruncatedExponential",
    "TruncatedNormal",
    "Uniform",
    "Witness",
    "audit",
    "from_scipy",
    "prior_from_json",
]

guard(globals())
