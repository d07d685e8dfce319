"""Reward rates: monotone, in range, and bad input refused in words."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.oracles.rewards import slow_rate

from bonafed.errors import InvalidValue
from bonafed.mechanisms.rewards import induced_rates, reference_size, reward_rates, set_sizes

amounts = st.floats(0, 1e6, allow_subnormal=False)
contributions = st.lists(amounts, min_size=1, max_size=12).filter(any)
sharing = st.floats(0, 1)


@given(contributions, sharing, st.one_of(st.none(), st.floats(1e-6, 1e6)))
def test_rates_are_those_of_the_formula(p, kappa, ceiling):
    found = reward_rates(p, sharing=kappa, ceiling=ceiling)
    top = max(p) if ceiling is None else ceiling
    assert found == pytest.approx([slow_rate(one, top, kappa) for one in p], rel=1e-12, abs=1e-300)
    assert found.min() >= 0
    assert found.max() <= 1


def test_measured_zeros_earn_nothing_and_given_ones_are_refused():
    assert reward_rates([0, 0], sharing=0.5, measured=True).tolist() == [0.0, 0.0]
    assert reward_rates([0, 0], sharing=1.0, measured=True).tolist() == [1.0, 1.0]
    with pytest.raises(InvalidValue, match="contributions must not all be zero, got 2 zeros"):
        reward_rates([0, 0], sharing=0.5)


@given(contributions, sharing, st.floats(1e-3, 1e3))
def test_more_contribution_never_earns_less(p, kappa, ceiling):
    ordered = reward_rates(sorted(p), sharing=kappa, ceiling=ceiling)
    assert (np.diff(ordered) >= 0).all()
    assert (np.diff(set_sizes(ordered, 30)) >= 0).all()


@given(contributions, sharing, sharing)
def test_more_sharing_never_takes_away(p, one, other):
    less, more = sorted((one, other))
    assert (reward_rates(p, sharing=more) >= reward_rates(p, sharing=less) - 1e-12).all()
    assert reward_rates(p, sharing=1.0).tolist() == [1.0] * len(p)


@given(contributions, st.floats(1e-3, 1e3))
def test_the_unit_of_contribution_does_not_matter(p, unit):
    assume(min(x for x in p if x) > 1e-3)
    found = reward_rates(np.array(p) * unit, sharing=0.3)
    assert found == pytest.approx(reward_rates(p, sharing=0.3), rel=1e-12)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=20), st.integers(1, 200))
def test_both_forms_of_the_set_size_agree(rates, clients):
    """1 + ceil(gamma (N-1)) = ceil(gamma' N), theory D1."""
    sizes = set_sizes(rates, clients)
    induced = induced_rates(rates, clients)
    assert sizes.tolist() == [math.ceil(g * clients - 1e-9) for g in induced]
    assert sizes.min() >= 1
    assert sizes.max() <= clients
    assert reference_size(rates, clients) == sizes.max()


def test_whole_numbers_are_not_rounded_up():
    assert 0.07 * 100 > 7
    assert set_sizes([k / 100 for k in range(101)], 101).tolist() == list(range(1, 102))


def test_reference_may_be_the_median():
    assert reference_size([0.0, 0.25, 1.0], 5, "median") == 2
    assert reference_size([0.0, 0.25, 1.0], 5, "max") == 5


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ([0.5, -0.1], {}, "contributions must not be negative, got -0.1 at position 1"),
        ([0.5, math.nan], {}, "contributions must be finite, got nan at position 1"),
        ([0.0, 0.0], {}, "contributions must not all be zero, got 2 zeros"),
        ([0.0, 0.0], {"ceiling": 1.0}, "contributions must not all be zero, got 2 zeros"),
        ([], {}, "contributions must not be empty, got 0 values"),
        ([0.5], {"sharing": 1.1}, "sharing must be between 0 and 1, got 1.1"),
        ([0.5], {"sharing": -0.1}, "sharing must be between 0 and 1, got -0.1"),
        ([0.5], {"ceiling": 0.0}, "ceiling must be positive, got 0.0"),
        ([0.5], {"ceiling": math.inf}, "ceiling must be finite, got inf"),
    ],
)
def test_bad_input(arguments, options, message):
    with pytest.raises(InvalidValue) as error:
        reward_rates(arguments, **options)
    assert str(error.value) == message


def test_bad_rates():
    with pytest.raises(InvalidValue, match=r"rates must not exceed 1, got 1\.5"):
        set_sizes([1.5], 4)
    with pytest.raises(InvalidValue, match="clients must be a whole number of at least 1, got 0"):
        set_sizes([0.5], 0)
    with pytest.raises(InvalidValue, match="reference must be one of max, median, got 'mean'"):
        reference_size([0.5], 4, "mean")


def test_a_tiny_ceiling_does_not_overflow():
    assert reward_rates([1e300, 1e-300], ceiling=1e-300, sharing=0.0).tolist() == [1.0, 1.0]
