"""The game's arguments, a worth of one's own, and what predictions and advice say."""

import re

import numpy as np
import pytest

from bonafed.errors import InvalidValue, NoSolution
from bonafed.mechanisms.rewards.advice import predict, recommend
from bonafed.mechanisms.rewards.game import (
    RewardRule,
    Worth,
    best_responses,
    equilibria,
    game,
    relative,
    social_optimum,
    standard,
    symmetric_interval,
    with_ceiling,
)

ROOT = Worth("root", lambda x: np.sqrt(1 + x), lambda x: 0.5 / np.sqrt(1 + x))


def test_a_worth_of_ones_own():
    played = game([0.1, 0.2], ROOT)
    assert played.standalone == pytest.approx([24.0, 5.25])  # 0.5/sqrt(1+x) = c
    assert social_optimum(played).total == pytest.approx(99.0)
    assert equilibria(played, standard())[0].total == pytest.approx(24.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: game([]), "costs must not be empty"),
        (lambda: game([0.1, 0.0]), "costs must be positive, got 0 at position 1"),
        (lambda: game([0.1, 1.7e308]), r"costs must be between 1e-100 and 1e\+100, got 1\.7e\+308"),
        (lambda: game([0.1], "square"), "worth must be one of exp, frac, log, got 'square'"),
        (
            lambda: game([0.1], Worth("line", lambda x: x, np.ones_like)),
            "worth must fall to a slope of 0.1 somewhere, got line",
        ),
        (
            lambda: game([0.1], Worth("bump", lambda x: x, lambda x: x * np.exp(-x) + 0.3 * np.exp(-x))),
            "worth must be concave: its slope must not rise, got bump",
        ),
        (
            lambda: game([0.1], Worth("hole", lambda x: x, lambda x: np.where(x < 1, np.nan, 0.0))),
            "worth must have a finite slope that is not negative, got hole",
        ),
        (lambda: with_ceiling(0.0), "ceiling must be positive, got 0.0"),
        (lambda: with_ceiling(1.0, 1.5), "sharing must be between 0 and 1, got 1.5"),
        (lambda: RewardRule(None, -0.1), "sharing must be between 0 and 1, got -0.1"),
        (
            lambda: best_responses(game([0.1, 0.2]), relative(), [1.0]),
            "contributions must have 2 values, got 1",
        ),
        (lambda: best_responses(game([0.1]), relative(), [-1.0]), "contributions must not be negative"),
        (lambda: equilibria(game([0.1]), relative(), {}), "begin must name at least one start"),
        (
            lambda: equilibria(game([0.1]), relative(), {"mine": [1, 2]}),
            "start mine must have 1 values, got 2",
        ),
        (lambda: symmetric_interval(game([0.1, 0.2])), "costs must be identical"),
        (lambda: recommend(game([0.1]), "profit"), "goal must be one of total, received, welfare"),
        (lambda: recommend(game([0.1]), ceilings=[0.0]), "ceilings must be positive"),
        (lambda: recommend(game([0.1]), sharing=[2.0], ceilings=[1.0]), "sharing must be between 0 and 1"),
    ],
)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(InvalidValue, match=message):
        call()


def test_one_client_alone_is_not_helped_by_any_rule():
    played = game([0.2])
    for rule in (standard(), relative(), with_ceiling(0.5), with_ceiling(9.0, 0.0)):
        for found in equilibria(played, rule):
            assert found.contributions == pytest.approx(played.standalone)


def test_rules_have_names():
    assert str(standard()) == "standard"
    assert str(relative()) == "relative"
    assert str(with_ceiling(2.0)) == "ceiling 2, sharing 0.5"
    assert str(with_ceiling(2.0, 0.0)) == "ceiling 2"


def test_a_prediction_says_who_does_what():
    said = str(predict(game([0.1, 0.5]), with_ceiling(2.0, 0.0)))
    assert re.search(r"rule: ceiling 2; 1 equilibrium found", said)
    assert "from zero, low, high, bad" in said
    rows = [line.split() for line in said.splitlines() if re.match(r" +\d+  ", line)]
    assert [row[1] for row in rows] == ["0.1", "0.5"]
    assert float(rows[0][3]) > float(rows[1][3])  # the cheaper contributes more
    for row in rows:
        assert float(row[5]) >= float(row[6])  # joining pays
    assert "social optimum: total 2.9957" in said


def test_a_search_that_was_cut_short_says_so():
    cut = equilibria(game([0.1, 0.2, 0.3]), with_ceiling(2.0, 0.0), sweeps=2)
    assert not any(one.converged for one in cut)
    assert max(one.gain for one in cut) > 1e-9


def test_there_is_no_advice_where_contributing_pays_for_nobody():
    with pytest.raises(NoSolution, match="contributing pays for nobody"):
        recommend(game([2.0]))


def test_advice_weighs_the_worst_equilibrium():
    """Where nobody contributing is an equilibrium of every rule, the advice says how bad it may be."""
    told = recommend(game(np.full(3, 1.2)), "received", sharing=[0.0, 0.5], ceilings=[0.2, 0.3])
    assert told.reached.worst == 0
    assert told.best.shape == (2, 2)
    assert told.reached.best >= np.nanmax(told.best) - 1e-9
    said = str(told)
    assert said.startswith("largest received: ceiling")
    assert re.search(r"standard rule +0\.0000\n", said)
