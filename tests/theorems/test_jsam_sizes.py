"""Unequal amounts of data: the knapsack against every vertex, and payments against every lie."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bonafed.economics import Discrete, TruncatedExponential, Uniform, audit
from bonafed.mechanisms.jsam import (
    Fixed,
    Jsam,
    JsamMechanism,
    Unequal,
    allocate,
    allocate_unequal,
    eta_for_budget,
    eta_for_expected_budget,
    objective,
    settle,
)
from bonafed.mechanisms.jsam.controls import EqualRents
from bonafed.mechanisms.jsam.sizes import Averaged, unbiased_by_size
from bonafed.mechanisms.jsam.thresholds import inner
from tests.oracles import jsam as oracle
from tests.theorems.strategies import fewer, powers_of_ten

COSTS = np.array([0.12, 0.35, 0.5, 0.71, 0.93])
SIZES = np.array([30, 10, 25, 5, 30])
RECORDS = np.array([20, 10, 20, 5, 20])
CLAIMS = ["truthful", "individually rational", "monotone"]
RULES = {
    "sizes": Unequal(SIZES),
    "sizes and records": Averaged(Unequal(SIZES), RECORDS),
    "everybody by its share": Averaged(unbiased_by_size(SIZES), RECORDS),
}


@st.composite
def unequal(draw, most, least=1):
    """Virtual costs, sizes, eta, Q: small sizes with ties, and large ones with none in common."""
    n = draw(st.integers(least, most))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    sizes = rng.integers(1, draw(st.sampled_from([2, 5, 60, 900])) + 1, n)
    v = rng.uniform(0.02, 2, n) ** draw(st.sampled_from([1.0, 3.0]))
    if draw(st.booleans()):
        v = rng.choice([0.3, 1.0, 1.0 + 1e-9, 2.5], n)
    return v, sizes, draw(powers_of_ten(-1, 1.5)), draw(powers_of_ten(-2, 1.5))


@given(unequal(most=7))
def test_no_vertex_is_better(case):
    v, sizes, eta, q = case
    found = allocate_unequal(v, sizes, eta, q)
    shares = sizes / sizes.sum()
    assert found.objective == pytest.approx(oracle.brute(v, eta, q, shares=shares)[0], rel=1e-12)
    assert found.objective == pytest.approx(
        objective(found.selection, found.privacy, v, eta, q, shares), rel=1e-12
    )
    assert found.selection.sum() == pytest.approx(1.0, rel=1e-13)
    assert found.distance == pytest.approx(np.abs(found.selection - shares).sum(), abs=1e-13)


@given(unequal(most=6, least=2), st.integers(0, 2**32 - 1))
@fewer(0.2)
def test_nothing_between_the_vertices_is_better(case, seed):
    v, sizes, eta, q = case
    rng, shares = np.random.default_rng(seed), sizes / sizes.sum()
    best = allocate_unequal(v, sizes, eta, q).objective
    assert best <= oracle.local_search(v, eta, q, rng, 500, 15, shares=shares) * (1 + 1e-12)


def every_set(v, u, eta, q):
    """The least J over all leaders and all sets left out, by enumeration."""
    n = v.size
    sets = (np.arange(1 << n)[:, None] >> np.arange(n)) & 1
    mass, w = sets @ u, np.cbrt(u * v) ** 2
    best = np.inf
    for leader in range(n):
        some = sets[:, leader] == 0
        lead = np.cbrt(v[leader] * (u[leader] + mass[some])) ** 2
        spread = (1 - sets[some]) @ w - w[leader] + lead
        best = min(best, float(inner(eta, 2 * mass[some], spread, q).objective.min()))
    return best


@pytest.mark.parametrize("seed", range(6))
def test_no_set_of_thirteen_clients_is_better(seed):
    rng = np.random.default_rng(seed)
    v, sizes = rng.uniform(0.02, 2, 13), rng.integers(1, 400, 13)
    for eta in (0.2, 1.0, 5.0):
        best = every_set(v, sizes / sizes.sum(), eta, 0.5)
        assert allocate_unequal(v, sizes, eta, 0.5).objective == pytest.approx(best, rel=1e-12)


def in_order_of_density(v, u, eta, q):
    """The least J if clients are left out in the order of the fractional knapsack: a heuristic."""
    w = np.cbrt(u * v) ** 2
    order, best = np.argsort(-w / u, kind="stable"), np.inf
    for leader in range(v.size):
        others = order[order != leader]
        mass, gone = (np.concatenate([[0.0], np.cumsum(part[others])]) for part in (u, w))
        spread = gone[-1] - gone + np.cbrt(v[leader] * (u[leader] + mass)) ** 2
        best = min(best, float(inner(eta, 2 * mass, spread, q).objective.min()))
    return best


def test_many_clients_are_planned_better_than_by_a_heuristic():
    rng, gaps = np.random.default_rng(0), []
    for n in [9] * 40 + [30] * 20:
        v, sizes = rng.uniform(0.02, 2, n), 1 + (500 * rng.gamma(0.5, size=n)).astype(int)
        greedy = in_order_of_density(v, sizes / sizes.sum(), 1.0, 1.0)
        gaps.append(1 - allocate_unequal(v, sizes, 1.0, 1.0).objective / greedy)
    assert min(gaps) >= -1e-12
    assert max(gaps) > 1e-5


@pytest.mark.parametrize("n", [1, 3, 20, 60])
def test_equal_sizes_give_the_plan_and_the_payments_for_equal_sizes(n):
    costs = np.random.default_rng(n).uniform(0.05, 1, n)
    for eta in (0.3, 1.0, 5.0):
        alike = allocate(2 * costs, eta, 0.5)
        found = allocate_unequal(2 * costs, np.full(n, 12), eta, 0.5)
        assert found.objective == pytest.approx(alike.objective, rel=1e-12)
        np.testing.assert_allclose(found.selection, alike.selection, rtol=1e-12)
        for prior in (Uniform(0, 1), TruncatedExponential(2.0, 0.0, 1.0)):
            due, mine = (
                settle(costs, prior, eta, 0.5),
                settle(costs, prior, eta, 0.5, rule=Unequal([7] * n)),
            )
            np.testing.assert_allclose(mine.payment, due.payment, rtol=1e-9, atol=1e-12)


@given(unequal(most=6), st.integers(0, 2**32 - 1))
@fewer(0.5)
def test_what_if_questions_are_plans_for_other_costs(case, seed):
    v, sizes, eta, q = case
    rng = np.random.default_rng(seed)
    k, x = rng.integers(0, v.size, 12), 10 ** rng.uniform(-3, 1.5, 12)
    own = Unequal(sizes).own(v, eta, q, k, x)
    for client, cost, value, epsilon in zip(k, x, own.value, own.privacy, strict=True):
        other = v.copy()
        other[client] = cost
        plan = Unequal(sizes).plan(other, eta, q)
        assert value == pytest.approx(plan.objective, rel=1e-12)
        assert epsilon == pytest.approx(plan.privacy[client], rel=1e-9, abs=1e-12)


@given(unequal(most=7, least=2), st.booleans())
@fewer(0.5)
def test_the_objective_is_concave_in_the_own_cost_with_slope_epsilon(case, averaged):
    v, sizes, eta, q = case
    rule = Averaged(Unequal(sizes), np.minimum(sizes, 20)) if averaged else Unequal(sizes)
    x = np.linspace(0.01, 3.0, 301)
    for k in range(v.size):
        own = rule.own(v, eta, q, np.full(x.size, k), x)
        steps, room = np.diff(own.value) / np.diff(x), 1e-9 * own.privacy[0] + 1e-10 * own.value[0]
        assert np.all(own.privacy[1:] <= steps + room)
        assert np.all(steps <= own.privacy[:-1] + room)


EXPONENTIAL = TruncatedExponential(2.0, 0.0, 1.0)
OTHERS = {"uniform": Uniform(0, 1), "discrete": Discrete([0.2, 0.5, 0.9, 1.0], [0.4, 0.1, 0.3, 0.2])}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    ("prior", "eta"),
    [
        *(
            pytest.param(prior, eta, id=f"{eta}-{name}")
            for eta in (1.0, 6.0)
            for name, prior in OTHERS.items()
        ),
        pytest.param(EXPONENTIAL, 6.0, id="6.0-exponential"),
        pytest.param(EXPONENTIAL, 1.0, id="1.0-exponential", marks=pytest.mark.deep),
    ],
)
def test_no_lie_pays_and_nobody_loses(rule, prior, eta):
    scale = 1.0 if rule == "sizes" else 60.0
    report = audit(
        JsamMechanism(prior, eta, scale, RULES[rule]), prior.low, prior.high,
        profiles=[COSTS, np.full(5, 0.5)], points=21, claims=CLAIMS,
    )  # fmt: skip
    assert report.passed, [str(finding) for finding in report.findings]


def test_no_report_of_a_grid_gains():
    """From settlements alone, without the audit."""
    prior, rule = Uniform(0, 1), RULES["sizes and records"]

    def left(k, report):
        stated = COSTS.copy()
        stated[k] = report
        return settle(stated, prior, 1.0, 60.0, rule=rule).utility(COSTS)[k]

    for k in range(5):
        truth = left(k, COSTS[k])
        assert truth >= 0
        assert max(left(k, lie) for lie in np.linspace(0, 1.1, 56)) <= truth + 1e-9


def test_the_rents_of_equal_sizes_can_be_gamed():
    control = EqualRents(Uniform(0, 1), 1.0, 1.0, Unequal(SIZES))
    report = audit(control, 0.01, 1, profiles=[COSTS], points=41, claims=["truthful"])
    assert not report["truthful"].holds
    assert report["truthful"].witness.gain > 1e-3
    answers = [control.respond(COSTS, k, COSTS[[k]]) for k in range(5)]
    np.testing.assert_allclose(control.allocate(COSTS).transfer, [paid[0] for _, paid in answers])


@given(unequal(most=6, least=2), st.integers(0, 2**32 - 1))
@fewer(0.2)
def test_money_does_not_fall_in_the_weight_and_budgets_are_kept(case, seed):
    _, sizes, _, q = case
    costs = np.random.default_rng(seed).uniform(0.01, 1, sizes.size)
    rule = Unequal(sizes)
    totals = [rule.plan(2 * costs, eta, q).total for eta in np.geomspace(0.01, 100, 21)]
    assert np.all(np.diff(totals) >= -1e-12)
    assert eta_for_budget(costs, Uniform(0, 1), 2.0, q, rule=rule).settlement.spend <= 2.0


def test_an_expected_budget_is_spent_on_average():
    prior, rule = Uniform(0, 1), RULES["sizes and records"]
    eta = eta_for_expected_budget(prior, 5, 2.0, 60.0, rule=rule, samples=40)
    draws = np.random.default_rng(0).uniform(0, 1, (40, 5))
    money = rule.spending(2 * draws, eta, 60.0)
    np.testing.assert_allclose(money, [rule.plan(2 * c, eta, 60.0).total for c in draws], rtol=1e-12)
    assert money.mean() == pytest.approx(2.0, rel=1e-6)


def test_who_is_not_admitted_leaves_the_others_their_shares():
    stated = np.array([0.12, 0.35, 1.5, 0.71, 0.93])
    some = [0, 1, 3, 4]
    for name, rule in RULES.items():
        of_some = {
            "sizes": Unequal(SIZES[some]),
            "sizes and records": Averaged(Unequal(SIZES[some]), RECORDS[some]),
            "everybody by its share": Averaged(unbiased_by_size(SIZES[some]), RECORDS[some]),
        }[name]
        with_all = settle(stated, Uniform(0, 1), 2.0, 20.0, rule=rule)
        without = settle(stated[some], Uniform(0, 1), 2.0, 20.0, rule=of_some)
        assert with_all.payment[2] == with_all.allocation.selection[2] == 0
        np.testing.assert_allclose(with_all.payment[some], without.payment, rtol=1e-12)


def test_a_fixed_selection_is_as_far_from_fair_as_shares_say():
    shares = SIZES / SIZES.sum()
    assert unbiased_by_size(SIZES).plan(2 * COSTS, 1.0, 1.0).distance == 0
    by_size = Fixed(np.full(5, 0.2), shares=shares).plan(2 * COSTS, 1.0, 1.0)
    assert by_size.distance == pytest.approx(np.abs(0.2 - shares).sum())
    assert by_size.objective > allocate_unequal(2 * COSTS, SIZES, 1.0, 1.0).objective


def test_the_optimum_for_equal_sizes_is_dearer_where_sizes_count():
    shares = SIZES / SIZES.sum()
    alike = Jsam().plan(2 * COSTS, 1.0, 1.0)
    other = Fixed(alike.selection, shares=shares).plan(2 * COSTS, 1.0, 1.0)
    assert other.objective > allocate_unequal(2 * COSTS, SIZES, 1.0, 1.0).objective * 1.001


@pytest.mark.parametrize("dear", [1e-14, 1e12])
def test_one_cost_that_dwarfs_the_others_leaves_them_their_digits(dear):
    v, sizes = np.array([0.3, dear, 1.1, 0.7]), np.array([3, 4, 2, 6])
    for eta in (0.01, 1.0, 100.0):
        due = oracle.brute(v, eta, 1.0, shares=sizes / 15)
        found = allocate_unequal(v, sizes, eta, 1.0)
        assert found.objective == pytest.approx(due[0], rel=1e-12)
        np.testing.assert_allclose(found.privacy, due[2], rtol=1e-9, atol=1e-12)


def test_fronts_that_do_not_fit_are_forgotten_and_found_again(monkeypatch):
    from bonafed.mechanisms.jsam import sizes as module

    rng = np.random.default_rng(1)
    v, held = rng.uniform(0.02, 2, 12), rng.integers(1, 60, 12)
    k, x = np.repeat(np.arange(12), 3), rng.uniform(0.1, 2, 36)
    due = Unequal(held).own(v, 1.0, 1.0, k, x)
    monkeypatch.setattr(module, "_MOST_POINTS", 200)
    monkeypatch.setattr(module, "_CHUNK", 5)
    small = Unequal(held)
    for _ in range(2):
        again = small.own(v, 1.0, 1.0, k, x)
        np.testing.assert_array_equal(again.value, due.value)
        np.testing.assert_array_equal(again.privacy, due.privacy)
