"""Shamir's sharing: enough shares give the secret, fewer say nothing."""

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bonafed.remote.secure_sums import field


def is_probable_prime(number):
    """Miller and Rabin's test with 40 bases."""
    odd, twos = number - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in range(2, 42):
        power = pow(base, odd, number)
        powers = [power := power * power % number if turn else power for turn in range(twos)]
        if pow(base, odd, number) != 1 and number - 1 not in powers:
            return False
    return True


def test_the_modulus_is_the_smallest_prime_above_every_secret():
    assert is_probable_prime(field.PRIME)
    assert not any(is_probable_prime(number) for number in range(2**256, field.PRIME))
    assert field.PRIME < 256**field.WIDTH


@given(st.binary(min_size=32, max_size=32), st.integers(1, 8), st.integers(0, 4), st.data())
def test_any_threshold_of_shares_gives_the_secret_and_every_other_share(secret, t, more, data):
    randomness = data.draw(
        st.binary(min_size=field.raw_length(t), max_size=field.raw_length(t)), label="randomness"
    )
    shared = field.polynomial(secret, randomness)
    assert len(shared) == t
    shares = {place: field.value(shared, place) for place in range(1, t + more + 1)}
    chosen = data.draw(st.permutations(sorted(shares)), label="order")[:t]
    assert field.to_secret(field.interpolated(shares, chosen)) == secret
    for place, share in shares.items():
        assert field.interpolated(shares, chosen, place) == share
        assert field.from_bytes(field.to_bytes(share)) == [share]


@pytest.mark.parametrize("places", [(1, 2), (2, 4), (1, 5)])
def test_fewer_shares_are_distributed_alike_for_every_secret(monkeypatch, places):
    """All polynomials over a small field: t - 1 = 2 shares of any secret are every pair exactly once."""
    monkeypatch.setattr(field, "PRIME", 7)
    for secret in range(7):
        seen = Counter(
            tuple(field.value((secret, *rest), place) for place in places)
            for rest in itertools.product(range(7), repeat=2)
        )
        assert seen == Counter(itertools.product(range(7), repeat=2))


def test_coefficients_use_all_their_randomness():
    raw = bytes(range(64)) + bytes(64)
    first, second = field.polynomial(bytes(32), raw)[1:]
    assert first == int.from_bytes(raw[:64]) % field.PRIME
    assert second == 0
    assert field.raw_length(3) == len(raw)


def test_elements_that_no_secret_has_are_told():
    assert field.to_secret(2**256 - 1) == b"\xff" * 32
    assert field.to_secret(2**256) is None
