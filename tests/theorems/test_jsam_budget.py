"""Money instead of eta: within the budget, and as close to it as the jumps allow."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bonafed.economics import Discrete, TruncatedExponential, Uniform
from bonafed.errors import NoSolution
from bonafed.mechanisms.jsam import (
    Cheapest,
    Jsam,
    eta_for_budget,
    eta_for_expected_budget,
    settle,
    unbiased,
)
from bonafed.mechanisms.jsam.budget import largest_weight
from tests.theorems.strategies import fewer, powers_of_ten

UNIFORM = Uniform(0, 1)
RULES = [None, Cheapest(2), unbiased(5)]


def close_or_jumping(found, reports, prior, budget, q, rule):
    spend = found.settlement.spend
    beyond = settle(reports, prior, found.eta * (1 + 4e-9), q, rule=rule).spend
    return spend <= budget and (spend >= budget * (1 - 1e-6) or beyond > budget)


@given(st.lists(st.floats(0.01, 1.0), min_size=5, max_size=5), powers_of_ten(-3, 3), st.sampled_from(RULES))
@fewer(0.2)
def test_the_budget_is_spent_and_not_exceeded(reports, budget, rule):
    found = eta_for_budget(reports, UNIFORM, budget, 0.7, rule=rule)
    assert close_or_jumping(found, reports, UNIFORM, budget, 0.7, rule)
    again = settle(reports, UNIFORM, found.eta, 0.7, rule=rule)
    assert again.payment.tolist() == found.settlement.payment.tolist()


@pytest.mark.parametrize("budget", [0.05, 0.7])
@pytest.mark.parametrize(
    "prior",
    [TruncatedExponential(1.0, 0.05, 2.0), Discrete([0.3, 0.5, 0.9, 1.4], [0.4, 0.1, 0.2, 0.3])],
    ids=["exponential", "discrete"],
)
def test_the_budget_under_other_priors(prior, budget):
    reports = prior.sample(np.random.default_rng(1), 4)
    found = eta_for_budget(reports, prior, budget, 1.0)
    assert close_or_jumping(found, reports, prior, budget, 1.0, None)


def test_a_jump_can_leave_money_over():
    """Where one more client enters, the payments jump over the budget."""
    reports = [0.12, 0.35, 0.5, 0.71, 0.93]
    left = [
        1 - eta_for_budget(reports, UNIFORM, budget, 1.0).settlement.spend / budget
        for budget in np.linspace(0.2, 2.5, 12)
    ]
    assert min(left) >= 0
    assert max(left) > 1e-3
    assert np.median(left) < 1e-6


@pytest.mark.parametrize("rule", RULES)
def test_more_money_never_makes_a_smaller_weight(rule):
    reports = [0.12, 0.35, 0.5, 0.71, 0.93]
    weights = [eta_for_budget(reports, UNIFORM, b, 1.0, rule=rule).eta for b in np.geomspace(0.05, 20, 6)]
    assert np.all(np.diff(weights) > 0)


@pytest.mark.parametrize(("rule", "budget"), list(zip(RULES, [2.0, 0.2, 9.0], strict=True)))
def test_expected_budget(rule, budget):
    """On fresh draws the mean of the payments is the budget, within sampling error."""
    eta = eta_for_expected_budget(UNIFORM, 5, budget, 0.7, rule=rule, samples=50, seed=1)
    rng = np.random.default_rng(99)
    spent = [settle(UNIFORM.sample(rng, 5), UNIFORM, eta, 0.7, rule=rule).spend for _ in range(100)]
    totals = [(rule or Jsam()).plan(2 * rng.random(5), eta, 0.7).total for _ in range(100)]
    error = np.sqrt(np.var(spent, ddof=1) / 100 + np.var(totals, ddof=1) / 50)
    assert abs(np.mean(spent) - budget) <= 4 * error
    assert error < 0.08 * budget


@pytest.mark.parametrize("rule", [None, unbiased(10)])
def test_expected_budget_with_an_atom_at_zero(rule):
    prior, rng = Discrete([0.0, 1.0], [0.5, 0.5]), np.random.default_rng(5)
    eta = eta_for_expected_budget(prior, 10, 10.0, 1.0, rule=rule, samples=300)
    done = [settle(prior.sample(rng, 10), prior, eta, 1.0, rule=rule) for _ in range(300)]
    spent, totals = [d.spend for d in done], [d.allocation.total for d in done]
    error = np.sqrt((np.var(spent, ddof=1) + np.var(totals, ddof=1)) / 300)
    assert abs(np.mean(spent) - 10) <= 4 * error
    assert error < 0.3


def test_expected_budget_on_its_own_draws_is_met_to_the_last_digits():
    eta = eta_for_expected_budget(UNIFORM, 6, 3.0, 0.7, rule=unbiased(6), samples=50, seed=5)
    rng = np.random.default_rng(np.random.SeedSequence(5))
    draws = [2 * np.maximum(UNIFORM.sample(rng, 6), 1e-6) for _ in range(50)]
    spent = np.mean([unbiased(6).plan(v, eta, 0.7).total for v in draws])
    assert 3.0 * (1 - 1e-8) <= spent <= 3.0


@given(powers_of_ten(-150, 150))
def test_the_search_finds_the_largest_that_is_allowed(limit):
    found = largest_weight(lambda eta: eta <= limit)
    assert found <= limit <= found * (1 + 1.1e-9)


def test_the_search_gives_up_in_words():
    with pytest.raises(NoSolution, match="no weight eta is small enough"):
        largest_weight(lambda eta: False)
    with pytest.raises(NoSolution, match="every weight eta stays within it"):
        largest_weight(lambda eta: True)
