"""Curves of runs: what is drawn of which samples, and what the legend and the axes say of it."""

from dataclasses import replace

import numpy as np
import pytest

from bonafed.runs.figures import RunCurve, runs_figure
from bonafed.runs.listing import mark_test_sets

ROUNDS, NOTHING = np.array([1.0, 2.0]), np.full(2, np.nan)
TESTED = RunCurve("tested", ROUNDS, np.array([0.5, 0.6]), np.array([2.0, 1.0]), None, np.array([9.0, 8.0]))
UNTESTED = RunCurve("untested", ROUNDS, NOTHING, NOTHING, np.array([5.0, 9.0]), np.array([4.0, 3.0]))


def drawn(panel):
    return {line.get_label(): line.get_ydata().tolist() for line in panel.get_lines()}


def test_the_training_loss_stands_in_only_where_nothing_was_tested():
    accuracy, loss, accuracy_for_money, loss_for_money = runs_figure([TESTED, UNTESTED]).axes
    assert drawn(accuracy) == {"tested": [0.5, 0.6]}
    assert drawn(loss) == {"tested": [2.0, 1.0], "untested (training loss)": [4.0, 3.0]}
    assert loss.get_ylabel() == "test or training loss"
    assert not accuracy_for_money.get_visible()  # the run that pays was never tested
    assert drawn(loss_for_money) == {"untested (training loss)": [4.0, 3.0]}
    assert loss_for_money.get_ylabel() == "training loss"


def test_a_loss_beyond_all_numbers_is_not_replaced_by_another():
    far = RunCurve("far", ROUNDS, np.array([0.1, 0.1]), NOTHING, None, np.array([4.0, 3.0]))
    (accuracy,) = runs_figure([far]).axes
    assert drawn(accuracy) == {"far": [0.1, 0.1]}


def test_runs_of_which_nothing_is_known_leave_the_panels_empty():
    unknown = RunCurve("unknown", ROUNDS, NOTHING, NOTHING)
    figure = runs_figure([unknown])
    assert [drawn(panel) for panel in figure.axes] == [{}, {}]
    assert figure.legends == []


def test_long_names_stand_below_each_other():
    def columns(name):
        return runs_figure([RunCurve(f"{name}{k}", *(ROUNDS,) * 3) for k in range(5)]).legends[0]._ncols

    assert columns("run") == 4
    assert columns("a/very/long/path/that/tells/runs/apart/" * 3) == 1


def ticks(axis, low, high):
    return [place for place in axis.get_major_locator()() if low <= place <= high]


@pytest.mark.parametrize("rounds", [1, 2, 3, 40])
def test_rounds_are_whole_numbers(rounds):
    x = np.arange(1.0, rounds + 1)
    for panel in runs_figure([RunCurve("short", x, x / 99, x)]).axes:
        shown = ticks(panel.xaxis, *panel.get_xlim())
        assert shown
        assert shown == [round(place) for place in shown]


@pytest.mark.parametrize(
    ("losses", "scale"),
    [
        ([[2.0, 1.0], [2001.0, 9.0]], "log"),
        ([[2.0, 1.0], [2000.0, 9.0]], "linear"),
        ([[2.0, 0.0], [2001.0, 9.0]], "linear"),  # 0 has no logarithm
        ([[2001.0, 1.0]], "linear"),  # there is no other run
        ([[2.0, 1.0], [np.nan, 2001.0]], "log"),
    ],
)
def test_losses_far_apart_are_on_a_logarithmic_axis(losses, scale):
    curves = [RunCurve(f"{k}", ROUNDS, ROUNDS / 9, np.array(each), ROUNDS) for k, each in enumerate(losses)]
    accuracy, loss, accuracy_for_money, loss_for_money = runs_figure(curves).axes
    assert (loss.get_yscale(), loss_for_money.get_yscale()) == (scale, scale)
    assert (accuracy.get_yscale(), accuracy_for_money.get_yscale()) == ("linear", "linear")


def test_what_does_not_compare_is_marked_in_the_legend_and_on_the_axis():
    counted = RunCurve("steps", ROUNDS, ROUNDS / 9, ROUNDS, None, None, "gradient step", "B")
    figure = runs_figure([replace(TESTED, test_set="A"), counted, UNTESTED])
    assert {*drawn(figure.axes[1])} == {
        "tested (test set A, by rounds)", "steps (test set B, by gradient steps)",
        "untested (training loss, by rounds)",
    }  # fmt: skip
    assert figure.axes[0].get_xlabel() == "round or gradient step"
    assert runs_figure([TESTED, UNTESTED]).axes[0].get_xlabel() == "round"


@pytest.mark.parametrize("name", ["_hidden", "$x_$", "50%"])
def test_a_name_is_shown_as_it_is(name):
    figure = runs_figure([replace(TESTED, name=name)])
    (text,) = figure.legends[0].get_texts()
    assert text.get_text().strip() == name
    figure.canvas.draw()  # nothing in it is taken for a formula


def row(digest, accuracy=0.5):
    return {"test_digest": digest, "test_accuracy": accuracy, "test_loss": accuracy}


@pytest.mark.parametrize(
    ("rows", "letters"),
    [
        ([row("x"), row("x")], [None, None]),
        ([row("x"), row("y"), row("x")], ["A", "B", "A"]),
        ([row("x"), row("", None)], [None, None]),  # judged by nothing
        ([row("x"), row("")], ["A", "?"]),  # of a version that did not say
        ([row("")], [None]),
    ],
)
def test_test_sets_have_letters_where_they_differ(rows, letters):
    mark_test_sets(rows)
    assert [each["test_set"] for each in rows] == letters
