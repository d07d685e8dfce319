"""Agents that cheat: the batch is the protocol, the certificate holds for any report, pairs may gain."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.oracles.faithful import MU, owners, rows, slow_loss

from bonafed.errors import BadReport, Diverged, InvalidValue
from bonafed.mechanisms.faithful import (
    Aggregation,
    faithful,
    minimise,
    pay,
    random_clusters,
    train,
    vcg_payments,
)
from bonafed.mechanisms.faithful.adversaries import agents as cheats
from bonafed.mechanisms.faithful.adversaries.claims import alone, collusion, verdicts
from bonafed.mechanisms.faithful.adversaries.search import (
    AgentData,
    AuditTerms,
    Trick,
    attack,
    attempts,
    best_factor,
    deviations,
    gain_curve,
    prepare,
    response,
    safe_factor,
    train_each,
)
from bonafed.mechanisms.faithful.protocol.reports import Watch
from bonafed.mechanisms.faithful.protocol.stepwise import StepwiseTerms
from bonafed.mechanisms.faithful.protocol.variants import ProtocolRules

VECTORS = json.loads((Path(__file__).parents[4] / "vectors" / "faithful.json").read_text())["faithfulness"]
seeds = st.integers(0, 10_000)


def softmax_holdings(seed=0, agents=4, mu=0.1, weights=None):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((40, 3))
    x /= np.linalg.norm(x, axis=1).max()
    owner = np.concatenate([np.arange(agents), rng.integers(0, agents, 40 - agents)])
    y = np.where(rng.random(40) < 0.7, owner % 3, rng.integers(0, 3, 40))
    return AgentData(x, y, owner, 3, mu, weights)


def ridge_holdings(seed=0, agents=4, mu=0.1, weights=None):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((40, 3))
    owner = np.concatenate([np.arange(agents), rng.integers(0, agents, 40 - agents)])
    return AgentData(x, x @ [1.0, -1.0, 0.5] + owner / agents, owner, 0, mu, weights)


HOLDINGS = {"softmax": softmax_holdings, "ridge": ridge_holdings}
kinds = pytest.mark.parametrize("kind", HOLDINGS)


def digits_holdings(delta):
    x, y, _, _ = rows()
    return AgentData(x, y, owners(y, delta), 10, MU)


@pytest.mark.parametrize("delta", [0.05, 0.5, 0.9])
def test_the_curve_of_factors_is_that_of_the_vectors(delta):
    case = prepare(digits_holdings(delta), AuditTerms("stepwise"))
    expected = VECTORS[f"Delta={delta}"]
    losses = response(case, 3)
    for gamma, overall, own in zip(
        VECTORS["gamma"], expected["J_VCG"], expected["F_k(gamma)"], strict=True
    ):
        assert losses(float(gamma)) == pytest.approx((overall, own), abs=1e-7)
    assert best_factor(case, 3) == pytest.approx(1.0, abs=2e-3)


@pytest.mark.parametrize(
    ("variant", "row"),
    [
        ("stepwise", "FFL_trap_eta=1/((1-pk)Lg)_eps1e-3"),
        ("left", "FFL_left_eta=1/((1-pk)Lg)_eps1e-3"),
        ("printed", "FFL_paper_eta=1/(K Lg)_T2=20"),
    ],
)
def test_runs_of_the_protocol_are_those_of_the_vectors(variant, row):
    case = prepare(digits_holdings(0.5), AuditTerms(variant))
    expected = dict(zip(VECTORS["gamma"], VECTORS["Delta=0.5"][row]["J"], strict=True))
    honest = case.losses[3] + case.charge(3, case.model).amount
    assert honest == pytest.approx(expected[1], abs=2e-3)
    made = train_each(case, 3, [cheats.amplify(0.5), cheats.amplify(3)])
    for gamma, end in zip((0.5, 3), made, strict=True):
        overall = case.problem.losses(end.model[None])[0, 3] + case.charge(3, end.model).amount
        assert overall == pytest.approx(expected[gamma], abs=2e-3)
        assert (honest - overall > 2e-3) == (variant == "printed" and gamma == 3)


@kinds
def test_side_by_side_every_run_is_that_of_the_protocol_alone(kind):
    case = prepare(HOLDINGS[kind](3), AuditTerms("stepwise"))
    ways = [*deviations(case, 1), Trick("far too much", lambda: cheats.amplify(1000.0))]
    ends = train_each(case, 1, [way.make() for way in ways])
    seen = set()
    for way, end in zip(ways, ends, strict=True):
        seen.add(end.how)
        if end.how == "regular":
            model = train(case.problem, {1: way.make()}, case.steps, watch=Watch(case.problem, "numbers"))[
                0
            ]
            np.testing.assert_allclose(end.model, model, rtol=1e-9, atol=1e-11)
            continue
        wanted = {"silent": BadReport, "diverged": Diverged}[end.how]
        with pytest.raises(wanted, match=f"step {end.step}[ :]"):
            train(case.problem, {1: way.make()}, case.steps, watch=Watch(case.problem, "numbers"))
        believed = Watch(case.problem, "numbers")
        until = train(case.problem, {1: way.make()}, end.step - 1, watch=believed)[0]
        np.testing.assert_allclose(end.model, until, rtol=1e-9)
    assert seen == {"regular", "silent", "diverged"}


def test_the_parts_of_the_holdings_are_those_of_the_whole():
    for held in (softmax_holdings(2), ridge_holdings(2)):
        whole, rng = held.problem(), np.random.default_rng(0)
        models = rng.standard_normal((2, whole.size))
        pair, mix = held.of(3, 1), rng.random((2, 2))
        spread = np.zeros((2, 4))
        spread[:, [3, 1]] = mix
        np.testing.assert_allclose(pair.gradient(models, mix), whole.gradient(models, spread), rtol=1e-12)
        np.testing.assert_allclose(pair.losses(models), whole.losses(models)[:, [3, 1]], rtol=1e-12)
    held = softmax_holdings(2)
    mine, w = held.owner == 1, np.random.default_rng(1).standard_normal(9)
    flipped = slow_loss(held.features[mine], 2 - held.targets[mine], w, 0.1)
    assert held.of(1, tampered=True).value(w, np.ones(1)) == pytest.approx(flipped, rel=1e-12)


def any_report(seed, gain, pull, push):
    """Some report nobody thought of: a bent gradient, a wish for a model, a constant push."""
    rng, n = np.random.default_rng(seed), 9 if seed % 2 else 3
    bend = np.eye(n) + gain * rng.standard_normal((n, n)) / n
    goal, direction = rng.standard_normal((2, n))
    return lambda models, gradients: gradients @ bend + pull * (models - goal) + push * direction


@settings(max_examples=25)
@given(
    seed=seeds,
    gain=st.floats(-2, 2),
    pull=st.floats(0, 0.5),
    push=st.floats(-0.5, 0.5),
    own=st.sampled_from([None, (0.1, 0.2, 0.3, 0.4)]),
    variant=st.sampled_from(["exchanges", "stepwise", "left", "clusters"]),
)
def test_no_report_whatsoever_gains_more_than_the_certificate_allows(seed, gain, pull, push, own, variant):
    held = (softmax_holdings if seed % 2 else ridge_holdings)(
        seed, weights=None if own is None else np.array(own)
    )
    groups = random_clusters(4, 2, np.random.default_rng(seed)) if variant == "clusters" else ()
    case = prepare(held, AuditTerms(variant, 1e-4, clusters=groups))
    tried = attempts(case, seed % 4, [Trick("any", lambda: any_report(seed, gain, pull, push))])
    assert not any(attempt.pays for attempt in tried), tried


def test_the_gain_is_the_change_of_the_total_loss_up_to_payment_errors():
    case = prepare(softmax_holdings(5), AuditTerms("stepwise", epsilon=1e-5))
    problem, k = case.problem, 2
    ways = [way for way in deviations(case, k) if way.name != "silent half-way on"]
    for way, tried in zip(ways, attempts(case, k, ways), strict=True):
        model = train(problem, {k: way.make()}, case.steps, watch=Watch(problem, "numbers"))[0]
        change = problem.value(case.model, problem.weights) - problem.value(model, problem.weights)
        assert tried.gain == pytest.approx(change / problem.weights[k], abs=tried.allowed)
        paid = vcg_payments(problem, model).amount[k]
        assert tried.payment == pytest.approx(paid, abs=tried.allowed)
        assert tried.gain_unpaid == pytest.approx(case.losses[k] - tried.loss, abs=1e-12)


@settings(max_examples=30)
@given(seed=seeds, size=st.floats(0.0, 4.0))
def test_the_integration_error_is_within_its_bound(seed, size):
    """D is known exactly from the losses, at the models where phase II ended."""
    rng = np.random.default_rng(seed)
    for held in (softmax_holdings(seed), ridge_holdings(seed)):
        case = prepare(held, AuditTerms("stepwise", epsilon=1e-2))
        model = case.model + size * rng.standard_normal(case.problem.size)
        k = seed % 4
        reached, gap = pay(
            case.problem, model, Aggregation(case.problem), StepwiseTerms(epsilon=1e-2), payers=[k]
        )
        exact = case.difference(k, model, reached.models[k])
        trapezoid = case.charge(k, model)
        assert abs(trapezoid.amount - exact) <= trapezoid.above + 1e-10 * (1 + exact)
        assert trapezoid.above <= (gap if held.classes else 0.0)
        left = replace(case, terms=AuditTerms("left", 1e-2)).charge(k, model)
        assert -left.below - 1e-10 * (1 + exact) <= left.amount - exact <= left.above + 1e-10 * (1 + exact)
        assert left.amount >= exact - 1e-10 * (1 + exact)  # by convexity


def test_the_bound_of_the_integration_is_much_below_the_difference_of_the_rules():
    case = prepare(digits_holdings(0.5), AuditTerms("stepwise"))
    _, gap = pay(case.problem, case.model, Aggregation(case.problem), payers=[3])
    assert case.charge(3, case.model).above < 0.03 * gap


def test_truthful_training_stops_when_certified():
    for epsilon in (1e-2, 1e-4):
        case = prepare(
            softmax_holdings(1, weights=np.array([0.1, 0.2, 0.3, 0.4])),
            AuditTerms("stepwise", epsilon=epsilon),
        )
        p = case.problem.weights
        excess = case.problem.value(case.model, p) - case.problem.value(minimise(case.problem, p), p)
        assert 0 < excess / p.min() <= epsilon
        np.testing.assert_allclose(case.model, train(case.problem, None, case.steps)[0], rtol=1e-9)


def test_who_falls_silent_never_pays_and_has_the_others_model():
    case = prepare(softmax_holdings(1), AuditTerms("stepwise"))
    (tried,) = attempts(case, 2, [Trick("silent", lambda: cheats.drop_out(7))])
    assert (tried.payment, tried.pays) == (0.0, False)
    assert "training step 8;" in tried.end
    outcome = faithful(
        case.problem,
        rules=ProtocolRules(variant="stepwise", training_steps=3000, on_bad_report="leave out"),
        agents={2: cheats.drop_out(7)},
    )
    assert outcome.payments.amount[2] == 0
    assert tried.loss == pytest.approx(outcome.losses[2], abs=1e-6)


def test_divergence_is_an_outcome_not_a_number():
    case = prepare(ridge_holdings(0), AuditTerms("stepwise"))
    (tried,) = attempts(case, 0, [Trick("too much", lambda: cheats.amplify(50.0), 50.0)])
    assert tried.end.startswith("training diverges at step ")
    assert math.isnan(tried.loss)
    assert tried.gain == -math.inf
    assert not tried.pays
    assert verdicts(case, [tried])[0].holds


@pytest.mark.parametrize("kind", HOLDINGS)
def test_a_pair_gains_what_two_runs_of_the_protocol_say(kind):
    held = HOLDINGS[kind](5)
    case = prepare(held, AuditTerms("stepwise", epsilon=1e-6))
    pair = collusion(case, 0)
    k, j = pair.agents
    options = {
        "variant": "stepwise",
        "training_steps": case.steps,
        "epsilon": 1e-6,
        "check_reports": "numbers",
    }
    honest = faithful(case.problem, rules=ProtocolRules(**options))
    both = faithful(
        case.problem, rules=ProtocolRules(**options), agents=cheats.collude(case.problem, k, j, pair.factor)
    )
    assert pair.gain == pytest.approx((honest.overall - both.overall)[[k, j]].sum(), abs=1e-8)
    assert pair.gain_unpaid == pytest.approx((honest.losses - both.losses)[[k, j]].sum(), abs=1e-8)
    assert pair.gain > 1e-3  # VCG payments are not proof against groups


def test_reporting_their_mean_a_pair_pays_less_for_the_same_model():
    case = prepare(ridge_holdings(5), AuditTerms("stepwise", epsilon=1e-8))
    joint = cheats.collude(case.problem, 0, 1)
    model, reports = train(case.problem, joint, case.steps)
    np.testing.assert_allclose(model, case.model, rtol=1e-9)
    paid = sum(case.charge(k, model, reports).amount for k in (0, 1))
    assert paid < case.honest[0].amount + case.honest[1].amount


def test_with_two_agents_there_is_a_pair_that_converges():
    pair = collusion(prepare(ridge_holdings(5, agents=2), AuditTerms("stepwise")), 1)
    assert pair.agents == (1, 0)
    assert pair.factor == 1.0


def test_alone_everybody_has_the_least_loss():
    case = prepare(softmax_holdings(4), AuditTerms("stepwise"))
    own = alone(case)
    assert np.all(own <= case.losses)
    for k in range(4):
        assert own[k] == pytest.approx(
            case.problem.value(minimise(case.problem, case.problem.one(k)), case.problem.one(k))
        )


def test_curves_and_attempts_say_the_same():
    case = prepare(softmax_holdings(4), AuditTerms("stepwise", epsilon=1e-6))
    curve = gain_curve(case, 1, [0.5, 1.0, 2.0])
    tried = {a.factor: a for a in attack(case, 1)}
    for factor, gain, unpaid in zip(*curve, strict=True):
        if factor != 1:
            assert tried[factor].gain == pytest.approx(gain, abs=1e-4)
            assert tried[factor].gain_unpaid == pytest.approx(unpaid, abs=1e-3)
    assert curve.gain[1] == 0


def test_the_same_seed_gives_the_same_attempts():
    case = prepare(softmax_holdings(4), AuditTerms("stepwise"))
    first, again, other = attack(case, 1, seed=3), attack(case, 1, seed=3), attack(case, 1, seed=4)
    regular = [a for a in first if not a.end]
    assert [a for a in again if not a.end] == regular
    changed = [a.name for a, b in zip(first, other, strict=True) if a != b]
    assert changed == ["random numbers", "gradient plus noise"]


def test_bad_input_is_refused_by_name():
    held = softmax_holdings()
    two = random_clusters(4, 2, np.random.default_rng(0))
    one = random_clusters(4, 1, np.random.default_rng(0))
    case = prepare(held, AuditTerms("stepwise"))
    cases = [
        ("variant", lambda: AuditTerms("vcg")),
        ("epsilon", lambda: AuditTerms("stepwise", epsilon=0.0)),
        ("payment_steps", lambda: AuditTerms(payment_steps=0)),
        ("clusters", lambda: AuditTerms("clusters")),
        ("clusters", lambda: AuditTerms("stepwise", clusters=two)),
        ("clusters", lambda: prepare(held, AuditTerms("clusters", clusters=one))),
        (
            "agents",
            lambda: prepare(replace(held, owner=np.zeros(40, dtype=np.int64)), AuditTerms("stepwise")),
        ),
        ("regulariser", lambda: prepare(replace(held, regulariser=0.0), AuditTerms("stepwise"))),
        ("agent", lambda: attack(case, 4)),
        ("agent", lambda: attack(case, -1)),
    ]
    for name, call in cases:
        with pytest.raises(InvalidValue) as caught:
            call()
        assert caught.value.name == name
    assert safe_factor(case.problem, 0) == 5
