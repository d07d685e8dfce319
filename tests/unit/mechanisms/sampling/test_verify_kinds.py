"""An honest contract passes its own verification, whatever the prior."""

import pytest
from tests.theorems.kinds import KINDS

from bonafed.mechanisms.sampling import contract_to_json, plan, verify

CHOSEN = (
    "uniform-from-zero",
    "exponential-steep",
    "normal-narrow",
    "normal-upper-tail",
    "beta-large",
    "beta-heavy-high-end",
    "beta-thin-high-end",
    "three-modes",
    "needle",
    "lognormal-from-zero",
)


@pytest.mark.parametrize("kind", [k for k in KINDS if k.name in CHOSEN], ids=lambda k: k.name)
def test_honest_contracts_pass(kind):
    contract = plan(kind.prior, 0.6 * kind.prior.high * 10 * 5, 10, 5)
    failed = [check for check in verify(contract_to_json(contract)) if not check.holds]
    assert failed == []
