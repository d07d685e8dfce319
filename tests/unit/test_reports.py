# ruff: noqa: RUF001  (letters at full width and of other scripts are meant)
"""Files of reports: numbers in plain digits, a header by its names only, clients that can be told apart."""

import pytest

from bonafed.errors import UnreadableFile
from bonafed.reports import read_clients, read_columns, read_costs, read_matrix, read_reports


@pytest.fixture
def file(tmp_path):
    def made(text):
        path = tmp_path / "reports.csv"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return made


def refused(call, *arguments):
    with pytest.raises(UnreadableFile) as caught:
        call(*arguments)
    said = str(caught.value)
    assert said.isprintable()
    return said.partition("reports.csv")[2]


@pytest.mark.parametrize(
    "number", ["0_1.2_5", "０.６", "٠٫٦", "٠.٦", "O.6", "0,6 ", "\u00a00.6", "0.6\x00", "½"]
)
def test_numbers_are_in_plain_digits(file, number):
    cell = f'"{number}"'
    assert refused(read_costs, file(f"cost\n0.5\n{cell}\n")).startswith(
        ", line 3: cost must be a number, got '"
    )
    assert refused(read_reports, file(f"client,cost\nada,0.5\nben,{cell}\n"), "cost").startswith(
        ", line 3: cost must be a number, got '"
    )


@pytest.mark.parametrize("first", ["O.6", "0_6", "price", "costs", "０.６", "x"])
def test_a_first_cell_that_is_not_the_name_of_the_column_is_data(file, first):
    """Taken for a header, with one row too many, everybody would be settled on a neighbour's cost."""
    said = refused(read_reports, file(f"{first}\n0.7\n0.8\n"), "cost")
    assert said == f", line 1: cost must be a number, or the header 'cost', got {first!r}"


def test_a_header_is_a_header_by_its_name(file):
    for header in ("cost", "Cost", " COST "):
        assert read_reports(file(f"{header}\n0.7\n0.8\n"), "cost") == {"0": 0.7, "1": 0.8}
    assert read_reports(file("0.7\n0.8\n"), "cost") == {"0": 0.7, "1": 0.8}
    assert read_reports(file("effort,client\n1,ada\n2,ben\n"), "effort") == {"ada": 1.0, "ben": 2.0}
    for header in ("client,effort", "client,ｃｏｓｔ"):
        assert (
            "column 'cost'" in refused(read_reports, file(f"{header}\nada,1\n"), "cost")
            or header == "client"
        )
    said = refused(read_reports, file("client,client,cost\nada,a,1\n"), "cost")
    assert said == ", line 1: must have one column 'client', got 2"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a", "A"), ("Ada L", "ada  l"), ("ada", "ａｄａ"), ("Straße", "STRASSE"), ("ﬁn", "fin"),
        ("1", "１"), ("ada", "ada\ufe0f"),
    ],
)  # fmt: skip
def test_twins_are_refused_with_both_lines(file, one, other):
    said = refused(read_clients, file(f"client,cost\n{one},0.5\nben,0.6\n{other},0.7\n"))
    assert said == (
        f", line 4: client must differ from {one!r} in line 2 by more than case, width or spaces, "
        f"got {other!r}"
    )


def test_the_same_name_twice_is_refused_with_both_lines(file):
    said = refused(read_columns, file("client,nonce\nada,1\nben,2\nada,3\n"), ("client", "nonce"))
    assert said == ", line 4: duplicate client 'ada', first in line 2"


@pytest.mark.parametrize(
    "name",
    [
        "a\x00da", "ada\x00", "\x1b[31mada", "a\u202eda", "\u2066ada", "a\u200bda", "ada\ufeff", "a\x07",
        "\x85ada", "a\tb", "\tada", "a\u2028b", "\u00a0ada", "a\u3000b", "\u3164", "x" * 201,
    ],
)  # fmt: skip
def test_names_are_drawn_as_they_are_spelled(file, name):
    said = refused(read_clients, file(f"client,cost\nben,0.5\n{name},0.6\n"))
    assert said.startswith(", line 3: client must be 1 to 200 printable characters, got '")


def test_a_name_on_two_lines_is_refused_by_the_line_it_ends_in(file):
    said = refused(read_clients, file('client,cost\n"a\nda",0.5\n'))
    assert said == ", line 3: client must be 1 to 200 printable characters, got 'a\\nda'"


def test_names_are_in_one_form(file):
    assert read_clients(file("client,cost\nJosé,1\n")) == ["José"]
    said = refused(read_clients, file("client,cost\nJose\u0301,1\n"))
    assert said == ", line 2: client must be in Unicode form NFC, got 'Jose\\u0301'"


def test_spaces_around_a_name_do_not_count(file):
    assert read_clients(file("client,cost\n ada ,1\n")) == ["ada"]
    assert refused(read_clients, file("client,cost\n ,1\n")) == ", line 2: client has no name"


def test_an_escaped_name_reads_back(file):
    rows = "client,cost\n'=1+1,1\n''=1+1,2\n't Hooft,3\n'@SUM(1),4\neve;'-2+3,5\n-5,6\n"
    assert read_clients(file(rows)) == ["=1+1", "'=1+1", "'t Hooft", "@SUM(1)", "eve;-2+3", "-5"]


def test_rows_of_numbers(file):
    assert read_matrix(file("0.5, 0.5\n1,0\n")).tolist() == [[0.5, 0.5], [1.0, 0.0]]
    assert (
        refused(read_matrix, file("0.5,0.5\n1_0,0\n"))
        == ", line 2: must be rows of numbers (not a number: '1_0')"
    )
    assert (
        refused(read_matrix, file("1,0\n1\n"))
        == ", line 2: a row must have 2 cells separated by commas, got 1"
    )


@pytest.mark.parametrize("content", [b"cost\n\xff\n", b'cost\n"1\n', b"cost\n" + b"1" * 200_000])
def test_what_is_no_table_is_refused(file, content):
    assert refused(read_costs, file(content))
