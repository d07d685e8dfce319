"""JSAM schemes and rules: settled by the mechanism, drawn once, nobody gives away more than it sold."""

import math
import subprocess
import sys

import numpy as np
import pytest

from bonafed import InvalidValue, TruncatedExponential, Uniform
from bonafed.contracts.published import Agreement
from bonafed.contracts.terms import Turns
from bonafed.learning.federation import Roster
from bonafed.learning.privacy import Ledger, Release, noise_multiplier
from bonafed.learning.sections import Data, Model, Partition, Run, Training
from bonafed.learning.work import LocalTraining
from bonafed.mechanisms.jsam import (
    Cheapest,
    allocate,
    eta_for_budget,
    eta_for_expected_budget,
    largest_losses,
    settle,
    unbiased,
)
from bonafed.mechanisms.jsam import schemes as jsam
from bonafed.mechanisms.jsam.budget import largest_weight
from bonafed.mechanisms.jsam.mechanism import BoughtPrivacy, draw_schedule
from bonafed.mechanisms.jsam.section import JsamSection
from bonafed.mechanisms.jsam.terms import JsamTerms
from bonafed.mechanisms.promises import Promise, noise_multipliers
from bonafed.mechanisms.protocol import Config

BELIEF = Uniform(0, 1)
COSTS = jsam.draw_costs(BELIEF, 30, seed=4)
LOSSES = np.random.default_rng(0).random(30)


def settled(scheme="jsam", **options):
    if not {"eta", "budget", "expected_budget"} & set(options):
        options["eta"] = 5.0
    return jsam.settle_scheme(BELIEF, COSTS, 1.0, scheme, **options)


def rules(rounds=40, per_round=5, seed=0):
    """Those of a run; what is agreed does not come from them here."""
    section = JsamSection(prior=BELIEF, clip=1.0, noise_scale=1.0, eta=1.0, clients_per_round=per_round)
    config = Config(
        "jsam", Data("digits"), Partition("iid", 3), Model("softmax"),
        Training(rounds=rounds, learning_rate=1.0, steps=1), own=section, run=Run(seed=seed),
    )  # fmt: skip
    return BoughtPrivacy(config, 1.0, None)


def agreed_on(settlement, rounds=40):
    """An agreement on a settlement, of clients by number."""
    names = tuple(map(str, range(settlement.reports.size)))
    members = Roster(names, np.full(len(names), 10))
    return Agreement(members, terms=JsamTerms(names, settlement, BELIEF, 5, rounds, 1e-5))


def agreement(selection, epsilon):
    """With these selection probabilities and privacy budgets."""
    done = settle(np.full(len(selection), 0.5), BELIEF, 1.0, 1.0, rule=None)
    plan = done.allocation
    changed = type(plan)(
        np.array(selection, dtype=float), np.array(epsilon, dtype=float),
        plan.total, plan.objective, plan.threshold, plan.distance, plan.eta,
    )  # fmt: skip
    return agreed_on(type(done)(done.reports, done.admitted, changed, done.payment, done.payment_error))


@pytest.mark.parametrize(
    ("scheme", "options", "rule"),
    [
        ("jsam", {}, None),
        ("unbiased", {}, unbiased(30)),
        ("cheapest", {"members": 7}, Cheapest(7)),
        ("largest losses", {"members": 7, "losses": LOSSES}, largest_losses(LOSSES, 7)),
    ],
)
def test_the_settlement_is_that_of_the_mechanism(scheme, options, rule):
    expected = settle(COSTS, BELIEF, 5.0, 1.0, rule=rule)
    found = settled(scheme, **options)
    assert np.array_equal(found.payment, expected.payment)
    assert np.array_equal(found.allocation.selection, expected.allocation.selection)
    hard = settled(scheme, budget=3.0, **options)
    assert hard.spend <= 3.0
    assert hard.spend == eta_for_budget(COSTS, BELIEF, 3.0, 1.0, rule=rule).settlement.spend
    assert np.all(hard.utility(COSTS) >= 0)


def test_complete_information_pays_the_costs():
    known = settled("complete information")
    assert np.allclose(known.payment, COSTS * known.allocation.privacy, rtol=1e-15)
    assert 2.9 < settled("complete information", budget=3.0).spend <= 3.0


def test_complete_information_may_keep_its_budget_on_average():
    few = COSTS[:5]
    average = jsam.settle_scheme(BELIEF, few, 1.0, "complete information", expected_budget=3.0)
    assert 1.5 < average.spend < 6.0


def test_an_expected_budget_fixes_the_weight_before_anyone_reports():
    once, again = (
        jsam.settle_scheme(BELIEF, jsam.draw_costs(BELIEF, 12, seed), 1.0, "unbiased", expected_budget=3.0)
        for seed in (1, 2)
    )
    assert once.allocation.eta == again.allocation.eta
    assert once.spend != again.spend


def test_the_quick_search_for_the_weight_is_the_slow_one(monkeypatch):
    monkeypatch.setattr(jsam, "DRAWS", 4)
    rng = np.random.default_rng(np.random.SeedSequence(0))
    virtual = [BELIEF.virtual_cost(BELIEF.sample(rng, 3)) for _ in range(4)]
    slow = largest_weight(lambda eta: np.mean([allocate(v, eta, 1.0).total for v in virtual]) <= 2.0)
    quick = jsam.settle_scheme(BELIEF, COSTS[:3], 1.0, expected_budget=2.0).allocation.eta
    assert math.isclose(quick, slow, rel_tol=1e-8)
    assert eta_for_expected_budget(BELIEF, 3, 2.0, 1.0, samples=4) == quick


def test_costs_come_from_the_prior_and_the_seed():
    prior = TruncatedExponential(1.0, 0.2, 3.0)
    costs = jsam.draw_costs(prior, 4000, seed=2)
    assert np.array_equal(costs, jsam.draw_costs(prior, 4000, seed=2))
    assert not np.array_equal(costs, jsam.draw_costs(prior, 4000, seed=3))
    assert prior.low <= costs.min() <= costs.max() <= prior.high
    assert abs(costs.mean() - prior.mean) < 5 * costs.std() / math.sqrt(4000)


def test_the_schedule_comes_from_the_seed_and_follows_the_probabilities():
    p = np.array([0.7, 0.2, 0.1, 0.0])
    schedule = draw_schedule(p, 2000, 10, seed=1)
    assert schedule.shape == (2000, 10)
    assert np.array_equal(schedule, draw_schedule(p, 2000, 10, seed=1))
    assert not np.array_equal(schedule, draw_schedule(p, 2000, 10, seed=2))
    share = np.bincount(schedule.ravel(), minlength=4) / schedule.size
    assert np.all(np.abs(share - p) <= 5 * np.sqrt(p * (1 - p) / schedule.size))
    assert share[3] == 0


def test_counts_hold_multiplicity_and_weights_are_equal_shares():
    agreed, run = agreement([0.9, 0.1, 0.0], [1.0, 1.0, 0.0]), rules()
    rounds = [run.participation(agreed, number) for number in range(1, 41)]
    drawn = np.bincount(np.concatenate([who.clients for who in rounds]), minlength=3)
    assert drawn.sum() == 40 * 5
    assert drawn[0] > 40  # more often than there are rounds
    assert drawn[2] == 0
    schedule = draw_schedule([0.9, 0.1, 0.0], 40, 5, 0)
    for number in (1, 40):
        who = rounds[number - 1]
        assert np.array_equal(who.clients, schedule[number - 1])
        assert np.array_equal(who.weights, np.full(5, 0.2))
        assert who.is_mean


@pytest.mark.parametrize("delta", [1e-5, 1e-9])
@pytest.mark.parametrize("steps", [1, 3])
def test_the_ledger_never_says_more_than_was_sold(steps, delta):
    sold = [1e-5, 1e-3, 0.05, 1.0, 20.0, 3000.0, 0.7, 0.0]
    once = draw_schedule([0.3, 0.2, 0.1, 0.2, 0.1, 0.0499, 0.0001, 0.05], 40, 5, seed=2)
    once[once == 6] = 0
    once[0, 0] = 6  # drawn exactly once
    once[once == 7] = 0  # never
    drawn = np.bincount(once.ravel(), minlength=8)
    spec = LocalTraining(10, 1.0, epochs=None, steps=steps, clip=1.0)
    promise = Promise(np.array(sold), delta, 1.0, noise="reproducible")
    noise = noise_multipliers(promise, drawn, np.full(8, 10), spec, 7)
    assert drawn[6] == 1
    assert drawn[0] > 40
    assert noise[7] == 0
    ledger = Ledger()
    for number, who in enumerate(once, 1):
        for client in who.tolist():
            ledger = ledger.add([Release(client, number, float(noise[client]), steps)])
    for client in range(7):
        with np.errstate(divide="ignore"):  # inside the search of the accountant
            given_away = ledger.epsilon(client, delta)
        assert given_away <= sold[client]
        assert given_away >= sold[client] * (1 - 1e-6)
        exact = noise_multiplier(sold[client], delta, int(drawn[client]) * steps)
        assert exact <= noise[client] <= exact * (1 + 1e-8)


def test_everything_is_paid_after_the_last_round_also_to_those_never_drawn():
    done, run = settled(), rules(rounds=1, per_round=1)
    agreed = agreed_on(done, rounds=2)
    who = run.participation(agreed, 1)
    drawn = np.bincount(who.clients, minlength=30)
    assert (drawn[done.payment > 0] == 0).any()
    paid, turns = agreed.terms.spend, Turns.of(drawn)
    assert run.spend(agreed, 1, who, turns) == 0
    assert run.spend(agreed, 2, who, turns) == paid
    assert abs(paid - math.fsum(done.payment)) <= 0.01 * 30


BAD = [
    ({"eta": None}, "eta or budget or expected_budget is required"),
    ({"eta": 1.0, "budget": 2.0}, "budget must not be given with eta, got 2.0"),
    ({"budget": 1.0, "expected_budget": 2.0}, "expected_budget must not be given with budget, got 2.0"),
    ({"eta": -1.0}, "eta must be positive, got -1.0"),
    ({"expected_budget": 0.0}, "expected_budget must be positive, got 0.0"),
    ({"scheme": "best"}, "scheme must be one of jsam, unbiased, cheapest, complete information, largest"),
    ({"scheme": "cheapest"}, "members is required for cheapest"),
    ({"members": 3}, "members must not be given unless scheme is cheapest or largest losses, got 3"),
    (
        {"scheme": "complete information", "members": 3},
        "members must not be given unless scheme is cheapest or largest losses, got 3",
    ),
    ({"scheme": "cheapest", "members": 31}, "members must be at most the number of clients, 30, got 31"),
    ({"scheme": "largest losses", "members": 3}, "losses is required for largest losses"),
    (
        {"scheme": "largest losses", "members": 3, "losses": np.full(30, 2.3)},
        "scheme must not be this one: all clients have the same local loss, got 'largest losses'",
    ),
]


@pytest.mark.parametrize(("options", "message"), BAD, ids=range(len(BAD)))
def test_what_makes_no_sense_is_refused(options, message):
    with pytest.raises(InvalidValue) as refused:
        settled(**options)
    assert str(refused.value).startswith(message)


def test_planning_does_not_import_torch():
    program = "import sys, bonafed.mechanisms.jsam.schemes; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
