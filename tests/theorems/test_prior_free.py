"""Prior-free sampling (theory A6): the promises (T), (B), (F) for every realisation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bonafed.errors import ReportRefused
from bonafed.mechanisms.sampling import PriorFreeSampling
from tests.oracles import prior_free as slow
from tests.theorems.strategies import powers_of_ten


@st.composite
def sequences(draw, most=25):
    """Rules and reports: zeros, ties, the highest cost, reports not admitted, hostile orders."""
    clients = draw(st.integers(1, most))
    highest = draw(powers_of_ten(-1, 1))
    rules = PriorFreeSampling(
        clients,
        draw(powers_of_ten(-2, 0.5)) * clients * highest,
        highest,
        initial=draw(st.integers(0, clients)),
        estimator=draw(st.sampled_from(["plus", "mle"])),
        refresh=draw(st.sampled_from([0.0, 0.0, 0.05, 0.5, 3.0])),
    )
    one = st.one_of(
        st.floats(0, 1),
        st.sampled_from([0.0, 0.25, 0.5, 1.0]),
        st.floats(1.001, 3),  # not admitted
    )
    shares = draw(st.lists(one, min_size=clients, max_size=clients))
    order = draw(st.sampled_from(["as drawn", "rising", "falling"]))
    if order != "as drawn":
        shares = sorted(shares, reverse=order == "falling")
    return rules, np.array(shares) * highest


@given(sequences())
def test_budget_rationality_and_floor_for_every_realisation(case):
    rules, reports = case
    run = rules.run(reports)
    admitted = reports <= rules.highest
    assert run.spent <= rules.budget
    assert np.all(run.payment[admitted] >= reports[admitted])
    assert np.all(run.probability[admitted] >= rules.lowest_probability * (1 - 1e-15))
    assert np.all(run.probability <= 1)
    assert np.all(run.probability[~admitted] == 0)
    assert np.all(run.payment[~admitted] == 0)
    assert np.all(run.remaining >= -1e-15 * rules.budget)
    assert np.all(np.diff(run.remaining) <= 0)


@given(sequences())
def test_every_menu_is_a_truthful_contract(case):
    """Along the sequence: q does not rise, transfers are those of (16), payments cover costs."""
    rules, reports = case
    state = rules.start()
    for report in reports:
        menu = state.menu
        q, r, costs = menu.probabilities, menu.payments, menu.costs
        assert costs[-1] == rules.highest
        assert np.all(np.diff(q) <= 0)
        assert np.all(r >= costs)
        truth = np.array([0.0, *costs])
        honest = menu.utility(truth, truth)
        lies = menu.utility(truth[:, None], costs[None, :])
        assert np.all(lies <= honest[:, None] + 1e-12 * (q * r).max())
        assert np.all(honest >= 0)
        _, state = state.settle(float(report))


@given(sequences(), st.floats(0, 1), st.integers(0, 100))
def test_a_report_cannot_change_its_own_menu(case, lie, place):
    """Change one report: everything before it, and its own menu, stay; only its own terms move in it."""
    rules, reports = case
    j = place % reports.size
    changed = reports.copy()
    changed[j] = lie * rules.highest
    one, other = rules.start(), rules.start()
    for a, b in zip(reports[:j], changed[:j], strict=True):
        one, other = one.settle(float(a))[1], other.settle(float(b))[1]
    assert np.array_equal(one.menu.probabilities, other.menu.probabilities)
    assert np.array_equal(one.menu.payments, other.menu.payments)
    assert np.array_equal(one.menu.costs, other.menu.costs)
    terms, _ = other.settle(float(changed[j]))
    offered = one.menu.settle(float(changed[j]))
    assert (terms.probability, terms.payment) == (offered.probability, offered.payment)
    before, after = rules.run(reports), rules.run(changed)
    assert np.array_equal(before.probability[:j], after.probability[:j])
    assert np.array_equal(before.payment[:j], after.payment[:j])


@given(sequences())
def test_batched_run_is_the_stepwise_run_bit_for_bit(case):
    rules, reports = case
    run, state = rules.run(reports), rules.start()
    for j, report in enumerate(reports):
        assert state.remaining == run.remaining[j]
        assert state.shrink == run.shrink[j]
        terms, state = state.settle(float(report))
        assert terms.probability == run.probability[j]
        assert terms.payment == run.payment[j]
    assert state.clients_left == 0


@given(sequences())
def test_against_the_transcription_of_the_algorithm(case):
    """Refresh for every client: the slow twin, one client at a time, bisection instead of closed form."""
    rules, reports = case
    rules = PriorFreeSampling(
        rules.clients, rules.budget, rules.highest, rules.first_clients, estimator=rules.estimator
    )
    run = rules.run(reports)
    log = slow.play(
        reports.tolist(),
        rules.budget,
        rules.highest,
        rules.first_clients,
        rules.first_probability,
        rules.lowest_probability,
        rules.estimator,
    )
    assert run.probability == pytest.approx([entry["q"] for entry in log], rel=1e-7, abs=1e-14)
    assert run.expected_payment == pytest.approx([entry["t"] for entry in log], rel=1e-7, abs=1e-14)
    assert run.remaining == pytest.approx([e["remaining"] for e in log], rel=1e-7, abs=1e-9 * rules.budget)


@settings(max_examples=12)
@given(st.integers(1, 20_000), st.floats(0, 1), st.floats(0.1, 1), powers_of_ten(-1, 1), st.integers(0, 9))
def test_rules_without_any_slack_keep_the_budget(clients, part, floor_share, highest, seed):
    """n0 q highest + (N - n0) floor highest = budget, the tightest rules: still within budget, rounded."""
    first = round(part * clients)
    budget = 0.7 * clients * highest
    fair = budget / (clients * highest)
    floor = fair * floor_share
    rest = clients - first
    start = (budget - rest * highest * floor) / (first * highest) if first else fair
    start = max(min(start, 1.0), floor)
    rules = PriorFreeSampling(
        clients, budget, highest, first, initial_probability=start, floor=floor, refresh=0.5
    )
    rng = np.random.default_rng(seed)
    for reports in (rng.uniform(0, highest, clients), np.zeros(clients), np.full(clients, highest)):
        run = rules.run(reports)
        assert run.spent <= budget
        assert np.all(run.payment >= reports)
        assert run.probability.min() >= floor * (1 - 1e-11)


def test_the_floor_alone_can_use_the_whole_budget():
    rules = PriorFreeSampling(2_000, 666.6, 1.0, 0, floor=0.3333, refresh=0.2)
    run = rules.run(np.random.default_rng(0).random(2_000))
    assert run.spent <= 666.6
    assert run.spent == pytest.approx(666.6, rel=1e-10)
    assert run.probability.min() >= 0.3333 * (1 - 1e-11)
    assert run.probability == pytest.approx(np.full(2_000, 0.3333), rel=1e-4)


@pytest.mark.parametrize("estimator", ["plus", "mle"])
@pytest.mark.parametrize("initial", [0, 1, 7, 20])
def test_initial_clients(estimator, initial):
    """None to all of them on uniform terms; the rest from the estimate."""
    rules = PriorFreeSampling(20, 8.0, 1.0, initial, estimator=estimator)
    reports = np.random.default_rng(1).random(20)
    run = rules.run(reports)
    assert np.all(run.probability[:initial] == rules.first_probability)
    assert np.all(run.payment[:initial] == 1.0)
    assert run.spent <= 8.0
    if initial < 20:
        assert rules.start().clients_left == 20
        assert np.unique(run.probability[initial:]).size > 1


def test_without_reports_the_only_level_is_the_highest_cost():
    menu = PriorFreeSampling(5, 2.0, 1.0, 0).start().menu
    assert menu.costs.tolist() == [1.0]
    assert menu.payments.tolist() == [1.0]
    assert menu.probabilities == pytest.approx([0.4], rel=1e-11)


def test_first_menus_after_one_report():
    """Support {0.4, 1.0}, plus: half each, phi = (0.4, 1.6); mle: the one report moved to the highest."""
    plus = PriorFreeSampling(3, 1.0, 1.0, 1).start().settle(0.4)[1].menu
    assert plus.costs.tolist() == [0.4, 1.0]
    target = (1.0 - 1 / 3) / 2
    tau = target / (0.5 * np.sqrt(0.4) + 0.5 * np.sqrt(1.6))
    assert plus.probabilities == pytest.approx([tau / np.sqrt(0.4), tau / np.sqrt(1.6)], rel=1e-9)
    mle = PriorFreeSampling(3, 1.0, 1.0, 1, estimator="mle").start().settle(0.4)[1].menu
    assert mle.costs.tolist() == [1.0]


def test_refresh_policy():
    """refresh = 1: a new menu when the reports have doubled, at 4, 8, 16, 32 of them."""
    rules = PriorFreeSampling(40, 20.0, 1.0, 4, refresh=1.0)
    reports = np.random.default_rng(2).random(40)
    state, changes, previous = rules.start(), [], None
    for j, report in enumerate(reports):
        if previous is not None and state.terms is not previous:
            changes.append(j)
        previous = state.terms
        _, state = state.settle(float(report))
    assert changes == [4, 8, 16, 32]


def test_refused_reports_are_not_stored_but_count():
    rules = PriorFreeSampling(4, 2.0, 1.0, 1)
    state = rules.start()
    terms, state = state.settle(5.0)
    assert (terms.probability, terms.payment, terms.expected_payment) == (0.0, 0.0, 0.0)
    assert state.reports.size == 0
    assert state.clients_left == 3
    assert state.remaining == 2.0


def test_a_report_exactly_at_the_highest_cost_is_admitted():
    rules = PriorFreeSampling(6, 2.0, 1.0, 2)
    run = rules.run(np.ones(6))
    assert np.all(run.probability > 0)
    assert np.all(run.payment == 1.0)


@pytest.mark.parametrize("bad", [-0.1, float("nan")])
def test_nonsense_is_refused(bad):
    rules = PriorFreeSampling(3, 2.0, 1.0)
    with pytest.raises(ReportRefused, match="report"):
        rules.run([0.1, bad, 0.2])
    with pytest.raises(Exception, match="report"):
        rules.start().settle(bad)


def test_a_rich_budget_samples_everybody():
    run = PriorFreeSampling(8, 100.0, 1.5, 2).run(np.linspace(0.1, 1.5, 8))
    assert np.all(run.probability == 1.0)
    assert np.all(run.payment == 1.5)


def test_learns_to_beat_uniform_sampling():
    """Spec A6: costs mostly far below the highest; mean 1/q well below the uniform 3.0."""
    rng = np.random.default_rng(5)
    inverse = [
        np.mean(
            1
            / PriorFreeSampling(60, 30.0, 1.5, 6).run(np.minimum(rng.exponential(0.3, 60), 1.5)).probability
        )
        for _ in range(30)
    ]
    assert np.mean(inverse) < 2.5
    assert np.mean(inverse) == pytest.approx(2.08, abs=0.25)


def test_order_is_the_servers_draw():
    rules = PriorFreeSampling(50, 10.0, 1.0)
    one, again = (rules.order(np.random.default_rng(9)) for _ in range(2))
    assert np.array_equal(one, again)
    assert sorted(one) == list(range(50))
    assert not np.array_equal(one, np.arange(50))
