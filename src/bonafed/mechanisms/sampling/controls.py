"""Contracts that must fail an audit: an audit that passes these is no audit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from bonafed.checks import Floats
from bonafed.economics.contracts import admitted
from bonafed.economics.priors import Prior
from bonafed.mechanisms.sampling.menus import complete_information_population


@dataclass(frozen=True, slots=True, eq=False)
class PayAsBid:
    """Sample as if costs were known and pay what was reported: invites overstating."""

    prior: Prior
    budget: float  # money per client and round

    def probability(self, c: ArrayLike) -> Floats:
        rule = complete_information_population(self.prior, self.budget)
        return np.asarray(rule.probability(admitted(c, self.prior.high)))

    def payment(self, c: ArrayLike) -> Floats:
        return admitted(c, self.prior.high)

    def expected_payment(self, c: ArrayLike) -> Floats:
        return self.probability(c) * self.payment(c)
