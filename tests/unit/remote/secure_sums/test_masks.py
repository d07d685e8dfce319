"""Masked vectors: what they are by the formula, and that they look like nothing at all."""

import numpy as np
import pytest
from scipy.stats import chi2
from tests.oracles.secure_sums import Walk, masked_by_hand, plan_for, secret_of, vectors_for

from bonafed.remote.secure_sums import collected, revealed
from bonafed.remote.secure_sums.key_book import own_mask
from bonafed.remote.secure_sums.streams import add_streams, number, to_ring

FALSE_ALARM = 1e-9
ABOUT = b"model 17, all weights 1/5"


def distance_from_uniform(message):
    """Pearson's statistic of how often each byte occurs, and what it exceeds by chance once in 1e9."""
    counts = np.bincount(np.frombuffer(message, dtype=np.uint8), minlength=256)
    expected = len(message) / 256
    return float(((counts - expected) ** 2 / expected).sum()), float(chi2.isf(FALSE_ALARM, 255))


@pytest.fixture(scope="module")
def walk():
    return Walk(plan_for(5, size=20_000, sums=2))


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("name", ["ada", "cleo", "eve"])
def test_a_masked_vector_is_what_the_formula_says(name, which):
    walk = Walk(plan_for(5, sums=2))
    vectors = vectors_for(walk.plan, which)
    message = walk.inputs(which, {name: vectors[name]}, ABOUT)[name]
    secrets = {member: secret_of(member) for member in walk.plan.members}
    by_hand = masked_by_hand(walk.plan, walk.book.digest, secrets, name, which, vectors[name], ABOUT)
    assert message == by_hand


def test_bytes_of_a_masked_vector_are_uniform_and_those_of_the_vector_are_not(walk):
    """Whatever is in it: zeros, the same number throughout, noise. Without a mask the test notices."""
    n, rng = walk.plan.size, np.random.default_rng(1)
    contents = {"ada": np.zeros(n), "ben": np.full(n, 0.05), "cleo": rng.normal(0, 0.05, n)}
    messages = walk.inputs(0, contents)
    for name, vector in contents.items():
        statistic, limit = distance_from_uniform(messages[name])
        assert statistic < limit
        statistic, limit = distance_from_uniform(to_ring(vector, walk.plan.fraction_bits).tobytes())
        assert statistic > 10 * limit


def test_without_the_own_mask_the_pairs_still_hide_it(walk):
    message = walk.inputs(1, {"ada": np.full(walk.plan.size, 0.05)})["ada"]
    words = np.frombuffer(message, dtype=np.uint64).copy()
    seed = walk.members["ada"].own("seed", number(1))
    add_streams(words, [(-1, own_mask(walk.book, 1, b"", seed))])
    statistic, limit = distance_from_uniform(words.tobytes())
    assert statistic < limit


def test_no_two_messages_have_a_mask_in_common(walk):
    """Differences between sums, between members, and between subjects are uniform as well."""
    fresh = Walk(walk.plan)
    one = walk.plan.members[0]
    zeros = {name: np.zeros(walk.plan.size) for name in walk.plan.members}
    first, second = fresh.inputs(0, zeros), fresh.inputs(1, zeros)
    other = Walk(walk.plan).inputs(0, zeros, ABOUT)
    for a, b in ((first[one], second[one]), (first[one], first["ben"]), (first[one], other[one])):
        gap = np.frombuffer(a, dtype=np.uint64) - np.frombuffer(b, dtype=np.uint64)
        statistic, limit = distance_from_uniform(gap.tobytes())
        assert statistic < limit


def test_members_that_were_told_different_things_add_up_to_nothing(walk):
    """M2: a server that sends one member another model does not learn what that changes."""
    fresh = Walk(walk.plan)
    zeros = {name: np.zeros(walk.plan.size) for name in walk.plan.members}
    told = dict.fromkeys(zeros, ABOUT) | {"dan": b"model 18"}
    pending = collected(fresh.book, 0, fresh.inputs(0, zeros, told), ABOUT)
    found = revealed(pending, fresh.answers(0, pending.round.survivors))
    words = to_ring(found.values, fresh.plan.fraction_bits)
    assert np.abs(found.values).max() > 1  # honest zeros add up to zeros
    # a double holds 53 of the 64 bits: look at the six highest bytes
    statistic, limit = distance_from_uniform(words.view(np.uint8).reshape(-1, 8)[:, 2:].tobytes())
    assert statistic < limit
