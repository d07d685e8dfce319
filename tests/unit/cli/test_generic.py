"""The command line with a mechanism that it has never heard of."""

import io
import json
import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import bonafed.cli
from bonafed.presentation import terminal
from bonafed.presentation.documents import Column, Document, Table, pairs
from bonafed.runs import log

QUOTE = ["quote", "toy", "--clients", "3", "--budget", "9"]


class TestNouns:
    def test_they_come_from_the_catalogue(self, bonafed, toy):
        for verb in ("quote", "audit"):
            code, out, _ = bonafed(verb, "--help")
            assert code == 0
            assert re.search(r"^  toy +pay for toys$", out, re.MULTILINE)
        code, out, _ = bonafed("advise", "--help")
        assert re.search(r"^  toy-size +How large a toy should be\.$", out, re.MULTILINE)

    def test_one_that_is_unknown_is_refused_by_name(self, bonafed, toy):
        assert bonafed("quote", "ship") == (2, "", "error: mechanism must be one of toy, got 'ship'\n")
        assert bonafed("advise", "why") == (2, "", "error: question must be one of toy-size, got 'why'\n")

    def test_without_one_the_help_is_shown(self, bonafed, toy):
        code, _, err = bonafed("quote")
        assert code == 2
        assert err.startswith("Usage: bonafed quote")

    def test_advice_is_answered(self, bonafed, toy):
        code, out, _ = bonafed("advise", "toy-size", "--clients", "3", "--budget", "9", "--json")
        assert (code, json.loads(out)["clients"]) == (0, 3)

    @pytest.mark.parametrize(
        ("words", "loaded"),
        [
            ([], []),
            (["quote"], []),
            (["audit"], []),
            (["reproduce"], []),
            (["quote", "sampling"], ["sampling"]),
            (["audit", "jsam"], ["jsam"]),
        ],
    )
    def test_help_loads_no_more_than_it_needs(self, words, loaded):
        program = (
            f"import sys; sys.argv = ['bonafed', *{words}, '--help']\n"
            "try:\n from bonafed.cli import main; main()\n"
            "except SystemExit: pass\n"
            "print('loaded:', [n.split('.')[2] for n in sys.modules if n.endswith('.slice')], "
            "sorted({'torch', 'sklearn', 'matplotlib', 'scipy.stats', 'cryptography'} & {*sys.modules}))"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert done.stdout.splitlines()[-1] == f"loaded: {loaded} []"

    @pytest.mark.parametrize("verb", ["quote", "audit", "advise"])
    def test_every_real_one_has_a_help_page_without_training(self, verb):
        program = (
            "import sys, typer; from bonafed.cli import app\n"
            "root = typer.main.get_command(app); context = root.context_class(root)\n"
            f"group = root.get_command(context, {verb!r})\n"
            "for name in group.list_commands(context):\n"
            "    command = group.get_command(context, name)\n"
            "    assert command.get_help(command.context_class(command, info_name=name)), name\n"
            "print('torch' in sys.modules)"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        assert done.stdout.strip() == "False", done.stderr


def test_a_command_is_summed_up_by_the_first_sentence_of_its_help():
    """All are listed before any of them is imported."""
    root = bonafed.cli.command()
    context = root.context_class(root)
    summaries = [
        (name, root.get_command(context, name).get_short_help_str(10_000))
        for name in root.list_commands(context)
    ]
    assert summaries == root.summaries(context)


class TestOptions:
    def test_the_help_shows_types_defaults_and_what_is_required(self, bonafed, toy):
        code, out, _ = bonafed("quote", "toy", "--help")
        assert code == 0
        text = " ".join(out.split())
        for part in (
            "Quote a toy.",
            "Toys are paid evenly.",
            "Example: bonafed quote toy --clients 3 --budget 9",
            "--clients INTEGER How many. (required)",
            "--budget MONEY Money. (required)",
            "--shape [round|square] Of the toy. (default: round)",
            "--level FLOAT Or none.",
            "--prior KIND:ARGS What is believed.",
            "--members N,N,... Of the group.",
            "--fast Do less.",
            "--checked / --no-checked Look twice. (default: yes)",
            "--seed INTEGER Of the draws. (default: 7)",
            "--commit-coins FILE",
        ):
            assert part in text
        assert "--coins" not in text.replace("--commit-coins", "")

    def test_values_arrive_as_they_were_meant(self, bonafed, toy):
        words = ["--shape", "square", "--level", "2", "--prior", "uniform:0.5,1.5", "--cap", "4", "--fast"]
        said = json.loads(bonafed(*QUOTE, *words, "--json")[1])
        assert (said["clients"], said["budget"], said["shape"], said["level"]) == (3, 9.0, "square", 2.0)
        assert said["belief"] == {"kind": "uniform", "low": 0.5, "high": 1.5}
        assert (said["cap"], said["fast"], said["checked"], said["seed"]) == (4.0, True, True, 7)
        said = json.loads(
            bonafed(*QUOTE, "--members", "2,5", "--members", "7", "--no-checked", "--json")[1]
        )
        assert (said["members"], said["checked"], said["level"]) == ([2, 5, 7], False, None)

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["quote", "toy", "--clients", "3"], "--budget is required"),
            ([*QUOTE[:-1], "-3"], "budget must be positive, got -3.0"),
            ([*QUOTE[:-1], "nan"], "budget must be finite, got nan"),
            ([*QUOTE[:-1], "lots"], "Invalid value for '--budget': 'lots' is not a valid float."),
            ([*QUOTE, "--shape", "flat"], "shape must be one of round, square, got 'flat'"),
            ([*QUOTE, "--cap", "x"], "cap must be a number or the name of a file, got 'x'"),
            ([*QUOTE, "--members", "1,x"], "--members must be whole numbers NUMBER,NUMBER,..., got 'x'"),
            ([*QUOTE, "--members", "0"], "members must be a whole number of at least 1, got 0"),
            ([*QUOTE, "--members", "1", "--fast"], "--members must not be given with fast, got [1]"),
            ([*QUOTE, "--name", "broken"], "name must not be broken, got 'broken'"),
            ([*QUOTE, "--plot", "x.gif"], "--plot must end in .png, .svg or .pdf, got x.gif"),
            ([*QUOTE, "--plot", "no/x.png"], "output must be in an existing folder, got no/x.png"),
            (
                [*QUOTE, "--plot", "./c.json.png", "--save", "c.json.png"],
                "--save must not be the same file as --plot",
            ),
            (
                [*QUOTE, "--name", "silent", "--plot", "x.png"],
                "--plot cannot be used: there is no figure",
            ),
            (
                [*QUOTE, "--name", "silent", "--save", "x"],
                "--save cannot be used: there is no contract to write",
            ),
            ([*QUOTE, "--sign", "k.pem"], "--sign requires --save, got k.pem"),
            ([*QUOTE, "--commit-coins", "s"], "--commit-coins requires --save"),
            (
                [*QUOTE, "--save", "c", "--commit-coins", "c"],
                "--commit-coins must not be the same file as another",
            ),
            (["audit", "toy", "--save", "c.json"], "No such option: --save"),
        ],
    )
    def test_bad_input_is_one_line_and_writes_nothing(self, bonafed, toy, tmp_path, words, message):
        code, out, err = bonafed(*words)
        assert (code, out) == (2, "")
        assert err.startswith(f"error: {message}")
        assert err.count("\n") == 1
        assert list(tmp_path.iterdir()) == []


class TestOutputs:
    def test_what_is_said(self, bonafed, toy):
        code, out, err = bonafed(*QUOTE, "--name", "[red]x[/]")
        assert (code, err) == (0, "")
        for text in ("Terms to publish", "[red]x[/]", "3.00", "note: a toy", "\u2812"):
            assert text in out

    def test_json_is_the_data_and_has_no_infinity(self, bonafed, toy):
        said = json.loads(bonafed(*QUOTE, "--json", "--save", "c.json")[1])
        assert said["infinite"] is None
        assert Path("c.json").exists()

    @pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
    def test_all_files_are_written_together(self, bonafed, toy, tmp_path, suffix):
        assert bonafed("keygen", "op.pem")[0] == 0
        words = [
            "--plot",
            f"a.{suffix}",
            "--save",
            "c.json",
            "--sign",
            "op.pem",
            "--commit-coins",
            "secret",
        ]
        code, out, err = bonafed(*QUOTE, *words)
        assert (code, err) == (0, "")
        start = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix]
        assert Path(f"a.{suffix}").read_bytes().startswith(start)
        assert stat.S_IMODE(Path("secret").stat().st_mode) == 0o600
        for name in (f"a.{suffix}", "c.json", "c.json.sig", "secret"):
            assert f"wrote {name}" in out
        from bonafed.contracts.coins import commit

        secret = bytes.fromhex(Path("secret").read_text())
        assert json.loads(Path("c.json").read_text())["coins"] == commit(secret)
        assert bonafed("verify", "c.json", "--key", "op.pub.pem")[0] == 0

    def test_a_claim_that_fails_is_exit_code_1(self, bonafed, toy):
        words = ["audit", "toy", "--clients", "3", "--budget", "9"]
        code, out, _ = bonafed(*words)
        assert (code, "holds" in out) == (0, True)
        code, out, _ = bonafed(*words, "--shape", "square")
        assert (code, "FAILS" in out) == (1, True)
        assert bonafed(*words, "--shape", "square", "--json")[0] == 1


class TestContracts:
    @pytest.fixture
    def contract(self, bonafed, toy):
        assert bonafed(*QUOTE, "--save", "c.json")[0] == 0
        return Path("c.json")

    def test_verify(self, bonafed, contract):
        code, out, _ = bonafed("verify", "c.json", "--cost", "1")
        assert code == 0
        for text in ("What you sign", "You would earn 2.00.", "Verification of c.json", "not claimed"):
            assert text in out
        assert "Every check holds." in out
        said = json.loads(bonafed("verify", "c.json", "--cost", "1", "--json")[1])
        assert (said["clients"], said["earned"], said["holds"]) == (3, 2.0, True)
        assert [finding["claim"] for finding in said["findings"]] == ["paid", "secret"]
        contract.write_text(contract.read_text().replace("3.0", "-3.0"))
        code, out, _ = bonafed("verify", "c.json")
        assert code == 1
        assert "The contract fails a check." in out

    def test_verify_needs_something(self, bonafed, toy):
        assert bonafed("verify")[2] == "error: CONTRACT.json or --coins is required\n"

    def test_settle_reads_the_column_of_the_question(self, bonafed, contract):
        Path("r.csv").write_text("client,effort\nada,1\nben,2\ncem,3\n")
        code, out, err = bonafed("settle", "c.json", "--reports", "r.csv", "--save", "t.csv")
        assert (code, err) == (0, "")
        for text in ("Terms", "ada", "3.00", "wrote t.csv"):
            assert text in out
        assert Path("t.csv").read_text().splitlines()[1] == "ada,1.0,3.0"
        said = json.loads(bonafed("settle", "c.json", "--reports", "r.csv", "--json")[1])
        assert [row["client"] for row in said["clients"]] == ["ada", "ben", "cem"]

    def test_names_are_not_thrown_away(self, bonafed, contract):
        Path("r.csv").write_text("name,effort\nada,1\nben,2\ncem,3\n")
        code, _, err = bonafed("settle", "c.json", "--reports", "r.csv")
        assert code == 2
        assert "must have a column 'client', or the column 'effort' alone" in err
        Path("r.csv").write_text("effort\n1\n2\n3\n")
        assert bonafed("settle", "c.json", "--reports", "r.csv")[0] == 0

    def test_settle_draws(self, bonafed, contract):
        one, again, other = (bonafed("settle", "c.json", "--draw", seed)[1] for seed in "001")
        assert one == again != other

    @pytest.mark.parametrize(
        ("words", "reason"),
        [
            ([], "input must be one of --reports, --draw, got none"),
            (["--reports", "r.csv", "--draw", "1"], "input must be one of --reports, --draw, got two"),
            (["--draw", "-1"], "draw must be a whole number of at least 0, got -1"),
            (
                ["--draw", "1", "--save", "c.json"],
                "--save must not be the same file as the contract, got c.json",
            ),
            (
                ["--reports", "r.csv", "--save", "r.csv"],
                "--save must not be the same file as --reports, got r.csv",
            ),
        ],
    )
    def test_settle_refuses_by_name(self, bonafed, contract, words, reason):
        Path("r.csv").write_text("effort\n1\n2\n")
        before = sorted(path.name for path in Path().iterdir())
        assert bonafed("settle", "c.json", *words) == (2, "", f"error: {reason}\n")
        assert sorted(path.name for path in Path().iterdir()) == before


class TestRendering:
    def lines(self, capsys, monkeypatch, table, width):
        monkeypatch.setenv("COLUMNS", str(width))
        capsys.readouterr()
        terminal.show(Document((table,)), as_json=False)
        return capsys.readouterr().out.splitlines()

    @pytest.mark.parametrize("width", [40, 60, 80, 100, 110, 120])
    def test_no_digit_of_money_is_lost(self, capsys, monkeypatch, width):
        names = [f"money of a long name {k}" for k in range(6)]
        rows = tuple((f"client {n}", *(1234567.89 + n + k for k in range(6))) for n in range(3))
        table = Table("T", (Column("client", left=True), *(Column(n, ",.2f") for n in names)), rows)
        lines = self.lines(capsys, monkeypatch, table, width)
        text = "\n".join(lines)
        assert max(map(len, lines)) <= width
        assert "…" not in text
        for _, *amounts in rows:
            for amount in amounts:
                assert f"{amount:,.2f}" in text
        for name in names:
            assert name in text

    @pytest.mark.parametrize("width", [40, 60, 80, 100, 110, 120])
    @pytest.mark.parametrize("left", [False, True])
    def test_names_and_values_are_never_cut(self, capsys, monkeypatch, width, left):
        rows = (
            ("largest norm of a record's gradient", "1.0"),
            ("rule", "the reward is the accuracy of a model that was trained on as many more samples as "
             "the client's own contribution is worth to everybody else in the federation"),
            ("SHA-256 of the contract", "0123456789abcdef" * 4),
        )  # fmt: skip
        table = Table("T", (Column("", left=True), Column("", left=left)), rows)
        lines = self.lines(capsys, monkeypatch, table, width)
        assert max(map(len, lines)) <= width
        text = " ".join(" ".join(line.strip("│┃ ") for line in lines).split()).replace("│", "")
        assert "…" not in text
        for name, value in rows:
            assert name in text
            words = [value] if len(value.split()) == 1 else value.split()
            for word in words:
                assert word in text or (len(word) + 2 > width and word in text.replace(" ", ""))

    def test_short_names_and_values_stay_a_table(self, capsys, monkeypatch):
        table = pairs("T", [("clients", "5"), ("rounds", "100")])
        assert "│ clients │   5 │" in self.lines(capsys, monkeypatch, table, 40)

    def test_names_and_values_that_do_not_fit_become_lines(self, capsys, monkeypatch):
        table = pairs("T", [("clients", 5), ("terms", "one probability for all, and one payment")])
        assert self.lines(capsys, monkeypatch, table, 40) == [
            "T",
            "clients: 5",
            "terms: one probability for all, and one",
            "  payment",
        ]

    def test_words_are_folded_rather_than_cut(self, capsys, monkeypatch):
        digest = "0123456789abcdef" * 8
        table = Table("T", (Column("", left=True), Column("", left=True)), (("SHA", digest),))
        text = "".join(line.strip() for line in self.lines(capsys, monkeypatch, table, 80))
        assert digest in text.replace(" ", "").replace("│", "")

    def test_verdicts_are_coloured_and_names_are_not_obeyed(self, monkeypatch):
        from rich.console import Console

        stream = io.StringIO()
        console = Console(
            file=stream, force_terminal=True, width=80, color_system="standard", highlight=False
        )
        monkeypatch.setattr(terminal, "new_console", lambda **_: console)
        columns = (Column("", left=True), Column("", left=True))
        rows = (("[red]a[/]", "holds"), ("b", "FAILS"), ("c", "not claimed"))
        terminal.show(Document((Table("[bold]", columns, rows),)), as_json=False)
        shown = stream.getvalue()
        assert "\x1b[32mholds" in shown
        assert "\x1b[1;31mFAILS" in shown
        assert "[red]a[/]" in shown
        assert "[bold]" in shown

    def test_a_terminal_without_the_characters_gets_the_rest(self, toy):
        program = (
            "import sys; sys.argv = ['bonafed']; sys.stdout.reconfigure(encoding='ascii')\n"
            "from bonafed.presentation import terminal\nfrom bonafed.presentation.documents import *\n"
            "sketch = Sketch('x', (0.0, 1.0), (SketchCurve('y', (0.0, 1.0), 0.0, 1.0),))\n"
            "terminal.show(Document((sketch, 'plain')), as_json=False)\n"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert done.stdout == "plain\n"


class TestStatements:
    @pytest.fixture
    def run(self, tmp_path, statement):
        place = tmp_path / "runs" / "toy"
        place.mkdir(parents=True)
        (place / "config.toml").write_text("")
        log.end(place, {}, {"statement": statement.to_json()})
        return place

    def test_a_row_per_client(self, bonafed, run, statement):
        code, out, err = bonafed("statement", "runs/toy", "--csv", "s.csv", "--plot", "s.png")
        assert (code, err) == (0, "")
        for text in ("Statement of toy", "12,345.67", "-0.50", "[red]ben[/]", "wrote s.csv", "wrote s.png"):
            assert text in out
        assert Path("s.csv").read_bytes() == statement.to_csv()
        said = json.loads(bonafed("statement", "runs/toy", "--json")[1])
        assert said["amounts"] == [1234567, -50]

    def test_of_one_client(self, bonafed, run):
        code, out, _ = bonafed("statement", "runs/toy", "--client", "ada")
        assert (code, "ada" in out, "ben" in out) == (0, True, False)
        code, _, err = bonafed("statement", "runs/toy", "--client", "eve")
        assert (code, err) == (
            2,
            "error: client must be one of the run's clients: 'ada', '[red]ben[/]', got 'eve'\n",
        )

    def test_an_unfinished_run_says_how_to_continue(self, bonafed, run):
        (run / "summary.json").unlink()
        code, _, err = bonafed("statement", "runs/toy")
        assert code == 2
        assert "bonafed train --resume runs/toy" in err
        assert bonafed("statement", "none")[2] == (
            "error: RUN must be a folder that holds a run (config.toml), got none\n"
        )

    def test_a_broken_promise_is_exit_code_1(self, bonafed, run):
        summary = json.loads((run / "summary.json").read_text())
        finding = {"claim": "budget", "holds": False, "text": "spent more", "number": None}
        summary["statement"]["findings"] = [{**finding, "tries": 0, "allowed": 0.0, "witness": None}]
        log.end(run, {}, summary)
        code, out, _ = bonafed("statement", "runs/toy")
        assert (code, "FAILS" in out) == (1, True)

    def test_a_summary_without_statement_is_refused(self, bonafed, run):
        log.end(run, {}, {})
        code, _, err = bonafed("statement", "runs/toy")
        assert code == 2
        assert "summary.json: must hold the statement of a run" in err

    def test_a_damaged_summary_is_refused(self, bonafed, run):
        text = (run / "summary.json").read_text()
        (run / "summary.json").write_text(text.replace("1234567", "1234568"))
        code, _, err = bonafed("statement", "runs/toy")
        assert (code, err) == (2, "error: runs/toy/summary.json: was changed since the run ended\n")


class TestWhatIsMissing:
    @pytest.mark.parametrize("package", ["torch", "sklearn.datasets", "pooch"])
    def test_of_an_extra_is_said_in_one_line(self, bonafed, monkeypatch, package):
        def app(**_):
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)

        monkeypatch.setattr(bonafed_cli, "command", lambda: app)
        assert bonafed("train") == (2, "", "error: training needs: pip install 'bonafed[train]'\n")

    def test_of_anything_else_is_a_bug(self, bonafed, monkeypatch):
        def app(**_):
            raise ModuleNotFoundError("No module named 'x'", name="x")

        monkeypatch.setattr(bonafed_cli, "command", lambda: app)
        with pytest.raises(ModuleNotFoundError):
            bonafed("train")


bonafed_cli = sys.modules["bonafed.cli"]


@pytest.mark.parametrize("room", ["cli", "runs"])
def test_no_mechanism_is_named(room):
    """What a mechanism is called is the catalogue's to know."""
    named = re.compile("sampling|jsam|faithful|rewards", re.IGNORECASE)
    source = Path(bonafed.cli.__file__).parents[1] / room
    found = [(path.name, line) for path in source.rglob("*.py") for line in path.read_text().splitlines()
             if named.search(line)]  # fmt: skip
    assert found == []
