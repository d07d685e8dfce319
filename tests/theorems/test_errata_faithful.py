"""What is wrong in print in the faithful paper, shown (docs/errata.md)."""

import math

import numpy as np
import pytest

from bonafed.mechanisms.faithful import (
    Aggregation,
    SoftmaxRegression,
    calibrate,
    cluster_payments,
    minimise,
    pay,
    privacy_loss,
    random_clusters,
    vcg_payments,
)
from bonafed.mechanisms.faithful import bounds as b
from bonafed.mechanisms.faithful.agents import amplify
from tests.oracles.faithful import MU, digits_problem, owners, rows


@pytest.fixture(scope="module")
def solved():
    problem = digits_problem(0.5)
    model = minimise(problem, problem.weights)
    return problem, model, vcg_payments(problem, model).amount


def test_e1_the_printed_sign_makes_payments_negative(solved):
    problem, model, exact = solved
    k = 3
    mix = problem.without_each()[k]
    g = problem.gradient(model[None], mix[None])[0]
    moved = model - g / problem.smoothness
    printed = (moved - model) @ g / problem.weights[k]  # (24b): W[t+1] - W[t]
    assert printed < 0 < exact[k]


def test_e3_the_printed_step_collects_a_fifth(solved):
    problem, model, exact = solved
    short, _ = pay(problem, model, Aggregation(problem), rule="left", variant="printed")
    right, _ = pay(problem, model, Aggregation(problem), rule="left", epsilon=1e9)
    assert (short.steps, right.steps) == (20, 20)
    assert np.mean(short.amount / exact) == pytest.approx(0.2115, abs=1e-3)
    assert np.mean(right.amount / exact) == pytest.approx(0.7898, abs=1e-3)


def test_e4_proposition_5_is_no_bound_against_vcg(solved):
    problem, model, exact = solved
    step = 1e-3 / (problem.agents * problem.smoothness)
    bound = b.integration_error_bound(0.1, problem.smoothness, 0.4659244981, 20, step)
    share = step * (1 - 0.1) * problem.smoothness  # the same step as a share of the safe one
    paid, _ = pay(problem, model, Aggregation(problem), rule="left", step_share=share, epsilon=1e9)
    assert bound == pytest.approx(8.648e-7, rel=1e-3)
    assert np.abs(exact - paid.amount).max() > 0.2  # a quarter of a million times the bound


def test_e6_equation_36_is_too_small():
    found = b.complexity(100, 1.0, 0.01, 1.0, 1.0, 1e-9, 36.8)
    assert found.interval_holds
    assert found.inside
    assert found.printed_bound < found.work <= found.bound


def test_e7_where_theorem_1_applies_paying_nothing_is_accurate_enough():
    for ratio in (2.0, 10.0, 100.0):
        mu, checked = 1 / ratio, 0
        for k in np.unique(np.geomspace(10, 1e6, 40).astype(int)):
            for epsilon in np.geomspace(1e-4, 100, 30):
                found = b.complexity(int(k), 1.0, mu, 1.0, 1.0, 1e-9, float(epsilon))
                if found.interval_holds:
                    checked += 1
                    assert b.payment_upper_bound(1 / k, 1.0, mu) <= epsilon * k / (k - 1)
        assert checked > 50


def test_d1_the_sum_is_over_the_others(solved):
    problem, model, exact = solved
    groups = random_clusters(10, 10, np.random.default_rng(7))
    right = cluster_payments(problem, model, groups)
    assert right.amount == pytest.approx(exact, abs=1e-9)
    k = int(groups[0][0])  # line 13 as printed sums over the cluster itself: the own model
    own = minimise(problem, problem.one(k))
    others = problem.without_each()[k]
    printed = (problem.value(model, others) - problem.value(own, others)) / problem.weights[k]
    assert printed < 0


def test_d3_a_loss_in_clear_tells_one_sample_from_another(solved):
    """Line 15 sends F_k(w*) - F_k(w_l) without noise: replacing one sample changes the number sent."""
    problem, model, _ = solved
    x, y, _, _ = rows()
    owner = owners(y, 0.5)
    changed = y.copy()
    changed[np.flatnonzero(owner == 0)[0]] = 9 - changed[np.flatnonzero(owner == 0)[0]]
    neighbour = SoftmaxRegression(x, changed, owner, 10, MU)
    without = vcg_payments(problem, model).models[1]
    sent = [float(np.subtract(*p.losses(np.stack([model, without]))[:, 0])) for p in (problem, neighbour)]
    assert abs(sent[0] - sent[1]) > 1e-6  # whoever knows the rest reads off which of the two it was


def test_d6_the_printed_composition_counts_too_many_sums():
    n, p = np.full(10, 1000.0), np.full(10, 0.1)
    options = {"clip": 1.0, "alpha": 1.0, "beta": 1e-5, "training_steps": 80, "payment_steps": 20}
    few = calibrate(n, p, clusters=4, calibration="zcdp", **options)
    many = calibrate(n, p, clusters=10, calibration="zcdp", **options)
    # T_1 + (L-1) T_2 against T_1 + K T_2
    assert (many.gradient / few.gradient) ** 2 == pytest.approx((80 + 9 * 20) / (80 + 3 * 20))
    printed = calibrate(n, p, clusters=4, calibration="printed", **options)
    assert printed.gradient**2 == pytest.approx(
        16 * (80 + 10 * 20) * math.log(1e5) / (10**2 * 1000**2), rel=1e-12
    )


def test_d7_the_printed_conversion_does_not_keep_alpha():
    for alpha, beta, true in ((0.1, 0.01, 0.10054), (10.0, 1e-5, 12.17147)):
        rho = privacy_loss(alpha, beta, "printed")
        assert b.zcdp_epsilon(rho, beta) == pytest.approx(true, rel=1e-4)
        assert b.zcdp_epsilon(privacy_loss(alpha, beta, "zcdp"), beta) == pytest.approx(alpha, rel=1e-9)
        assert privacy_loss(alpha, beta, "exact") > privacy_loss(alpha, beta, "zcdp")


def test_d11_clusters_make_the_server_pay(solved):
    problem, model, exact = solved
    totals = [
        cluster_payments(problem, model, random_clusters(10, count, np.random.default_rng(7))).total
        for count in (2, 4, 5, 10)
    ]
    assert np.all(np.diff(totals) > 0)
    assert totals[2] < 0 < totals[3]
    assert totals[3] == pytest.approx(exact.sum())


def test_an_agent_under_the_printed_stop_gains_by_lying(solved):
    problem, _, _ = solved

    def overall(factor, **options):
        mix = problem.weights.copy()
        mix[3] *= factor
        model = minimise(problem, mix)
        reports = Aggregation(problem, {3: amplify(factor)})
        paid, _ = pay(problem, model, reports, payers=[3], **options)
        return problem.losses(model[None])[0, 3] + paid.amount[3]

    assert overall(3.0, rule="left", variant="printed") < overall(1.0, rule="left", variant="printed") - 0.1
    assert overall(3.0) > overall(1.0) + 0.1
