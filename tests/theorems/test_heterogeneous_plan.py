"""Public data weights and priors per client (theory A4, end): one common tau, truthful for each."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bonafed.economics import Discrete, TruncatedNormal, Uniform, audit
from bonafed.mechanisms.sampling import (
    ConvergenceModel,
    benchmarks,
    complete_information,
    optimal_menu,
    plan,
)
from tests.theorems.strategies import BUDGET_SHARES, discrete_priors, powers_of_ten

KNOWN = [
    Uniform(0.5, 1.5),
    TruncatedNormal(1.0, 0.4, 0.2, 2.0),
    Discrete([0.3, 0.5, 0.9, 1.0, 1.4, 2.0], [0.3, 0.02, 0.08, 0.35, 0.05, 0.2]),
]


@st.composite
def federations(draw):
    clients = draw(st.integers(1, 9))
    pool = [*KNOWN, draw(discrete_priors(5))]
    priors = [draw(st.sampled_from(pool)) for _ in range(clients)]
    weights = draw(st.lists(powers_of_ten(-1, 1), min_size=clients, max_size=clients))
    share = draw(BUDGET_SHARES)
    rounds = draw(st.integers(1, 50))
    return priors, np.array(weights), share * rounds * sum(p.high for p in priors), rounds


def phibar_and_q(contract, client, prior):
    costs = prior.costs if isinstance(prior, Discrete) else np.linspace(prior.low, prior.high, 9)[:-1]
    return prior.ironed_virtual_cost(costs), contract.menu_for(client).probability(costs)


@given(federations())
def test_one_tau_for_all(federation):
    """q_n = min(1, tau sqrt(s_n/phibar_n)): q sqrt(phibar/s) is tau where q < 1, at most tau elsewhere."""
    priors, weights, budget, rounds = federation
    contract = plan(None, budget, len(priors), rounds, priors=priors, weights=weights)
    taus, bounds = [], []
    for n, prior in enumerate(priors):
        phi, q = phibar_and_q(contract, n, prior)
        implied = q * np.sqrt(phi / weights[n])
        taus += implied[q < 1].tolist()
        bounds += implied[q == 1].tolist()
    if taus:
        assert taus == pytest.approx([taus[0]] * len(taus), rel=1e-9)
        assert max(bounds, default=0.0) <= taus[0] * (1 + 1e-9)


@given(federations())
def test_budget_of_all_together(federation):
    priors, weights, budget, rounds = federation
    contract = plan(None, budget, len(priors), rounds, priors=priors, weights=weights)
    assert contract.expected_spend <= budget
    spend = rounds * sum(contract.menu_for(n).expected_spend for n in range(len(priors)))
    assert spend == pytest.approx(contract.expected_spend, rel=1e-12)
    everybody = all(m.case == 3 for m in contract.menus)
    if not everybody:
        assert contract.expected_spend == pytest.approx(budget, rel=1e-9)
    term = sum(w * contract.menu_for(n).expected_inverse_probability for n, w in enumerate(weights))
    assert contract.sampling_term == pytest.approx(term, rel=1e-12)


@settings(max_examples=15)
@given(federations())
def test_truthful_for_each(federation):
    priors, weights, budget, rounds = federation
    contract = plan(None, budget, len(priors), rounds, priors=priors, weights=weights)
    for menu in contract.menus:
        if menu.prior.high > menu.prior.low:
            assert audit(menu, menu.prior.low, menu.prior.high, points=101).passed


@given(discrete_priors(), BUDGET_SHARES, st.integers(1, 20), st.integers(1, 30), powers_of_ten(-2, 2))
def test_equal_clients_get_the_optimal_menu(prior, share, clients, rounds, weight):
    """One prior and one weight, whatever it is: `optimal_menu` at the even share."""
    total = share * prior.high * clients * rounds
    contract = plan(prior, total, clients, rounds, weights=[weight] * clients)
    expected = optimal_menu(prior, total / clients / rounds)
    assert contract.menu.probability(prior.costs) == pytest.approx(
        expected.probability(prior.costs), rel=1e-12
    )
    assert contract.menu.payment(prior.costs) == pytest.approx(expected.payment(prior.costs), rel=1e-12)
    assert contract.expected_spend <= total


@pytest.mark.parametrize("prior", KNOWN, ids=lambda p: type(p).__name__)
def test_equal_clients_share_one_menu(prior):
    contract = plan(prior, 700.0, 10, 100)
    assert len(contract.menus) == 1
    reports = np.linspace(prior.low, prior.high, 10)
    got = contract.allocate(reports)
    expected = optimal_menu(prior, 0.7)
    assert got.quantity == pytest.approx(expected.probability(reports), rel=1e-12)
    assert got.transfer == pytest.approx(expected.expected_payment(reports), rel=1e-12)
    assert contract.menu.budget == pytest.approx(0.7, rel=1e-15)


def test_clients_keep_their_place():
    """Reports are priced by each client's own menu, in the order of the clients."""
    priors = [KNOWN[0], KNOWN[2], KNOWN[0], KNOWN[1]]
    weights = [1.0, 2.0, 3.0, 1.0]
    contract = plan(None, 200.0, 4, 100, priors=priors, weights=weights)
    reports = [0.7, 0.9, 0.7, 1.1]
    got = contract.allocate(reports)
    for n, report in enumerate(reports):
        assert got.quantity[n] == float(contract.menu_for(n).probability(report))
        assert got.transfer[n] == float(contract.menu_for(n).expected_payment(report))
    assert got.quantity[2] > got.quantity[0]  # more data, same prior and report
    assert got.utility(reports) == pytest.approx(got.transfer - np.array(reports) * got.quantity)


def test_more_data_is_sampled_more_often():
    contract = plan(Uniform(0.5, 1.5), 300.0, 3, 200, weights=[1.0, 4.0, 9.0])
    q = [float(contract.menu_for(n).probability(1.0)) for n in range(3)]
    assert q[1] == pytest.approx(2 * q[0], rel=1e-12)
    assert q[2] == pytest.approx(3 * q[0], rel=1e-12)


def test_benchmarks_bracket_the_contract():
    """Complete information <= ours <= uniform in the sampling term; spend within budget for all three."""
    model = ConvergenceModel(2.0, 0.5, 5, [1.0, 2.0, 3.0, 1.0], heterogeneity=0.1)
    contract = plan(Uniform(0.5, 1.5), 300.0, 4, 100, weights=model.data_weights)
    own, uniform, known = benchmarks(contract, model)
    assert known.sampling_term <= own.sampling_term <= uniform.sampling_term
    assert known.predicted_loss <= own.predicted_loss <= uniform.predicted_loss
    for row in (own, uniform, known):
        assert row.expected_spend <= 300.0 * (1 + 1e-12)
    assert own.sampling_term == pytest.approx(contract.sampling_term, rel=1e-12)
    assert uniform.expected_probability == pytest.approx(300.0 / 100 / (4 * 1.5), rel=1e-12)
    assert own.predicted_loss == pytest.approx(model.bound_for(contract.sampling_term, 100), rel=1e-12)


def test_complete_information_row_is_a_large_population():
    """The population benchmark is what known costs give on average over many drawn clients."""
    prior, rng = Uniform(0.5, 1.5), np.random.default_rng(0)
    contract = plan(prior, 50.0, 100, 1)
    known = benchmarks(contract)[2]
    drawn = complete_information(prior.sample(rng, 200_000), 0.5)
    assert known.sampling_term / 100 == pytest.approx(drawn.sampling_term / 200_000, rel=3e-3)
