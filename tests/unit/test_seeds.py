"""A seed may be any of 64 bits wherever one is taken; larger ones are refused under the caller's name."""

import numpy as np
import pytest

from bonafed import InvalidValue, Uniform
from bonafed.learning.data import datasets
from bonafed.mechanisms.jsam import budget as jsam_budget
from bonafed.mechanisms.jsam import mechanism as jsam_mechanism
from bonafed.mechanisms.jsam import schemes as jsam_schemes
from bonafed.mechanisms.rewards import ModelRewards, Standalone, cheats
from bonafed.mechanisms.sampling import mechanism as sampling_mechanism
from bonafed.papers import claim
from bonafed.papers.faithful import cases as faithful_cases
from bonafed.papers.faithful import manipulation
from bonafed.papers.jsam import plans as jsam

BELIEF = Uniform(0.5, 1.5)
LARGEST = 2**64 - 1
TAKES_A_SEED = {
    "a named data set": lambda seed: datasets.load("synthetic", seed=seed),
    "synthetic data": lambda seed: datasets.synthetic(samples=20, clients=2, seed=seed),
    "costs of participation": lambda seed: sampling_mechanism.draw_costs(BELIEF, 3, seed),
    "costs of privacy": lambda seed: jsam_schemes.draw_costs(BELIEF, 3, seed),
    "the schedule of JSAM": lambda seed: jsam_mechanism.draw_schedule(np.full(3, 1 / 3), 2, 2, seed),
    "the budget on average": lambda seed: jsam_budget.eta_for_expected_budget(
        BELIEF, 3, 1.0, 1.0, samples=2, seed=seed
    ),
    "rewards": lambda seed: ModelRewards([1.0, 2.0], seed=seed),
    "a baseline": lambda seed: Standalone(sizes=[1, 2], seed=seed),
    "a cheat": lambda seed: cheats.send_noise(seed=seed),
    "a claim": lambda seed: claim.Settings(seed=seed),
    "a case of faithful learning": lambda seed: faithful_cases.Case("local", seed=seed),
    "a population": lambda seed: jsam.Population(seed=seed),
    "an example": lambda seed: manipulation.best_factor(manipulation.Example(0.1), seed=seed),
}


@pytest.mark.parametrize("take", TAKES_A_SEED.values(), ids=TAKES_A_SEED)
def test_the_largest_seed_is_taken_and_no_larger_one(take):
    take(LARGEST)
    with pytest.raises(InvalidValue) as refused:
        take(LARGEST + 1)
    assert str(refused.value) == f"seed must not exceed {LARGEST}, got {LARGEST + 1}"
