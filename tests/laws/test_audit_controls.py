"""How sharp the audit is: what it must find, what it must not take for a violation.

Bad mechanisms as such are the controls of `test_mechanism_laws.py`.
"""

import tracemalloc

import numpy as np
import pytest

from bonafed.economics import Allocation, Discrete, Uniform
from bonafed.economics.audit import CLAIMS, audit, largest_gain, merge
from bonafed.economics.contracts import StepMenu
from bonafed.errors import InvalidValue
from bonafed.mechanisms.jsam import JsamMechanism
from bonafed.mechanisms.jsam.controls import PayAsBid as PayPrivacyAsBid
from bonafed.mechanisms.sampling import optimal_menu
from bonafed.mechanisms.sampling.controls import PayAsBid

PROFILES = [[0.2, 0.5, 0.6, 0.9], [0.1, 0.1, 0.8, 0.8]]


class TwoCheapest:
    """The two cheapest are hired; `price` says what they are paid."""

    def __init__(self, price):
        self.price = price

    def allocate(self, reports):
        costs = np.asarray(reports, float)
        hired = np.zeros(costs.size)
        hired[np.argsort(costs, kind="stable")[:2]] = 1.0
        return Allocation(hired, hired * self.price(costs))


def test_an_auction_that_pays_the_bid_is_caught_at_its_largest_gain():
    mechanism = TwoCheapest(lambda costs: costs)
    witness = audit(mechanism, 0.0, 1.0, profiles=PROFILES, points=101)["truthful"].witness
    # Cost 0 against the lowest losing report 0.8 of the second profile: nearly all of it can be won.
    assert witness.gain == pytest.approx(0.8, abs=1e-3)
    assert witness.others == tuple(PROFILES[1])
    assert f"client {witness.client}" in witness.text


def test_an_auction_that_pays_the_lowest_losing_bid_passes():
    mechanism = TwoCheapest(lambda costs: np.sort(costs)[2])
    report = audit(mechanism, 0.0, 1.0, profiles=PROFILES, points=101)
    assert report.passed, str(report)


@pytest.mark.parametrize(("factor", "holds"), [(1e-6, False), (1e-13, True)])
def test_tiny_violations_are_found_and_rounding_is_not(factor, holds):
    prior = Discrete([0.5, 1.0, 1.5], [0.3, 0.3, 0.4])
    menu = optimal_menu(prior, 0.6)
    payments = menu.payments.copy()
    payments[1] *= 1 + factor
    control = StepMenu(prior, 0.6, menu.costs, menu.probabilities, payments)
    assert audit(control, 0.5, 1.5, claims=("truthful",)).passed == holds


def test_the_search_zooms_in_between_grid_points():
    class Window:
        """Pays a bonus that peaks between two points of the first grid."""

        def probability(self, c):
            return np.full(np.shape(c), 0.5)

        def expected_payment(self, c):
            return 0.5 + 0.05 * np.maximum(0.0, 1 - np.abs(np.asarray(c, float) - 0.5137) / 0.03)

    finding = audit(Window(), 0.0, 1.0, claims=("truthful",), points=41)["truthful"]
    assert finding.number == pytest.approx(0.05, rel=1e-3)
    assert finding.witness.report == pytest.approx(0.5137, abs=1e-3)


@pytest.mark.parametrize("same", [True, False])
def test_the_best_of_all_pairs_is_found_in_parts(same):
    """Enough pairs for several parts; the whole table says which is the first of the best."""
    rng = np.random.default_rng(0)
    costs, quantity = np.sort(rng.random(1500)), rng.random(1500)
    for transfer in (rng.random(1500), 0.5 * quantity):
        honest = transfer - costs * quantity
        gain = transfer[None, :] - costs[:, None] * quantity[None, :] - honest[:, None]
        if same:
            np.fill_diagonal(gain, -np.inf)
        best = np.unravel_index(gain.argmax(), gain.shape)
        assert largest_gain(costs, honest, quantity, transfer, same=same) == (gain[best], *best)
    none = np.zeros(1500)
    assert largest_gain(costs, none, none, none, same=same) == (0.0, 0, int(same))


def test_a_fine_sweep_takes_little_memory():
    tracemalloc.start()
    try:
        finding = audit(MENU, 0.5, 1.5, claims=("truthful",), points=3000)["truthful"]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert finding.holds
    assert finding.tries >= 3000**2
    assert peak < 4e7  # all pairs at once are 7.2e7 bytes, and that several times


def test_a_menu_is_checked_against_the_budget_it_is_given():
    prior = Uniform(0.5, 1.5)
    menu = optimal_menu(prior, 1.0)
    assert audit(menu, 0.5, 1.5, budget=1.0, prior=prior).passed
    finding = audit(menu, 0.5, 1.5, budget=0.99, prior=prior)["within budget"]
    assert finding.witness.gain == pytest.approx(0.01, rel=1e-6)


def test_without_a_budget_the_budget_is_no_claim():
    menu = optimal_menu(Uniform(0.5, 1.5), 1.0)
    report = audit(menu, 0.5, 1.5)
    assert [f.claim for f in report.findings] == [
        "truthful",
        "individually rational",
        "monotone",
        "feasible",
    ]
    with pytest.raises(KeyError):
        report["within budget"]


def test_a_quantity_that_is_not_a_number_is_not_feasible():
    class Broken:
        def probability(self, c):
            return np.where(np.asarray(c) > 0.9, np.nan, 0.5)

        def expected_payment(self, c):
            return np.full(np.shape(c), 0.5)

    assert not audit(Broken(), 0.0, 1.0, claims=("feasible",)).passed


class Menu:
    """Terms given as two functions."""

    def __init__(self, probability, expected_payment):
        self.probability, self.expected_payment = probability, expected_payment


@pytest.mark.parametrize("strange", [np.nan, np.inf, 1e308])
@pytest.mark.parametrize("which", ["probability", "payment"])
def test_an_outcome_that_is_not_finite_breaks_every_claim(which, strange):
    def even(c):
        return np.full(np.shape(c), 0.5)

    def broken(c):
        return np.where(np.asarray(c) > 0.9, strange, 0.5)

    menu = Menu(broken, even) if which == "probability" else Menu(even, broken)
    report = audit(menu, 0.0, 1.0, budget=1.0, prior=Uniform(0, 1))
    assert [f.claim for f in report.findings] == list(CLAIMS)
    for finding in report.findings:
        assert finding.witness.report > 0.9
        assert "not finite" in finding.witness.text
    if which == "payment" and not np.isfinite(strange):  # also where nothing else is asked
        assert not audit(menu, 0.0, 1.0, budget=1.0, prior=Uniform(0, 1), claims=("within budget",)).passed


def test_an_outcome_that_is_not_finite_between_grid_points_is_found_by_the_zoom():
    def payment(c):
        near = np.abs(np.asarray(c, float) - 0.5137)
        return np.where(near < 0.002, np.nan, 0.5 + 0.05 * np.maximum(0.0, 1 - near / 0.03))

    finding = audit(Menu(lambda c: np.full(np.shape(c), 0.5), payment), 0.0, 1.0, points=41)["truthful"]
    assert abs(finding.witness.report - 0.5137) < 0.002


def test_a_mechanism_that_spends_nan_is_over_its_budget():
    mechanism = TwoCheapest(lambda costs: np.where(np.sort(costs)[2] == 0.8, np.nan, costs))
    assert not audit(mechanism, 0.0, 1.0, budget=2.0, profiles=PROFILES, claims=("within budget",)).passed


def test_quantities_are_not_measured_by_money():
    """A rise by a thousandth, and a probability a thousandth above 1, where payments are a billion."""
    dear = Menu(lambda c: 1 + 1e-3 * np.asarray(c, float), lambda c: np.full(np.shape(c), 1e9))
    report = audit(dear, 0.0, 1.0)
    assert not report["monotone"].holds
    assert not report["feasible"].holds


def test_a_single_cost_leaves_nothing_to_lie_about():
    prior = Discrete([1.0], [1.0])
    assert audit(optimal_menu(prior, 0.5), 1.0, 1.0, budget=0.5, prior=prior).passed
    generous = audit(optimal_menu(prior, 0.5), 1.0, 1.0, budget=0.4, prior=prior)
    assert not generous["within budget"].holds


def test_other_limits_of_the_quantity():
    class Privacy:
        def probability(self, c):
            return np.full(np.shape(c), 3.0)

        def expected_payment(self, c):
            return np.full(np.shape(c), 6.0)

    assert not audit(Privacy(), 0.0, 1.0, claims=("feasible",)).passed
    assert audit(Privacy(), 0.0, 1.0, claims=("feasible",), quantity_limit=5.0).passed


PRIVACY_PROFILES = [[0.2, 0.5, 0.6, 0.9], [0.1, 0.1, 0.8, 0.8]]


@pytest.mark.parametrize(("factor", "holds"), [(1e-3, False), (1e-13, True)])
def test_a_payment_for_privacy_that_is_off_by_a_thousandth_is_found(factor, holds):
    class Off(JsamMechanism):
        """Pays those who report above one half a little more than it should."""

        def respond(self, reports, client, own):
            quantity, transfer = super().respond(reports, client, own)
            return quantity, transfer * np.where(own > 0.5, 1 + factor, 1.0)

    mechanism = Off(Uniform(0, 1), 1.0, 0.5)
    options = {"profiles": PRIVACY_PROFILES, "points": 101, "quantity_limit": 1e9}
    assert audit(mechanism, 0.01, 1.0, claims=("truthful",), **options).passed == holds


def test_privacy_paid_as_bid_is_caught_with_what_the_lie_wins():
    mechanism = PayPrivacyAsBid(Uniform(0, 1), 1.0, 0.5)
    options = {"profiles": PRIVACY_PROFILES, "points": 101, "quantity_limit": 1e9, "unit": "for the run"}
    witness = audit(mechanism, 0.01, 1.0, claims=("truthful",), **options)["truthful"].witness
    assert witness.report > witness.true_cost  # it pays to overstate
    reports = np.array(witness.others)
    reports[witness.client] = witness.report
    outcome = mechanism.allocate(reports)
    won = outcome.transfer[witness.client] - witness.true_cost * outcome.quantity[witness.client]
    assert won == pytest.approx(witness.gain, rel=1e-9)  # the truth wins nothing
    assert "for the run" in witness.text


def test_merged_reports_keep_the_worst_case():
    prior = Uniform(0.5, 1.5)
    good = audit(optimal_menu(prior, 1.0), 0.5, 1.5, claims=("truthful",))
    bad = audit(PayAsBid(prior, 0.5), 0.5, 1.5, claims=("truthful",))
    for both in (merge([good, bad]), merge([bad, good])):
        assert not both.passed
        assert both["truthful"].witness == bad["truthful"].witness
        assert both["truthful"].tries == good["truthful"].tries + bad["truthful"].tries


MENU = optimal_menu(Uniform(0.5, 1.5), 1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: audit(object(), 0.5, 1.5), "subject must have allocate"),
        (lambda: audit(MENU, 1.5, 0.5), "low must be below high = 0.5, got 1.5"),
        (lambda: audit(MENU, 0.5, 1.5, points=2), "points must be a whole number of at least 3, got 2"),
        (lambda: audit(MENU, 0.5, 1.5, tolerance=0.0), "tolerance must be positive, got 0.0"),
        (lambda: audit(MENU, 0.5, 1.5, claims=("fair",)), "claim must be one of truthful, .*, got 'fair'"),
        (
            lambda: audit(TwoCheapest(np.sort), 0, 1),
            "profiles must hold at least one cost vector, got None",
        ),
        (
            lambda: audit(MENU, 0.5, 1.5, budget=-1.0, prior=Uniform(0.5, 1.5)),
            "budget must be positive, got -1.0",
        ),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(InvalidValue, match=message):
        call()
