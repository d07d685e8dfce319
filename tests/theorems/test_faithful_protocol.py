"""Faithful learning on random problems: gradients, payments, certificates, agents that cheat."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bonafed.errors import BadReport, Diverged, InvalidValue
from bonafed.mechanisms.faithful import (
    Aggregation,
    RidgeRegression,
    SoftmaxRegression,
    cluster_payments,
    faithful,
    minimise,
    newton_payments,
    pay,
    private_faithful,
    random_clusters,
    train,
    vcg_payments,
)
from bonafed.mechanisms.faithful.adversaries import agents as cheats
from bonafed.mechanisms.faithful.private.noise import PrivateTerms
from bonafed.mechanisms.faithful.protocol.reports import Watch
from bonafed.mechanisms.faithful.protocol.stepwise import StepwiseTerms
from bonafed.mechanisms.faithful.protocol.variants import ProtocolRules
from tests.oracles.faithful import digits_problem, leave_one_out, slow_loss


def softmax_problem(seed, agents=4, mu=0.1, weights=None):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((40, 3))
    x /= np.linalg.norm(x, axis=1).max()
    owner = np.concatenate([np.arange(agents), rng.integers(0, agents, 40 - agents)])
    return SoftmaxRegression(x, rng.integers(0, 3, 40), owner, 3, mu, weights)


def ridge_problem(seed, agents=4, mu=0.1, weights=None):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((40, 3))
    owner = np.concatenate([np.arange(agents), rng.integers(0, agents, 40 - agents)])
    return RidgeRegression(x, x @ [1.0, -1.0, 0.5] + owner / agents, owner, mu, weights)


PROBLEMS = {"softmax": softmax_problem, "ridge": ridge_problem}
kinds = pytest.mark.parametrize("kind", PROBLEMS)
seeds = st.integers(0, 10_000)


@kinds
@given(seed=seeds)
def test_gradients_and_hessians_are_those_of_the_losses(kind, seed):
    problem = PROBLEMS[kind](seed)
    rng = np.random.default_rng(seed + 1)
    models, mix = rng.standard_normal((2, problem.size)), rng.random((2, problem.agents))
    found = problem.gradient(models, mix)
    direction, step = rng.standard_normal(problem.size), 1e-5
    for i in range(2):
        ahead = problem.value(models[i] + step * direction, mix[i])
        behind = problem.value(models[i] - step * direction, mix[i])
        assert found[i] @ direction == pytest.approx((ahead - behind) / (2 * step), rel=1e-5, abs=1e-7)
        more = problem.gradient((models[i] + step * direction)[None], mix[i : i + 1])[0]
        less = problem.gradient((models[i] - step * direction)[None], mix[i : i + 1])[0]
        product = problem.hessian_product(models[i], mix[i], direction)
        assert product == pytest.approx((more - less) / (2 * step), rel=1e-4, abs=1e-6)
        assert problem.hessian(models[i], mix[i]) @ direction == pytest.approx(product, rel=1e-9, abs=1e-12)


def test_losses_are_those_of_a_loop_over_the_samples():
    rng = np.random.default_rng(0)
    x, y, owner = rng.standard_normal((12, 3)), rng.integers(0, 4, 12), np.arange(12) % 3
    problem = SoftmaxRegression(x, y, owner, 4, 0.2)
    models = rng.standard_normal((2, problem.size))
    for i, k in np.ndindex(2, 3):
        mine = owner == k
        assert problem.losses(models)[i, k] == pytest.approx(slow_loss(x[mine], y[mine], models[i], 0.2))


@kinds
@given(seed=seeds, own=st.sampled_from([None, [0.1, 0.2, 0.3, 0.4]]))
def test_vcg_payments_are_differences_of_separate_optimisations(kind, seed, own):
    problem = PROBLEMS[kind](seed, weights=own)
    model = minimise(problem, problem.weights)
    paid = vcg_payments(problem, model)
    assert np.all(paid.amount >= -1e-12)  # budget balance: nobody is paid
    for k in range(problem.agents):
        others = problem.without_each()[k]
        expected = (problem.value(model, others) - leave_one_out(problem, k, model)) / problem.weights[k]
        assert paid.amount[k] == pytest.approx(expected, rel=1e-6, abs=1e-8)


@kinds
@given(seed=seeds)
def test_the_certificate_holds_for_every_rule_and_step(kind, seed):
    problem = PROBLEMS[kind](seed)
    model = minimise(problem, problem.weights)
    exact = vcg_payments(problem, model).amount
    for epsilon, share in ((1e-2, 1.0), (1e-4, 0.5)):
        found, gap = pay(
            problem, model, Aggregation(problem), StepwiseTerms(epsilon=epsilon, step_share=share)
        )
        assert np.all(found.error <= epsilon)
        assert np.all(exact - found.amount <= epsilon + gap + 1e-12)
        assert np.all(found.amount - exact <= gap + 1e-12)
        left, _ = pay(
            problem,
            model,
            Aggregation(problem),
            StepwiseTerms(epsilon=epsilon, step_share=share, rule="left"),
        )
        collected = (left.amount - found.amount) / np.maximum(found.amount, 1e-300)
        assert np.all(left.amount >= found.amount - 1e-12)  # the left rule asks too much, never too little,
        assert np.all(collected <= 1 / (1 - share / 2) - 1 + 1e-6)  # by a factor of 1/(1 - theta/2) at most


@given(seed=seeds)
def test_for_ridge_the_trapezoid_is_exact_and_so_are_two_newton_steps(seed):
    problem = ridge_problem(seed)
    model = minimise(problem, problem.weights)
    exact = vcg_payments(problem, model).amount
    found, _ = pay(problem, model, Aggregation(problem), StepwiseTerms(epsilon=1e-9))
    assert found.amount == pytest.approx(exact, abs=1e-8)
    assert newton_payments(problem, model, steps=1).amount == pytest.approx(exact, rel=1e-6, abs=1e-9)


@kinds
@given(seed=seeds)
def test_overall_loss_is_least_at_the_truth(kind, seed):
    problem, agent = PROBLEMS[kind](seed), seed % 4

    def overall(factor):
        mix = problem.weights.copy()
        mix[agent] *= factor
        model = minimise(problem, mix)
        others = problem.without_each()[agent]
        paid = (problem.value(model, others) - base) / problem.weights[agent]
        return problem.value(model, problem.one(agent)) + paid

    base = problem.value(minimise(problem, problem.without_each()[agent]), problem.without_each()[agent])
    truth = overall(1.0)
    for factor in (0.2, 0.7, 1.4, 3.0, 8.0):
        assert overall(factor) >= truth - 1e-10


CHEATS = {
    "amplify": lambda problem: {1: cheats.amplify(2.5)},
    "shrink": lambda problem: {1: cheats.shrink(0.4)},
    "zeros": lambda problem: {1: cheats.free_ride()},
    "stale": lambda problem: {1: cheats.stale()},
    "another's gradient": lambda problem: {1: cheats.copy_of(problem, 2)},
    "noise": lambda problem: {1: cheats.add_noise(0.5, np.random.default_rng(0))},
}


@pytest.mark.parametrize("name", CHEATS)
def test_cheating_does_not_pay_under_the_protocol(name):
    problem = ridge_problem(3)
    honest = faithful(problem, rules=ProtocolRules(variant="stepwise", training_steps=300, epsilon=1e-6))
    # a report that is no gradient of any loss may keep phase II from converging; then nobody is paid
    lying = train(problem, CHEATS[name](problem), 300, watch=Watch(problem, "numbers"))[0]
    reports = Aggregation(problem)  # the payment the cheat cannot influence: that of the others' reports
    paid, _ = pay(problem, lying, reports, StepwiseTerms(epsilon=1e-6), payers=[1])
    overall = problem.losses(lying[None])[0, 1] + paid.amount[1]
    assert overall >= honest.overall[1] - 1e-5


def test_under_plain_averaging_amplifying_pays():
    problem = digits_problem(0.5)
    honest = minimise(problem, problem.weights)
    mix = problem.weights.copy()
    mix[3] *= 5
    assert problem.losses(minimise(problem, mix)[None])[0, 3] < problem.losses(honest[None])[0, 3] - 0.3


def test_two_that_collude_gain_together_but_pay_for_it():
    problem = ridge_problem(5)
    honest = faithful(problem, rules=ProtocolRules(variant="stepwise", training_steps=300, epsilon=1e-7))
    pair = cheats.collude(problem, 0, 1, factor=3.0)
    both = faithful(
        problem,
        rules=ProtocolRules(variant="stepwise", training_steps=300, epsilon=1e-7, check_reports="numbers"),
        agents=pair,
    )
    assert both.losses[:2].sum() < honest.losses[:2].sum()  # the model leans towards them
    assert both.payments.amount[2:].sum() != pytest.approx(honest.payments.amount[2:].sum(), rel=1e-3)


@given(seed=seeds)
def test_clusters_never_ask_more_than_vcg(seed):
    problem = softmax_problem(seed, agents=5)
    model = minimise(problem, problem.weights)
    exact = vcg_payments(problem, model).amount
    for count in (2, 3, 5):
        groups = random_clusters(5, count, np.random.default_rng(seed))
        found = cluster_payments(problem, model, groups)
        assert np.all(found.amount <= exact + 1e-9)
        assert np.all(exact <= found.amount + found.error + 1e-9)  # the certificate
    assert found.amount == pytest.approx(exact, abs=1e-9)  # one agent per cluster


def test_best_response_finds_the_minimum():
    found = cheats.best_response(lambda g: (np.log(g) - np.log(1.7)) ** 2)
    assert found.factor == pytest.approx(1.7, rel=2e-3)
    assert found.gain == pytest.approx(np.log(1.7) ** 2, abs=1e-5)
    assert cheats.best_response(lambda g: abs(g - 1)).gain == 0


def test_bad_reports_are_named():
    problem = softmax_problem(0)
    bad = {
        "nothing": lambda w, g: None,
        r"shape \(1, 2\) instead of \(1, 9\)": lambda w, g: g[:, :2],
        "NaN or inf": lambda w, g: g * np.nan,
    }
    for what, agent in bad.items():
        with pytest.raises(BadReport, match=f"report of agent 2 in training step 1 .* got {what}"):
            faithful(problem, rules=ProtocolRules(variant="stepwise", training_steps=3), agents={2: agent})
    with pytest.raises(BadReport, match="agent 1 in training step 5"):
        faithful(
            problem,
            rules=ProtocolRules(variant="stepwise", training_steps=9),
            agents={1: cheats.drop_out(4)},
        )


def test_divergence_is_reported():
    problem = ridge_problem(0, mu=1.0)
    factor = 3 * (1 + 1 / problem.weights[0])
    with pytest.raises(Diverged, match=r"training diverges at step .* multiplies its gradient .* believed"):
        train(problem, {0: cheats.amplify(factor)}, 5000, watch=Watch(problem, "numbers"))


def test_bad_input_is_refused_by_name():
    problem = softmax_problem(0)
    x = np.ones((4, 2))
    cases = [
        ("features", lambda: SoftmaxRegression([[np.nan]], [0], [0], 2, 0.1)),
        ("owner", lambda: SoftmaxRegression(x, [0] * 4, [0, 1], 2, 0.1)),
        ("agent 1", lambda: SoftmaxRegression(x, [0] * 4, [0, 0, 2, 2], 2, 0.1)),
        ("labels", lambda: SoftmaxRegression(x, [0, 1, 2, 0], [0, 0, 1, 1], 2, 0.1)),
        ("regulariser", lambda: SoftmaxRegression(x, [0] * 4, [0, 0, 1, 1], 2, 0.0)),
        ("weights", lambda: RidgeRegression(x, [0.0] * 4, [0, 0, 1, 1], 0.1, weights=[0.5, 0.6])),
        (
            "epsilon",
            lambda: faithful(problem, rules=ProtocolRules(variant="stepwise", training_steps=1, epsilon=0)),
        ),
        (
            "step_share",
            lambda: faithful(
                problem, rules=ProtocolRules(variant="stepwise", training_steps=1, step_share=1.5)
            ),
        ),
        (
            "rule",
            lambda: faithful(
                problem, rules=ProtocolRules(variant="stepwise", training_steps=1, rule="simpson")
            ),
        ),
        (
            "check_reports",
            lambda: faithful(
                problem, rules=ProtocolRules(variant="stepwise", training_steps=1, check_reports="nothing")
            ),
        ),
        (
            "agents",
            lambda: faithful(
                problem,
                rules=ProtocolRules(variant="stepwise", training_steps=1),
                agents={9: cheats.free_ride()},
            ),
        ),
        ("payers", lambda: pay(problem, np.zeros(9), Aggregation(problem), payers=[7])),
        ("clusters", lambda: random_clusters(3, 4, np.random.default_rng(0))),
        ("clusters", lambda: cluster_payments(problem, np.zeros(9), [np.array([0, 1])])),
        ("clusters", lambda: cluster_payments(problem, np.zeros(9), [np.arange(4)])),
        ("second", lambda: cheats.collude(problem, 1, 1)),
        ("factor", lambda: cheats.shrink(1.5)),
    ]
    for name, call in cases:
        with pytest.raises(InvalidValue) as caught:
            call()
        assert caught.value.name == name


@pytest.mark.parametrize("calibration", ["exact", "zcdp"])
@pytest.mark.parametrize("weights", [None, [0.1, 0.2, 0.3, 0.4]])
def test_private_runs_keep_the_promise_and_no_more_noise_than_needed(calibration, weights):
    problem = softmax_problem(1, weights=weights)
    groups = random_clusters(4, 2, np.random.default_rng(0))
    options = {"alpha": 2.0, "beta": 1e-5, "training_steps": 5, "payment_steps": 3}
    done = private_faithful(
        problem, groups, np.random.default_rng(1), PrivateTerms(calibration=calibration, **options)
    )
    spent = [done.epsilon(k) for k in range(4)]
    assert max(spent) <= 2.0
    # agents enter T_1 + (L-1) T_2 noisy sums (F-D6); the one with the largest share of a sum spends most
    sums = [r for r in done.ledger.releases if r.round_number == 1]
    times = [sum(r.times for r in sums if r.client == k) for k in range(4)]
    assert times == [5 + 3] * 4
    payments = [r for r in done.ledger.releases if r.round_number == 2]
    assert len(payments) == 4 * 3
    again = private_faithful(
        problem, groups, np.random.default_rng(1), PrivateTerms(calibration=calibration, **options)
    )
    assert np.array_equal(done.payments, again.payments)


def test_payments_that_diverge_say_so_before_numbers_overflow():
    problem = softmax_problem(0)
    pair = cheats.collude(problem, 1, 2, factor=-1e6)
    with pytest.raises(Diverged, match=r"lead astray in payment step .* too large to compute with"):
        faithful(
            problem,
            rules=ProtocolRules(variant="stepwise", training_steps=0, check_reports="numbers"),
            agents=pair,
        )
    noise = cheats.add_noise(0.5, np.random.default_rng(0))
    with pytest.raises(Diverged, match=r"payments do not converge to epsilon = 1e-08: .* such as noise"):
        faithful(
            problem,
            rules=ProtocolRules(
                variant="stepwise", training_steps=100, epsilon=1e-8, check_reports="numbers"
            ),
            agents={1: noise},
        )


@pytest.mark.parametrize(("agents", "later"), [(5, 2), (4, 3)])
def test_whoever_falls_silent_when_another_is_billed_is_left_out_by_its_own_number(agents, later):
    """Agent `later` answers all of training and payments, and not when the last model of agent 0 is."""
    outcome = faithful(
        softmax_problem(1, agents),
        rules=ProtocolRules(
            variant="stepwise", training_steps=10, payment_steps=20, epsilon=1e9, on_bad_report="leave out"
        ),
        agents={0: cheats.drop_out(0), later: cheats.drop_out(35)},
    )
    assert [out.agent for out in outcome.left_out] == [0, later]
    assert np.flatnonzero(outcome.payments.amount == 0).tolist() == [0, later]


def test_the_last_but_one_agent_cannot_be_left_out():
    bad = {0: cheats.drop_out(3), 2: cheats.drop_out(3)}
    with pytest.raises(
        BadReport, match=r"^report of agent 2 in .* \(leaving it out would leave one agent alone"
    ):
        faithful(
            softmax_problem(1, 3),
            rules=ProtocolRules(variant="stepwise", training_steps=10, on_bad_report="leave out"),
            agents=bad,
        )


def test_payments_that_have_arrived_are_not_taken_for_lies():
    """After a few steps the residual is rounding, and cannot halve; the least number of steps goes on."""
    problem = softmax_problem(0, mu=10.0)
    found = faithful(
        problem, rules=ProtocolRules(variant="stepwise", training_steps=50, payment_steps=60)
    ).payments
    assert found.steps == 60
    assert found.amount == pytest.approx(vcg_payments(problem, minimise(problem, problem.weights)).amount)


@kinds
def test_one_agent_has_nobody_to_pay_for(kind):
    problem = PROBLEMS[kind](0, agents=1)
    model = np.zeros(problem.size)
    for bill in (
        lambda: faithful(problem),
        lambda: vcg_payments(problem, model),
        lambda: newton_payments(problem, model),
    ):
        with pytest.raises(InvalidValue, match=r"^problem must have two agents or more.* got 1$"):
            bill()


def test_private_steps_tell_nothing_of_the_longest_sample():
    """Samples longer than the clip allows change nothing but their own, clipped, gradients."""
    rng = np.random.default_rng(0)
    x, y, owner = rng.standard_normal((40, 3)) / 4, rng.integers(0, 3, 40), np.arange(40) % 4
    longer = x.copy()
    longer[7] *= 1e6

    def trained(features, heard):
        problem = SoftmaxRegression(features, y, owner, 3, 0.1)
        return private_faithful(
            problem,
            random_clusters(4, 4, np.random.default_rng(0)),
            np.random.default_rng(1),
            PrivateTerms(alpha=5.0, beta=1e-3, training_steps=1, payment_steps=1),
            on_noise=heard.append,
        )

    heard = []
    one, other = trained(x, heard), trained(longer, heard)
    limit = 2 * 2**0.5 * 0.25 / 10 / (0.1 + 0.5)  # sensitivity 2 C p/n, step 1/(mu + C^2/4)
    assert 0 < np.linalg.norm(one.model - other.model) <= limit
    assert np.array_equal(heard[0], heard[1])
    assert heard[0] == pytest.approx(one.noise.gradient / (2 * 2**0.5 * 0.25 / 10))
