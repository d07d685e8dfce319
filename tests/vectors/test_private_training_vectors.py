"""Batch, steps and rate of private training (money.json), reproduced at 1e-9."""

import json
from pathlib import Path

import pytest

from bonafed.learning.privacy.planning import noise_share, rate_for, steps_for

HERE = Path(__file__).parent
DATA = json.loads((HERE / "money.json").read_text())["sections 6 to 11"]
PLAN = DATA["private_training_of_a_plan"]


def near(value):
    return pytest.approx(value, rel=1e-9)


def test_the_file_is_complete():
    assert len(DATA["private_training"]) == 7
    assert {v["noise_at"] for v in DATA["private_training"]} == {"client", "sum"}


@pytest.mark.parametrize("v", DATA["private_training"], ids=lambda v: f"{v['clients']}-eps{v['epsilon']}")
def test_steps_and_rate_of_clients_that_are_alike(v):
    on_sum = v["noise_at"] == "sum"
    weights = [1 / v["clients"]] * v["clients"]
    share = noise_share(weights, v["epsilon"], v["records"], v["delta"], v["parameters"], on_sum=on_sum)
    assert share == near(v["a"])
    assert 10 / (share * v["clip"]) == near(v["tau"])
    steps = steps_for(share, v["rounds"], on_sum=on_sum)
    assert steps == v["steps"]
    assert rate_for(share, v["clip"], steps * v["rounds"]) == near(v["rate"])


@pytest.mark.parametrize("on_sum", [False, True])
def test_the_noise_of_a_plan(on_sum):
    share = noise_share(
        PLAN["p"], PLAN["epsilon"], PLAN["records"], PLAN["delta"], PLAN["parameters"], on_sum=on_sum
    )
    assert share == near(PLAN["a_sum" if on_sum else "a_client"])
