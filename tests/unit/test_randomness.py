"""Streams of a seed: apart from each other, and the same as ever."""

import numpy as np
import pytest
from numpy.random import SeedSequence

from bonafed import randomness
from bonafed.errors import InvalidValue
from bonafed.randomness import FaithfulStudy, JobStream, JsamStudy, Normals, Purpose, RewardsStudy


def first(rng):
    return rng.integers(1 << 62)


def test_numbers_of_purposes_are_what_they_were():
    """A run that was made is made again by its seed only as long as these stay."""
    assert [int(purpose) for purpose in Purpose] == [1, 2, *range(11, 18), 21, 22, *range(31, 35), 41]
    assert [int(stream) for stream in JobStream] == [1, 2, 3]


@pytest.mark.parametrize("purpose", [*Purpose, *FaithfulStudy, *RewardsStudy, *JsamStudy])
def test_a_key_is_the_purpose_and_the_numbers(purpose):
    for numbers in ((), (3,), (3, 4)):
        key = SeedSequence(9, spawn_key=(int(purpose), *numbers))
        assert first(randomness.generator(9, purpose, *numbers)) == first(np.random.default_rng(key))


@pytest.mark.parametrize("seed", [0, 5, 2**32 - 1, 2**32, 2**70])
def test_streams_of_rounds_and_jobs_are_what_they_were(seed):
    key = SeedSequence((seed, 3), spawn_key=(13,))
    made = randomness.round_generator(seed, Purpose.PARTICIPANTS, 3)
    assert first(made) == first(np.random.default_rng(key))
    assert first(randomness.numbered_generator(seed, 2)) == first(np.random.default_rng([seed, 2]))
    assert first(randomness.job_generator(seed, 1, 2, 0)) == first(np.random.default_rng([seed, 1, 2, 0]))
    bits = randomness.job_bits((seed, 1, 2, 0), JobStream.BATCHES).random_raw()
    assert bits == np.random.PCG64(SeedSequence((seed, 1, 2, 0), spawn_key=(2,))).random_raw()


def test_purposes_do_not_overlap():
    alone = [first(randomness.generator(1, purpose)) for purpose in Purpose]
    in_rounds = [first(randomness.round_generator(1, purpose, t)) for purpose in Purpose for t in (1, 2)]
    assert len({*alone, *in_rounds}) == 3 * len(Purpose)


def test_normal_numbers_are_read_in_any_order_and_again_only_from_the_beginning():
    whole = np.random.default_rng(1).standard_normal(3_000_000)
    rng = np.random.default_rng(1)
    tape = Normals(rng, lambda: np.random.default_rng(1))
    for first, count in ((5, 10), (0, 5), (2_500_000, 3), (15, 10), (2_500_003, 1), (25, 4), (7, 9)):
        assert np.array_equal(tape.read(first, count), whole[first : first + count])
    once = Normals(np.random.default_rng(1))
    once.read(0, 4)
    with pytest.raises(InvalidValue, match=r"^position must be at least 4, .* got 3$"):
        once.read(3, 1)


def test_the_generator_at_hand_goes_as_far_as_anybody_has_read():
    rng = np.random.default_rng(2)
    tape = Normals(rng)
    for first in (0, 20, 10, 30):
        tape.read(first, 10)
    other = np.random.default_rng(2)
    other.standard_normal(40)
    assert rng.random() == other.random()
