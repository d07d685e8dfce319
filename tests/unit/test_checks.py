"""Each rule: what it lets through, and the one-line message for what it does not."""

import numpy as np
import pytest

from bonafed import checks
from bonafed.errors import InvalidValue

NAN, INF = float("nan"), float("inf")


def message(call):
    with pytest.raises(InvalidValue) as caught:
        call()
    return str(caught.value)


@pytest.mark.parametrize("value", [3, -2.5, 0, np.float32(0.5), np.int64(7)])
def test_numbers_pass(value):
    assert checks.number("x", value) == float(value)
    assert isinstance(checks.number("x", value), float)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("1", "x must be a number, got '1'"),
        (True, "x must be a number, got True"),
        (np.True_, "x must be a number, got np.True_"),
        (None, "x must be a number, got None"),
        ([1.0], "x must be a number, got [1.0]"),
        (NAN, "x must be finite, got nan"),
        (-INF, "x must be finite, got -inf"),
    ],
)
def test_what_is_no_number(value, said):
    assert message(lambda: checks.number("x", value)) == said


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: checks.positive("budget", 0), "budget must be positive, got 0.0"),
        (lambda: checks.positive("budget", -3.0), "budget must be positive, got -3.0"),
        (lambda: checks.positive("budget", INF), "budget must be finite, got inf"),
        (lambda: checks.non_negative("delta", -1e-9), "delta must not be negative, got -1e-09"),
        (lambda: checks.whole("rounds", 0), "rounds must be a whole number of at least 1, got 0"),
        (lambda: checks.whole("rounds", 2.5), "rounds must be a whole number of at least 1, got 2.5"),
        (lambda: checks.whole("n", 2, at_least=3), "n must be a whole number of at least 3, got 2"),
        (lambda: checks.whole("rounds", NAN), "rounds must be finite, got nan"),
        (lambda: checks.between("p", 1.2, 0, 1), "p must be between 0 and 1, got 1.2"),
        (lambda: checks.between("p", -0.1, 0, 1), "p must be between 0 and 1, got -0.1"),
        (lambda: checks.one_of("kind", "c", ("a", "b")), "kind must be one of a, b, got 'c'"),
        (lambda: checks.one_of("kind", None, ("a", "b")), "kind must be one of a, b, got None"),
        (lambda: checks.support(-1, 2), "low must not be negative, got -1.0"),
        (lambda: checks.support(2, 2), "low must be below high = 2, got 2.0"),
        (lambda: checks.support(0, INF), "high must be finite: truncate an unbounded prior, got inf"),
        (lambda: checks.support(0, "1"), "high must be a number, got '1'"),
    ],
)
def test_messages_say_name_rule_and_value(call, said):
    assert message(call) == said


def test_values_that_pass_come_back_as_plain_numbers():
    assert checks.positive("x", np.float64(2)) == 2.0
    assert checks.non_negative("x", 0) == 0.0
    assert checks.whole("x", 3.0) == 3
    assert isinstance(checks.whole("x", 3.0), int)
    assert checks.whole("x", 0, at_least=0) == 0
    assert checks.between("x", 1, 0, 1) == 1.0
    assert checks.one_of("x", "b", ("a", "b")) == "b"
    assert checks.support(0, 1) == (0.0, 1.0)
    assert checks.support(1, 1, single=True) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("values", "options", "said"),
    [
        ("abc", {}, "v must be a list of numbers, got 'abc'"),
        ([[1.0]], {}, "v must be one-dimensional, got shape (1, 1)"),
        (3.0, {}, "v must be one-dimensional, got shape ()"),
        ([], {}, "v must not be empty, got 0 values"),
        ([1, 2], {"length": 3}, "v must have 3 values, got 2"),
        ([1, NAN], {}, "v must be finite, got nan at position 1"),
        ([1, -2], {}, "v must not be negative, got -2 at position 1"),
        ([0, 1], {"sign": "positive"}, "v must be positive, got 0 at position 0"),
    ],
)
def test_vectors(values, options, said):
    assert message(lambda: checks.vector("v", values, **options)) == said


def test_an_integer_is_not_rounded():
    assert checks.whole("n", 2**53 + 1) == 2**53 + 1
    assert checks.whole("n", np.int64(2**53 + 1)) == 2**53 + 1
    assert type(checks.whole("n", np.int64(7))) is int


def test_a_number_of_things_is_bounded():
    assert checks.whole("n", 10**17) == 10**17
    assert message(lambda: checks.whole("n", 10**17 + 1)) == f"n must not exceed {10**17}, got {10**17 + 1}"
    assert message(lambda: checks.whole("n", 1e20)) == f"n must not exceed {10**17}, got {10**20}"
    assert message(lambda: checks.whole("n", 8, at_most=7)) == "n must not exceed 7, got 8"


@pytest.mark.parametrize("digits", [400, 10_000])
def test_an_integer_no_double_holds_is_refused(digits):
    large = 10**digits
    said = "x must be below 1.8e308 in size, got a larger integer"
    for call in (checks.number, checks.whole, checks.positive):
        assert message(lambda call=call: call("x", large)) == said
    assert message(lambda: checks.vector("x", [1.0, large])) == said
    assert message(lambda: checks.support(0, large)) == said.replace("x", "high", 1)


def test_seeds():
    assert checks.seed("seed", 2**64 - 1) == 2**64 - 1
    assert message(lambda: checks.seed("seed", 2**64)) == f"seed must not exceed {2**64 - 1}, got {2**64}"
    assert message(lambda: checks.seed("seed", -1)) == "seed must be a whole number of at least 0, got -1"


def test_a_vector_is_a_read_only_copy():
    mine = np.array([1.0, 2.0])
    result = checks.vector("v", mine)
    mine[0] = 9.0
    assert result.tolist() == [1.0, 2.0]
    with pytest.raises(ValueError, match="read-only"):
        result[0] = 3.0
    assert checks.vector("v", [-1.0], sign="any").tolist() == [-1.0]


def test_shares():
    assert message(lambda: checks.shares("w", [0.5, 0.4])) == "w must sum to 1, got sum 0.9"
    assert message(lambda: checks.shares("w", [1.0, 0.0])) == "w must be positive, got 0 at position 1"
    assert checks.shares("w", [0.3, 0.7 + 1e-10]).sum() == pytest.approx(1.0, abs=1e-15)
    assert not checks.shares("w", [1.0]).flags.writeable


@pytest.mark.parametrize(
    "values",
    [["0_1", "1"], [1, "2"], "1", ("1",), np.array(["1"]), np.array([1, "2"], dtype=object), [[1], ["2"]]],
)
def test_text_is_no_list_of_numbers(values):
    said = message(lambda: checks.vector("x", values))
    assert said.startswith("x must be a list of numbers, got ")
