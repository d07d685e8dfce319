# ruff: noqa: RUF001  (letters at full width and of other scripts are meant)
"""Numbers as they are read, names as they are written: no more, and no formula."""

import ast
import csv
import io
import math
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import bonafed
from bonafed.text import alike, csv_bytes, from_cell, in_cell, numeral, printable, whole_numeral

DANGEROUS = "=+-@\t\r\n＝＋－＠"  # at the beginning of a cell, for some spreadsheet or other
MISSPELT = [
    "0_1.2_5", "1_0", "０.５", "٠.٥", "1٫5", "O.6", "0,6", "0x10", "1e", "e5", "", " ", ".", "+", "--1",
    "1 2", "\u00a00.5", "0.5\u2003", "0.5\n", "\t0.5", "\x0b0.5", "\x1f1", "0.5\x00", "½", "²", "1d5",
    "ınf", "1e५",
]  # fmt: skip


@pytest.mark.parametrize("text", MISSPELT)
def test_what_spells_no_number(text):
    with pytest.raises(ValueError, match="not a number"):
        numeral(text)
    with pytest.raises(ValueError, match="not a whole number"):
        whole_numeral(text)


@given(st.floats())
def test_every_float_is_read_back(value):
    again = numeral(repr(value))
    assert again == value or (math.isnan(again) and math.isnan(value))


@given(st.text(alphabet="0123456789+-.eE_infa ٣３\t", max_size=8))
def test_what_is_read_is_what_python_reads_in_plain_digits(text):
    """Never another number than Python's; refused are only separators, other digits and odd spaces."""
    try:
        value = numeral(text)
    except ValueError:
        try:
            float(text)
        except ValueError:
            return
        assert set(text) & set("_٣３\t")
        return
    assert value == float(text) or math.isnan(value)


@given(st.integers())
def test_every_whole_number_is_read_back(value):
    assert whole_numeral(str(value)) == value
    assert whole_numeral(f" {value:+d} ") == value


def test_a_whole_number_has_no_decimals():
    for text in ("1.0", "1e3", "inf"):
        with pytest.raises(ValueError, match="not a whole number"):
            whole_numeral(text)


texts = st.text(
    alphabet=st.one_of(st.sampled_from("'=+-@\t\r\n＝＋－＠\";,|05.e"), st.characters(codec="utf-8"))
)


@given(st.lists(texts, min_size=1, max_size=4))
def test_no_cell_is_a_formula_and_every_cell_reads_back(row):
    content = csv_bytes([row]).decode()
    (cells,) = csv.reader(io.StringIO(content, newline=""))
    assert [from_cell(cell) for cell in cells] == row
    assert all(cell[:1] not in tuple(DANGEROUS) or _is_number(cell) for cell in cells)
    for separator in ";\t|":  # in countries where commas are decimal points
        for cell in next(csv.reader(io.StringIO(content, newline=""), delimiter=separator)):
            begins = cell.lstrip('"\n').partition(",")[0]
            assert begins[:1] not in tuple(DANGEROUS) or _is_number(begins)


def _is_number(cell):
    try:
        numeral(cell)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(
    "name",
    [
        "=cmd|' /C calc'!A0",
        "@SUM(1)",
        "+1+1",
        "-2+3",
        "\t=1",
        "\r=1",
        "\n=1",
        "＝1+1",
        "＋1+1",
        "－1+1",
        "＠x",
    ],
)
def test_formulas_get_an_apostrophe(name):
    assert in_cell(name).startswith(f"'{name[0]}")
    assert from_cell(in_cell(name)) == name


def test_numbers_and_ordinary_names_stay_as_they_are():
    for cell in ("-0.5", "+1e-3", "-inf", "ada", "'t Hooft", "Ἀλέξανδρος", ""):
        assert in_cell(cell) == from_cell(cell) == cell


@given(st.text())
def test_printable_text_is_printable_and_nothing_is_lost(text):
    shown = printable(text)
    assert shown.isprintable()
    assert printable(shown) == shown
    if text.isprintable():
        assert shown == text


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a", "A"), ("é", "e\u0301"), ("ada", "ａｄａ"), ("ada  l", "ada l"), ("ada l", "ada\u00a0l"),
        ("straße", "STRASSE"), ("ﬁ", "fi"), ("ada", "a\u034fda"), ("ada", "ada\ufe0f"), ("K", "\u212a"),
        ("ada\u3000l", "ada l"),
    ],
)  # fmt: skip
def test_names_that_people_cannot_tell_apart(one, other):
    assert alike(one) == alike(other)


@given(st.text(alphabet=st.characters(codec="utf-8")))
def test_every_form_of_a_name_is_alike(name):
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        assert alike(unicodedata.normalize(form, name)) == alike(name)
    assert alike(alike(name)) == alike(name)


def _calls(tree):
    return {
        f"{node.func.value.id}.{node.func.attr}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
    }


def test_csv_is_read_in_one_place_and_written_in_one():
    source = Path(bonafed.__file__).parent
    places = {}
    for path in source.rglob("*.py"):
        for call in _calls(ast.parse(path.read_text())) & {
            "csv.reader", "csv.DictReader", "csv.writer", "csv.DictWriter", "np.loadtxt", "np.genfromtxt",
        }:  # fmt: skip
            places.setdefault(call, set()).add(path.relative_to(source).as_posix())
    assert places == {"csv.reader": {"reports.py"}, "csv.writer": {"text.py"}}


def test_only_one_place_prints_to_a_terminal():
    """What is printed anywhere else would not be made printable."""
    source = Path(bonafed.__file__).parent
    printing = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        if "typer.echo" in _calls(ast.parse(path.read_text()))
    }
    assert printing == {"presentation/terminal.py", "cli/__init__.py"}
