"""Theorem 2 for continuous priors against quadrature and root bracketing (theory A4)."""

import itertools
import math
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bonafed.economics import TruncatedExponential, Uniform, audit
from bonafed.economics.audit import expected_transfer
from bonafed.mechanisms.sampling import complete_information_population, optimal_menu
from tests.oracles import continuous as slow
from tests.theorems.kinds import KINDS, NAMES, inner_costs
from tests.theorems.strategies import powers_of_ten

EVERY = pytest.mark.parametrize("kind", KINDS, ids=NAMES)
SHARES = [1e-9, 0.1, 0.35, 0.6, 0.85, 0.98, 1 - 1e-6]
EVERY_SHARE = pytest.mark.parametrize("share", SHARES)


@lru_cache
def pools_of(index):
    """The pools, found by the oracle on its own: a fine grid's hull, then refined."""
    kind = KINDS[index]
    if kind.regular:
        return ()
    pdf, cdf, kinks = kind.floats.pdf, kind.floats.cdf, kind.floats.kinks
    low, high = kind.prior.low, kind.prior.high
    near = [x + d * 1e-4 for x in kinks for d in range(-20, 21)]
    fine = [a + (b - a) * k / 400 for a, b in itertools.pairwise(kinks) for k in range(401)]
    points = np.array([*np.linspace(low, high, 8001), *(x for x in (*near, *fine) if low < x < high)])
    found = slow.grid_hull(np.vectorize(cdf), low, high, points)
    reach = 10 * (high - low) / 8000
    return tuple(
        slow.refine(pdf, cdf, low, high, p, min(reach, (p[1] - p[0]) / 3))
        for p in found
        if p[1] - p[0] > 1e-9
    )


# Far above every likely cost phi leaves the range of a double: quadrature has nothing to say there.
BEYOND_DOUBLES = {("normal-narrow", s) for s in SHARES if s > 0.8} | {("beta-large", 1 - 1e-6)}


def twin_menu(kind, budget):
    pools = pools_of(NAMES.index(kind.name))
    return slow.SlowMenu(kind.floats, kind.prior.low, kind.prior.high, budget, pools)


@pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning")
@EVERY_SHARE
@EVERY
def test_terms_and_expectations(kind, share):
    if (kind.name, share) in BEYOND_DOUBLES:
        pytest.skip("no double holds the virtual cost at the threshold")
    prior, budget = kind.prior, share * kind.prior.high
    menu, twin = optimal_menu(prior, budget), twin_menu(kind, budget)
    costs = inner_costs(prior, 4)
    q = np.array([twin.q(float(c)) for c in costs])
    meaningful = q > 1e-14 * q.max()
    assert menu.probability(costs)[meaningful] == pytest.approx(q[meaningful], rel=1e-8)
    r = np.array([twin.r(float(c)) for c in costs[meaningful]])
    assert menu.payment(costs[meaningful]) == pytest.approx(r, rel=1e-8)
    assert menu.expected_spend == pytest.approx(budget, rel=1e-12)
    assert menu.expected_inverse_probability == pytest.approx(twin.expected_inverse(), rel=1e-8)
    assert menu.expected_probability == pytest.approx(twin.expected_probability(), rel=1e-8)


@pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning")
@settings(max_examples=30)
@given(st.sampled_from(KINDS), st.floats(0.02, 0.99))
def test_random_budgets(kind, share):
    budget = share * kind.prior.high
    menu, twin = optimal_menu(kind.prior, budget), twin_menu(kind, budget)
    assert menu.expected_inverse_probability == pytest.approx(twin.expected_inverse(), rel=1e-8)
    cutoff = twin.threshold
    if not any(left <= cutoff <= right for left, right, _ in pools_of(NAMES.index(kind.name))):
        assert menu.threshold == pytest.approx(cutoff, rel=1e-6)


@pytest.mark.parametrize("share", [1e-3, 0.35, 0.85, 0.98])
@EVERY
def test_promises(kind, share):
    """Exactly: budget, individual rationality, 0 <= q <= 1. To rounding: q does not rise, no lie pays."""
    prior, budget = kind.prior, share * kind.prior.high
    menu = optimal_menu(prior, budget)
    costs = np.unique([prior.low, prior.high, menu.threshold, *inner_costs(prior, 60)])
    q, r = menu.price(costs)
    assert menu.expected_spend <= budget
    assert np.all(r >= costs)
    assert np.all(r <= prior.high)
    assert np.all((q >= 0) & (q <= 1))
    assert np.all(np.diff(q) <= 1e-12 * q.max())
    assert float(menu.payment(prior.high)) == prior.high
    assert np.all(q[costs < menu.threshold] == 1.0)
    honest = q * (r - costs)
    lying = q * (r - costs[:, None])
    assert np.all(lying <= honest[:, None] + 1e-12 * (q * r).max())


@pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning")
@pytest.mark.parametrize("share", [0.05, 0.5, 0.9, 0.98])
@EVERY
def test_published_terms_cost_what_was_budgeted(kind, share):
    """E[q r] by quadrature of the published terms over the twin's density; no virtual cost.

    It is what the menu says it spends; that this is the budget is tested above.
    """
    prior, budget = kind.prior, share * kind.prior.high
    menu = optimal_menu(prior, budget)
    pool_ends = [x for p in prior.ironed_intervals for x in p[:2]]
    edges = np.unique([prior.low, *kind.floats.kinks, *pool_ends, menu.threshold, prior.high])
    spend = kind.floats.expectation(lambda c: float(menu.expected_payment(c)), edges.tolist())
    assert spend == pytest.approx(menu.expected_spend, rel=1e-8)
    assert expected_transfer(menu, prior) == pytest.approx(menu.expected_spend, rel=1e-8)


@EVERY
def test_everybody_is_sampled_from_the_highest_cost_on(kind):
    for budget in (kind.prior.high, 2 * kind.prior.high):
        menu = optimal_menu(kind.prior, budget)
        costs = inner_costs(kind.prior)
        assert menu.case == 3
        assert np.all(menu.probability(costs) == 1.0)
        assert np.all(menu.payment(costs) == kind.prior.high)
        assert menu.expected_spend == pytest.approx(kind.prior.high, rel=1e-15)
        assert menu.expected_inverse_probability == pytest.approx(1.0, rel=1e-15)


@EVERY
def test_budgets_a_hair_below_the_highest_cost(kind):
    prior = kind.prior
    for gap in (1e-3, 1e-6, 1e-9, 1e-12, 1e-15):
        budget = prior.high * (1 - gap)
        menu = optimal_menu(prior, budget)
        assert menu.expected_spend <= budget
        if kind.name not in ("normal-narrow", "beta-large"):  # phi is beyond doubles: see above
            assert menu.expected_spend == pytest.approx(budget, rel=1e-9)
        assert menu.expected_inverse_probability >= 1.0 - 1e-12
        assert menu.expected_inverse_probability <= (1 + 1e-12) / (1 - gap)  # not worse than uniform
        assert np.all(menu.payment(inner_costs(prior)) >= inner_costs(prior))


@EVERY
def test_tiny_budgets(kind):
    """Where the lowest cost is positive the budget is in Case 1: terms scale with the money."""
    prior = kind.prior
    for share in (1e-100, 1e-30, 1e-12):
        budget = share * prior.high
        menu = optimal_menu(prior, budget)
        assert menu.expected_spend <= budget
        assert menu.expected_spend == pytest.approx(budget, rel=1e-12)
        if prior.low > 0:
            costs = inner_costs(prior)
            reference = optimal_menu(prior, 1e-6 * prior.high)
            q = reference.probability(costs) * 1e6
            assert menu.case == 1
            assert menu.probability(costs) / share == pytest.approx(q, rel=1e-10)
            assert menu.payment(costs) == pytest.approx(reference.payment(costs), rel=1e-10)


@given(st.sampled_from(KINDS), powers_of_ten(-3, 0), powers_of_ten(-3, 0))
def test_more_money_never_lowers_a_probability(kind, one, other):
    poor, rich = sorted([one, other])
    costs = inner_costs(kind.prior, 20)
    q_poor = optimal_menu(kind.prior, poor * kind.prior.high).probability(costs)
    q_rich = optimal_menu(kind.prior, rich * kind.prior.high).probability(costs)
    assert np.all(q_poor <= q_rich * (1 + 1e-12))


@given(st.sampled_from(KINDS), powers_of_ten(-3, 0))
def test_never_worse_than_uniform_sampling(kind, share):
    """E[q*] >= 1/E[1/q*] >= budget/highest (theory A5)."""
    menu = optimal_menu(kind.prior, share * kind.prior.high)
    harmonic = 1 / menu.expected_inverse_probability
    assert menu.expected_probability >= harmonic * (1 - 1e-10)
    assert harmonic >= share * (1 - 1e-10)


@EVERY
def test_complete_information_is_a_lower_bound(kind):
    for share in (0.05, 0.3, 0.8):  # of the highest cost
        budget = share * kind.prior.high
        known = complete_information_population(kind.prior, budget)
        menu = optimal_menu(kind.prior, budget)
        assert known.expected_inverse_probability <= menu.expected_inverse_probability * (1 + 1e-10)
        assert known.expected_spend <= budget * (1 + 1e-10)


@pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning")
@pytest.mark.parametrize("share", [0.05, 0.4, 0.9])
@EVERY
def test_complete_information_spends_the_budget(kind, share):
    """q = min(1, scale/sqrt(c)), E[q c] = budget or everybody is sampled; by quadrature."""
    prior = kind.prior
    mean = float(kind.twin.mean())
    budget = share * mean
    rule = complete_information_population(prior, budget)
    edges = np.unique([prior.low, *kind.floats.kinks, rule.threshold, prior.high]).tolist()

    def expectation(value):
        return kind.floats.expectation(value, edges)

    def q(c):
        return min(1.0, rule.scale / math.sqrt(c)) if c > 0 else 1.0

    assert expectation(lambda c: c * q(c)) == pytest.approx(budget, rel=1e-8)
    assert rule.expected_inverse_probability == pytest.approx(expectation(lambda c: 1 / q(c)), rel=1e-8)
    assert rule.expected_probability == pytest.approx(expectation(q), rel=1e-8)
    everybody = complete_information_population(prior, mean * (1 + 1e-9))
    assert everybody.case == 3
    assert everybody.expected_inverse_probability == 1.0


@given(st.floats(0.0, 2.0), powers_of_ten(-2, 1), st.floats(0.01, 0.99))
def test_uniform_closed_forms(low, width, share):
    """U[a, b]: phi = 2c - a, E sqrt(phi) = ((2b-a)^1.5 - a^1.5)/(3(b-a)); U[0, b] by its own equation."""
    prior = Uniform(low, low + width)
    a, b = prior.low, prior.high
    budget = share * b
    menu = optimal_menu(prior, budget)
    root = ((2 * b - a) ** 1.5 - a**1.5) / (3 * (b - a))
    if budget <= math.sqrt(a) * root:
        assert menu.case == 1
        assert menu.expected_inverse_probability == pytest.approx(root**2 / budget, rel=1e-10)
    elif a == 0:
        y = menu.threshold / b
        assert budget / b == pytest.approx((4 * math.sqrt(y) - y**2) / 3, rel=1e-10)
    else:
        x = menu.threshold
        tail = ((2 * b - a) ** 1.5 - (2 * x - a) ** 1.5) / (3 * (b - a))
        spend = x * (x - a) / (b - a) + math.sqrt(2 * x - a) * tail
        assert spend == pytest.approx(budget, rel=1e-9)


def test_steep_exponential_is_audited_clean():
    prior = TruncatedExponential(200.0, 0.0, 5.0)
    menu = optimal_menu(prior, 0.4)
    assert audit(menu, 0.0, 5.0, budget=0.4, prior=prior).passed
