"""Shamir's sharing: enough shares give the secret, fewer say nothing, and wrong ones are told."""

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bonafed.remote.secure_sums import sharing
from bonafed.remote.secure_sums.sharing import decoded, secret_from, to_blame


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
    assert is_probable_prime(sharing.PRIME)
    assert not any(is_probable_prime(number) for number in range(2**256, sharing.PRIME))
    assert sharing.PRIME < 256**sharing.WIDTH


@given(st.binary(min_size=32, max_size=32), st.integers(1, 8), st.integers(0, 4), st.data())
def test_any_threshold_of_shares_gives_the_secret_and_every_other_share(secret, t, more, data):
    randomness = data.draw(
        st.binary(min_size=sharing.raw_length(t), max_size=sharing.raw_length(t)), label="randomness"
    )
    shared = sharing.polynomial(secret, randomness)
    assert len(shared) == t
    shares = {place: sharing.value(shared, place) for place in range(1, t + more + 1)}
    chosen = data.draw(st.permutations(sorted(shares)), label="order")[:t]
    assert sharing.to_secret(sharing.interpolated(shares, chosen)) == secret
    for place, share in shares.items():
        assert sharing.interpolated(shares, chosen, place) == share
        assert sharing.from_bytes(sharing.to_bytes(share)) == [share]


@pytest.mark.parametrize("places", [(1, 2), (2, 4), (1, 5)])
def test_fewer_shares_are_distributed_alike_for_every_secret(monkeypatch, places):
    """All polynomials over a small field: t - 1 = 2 shares of any secret are every pair exactly once."""
    monkeypatch.setattr(sharing, "PRIME", 7)
    for secret in range(7):
        seen = Counter(
            tuple(sharing.value((secret, *rest), place) for place in places)
            for rest in itertools.product(range(7), repeat=2)
        )
        assert seen == Counter(itertools.product(range(7), repeat=2))


def test_coefficients_use_all_their_randomness():
    raw = bytes(range(64)) + bytes(64)
    first, second = sharing.polynomial(bytes(32), raw)[1:]
    assert first == int.from_bytes(raw[:64]) % sharing.PRIME
    assert second == 0
    assert sharing.raw_length(3) == len(raw)


def test_elements_that_no_secret_has_are_told():
    assert sharing.to_secret(2**256 - 1) == b"\xff" * 32
    assert sharing.to_secret(2**256) is None


element = st.one_of(st.integers(0, 3), st.integers(0, sharing.PRIME - 1))


def fits_to(polynomial):
    return lambda secret: int.from_bytes(secret) == polynomial[0]


@given(st.data())
def test_as_many_wrong_shares_as_can_be_told_are_told(data):
    t = data.draw(st.integers(1, 6), label="threshold")
    r = t + data.draw(st.integers(0, 6), label="spare")
    f = data.draw(st.lists(element, min_size=t, max_size=t), label="polynomial")
    places = data.draw(st.permutations(range(1, 15)), label="places")[:r]
    wrong = places[: data.draw(st.integers(0, (r - t) // 2), label="wrong")]
    shares = {place: sharing.value(f, place) for place in sorted(places)}
    for place in wrong:
        shares[place] = (shares[place] + 1 + data.draw(element)) % sharing.PRIME
    found = decoded(shares, t)
    agreeing = [place for place in places if sharing.value(f, place) == shares[place]]
    assert found is not None
    assert [sharing.value(found, place) for place in agreeing] == [shares[place] for place in agreeing]
    assert found == field_trimmed(f)
    secret = secret_from(shares, tuple(sorted(shares))[:t], lambda s: int.from_bytes(s) == f[0])
    if f[0] < 2**256 and r > t:
        assert secret.secret == f[0].to_bytes(32)
        assert secret.wrong == frozenset(places) - frozenset(agreeing)


def field_trimmed(polynomial):
    while polynomial and polynomial[-1] == 0:
        polynomial = polynomial[:-1]
    return polynomial


@pytest.mark.parametrize("wrong", [1, 2, 3, 4])
def test_one_wrong_share_is_told_with_one_to_spare(wrong):
    f = [5, 7, 11]
    shares = {place: sharing.value(f, place) for place in (1, 2, 3, 4)}
    shares[wrong] += 1
    found = secret_from(shares, (1, 2, 3), fits_to(f))
    assert found.secret == (5).to_bytes(32)
    assert found.wrong == {wrong}
    assert secret_from({k: shares[k] for k in (1, 2, 3)}, (1, 2, 3), fits_to(f)) is None or wrong == 4


def test_too_many_wrong_shares_blame_nobody():
    """Three of seven, t = 3: the secret may be found, but not whose shares are wrong."""
    f = [5, 7, 11]
    for wrong in itertools.combinations(range(1, 8), 3):
        shares = {
            place: sharing.value(f, place) + (place in wrong) * (place**5 + 13) for place in range(1, 8)
        }
        found = secret_from(shares, (1, 2, 3), fits_to(f))
        assert found is None or (found.secret == (5).to_bytes(32) and not found.wrong)
        assert (found is None) == bool(set(wrong) & {1, 2, 3})


def test_where_no_polynomial_has_most_shares_none_is_found():
    assert decoded({1: 1, 2: 2, 3: 3}, 1) is None
    assert decoded({1: 1, 2: 2, 3: 3}, 2) == [0, 1]
    assert decoded({1: 0, 2: 0, 3: 9, 4: 0}, 1) == []


def test_a_share_that_is_no_element_is_wrong():
    shares = dict.fromkeys((1, 2, 3), 5) | {4: 5 + sharing.PRIME}
    assert secret_from(shares, (1, 2), fits_to([5])).wrong == {4}


def test_who_disputes_with_few_is_not_to_blame():
    assert to_blame([("ada", "ben")], others=3) == []
    assert to_blame([("ada", "ada")], others=9) == ["ada"]
    assert to_blame([], others=3) == []
