"""Arguments of a round are refused by name, before anybody trains."""

import numpy as np
import pytest
from tests.oracles.twins import image_samples, make, split

from bonafed.errors import InvalidValue
from bonafed.learning.engine.programs import flat_parameters, program_for
from bonafed.learning.federation import Participation, make_jobs, run_round, weighted_mean
from bonafed.learning.work import LocalTraining

PARTS = split((4, 3, 5))
EVERYONE = np.arange(3)


@pytest.mark.parametrize(
    ("noise", "message"),
    [
        ([1.0, 1.0], "noise_multipliers must have 3 values, got 2"),
        ([1.0, -2.0, 1.0], "noise_multipliers must not be negative, got -2 at position 1"),
        ([1.0, 1.0, np.nan], "noise_multipliers must be finite, got nan at position 2"),
        ([np.inf, 1.0, 1.0], "noise_multipliers must be finite, got inf at position 0"),
        ([[1.0, 1.0, 1.0]], "noise_multipliers must be one-dimensional"),
        (["a", "b", "c"], "noise_multipliers must be a list of numbers"),
    ],
)
def test_noise_that_is_none(noise, message):
    module = make("softmax")
    with pytest.raises(InvalidValue, match=f"^{message}"):
        make_jobs(PARTS, EVERYONE, noise)
    with pytest.raises(InvalidValue, match=f"^{message}"):
        run_round(
            program_for(module), flat_parameters(module), image_samples(12), PARTS,
            weighted_mean(EVERYONE, [4, 3, 5]), LocalTraining(4, 0.1, clip=1.0),
            seed=0, round_number=1, noise_multipliers=noise,
        )  # fmt: skip


@pytest.mark.parametrize(
    ("clients", "message"),
    [
        (np.array([0, 3]), r"clients must be in 0\.\.2, got 3"),
        (np.array([0, -1]), r"clients must be in 0\.\.2, got -1"),
        (np.array([0.5]), "clients must be a one-dimensional array of whole numbers"),
        (np.array([[0]]), "clients must be a one-dimensional array of whole numbers"),
        (np.array([True]), "clients must be a one-dimensional array of whole numbers"),
    ],
)
def test_clients_that_are_not_there(clients, message):
    with pytest.raises(InvalidValue, match=f"^{message}"):
        make_jobs(PARTS, clients)
    with pytest.raises(InvalidValue, match=f"^{message}"):
        weighted_mean(clients, [4, 3, 5])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: Participation([0, 1], np.ones(2)),
            r"clients must be a one-dimensional array of whole numbers, got \[0, 1\]",
        ),
        (
            lambda: Participation(EVERYONE, [1.0] * 3),
            "weights must be a one-dimensional array of numbers",
        ),
        (lambda: Participation(EVERYONE, np.ones(2)), "weights must have 3 values, got 2"),
        (lambda: Participation(EVERYONE, np.array([1, np.nan, 1])), "weights must be finite"),
        (lambda: make_jobs(PARTS, [0, 1]), "clients must be a one-dimensional array of whole numbers"),
        (
            lambda: weighted_mean([0, 2], [0, 3, 0]),
            r"sizes must not be 0 for all clients that take part, got \[0, 2\]",
        ),
        (lambda: weighted_mean([0], [-1, 3]), "sizes must not be negative, got -1 at position 0"),
    ],
)
def test_who_takes_part_and_with_what_weight(call, message):
    with pytest.raises(InvalidValue, match=f"^{message}"):
        call()


def test_nobody_may_take_part():
    assert weighted_mean([], [4, 3, 5]).weights.size == 0
    assert make_jobs(PARTS, np.zeros(0, dtype=np.int64), [0.0, 1.0, 2.0]) == []
