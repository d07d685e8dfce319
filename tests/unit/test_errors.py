"""One tree of errors; every message on one line, with what a program needs as attributes."""

from pathlib import Path

import pytest

from bonafed import errors
from bonafed.errors import (
    BonafedError,
    InvalidValue,
    MissingValue,
    NoSolution,
    ReportRefused,
    UnreadableFile,
)


def test_the_tree_is_the_one_drawn_in_the_docstring():
    tree = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type)}
    tree = {name: kind for name, kind in tree.items() if kind.__module__ == errors.__name__}
    drawn = [line.split("── ")[1].split("  ")[0] for line in errors.__doc__.splitlines() if "── " in line]
    names = " ".join(drawn).replace("(also a ValueError)", "").replace(",", "").split()
    assert set(tree) == {"BonafedError", *names}
    assert all(issubclass(kind, BonafedError) for kind in tree.values())
    assert issubclass(InvalidValue, ValueError)
    assert issubclass(ReportRefused, InvalidValue)
    assert not issubclass(UnreadableFile, ValueError)


def test_invalid_value():
    error = InvalidValue("budget", "must be positive", -3.0)
    assert str(error) == "budget must be positive, got -3.0"
    assert (error.name, error.rule, error.value) == ("budget", "must be positive", -3.0)


@pytest.mark.parametrize(
    ("line", "said"), [(None, "a.csv: empty"), (0, "a.csv, line 0: empty"), (7, "a.csv, line 7: empty")]
)
def test_unreadable_file(line, said):
    error = UnreadableFile(Path("a.csv"), "empty", line)
    assert str(error) == said
    assert (error.path, error.reason, error.line) == (Path("a.csv"), "empty", line)


def test_all_can_be_caught_at_once():
    for error in (
        InvalidValue("a", "b", 1),
        ReportRefused("a", "b", 1),
        UnreadableFile("f", "r"),
        NoSolution("x"),
    ):
        with pytest.raises(BonafedError):
            raise error


def test_a_message_is_one_printable_line():
    """Whatever name or path it is about, and however many lines a library needed to say what is wrong."""
    assert str(InvalidValue("model", "must run", "mat1 and mat2\n  do not fit")) == (
        "model must run, got mat1 and mat2 do not fit"
    )
    for error in (
        InvalidValue("report of \x1b[2J", "must be a number", "\u202e"),
        UnreadableFile("\x07.csv", "no \x00", 3),
        MissingValue("\x9b"),
    ):
        assert str(error).isprintable()
        assert "\\x" in str(error)
