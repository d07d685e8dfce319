"""Realised spend: against full enumeration where that is possible, against simulation where it is not."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bonafed.economics import Discrete, ScaledBeta, TruncatedExponential, Uniform
from bonafed.economics.contracts import Outcomes
from bonafed.mechanisms.sampling import exceedance_bound, known_lotteries, plan, spend, spend_distribution
from bonafed.mechanisms.sampling.spend import CostLottery
from tests.oracles.spend import enumerate_totals, exceedance, simulate


@st.composite
def tiny_lotteries(draw):
    """Up to three clients of up to two types over up to three rounds: at most 8^3 outcomes."""
    rounds = draw(st.integers(1, 3))
    lotteries = []
    for _ in range(draw(st.integers(1, 3))):
        kinds = draw(st.integers(1, 2))
        mass = [1.0] if kinds == 1 else [w := draw(st.floats(0.05, 0.95)), 1 - w]
        q = draw(st.lists(st.one_of(st.floats(0.01, 0.99), st.just(1.0)), min_size=kinds, max_size=kinds))
        r = draw(st.lists(st.floats(0.1, 5.0), min_size=kinds, max_size=kinds))
        lotteries.append(CostLottery(1, Outcomes(np.array(mass), np.array(q), np.array(r))))
    return lotteries, rounds


def everything(lotteries, rounds):
    clients = [
        list(zip(*lottery.outcomes, strict=True)) for lottery in lotteries for _ in range(lottery.clients)
    ]
    return enumerate_totals(clients, rounds)


@given(tiny_lotteries())
def test_moments_against_enumeration(case):
    lotteries, rounds = case
    totals = everything(lotteries, rounds)
    mean = math.fsum(x * p for x, p in totals)
    variance = math.fsum((x - mean) ** 2 * p for x, p in totals)
    spend = spend_distribution(lotteries, rounds)
    assert spend.mean == pytest.approx(mean, rel=1e-11)
    assert spend.sd == pytest.approx(math.sqrt(variance), rel=1e-6, abs=1e-12 * mean)


@given(tiny_lotteries(), st.floats(0, 1.1))
def test_exceedance_against_enumeration(case, share):
    """The estimate is right a lattice step away from every jump; the bound is never below the truth."""
    lotteries, rounds = case
    totals = everything(lotteries, rounds)
    top = max(x for x, _ in totals)
    amount = share * top
    spend = spend_distribution(lotteries, rounds)
    step = 4 * top / 16_000
    found = spend.probability_above(amount)
    assert exceedance(totals, amount + step) - 1e-9 <= found <= exceedance(totals, amount - step) + 1e-9
    assert exceedance_bound(lotteries, rounds, amount) >= exceedance(totals, amount) * (1 - 1e-12)


@given(tiny_lotteries(), st.integers(0, 10**6))
def test_bound_holds_exactly_on_the_jumps(case, pick):
    """At, just below and just above an amount that really can be spent."""
    lotteries, rounds = case
    totals = everything(lotteries, rounds)
    amount = totals[pick % len(totals)][0]
    for x in (amount, amount * (1 - 1e-9), amount * (1 + 1e-9)):
        if x > 0:
            assert exceedance_bound(lotteries, rounds, x) >= exceedance(totals, x * (1 + 1e-13)) - 1e-15


@given(tiny_lotteries(), st.floats(0.01, 0.99))
def test_quantile_against_enumeration(case, level):
    lotteries, rounds = case
    totals = sorted(everything(lotteries, rounds))
    top = totals[-1][0]
    spend = spend_distribution(lotteries, rounds)
    found, step = spend.quantile(level), 4 * top / 16_000
    at_most = math.fsum(p for x, p in totals if x <= found + step)
    below = math.fsum(p for x, p in totals if x < found - step)
    assert below - 1e-9 <= level <= at_most + 1e-9


def test_bound_is_not_absurd():
    """A hundred clients: the bound is within a factor of two of the truth at the one-percent level."""
    contract = plan(Uniform(0.5, 1.5), 100 * 50 * 0.7, 100, 50)
    amount = contract.spend.quantile(0.99)
    bound = exceedance_bound(contract.lotteries(), 50, amount)
    assert contract.spend.probability_above(amount) <= bound <= 0.02


@pytest.mark.parametrize("amount", [215, 225])
def test_bound_holds_where_a_coarse_lattice_wraps_around(monkeypatch, amount):
    """As for a million clients: rounding each of 400 up shifts the sum by more than the lattice is wide."""
    monkeypatch.setitem(spend._LARGEST, "up", 7)
    truth = math.fsum(math.comb(400, k) for k in range(amount + 1, 401)) / 2.0**400
    assert exceedance_bound(known_lotteries([0.5] * 400, [1.0] * 400), 1, amount) >= truth


CONTRACTS = {
    "uniform": (Uniform(0.5, 1.5), 100, 50, 0.7),
    "uniform-few": (Uniform(0.5, 1.5), 3, 7, 0.9),
    "exponential": (TruncatedExponential(2.0, 0.2, 3.0), 30, 20, 0.4),
    "beta": (ScaledBeta(0.5, 0.5, 0.5, 1.5), 20, 10, 0.5),
    "discrete": (Discrete([0.3, 0.5, 0.9, 1.0, 1.4, 2.0], [0.3, 0.02, 0.08, 0.35, 0.05, 0.2]), 40, 25, 0.8),
}


@pytest.mark.parametrize("name", CONTRACTS)
def test_distribution_against_simulation(name):
    """Mean, sd, quantiles and exceedance within four standard errors of 6,000 simulated runs."""
    prior, clients, rounds, budget = CONTRACTS[name]
    contract = plan(prior, budget * clients * rounds, clients, rounds)
    runs = 6_000
    totals = simulate(np.random.default_rng(7), contract.menu.price, prior.quantile, clients, rounds, runs)
    spend = contract.spend
    assert spend.method == "lattice"
    centred = totals - totals.mean()
    kurtosis = np.mean(centred**4) / np.mean(centred**2) ** 2
    assert abs(totals.mean() - spend.mean) <= 4 * spend.sd / math.sqrt(runs)
    assert abs(totals.std() / spend.sd - 1) <= 4 * math.sqrt((kurtosis - 1) / 4 / runs)
    assert spend.mean == pytest.approx(contract.expected_spend, rel=1e-6)
    for level in (0.05, 0.5, 0.95, 0.99):
        amount = spend.quantile(level)
        error = 4 * math.sqrt(level * (1 - level) / runs)
        assert np.mean(totals < amount) - error <= level <= np.mean(totals <= amount) + error + 1e-3
        above = np.mean(totals > amount)
        assert abs(spend.probability_above(amount) - above) <= error + 1e-3
    assert exceedance_bound(contract.lotteries(), rounds, amount) >= above - error


@pytest.mark.parametrize("confidence", [0.8, 0.99])
@pytest.mark.parametrize("name", CONTRACTS)
def test_confidence_is_kept(name, confidence):
    prior, clients, rounds, budget = CONTRACTS[name]
    money = budget * clients * rounds
    contract = plan(prior, money, clients, rounds, confidence=confidence)
    runs = 6_000
    totals = simulate(np.random.default_rng(11), contract.menu.price, prior.quantile, clients, rounds, runs)
    allowed = 1 - confidence
    assert np.mean(totals > money) <= allowed + 4 * math.sqrt(allowed * confidence / runs)
    assert contract.confidence == confidence
    assert contract.total_budget == money
    assert contract.expected_spend <= money
    # Not absurdly careful: a tenth of the standard deviation more would break the promise.
    if name not in ("uniform-few", "discrete"):
        shift = 0.6 * contract.spend.sd
        assert np.mean(totals + shift > money) > allowed


def test_one_client_one_round():
    """All or nothing: with N = R = 1 only q = 1 - confidence, or r within the budget, can be safe."""
    contract = plan(Uniform(0.5, 1.5), 1.0, 1, 1, confidence=0.9)
    q, r = contract.menu.price(np.linspace(0.5, 1.5, 101))
    risk = np.mean(np.where(r > 1.0, q, 0.0))
    assert risk <= 0.1 + 1e-2
    assert contract.expected_spend <= 1.0
    plain = plan(Uniform(0.5, 1.5), 1.0, 1, 1)
    assert plain.expected_spend <= 1.0
    assert plain.spend.mean == pytest.approx(1.0, rel=1e-6)


def test_a_budget_for_everybody_needs_no_caution():
    contract = plan(Uniform(0.5, 1.5), 1.5 * 20 * 10, 20, 10, confidence=0.999)
    assert contract.menu.case == 3
    assert contract.spend.sd == 0
    assert contract.spend.quantile(0.999) == pytest.approx(300.0)
    assert contract.spend.probability_above(300.0) == 0.0
    assert contract.spend.probability_above(299.0) == 1.0


def test_more_confidence_costs_more():
    prior = Uniform(0.5, 1.5)
    spends = [plan(prior, 700.0, 20, 50, confidence=p).expected_spend for p in (0.5, 0.9, 0.999)]
    assert spends == sorted(spends, reverse=True)
    assert spends[-1] > 0.7 * 700.0


@settings(max_examples=20)
@given(st.integers(1, 2000), st.floats(0.001, 0.999), st.floats(0.1, 3))
def test_one_binomial(rounds, q, r):
    """One client of known terms: the total is r times a binomial, by its textbook moments."""
    spend = spend_distribution(known_lotteries([q], [r]), rounds)
    assert spend.mean == pytest.approx(rounds * q * r, rel=1e-12)
    assert spend.sd == pytest.approx(r * math.sqrt(rounds * q * (1 - q)), rel=1e-10)
    chance = math.fsum(
        math.exp(
            math.lgamma(rounds + 1)
            - math.lgamma(k + 1)
            - math.lgamma(rounds - k + 1)
            + k * math.log(q)
            + (rounds - k) * math.log1p(-q)
        )
        for k in range(rounds + 1)
        if k > rounds * q
    )
    bound = exceedance_bound(known_lotteries([q], [r]), rounds, rounds * q * r)
    assert bound >= chance - 1e-9


@pytest.mark.parametrize("q", [0.1, 0.01, 1e-3, 1e-4])
def test_a_rare_payment_is_not_lost(q):
    """One client, one round, sampled rarely: the payment is many standard deviations from the mean."""
    spend = spend_distribution(known_lotteries([q], [1.0]), 1)
    assert spend.probability_above(0.5) == pytest.approx(q, rel=1e-9)
    assert spend.quantile(1 - q / 2) == pytest.approx(1.0, rel=1e-3)
    assert spend.quantile(1 - 2 * q) == pytest.approx(0.0, abs=1e-3)


def test_many_different_lotteries_use_the_normal_limit():
    rng = np.random.default_rng(3)
    q, r = rng.uniform(0.1, 0.9, 2100), rng.uniform(0.5, 1.5, 2100)
    spend = spend_distribution(known_lotteries(q, r), 10)
    assert spend.method == "normal"
    totals = np.sum(rng.binomial(10, q, (1000, 2100)) * r, axis=1)
    assert abs(totals.mean() - spend.mean) <= 4 * spend.sd / math.sqrt(1000)
    assert totals.std() == pytest.approx(spend.sd, rel=4 / math.sqrt(2000))
    assert np.mean(totals > spend.quantile(0.9)) == pytest.approx(0.1, abs=4 * 0.3 / math.sqrt(1000))
    assert spend.probability_above(spend.quantile(0.9)) == pytest.approx(0.1, rel=1e-9)
    assert exceedance_bound(known_lotteries(q, r), 10, spend.quantile(0.99)) >= 0.01


def test_known_lotteries_group_equal_terms():
    lotteries = known_lotteries([0.5, 0.2, 0.5], [1.0, 2.0, 1.0])
    assert sorted(lottery.clients for lottery in lotteries) == [1, 2]
    assert spend_distribution(lotteries, 4).mean == pytest.approx(4 * (0.5 + 0.4 + 0.5), rel=1e-14)


@given(
    st.lists(st.floats(0.01, 0.99), min_size=1, max_size=3),
    st.floats(0.1, 5.0),
    st.integers(1, 3),
    st.data(),
)
def test_a_budget_of_whole_payments_is_on_one_side_of_them(q, r, rounds, data):
    """One payment for all: how often it is made is exact, also at a budget of just so many."""
    lotteries = known_lotteries(q, [r] * len(q))
    most = len(q) * rounds
    times = data.draw(st.integers(0, most))
    found = spend_distribution(lotteries, rounds)
    assert found.most == pytest.approx(most * r)
    above = math.fsum(p for x, p in everything(lotteries, rounds) if x > times * r * (1 + 1e-9))
    assert found.probability_above(times * r) == pytest.approx(above, abs=1e-9)


def test_half_of_a_hundred_coins():
    found = spend_distribution(known_lotteries([0.5], [1.0]), 100)
    assert found.probability_above(50.0) == pytest.approx(0.4602, abs=1e-4)  # (1 - C(100, 50)/2^100)/2
