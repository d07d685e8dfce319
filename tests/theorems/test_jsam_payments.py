"""JSAM payments: the definition's integral by quadrature, no lie pays, nobody loses, expected cost is B."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq

from bonafed.economics import (
    Discrete,
    NormalMixture,
    ScaledBeta,
    TruncatedExponential,
    Uniform,
    audit,
)
from bonafed.errors import InvalidValue
from bonafed.mechanisms.jsam import (
    Cheapest,
    Fixed,
    Jsam,
    JsamMechanism,
    allocate,
    largest_losses,
    settle,
    unbiased,
)
from bonafed.mechanisms.jsam.payments import FLOOR
from tests.oracles import jsam as oracle
from tests.theorems.strategies import fewer, powers_of_ten

PRIORS = {
    "uniform": Uniform(0.0, 1.0),
    "uniform above zero": Uniform(0.5, 1.5),
    "exponential": TruncatedExponential(1.0, 0.05, 2.0),
    "ironed mixture": NormalMixture([0.5, 0.5], [0.6, 1.5], [0.1, 0.15], 0.2, 2.0),
    "no density at the top": ScaledBeta(2.0, 3.0, 0.5, 1.5),
    "discrete": Discrete([0.3, 0.5, 0.9, 1.0, 1.4, 2.0], [0.3, 0.02, 0.08, 0.35, 0.05, 0.2]),
    "an atom at zero": Discrete([0.0, 0.5, 0.9, 2.0], [0.4, 0.1, 0.3, 0.2]),
}
RULES = {
    "jsam": (None, oracle.vertices(4)),
    "everybody alike": (unbiased(4), np.full((1, 4), 0.25)),
    "the two cheapest": (Cheapest(2), oracle.subsets(4, 2)),
    "largest losses": (largest_losses([0.2, 3.0, 0.1, 1.0], 3), np.array([[1, 1, 0, 1]]) / 3),
    "unequal, fixed": (Fixed(np.array([0.1, 0.2, 0.3, 0.4])), np.array([[0.1, 0.2, 0.3, 0.4]])),
}
assert not PRIORS["ironed mixture"].is_regular
assert not PRIORS["discrete"].is_regular


def counted(prior, costs):
    return np.maximum(prior.ironed_virtual_cost(costs), FLOOR * prior.high)


def expected_payments(costs, priors, eta, q, candidates):
    virtual = [float(counted(p, c)) for c, p in zip(costs, priors, strict=True)]
    return np.array([
        (oracle.stepwise_payment if isinstance(p, Discrete) else oracle.payment)(
            virtual, k, c, p, eta, q, candidates
        )
        for k, (c, p) in enumerate(zip(costs, priors, strict=True))
    ])  # fmt: skip


def drawn(prior, seed, clients=4):
    return prior.sample(np.random.default_rng(seed), clients)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", PRIORS)
def test_payments_are_the_integral(name, rule):
    prior, (chosen, candidates) = PRIORS[name], RULES[rule]
    costs = drawn(prior, 11)
    done = settle(costs, prior, 1.2, 0.6, rule=chosen)
    expected = expected_payments(costs, [prior] * 4, 1.2, 0.6, candidates)
    assert done.payment == pytest.approx(expected, rel=1e-9, abs=1e-13)


@pytest.mark.parametrize("eta", [1e8, 1e14, 1e40])
@pytest.mark.parametrize("rule", ["everybody alike", "largest losses", "unequal, fixed"])
@pytest.mark.parametrize("name", ["uniform", "exponential", "no density at the top"])
def test_payments_keep_their_digits_where_eta_is_large(name, rule, eta):
    """The bias then is nearly all of the objective, and the same for every report."""
    prior, (chosen, candidates) = PRIORS[name], RULES[rule]
    costs = drawn(prior, 11)
    done = settle(costs, prior, eta, 0.6, rule=chosen)
    expected = expected_payments(costs, [prior] * 4, eta, 0.6, candidates)
    assert done.payment == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("factor", "cap"),
    [(1e-154, None), (1e-30, None), (1e-30, 0.4), (1e30, 0.4), (1e30, None), (1e150, None)],
)
@pytest.mark.parametrize("eta", [1e-150, 0.01, 1.0, 1e150])
@pytest.mark.parametrize("noise_at", ["client", "sum"])
def test_epsilon_in_another_unit_is_the_same_contract(cap, noise_at, eta, factor):
    """Also where eta times the noise is too large or too small a number."""
    costs, prior = [0.12, 0.35, 0.5, 0.71, 0.93], Uniform(0, 1)
    one = settle(costs, prior, eta, 1, rule=Jsam(cap, noise_at))
    rule = Jsam(None if cap is None else cap * factor, noise_at)
    other = settle(costs, prior, eta * factor, factor * factor, rule=rule)
    assert other.payment / factor == pytest.approx(one.payment, rel=1e-12)
    assert other.allocation.privacy / factor == pytest.approx(one.allocation.privacy, rel=1e-12)


def test_costs_that_are_nearly_no_numbers_are_paid_all_the_same():
    """The virtual costs of the upper half would be beyond what counts."""
    costs, prior = np.array([1e299, 4e299, 8e299]), Uniform(0, 1e300)
    done = settle(costs, prior, 1.0, 1.0, rule=unbiased(3))
    grid = np.linspace(0, 1e300, 4001)
    for k, cost in enumerate(costs):
        epsilon = JsamMechanism(prior, 1.0, 1.0, unbiased(3)).privacy(costs, k, grid)
        above = grid[1:] > cost
        low, high = ((grid[1] * sold[above]).sum() for sold in (epsilon[1:], epsilon[:-1]))
        rent = done.payment[k] - cost * done.allocation.privacy[k]
        assert low - high / 4000 <= rent <= high * (1 + 1e-9)


def test_what_is_no_number_is_refused_at_once():
    """And not measured in ever smaller cells."""
    prior = ScaledBeta(2.0, 3.0, 0.5, 1.5)
    with pytest.raises(InvalidValue, match=r"^eta must be smaller for noise_scale 1e\+308: "):
        settle([0.6, 0.9, 1.5], prior, 1e300, 1e308, rule=unbiased(3))
    _, payment = JsamMechanism(Uniform(0, 1e300), 1e300, 1e300).respond(
        np.full(3, 1e299), 0, np.array([1e298])
    )
    assert not np.isfinite(payment).any()


@pytest.mark.parametrize("cells", [1, 7])
@pytest.mark.parametrize("name", ["exponential", "ironed mixture", "no density at the top"])
def test_payments_are_within_the_stated_error(name, cells):
    prior, costs = PRIORS[name], drawn(PRIORS[name], 5)
    done = settle(costs, prior, 1.0, 0.6, cells=cells)
    expected = expected_payments(costs, [prior] * 4, 1.0, 0.6, oracle.vertices(4))
    assert np.all(np.abs(done.payment - expected) <= done.payment_error + 1e-12 * expected)


@pytest.mark.parametrize("share", [0.1, 0.4])
def test_the_stated_error_holds_where_v_bends_both_ways(share):
    """The first half-cell begins so that v half way through it is on its chord, and epsilon jumps in it."""
    prior = NormalMixture([0.5, 0.5], [0.8, 1.3], [0.2, 0.2], 0.2, 2.0)

    def sag(cost):
        left, middle, right = prior.virtual_cost(cost + (prior.high - cost) * np.array([0.0, 0.25, 0.5]))
        return middle - (left + right) / 2

    cost = brentq(sag, 0.7, 0.85, xtol=1e-15)
    costs = [cost, cost + share * (prior.high - cost)]  # from there on the first is not the cheapest
    done = settle(costs, prior, 1.0, 0.6, rule=Cheapest(1), cells=1)
    expected = expected_payments(costs, [prior] * 2, 1.0, 0.6, oracle.subsets(2, 1))
    off = np.abs(done.payment - expected)
    assert np.all(off <= done.payment_error + 1e-12 * expected)
    assert off.max() <= 1e-9 * expected.max()


def test_more_cells_state_a_smaller_error():
    prior, costs = PRIORS["exponential"], drawn(PRIORS["exponential"], 5)
    coarse, fine = (settle(costs, prior, 1.0, 0.6, cells=n) for n in (20, 200))
    paid = coarse.payment_error > 0
    assert paid.any()
    assert np.all(fine.payment_error[paid] < coarse.payment_error[paid] / 2)
    assert np.all(fine.payment_error <= 1e-5 * fine.payment)


@pytest.mark.parametrize("seed", range(3))
def test_every_client_may_have_its_own_prior(seed):
    priors = [PRIORS[n] for n in ("uniform", "exponential", "discrete", "ironed mixture")]
    rng = np.random.default_rng(seed)
    costs = np.array([float(p.sample(rng, 1)[0]) for p in priors])
    done = settle(costs, priors, 0.8, 0.5)
    expected = expected_payments(costs, priors, 0.8, 0.5, oracle.vertices(4))
    assert done.payment == pytest.approx(expected, rel=1e-9, abs=1e-13)


@given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=4), powers_of_ten(-1.5, 1), powers_of_ten(-2, 1))
@fewer(0.2)
def test_uniform_payments_are_the_integral(costs, eta, q):
    prior, n = PRIORS["uniform"], len(costs)
    done = settle(costs, prior, eta, q)
    expected = expected_payments(costs, [prior] * n, eta, q, oracle.vertices(n))
    assert done.payment == pytest.approx(expected, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("rule", ["jsam", "everybody alike", "the two cheapest", "largest losses"])
@pytest.mark.parametrize("name", ["uniform", "discrete", "an atom at zero"])
def test_no_lie_pays(name, rule):
    prior = PRIORS[name]
    mechanism = JsamMechanism(prior, 0.9, 0.5, RULES[rule][0])
    found = audit(
        mechanism, prior.low, prior.high, profiles=[drawn(prior, s) for s in (3, 4)], points=61,
        claims=("truthful", "individually rational", "monotone"), quantity_limit=1e9,
    )  # fmt: skip
    assert found.passed, str(found)


@pytest.mark.parametrize("rule", ["jsam", "everybody alike", "the two cheapest"])
@pytest.mark.parametrize(
    "name", ["uniform", "ironed mixture", "no density at the top", "discrete", "an atom at zero"]
)
def test_what_an_audit_sees_is_what_is_settled(name, rule):
    """`respond` answers for one client what `allocate` says report by report, refused ones included."""
    prior, costs = PRIORS[name], drawn(PRIORS[name], 6)
    mechanism = JsamMechanism(prior, 0.7, 0.5, RULES[rule][0])
    own = np.array([0.0, float(prior.quantile(0.37)), costs[2], prior.high * 1.01])
    quantity, transfer = mechanism.respond(costs, 1, own)
    for report, given_, paid in zip(own, quantity, transfer, strict=True):
        profile = costs.copy()
        profile[1] = report
        outcome = mechanism.allocate(profile)
        assert given_ == pytest.approx(outcome.quantity[1], rel=1e-11, abs=1e-15)
        assert paid == pytest.approx(outcome.transfer[1], rel=1e-10, abs=1e-15)


@given(
    st.sampled_from(["exponential", "ironed mixture", "no density at the top"]),
    st.sampled_from(["jsam", "the two cheapest", "everybody alike"]),
    st.integers(0, 10**6),
    st.floats(-9, 0),
)
@fewer(0.2)
def test_no_lie_pays_near_the_truth_or_far(name, rule, seed, far):
    """Where payments are sums over cells, the gain must vanish to 1e-9 all the same."""
    prior, (chosen, _) = PRIORS[name], RULES[rule]
    costs = drawn(prior, seed)
    k = seed % 4
    truth = settle(costs, prior, 1.0, 0.5, rule=chosen)
    for direction in (-1, 1):
        lie = costs.copy()
        lie[k] = np.clip(costs[k] + direction * 10.0**far, prior.low, prior.high)
        lied = settle(lie, prior, 1.0, 0.5, rule=chosen)
        gain = lied.utility(costs)[k] - truth.utility(costs)[k]
        assert gain <= 1e-9 * truth.payment.max()


@given(
    st.sampled_from(list(PRIORS)), st.sampled_from(list(RULES)), st.integers(0, 10**6), powers_of_ten(-2, 2)
)
@fewer(0.5)
def test_nobody_loses_and_the_unselected_get_nothing(name, rule, seed, eta):
    prior, (chosen, _) = PRIORS[name], RULES[rule]
    costs = drawn(prior, seed)
    done = settle(costs, prior, eta, 0.7, rule=chosen)
    assert np.all(done.utility(costs) >= 0)
    idle = done.allocation.selection == 0
    assert np.all(done.payment[idle] <= 1e-12 * done.payment.max())
    assert np.all(done.allocation.privacy[idle] == 0)
    assert done.spend == pytest.approx(done.payment.sum(), rel=1e-15)


@pytest.mark.parametrize("name", PRIORS)
def test_the_allocation_is_the_one_for_ironed_virtual_costs(name):
    prior, costs = PRIORS[name], drawn(PRIORS[name], 2, clients=9)
    done, plan = settle(costs, prior, 1.0, 0.4), allocate(counted(prior, costs), 1.0, 0.4)
    assert done.allocation.selection.tolist() == plan.selection.tolist()
    assert done.allocation.privacy.tolist() == plan.privacy.tolist()
    assert done.admitted.all()


@pytest.mark.parametrize("rule", [None, Cheapest(2), unbiased(6), largest_losses([1, 5, 2, 4, 3, 6], 3)])
def test_those_above_the_highest_cost_are_as_if_they_did_not_exist(rule):
    costs = np.array([0.3, 1.2, 0.7, 0.5, 1.0 + 1e-12, 0.9])
    done = settle(costs, Uniform(0, 1), 1.0, 1.0, rule=rule)
    inside = costs <= 1
    assert done.admitted.tolist() == inside.tolist()
    alone = {"rule": rule}
    if isinstance(rule, Fixed):
        alone = {"rule": Fixed(rule.selection[inside] / rule.selection[inside].sum())}
    without = settle(costs[inside], Uniform(0, 1), 1.0, 1.0, **alone)
    for mine, theirs in (
        (done.payment, without.payment),
        (done.allocation.privacy, without.allocation.privacy),
        (done.allocation.selection, without.allocation.selection),
    ):
        assert mine[inside] == pytest.approx(theirs, rel=1e-14)
        assert mine[~inside].tolist() == [0.0, 0.0]
    assert done.allocation.objective == pytest.approx(without.allocation.objective, rel=1e-15)
    assert done.utility(costs)[~inside].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("floor", [FLOOR, 0.2])
@pytest.mark.parametrize("name", ["uniform", "exponential"])
def test_reports_below_the_floor_get_its_terms(monkeypatch, name, floor):
    monkeypatch.setattr("bonafed.mechanisms.jsam.payments.FLOOR", floor)
    prior, eta, q = PRIORS[name], 1.0, 0.5
    lowest = max(prior.low, floor * prior.high)
    others = [0.3, 0.6, 0.8]
    low = settle([lowest / 3, *others], prior, eta, q)
    at = settle([lowest, *others], prior, eta, q)
    zero = settle([0.0, *others], prior, eta, q)
    for done in (low, zero):
        assert done.payment.tolist() == at.payment.tolist()
        assert done.allocation.privacy.tolist() == at.allocation.privacy.tolist()
    assert low.utility([lowest / 3, *others])[0] > at.utility([lowest, *others])[0]
    above = settle([lowest * 1.05, *others], prior, eta, q)
    assert above.payment[0] < at.payment[0]


@pytest.mark.parametrize("rule", [None, Cheapest(2)])
@pytest.mark.parametrize("name", PRIORS)
def test_a_report_at_the_highest_cost(name, rule):
    """Its virtual cost may be infinite; it is admitted all the same, and the last to be chosen."""
    prior = PRIORS[name]
    others = [prior.low + share * (prior.high - prior.low) for share in (0.1, 0.3, 0.4)]
    done = settle([*others, prior.high], prior, 0.5, 0.5, rule=rule)
    assert done.admitted.all()
    assert done.payment[3] == pytest.approx(prior.high * done.allocation.privacy[3], rel=1e-9, abs=1e-15)
    assert np.all(np.isfinite(done.payment))


@pytest.mark.parametrize("rule", [None, unbiased(5), Cheapest(2)])
@pytest.mark.parametrize("name", ["uniform", "exponential"])
def test_expected_payments_are_the_expected_total(name, rule):
    prior, rng, gaps = PRIORS[name], np.random.default_rng(8), []
    for _ in range(150 if name == "uniform" else 30):
        done = settle(prior.sample(rng, 5), prior, 1.0, 0.5, rule=rule, cells=16)
        gaps.append(done.spend - done.allocation.total)
    assert abs(np.mean(gaps)) <= 4 * np.std(gaps, ddof=1) / np.sqrt(len(gaps))
    assert np.std(gaps) > 1e-3  # it is not so for every draw


@pytest.mark.parametrize("rule", [None, unbiased(3), Cheapest(2)])
@pytest.mark.parametrize("name", ["discrete", "an atom at zero"])
def test_expected_payments_over_all_profiles(name, rule):
    """Finitely many costs: the sum over all profiles, with no sampling error. The floor is in B only."""
    prior, paid, planned, counted_as = PRIORS[name], 0.0, 0.0, 0.0
    for profile in itertools.product(range(prior.costs.size), repeat=3):
        costs, weight = prior.costs[list(profile)], prior.masses[list(profile)].prod()
        done = settle(costs, prior, 1.0, 0.5, rule=rule)
        paid += weight * done.spend
        planned += weight * (done.allocation.privacy @ prior.ironed_virtual_cost(costs))
        counted_as += weight * done.allocation.total
    assert paid == pytest.approx(planned, rel=1e-12)
    assert paid == pytest.approx(counted_as, rel=2e-3)
    assert paid <= counted_as * (1 + 1e-12)


def test_an_atom_at_zero_is_not_taken_for_the_next_cost():
    prior = Discrete([0.0, 1.0], [0.5, 0.5])
    done, plan = settle([0.0, 1.0], prior, 1.0, 1.0), allocate([FLOOR, 2.0], 1.0, 1.0)
    assert done.allocation.privacy.tolist() == plan.privacy.tolist()
    nearly = settle([1e-9, 1.0], prior, 1.0, 1.0)  # rounded up
    assert nearly.payment[0] == pytest.approx(done.payment[0], rel=1e-14)
    assert nearly.allocation.privacy[0] < done.allocation.privacy[0] / 10


@pytest.mark.parametrize("floor", [FLOOR, 0.25])
def test_bayesian_payments_are_the_mean_of_the_others(monkeypatch, floor):
    monkeypatch.setattr("bonafed.mechanisms.jsam.payments.FLOOR", floor)
    prior, costs, rng = PRIORS["uniform"], np.array([0.15, 0.4, 0.7]), np.random.default_rng(3)
    interim = settle(costs, prior, 1.0, 0.6, variant="bayesian", samples=120, rng=np.random.default_rng(4))
    assert interim.allocation.privacy.tolist() == settle(costs, prior, 1.0, 0.6).allocation.privacy.tolist()
    for k in range(3):
        seen = []
        for _ in range(100):
            profile = prior.sample(rng, 3)
            profile[k] = costs[k]
            seen.append(settle(profile, prior, 1.0, 0.6).payment[k])
        error = np.hypot(interim.payment_error[k], np.std(seen, ddof=1) / np.sqrt(len(seen)))
        assert abs(interim.payment[k] - np.mean(seen)) <= 4 * error
        assert interim.payment_error[k] < 0.06 * interim.payment[k]


def test_bayesian_payments_can_be_repeated_and_depend_on_nobody_else():
    prior = PRIORS["exponential"]

    def interim(costs, seed):
        rng = np.random.default_rng(seed)
        return settle(costs, prior, 1.0, 0.6, variant="bayesian", samples=4, cells=2, rng=rng).payment

    assert interim([0.3, 0.5, 1.0], 1).tolist() == interim([0.3, 0.5, 1.0], 1).tolist()
    assert interim([0.3, 0.5, 1.0], 1)[0] == interim([0.3, 0.9, 0.2], 1)[0]
    assert interim([0.3, 0.5, 1.0], 1)[0] != interim([0.3, 0.5, 1.0], 2)[0]


def test_one_client():
    """Alone, epsilon = sqrt(eta z)/v with z = sqrt(Q) v: the integral has a closed form."""
    done = settle([0.36], Uniform(0, 1), 1.0, 1.0)
    epsilon = (2 * 0.36) ** -0.5
    assert done.allocation.privacy[0] == pytest.approx(epsilon, rel=1e-14)
    assert done.payment[0] == pytest.approx(0.36 * epsilon + (2**0.5 - 0.72**0.5), rel=1e-13)
