"""JSAM: joint client selection and privacy compensation (Xu, Zhang, Huang), exact and corrected.

From whom to buy how much privacy, how often to select each, and what to pay, so that every client's best
choice is to state its true privacy sensitivity: `contract` is what to publish; `allocate` and `settle` are
its arithmetic, and the baselines are rules for `settle`.
"""

from bonafed.door import guard
from bonafed.mechanisms.jsam.allocation import SelectionPlan, allocate
from bonafed.mechanisms.jsam.budget import (
    Budgeted,
    complete_information,
    eta_for_budget,
    eta_for_expected_budget,
)
from bonafed.mechanisms.jsam.cap_bound import least_objective
from bonafed.mechanisms.jsam.noise import noise_scale
from bonafed.mechanisms.jsam.payments import Admitted, JsamMechanism, PrivacySettlement, admit, settle
from bonafed.mechanisms.jsam.published import JsamContract, contract
from bonafed.mechanisms.jsam.rules import Cheapest, Fixed, Jsam, Rule, largest_losses, unbiased
from bonafed.mechanisms.jsam.sizes import Unequal, allocate_unequal
from bonafed.mechanisms.jsam.thresholds import objective

__all__ = [
    "Admitted",
    "Budgeted",
    "Cheapest",
    "Fixed",
    "Jsam",
    "JsamContract",
    "JsamMechanism",
    "PrivacySettlement",
    "Rule",
    "SelectionPlan",
    "Unequal",
    "admit",
    "allocate",
    "allocate_unequal",
    "complete_information",
    "contract",
    "eta_for_budget",
    "eta_for_expected_budget",
    "largest_losses",
    "least_objective",
    "noise_scale",
    "objective",
    "settle",
    "unbiased",
]

guard(globals())
