"""The benchmark of known costs (theory A5): optimality conditions, written out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bonafed.economics import Discrete
from bonafed.mechanisms.sampling import complete_information, complete_information_population, optimal_menu
from tests.oracles import finite
from tests.theorems.strategies import BUDGET_SHARES, discrete_priors, powers_of_ten

CLIENTS = st.lists(
    st.tuples(st.one_of(st.just(0.0), powers_of_ten(-2, 1)), powers_of_ten(-1, 1)), min_size=1, max_size=12
)


@given(CLIENTS, st.floats(0.01, 1.2))
def test_optimality_conditions(clients, share):
    c, s = map(np.array, zip(*clients, strict=True))
    total = max(share * c.sum(), 1e-3)
    found = complete_information(c, total / c.size, s)
    q = found.probability
    assert np.all((q > 0) & (q <= 1))
    assert np.array_equal(found.payment, c)
    if c.sum() <= total:
        assert np.all(q == 1)
        return
    assert found.expected_spend == pytest.approx(total, rel=1e-12)
    # One multiplier for all: s/(q^2 c) is the same where q < 1 and not below it where q = 1.
    with np.errstate(divide="ignore"):
        multiplier = s / (q**2 * c)
    inside = q < 1
    assert inside.any()
    assert multiplier[inside] == pytest.approx(np.full(inside.sum(), multiplier[inside][0]), rel=1e-10)
    assert np.all(multiplier[~inside] >= multiplier[inside].max() * (1 - 1e-10))
    assert q == pytest.approx(finite.complete_information(c.tolist(), s.tolist(), total), rel=1e-10)
    assert found.sampling_term == pytest.approx(float(np.sum(s / q)), rel=1e-13)


@given(discrete_priors(), BUDGET_SHARES)
def test_population_is_the_limit_of_equal_shares(prior, share):
    """A population of clients in exactly the proportions of the prior gets the population's terms."""
    budget = share * prior.mean
    rule = complete_information_population(prior, budget)
    q = rule.probability(prior.costs)
    spend = float(prior.masses @ (q * prior.costs))
    assert spend <= budget * (1 + 1e-12)
    if np.any(q < 1):
        assert spend == pytest.approx(budget, rel=1e-11)
        assert rule.expected_spend == pytest.approx(spend, rel=1e-11)
    assert rule.expected_probability == pytest.approx(float(prior.masses @ q), rel=1e-11)
    assert rule.expected_inverse_probability == pytest.approx(float(prior.masses @ (1 / q)), rel=1e-11)


@given(discrete_priors(), st.floats(0.01, 0.99))
def test_knowing_the_costs_is_never_worse(prior, share):
    budget = share * prior.high
    known = complete_information_population(prior, budget)
    truthful = optimal_menu(prior, budget)
    assert known.expected_inverse_probability <= truthful.expected_inverse_probability * (1 + 1e-11)


def test_proportions():
    """Three cheap and one dear client, or the discrete prior of the same proportions."""
    prior = Discrete([0.5, 2.0], [0.75, 0.25])
    each = complete_information([0.5, 0.5, 0.5, 2.0], 0.4)
    rule = complete_information_population(prior, 0.4)
    assert rule.probability([0.5, 0.5, 0.5, 2.0]) == pytest.approx(each.probability, rel=1e-13)
