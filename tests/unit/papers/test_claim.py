"""Verdicts: computed from estimates and rules, with what chance may have done taken into account."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bonafed.errors import InvalidValue
from bonafed.papers.claim import (
    Estimate,
    Judgement,
    at_least,
    at_most,
    estimate,
    number,
    only,
    over_seeds,
    printed,
    where,
    within,
)

NUMBERS = st.floats(-1e6, 1e6)
ERRORS = st.floats(0, 1e3)


@given(NUMBERS, ERRORS, NUMBERS)
def test_at_most_is_at_least_turned_round(value, error, bound):
    low = at_least("x", Estimate(value, error, 3), bound)
    high = at_most("x", Estimate(-value, error, 3), -bound)
    assert (low.outcome, low.seeds_needed) == (high.outcome, high.seeds_needed)


@given(NUMBERS, ERRORS, NUMBERS, st.floats(1e-6, 1e3))
def test_within_is_between_two_bounds(value, error, target, tolerance):
    ours = Estimate(value, error, 3)
    near = within("x", ours, target, tolerance).outcome
    sides = {
        at_least("x", ours, target - tolerance).outcome,
        at_most("x", ours, target + tolerance).outcome,
    }
    if near == "holds" and abs(value - target) < 1e5:  # rounding aside
        assert "contradicted" not in sides
    if "contradicted" in sides:
        assert near != "holds"


@given(NUMBERS, ERRORS, NUMBERS, st.floats(1e-6, 1e3))
def test_printed_numbers_are_always_decided(value, error, target, tolerance):
    check = printed("x", Estimate(value, error, 3), target, tolerance)
    assert check.outcome in ("holds", "contradicted")
    if within("x", check.ours, target, tolerance).outcome == "contradicted":
        assert check.outcome == "contradicted"


def test_two_standard_errors_decide():
    assert at_least("x", Estimate(1.0, 0.4, 4), 0.0).outcome == "holds"
    assert at_least("x", Estimate(1.0, 0.6, 4), 0.0).outcome == "undecided"
    assert at_least("x", Estimate(-1.0, 0.4, 4), 0.0).outcome == "contradicted"
    assert at_least("x", Estimate(math.nan), 0.0).outcome == "contradicted"


def test_undecided_says_how_many_seeds_would_decide():
    check = at_least("x", Estimate(1.0, 1.0, 4), 0.0)
    needed = check.seeds_needed
    assert needed == 16
    at_that = Estimate(1.0, 1.0 * math.sqrt(4 / needed), needed)
    assert at_least("x", at_that, 0.0).outcome == "holds"
    assert Judgement((check,)).text == "undecided, 16 seeds would decide"
    never = at_least("x", Estimate(0.0, 1.0, 4), 0.0)
    assert Judgement((never, check)).text == "undecided, and no number of seeds would"


YES, NO = at_least("x", Estimate(1.0), 0.0), at_least("x", Estimate(-1.0), 0.0)
MAYBE = at_least("x", Estimate(0.1, 1.0, 3), 0.0)


def corrected(value):
    return at_least("x", Estimate(value), 0.0, corrected=True)


@pytest.mark.parametrize(
    ("checks", "verdict"),
    [
        ((YES, YES), "holds"),
        ((YES, NO), "contradicted"),
        ((YES, MAYBE), "undecided"),
        ((NO, MAYBE), "contradicted"),
        ((NO, corrected(1)), "holds with a correction"),
        ((NO, corrected(1), corrected(-1)), "contradicted"),
        ((YES, corrected(-1)), "holds"),
        ((MAYBE, corrected(1)), "undecided"),
        ((corrected(1),), "holds with a correction"),
        ((corrected(-1),), "contradicted"),
    ],
)
def test_what_checks_come_to(checks, verdict):
    assert Judgement(checks, "F-D9").verdict == verdict
    assert ("F-D9" in Judgement(checks, "F-D9").text) == (verdict == "holds with a correction")


def test_one_seed_is_told():
    one = at_least("x", Estimate.over([1.0]), 0.0)
    assert Judgement((one,)).text == "holds, by one seed: chance was not weighed"
    assert Judgement((YES,)).text == "holds"


def test_what_is_no_number_confirms_nothing():
    assert math.isnan(Estimate.over([1.0, math.nan]).value)
    for ours in (Estimate.over([1.0, math.inf]), Estimate(1.0, math.inf, 3), Estimate(1.0, math.nan, 3)):
        assert Judgement((at_least("x", ours, 0.0),)).text == "contradicted"
        assert printed("x", ours, 1.0, 0.1).outcome == "contradicted"


def test_an_estimate_too_vague_to_compare_confirms_no_printed_number():
    assert printed("x", Estimate(0.19, 0.05, 3), 0.1, 0.05).outcome == "holds"
    assert printed("x", Estimate(0.71, 0.44, 3), 0.15, 0.05).outcome == "contradicted"


def test_nothing_checked_is_no_verdict():
    with pytest.raises(InvalidValue, match="checks must be at least one"):
        Judgement(())


def test_means_over_seeds_go_through_a_table():
    row = {"mechanism": "a", **over_seeds("loss", [1.0, 2.0, 3.0])}
    assert estimate(row, "loss") == Estimate.over([1.0, 2.0, 3.0]) == (2.0, 1 / math.sqrt(3), 3)
    assert over_seeds("loss", [1.0])["loss_se"] == 0
    assert only([row], mechanism="a") is row
    assert where([row], mechanism="b") == []
    with pytest.raises(InvalidValue, match="rows must have one row with"):
        only([row, row], mechanism="a")
    assert math.isnan(number({"x": None}, "x"))
    with pytest.raises(InvalidValue, match="mechanism must be a number, got 'a'"):
        number(row, "mechanism")
