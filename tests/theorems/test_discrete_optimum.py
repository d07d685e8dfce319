"""Theorem 2 for finite priors, regular and not (theory A1 to A4)."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bonafed.economics import Discrete
from bonafed.mechanisms.sampling import optimal_menu, uniform_menu
from tests.oracles import finite
from tests.theorems.strategies import BUDGET_SHARES, discrete_priors

CASES = given(discrete_priors(), BUDGET_SHARES)


@CASES
def test_probabilities_do_not_rise_with_the_cost(prior, share):
    q = optimal_menu(prior, share * prior.high).probability(prior.costs)
    assert np.all(np.diff(q) <= 0)
    assert np.all((q > 0) & (q <= 1))


@CASES
def test_payments_cover_costs_exactly(prior, share):
    menu = optimal_menu(prior, share * prior.high)
    assert np.all(menu.payment(prior.costs) >= prior.costs)
    assert menu.payment(prior.high) == prior.high


@CASES
def test_budget_is_kept_exactly_and_used_fully(prior, share):
    budget = share * prior.high
    menu = optimal_menu(prior, budget)
    assert menu.expected_spend <= budget
    if np.any(menu.probabilities < 1):
        assert menu.expected_spend == pytest.approx(budget, rel=1e-12)


@CASES
def test_spend_is_that_of_the_payments(prior, share):
    """E[q r] from the published terms is E[q phi]: what the payments (16) really cost."""
    menu = optimal_menu(prior, share * prior.high)
    q = menu.probability(prior.costs)
    from_payments = prior.masses @ np.array(finite.expected_payments(prior.costs, q))
    assert from_payments == pytest.approx(menu.expected_spend, rel=1e-12)
    assert prior.masses @ menu.expected_payment(prior.costs) == pytest.approx(
        menu.expected_spend, rel=1e-14
    )


@CASES
def test_payments_are_those_of_equation_16(prior, share):
    menu = optimal_menu(prior, share * prior.high)
    q = menu.probability(prior.costs)
    expected = np.array(finite.expected_payments(prior.costs, q)) / q
    assert menu.payment(prior.costs) == pytest.approx(expected, rel=1e-12)


@CASES
def test_no_lie_pays(prior, share):
    """Every true cost against every report, on the support and between its points."""
    menu = optimal_menu(prior, share * prior.high)
    between = (prior.costs[1:] + prior.costs[:-1]) / 2
    costs = np.sort(np.concatenate([prior.costs, between]))
    honest = menu.utility(costs, costs)
    lying = menu.utility(costs[:, None], costs[None, :])
    slack = 1e-12 * menu.expected_payment(costs).max()
    assert np.all(lying <= honest[:, None] + slack)
    assert np.all(honest >= 0)


@CASES
def test_terms_are_the_closed_form_at_fifty_digits(prior, share):
    budget = share * prior.high
    q = optimal_menu(prior, budget).probability(prior.costs)
    expected = np.array([float(x) for x in finite.optimum(prior.costs, prior.masses, budget)])
    assert q == pytest.approx(expected, rel=1e-10)


@given(discrete_priors(), st.integers(0, 7), st.sampled_from([-1, 0, 1]))
def test_budgets_on_the_border_of_two_cases(prior, m, side):
    """Budget = H(m), and the doubles next to it: q is continuous there (erratum S-E4)."""
    borders = finite.threshold_budgets(prior.costs, prior.masses)
    budget = float(borders[m % len(borders)])
    assume(0 < budget < prior.high)
    budget = np.nextafter(budget, np.inf * side) if side else budget
    menu = optimal_menu(prior, budget)
    expected = np.array([float(x) for x in finite.optimum(prior.costs, prior.masses, budget)])
    assert menu.probability(prior.costs) == pytest.approx(expected, rel=1e-10)
    assert menu.expected_spend <= budget


@st.composite
def solvable(draw):
    """Priors a general solver can handle: weights and costs within two decades."""
    size = draw(st.integers(1, 7))
    gaps = draw(st.lists(st.floats(0.05, 2.0), min_size=size, max_size=size))
    if size > 1 and draw(st.booleans()):
        gaps[0] = 0.0
    weights = np.array(draw(st.lists(st.floats(0.05, 1.0), min_size=size, max_size=size)))
    return Discrete(np.cumsum(gaps), weights / weights.sum())


@settings(max_examples=40)
@given(solvable(), st.floats(0.05, 0.98))
def test_no_other_truthful_contract_is_better(prior, share):
    """A convex solver over all monotone q and their payments (16) finds nothing below ours."""
    budget = share * prior.high
    ours = optimal_menu(prior, budget).expected_inverse_probability
    best, q = finite.solver_optimum(prior.costs, prior.masses, budget)
    assert ours <= best * (1 + 1e-6)
    assert best <= ours * (1 + 1e-6)  # the solver got there, so the line above means something
    assert optimal_menu(prior, budget).probability(prior.costs) == pytest.approx(q, abs=2e-3)


@CASES
def test_never_worse_than_uniform_sampling(prior, share):
    """E[q*] >= 1/E[1/q*] >= budget/highest for budgets up to the highest cost (theory A5)."""
    budget = min(share, 1.0) * prior.high
    menu = optimal_menu(prior, budget)
    harmonic = 1 / menu.expected_inverse_probability
    assert menu.expected_probability >= harmonic * (1 - 1e-12)
    assert harmonic >= budget / prior.high * (1 - 1e-12)
    assert harmonic >= float(uniform_menu(prior, budget).probability(prior.low)) * (1 - 1e-12)


@given(discrete_priors(), BUDGET_SHARES, st.sampled_from([0.5, 2.0, 1024.0]))
def test_units_do_not_matter(prior, share, unit):
    """Cents or euros: scaling costs and budget by a power of two changes no probability at all."""
    scaled = Discrete(prior.costs * unit, prior.masses)
    menu, other = optimal_menu(prior, share * prior.high), optimal_menu(scaled, share * prior.high * unit)
    q, q_scaled = menu.probability(prior.costs), other.probability(scaled.costs)
    assert q_scaled == pytest.approx(q, rel=1e-13)
    assert other.payment(scaled.costs) == pytest.approx(menu.payment(prior.costs) * unit, rel=1e-13)


@given(discrete_priors(), BUDGET_SHARES, BUDGET_SHARES)
def test_more_money_never_lowers_a_probability(prior, one, other):
    poor, rich = sorted([one, other])
    q_poor = optimal_menu(prior, poor * prior.high).probability(prior.costs)
    q_rich = optimal_menu(prior, rich * prior.high).probability(prior.costs)
    assert np.all(q_poor <= q_rich * (1 + 1e-13))


@given(discrete_priors(), BUDGET_SHARES)
def test_uniform_menu_keeps_its_budget_exactly(prior, share):
    budget = share * prior.high
    menu = uniform_menu(prior, budget)
    q = float(menu.probability(prior.low))
    assert q * prior.high <= budget
    assert menu.expected_spend <= budget
    assert q == pytest.approx(min(1.0, share), rel=1e-15)
    assert np.all(menu.payment(prior.costs) == prior.high)


@given(st.integers(1, 120), st.floats(0.05, 0.99), st.integers(0, 2**32 - 1))
@settings(max_examples=10)
def test_many_levels(size, share, seed):
    """Empirical-sized supports: still exact against the hull at 50 digits, still within budget."""
    rng = np.random.default_rng(seed)
    costs = np.cumsum(rng.exponential(size=size))
    prior = Discrete(costs, rng.dirichlet(np.ones(size)) + 0.0)
    budget = share * prior.high
    menu = optimal_menu(prior, budget)
    expected = np.array([float(x) for x in finite.optimum(prior.costs, prior.masses, budget)])
    assert menu.probability(prior.costs) == pytest.approx(expected, rel=1e-9)
    assert menu.expected_spend <= budget
