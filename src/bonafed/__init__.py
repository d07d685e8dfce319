"""bonafed: the incentive layer of federated learning.

Contracts under which honesty is every participant's best choice: designed, tried by search, paid.
"""

from bonafed.economics import (
    Discrete,
    Empirical,
    NormalMixture,
    ScaledBeta,
    TruncatedExponential,
    TruncatedNormal,
    Uniform,
    audit,
    from_scipy,
)
from bonafed.errors import BonafedError, InvalidValue, NoSolution, ReportRefused, UnreadableFile

__version__ = "0.1.0"

__all__ = [
    "BonafedError",
    "Discrete",
    "Empirical",
    "InvalidValue",
    "NoSolution",
    "NormalMixture",
    "ReportRefused",
    "ScaledBeta",
    "TruncatedExponential",
    "TruncatedNormal",
    "Uniform",
    "UnreadableFile",
    "__version__",
    "audit",
    "from_scipy",
]
