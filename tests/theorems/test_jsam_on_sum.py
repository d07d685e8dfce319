"""JSAM where noise is added once to the sum (theory B10): optimum, concave V, payments, and no lie pays."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bonafed.economics import Discrete, NormalMixture, TruncatedExponential, Uniform, audit
from bonafed.economics.contracts import Allocation
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
    objective,
    settle,
    unbiased,
)
from bonafed.mechanisms.jsam.controls import PayAsBid
from bonafed.mechanisms.jsam.on_sum import SumLadder, best_points, segment_best, sorted_segments
from tests.oracles import jsam_on_sum as oracle
from tests.theorems.strategies import fewer, powers_of_ten

PRIORS = {
    "uniform": Uniform(0.0, 1.0),
    "exponential": TruncatedExponential(1.0, 0.05, 2.0),
    "ironed mixture": NormalMixture([0.5, 0.5], [0.6, 1.5], [0.1, 0.15], 0.2, 2.0),
    "discrete": Discrete([0.3, 0.5, 0.9, 1.0, 1.4, 2.0], [0.3, 0.02, 0.08, 0.35, 0.05, 0.2]),
    "an atom at zero": Discrete([0.0, 0.5, 0.9, 2.0], [0.4, 0.1, 0.3, 0.2]),
}
RULES = {
    "jsam": Jsam(noise_at="sum"),
    "jsam, capped": Jsam(0.2, "sum"),
    "everybody alike": unbiased(4).on_sum(),
    "the two cheapest": Cheapest(2).on_sum(),
    "the two cheapest, capped": Cheapest(2).on_sum().with_cap(0.3),
    "largest losses": largest_losses([0.2, 3.0, 0.1, 1.0], 3).on_sum(),
    "unequal, fixed, capped": Fixed(np.array([0.1, 0.2, 0.3, 0.4])).on_sum().with_cap([0.2, 0.3, 0.4, 0.5]),
}
SLOW = {("exponential", "jsam, capped"), ("ironed mixture", "jsam, capped")}
CLAIMS = ["truthful", "individually rational", "monotone", "feasible"]
BETWEEN = ([0.1, 0.9, 2.0], 0.71, 1.0)  # virtual costs, eta and Q at which p_h is strictly inside (0, 1/N)


def costs(least=1, most=4):
    return st.lists(powers_of_ten(-2, 1), min_size=least, max_size=most)


@given(costs(), powers_of_ten(-1, 2), powers_of_ten(-2, 2))
@fewer(0.3)
def test_no_leader_no_set_and_nobody_in_between_does_better(v, eta, q):
    plan = allocate(v, eta, q, noise_at="sum")
    value, _, _ = oracle.everything(v, eta, q)
    assert plan.objective == pytest.approx(value, rel=1e-8)
    assert plan.objective <= value * (1 + 1e-12)
    assert oracle.problem(plan.selection, plan.privacy, v, eta, q) == pytest.approx(
        plan.objective, rel=1e-12
    )
    assert objective(plan.selection, plan.privacy, v, eta, q, noise_at="sum") == pytest.approx(
        plan.objective, rel=1e-12
    )
    assert plan.selection.sum() == pytest.approx(1)
    assert plan.total == pytest.approx(float(plan.privacy @ np.array(v)))


@given(costs(), powers_of_ten(-1, 2), powers_of_ten(-2, 2), powers_of_ten(-2, 1))
@fewer(0.3)
def test_under_a_cap_it_is_the_best_of_the_same_selections(v, eta, q, cap):
    plan = allocate(v, eta, q, noise_at="sum", max_epsilon=cap)
    value, _, _ = oracle.everything(v, eta, q, cap)
    assert plan.objective == pytest.approx(value, rel=1e-8)
    assert plan.objective <= value * (1 + 1e-12)
    assert plan.privacy.max() <= cap
    assert oracle.problem(plan.selection, plan.privacy, v, eta, q) == pytest.approx(
        plan.objective, rel=1e-9
    )
    free = allocate(v, eta, q, noise_at="sum")
    assert free.objective <= plan.objective * (1 + 1e-12)
    if free.privacy.max() < cap * (1 - 1e-12):  # a cap that binds nobody changes nothing
        assert np.array_equal(free.privacy, plan.privacy)
        assert free.objective == plan.objective


@pytest.mark.parametrize("seed", range(4))
def test_no_plan_without_structure_does_better(seed):
    rng = np.random.default_rng(seed)
    v, eta, q = 10 ** rng.uniform(-1, 1, 3), 10 ** rng.uniform(-1, 1), 10 ** rng.uniform(-1, 1)
    plan = allocate(v, eta, q, noise_at="sum")
    assert oracle.anything(v, eta, q, rng) >= plan.objective * (1 - 1e-9)


def test_the_optimum_may_be_between_the_vertices():
    """Unlike with noise at every client (B2): the ends of the segment are worse."""
    rng, found = np.random.default_rng(0), 0
    for _ in range(400):
        n = rng.integers(2, 6)
        v, eta, q = 10 ** rng.uniform(-2, 1, n), 10 ** rng.uniform(-1, 2), 10 ** rng.uniform(-2, 2)
        plan = allocate(v, eta, q, noise_at="sum")
        p = plan.selection
        (inside,) = np.nonzero((p > 1e-9) & (p < (1 - 1e-9) / n))
        if not inside.size:
            continue
        found += 1
        ends = []
        for share in (0.0, 1 / n):
            moved = p.copy()
            moved[inside[0]] = share
            moved[np.argmin(v)] += p[inside[0]] - share
            ends.append(Fixed(moved, noise_at="sum").plan(v, eta, q).objective)
        assert plan.objective < min(ends)
    assert found >= 3


@given(
    costs(2, 5), powers_of_ten(-1, 2), powers_of_ten(-2, 2), st.integers(0, 4),
    st.none() | powers_of_ten(-2, 1),
)  # fmt: skip
@fewer(0.5)
def test_v_is_concave_and_its_slope_is_epsilon(v, eta, q, client, cap):
    k = client % len(v)
    x = np.geomspace(1e-3, 1e2, 600)
    own = SumLadder(np.array(v), eta, q, cap).own(np.full(x.size, k), x)
    slopes = np.diff(own.value) / np.diff(x)
    room = 1e-9 * own.value[:-1] / np.diff(x) + 1e-9
    assert np.all(own.privacy[1:] <= slopes + room)
    assert np.all(slopes <= own.privacy[:-1] + room)
    assert np.all(np.diff(own.privacy) <= 1e-9 * own.privacy[:-1])


@pytest.mark.parametrize("n", [17, 60, 300])
def test_bounds_find_what_looking_at_everything_finds(n):
    rng = np.random.default_rng(n)
    v = np.sort(10 ** rng.uniform(-2, 1, (40, n)), axis=1)
    segments = sorted_segments(v)
    for eta in (0.3, 3.0, 30.0):
        found = best_points(segments, eta, 2.0, 40)
        q, h = (part.ravel() for part in np.meshgrid(np.arange(40), np.arange(1, n + 1), indexing="ij"))
        everything = segment_best(segments, eta, 2.0, q, h).objective.reshape(40, n)
        assert np.array_equal(found.objective, everything.min(1))


@pytest.mark.parametrize("cap", [0.001, 0.01, 0.1])
def test_bounds_find_what_looking_at_everything_finds_under_a_cap(cap):
    """Each client's own question in a long list, against a list of its own."""
    rng = np.random.default_rng(5)
    v = 10 ** rng.uniform(-2, 1, 40)
    x = 10 ** rng.uniform(-2, 1, 300)
    clients, at_cap = rng.integers(0, 40, 300), 0
    found = SumLadder(v, 3.0, 2.0, cap).own(clients, x)
    for k, own, value, epsilon in zip(clients, x, found.value, found.privacy, strict=True):
        moved = v.copy()
        moved[k] = own
        alone = SumLadder(moved, 3.0, 2.0, cap)
        assert value == pytest.approx(alone.objective, rel=1e-13)
        assert epsilon == pytest.approx(alone.privacy[k], rel=1e-9, abs=1e-12)
        at_cap += alone.privacy.max() > 0.999 * cap
    assert at_cap > (0 if cap < 0.1 else -1)


@pytest.mark.parametrize("name", PRIORS)
def test_payments_are_the_integral(name):
    """Between the sums from below and from above of epsilon, by brute force, over the own report."""
    prior = PRIORS[name]
    own = prior.sample(np.random.default_rng(11), 3)
    done = settle(own, prior, 1.2, 0.6, rule=Jsam(noise_at="sum"))
    v = np.maximum(prior.ironed_virtual_cost(own), 1e-6 * prior.high)
    for k in (0, 2):
        grid = np.linspace(own[k], prior.high, 80)
        x = np.maximum(prior.ironed_virtual_cost(grid), 1e-6 * prior.high)
        epsilon = np.array([oracle.own_epsilon(v, k, each, 1.2, 0.6) for each in x])
        rent, width = done.payment[k] - own[k] * done.allocation.privacy[k], np.diff(grid)
        room = 1e-6 * done.payment[k] + 1e-12
        assert (width * epsilon[1:]).sum() - room <= rent <= (width * epsilon[:-1]).sum() + room


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        pytest.param(name, rule, marks=pytest.mark.deep if (name, rule) in SLOW else ())
        for rule in RULES
        for name in PRIORS
        if "jsam" in rule or name in ("uniform", "discrete")
    ],
)
def test_no_lie_pays(name, rule):
    prior = PRIORS[name]
    own = prior.sample(np.random.default_rng(3), 4)
    mechanism = JsamMechanism(prior, 0.9, 0.5, RULES[rule])
    found = audit(
        mechanism, prior.low, prior.high, profiles=[own], points=31, claims=CLAIMS, quantity_limit=np.inf
    )
    assert found.passed, found.findings


def test_no_lie_pays_where_somebody_is_in_between():
    virtual, eta, q = BETWEEN
    own = np.array(virtual) / 2  # of a uniform prior
    plan = settle(own, Uniform(0, 1.5), eta, q, rule=RULES["jsam"]).allocation
    assert np.any((plan.selection > 0.001) & (plan.selection < 0.333))
    found = audit(
        JsamMechanism(Uniform(0, 1.5), eta, q, RULES["jsam"]), 0.0, 1.5, profiles=[own], points=101,
        claims=CLAIMS, quantity_limit=np.inf,
    )  # fmt: skip
    assert found.passed, found.findings


@dataclass(frozen=True)
class PaidForTheOther:
    """Epsilon of the plan for noise on the sum, paid by the objective of noise at every client."""

    prior: Uniform
    eta: float
    q: float

    def allocate(self, reports):
        parts = [self.respond(reports, k, reports[[k]]) for k in range(len(reports))]
        return Allocation(*(np.array(column)[:, 0] for column in zip(*parts, strict=True)))

    def respond(self, reports, client, own):
        epsilon, _ = JsamMechanism(self.prior, self.eta, self.q, RULES["jsam"]).respond(
            reports, client, own
        )
        other, paid = JsamMechanism(self.prior, self.eta, self.q).respond(reports, client, own)
        return epsilon, own * epsilon + paid - own * other


@pytest.mark.parametrize(
    "control", [PayAsBid(Uniform(0, 1), 0.9, 0.5, "sum"), PaidForTheOther(Uniform(0, 1), 0.9, 0.5)]
)
def test_an_audit_that_passes_these_would_be_none(control):
    own = np.array([0.12, 0.35, 0.5, 0.71])
    found = audit(control, 0.01, 1.0, profiles=[own], points=41, claims=["truthful"])
    assert found["truthful"].witness.gain > 1e-3


def test_money_grows_with_the_weight_and_budgets_are_kept():
    prior, own = Uniform(0, 1), np.random.default_rng(1).uniform(0, 1, 12)
    spent = [allocate(2 * own, eta, 2.0, noise_at="sum").total for eta in np.geomspace(0.01, 100, 60)]
    assert np.all(np.diff(spent) > 0)
    hard = eta_for_budget(own, prior, 3.0, 2.0, rule=RULES["jsam"])
    assert 2.9 < hard.settlement.spend <= 3.0
    eta = eta_for_expected_budget(prior, 12, 3.0, 2.0, rule=RULES["jsam"], samples=50)
    rng = np.random.default_rng(0)
    draws = [prior.sample(rng, 12) for _ in range(50)]
    plans = [allocate(np.maximum(2 * c, 2e-6), eta, 2.0, noise_at="sum").total for c in draws]
    assert np.mean(plans) == pytest.approx(3.0, rel=1e-6)


def test_noise_on_the_sum_never_costs_more():
    """The maximum is at most the sum, plan by plan, so the optimum is too."""
    rng = np.random.default_rng(4)
    for _ in range(50):
        v, eta = 10 ** rng.uniform(-1, 1, 8), 10 ** rng.uniform(-1, 2)
        assert allocate(v, eta, 1.0, noise_at="sum").objective <= allocate(v, eta, 1.0).objective
    cost = rng.uniform(0.1, 1, 8)
    known = complete_information(cost, 2.0, 1.0, noise_at="sum")
    assert known.utility(cost) == pytest.approx(np.zeros(8))
    assert known.allocation.objective == allocate(cost, 2.0, 1.0, noise_at="sum").objective


def test_ties_and_a_single_client():
    assert allocate([0.5], 1.0, 1.0, noise_at="sum").selection.tolist() == [1.0]
    plan = allocate([0.5] * 4, 1.0, 1.0, noise_at="sum")
    assert plan.selection == pytest.approx(np.full(4, 0.25))
    assert plan.distance == 0


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (
            lambda: Jsam(np.array([0.5, 1]), "sum"),
            r"^max_epsilon must be one for all clients with noise_at = ",
        ),
        (
            lambda: RULES["jsam"].with_cap([0.5, 1]),
            r"^max_epsilon must be one for all clients with noise_at",
        ),
        (
            lambda: Jsam(np.array([0.5, 1])).on_sum(),
            r"^max_epsilon must be one for all clients with noise_at",
        ),
        (
            lambda: allocate([1, 2], 1, 1, max_epsilon=[1, 2], noise_at="sum"),
            r"^max_epsilon must be one for",
        ),
        (
            lambda: allocate([1.0], 1, 1, "printed", noise_at="sum"),
            r'^variant must be "exact" with noise_at',
        ),
        (lambda: allocate([1.0], 1, 1, noise_at="clients"), r"^noise_at must be"),
    ],
)
def test_what_is_not_offered_is_refused_by_name(call, error):
    with pytest.raises(InvalidValue, match=error):
        call()
