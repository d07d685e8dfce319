"""Noise multipliers against reference numbers, and the promise itself at 60 digits."""

import json
import math
from pathlib import Path

import mpmath
import pytest
from dp_accounting import get_sigma_gaussian
from hypothesis import given
from hypothesis import strategies as st

from bonafed.learning.privacy import calibration, noise_multiplier, spent_epsilon
from tests.oracles.privacy import delta_of

VECTORS = json.loads((Path(__file__).parent / "dp_noise.json").read_text())


def _name(v):
    return f"eps{v['eps']}-T{v['T_k']}"


@pytest.mark.parametrize("v", VECTORS, ids=_name)
def test_exact_noise(v):
    assert noise_multiplier(v["eps"], v["delta"], v["T_k"]) == pytest.approx(v["sigma_exact_gdp"], rel=1e-9)


@pytest.mark.parametrize("v", VECTORS, ids=_name)
def test_noise_by_zero_concentrated_privacy(v):
    sigma = noise_multiplier(v["eps"], v["delta"], v["T_k"], variant="zcdp")
    assert sigma == pytest.approx(v["sigma_zcdp"], rel=1e-9)


@pytest.mark.parametrize("v", VECTORS, ids=_name)
def test_spent_epsilon_inverts_the_reference_noise(v):
    assert spent_epsilon(v["sigma_exact_gdp"], v["T_k"], v["delta"]) == pytest.approx(v["eps"], rel=1e-9)


EPSILONS = st.floats(-3, 2).map(lambda x: 10.0**x)
DELTAS = st.floats(-12, -1).map(lambda x: 10.0**x)
RELEASES = st.integers(1, 10_000)


@given(EPSILONS, DELTAS, RELEASES)
def test_the_promise_holds_after_rounding(eps, delta, releases):
    """The delta really reached at the promised epsilon, at 60 digits, is not above the promise."""
    sigma = noise_multiplier(eps, delta, releases)
    assert delta_of(sigma, releases, eps) <= delta


@given(EPSILONS, DELTAS, RELEASES)
def test_no_noise_is_wasted(eps, delta, releases):
    sigma = noise_multiplier(eps, delta, releases)
    assert delta_of(sigma * (1 - 1e-9), releases, eps) > delta


@given(EPSILONS, DELTAS, RELEASES)
def test_spent_epsilon_of_calibrated_noise_is_within_the_promise(eps, delta, releases):
    spent = spent_epsilon(noise_multiplier(eps, delta, releases), releases, delta)
    assert spent <= eps
    assert spent == pytest.approx(eps, rel=1e-8)


@given(EPSILONS, DELTAS, RELEASES)
def test_zero_concentrated_privacy_needs_more_noise(eps, delta, releases):
    assert noise_multiplier(eps, delta, releases, "zcdp") > noise_multiplier(eps, delta, releases)


@given(EPSILONS, DELTAS, RELEASES)
def test_exact_noise_is_that_of_another_program(eps, delta, releases):
    other = math.sqrt(releases) * get_sigma_gaussian(eps, delta, tol=1e-14)
    assert noise_multiplier(eps, delta, releases) == pytest.approx(other, rel=1e-10)


@given(st.floats(-20, 2).map(lambda x: 10.0**x), st.floats(-39, 9))
def test_the_logarithm_of_delta_keeps_its_digits(mu, a):
    """For all deltas that are numbers of double precision: within a fifth of the margin."""
    eps = max(mu / 2 - a, 0.0) * mu
    exact = mpmath.log(delta_of(1 / mpmath.mpf(mu), 1, eps, digits=100))
    rounding_of_a = 1e-15 * (mu + abs(a)) * (1 + abs(a))
    assert abs(exact - calibration._log_delta(mu, eps)) <= calibration.MARGIN / 5 + rounding_of_a


EXTREME = [
    (1e-4, 1e-12),
    (1e-3, 1e-30),
    (1e-9, 1e-200),
    (1e-12, 1e-40),
    (1e-9, 0.1),
    (1e-50, 1e-50),
    (1e-100, 1e-300),
    (1e-100, 0.5),
    (0.1, 5e-324),
    (1.0, 1 - 1e-15),
    (1e5, 1e-300),
    (1e100, 1e-5),
]


@pytest.mark.parametrize(("eps", "delta"), EXTREME)
@pytest.mark.parametrize("releases", [1, 777])
def test_the_promise_holds_for_extreme_values(eps, delta, releases):
    """Whether just kept, and whether what is read back from the noise is a promise that holds."""
    sigma = noise_multiplier(eps, delta, releases)
    assert delta_of(sigma, releases, eps, digits=500) <= delta
    if delta < 0.9:  # near 1 nothing is left to tell
        assert delta_of(sigma * (1 - 1e-9), releases, eps, digits=500) > delta
    spent = spent_epsilon(sigma, releases, delta)
    assert spent <= eps
    assert delta_of(sigma, releases, spent, digits=500) <= delta


@given(st.floats(-5, 8).map(lambda x: 10.0**x), st.floats(-300, -0.1).map(lambda x: 10.0**x))
def test_the_epsilon_read_back_is_no_promise_that_breaks(sigma, delta):
    assert delta_of(sigma, 1, spent_epsilon(sigma, 1, delta), digits=100) <= delta
