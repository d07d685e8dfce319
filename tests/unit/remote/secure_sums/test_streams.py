"""Keys by purpose, and streams added modulo 2^64."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles import secure_sums as oracle

from bonafed.errors import InvalidValue
from bonafed.remote.secure_sums import streams
from bonafed.remote.secure_sums.streams import (
    add_streams,
    agreed,
    derived,
    framed,
    public_key,
    sealed,
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
