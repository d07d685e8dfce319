"""A posted price: what it pays, whom it seats, and that no run spends more than its cap."""

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bonafed import Uniform
from bonafed.contracts.terms import EARNINGS, Turns
from bonafed.economics import money
from bonafed.errors import InvalidValue
from bonafed.learning.sections import Training
from bonafed.mechanisms import posted_price
from bonafed.mechanisms.posted_price.contract import Offer, PostedPriceContract
from bonafed.mechanisms.posted_price.slice import SLICE
from bonafed.mechanisms.protocol import Common

COSTS = {"ada": 0.6, "ben": 1.0, "eve": 1.01}
CONTRACT = PostedPriceContract.of(Offer(50), 5, 10)


def test_its_folder_is_small():
    code = [path.read_text(encoding="utf-8") for path in Path(posted_price.__file__).parent.glob("*.py")]
    assert sum(len(text.splitlines()) for text in code) <= 150


def test_whoever_states_a_cost_up_to_the_price_is_in_and_paid_it():
    terms = CONTRACT.settle(COSTS)
    assert CONTRACT.offer.price == 1.0  # 50 / (5 * 10)
    assert terms.probability.tolist() == [1.0, 1.0, 0.0]
    assert terms.payment.tolist() == [1.0, 1.0, 0.0]
    assert terms.amounts(Turns.of([10, 7, 0], asked=[10, 10, 0])) == (1000, 700, 0)
    assert terms.cautions == ("3 of 5 clients have reported; the others do not take part.",)
    assert CONTRACT.chance("ada", 1.0) == 1.0
    assert CONTRACT.chance("ada", 1.01) == 0.0


def test_the_price_is_rounded_down_to_whole_units():
    assert PostedPriceContract.of(Offer(10), 3, 7).offer.price == 0.47  # 10 / 21 = 0.476...
    assert PostedPriceContract.of(Offer(10, decimals=4), 3, 7).offer.price == 0.4761
    assert PostedPriceContract.of(Offer(10, price=0.4), 3, 7).offer.price == 0.4


@pytest.mark.parametrize(
    ("offer", "said"),
    [
        (Offer(10, price=0.48), r"^cap must pay 0.48 to 3 seats in 7 rounds, got 10"),
        (Offer(0.2), r"^cap must pay 0.01 to 3 seats in 7 rounds, got 0.2"),
        (Offer(10, price=0.475), r"^price must have at most 2 decimals, got 0.475"),
    ],
)
def test_what_the_cap_does_not_pay_is_refused(offer, said):
    with pytest.raises(InvalidValue, match=said):
        PostedPriceContract.of(offer, 3, 7)


@given(
    st.floats(0.01, 1e6), st.integers(1, 40), st.integers(1, 50), st.integers(1, 60), st.integers(0, 4),
    st.data(),
)  # fmt: skip
def test_no_run_spends_more_than_the_cap(cap, clients, rounds, seats, decimals, data):
    offer = Offer(cap, seats=seats, decimals=decimals)
    if money.units(cap, decimals) < min(seats, clients) * rounds:
        with pytest.raises(InvalidValue, match=r"^cap must pay"):
            PostedPriceContract.of(offer, clients, rounds)
        return
    contract = PostedPriceContract.of(offer, clients, rounds)
    prices = st.floats(0, 2 * contract.offer.price)
    costs = data.draw(st.lists(prices, min_size=1, max_size=clients))
    terms = contract.settle({f"client {k}": cost for k, cost in enumerate(costs)})
    always = [rounds if inside else 0 for inside in terms.admitted.tolist()]
    amounts = terms.amounts(Turns.of(always))
    assert Decimal(sum(amounts)).scaleb(-decimals) <= Decimal(repr(cap))
    for amount, cost, times in zip(amounts, costs, always, strict=True):
        assert Decimal(amount).scaleb(-decimals) >= Decimal(repr(cost)) * times
        assert Decimal(amount).scaleb(-decimals) == Decimal(repr(contract.offer.price)) * times
    takers = sum(cost <= contract.offer.price for cost in costs)
    assert sum(terms.admitted) == min(takers, contract.offer.seats)


def test_seats_go_by_digest_and_name_and_no_report_has_a_say():
    contract = PostedPriceContract.of(Offer(60, seats=2), 4, 10)
    assert contract.offer.price == 3.0
    everybody = dict.fromkeys(("ada", "ben", "cyd", "dan"), 1.0)
    seated = {
        name for name, inside in zip(everybody, contract.settle(everybody).admitted, strict=True) if inside
    }
    assert len(seated) == 2
    for name in everybody:  # another report on the same side of the price moves nobody
        for cost in (0.0, 2.9, 3.0):
            again = contract.settle({**everybody, name: cost})
            assert {n for n, inside in zip(again.clients, again.admitted, strict=True) if inside} == seated
    shuffled = contract.settle(dict(reversed(everybody.items())))
    assert {n for n, inside in zip(shuffled.clients, shuffled.admitted, strict=True) if inside} == seated
    first = sorted(seated)[0]
    without = contract.settle({**everybody, first: 3.01})  # whoever declines makes room for the next
    assert int(without.admitted.sum()) == 2
    assert contract.chance("ada", 1.0) is None
    assert not contract.is_posted


def test_it_survives_its_file_and_cannot_be_edited():
    contract = PostedPriceContract.of(Offer(60, seats=2, prior=Uniform(1, 4)), 4, 10)
    data = json.loads(contract.content)
    assert "coins" not in data
    again = PostedPriceContract.from_json(data)
    assert again.digest == contract.digest
    assert PostedPriceContract.from_json(json.loads(contract.with_coins("ab" * 32).content)).coin_commitment
    for key, value, said in [
        ("price", 3.01, r"cap must pay 3.01 to 2 seats in 10 rounds, got 60"),
        ("cap", 59.99, "cap must pay 3 to 2 seats"),
        ("seats", 3, "cap must pay 3 to 3 seats"),
        ("rounds", 11, "cap must pay 3 to 2 seats in 11 rounds"),
        ("rounds", True, "rounds must be a number"),
        ("rounds", 10**9 + 1, "contract.rounds must not exceed 1000000000"),
        ("clients", 10**6 + 1, "contract.clients must not exceed 1000000"),
        ("price", -3, r"contract.price must be positive"),
        ("price", None, r"contract.price must be stated"),
        ("seats", None, r"contract.seats must be stated"),
        ("fee", 1, r"contract.fee must be absent"),
        ("cost_seed", 1, r"contract.cost_seed must be absent"),
        ("prior", {"kind": "psychic"}, "prior.kind must be one of"),
    ]:
        with pytest.raises(InvalidValue, match=said):
            PostedPriceContract.from_json({**data, key: value})
    for key in data:
        with pytest.raises(InvalidValue, match=key):
            PostedPriceContract.from_json({name: value for name, value in data.items() if name != key})


def test_it_verifies_and_a_rule_that_spends_more_does_not():
    assert all(finding.holds for finding in CONTRACT.verify())
    assert {"truthful", "individually rational", "within budget", "money"} <= {
        f.claim for f in CONTRACT.verify()
    }
    dear = replace(CONTRACT)
    object.__setattr__(dear, "offer", replace(CONTRACT.offer, price=2.0))  # what no file can say
    failed = {finding.claim for finding in dear.verify() if not finding.holds}
    assert failed == {"within budget", "money"}


@pytest.mark.parametrize(("cost", "paid", "left"), [(0.4, 10.0, 6.0), (1.0, 10.0, 0.0), (1.2, 0.0, 0.0)])
def test_what_a_participant_would_earn(cost, paid, left):
    document = CONTRACT.prospect(cost)
    (earning,) = document.data[EARNINGS]
    assert (earning["admitted"], earning["paid"]) == (paid > 0, paid)
    assert earning["left"] == pytest.approx(left)
    assert earning["gain"] <= 0
    assert "No lie gains anything: of" in str(document)
    crowded = PostedPriceContract.of(Offer(50, seats=2), 5, 10).prospect(cost)
    assert crowded.data[EARNINGS][0]["kind"] == "if not kept out"
    assert "if not kept out" in str(crowded)


def test_the_first_line_of_a_quote_says_the_cap():
    options = SLICE.quote.options(cap=50.0, clients=5, rounds=10)
    document = SLICE.quote.answer(options)
    assert str(document).splitlines()[0] == "At most 50.00 is spent, in every run."
    assert document.files["contract"] == CONTRACT.content


@pytest.mark.parametrize("name", ["cap", "price", "seats", "prior", "decimals", "clients", "rounds"])
def test_a_contract_leaves_nothing_open(name):
    with pytest.raises(InvalidValue, match=rf"^contract\.{name} must be "):
        PostedPriceContract.from_json({**CONTRACT.to_json(), name: None})


@pytest.mark.parametrize("cap", [50.005, 50.009, 50.0999])
def test_no_sum_above_the_cap_is_shown(cap):
    offer = PostedPriceContract.of(Offer(cap, decimals=2 if cap < 50.05 else 1), 5, 20)
    (money,) = [finding for finding in offer.verify() if finding.claim == "money"]
    for text in (*offer.promises()[:1], money.text):
        assert not [word for word in text.replace(",", " ").split() if word[0] == "5" and float(word) > cap]
    assert "At most 50.0" in offer.promises()[0]


def test_a_comparison_posts_a_price_that_half_of_the_clients_take():
    training = Training(rounds=10, epochs=1, batch_size=8, learning_rate=0.1)
    common = Common(training, clients=20, budget=100.0, costs=Uniform(0.5, 1.5))
    table = SLICE.compare(common)
    assert (table["cap"], table["seats"]) == (100.0, 10)
    assert "needs a budget" in SLICE.compare(Common(training))
    assert SLICE.compare(replace(common, budget=1.0))["seats"] == 1


def test_nobody_has_a_seat_where_the_price_is_below_every_cost():
    terms = CONTRACT.settle(dict.fromkeys(COSTS, 1.5))
    assert not terms.admitted.any()
    assert "Nobody will be in any round." in str(terms)
    assert np.array_equal(terms.amounts(Turns.of([0, 0, 0])), [0, 0, 0])
