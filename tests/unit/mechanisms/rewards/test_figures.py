"""The pictures of the contribution game show what the functions found."""

from pathlib import Path

import numpy as np
import pytest

from bonafed.errors import InvalidValue
from bonafed.mechanisms.rewards.advice import recommend
from bonafed.mechanisms.rewards.figures import advice_figure, behaviour_figure
from bonafed.mechanisms.rewards.game import equilibria, game, relative, symmetric_interval, with_ceiling
from bonafed.presentation.figures import render


def test_bars_are_contributions_and_utilities():
    played, rule = game([0.1, 0.2, 0.3, 0.5]), with_ceiling(2.0, 0.0)
    figure = behaviour_figure(played, rule)
    left, middle, right = figure.axes
    found = equilibria(played, rule)[0]
    heights = [bar.get_height() for bar in left.containers[-1]]
    assert heights == pytest.approx(found.contributions, rel=1e-9)
    assert [bar.get_height() for bar in middle.containers[-1]] == pytest.approx(found.utility, rel=1e-9)
    curve = right.lines[0]
    assert np.interp(2.0, *curve.get_data()) == pytest.approx(found.total, rel=0.02)
    assert left.get_xticklabels()[1].get_text() == "1\n(0.2)"
    assert render(figure, Path("game.png")).startswith(b"\x89PNG")


def test_several_equilibria_have_whiskers():
    played = game(np.full(4, 0.2))
    left = behaviour_figure(played, relative()).axes[0]
    low, high = symmetric_interval(played)
    bars = [one for one in left.containers if hasattr(one, "patches")]
    assert bars[1].patches[0].get_height() == pytest.approx(low)
    whisker = next(one for one in reversed(left.containers) if not hasattr(one, "patches"))
    tops = [segment[1][1] for segment in whisker.lines[2][0].get_segments()]
    assert tops == pytest.approx(np.full(4, high))


def test_advice_is_marked_where_it_lies():
    told = recommend(game([0.1, 0.2]), "received", sharing=[0.0, 0.5, 1.0], ceilings=[0.3, 0.8, 2.0])
    axes = advice_figure(told).axes[0]
    (mark,) = axes.lines
    assert (mark.get_xdata()[0], mark.get_ydata()[0]) == (told.rule.ceiling, told.rule.sharing)
    assert np.array_equal(axes.collections[0].get_array(), told.worst)
    narrow = recommend(game([0.1, 0.2]), "received", sharing=[0.0], ceilings=[0.3, 0.8])
    with pytest.raises(InvalidValue, match="at least 2 by 2"):
        advice_figure(narrow)
