"""A cap on epsilon: the water level, who fills which place, payments, the bound (theory B9)."""

import numpy as np
import pytest

from bonafed.economics import TruncatedExponential, Uniform, audit
from bonafed.errors import InvalidValue
from bonafed.mechanisms.jsam import (
    Cheapest,
    Fixed,
    Jsam,
    JsamMechanism,
    allocate,
    complete_information,
    eta_for_budget,
    eta_for_expected_budget,
    largest_losses,
    least_objective,
    objective,
    settle,
    unbiased,
)
from bonafed.mechanisms.jsam.capped import CappedLadder, leader_counts
from bonafed.mechanisms.jsam.controls import ClippedMechanism
from tests.oracles import jsam as oracle

RNG = np.random.default_rng(16)


def cases(count, largest, smallest=2):
    """(v, eta, Q, cap): virtual costs over three decades, a cap that may bind anyone."""
    return list(_cases(count, largest, smallest))


def _cases(count, largest, smallest):
    for _ in range(count):
        n = int(RNG.integers(smallest, largest + 1))
        v, eta, q = 10 ** RNG.uniform(-2, 1, n), 10 ** RNG.uniform(-1, 2), 10 ** RNG.uniform(-1, 2)
        free = allocate(v, eta, q).privacy.max()
        yield v, eta, q, free * 10 ** RNG.uniform(-1.5, 0.1)


@pytest.mark.parametrize("case", cases(6, 6))
def test_the_water_level_against_a_convex_solver(case):
    v, eta, q, cap = case
    caps = cap * RNG.uniform(0.5, 2, v.size)
    p = RNG.dirichlet(np.ones(v.size))
    found = Fixed(p, caps).plan(v, eta, q)
    value, epsilon = oracle.capped_by_solver(p, caps, v, eta, q)
    assert found.objective == pytest.approx(value, rel=1e-6)
    assert found.objective <= value * (1 + 1e-7)
    assert found.privacy == pytest.approx(epsilon, rel=2e-2, abs=1e-3 * cap)
    assert np.all(found.privacy <= caps)
    assert found.objective == pytest.approx(oracle.least_capped(p, caps, v, eta, q), rel=1e-12)
    assert found.objective == pytest.approx(objective(p, found.privacy, v, eta, q), rel=1e-12)


@pytest.mark.parametrize("case", cases(12, 5))
def test_the_plan_is_the_least_over_all_ways_to_fill_the_places(case):
    v, eta, q, cap = case
    caps = np.full(v.size, cap)
    everything = oracle.all_fills(v.size, leader_counts(v.size))
    least = min(oracle.least_capped(p, caps, v, eta, q) for p in everything)
    assert allocate(v, eta, q, max_epsilon=cap).objective == pytest.approx(least, rel=1e-11)


@pytest.mark.parametrize("case", cases(20, 40))
def test_a_cap_that_binds_nobody_changes_nothing(case):
    v, eta, q, _ = case
    free = allocate(v, eta, q)
    loose = allocate(v, eta, q, max_epsilon=free.privacy.max() * (1 + 1e-9))
    assert loose.objective == pytest.approx(free.objective, rel=1e-13)
    assert loose.selection == pytest.approx(free.selection, abs=1e-15)
    assert loose.privacy == pytest.approx(free.privacy, rel=1e-9)


@pytest.mark.parametrize("per_client", [False, True])
@pytest.mark.parametrize("case", cases(6, 25))
def test_the_value_is_concave_in_the_own_cost_and_its_slope_is_epsilon(case, per_client):
    v, eta, q, cap = case
    caps = cap * 10 ** RNG.uniform(-0.5, 0.5, v.size) if per_client else cap
    k = int(RNG.integers(v.size))
    x = np.geomspace(v[k] / 50, v[k] * 50, 61)
    made = CappedLadder(v, eta, q, caps)
    own = made.own(np.full(x.size, k), x)
    slope, width = np.diff(own.value) / np.diff(x), np.diff(x)
    rounding = 1e-13 * own.value.max() / width
    assert np.all(own.privacy[1:] <= slope + rounding)
    assert np.all(slope <= own.privacy[:-1] + rounding)
    assert np.all(np.diff(own.privacy) <= 1e-12 * np.max(caps))
    other = v.copy()
    other[k] = x[20]
    there = CappedLadder(other, eta, q, caps)
    assert own.value[20] == pytest.approx(there.objective, rel=1e-13)
    assert own.privacy[20] == pytest.approx(there.privacy[k], rel=1e-9)
    assert objective(there.selection, there.privacy, other, eta, q) == pytest.approx(
        there.objective, rel=1e-12
    )
    assert np.all(there.privacy <= np.broadcast_to(caps, v.shape))


@pytest.mark.parametrize("case", cases(4, 3, 3))
def test_no_selection_of_a_grid_beats_the_bound(case):
    v, eta, q, cap = case
    caps = np.full(3, cap)
    least = min(oracle.least_capped(p, caps, v, eta, q) for p in oracle.simplex_grid(3, 24))
    bound = least_objective(v, eta, q, cap)
    assert bound <= least * (1 + 1e-12)
    assert bound <= allocate(v, eta, q, max_epsilon=cap).objective
    assert bound >= allocate(v, eta, q).objective * (1 - 1e-12)


@pytest.mark.parametrize("clients", [20, 60, 100])
def test_many_clients_leave_little_to_gain_beyond_the_places(clients):
    v = RNG.uniform(0.02, 2, clients)
    for eta, share in ((2, 0.5), (5, 0.1), (20, 0.03)):
        cap = share * allocate(v, eta, 1).privacy.max()
        found = allocate(v, eta, 1, max_epsilon=cap).objective
        assert found * 0.995 <= least_objective(v, eta, 1, cap) <= found


COSTS = np.array([0.05, 0.12, 0.35, 0.5, 0.71, 0.93])
CLAIMS = ("truthful", "individually rational", "monotone", "feasible")


def report_on(mechanism, cap, claims=CLAIMS):
    return audit(mechanism, 0.0, 1.0, profiles=[COSTS], points=41, claims=claims, quantity_limit=cap)


def test_clipping_the_optimum_is_caught_where_the_mechanism_under_the_cap_is_not():
    prior = Uniform(0, 1)
    assert report_on(JsamMechanism(prior, 1, 1, max_epsilon=0.3), 0.3).passed
    clipped = report_on(ClippedMechanism(prior, 1, 1, 0.3), 0.3, ("truthful", "monotone"))
    witness = clipped["truthful"].witness
    assert witness.report < witness.true_cost  # it pays to understate
    assert witness.gain > 0.01
    assert clipped["monotone"].holds  # it is the payment that is wrong


def test_payments_are_the_integral_of_what_is_bought():
    prior = TruncatedExponential(2.0, 0.0, 1.0)
    done = settle(COSTS, prior, 1, 1, max_epsilon=0.3)
    k = 2
    z = np.linspace(COSTS[k], 1.0, 201)
    others = prior.virtual_cost(COSTS)
    bought = []
    for x in prior.virtual_cost(z):
        others[k] = x
        bought.append(allocate(others, 1, 1, max_epsilon=0.3).privacy[k])
    low, high = (sum(part) * (z[1] - z[0]) for part in (bought[1:], bought[:-1]))
    assert high - low < 0.1 * high
    assert low <= done.payment[k] - COSTS[k] * done.allocation.privacy[k] <= high
    assert done.payment_error.max() < 1e-6


@pytest.mark.parametrize("eta", [1e6, 1e10, 1e17, 1e100, 1e300])
@pytest.mark.parametrize("noise_at", ["client", "sum"])
@pytest.mark.parametrize("prior", [Uniform(0, 1), TruncatedExponential(2.0, 0.0, 1.0)])
def test_where_eta_is_large_everybody_sells_the_cap_at_the_highest_cost(prior, noise_at, eta):
    """Whatever is reported: the payment is the cap times the first cost at which nothing more is bought."""
    done = settle(COSTS, prior, eta, 1, rule=Jsam(3.0, noise_at))
    assert done.allocation.privacy.tolist() == [3.0] * 6
    assert done.payment == pytest.approx([3.0] * 6, rel=1e-12)
    three = settle(COSTS, prior, eta, 1, rule=Cheapest(3, max_epsilon=3.0, noise_at=noise_at))
    assert three.payment == pytest.approx([3 * COSTS[3]] * 3 + [0.0] * 3, rel=1e-10)
    if noise_at == "client":
        caps = np.array([3.0, 1.0, 0.1, 2.0, 5.0, 4.0])
        each = settle(COSTS, prior, eta, 1, max_epsilon=caps)
        assert np.all(each.allocation.privacy <= caps)
        assert each.payment == pytest.approx(each.allocation.privacy, rel=1e-12)


@pytest.mark.parametrize(
    "rule", [None, unbiased(6), Cheapest(3), Cheapest(3, "tables"), largest_losses([3, 1, 2, 6, 5, 4], 4)]
)
def test_money_goes_with_a_cap(rule):
    prior = Uniform(0, 1)
    found = eta_for_budget(COSTS, prior, 0.4, 1, rule=rule, max_epsilon=0.3)
    assert 0.3 < found.settlement.spend <= 0.4
    assert found.settlement.allocation.privacy.max() <= 0.3
    eta = eta_for_expected_budget(prior, 6, 0.4, 1, rule=rule, max_epsilon=0.3, samples=20)
    draws = np.random.default_rng(3).uniform(0, 1, (60, 6))
    spent = [settle(c, prior, eta, 1, rule=rule, max_epsilon=0.3).spend for c in draws]
    assert np.mean(spent) == pytest.approx(0.4, rel=0.2)
    with pytest.raises(
        InvalidValue,
        match=r"^budget must be smaller: even with everybody at max_epsilon it cannot be spent",
    ):
        eta_for_budget(COSTS, prior, 10.0, 1, rule=rule, max_epsilon=0.3)


def test_known_costs_and_a_client_that_is_not_admitted():
    known = complete_information(COSTS, 1, 1, max_epsilon=0.3)
    assert known.allocation.privacy.max() == 0.3
    assert known.spend < settle(COSTS, Uniform(0, 1), 1, 1, max_epsilon=0.3).spend * 2
    caps = [0.3, 0.2, 0.5, 0.2, 0.3, 9.0, 0.4]
    out = settle([*COSTS[:5], 1.2, COSTS[5]], Uniform(0, 1), 1, 1, max_epsilon=caps)
    without = settle(COSTS, Uniform(0, 1), 1, 1, max_epsilon=caps[:5] + caps[6:])
    assert np.delete(out.payment, 5) == pytest.approx(without.payment, rel=1e-12)
    assert out.payment[5] == out.allocation.privacy[5] == 0


def test_mistakes_are_named():
    prior = Uniform(0, 1)
    with pytest.raises(InvalidValue, match=r"^max_epsilon must be positive, got 0\.0$"):
        settle(COSTS, prior, 1, 1, max_epsilon=0)
    with pytest.raises(
        InvalidValue, match=r"^max_epsilon must be one number, or 6, one per client, got 2$"
    ):
        settle(COSTS, prior, 1, 1, max_epsilon=[1, 2])
    with pytest.raises(
        InvalidValue, match=r"^max_epsilon must be one for all clients with the M cheapest, got 6$"
    ):
        settle(COSTS, prior, 1, 1, rule=Cheapest(2), max_epsilon=[1, 2, 1, 1, 1, 1])
    with pytest.raises(InvalidValue, match=r"^max_epsilon must not be given for the printed variant"):
        allocate(np.sort(COSTS), 1, 1, "printed", max_epsilon=1)
    assert Jsam([1.0, 1.0]).max_epsilon == 1.0  # caps that are all alike are one
