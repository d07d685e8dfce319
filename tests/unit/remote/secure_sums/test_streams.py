"""Keys by purpose, streams added modulo 2^64, and real numbers as such integers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from tests.oracles import secure_sums as oracle

from bonafed.errors import InvalidValue
from bonafed.remote.secure_sums import streams
from bonafed.remote.secure_sums.streams import (
    add_streams,
    agreed,
    bounded,
    derived,
    framed,
    from_ring,
    public_key,
    sealed,
    to_ring,
    unsealed,
)

KEY, OTHER = bytes(range(32)), bytes(range(1, 33))
parts = st.lists(st.binary(max_size=4), max_size=4)


@given(parts, parts)
def test_different_parts_are_framed_differently(one, other):
    assert (framed(*one) == framed(*other)) == (one == other)


@given(st.binary(min_size=32, max_size=32), st.text(max_size=5), parts)
def test_keys_are_derived_as_rfc_5869_says(key, label, purpose):
    assert derived(key, label, *purpose) == oracle.derived(key, label, *purpose)


@pytest.mark.parametrize("size", [1, streams._PIECE - 1, streams._PIECE, 2 * streams._PIECE + 5])
def test_streams_are_added_and_taken_off_whatever_the_length(size):
    words = np.arange(size, dtype=np.uint64)
    add_streams(words, [(1, KEY), (-1, OTHER)])
    expected = [
        (k + a - b) % 2**64
        for k, (a, b) in enumerate(
            zip(oracle._numbers(KEY, size), oracle._numbers(OTHER, size), strict=True)
        )
    ]
    assert words.tolist() == expected
    add_streams(words, [(-1, KEY), (1, OTHER)])
    assert words.tolist() == list(range(size))


def test_both_ends_agree_and_a_key_of_small_order_is_refused():
    assert agreed(KEY, public_key(OTHER), "ben") == agreed(OTHER, public_key(KEY), "ada")
    with pytest.raises(InvalidValue, match="public key of ben must be a point of large order"):
        agreed(KEY, bytes(32), "ben")


def test_what_is_altered_or_sealed_with_another_key_does_not_open():
    box = sealed(KEY, b"content")
    assert unsealed(KEY, box) == b"content"
    assert unsealed(OTHER, box) is None
    assert unsealed(KEY, box[:-1] + bytes([box[-1] ^ 1])) is None
    assert unsealed(KEY, b"") is None


finite = st.floats(allow_nan=False, allow_infinity=False)


@given(arrays(np.float64, st.integers(0, 6), elements=finite), st.floats(1e-99, 1e99))
def test_a_bounded_vector_keeps_the_bound_and_its_direction(vector, bound):
    values, factor = bounded(vector, bound)
    assert np.isfinite(values).all()
    largest = np.abs(values).max(initial=0.0)
    norm = largest * np.linalg.norm(values / largest) if largest else 0.0
    assert norm <= bound * (1 + 1e-12)
    assert 0 <= factor <= 1
    if factor == 1:
        assert values is vector
    else:
        assert norm == pytest.approx(bound, rel=1e-9)
        if factor > 1e-290:  # below, it has hardly any digits
            # what is 1e-300 times the largest number, or less, has hardly any either
            np.testing.assert_allclose(values, vector * factor, rtol=1e-9, atol=1e-300 * bound)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_becomes_zeros(bad):
    values, factor = bounded(np.array([1.0, bad, 2.0]), 10.0)
    assert values.tolist() == [0, 0, 0]
    assert factor == 0


@given(st.lists(st.floats(-1000, 1000), min_size=1, max_size=20), st.integers(0, 47))
def test_a_sum_is_off_by_half_a_step_per_number_at_most(numbers, bits):
    """M3 (1)."""
    words = np.zeros(1, dtype=np.uint64)
    for number in numbers:
        words += to_ring(np.array([number]), bits)
    exact = sum(numbers)
    assert abs(from_ring(words, bits)[0] - exact) <= len(numbers) * 2.0 ** -(bits + 1) + 1e-10


def test_negative_numbers_and_the_ends_of_the_ring():
    numbers = np.array([-1.0, 0.0, 2.0**61, -(2.0**62)])
    assert from_ring(to_ring(numbers, 0), 0).tolist() == numbers.tolist()
    assert to_ring(np.array([-1.0]), 0).tolist() == [2**64 - 1]
