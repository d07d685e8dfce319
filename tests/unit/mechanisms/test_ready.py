"""Ready-made parts of a slice, and the price lottery that is made of them."""

from dataclasses import dataclass

import numpy as np
import pytest
from tests.laws import worlds

from bonafed import checks
from bonafed.economics import Allocation, Uniform, money
from bonafed.errors import InvalidValue
from bonafed.mechanisms.building_blocks import PlainTerms, Subject, audit_command, promises_kept
from bonafed.sections import Section, key


@dataclass(frozen=True)
class Rate(Section):
    """What a control pays by."""

    share: float = key(checks.positive, help="Of what is asked for.")


def pay_as_bid(rate, _clients, _rounds):
    """Everybody who asks for less is drawn more often, and paid what it asks for."""

    def decide(costs):
        chances = 0.5 / (0.5 + costs)
        return Allocation(chances, rate.share * chances * costs)

    return Subject(decide, Uniform(0.5, 1.5), budget=2.0)


@pytest.mark.parametrize(
    ("share", "claim"), [(1.0, "truthful"), (0.9, "individually rational"), (3.0, "within budget")]
)
def test_an_audit_finds_what_is_wrong_with_a_rule(share, claim):
    command = audit_command("control", Rate, pay_as_bid)
    document = command.answer(command.options(share=share, clients=4, points=41))
    assert not document.holds
    assert any(f["claim"] == claim and f["holds"] is False for f in document.data["findings"])


def test_options_of_an_audit_are_those_of_the_table_and_of_a_federation():
    options = audit_command("control", Rate, pay_as_bid).options
    assert list(options.__dataclass_fields__) == ["share", "clients", "rounds", "points", "seed"]
    with pytest.raises(InvalidValue, match="clients must be a whole number"):
        options(share=1.0, clients=0)


def test_promises_are_judged_in_cents():
    rational, budget = promises_kept([90, 26], [0.3, 0.13], [3, 2], 1.16)
    assert rational.holds
    assert budget.holds
    rational, budget = promises_kept([89, 26], [0.3, 0.13], [3, 2], 1.149)
    assert rational.holds is False
    assert rational.number == pytest.approx(0.01)
    assert budget.holds is False


def test_terms_have_a_cell_for_every_client():
    with pytest.raises(InvalidValue, match="payment must have 2 entries, got 1"):
        PlainTerms(("ada", "ben"), {"payment": (1.0,)})


@pytest.mark.parametrize("value", [0.005, 0.0, -1.0, 1.999])
def test_prices_are_whole_cents(value):
    with pytest.raises(InvalidValue, match="price must"):
        money.price("price", value)


@pytest.mark.parametrize("value", [0.01, 0.07, 0.29, 1.1, 19.99, 123456.78])
def test_whole_cents_are_taken_as_they_are_written(value):
    assert money.price("price", value) == value
    assert money.units(value) == round(100 * value)


@pytest.fixture(scope="module")
def offer():
    """offer(price, budget): the table of the price lottery."""
    with worlds.registered():
        kind = worlds.catalogue.entry("price-lottery").load().section
        yield lambda price, budget: kind(price=price, budget=budget, prior="uniform:0.5,1.5")


def test_the_offer_is_taken_at_the_price_and_not_above(offer):
    chances = offer(0.9, 54.0).chances(np.array([0.9, np.nextafter(0.9, 1), 0.2, 0.5, 0.6]), rounds=30)
    assert chances.tolist() == [0.5, 0.0, 0.5, 0.5, 0.5]


def test_no_client_gains_by_lying_whatever_the_others_state(offer):
    made, rng = offer(0.9, 54.0), np.random.default_rng(1)
    for _ in range(50):
        costs = rng.uniform(0.5, 1.5, 5)
        honest = made.chances(costs, 30)[0] * (0.9 - costs[0])
        for lie in rng.uniform(0, 2, 20):
            lied = made.chances(np.array([lie, *costs[1:]]), 30)[0] * (0.9 - costs[0])
            assert lied <= honest


def test_a_budget_that_pays_nobody_is_refused(offer):
    assert offer(0.9, 1.8).places(2) == 1
    with pytest.raises(
        InvalidValue, match=r"price_lottery.budget must pay a client in every round, got 1.79"
    ):
        offer(0.9, 1.79).places(2)
