"""Agents that aim at the searches and the segment of the protocol by exchanges: named, none better off."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.unit.mechanisms.faithful.adversaries.test_search import (
    any_report,
    ridge_holdings,
    softmax_holdings,
)

from bonafed.errors import BadReport, Diverged
from bonafed.mechanisms.faithful import RidgeRegression, faithful, minimise, vcg_payments
from bonafed.mechanisms.faithful.adversaries import agents as cheats
from bonafed.mechanisms.faithful.adversaries.one_against_all import (
    Trick,
    aimed,
    lost_by_others,
    play,
    run_out,
)
from bonafed.mechanisms.faithful.adversaries.search import AuditTerms, attempts, prepare
from bonafed.mechanisms.faithful.protocol.variants import ProtocolRules

AGENT, EPSILON = 2, 1e-4
HOLDINGS = {"softmax": softmax_holdings, "ridge": ridge_holdings}
# nobody can tell these from honest ones; here every direction of the ridge bends by more than 3 mu
PASSING = {
    "softmax": {"a field that is no gradient", "slopes of another loss"},
    "ridge": {"a field that is no gradient", "slopes of another loss", "a negative curvature"},
}
seeds = st.integers(0, 10_000)


def passing(case):
    return PASSING["softmax" if case.holdings.classes else "ridge"]


@pytest.fixture(scope="module", params=HOLDINGS)
def case(request):
    return prepare(HOLDINGS[request.param](3, mu=0.02), AuditTerms("exchanges", EPSILON))


def longest(problem, first):
    """Exchanges after which every search has ended that is asked for these accuracies (theory C9.0)."""
    halving = 12 + math.log(2) * problem.smoothness / problem.regulariser
    p = float(problem.weights.min())
    least = math.sqrt(EPSILON * (1 - p) * problem.regulariser * p)
    return 2 * halving * math.log2(2 * first / least) + 2


def test_every_trick_is_named_where_it_is_played_and_the_others_go_on(case):
    first = float(
        np.linalg.norm(case.problem.gradient(np.zeros((1, case.problem.size)), case.problem.weights[None]))
    )
    for trick in aimed(case.problem, case.steps, 0):
        played = play(case.problem, AGENT, case.course({AGENT: trick.make()}), trick.loss)
        if trick.name in passing(case):
            assert (played.where, played.end) == ("", ""), trick.name
        else:
            phase = "the way" if trick.honest_reports else "training"
            phase = "payments" if trick.name == "1 x in training, 3 x later" else phase
            if trick.name != "3 x in training, 1 x later":  # its training takes its own time
                assert phase in played.where, (trick.name, played.where)
            assert played.where
            assert "it is left out" in played.end
        assert played.outside <= 1e-9, trick.name  # certificates hold
        assert played.exchanges <= longest(case.problem, first)


def test_the_policy_to_raise_names_the_agent(case):
    for trick in aimed(case.problem, case.steps, 0):
        if trick.name in passing(case):
            continue
        with pytest.raises(BadReport) as bad:
            faithful(case.problem, rules=ProtocolRules(epsilon=EPSILON), agents={AGENT: trick.make()})
        assert bad.value.agent == AGENT, trick.name


def test_believed_lies_end_too_or_the_run_stops_and_says_why(case):
    ends = set()
    for trick in aimed(case.problem, case.steps, 0):
        played = play(case.problem, AGENT, case.course({AGENT: trick.make()}, "numbers"), None)
        ends.add(math.isnan(played.loss))
        if math.isnan(played.loss):
            assert "the run stops in exchange" in played.end
            assert played.payment != played.payment  # no payment, so no certificate
        assert played.outside <= 1e-9  # its own payment is made of true reports
    assert ends == {True, False}


def test_a_run_that_stops_blames_nobody_where_everything_is_believed(case):
    lies = {AGENT: cheats.random_numbers(1.0, np.random.default_rng(0))}
    with pytest.raises(Diverged, match="nobody is named, as reports are believed"):
        faithful(case.problem, rules=ProtocolRules(epsilon=EPSILON, check_reports="numbers"), agents=lies)


@settings(max_examples=25)
@given(
    seed=seeds,
    gain=st.floats(-2, 2),
    pull=st.floats(0, 0.5),
    push=st.floats(-0.5, 0.5),
    own=st.sampled_from([None, (0.1, 0.2, 0.3, 0.4)]),
    after=st.integers(0, 12),
)
def test_no_report_in_any_phase_gains_more_than_is_certified(seed, gain, pull, push, own, after):
    """Some report that nobody thought of, from some exchange on; recognised and believed."""
    make = softmax_holdings if seed % 2 else ridge_holdings
    case = prepare(
        make(seed, weights=None if own is None else np.array(own)), AuditTerms("exchanges", EPSILON)
    )
    trick = Trick("any", lambda: cheats.later(cheats.truthful, any_report(seed, gain, pull, push), after))
    for tried in attempts(case, seed % 4, [trick]):
        assert not tried.pays, tried
        assert tried.outside <= 1e-9, tried
        if not tried.believed:
            # Slopes of a liar that are believed make the others' payments uncertain, and what is allowed
            # counts the least certain payment of all: 17.8 epsilon for seed 3, push 0.5, after 3 exchanges.
            assert tried.allowed <= 2.5 * EPSILON * (1 + 1e-9)


@settings(max_examples=25)
@given(seed=seeds, requests=st.integers(0, 8))
def test_to_keep_the_last_model_costs_at_least_its_exact_payment(seed, requests):
    make = softmax_holdings if seed % 2 else ridge_holdings
    case = prepare(make(seed), AuditTerms("exchanges", 1e-2))
    problem, k, heard = case.problem, seed % 4, []
    done = faithful(
        problem,
        rules=ProtocolRules(epsilon=1e-2, on_bad_report="leave out"),
        agents={k: cheats.drop_out(requests)},
        on_left_out=heard.append,
    )
    assume(done.left_out)  # else it would have fallen silent after the end
    (out,), (bad,) = done.left_out, heard
    exact = float(
        lost_by_others(problem, problem.weights, bad.model, np.array([k]))[0] / problem.weights[k]
    )
    training = 3 * done.training_error  # (1 - p)/p of it, p = 1/4
    assert exact - 1e-9 <= out.due <= exact + 1e-2 + training  # twice what is certified of the way


def test_no_payment_is_negative():
    """Agents that are all but alike, and a search that ends at a smaller gradient and a larger loss."""
    rng = np.random.default_rng(1001)
    x = rng.standard_normal((12, 4)) * [1, 0.3, 0.1, 0.03]
    x /= np.linalg.norm(x, axis=1).max()
    y = x @ (10 * rng.standard_normal(4)) + rng.standard_normal(12)
    labels = np.concatenate([y] * 3) + 1e-3 * rng.standard_normal(36)
    problem = RidgeRegression(np.concatenate([x] * 3), labels, np.repeat(np.arange(3), 12), 1e-3)
    done = faithful(problem, rules=ProtocolRules(epsilon=1.0))
    exact = vcg_payments(problem, done.model).amount
    assert (done.payments.amount >= 0).all()
    assert (
        np.abs(done.payments.amount - exact) <= done.payments.error + done.integration_error + 1e-9
    ).all()


def test_what_the_others_lose_is_what_exact_payments_are_made_of(case):
    model = run_out(case.problem, case.course({})).model
    p = case.problem.weights
    found = lost_by_others(case.problem, p, model, np.arange(case.problem.agents)) / p
    np.testing.assert_allclose(found, vcg_payments(case.problem, model).amount, atol=1e-9)
    twice = p * np.where(np.arange(p.size) == 1, 2.0, 1.0)  # agent 1 reports double its loss
    (other,) = lost_by_others(case.problem, twice, model, np.array([0]))
    mix = twice * (np.arange(p.size) != 0)
    least = case.problem.value(minimise(case.problem, mix), mix)
    assert other == pytest.approx(case.problem.value(model, mix) - least, abs=1e-9)


def test_slopes_of_another_loss_move_others_payments_by_no_more_than_spite_can(case):
    """(C9.11): its gradients are true, so that only the integral between the same ends can change."""
    truth = run_out(case.problem, case.course({}))
    (trick,) = [t for t in aimed(case.problem, case.steps, 0) if t.name == "slopes of another loss"]
    lie = run_out(case.problem, case.course({AGENT: trick.make()}))
    p, problem = case.problem.weights, case.problem
    assert lie.payments.amount[AGENT] == truth.payments.amount[AGENT]
    for k in range(problem.agents):
        if k == AGENT:
            continue
        way = truth.model - truth.payments.models[k]
        ends = problem.gradient(
            np.stack([truth.payments.models[k], truth.model]), np.tile(problem.one(AGENT), (2, 1))
        )
        rise = float((ends[1] - ends[0]) @ way)
        bend = float(problem.third_derivative(way[None])[0])
        most = p[AGENT] * bend * rise / (6 * p[k])
        assert abs(lie.payments.amount[k] - truth.payments.amount[k]) <= most + 1e-9
