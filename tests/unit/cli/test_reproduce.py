"""Studies on the command line: a list, options from the study, files, and how a stop is told."""

import csv
import json

import pytest
from typer.testing import CliRunner

from bonafed.cli import app
from bonafed.errors import InvalidValue
from bonafed.studies import grid
from bonafed.studies.registry import STUDIES

DIGITS = [
    "reproduce", "jsam-accuracy", "--data", "digits", "--clients", "12", "--rounds", "2", "--seeds", "1",
    "--clients-per-round", "3", "--money", "1,3", "--similarity", "100", "--cores", "1",
]  # fmt: skip


@pytest.fixture
def say(tmp_path, monkeypatch):
    """Run a command in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*words, code=0):
        result = CliRunner().invoke(app, [str(word) for word in words])
        assert result.exit_code == code, result.output
        return result

    return run


def test_without_a_name_studies_are_listed(say):
    listed = say("reproduce", "--help").stdout
    for name, entry in STUDIES.items():
        assert name in listed
        assert entry.summary.split()[0] in listed


def test_a_study_is_a_table_a_figure_and_a_csv(say, tmp_path):
    shown = say(
        "reproduce", "jsam-clients", "--clients", 5, "--draws", 2, "--plot", "a.png", "--csv", "a.csv"
    )
    assert "wrote a.png" in shown.stdout
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    said = json.loads(say("reproduce", "jsam-clients", "--clients", 5, "--draws", 2, "--json").stdout)
    with (tmp_path / "a.csv").open() as file:
        read = list(csv.DictReader(file))
    assert [float(row["money"]) for row in read] == [row["money"] for row in said["rows"]]


def test_runs_are_kept_and_each_is_told(say, tmp_path):
    first = say(*DIGITS)
    assert "1 of 4: jsam s 100, money 1, JSAM, seed 0" in first.stderr
    assert (tmp_path / "studies").is_dir()
    again = say(*DIGITS)
    assert (again.stdout, again.stderr) == (first.stdout, "")
    elsewhere = say(*DIGITS, "--out", tmp_path / "other", "--schemes", "jsam")
    assert "1 of 2" in elsewhere.stderr


def test_a_stop_says_how_to_go_on(say, monkeypatch):
    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(grid, "train", stop)
    stopped = say(*DIGITS, code=130)
    assert stopped.stderr.endswith("stopped by the user; the same command continues where it stopped\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nothing"], r"^study must be one of faithful-manipulation"),
        (["jsam-money", "--clients", "1"], r"^clients must be a whole number of at least 2, got 1"),
        (["jsam-money", "--csv", "no/such/folder/a.csv"], r"^output must be in an existing folder"),
        (["jsam-money", "--plot", "a.txt"], r"^--plot must end in"),
        (["rewards", "--data", "nothing"], r"^dataset must be one of digits"),
        (["faithful-samples", "--samples", "2"], r"^samples must be at least the 10 agents"),
    ],
)
def test_bad_input_is_refused_by_name(say, words, message):
    result = CliRunner().invoke(app, ["reproduce", *words])
    assert isinstance(result.exception, InvalidValue)
    with pytest.raises(InvalidValue, match=message):
        raise result.exception
