"""The accounts at the end of a run, its four promises, and the rule for agents that fall silent."""

from dataclasses import replace

import numpy as np
import pytest

from bonafed.errors import BadReport
from bonafed.mechanisms.faithful import (
    cluster_payments,
    faithful,
    minimise,
    pay,
    random_clusters,
    train,
)
from bonafed.mechanisms.faithful.accounts import accounts_of
from bonafed.mechanisms.faithful.adversaries.agents import amplify, drop_out, flip_sign, free_ride
from bonafed.mechanisms.faithful.protocol.reports import Watch
from bonafed.mechanisms.faithful.protocol.variants import ProtocolRules
from tests.oracles.coalition import Coalition
from tests.oracles.faithful import digits_problem

STEPS = 700


@pytest.fixture(scope="module")
def problem():
    return digits_problem(0.5)


@pytest.fixture(scope="module")
def truth(problem):
    return faithful(problem, rules=ProtocolRules(variant="stepwise", training_steps=STEPS))


def test_an_agent_with_a_bad_report_is_left_out_and_the_others_go_on(problem):
    settings = {"variant": "stepwise", "training_steps": 300, "epsilon": 1e-2}
    agents = {3: drop_out(after=7), 6: lambda _models, gradients: gradients * np.nan, 8: amplify(2.0)}
    outcome = faithful(problem, rules=ProtocolRules(on_bad_report="leave out", **settings), agents=agents)
    assert [(out.agent, out.where, out.problem) for out in outcome.left_out] == [
        (6, "training step 1", "NaN or inf"),
        (3, "training step 7", "nothing"),  # its first request was before 6 was left out
    ]
    members = [0, 1, 2, 4, 5, 7, 8, 9]
    alone = faithful(Coalition(problem, members), rules=ProtocolRules(**settings), agents={6: amplify(2.0)})
    assert outcome.model == pytest.approx(alone.model, abs=1e-12)
    assert outcome.payments.amount[members] == pytest.approx(alone.payments.amount, abs=1e-12)
    assert outcome.payments.amount[[3, 6]].tolist() == [0.0, 0.0]
    assert outcome.losses.size == problem.agents


def test_falling_silent_does_not_pay(problem, truth):
    """Those left out owe nothing for the others' model (fact 5), and what is due for the last they saw."""
    settings = {"variant": "stepwise", "training_steps": STEPS, "on_bad_report": "leave out"}
    for moment in (0, STEPS + 5):  # at once, and in phase II
        silent = faithful(problem, rules=ProtocolRules(**settings), agents={3: drop_out(after=moment)})
        assert [out.agent for out in silent.left_out] == [3]
        assert silent.overall[3] == silent.losses[3]
        assert silent.overall[3] >= truth.overall[3]
        seen, _ = train(problem, None, min(moment, STEPS))
        kept = float(problem.losses(seen[None])[0, 3]) + silent.left_out[0].due
        assert kept >= truth.overall[3] - 1e-9
    # in phase II the last model is the shared one, and due is the payment itself
    assert silent.left_out[0].due == pytest.approx(truth.payments.amount[3], abs=1e-9)


def test_two_agents_are_needed_to_go_on(problem):
    two = Coalition(problem, [0, 1])
    with pytest.raises(BadReport, match=r"agent 1 in exchange 1 \(training\)"):
        faithful(two, rules=ProtocolRules(on_bad_report="leave out"), agents={1: drop_out(after=0)})


def test_the_statement_checks_the_promises(problem, truth):
    found = accounts_of(problem, truth, epsilon=1e-3)
    assert [check.claim for check in found.checks] == [
        "efficiency", "faithfulness", "no worse than without paying", "budget balance",
    ]  # fmt: skip
    assert all(check.holds for check in found.checks)
    exact = np.stack([minimise(problem, problem.one(k)) for k in range(problem.agents)])
    assert found.alone == pytest.approx(problem.losses(exact).diagonal(), abs=2e-6)
    assert (found.alone >= problem.losses(exact).diagonal() - 1e-12).all()
    assert (found.overall >= found.alone).all()  # fact 5
    assert found.no_worse_alone is None
    best = problem.value(minimise(problem, problem.weights), problem.weights)
    assert 0 <= problem.value(truth.model, problem.weights) - best <= truth.training_error


def test_the_statement_names_broken_promises(problem, truth):
    hasty = faithful(problem, rules=ProtocolRules(variant="stepwise", training_steps=40))
    found = {check.claim: check for check in accounts_of(problem, hasty, epsilon=1e-3).checks}
    assert [
        found[name].holds for name in ("efficiency", "faithfulness", "no worse than without paying")
    ] == [False] * 3
    assert "too few steps" in found["efficiency"].text
    assert "without efficiency a report may gain" in found["faithfulness"].text
    printed = faithful(problem, rules=ProtocolRules(training_steps=STEPS, variant="printed"))
    found = {check.claim: check for check in accounts_of(problem, printed, epsilon=1e-3).checks}
    assert found["efficiency"].holds is True
    assert found["faithfulness"].holds is False
    assert "overstating may pay" in found["faithfulness"].text
    clusters = random_clusters(problem.agents, 2, np.random.default_rng(7))
    few = replace(truth, payments=cluster_payments(problem, truth.model, clusters))
    _, incentive, _, balance = accounts_of(problem, few, epsilon=1e-3, clustered=True).checks
    assert incentive.holds is True  # Groves: the pivot does not depend on the own report
    assert balance.holds is False
    assert "the server pays, which clusters do not exclude" in balance.text


def test_no_lie_gains_more_than_the_statement_says(problem, truth):
    text = accounts_of(problem, truth, epsilon=1e-3).checks[1].text
    most = float(text.rsplit(" ", 1)[1])
    for lie in (amplify(0.9), amplify(1.1), amplify(3.0), flip_sign(), free_ride()):
        model, reports = train(problem, {3: lie}, STEPS, watch=Watch(problem, "numbers"))
        payments, _ = pay(problem, model, reports, payers=[3])
        assert truth.overall[3] - (problem.losses(model[None])[0, 3] + payments.amount[3]) <= most


def test_a_cheat_costs_efficiency_and_is_promised_nothing(problem):
    outcome = faithful(
        problem,
        rules=ProtocolRules(variant="stepwise", training_steps=STEPS, check_reports="numbers"),
        agents={3: amplify(4.0)},
    )
    assert outcome.training_error < 1e-3  # by what was reported
    found = {c.claim: c for c in accounts_of(problem, outcome, epsilon=1e-3, cheating=[3]).checks}
    assert found["efficiency"].holds is False
    assert "somebody does not report the truth" in found["efficiency"].text
    best = problem.value(minimise(problem, problem.weights), problem.weights)
    gap = float(found["efficiency"].text.split("at most ")[1].split(" ")[0])
    assert 1e-3 < problem.value(outcome.model, problem.weights) - best <= gap * 1.1
    assert found["no worse than without paying"].holds is True
