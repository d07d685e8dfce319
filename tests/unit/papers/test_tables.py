"""Rules of settings that hold several values, and averages over one axis."""

import numpy as np
import pytest

from bonafed import checks
from bonafed.errors import InvalidValue
from bonafed.papers import tables


def test_increasing_numbers():
    assert tables.increasing("points", [0, 1], zero=True).tolist() == [0, 1]
    for values, rule in (([2, 1], "increasing"), ([0, 1], "positive"), ([1], "at least 2 numbers")):
        with pytest.raises(InvalidValue, match=f"^points must be {rule}"):
            tables.increasing("points", values, at_least=2)


def test_several_values_each_once():
    rule = tables.several(checks.positive)
    assert rule("alphas", 1.0) == (1.0,)
    assert rule("alphas", [2, 1, 2]) == (2.0, 1.0)
    with pytest.raises(InvalidValue, match="alphas must have at least one entry, got none"):
        rule("alphas", [])


def test_the_spread_of_one_value_is_nothing():
    once, twice = tables.average(np.ones((1, 2))), tables.average(np.array([[1.0, 2.0], [3.0, 2.0]]))
    assert once.sd.tolist() == [0, 0]
    assert (twice.mean.tolist(), twice.sd.tolist()) == ([2, 2], [pytest.approx(2**0.5), 0])
