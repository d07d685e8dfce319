"""Arguments of the noise calibration; its numbers are in tests/vectors."""

import math

import pytest

from bonafed.errors import InvalidValue
from bonafed.learning.privacy import noise_multiplier, spent_epsilon


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: noise_multiplier(0.0, 1e-5), "epsilon must be positive, got 0.0"),
        (lambda: noise_multiplier(float("inf"), 1e-5), "epsilon must be finite, got inf"),
        (lambda: noise_multiplier(1e-101, 1e-5), "epsilon must be between 1e-100 and 1e+100, got 1e-101"),
        (lambda: noise_multiplier(1e101, 1e-5), "epsilon must be between 1e-100 and 1e+100, got 1e+101"),
        (lambda: noise_multiplier(1.0, 0.0), "delta must be between 0 and 1, ends excluded, got 0.0"),
        (lambda: noise_multiplier(1.0, 1.0), "delta must be between 0 and 1, ends excluded, got 1.0"),
        (lambda: noise_multiplier(1.0, 1e-5, 0), "releases must be a whole number of at least 1, got 0"),
        (
            lambda: noise_multiplier(1.0, 1e-5, variant="rdp"),
            "variant must be one of exact, zcdp, printed, got 'rdp'",
        ),
        (lambda: spent_epsilon(-1.0, 1, 1e-5), "multiplier must be positive, got -1.0"),
        (lambda: spent_epsilon(1.0, 1.5, 1e-5), "releases must be a whole number of at least 1, got 1.5"),
        (lambda: spent_epsilon(1.0, 1, 2.0), "delta must be between 0 and 1, ends excluded, got 2.0"),
    ],
)
def test_bad_arguments(call, said):
    with pytest.raises(InvalidValue) as caught:
        call()
    assert str(caught.value) == said


@pytest.mark.parametrize("variant", ["exact", "zcdp", "printed"])
def test_noise_grows_with_the_root_of_the_releases(variant):
    one = noise_multiplier(1.0, 1e-5, 1, variant)
    assert noise_multiplier(1.0, 1e-5, 49, variant) == pytest.approx(7 * one, rel=1e-14)


def test_less_privacy_needs_less_noise():
    noises = [noise_multiplier(eps, 1e-5) for eps in (0.1, 1.0, 10.0, 100.0)]
    assert noises == sorted(noises, reverse=True)
    assert noise_multiplier(1.0, 1e-3) < noise_multiplier(1.0, 1e-6)


def test_small_epsilon_keeps_its_digits_by_zero_concentrated_privacy():
    """sqrt(a + eps) - sqrt(a) is close to eps/(2 sqrt(a))."""
    a = math.log(1e5)
    assert noise_multiplier(1e-10, 1e-5, 2, "zcdp") == pytest.approx(2 * math.sqrt(a) / 1e-10, rel=1e-9)
