"""The JSAM optimum: against every vertex, grids, random plans and local search; the printed algorithm."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bonafed.mechanisms.jsam import allocate, objective
from bonafed.mechanisms.jsam.thresholds import best_threshold, ladder
from tests.oracles import jsam as oracle
from tests.theorems.strategies import NOISE_SCALES, WEIGHTS, fewer, powers_of_ten, virtual_costs

CASES = given(virtual_costs(), WEIGHTS, NOISE_SCALES)
LARGER = given(virtual_costs(most=40, least=6), WEIGHTS, NOISE_SCALES)


@st.composite
def near_transition(draw, most=60, least=2):
    """eta and Q chosen so that neither everybody nor only the cheapest is selected."""
    n = draw(st.integers(least, most))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    v = rng.uniform(0.02, 2.0, n) ** draw(st.sampled_from([1.0, 3.0]))
    return v, draw(powers_of_ten(-1, 1.5)), draw(powers_of_ten(-1, 1)) * n**-0.5


@CASES
def test_no_vertex_is_better(v, eta, q):
    plan = allocate(v, eta, q)
    value, _, _, _ = oracle.brute(v, eta, q)
    assert plan.objective == pytest.approx(value, rel=1e-12)


@given(near_transition(most=6))
def test_the_plan_is_the_best_vertex(case):
    v, eta, q = case
    plan = allocate(v, eta, q)
    _, p, epsilon, total = oracle.brute(v, eta, q)
    assert plan.selection == pytest.approx(p, rel=1e-12, abs=1e-15)
    assert plan.privacy == pytest.approx(epsilon, rel=1e-11, abs=1e-15)
    assert plan.total == pytest.approx(total, rel=1e-11)
    assert plan.threshold == np.count_nonzero(p)


@given(virtual_costs(most=4, least=2), WEIGHTS, NOISE_SCALES)
def test_no_point_of_a_simplex_grid_is_better(v, eta, q):
    grid = oracle.simplex_grid(v.size, {2: 400, 3: 60, 4: 24}[v.size])
    assert allocate(v, eta, q).objective <= oracle.value_of(grid, v, eta, q).min() * (1 + 1e-13)


@pytest.mark.parametrize("n", [6, 12, 30, 100])
@pytest.mark.parametrize("eta", [0.3, 1.0, 5.0])
def test_no_random_or_searched_plan_is_better(n, eta):
    rng = np.random.default_rng(n)
    v = rng.uniform(0.02, 2.0, n)
    plan = allocate(v, eta, 1.0)
    found = oracle.local_search(v, eta, 1.0, rng, plans=2000, rounds=12)
    assert plan.objective <= found * (1 + 1e-13)


def test_the_local_search_is_worth_beating():
    """On five clients it finds the best vertex."""
    v = np.array([0.24, 0.7, 1.0, 1.42, 1.86])
    found = oracle.local_search(v, 1.0, 1.0, np.random.default_rng(0), rounds=60)
    assert found == pytest.approx(oracle.brute(v, 1.0, 1.0)[0], rel=1e-6)


@LARGER
def test_a_plan_is_what_it_says(v, eta, q):
    plan = allocate(v, eta, q)
    assert plan.selection.sum() == pytest.approx(1.0, rel=1e-14)
    assert np.all((plan.privacy > 0) == (plan.selection > 0))
    assert plan.privacy @ v == pytest.approx(plan.total, rel=1e-12)
    assert plan.objective == pytest.approx(objective(plan.selection, plan.privacy, v, eta, q), rel=1e-12)
    assert plan.distance == pytest.approx(np.abs(plan.selection - 1 / v.size).sum(), abs=1e-13)
    assert plan.eta * plan.loss + plan.total == pytest.approx(plan.objective, rel=1e-14)


def full_scan(v, eta, q):
    """(n,) the objective of every threshold."""
    ordered, n = np.sort(v), v.size
    w, h = ordered ** (2 / 3), np.arange(1, v.size + 1)
    spread = (w[0] * (n - h + 1) ** (2 / 3) + np.cumsum(w) - w[0]) / n ** (2 / 3)
    return oracle.least(eta, 2 * (n - h) / n, spread, q)[1]


@LARGER
def test_the_best_threshold_is_that_of_the_full_scan(v, eta, q):
    scan = full_scan(v, eta, q)
    h, _, value = best_threshold(np.sort(v), eta, q)
    assert value == pytest.approx(scan.min(), rel=1e-12)
    assert scan[h - 1] == pytest.approx(scan.min(), rel=1e-12)


@pytest.mark.parametrize("eta", [0.01, 1.0, 30.0, 1e4])
@pytest.mark.parametrize("power", [1.0, 6.0])
def test_halving_finds_what_the_full_scan_finds(eta, power):
    """More thresholds than are looked at one by one."""
    v = np.random.default_rng(1).uniform(0.01, 2.0, 20_000) ** power
    scan = full_scan(v, eta, 1.0)
    h, _, value = best_threshold(np.sort(v), eta, 1.0)
    assert value == pytest.approx(scan.min(), rel=1e-13)
    assert scan[h - 1] == pytest.approx(scan.min(), rel=1e-13)


@given(virtual_costs(most=40, least=17), WEIGHTS, NOISE_SCALES)
@fewer(0.3)
def test_halving_answers_many_questions_like_few(v, eta, q):
    """Many questions are answered by halving, few by looking at every threshold."""
    n = v.size
    x = np.concatenate([v, np.geomspace(1e-6, 100, 800 - n)])
    k = np.arange(800) % n
    base = ladder(v, eta, q)
    together = base.own(k, x)
    apart = [base.own(k[i : i + 40], x[i : i + 40]) for i in range(0, 800, 40)]
    assert together.value == pytest.approx(np.concatenate([a.value for a in apart]), rel=1e-13)
    privacy = np.concatenate([a.privacy for a in apart])
    same = np.isclose(together.privacy, privacy, rtol=1e-11, atol=0)
    assert same.mean() > 0.99  # two thresholds may be equally good to the last digit


@given(near_transition(), st.integers(0, 2**32 - 1))
def test_the_order_of_the_input_is_kept(case, seed):
    v, eta, q = case
    order = np.random.default_rng(seed).permutation(v.size)
    plan, shuffled = allocate(v, eta, q), allocate(v[order], eta, q)
    assert shuffled.selection == pytest.approx(plan.selection[order], rel=1e-14)
    assert shuffled.privacy == pytest.approx(plan.privacy[order], rel=1e-12)
    assert shuffled.objective == pytest.approx(plan.objective, rel=1e-14)


@pytest.mark.parametrize("eta", [0.3, 0.5, 0.58, 0.6, 2.0])
def test_equal_costs_are_taken_in_the_order_of_the_clients(eta):
    v = np.array([1.0, 0.2, 1.0, 0.2, 1.0, 1.0])
    plan = allocate(v, eta, noise_scale=1.0)
    order = [1, 3, 0, 2, 4, 5]
    assert np.flatnonzero(plan.selection).tolist() == sorted(order[: plan.threshold])
    assert plan.threshold == 6 or int(np.argmax(plan.selection)) == 1


def test_a_threshold_may_fall_among_equals():
    thresholds = {allocate([1.0, 0.2, 1.0, 0.2, 1.0, 1.0], eta, 1.0).threshold for eta in (0.5, 0.58, 0.6)}
    assert thresholds & {3, 4, 5}


@LARGER
def test_objective_rises_with_eta_and_with_the_noise(v, eta, q):
    base = allocate(v, eta, q).objective
    assert allocate(v, eta * 1.3, q).objective >= base * (1 - 1e-14)
    assert allocate(v, eta, q * 1.3).objective >= base * (1 - 1e-14)


@LARGER
def test_a_larger_eta_buys_more_and_leaves_less_loss(v, eta, q):
    small, large = allocate(v, eta, q), allocate(v, eta * 1.3, q)
    assert large.total >= small.total * (1 - 1e-9)
    assert large.loss <= small.loss * (1 + 1e-9)


@given(near_transition(most=25), st.integers(0, 10**6))
def test_privacy_sold_falls_in_the_own_cost(case, number):
    v, eta, q = case
    k = number % v.size
    ordered = np.sort(np.concatenate([np.geomspace(1e-6, 10.0, 120), v, v * (1 + 1e-12), v * (1 - 1e-12)]))
    own = ladder(v, eta, q).own(np.full(ordered.size, k), ordered)
    assert np.all(own.privacy[1:] <= own.privacy[:-1] * (1 + 1e-12))
    assert np.all(np.diff(own.value) >= -1e-13 * own.value[-1])
    chords = np.diff(own.value) / np.diff(ordered)
    wide = np.diff(ordered) > 1e-3 * ordered[:-1]
    room = 1e-11 * own.value[-1] / np.diff(ordered)
    assert np.all((chords <= own.privacy[:-1] + room) & (chords >= own.privacy[1:] - room) | ~wide)


@given(near_transition(most=25), st.data())
def test_what_if_one_client_reports_otherwise(case, data):
    """The answer of the ladder is a fresh allocation; reports that tie with others included."""
    v, eta, q = case
    n = v.size
    k = data.draw(st.integers(0, n - 1))
    x = data.draw(st.one_of(st.sampled_from(v.tolist()), powers_of_ten(-6, 2)))
    changed = v.copy()
    changed[k] = x
    own = ladder(v, eta, q).own(np.array([k]), np.array([x]))
    fresh = allocate(changed, eta, q)
    assert own.value[0] == pytest.approx(fresh.objective, rel=1e-13)
    assert own.privacy[0] == pytest.approx(fresh.privacy[k], rel=1e-11, abs=1e-15)


@given(st.lists(st.sampled_from([0.2, 0.5, 1.0]), min_size=1, max_size=24), WEIGHTS, NOISE_SCALES)
@fewer(0.4)
def test_what_if_with_ties_everywhere(costs, eta, q):
    """Whoever ties with others stands behind those of smaller number."""
    v = np.array(costs)
    n = v.size
    clients, x = np.repeat(np.arange(n), 3), np.tile([0.2, 0.5, 1.0], n)
    own = ladder(v, eta, q).own(clients, x)
    for k, cost, value, privacy in zip(clients, x, own.value, own.privacy, strict=True):
        changed = v.copy()
        changed[k] = cost
        fresh = allocate(changed, eta, q)
        assert value == pytest.approx(fresh.objective, rel=1e-13)
        assert privacy == pytest.approx(fresh.privacy[k], rel=1e-11, abs=1e-15)


@given(virtual_costs(least=2), WEIGHTS, NOISE_SCALES)
@fewer(0.4)
def test_what_if_a_client_is_infinitely_dear(v, eta, q):
    n = v.size
    own = ladder(v, eta, q).own(np.arange(n), np.full(n, np.inf))
    assert own.privacy.tolist() == [0.0] * n
    for k in range(n):
        value = oracle.own_curve(v, k, [np.inf], eta, q)[1][0]
        assert own.value[k] == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize("x", [1e-12, 0.3, 1e300])
def test_what_if_the_only_client_reports_otherwise(x):
    own = ladder(np.array([0.7]), 2.0, 3.0).own(np.array([0]), np.array([x]))
    fresh = allocate([x], 2.0, 3.0)
    assert own.value[0] == pytest.approx(fresh.objective, rel=1e-14)
    assert own.privacy[0] == pytest.approx(fresh.privacy[0], rel=1e-13)
    assert own.privacy[0] * x == pytest.approx(own.value[0] / 2, rel=1e-13)  # half is spent: l = 0


def test_more_questions_than_fit_in_one_answer():
    v = np.random.default_rng(0).uniform(0.1, 2, 50)
    k, x = np.arange(20_000) % 50, np.linspace(0.01, 3, 20_000)
    base = ladder(v, 1.0, 0.2)
    own, last = base.own(k, x), base.own(k[-3:], x[-3:])
    assert own.value.size == own.privacy.size == 20_000
    assert own.value[-3:].tolist() == last.value.tolist()
    assert own.privacy[-3:].tolist() == last.privacy.tolist()


def test_one_client_is_bought_alone():
    plan = allocate([0.7], eta=2.0, noise_scale=3.0)
    total, value = oracle.least(2.0, 0.0, 0.7 ** (2 / 3), 3.0)
    assert plan.selection.tolist() == [1.0]
    assert plan.objective == pytest.approx(float(value), rel=1e-14)
    assert plan.privacy[0] == pytest.approx(float(total) / 0.7, rel=1e-14)


@given(st.lists(st.floats(0.02, 2.0), min_size=1, max_size=7), powers_of_ten(-1, 1), powers_of_ten(-1, 1))
@fewer(0.5)
def test_the_printed_algorithm_is_never_better(costs, eta, q):
    v = np.sort(costs)
    exact, printed = allocate(v, eta, q), allocate(v, eta, q, "printed", grid=0.1 / v.size)
    assert printed.objective >= exact.objective * (1 - 1e-12)
    if exact.threshold > 1:
        assert printed.objective == pytest.approx(exact.objective, rel=1e-12)


def test_the_printed_algorithm_is_worse_where_one_client_is_enough():
    v = [0.24, 0.7, 1.0, 1.42, 1.86]
    exact, printed = allocate(v, 1.0, 100.0), allocate(v, 1.0, 100.0, "printed", grid=0.01)
    assert exact.threshold == 1
    assert printed.objective > exact.objective * 1.01
    many, few = allocate(v, 0.1, 1.0), allocate(v, 0.1, 1.0, "printed", grid=0.001)
    assert f"{few.objective / many.objective - 1:+.1%}" == "+9.1%"
