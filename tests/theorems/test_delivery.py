"""Paid for what was delivered (theory A7, B11): no false report and no withheld answer pays, nor do both.

A deviation is a report and what is then delivered of what is asked for: a share of the participations of a
sampling contract, so many of the releases that privacy was sold for. Whoever does not deliver saves its
cost. Each search is tried on rules that pay otherwise, where it must find what they invite.
"""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bonafed.contracts.terms import Turns
from bonafed.economics import (
    Discrete,
    NormalMixture,
    ScaledBeta,
    TruncatedExponential,
    Uniform,
)
from bonafed.mechanisms.jsam.payments import given_share
from bonafed.mechanisms.jsam.published import JsamContract
from bonafed.mechanisms.sampling import PriorFreeSampling, plan
from bonafed.mechanisms.sampling.settlement import settle_contract, settle_rules
from tests.laws import worlds
from tests.oracles.privacy import delta_of
from tests.theorems.strategies import BUDGET_SHARES, discrete_priors, fewer, powers_of_ten

SHARES = (0.0, 0.01, 0.3, 0.5, 0.99, 1.0)  # of what is asked for
CONTINUOUS = {
    "uniform": Uniform(0.5, 1.5),
    "from zero": Uniform(0.0, 1.0),
    "exponential": TruncatedExponential(2.0, 0.1, 2.0),
    "ironed": NormalMixture([0.6, 0.4], [0.7, 1.4], [0.1, 0.1], low=0.5, high=1.7),
    "no density at the top": ScaledBeta(2.0, 3.0, 0.5, 1.5),
}


# Sampling (A7) --------------------------------------------------------------------------------------------


def to_who_delivers(terms, place, delivers):
    """What a client that was sampled is paid, as the rounds of a run are settled."""
    count = np.bincount([place] if delivers else [], minlength=len(terms.clients))
    asked = np.bincount([place], minlength=len(terms.clients))
    return terms.due_in(1, [place] if delivers else [], Turns(count, asked))


def to_who_is_sampled(terms, place, delivers):
    """The control: also if nothing came."""
    return to_who_delivers(terms, place, delivers=True)


def left_with(terms, place, cost, share, paid=to_who_delivers):
    """Money per round, on average over the coins, of a client that delivers this share of its turns."""
    income = share * paid(terms, place, True) + (1 - share) * paid(terms, place, False)
    return float(terms.probability[place]) * (income - share * cost)


def best_deviation(terms_of, truth, cost, lies, paid=to_who_delivers):
    """The largest gain over the truth and all deliveries, and how it is made.

    `terms_of(report)` are terms and the place of the client in them.
    """
    honest = left_with(*terms_of(truth), cost, 1.0, paid)
    best = (-math.inf, None, None)
    for lie in lies:
        terms, place = terms_of(lie)
        for share in SHARES:
            best = max(best, (left_with(terms, place, cost, share, paid) - honest, lie, share))
    return best, honest


def menu_terms(prior, budget, reports):
    """Terms of a posted menu for these reports, each of a client of its own: nobody else's matters."""
    contract = plan(prior, budget * len(reports) * 10, clients=len(reports), rounds=10)
    terms = settle_contract(contract, reports)
    places = {report: place for place, report in enumerate(reports)}
    return lambda report: (terms, places[report])


def reports_around(prior, draws):
    """Reports to try: ends, what finite menus offer, and between."""
    levels = prior.costs.tolist() if isinstance(prior, Discrete) else [prior.low, prior.mean, prior.high]
    return sorted({*levels, *(prior.low + draw * (prior.high - prior.low) for draw in draws)})


DRAWS = st.lists(st.floats(0, 1), min_size=1, max_size=6)


@given(discrete_priors(), BUDGET_SHARES, DRAWS, st.data())
def test_no_deviation_from_a_finite_menu_pays(prior, budget, draws, data):
    _menu_holds(prior, budget * prior.high, draws, data)


@fewer(0.2)
@given(st.sampled_from(sorted(CONTINUOUS)), BUDGET_SHARES, DRAWS, st.data())
def test_no_deviation_from_a_continuous_menu_pays(name, budget, draws, data):
    prior = CONTINUOUS[name]
    _menu_holds(prior, budget * prior.high, draws, data)


def _menu_holds(prior, budget, draws, data):
    reports = reports_around(prior, draws)
    terms_of, cost = menu_terms(prior, budget, reports), data.draw(st.sampled_from(reports))
    (gain, *_), honest = best_deviation(terms_of, cost, cost, reports)
    assert honest >= -1e-12 * prior.high
    assert gain <= 1e-9 * prior.high * float(terms_of(cost)[0].probability.max())


@st.composite
def sequences(draw):
    clients = draw(st.integers(1, 7))
    highest = draw(powers_of_ten(-1, 1))
    budget = draw(powers_of_ten(-1, 0.3)) * clients * highest
    rules = PriorFreeSampling(clients, budget, highest, initial=draw(st.integers(0, clients)))
    costs = np.array(draw(st.lists(st.floats(0, 1), min_size=clients, max_size=clients))) * highest
    return rules, costs, draw(st.integers(0, clients - 1))


@fewer(0.5)
@given(sequences(), DRAWS)
def test_no_deviation_from_prior_free_rules_pays(case, draws):
    rules, costs, place = case

    def terms_of(report):
        return settle_rules(rules, 10, np.where(np.arange(costs.size) == place, report, costs)), place

    lies = {0.0, rules.highest, *costs.tolist(), *(draw * rules.highest for draw in draws)}
    cost = float(costs[place])
    (gain, *_), honest = best_deviation(terms_of, cost, cost, sorted(lies))
    assert honest >= -1e-12 * rules.highest
    assert gain <= 1e-9 * rules.highest


@pytest.mark.parametrize("name", CONTINUOUS)
def test_paying_whoever_is_sampled_invites_silence_and_lies(name):
    """The control: who means not to deliver has no cost, and does best to state the lowest one."""
    prior = CONTINUOUS[name]
    reports = reports_around(prior, np.linspace(0, 1, 21))
    cost = prior.mean
    terms_of = menu_terms(prior, 0.2 * prior.high, reports)
    (gain, lie, share), _ = best_deviation(terms_of, cost, cost, reports, to_who_is_sampled)
    assert gain > 0.05 * prior.mean
    assert share == 0.0
    assert lie < cost
    (gain, *_), _ = best_deviation(terms_of, cost, cost, reports)
    assert gain <= 1e-9


TURNS = st.lists(st.tuples(st.integers(0, 40), st.floats(0, 1)), min_size=1)


@given(discrete_priors(), BUDGET_SHARES, TURNS)
def test_amounts_after_the_run_reward_every_delivery_and_nothing_else(prior, budget, turns):
    """However the coins fell: delivering less leaves nobody with more, but for the rounding of a unit."""
    asked = np.array([count for count, _ in turns])
    kept = np.array([math.floor(count * share) for count, share in turns])
    reports = np.resize(prior.costs, asked.size)
    terms = settle_contract(plan(prior, budget * prior.high * asked.size * 40, asked.size, 40), reports)
    whole, less, none = (
        np.array(terms.amounts(Turns(given, asked))) / 100 for given in (asked, kept, np.zeros_like(asked))
    )
    slack = 0.01 * (1 + asked.size) + 1e-9 * prior.high * 40  # what rounding takes from all, and doubles
    assert np.all(less - reports * kept <= whole - reports * asked + slack)
    assert np.all(less >= reports * kept * (1 - 1e-12))  # never below the cost of what was delivered
    assert not none.any()
    assert terms.amounts(Turns(kept, kept)) == terms.amounts(Turns(kept, asked))


@given(st.lists(st.floats(0.1, 2), min_size=1, max_size=6), st.integers(10, 150), st.integers(1, 9))
def test_no_deviation_from_a_price_lottery_pays(costs, cents, places):
    """Whoever takes the price draws lots, and is paid if it delivers."""
    with worlds.registered():
        from tests.oracles.price_lottery.slice import Offer
    price = cents / 100
    offer = Offer(price, price * places, Uniform(0.1, 2))
    own, *others = costs

    def left(report, share, paid_anyway=False):
        chance = offer.chances(np.array([report, *others]), rounds=1)[0]
        return chance * ((1.0 if paid_anyway else share) * price - share * own)

    tried = [left(report, share) for report in (*costs, 0.0, price, 9.0) for share in SHARES]
    assert max(tried) <= left(own, 1.0) + 1e-12
    assert max(left(report, 0.0, True) for report in (0.0, own)) > left(own, 1.0, True)  # the control


# JSAM (B11) -----------------------------------------------------------------------------------------------

DELTA = 1e-5
PRIVACY = {
    "uniform": Uniform(0.0, 1.0),
    "exponential": TruncatedExponential(1.0, 0.05, 2.0),
    "ironed": NormalMixture([0.5, 0.5], [0.6, 1.5], [0.1, 0.15], 0.2, 2.0),
    "discrete": Discrete([0.3, 0.5, 0.9, 1.4, 2.0], [0.3, 0.1, 0.35, 0.05, 0.2]),
}


def epsilon_of(multiplier, releases):
    """What so many releases give away, at 40 digits, by bisection."""
    if not releases:
        return 0.0
    low, high = mpmath.mpf(0), mpmath.mpf(1)
    while delta_of(multiplier, releases, high, 40) > DELTA:
        high *= 2
    if delta_of(multiplier, releases, low, 40) <= DELTA:
        return 0.0
    for _ in range(60):
        middle = (low + high) / 2
        above = delta_of(multiplier, releases, middle, 40) > DELTA
        low, high = (middle, high) if above else (low, middle)
    return float(high)


def noise_of(epsilon, asked):
    """The multiplier at which so many releases are just (epsilon, delta)-private, by bisection."""
    low, high = mpmath.mpf(1e-3), mpmath.mpf(1)
    while delta_of(high, asked, epsilon, 40) > DELTA:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        above = delta_of(middle, asked, epsilon, 40) > DELTA
        low, high = (middle, high) if above else (low, middle)
    return high


@pytest.mark.parametrize("epsilon", [0.01, 0.3, 1.0, 8.0])
@pytest.mark.parametrize("asked", [2, 7, 50])
def test_the_share_is_that_of_a_shorter_schedule_at_the_same_noise(epsilon, asked):
    noise = noise_of(epsilon, asked)
    shares = []
    for delivered in sorted({0, 1, asked // 2, asked - 1, asked}):
        share = given_share(epsilon, DELTA, delivered, asked)
        assert share == pytest.approx(epsilon_of(noise, delivered) / epsilon, rel=1e-8, abs=1e-12)
        shares.append((delivered / asked, share))
    (zero, *inside, whole) = shares
    assert (zero, whole) == ((0, 0), (1, 1))
    assert all(rounds < share < 1 for rounds, share in inside)  # the first releases give away more


def test_shares_rise_and_bend_downwards():
    values = np.array([given_share(1.0, DELTA, delivered, 30) for delivered in range(31)])
    assert np.all(np.diff(values) > 0)
    assert np.all(np.diff(values, 2) < 0)


def test_an_epsilon_as_small_as_delta_is_given_only_at_the_end():
    """Few releases of it are (0, delta)-private: they give away nothing, and cost nothing."""
    assert [given_share(1e-6, DELTA, delivered, 10) for delivered in (0, 9, 10)] == [0, 0, 1]


def by_epsilon(terms, place, delivered, asked):
    """What a client is owed, as a run settles it; the others deliver everything."""
    counts, whole = (np.full(len(terms.clients), asked) for _ in range(2))
    counts[place] = delivered
    return terms.amounts(Turns(counts, whole))[place] / 10**terms.decimals


def in_full(terms, place, delivered, asked):
    """The control: whatever was delivered."""
    return by_epsilon(terms, place, asked, asked)


def by_rounds(terms, place, delivered, asked):
    """Another: by the share of the rounds."""
    return by_epsilon(terms, place, asked, asked) * delivered / asked


class Selling:
    """A client of some cost among others that report the truth."""

    def __init__(self, name, noise_at, eta, others, asked, scheme="jsam"):
        self.contract = JsamContract(
            1 + len(others), PRIVACY[name], eta, 1.0, 100, 1.0, DELTA, decimals=9, noise_at=noise_at,
            scheme=scheme, members=2 if scheme == "cheapest" else None,
        )  # fmt: skip
        self.others = {str(k): cost for k, cost in enumerate(others)}
        self.asked = asked

    def earns(self, cost, report, delivered, paid=by_epsilon):
        """Money less the price of the epsilon that was given, of releases at the noise of the schedule."""
        terms = self.contract.settle({"me": report, **self.others})
        sold = float(terms.epsilon[0])
        lost = given_share(sold, DELTA, delivered, self.asked) * sold
        return paid(terms, 0, delivered, self.asked) - cost * lost

    def best(self, cost, lies, paid=by_epsilon):
        """The largest gain over the truth and all deliveries, the report and the deliveries behind it."""
        honest, stops = self.earns(cost, cost, self.asked, paid), (0, 1, self.asked // 2, self.asked - 1)
        tried = [
            (self.earns(cost, lie, count, paid) - honest, lie, count)
            for lie in lies
            for count in (*stops, self.asked)
        ]
        return max(tried), honest


def costs_of(prior, draws):
    return [float(prior.low + draw * (prior.high - prior.low)) for draw in draws]


@fewer(0.3)
@given(
    st.sampled_from(sorted(PRIVACY)), st.sampled_from(["client", "sum"]),
    st.sampled_from(["jsam", "unbiased", "cheapest"]), powers_of_ten(-1, 1.5),
    st.lists(st.floats(0.01, 0.99), min_size=2, max_size=4), st.floats(0.01, 1), DRAWS,
    st.sampled_from([2, 9, 60]),
)  # fmt: skip
def test_no_report_and_no_stop_pays_a_seller(name, noise_at, scheme, eta, others, own, lies, asked):
    prior = PRIVACY[name]
    seller = Selling(name, noise_at, eta, costs_of(prior, others), asked, scheme)
    (cost,) = costs_of(prior, [own])
    (gain, *_), honest = seller.best(cost, {cost, prior.low + 1e-3, prior.high, *costs_of(prior, lies)})
    assert honest >= -1e-9
    assert gain <= 1e-8 * max(1.0, honest)  # decimals, and the certified error of a payment


@pytest.mark.parametrize("noise_at", ["client", "sum"])
def test_paying_in_full_invites_to_drop_out(noise_at):
    """The control, caught by the same search."""
    seller, lies = Selling("uniform", noise_at, 5.0, [0.2, 0.5, 0.8], 40), [0.1, 0.4, 0.7]
    (gain, _, delivered), _ = seller.best(0.4, lies, in_full)
    assert gain > 0.1
    assert delivered == 0
    (gain, *_), _ = seller.best(0.4, lies)
    assert gain <= 1e-8


def test_by_rounds_a_client_that_is_lost_early_would_lose_money():
    """It has given more than its share of the rounds; by epsilon its cost is covered at all times."""
    seller = Selling("uniform", "client", 5.0, [0.2, 0.5, 0.6], 40)
    cost = 0.9
    by_time = [seller.earns(cost, cost, count, by_rounds) for count in range(41)]
    by_gift = [seller.earns(cost, cost, count) for count in range(41)]
    assert min(by_time) < -0.01
    assert min(by_gift) >= -1e-9
    assert by_gift == sorted(by_gift)


@given(
    st.lists(st.integers(0, 12), min_size=4, max_size=4),
    st.integers(0, 2),
    st.sampled_from(["client", "sum"]),
)
def test_amounts_only_fall_and_cover_what_was_given(delivered, decimals, noise_at):
    contract = JsamContract(
        4, Uniform(0, 1), 5.0, 1.0, 12, 1.0, DELTA, decimals=decimals, noise_at=noise_at
    )
    terms = contract.settle({"ada": 0.1, "ben": 0.33, "cem": 0.5, "dan": 0.77})
    turns = Turns.of(delivered, [12] * 4)
    paid, share = np.array(terms.amounts(turns)) / 10**decimals, terms.shares(turns)
    unit = 10.0**-decimals
    assert np.all(paid >= terms.reports * terms.epsilon * share * (1 - 1e-12))
    assert paid.sum() <= terms.settlement.spend + 4 * unit  # a hard budget holds with what it sets aside
    assert np.all(paid < terms.settlement.payment * share + unit + 1e-12)
    assert np.all(paid[np.array(delivered) == 0] == 0)
