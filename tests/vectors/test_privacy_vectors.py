"""Noise multipliers against reference numbers, and the promise itself at 60 digits."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bonafed.learning.privacy import noise_multiplier, spent_epsilon
from tests.oracles.privacy import delta_of

VECTORS = json.loads((Path(__file__).parent / "dp_noise.json").read_text())


def _name(v):
    return f"eps{v['eps']}-T{v['T_k']}"


@pytest.mark.parametrize("v", VECTORS, ids=_name)
def test_exact_noise(v):
    assert noise_multiplier(v["eps"], v["delta"], v["T_k"]) == pytest.approx(v["sigma_exact_gdp"], rel=1e-9)


@pytest.mark.parametrize("v", VECTORS, ids=_name)
def test_printed_noise(v):
    sigma = noise_multiplier(v["eps"], v["delta"], v["T_k"], variant="printed")
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
def test_printed_route_needs_more_noise(eps, delta, releases):
    assert noise_multiplier(eps, delta, releases, "printed") > noise_multiplier(eps, delta, releases)
