"""The polynomial that most shares are on, whichever are wrong."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bonafed.remote.secure_sums import field
from bonafed.remote.secure_sums.decoding import decoded
from bonafed.remote.secure_sums.wrong_shares import secret_from, to_blame

element = st.one_of(st.integers(0, 3), st.integers(0, field.PRIME - 1))


def fits_to(polynomial):
    return lambda secret: int.from_bytes(secret) == polynomial[0]


@given(st.data())
def test_as_many_wrong_shares_as_can_be_told_are_told(data):
    t = data.draw(st.integers(1, 6), label="threshold")
    r = t + data.draw(st.integers(0, 6), label="spare")
    f = data.draw(st.lists(element, min_size=t, max_size=t), label="polynomial")
    places = data.draw(st.permutations(range(1, 15)), label="places")[:r]
    wrong = places[: data.draw(st.integers(0, (r - t) // 2), label="wrong")]
    shares = {place: field.value(f, place) for place in sorted(places)}
    for place in wrong:
        shares[place] = (shares[place] + 1 + data.draw(element)) % field.PRIME
    found = decoded(shares, t)
    agreeing = [place for place in places if field.value(f, place) == shares[place]]
    assert found is not None
    assert [field.value(found, place) for place in agreeing] == [shares[place] for place in agreeing]
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
    shares = {place: field.value(f, place) for place in (1, 2, 3, 4)}
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
            place: field.value(f, place) + (place in wrong) * (place**5 + 13) for place in range(1, 8)
        }
        found = secret_from(shares, (1, 2, 3), fits_to(f))
        assert found is None or (found.secret == (5).to_bytes(32) and not found.wrong)
        assert (found is None) == bool(set(wrong) & {1, 2, 3})


def test_where_no_polynomial_has_most_shares_none_is_found():
    assert decoded({1: 1, 2: 2, 3: 3}, 1) is None
    assert decoded({1: 1, 2: 2, 3: 3}, 2) == [0, 1]
    assert decoded({1: 0, 2: 0, 3: 9, 4: 0}, 1) == []


def test_a_share_that_is_no_element_is_wrong():
    shares = dict.fromkeys((1, 2, 3), 5) | {4: 5 + field.PRIME}
    assert secret_from(shares, (1, 2), fits_to([5])).wrong == {4}


def test_who_disputes_with_few_is_not_to_blame():
    assert to_blame([("ada", "ben")], others=3) == []
    assert to_blame([("ada", "ada")], others=9) == ["ada"]
    assert to_blame([], others=3) == []
