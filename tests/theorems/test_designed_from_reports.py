"""A contract made from the reports it is settled for is not truthful; prior-free rules are."""

import numpy as np
import pytest

from bonafed.economics import Discrete, Empirical, Uniform
from bonafed.mechanisms.sampling import PriorFreeSampling, plan, settle_contract
from bonafed.mechanisms.sampling.settlement import (
    designed_from_reports,
    overspending,
    reports_behind_prior,
)

COSTS = np.array([2.0, 3.5, 4.0, 5.5, 6.0, 7.5, 8.0, 9.5])
BUDGET, ROUNDS, LAST = 4000, 100, 7


def stating(report):
    stated = COSTS.copy()
    stated[LAST] = report
    return stated


def settled(past, stated):
    contract = plan(Empirical(past, past.max()), BUDGET, stated.size, ROUNDS)
    return contract, settle_contract(contract, stated)


def left_with(terms):
    """What the last client is left with over the run."""
    return ROUNDS * terms.probability[LAST] * (terms.payment[LAST] - COSTS[LAST])


def test_overstating_pays_where_the_reports_made_the_contract():
    """A client of cost 9.5 gains 124 by stating 15: the highest cost admitted is its own report."""
    honest = left_with(settled(COSTS, COSTS)[1])
    lying = left_with(settled(stating(15), stating(15))[1])
    assert (honest, lying) == (0, pytest.approx(124.38, abs=0.01))


def test_it_does_not_pay_where_others_made_it():
    past = np.append(COSTS + 0.1, 20.0)
    honest = left_with(settled(past, COSTS)[1])
    for report in np.linspace(0, 20, 81):
        assert left_with(settled(past, stating(report))[1]) <= honest + 1e-9


def test_it_does_not_pay_under_prior_free_rules():
    rules = PriorFreeSampling(COSTS.size, BUDGET / ROUNDS, highest=20.0)
    for place in (0, 3, 7):

        def utility(report, place=place):
            stated = COSTS.copy()
            stated[place] = report
            done = rules.run(stated)
            return done.probability[place] * (done.payment[place] - COSTS[place])

        assert max(utility(z) for z in np.linspace(0, 20, 81)) <= utility(COSTS[place]) + 1e-9


def test_settling_says_so():
    contract, terms = settled(COSTS, COSTS[::-1])  # in another order
    assert reports_behind_prior(contract, terms.reports) == 8
    (said,) = designed_from_reports(contract, terms)
    assert said.startswith("8 of 8 reports are among the past costs")
    assert "--prior-free" in said


@pytest.mark.parametrize(("shared", "says"), [(8, True), (4, True), (3, False), (0, False)])
def test_from_half_of_the_reports_on(shared, says):
    stated = COSTS + np.where(np.arange(8) < shared, 0.0, 0.01)
    contract, terms = settled(np.append(COSTS, 12.0), stated)
    assert reports_behind_prior(contract, stated) == shared
    assert bool(designed_from_reports(contract, terms)) == says


def test_a_past_cost_stands_for_one_report():
    contract, terms = settled(np.array([2.0, 5.0, 9.5]), np.full(8, 2.0))
    assert reports_behind_prior(contract, terms.reports) == 1
    assert not designed_from_reports(contract, terms)


def test_known_priors_and_groups_apart():
    for prior in (Uniform(0, 10), Discrete(COSTS, np.full(8, 1 / 8))):
        assert reports_behind_prior(plan(prior, BUDGET, 8, ROUNDS), COSTS) == 0
    priors = [Empirical(COSTS[:4], 10.0)] * 4 + [Uniform(0, 10)] * 4
    contract = plan(None, BUDGET, 8, ROUNDS, priors=priors)
    assert reports_behind_prior(contract, COSTS) == 4
    assert reports_behind_prior(contract, COSTS[::-1]) == 0


def test_settling_says_that_cheap_reports_cost_more_than_the_budget():
    contract = plan(Uniform(0.5, 1.5), 150, 3, 100)
    (said,) = overspending(settle_contract(contract, [0.5, 0.6, 0.7]))
    assert "exceeds the budget of 150" in said
    assert overspending(settle_contract(contract, [1.2, 1.3, 1.4])) == []
