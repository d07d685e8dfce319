"""What a batch is agreed to be: thresholds, digests, room in the ring."""

import json
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.oracles.secure_sums import NAMES, plan_for

from bonafed.errors import InvalidValue
from bonafed.remote.secure_sums import BatchPlan, threshold_for


@given(st.integers(3, 200), st.integers(0, 200))
def test_the_threshold_is_the_smallest_with_one_view_and_two_honest_members(n, c):
    good = [t for t in range(1, n + 1) if 2 * t > n + c and t - c >= 2]
    if good:
        assert threshold_for(n, c) == good[0]
    else:
        with pytest.raises(InvalidValue, match="colluders must leave 2"):
            threshold_for(n, c)


@pytest.mark.parametrize("n", range(3, 40))
def test_it_is_the_papers_for_the_most_colluders_it_allows(n):
    """Bonawitz et al., active server: t >= floor(2n/3) + 1 for fewer than a third of colluders."""
    colluders = -(-n // 3) - 1
    assert threshold_for(n, colluders) <= 2 * n // 3 + 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"members": ("ada", "ben")}, "members must be 3 to 1000"),
        ({"members": ["ada", "ben", "cleo"]}, "members must be 3 to 1000"),
        ({"members": ("ada", "ben", "ada")}, "members must be all different"),
        ({"members": ("ada", "ben", "c\n")}, "name of a member must be 1 to 200 printable"),
        ({"threshold": 2}, "threshold must be 3 to 4 for 4 members and 0 colluders, got 2"),
        ({"threshold": 5}, "threshold must be 3 to 4"),
        ({"colluders": 3}, "colluders must leave 2 of 4"),
        ({"colluders": -1}, "colluders must be a whole number of at least 0"),
        ({"size": 0}, "size must be a whole number of at least 1"),
        ({"bound": 0.0}, "bound must be positive"),
        ({"bound": float("inf")}, "bound must be finite"),
        ({"sums": 0}, "sums must be a whole number of at least 1"),
        ({"sums": 10_001}, "sums must not exceed 10000"),
        ({"context": b""}, "context must be 1 to 1024 bytes"),
        ({"context": "run"}, "context must be 1 to 1024 bytes"),
        ({"noise": -1.0}, "noise must not be negative"),
        ({"noise": 1e-20}, "noise must be about"),
    ],
)
def test_what_cannot_be_kept_is_refused(changes, said):
    good = {"members": NAMES[:4], "threshold": 3, "size": 5, "bound": 1.0, "sums": 2, "context": b"run 1"}
    BatchPlan(**good)
    with pytest.raises(InvalidValue, match=said):
        BatchPlan(**(good | changes))


def test_a_plan_is_spelled_in_one_way_and_read_back():
    plan = plan_for(5, colluders=1, bound=0.1, noise=0.3, context=b"\x00run")
    assert BatchPlan.from_bytes(plan.to_bytes()) == plan
    assert BatchPlan.from_bytes(plan.to_bytes()).digest == plan.digest


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"\xff",
        b'{"members": 3}',
        plan_for(4).to_bytes().replace(b":1,", b":true,"),
        plan_for(4).to_bytes().replace(b'"size":3', b'"size":"3"'),
        plan_for(4).to_bytes().replace(b"{", b"{ "),
        plan_for(4).to_bytes().replace(b'"size":3', b'"size":3.0'),
        plan_for(4).to_bytes().replace(b'"size":3', b'"size":3,"more":1'),
        plan_for(4).to_bytes().replace(b'"bound":"0x1', b'"bound":"zz'),
        plan_for(4).to_bytes().replace(b'"threshold":3', b'"threshold":1'),
    ],
)
def test_what_is_no_plan_is_refused(content):
    with pytest.raises(InvalidValue):
        BatchPlan.from_bytes(content)


def test_whole_numbers_are_kept_as_such():
    plan = BatchPlan(NAMES[:4], 3.0, 5.0, 1, 2.0, b"run 1", 0.0, 0)
    assert plan == BatchPlan(NAMES[:4], 3, 5, 1.0, 2, b"run 1")
    assert BatchPlan.from_bytes(plan.to_bytes()).digest == plan.digest


def test_every_field_is_in_the_digest():
    plan = plan_for(4, noise=0.5)
    content = json.loads(plan.to_bytes())
    others = [
        plan_for(5, threshold=3, noise=0.5),
        plan_for(4, threshold=4, noise=0.5),
        plan_for(4, colluders=1, noise=0.5),
        plan_for(4, size=4, noise=0.5),
        plan_for(4, sums=2, noise=0.5),
        plan_for(4, bound=9.0, noise=0.5),
        plan_for(4, context=b"run 1, batch 2", noise=0.5),
        plan_for(4, noise=0.25),
    ]
    assert len(others) == len(content)
    assert len({plan.digest, *(other.digest for other in others)}) == len(others) + 1


@given(
    st.integers(3, 30),
    st.floats(1e-90, 1e90),
    st.one_of(st.just(0.0), st.floats(1e-6, 1e6)),
)
def test_a_sum_of_the_largest_numbers_stays_in_the_ring(n, bound, relative):
    """M3 (3), in exact arithmetic; without noise one bit more would be too many."""
    plan = BatchPlan(
        tuple(f"m{k}" for k in range(n)), threshold_for(n, 0), 1, bound, 1, b"x", 0, relative * bound
    )
    largest = n * Fraction(plan.limit) * Fraction(2) ** plan.fraction_bits
    assert largest < 2**62
    if not plan.noise:
        assert largest >= 2**61 * (1 - 1e-12)


def test_noise_is_shared_for_as_many_as_may_drop_out_and_collude():
    """M9: t - c shares at least are on any sum and secret."""
    plan = plan_for(10, colluders=3, threshold=8, noise=6.0)
    assert plan.tolerated == 2
    assert plan.noise_share == pytest.approx(6.0 / (8 - 3) ** 0.5)
    step = 2.0**-plan.fraction_bits
    assert plan.noise_share / 32 < step <= plan.noise_share / 16
    assert plan_for(10).noise_share == 0


def test_a_crowd_shrinks_by_those_who_drop_out_and_collude():
    plan = plan_for(10, colluders=3)  # t = 7
    assert [plan.crowd(k) for k in (10, 8, 6, 1)] == [4, 2, 0, 0]
    assert plan.crowd(10) == plan.threshold - plan.colluders
