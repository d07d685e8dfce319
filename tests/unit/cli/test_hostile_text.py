# ruff: noqa: RUF001  (letters at full width and of other scripts are meant)
"""Names that are formulas, markup or escape sequences: in files, on a terminal, in figures."""

import csv
import io
import json
import re
from pathlib import Path

import pytest
from rich.console import Console
from tests.oracles.sealing import reseal

from bonafed.economics import Uniform
from bonafed.economics.findings import Finding
from bonafed.economics.statement import Statement
from bonafed.mechanisms.building_blocks import PlainTerms
from bonafed.mechanisms.jsam.published import JsamContract
from bonafed.presentation import terminal
from bonafed.presentation.documents import Column, Document, Table, pairs
from bonafed.reports import read_reports

FORMULAS = ["=cmd|' /C calc'!A0", "@SUM(1)", "+1+1", "-2+3", "＝1+1", "eve;=1+1", "'=2", "[red]ada[/red]"]
CONTROL = "ada\x1b[31m\u202e\x07\r\nben"  # a colour, a reversal, a bell and a new line
SHOWN = r"ada\x1b[31m\u202e\x07\r\nben"
QUOTE = ["--prior", "uniform:0.5,1.5", "--rounds", "10", "--budget", "40"]


def write_reports(names):
    text = io.StringIO()
    stated = [(f"'{name}" if name[0] == "'" else name, 0.6 + k / 100) for k, name in enumerate(names)]
    csv.writer(text, lineterminator="\n").writerows([("client", "cost"), *stated])
    Path("reports.csv").write_text(text.getvalue())


def cells(path):
    return list(csv.reader(io.StringIO(Path(path).read_text(), newline="")))


class TestFormulas:
    """Exported names never begin a formula, and are the same names when they come back."""

    @pytest.fixture
    def settled(self, bonafed):
        write_reports(FORMULAS)
        quoted = bonafed("quote", "sampling", *QUOTE, "--clients", len(FORMULAS), "--save", "c.json")
        assert quoted[0] == 0
        assert bonafed("settle", "c.json", "--reports", "reports.csv", "--save", "terms.csv")[0] == 0
        return bonafed

    def test_terms(self, settled):
        for row in cells("terms.csv"):
            assert not re.match("[=+\\-@\t\r＝＋－＠]", row[0])
            assert ";=" not in row[0]

    def test_terms_read_back_as_reports(self, settled):
        again = settled("settle", "c.json", "--reports", "terms.csv", "--json", "--save", "again.csv")
        assert again[0] == 0
        assert Path("again.csv").read_bytes() == Path("terms.csv").read_bytes()
        said = json.loads(settled("settle", "c.json", "--reports", "terms.csv", "--json")[1])
        assert [row["client"] for row in said["clients"]] == FORMULAS

    def test_who_is_in_which_round(self, bonafed):
        """The coins: name by name through commit, roster, reveal and toss."""
        names = ["=1+1", "@SUM(1)"]
        quoted = bonafed(
            "quote", "sampling", *QUOTE, "--clients", "2", "--commit-coins", "s.secret", "--save", "c.json"
        )
        assert quoted[0] == 0, quoted[2]
        lines, nonces = ["client,cost,commitment"], ["client,nonce"]
        for place, name in enumerate(names):
            said = bonafed(
                "coins", "nonce", "c.json", "--client", name, "--save", f"{place}.nonce", "--json"
            )
            lines.append(f"'{name},0.6,{json.loads(said[1])['commitment']}")
            nonces.append(f"'{name},{Path(f'{place}.nonce').read_text().strip()}")
        Path("stated.csv").write_text("\n".join(lines))
        Path("nonces.csv").write_text("\n".join(nonces))
        made = bonafed("coins", "roster", "c.json", "--reports", "stated.csv", "--save", "roster.json")
        assert made[0] == 0, made[2]
        tossed = bonafed(
            "coins",
            "toss",
            "roster.json",
            "--nonces",
            "nonces.csv",
            "--secret",
            "s.secret",
            "--save",
            "w.csv",
        )
        assert tossed[0] == 0, tossed[2]
        header, *rows = cells("w.csv")
        assert header == ["round", "client"]
        assert {row[1] for row in rows} == {f"'{name}" for name in names}

    def test_jsam_terms(self, tmp_path):
        contract = JsamContract(8, Uniform(0, 2), eta=5, noise=1.0, rounds=100, clip=1.0)
        stated = {name: 0.3 + k / 10 for k, name in enumerate(FORMULAS)}
        path = tmp_path / "terms.csv"
        path.write_bytes(contract.settle(stated).to_csv())
        assert [row[0] for row in cells(path)][1:3] == ["'=cmd|' /C calc'!A0", "'@SUM(1)"]
        assert read_reports(path, contract.question.name) == stated

    def test_statements_and_plain_terms(self):
        statement = Statement(
            "toy", tuple(FORMULAS), tuple(-k for k in range(8)), columns={"why": FORMULAS}
        )
        rows = list(csv.reader(io.StringIO(statement.to_csv().decode(), newline="")))
        assert [row[1] for row in rows[1:3]] == ["0.00", "-0.01"]  # amounts are numbers, and stay so
        terms = PlainTerms(tuple(FORMULAS), {"why": FORMULAS}).document().files["csv"].decode()
        for row in rows[1:], list(csv.reader(io.StringIO(terms, newline="")))[1:]:
            for name, *_, why in row:
                assert name == why
                assert not re.match("[=+\\-@\t\r＝＋－＠]", name)

    def test_statements_read_back_as_reports(self, tmp_path):
        stated = {name: 0.5 + k / 10 for k, name in enumerate(FORMULAS)}
        columns = {"cost": tuple(stated.values())}
        owed = Statement("toy", tuple(stated), (100,) * len(stated), columns=columns)
        (tmp_path / "owed.csv").write_bytes(owed.to_csv())
        assert read_reports(tmp_path / "owed.csv", "cost") == stated


def statement():
    """As somebody else's folder may hold it: nothing here was checked when it entered."""
    return Statement(
        "toy", (CONTROL, "[red]ben[/red]"), (100, 200), columns={CONTROL: (CONTROL, ":smile:")},
        totals={CONTROL: CONTROL}, findings=(Finding(CONTROL, True, CONTROL),), notes=(CONTROL,),
        run=CONTROL,
    )  # fmt: skip


class TestTerminal:
    """Nothing that is printed moves the cursor, changes colours or begins a line of its own."""

    def test_text_of_a_value(self):
        said = str(statement())
        assert all(line.isprintable() for line in said.split("\n"))
        assert said.count(SHOWN) >= 6
        assert "[red]ben[/red]" in said
        assert repr(statement()).isprintable()

    def test_html_of_a_value(self):
        said = statement()._repr_html_()
        assert said.isprintable()
        assert SHOWN.replace("'", "&#x27;") in said
        evil = Statement("toy", ("<script>alert(1)</script>",), (1,))._repr_html_()
        assert "<script>" not in evil

    @pytest.mark.parametrize("colours", [False, True])
    @pytest.mark.parametrize("width", ["40", "200"])
    def test_document(self, monkeypatch, colours, width):
        monkeypatch.setenv("COLUMNS", width)
        stream = io.StringIO()

        def console(*, stderr=False):
            return Console(
                file=stream, force_terminal=colours, color_system=None, highlight=False, markup=False,
                width=int(width),
            )  # fmt: skip

        monkeypatch.setattr(terminal, "new_console", console)
        table = pairs(CONTROL, [(CONTROL, CONTROL)], CONTROL)
        blocks = (table, Table(CONTROL, (Column(CONTROL, left=True),), ((CONTROL,),)), CONTROL)
        terminal.show(
            Document((*statement().document().blocks, *blocks)), as_json=False, outputs=[Path(CONTROL)]
        )
        terminal.say(CONTROL)
        terminal.teller(console())(CONTROL)
        plain = re.sub(r"\x1b\[[0-9;]*m", "", stream.getvalue()) if colours else stream.getvalue()
        assert all(line.isprintable() for line in plain.split("\n"))
        if width == "200":
            assert "[red]ben[/red]" in plain
            assert ":smile:" in plain

    def test_markup_is_text_in_every_console(self, capsys):
        terminal.new_console().print("[red]ada[/red] :smile: [/]")
        assert capsys.readouterr().out == "[red]ada[/red] :smile: [/]\n"

    def test_spinner(self, monkeypatch):
        stream = io.StringIO()
        monkeypatch.setattr(
            terminal, "new_console", lambda **_: Console(file=stream, force_terminal=True, markup=False)
        )
        with terminal.working("[bold]x[/bold] [/broken]") as news:
            news("[link=x]" + CONTROL)
        assert "\x1b[31m\u202e" not in stream.getvalue()

    def test_errors(self, bonafed):
        Path("reports.csv").write_text(f'client,cost\n"{CONTROL}",1\n')
        bonafed("quote", "sampling", *QUOTE, "--clients", "2", "--save", "c.json")
        for words in (
            ("settle", "c.json", "--reports", "reports.csv"),
            ("settle", "c.json", "--reports", CONTROL),
            ("statement", CONTROL),
            ("train", f"{CONTROL}.toml"),
            ("quote", "sampling", "--prior", f"uniform:{CONTROL}"),
            (CONTROL,),
            ("quote", "sampling", "--clients", CONTROL),
        ):
            code, out, err = bonafed(*words)
            assert (code, out) == (2, "")
            assert err.startswith("error: ")
            assert err[:-1].isprintable()
            assert err.endswith("\n")

    def test_a_folder_of_somebody_else(self, bonafed, monkeypatch):
        """`bonafed statement` of a summary that was never checked by a run."""
        place = Path("run")
        place.mkdir()
        (place / "config.toml").write_text("[data]\n")
        (place / "summary.json").write_text(json.dumps({"statement": statement().to_json()}))
        (place / "SHA256SUMS").write_text("-\n-\n-  config.toml\n-  summary.json\n")
        reseal(place)  # somebody else can do that, too
        code, out, err = bonafed("statement", place)
        assert code == 0, err
        assert all(line.isprintable() for line in out.split("\n"))
        assert SHOWN in out


class TestFigures:
    def test_names_are_drawn_letter_by_letter(self, recwarn):
        from bonafed.presentation.figures import render as draw

        names = (r"$\frac{1$", "a$b$c", CONTROL)
        content = draw(Statement("toy", names, (1, 2, 3), run="$x").plot(), Path("x.svg")).decode()
        assert "frac" in content
        assert not recwarn.list


@pytest.mark.parametrize("number", ["0_1", "１", "٣", "1\u00a0", "0x1", "1_0.5"])
class TestNumbersThatAreTyped:
    """Options take the numbers that files take."""

    def test_whole(self, bonafed, toy, number):
        code, _, err = bonafed("quote", "toy", "--clients", number, "--budget", "1")
        assert (code, err) == (
            2,
            f"error: Invalid value for '--clients': {number!r} is not a valid integer.\n",
        )

    def test_real(self, bonafed, toy, number):
        code, _, err = bonafed("quote", "toy", "--clients", "1", "--budget", number)
        assert (code, err) == (
            2,
            f"error: Invalid value for '--budget': {number!r} is not a valid float.\n",
        )

    def test_lists(self, bonafed, toy, number):
        code, _, err = bonafed(
            "quote", "toy", "--clients", "1", "--budget", "1", "--members", f"1,{number}"
        )
        assert code == 2
        assert err.startswith("error: --members must be whole numbers NUMBER,NUMBER,..., got ")

    def test_number_or_file(self, bonafed, toy, number):
        code, _, err = bonafed("quote", "toy", "--clients", "1", "--budget", "1", "--cap", number)
        assert code == 2
        assert err == f"error: cap must be a number or the name of a file, got {number!r}\n"

    def test_priors(self, bonafed, number):
        code, _, err = bonafed(
            "quote", "sampling", "--prior", f"uniform:0,{number}", *QUOTE[2:], "--clients", "2"
        )
        assert code == 2
        assert err == f"error: prior uniform must be numbers LOW,HIGH, got {number!r}\n"

    def test_own_options(self, bonafed, number):
        bonafed("quote", "sampling", *QUOTE, "--clients", "2", "--save", "c.json")
        for words in (("verify", "c.json", "--cost", number), ("settle", "c.json", "--draw", number)):
            code, _, err = bonafed(*words)
            assert code == 2
            assert f"{number!r} is not a valid" in err


def test_usual_numbers_are_typed_as_ever(bonafed, toy):
    said = json.loads(
        bonafed("quote", "toy", "--clients", "+3", "--budget", "1e1", "--level", ".5", "--json")[1]
    )
    assert (said["clients"], said["budget"], said["level"], said["seed"]) == (3, 10.0, 0.5, 7)
    assert "must be finite, got nan" in bonafed("quote", "toy", "--clients", "1", "--budget", "nan")[2]
