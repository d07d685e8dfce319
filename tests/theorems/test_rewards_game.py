"""The contribution game: best responses and equilibria against definitions, and facts proved of them."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bonafed.mechanisms.rewards.advice import predict, recommend
from bonafed.mechanisms.rewards.game import (
    WORTHS,
    best_responses,
    contribution_at_slope,
    equilibria,
    game,
    relative,
    social_optimum,
    standard,
    starts,
    symmetric_interval,
    utilities,
    with_ceiling,
)
from tests.oracles.rewards_theory import best_utility, share, utility

CEILING = {"ceiling": 1.0, "sharing": 0.5}
names = st.sampled_from(sorted(WORTHS))
cost = st.floats(0.05, 1.5)
own_share = st.floats(0.0, 1.0)
ceiling = st.floats(0.05, 5.0)


@st.composite
def situations(draw):
    """A game, a rule with its name and options, and contributions, some of them equal or zero."""
    costs = draw(st.lists(cost, min_size=2, max_size=6))
    p = draw(
        st.lists(
            st.sampled_from([0.0, 0.1, 0.7, 2.0]) | st.floats(0, 4),
            min_size=len(costs),
            max_size=len(costs),
        )
    )
    kind = draw(st.sampled_from(["standard", "relative", "ceiling"]))
    options = {"ceiling": draw(ceiling), "sharing": draw(own_share)} if kind == "ceiling" else {}
    rule = {"standard": standard, "relative": relative, "ceiling": with_ceiling}[kind](**options)
    return draw(names), costs, kind, options, rule, p


@given(situations())
def test_utilities_are_what_the_definition_says(case):
    name, costs, kind, options, rule, p = case
    found = utilities(game(costs, name), rule, p)
    expected = [utility(name, costs, kind, p, i, **options) for i in range(len(p))]
    assert found == pytest.approx(expected, rel=1e-12, abs=1e-12)


@given(situations())
@example(("exp", [1.0, 0.875], "ceiling", CEILING, with_ceiling(**CEILING), [0.0, 0.0]))  # nothing to share
@example(("exp", [1.0, 0.875], "ceiling", CEILING, with_ceiling(**CEILING), [0.0, 1e-300]))
@example(("exp", [1.0, 1.0], "relative", {}, relative(), [0.1, 2.2e-313]))
def test_no_contribution_beats_the_best_response(case):
    name, costs, kind, options, rule, p = case
    answer = best_responses(game(costs, name), rule, p)
    for i in range(len(p)):
        moved = list(p)
        moved[i] = float(answer[i])
        reached = utility(name, costs, kind, moved, i, **options)
        best = best_utility(name, costs, kind, p, i, **options)
        assert reached >= best - 1e-12


@given(st.lists(cost, min_size=1, max_size=5), names)
def test_standalone_contributions_equate_slope_and_cost(costs, name):
    played = game(costs, name)
    slope = WORTHS[name].slope(played.standalone)
    inside = played.standalone > 0
    assert slope[inside] == pytest.approx(np.array(costs)[inside], rel=1e-9)
    assert (slope[~inside] <= np.array(costs)[~inside]).all()


@given(st.lists(cost, min_size=2, max_size=6), names)
def test_under_the_standard_rule_only_the_cheapest_pay(costs, name):
    played = game(costs, name)
    single = contribution_at_slope(played.worth, [min(costs)])[0]
    for found in equilibria(played, standard()):
        assert found.gain <= 1e-12
        assert found.total == pytest.approx(single, rel=1e-9, abs=1e-12)
        assert (found.contributions[played.costs > min(costs) * (1 + 1e-6)] <= 1e-9).all()
        assert found.share == pytest.approx(1.0)


@given(st.integers(2, 8), cost, names, st.floats(0.0, 1.0), st.floats(1.01, 3.0))
def test_symmetric_equilibria_of_the_relative_rule_are_exactly_an_interval(n, c, name, place, beyond):
    played = game(np.full(n, c), name)
    low, high = symmetric_interval(played)

    def gain(x):
        p = np.full(n, x)
        answer = best_responses(played, relative(), p)
        moved = np.where(np.eye(n, dtype=bool), answer, p)
        return (
            max(utilities(played, relative(), row)[i] for i, row in enumerate(moved))
            - utilities(played, relative(), p).max()
        )

    assert gain(low + place * (high - low)) <= 1e-12
    if high > 0:
        assert gain(high * beyond) > 1e-12
    if low > 1e-3:
        assert gain(low / beyond) > 1e-12


def test_proposition_3_a_bad_equilibrium_exists_and_the_ceiling_removes_it():
    played = game(np.full(4, 0.2))
    low, high = symmetric_interval(played)
    assert 4 * low == pytest.approx(played.standalone[0])  # all together: what one would do alone
    assert 4 * high == pytest.approx(social_optimum(played).total)
    bad = equilibria(played, relative(), {"bad": np.full(4, low)})[0]
    assert bad.contributions == pytest.approx(low)
    assert bad.gain <= 1e-15
    assert (
        best_responses(played, with_ceiling(2.0, 0.0), np.full(4, low)) > low + 0.1
    ).all()  # not content
    under = {round(one.total, 6) for one in equilibria(played, with_ceiling(2.0, 0.0))}
    assert under == {4.030157}  # from zero, low, high and bad


@given(st.lists(cost, min_size=2, max_size=5), names, ceiling, own_share)
def test_the_ceiling_rule_is_never_below_the_standard_and_nobody_loses_by_joining(
    costs, name, limit, kappa
):
    """Below g'^{-1}(min c) the cheapest still gains; and x >= p, so joining is worth learning alone."""
    played = game(costs, name)
    single = contribution_at_slope(played.worth, [min(costs)])[0]
    for found in equilibria(played, with_ceiling(limit, kappa)):
        if found.converged:
            assert found.gain <= 1e-10
            assert found.total >= single - 1e-9
            assert (found.utility >= played.standalone_utility - 1e-10).all()


def test_searches_settle():
    rng = np.random.default_rng(0)
    settled = [
        one.converged
        for _ in range(15)
        for one in equilibria(
            game(rng.uniform(0.05, 1.5, 4), str(rng.choice(list(WORTHS)))),
            with_ceiling(rng.uniform(0.05, 5), rng.uniform(0, 1)),
        )
    ]
    assert len(settled) == 60
    assert all(settled)


def test_equal_to_the_standard_rule_where_the_cheapest_reaches_the_ceiling_anyway():
    played = game([0.1, 0.5])
    for found in equilibria(played, with_ceiling(0.5, 0.0)):
        assert found.total == pytest.approx(equilibria(played, standard())[0].total, rel=1e-12)


def test_with_costs_above_the_first_slope_nobody_may_contribute():
    played = game(np.full(10, 1.2))
    found = {one.start: one.total for one in equilibria(played, with_ceiling(0.5, 0.0))}
    assert found["zero"] == 0
    assert found["high"] == pytest.approx(2.7047, abs=1e-4)
    said = predict(played, with_ceiling(0.5, 0.0))
    assert [round(one.total, 4) for one in said.equilibria] == [0.0, 2.7047]
    assert "2 equilibria" in str(said)


def test_a_ceiling_can_ask_for_more_than_is_good():
    """More than the social optimum, and less utility than federated averaging with equal burdens."""
    played = game(np.full(4, 0.2))
    found = equilibria(played, with_ceiling(2.0, 0.0))[0]
    assert found.total > social_optimum(played).total
    fair = utilities(played, standard(), np.full(4, played.standalone[0] / 4))
    assert found.utility == pytest.approx(0.7189, abs=1e-4)
    assert fair == pytest.approx(0.7195, abs=1e-4)
    assert social_optimum(played).welfare / 4 == pytest.approx(0.8002, abs=1e-4)


@given(st.integers(2, 8), st.floats(0.05, 0.9), names)
def test_a_ceiling_at_the_social_optimum_makes_identical_clients_reach_it(n, c, name):
    played = game(np.full(n, c), name)
    best = social_optimum(played)
    found = equilibria(played, with_ceiling(best.total / n, 0.0), {"high": starts(played)["high"]})[0]
    assert found.contributions == pytest.approx(best.total / n, rel=1e-9)
    assert found.share == pytest.approx(1.0, rel=1e-9)
    assert found.welfare == pytest.approx(best.welfare, rel=1e-9)


@given(situations())
def test_no_contributions_have_more_welfare_than_the_social_optimum(case):
    name, costs, kind, options, _, p = case
    reached = sum(utility(name, costs, kind, p, i, **options) for i in range(len(p)))
    assert reached <= social_optimum(game(costs, name)).welfare + 1e-9


def test_advice_finds_the_social_optimum_and_says_when_the_grid_ends():
    played = game(np.full(4, 0.2))
    grid = {
        "sharing": [0.0, 0.5, 1.0],
        "ceilings": [0.4, social_optimum(played).total / 4, 2.0],
    }
    told = recommend(played, "welfare", **grid)
    assert told.reached.worst == pytest.approx(told.social, rel=1e-9)
    assert told.rule.ceiling == pytest.approx(social_optimum(played).total / 4, rel=1e-6)
    assert not told.at_edge
    assert told.standard.best < told.reached.worst
    most = recommend(played, "total", **grid)
    assert most.at_edge  # larger ceilings still ask for more
    assert most.reached.worst >= np.nanmax(most.worst)
    assert "edge" in str(most)


def test_without_bound_the_ceiling_ends_the_federation():
    """Shares vanish, and everybody contributes what it would alone: a large total that helps nobody."""
    played = game(np.full(4, 0.2))
    found = equilibria(played, with_ceiling(1e9, 0.0))[0]
    assert found.total == pytest.approx(4 * played.standalone[0], rel=1e-6)
    assert found.utility == pytest.approx(played.standalone_utility, rel=1e-6)
    assert found.share.max() < 1e-8


def test_results_do_not_depend_on_what_else_is_played():
    played = game([0.1, 0.2, 0.3, 0.5])
    begin = starts(played)
    together = equilibria(played, with_ceiling(2.0, 0.3), begin)
    for one in together:
        alone = equilibria(played, with_ceiling(2.0, 0.3), {one.start: begin[one.start]})[0]
        assert (alone.contributions == one.contributions).all()


def test_the_oracle_sees_a_wrong_share():
    """The twin is able to disagree."""
    p = [0.5, 1.0]
    assert share("relative", p, 0) == 0.5
    right = utilities(game([0.1, 0.1]), relative(), p)
    assert abs(right[0] - utility("exp", [0.1, 0.1], "standard", p, 0)) > 0.1
