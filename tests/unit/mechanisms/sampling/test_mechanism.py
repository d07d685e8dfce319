"""Averaging under a contract: the terms are its, the coins are fair, the money is the payments."""

import math
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest

from bonafed import InvalidValue, TruncatedExponential, Uniform
from bonafed.contracts.published import Agreement
from bonafed.contracts.terms import Turns
from bonafed.mechanisms import paid_rounds
from bonafed.mechanisms.sampling import complete_information, plan
from bonafed.mechanisms.sampling import mechanism as sampled
from bonafed.mechanisms.sampling.convergence import proposition_1_rates
from bonafed.mechanisms.sampling.section import SamplingSection

BELIEF = Uniform(0.5, 1.5)
COSTS = sampled.draw_costs(BELIEF, 30, seed=4)
NAMES = tuple(map(str, range(30)))


def terms(scheme="optimal", budget=1500.0, **options):
    section = SamplingSection(budget, BELIEF, scheme, **options)
    reports = dict(zip(NAMES, COSTS.tolist(), strict=True))
    return sampled.plan_contract(section, 30, 100).settle(reports)


def participation(agreed, seed, round_number):
    return paid_rounds.participation(agreed, Agreement(None), seed, round_number)


def test_the_terms_are_those_of_the_contract():
    q, r = plan(BELIEF, 1500.0, 30, 100).menu.price(COSTS)
    assert np.array_equal(terms().probability, q)
    assert np.array_equal(terms().payment, r)
    shrunk = plan(BELIEF, 1500.0, 30, 100, confidence=0.9).menu.price(COSTS)
    assert np.array_equal(terms(confidence=0.9).probability, shrunk[0])
    assert np.all(shrunk[0] < q)


def test_the_benchmarks_commit_the_same_money():
    uniform, known = terms("uniform"), terms("complete information")
    assert np.allclose(uniform.probability, 0.5 / 1.5, rtol=1e-12)
    assert np.all(uniform.payment == 1.5)
    assert math.isclose(uniform.expected_spend, 1500.0, rel_tol=1e-12)
    assert np.array_equal(known.payment, COSTS)
    assert math.isclose(known.expected_spend, 1500.0, rel_tol=1e-9)
    assert math.isclose(known.sampling_term, complete_information(COSTS, 0.5).sampling_term)
    assert math.isclose(uniform.sampling_term, 30 * 3.0, rel_tol=1e-12)  # a sum over clients, as everywhere
    assert known.sampling_term < terms().sampling_term < uniform.sampling_term


def test_every_client_is_in_as_often_as_agreed_and_weighs_as_much():
    agreed = terms()
    counts, weighted = np.zeros(30), np.zeros(30)
    for number in range(1, 4001):
        who = participation(agreed, 1, number)
        counts[who.clients] += 1
        weighted[who.clients] += who.weights
    q = agreed.probability
    assert np.all(np.abs(counts / 4000 - q) < 5 * np.sqrt(q * (1 - q) / 4000))
    assert np.allclose(weighted * q * 30, counts)  # each time 1/(N q)
    assert np.all(np.abs(weighted / 4000 * 30 - 1) < 5 * np.sqrt((1 / q - 1) / 4000))


def test_the_coins_of_a_round_depend_on_seed_and_round_alone():
    def who(seed, number):
        return tuple(participation(terms(), seed, number).clients)

    assert who(1, 2) == who(1, 2)
    assert len({who(seed, number) for seed in range(5) for number in range(5)}) > 20


def test_a_round_costs_the_payments_of_those_in_it():
    agreed = terms()
    who = participation(agreed, 0, 1)
    assert who.clients.size
    turns = Turns.of(np.bincount(who.clients, minlength=len(agreed.clients)))
    due = agreed.due_in(1, who.clients.tolist(), turns)
    assert due == math.fsum(agreed.payment[c] for c in who.clients)


def test_costs_come_from_the_prior_and_the_seed():
    prior = TruncatedExponential(1.0, 0.2, 3.0)
    costs = sampled.draw_costs(prior, 4000, seed=2)
    assert np.array_equal(costs, sampled.draw_costs(prior, 4000, seed=2))
    assert prior.low <= costs.min() <= costs.max() <= prior.high
    assert abs(costs.mean() - prior.mean) < 5 * costs.std() / math.sqrt(4000)


def rules(**options):
    section = SamplingSection(1500.0, **options)
    anybody = SimpleNamespace(question=SimpleNamespace(names=()))  # a contract that lists no names
    return sampled.SamplingRules(SimpleNamespace(own=section), anybody, None)


def test_simulated_costs_may_be_drawn_from_what_nobody_believes():
    skewed = TruncatedExponential(1.0, 0.2, 1.5)
    drawn = sampled.draw_costs(skewed, 50, seed=3)
    for options in (
        {"prior": BELIEF, "costs": "exponential:1,0.2,1.5"},
        {"scheme": "prior-free", "highest": 1.5, "costs": skewed},
    ):
        assert np.array_equal(rules(**options, cost_seed=3).question.simulate(50), drawn)
    believed = rules(prior=BELIEF, cost_seed=3).question.simulate(50)
    assert np.array_equal(believed, sampled.draw_costs(BELIEF, 50, seed=3))
    section = SamplingSection(1500.0, BELIEF, costs=skewed)
    assert section.table()["costs"] == skewed.to_json()


def test_what_makes_no_sense_is_refused():
    with pytest.raises(
        InvalidValue, match=r"^scheme must be one of optimal, uniform, complete information"
    ):
        terms("cheap")
    with pytest.raises(InvalidValue, match=r"^confidence must not be given unless scheme is optimal"):
        terms("uniform", confidence=0.9)
    with pytest.raises(InvalidValue, match=r"^total_budget must be positive"):
        terms(budget=0.0)
    with pytest.raises(InvalidValue, match=r"^strong_convexity must not exceed smoothness"):
        proposition_1_rates(1.0, 2.0, 4, 10)


def test_listing_runs_does_not_import_torch():
    heavy = {"torch", "sklearn", "matplotlib"}
    program = f"import sys, bonafed.runs.listing; print(sorted({heavy} & {{*sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
