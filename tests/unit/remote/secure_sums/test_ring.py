"""Real numbers modulo 2^64: rounding as stated, bounds kept, nothing wraps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from bonafed.remote.secure_sums.ring import bounded, from_ring, to_ring

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
