"""Names in figures: those of the tables, whatever they are made of."""

import re
from importlib import resources

import pytest

from bonafed.economics.statement import Statement
from bonafed.presentation.figures import name_clients, sheet

STRANGE = ("$x_$", "_hidden", "a very long name indeed, of ward 17", "\\frac", "%")


def drawn(names, order=""):
    figure = sheet(4, 3)
    axes = figure.subplots()
    axes.bar(range(len(names)), [1.0] * len(names))
    name_clients(axes, names, order)
    figure.canvas.draw()
    ticks = [round(place) for place in axes.get_xticks()]
    return dict(zip(ticks, (label.get_text() for label in axes.get_xticklabels()), strict=True)), axes


def test_every_bar_has_its_name_and_no_place_is_taken_for_one():
    ticks, axes = drawn(["7", "3", "0"], "cheapest first")
    assert ticks == {0: "7", 1: "3", 2: "0"}
    assert axes.get_xlabel() == "client, cheapest first"


@pytest.mark.parametrize("count", [31, 60, 1000])
def test_of_many_some_are_named(count):
    names = [f"{3 * k}" for k in range(count)]
    ticks, axes = drawn(names)
    assert 2 < len(ticks) <= 12
    assert all(names[place] == label for place, label in ticks.items())
    assert {0, count - 1} <= ticks.keys()
    assert axes.get_xlabel() == f"{count:,} clients"


def test_letters_are_letters():
    ticks, _ = drawn(STRANGE)
    assert ticks == {0: "$x_$", 1: "_hidden", 2: "a very long...ard 17", 3: "\\frac", 4: "%"}


def test_a_statement_of_anybody_can_be_drawn(tmp_path):
    statement = Statement("toy", STRANGE, (1, -2, 3, 4, 5), run="$a_$")
    axes = statement.plot(tmp_path / "a.png").axes[0]
    assert [bar.get_height() for bar in axes.containers[0]] == [0.01, -0.02, 0.03, 0.04, 0.05]


def test_all_figures_are_made_in_one_way():
    """Else a notebook shows some of them and not others."""
    makes = re.compile(r"\bFigure\(|pyplot|plt\.")
    everything = resources.files("bonafed").rglob("*.py")
    files = [path for path in everything if path.parts[-2:] != ("presentation", "figures.py")]
    assert len(files) > 100
    assert [path.name for path in files if makes.search(path.read_text("utf-8"))] == []
