"""JSAM with complete information (JSAM-CI): the server knows every cost and pays exactly that.

A benchmark, not a mechanism: it gives nobody a reason to state its true cost.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from bonafed import checks
from bonafed.learning.sections import NoiseAt
from bonafed.mechanisms.jsam.allocation import allocate
from bonafed.mechanisms.jsam.payments import PrivacySettlement
from bonafed.mechanisms.jsam.rules import Rule


def complete_information(
    costs: ArrayLike,
    eta: float,
    noise_scale: float,
    *,
    max_epsilon: ArrayLike | None = None,
    noise_at: NoiseAt = "client",
    rule: Rule | None = None,
) -> PrivacySettlement:
    """The optimal plan with costs in place of virtual costs; the payment is cost times epsilon.

    `rule` is the optimum where clients are not alike (`Unequal`); it knows neither caps nor sums.

    >>> benchmark = complete_information([0.12, 0.35, 0.5, 0.71, 0.93], eta=1, noise_scale=1)
    >>> benchmark.utility(benchmark.reports).tolist()
    [0.0, 0.0, 0.0, 0.0, 0.0]
    """
    c = checks.vector("costs", costs, sign="positive")
    if rule is None:
        plan = allocate(c, eta, noise_scale, max_epsilon=max_epsilon, noise_at=noise_at)
    else:
        plan = rule.plan(c, checks.positive("eta", eta), checks.positive("noise_scale", noise_scale))
    everyone = np.ones(c.size, dtype=np.bool_)
    return PrivacySettlement(c, everyone, plan, c * plan.privacy, np.zeros(c.size))
