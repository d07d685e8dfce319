"""`bonafed report` on the command line: what it takes, what it refuses, what it writes."""

import json
from pathlib import Path

import pytest

from bonafed.mechanisms.contract_files import read_contract
from bonafed.presentation.page import embedded
from bonafed.runs.pages import costs_to_show

CONFIG = """
[data]
name = "digits"
[partition]
kind = "iid"
clients = 3
[model]
name = "softmax"
[training]
rounds = 2
batch_size = 48
learning_rate = 0.1
"""
SAMPLING = ("quote", "sampling", "--prior", "uniform:0.5,1.5", "--clients", 3, "--rounds", 4, "--budget", 4)
JSAM = (
    "quote", "jsam", "--prior", "uniform:0,1", "--clients", 3, "--eta", 5, "--noise-scale", 1, "--clip", 1,
    "--rounds", 4, "--delta", 1e-5,
)  # fmt: skip


def points(path):
    return embedded(Path(path).read_bytes(), "mine-points")["points"]


def test_a_contract_to_take_part(bonafed):
    assert bonafed(*SAMPLING, "--save", "c.json")[0] == 0
    code, said, _ = bonafed("report", "c.json")
    assert (code, said) == (0, "wrote c.html\n")
    shown = points("c.html")
    assert [point["at"] for point in shown] == [
        f"{cost:g}" for cost in costs_to_show(read_contract("c.json"))
    ]
    assert float(shown[0]["at"]) < 0.5
    assert float(shown[-1]["at"]) > 1.5
    assert shown[-1]["facts"] == [["I am not admitted", "I am paid nothing"]]
    for point in shown[:-4]:
        (mine,) = read_contract("c.json").prospect(float(point["at"])).data["prospects"]
        assert dict(point["facts"])["left after my cost"] == f"{mine['profit']:,.4g}"


def test_a_contract_of_another_mechanism(bonafed):
    assert bonafed(*JSAM, "--save", "c.json")[0] == 0
    assert bonafed("report", "c.json", "--save", "mine.html")[0] == 0
    middle = points("mine.html")[10]
    (mine,) = read_contract("c.json").prospect(float(middle["at"])).data["outlooks"]
    assert dict(middle["facts"])["I am paid"] == f"{mine['payment']:,.4g}"


def test_a_contract_that_cannot_be_priced_alone_says_why(bonafed):
    free = ("--prior-free", "--highest", 2, "--clients", 5, "--rounds", 4, "--budget", 9)
    assert bonafed("quote", "sampling", *free, "--save", "c.json")[0] == 0
    assert bonafed("report", "c.json")[0] == 0
    assert "terms depend on those who report before" in Path("c.html").read_text("utf-8")


def test_a_contract_of_a_mechanism_that_tells_less(bonafed, toy_contract):
    """One whose prospects are words alone."""
    assert bonafed("report", toy_contract)[0] == 0
    text = Path(toy_contract).with_suffix(".html").read_text("utf-8")
    assert "What you sign" in text


@pytest.fixture
def toy_contract(bonafed, toy):
    code, _, error = bonafed("quote", "toy", "--clients", 2, "--budget", 4, "--save", "toy.json")
    assert code == 0, error
    return "toy.json"


def test_runs(bonafed):
    Path("run.toml").write_text(CONFIG, "utf-8")
    for name in ("a", "b"):
        assert bonafed("train", "run.toml", "--folder", f"runs/{name}", "--set", "run.seed=1")[0] == 0
    assert bonafed("report", "runs/a")[1] == "wrote a.html\n"
    summary = json.loads(Path("runs/a/summary.json").read_text("utf-8"))
    assert embedded(Path("a.html").read_bytes(), "run")["test_accuracy"] == summary["test_accuracy"]
    assert bonafed("report", "runs/a", "runs/b")[1] == bonafed("report", "runs")[1] == "wrote runs.html\n"
    assert [row["name"] for row in embedded(Path("runs.html").read_bytes(), "runs")] == ["a", "b"]
    Path("runs/a/summary.json").unlink()
    assert bonafed("report", "runs/a")[0] == 0
    assert "Not finished: nothing is owed yet; 2 rounds so far." in Path("a.html").read_text("utf-8")


def test_a_comparison_is_kept_with_its_runs(bonafed):
    table = (
        '[compare]\nmechanisms = ["fedavg", "sampling", "jsam"]\nbudget = 5\ncosts = "uniform:0.5,1.5"\n'
    )
    Path("c.toml").write_text(CONFIG + table, "utf-8")
    code, said, error = bonafed("compare", "c.toml", "--folder", "kept", "--report", "now.html", "--json")
    assert code == 0, error
    assert json.loads(Path("kept/comparison.json").read_text("utf-8")) == json.loads(said)
    assert bonafed("report", "kept", "--save", "later.html")[0] == 0
    now, later = (embedded(Path(name).read_bytes(), "comparison") for name in ("now.html", "later.html"))
    assert now == later == json.loads(said)
    assert "jsam does not apply" in Path("later.html").read_text("utf-8")
    Path("kept/comparison.json").write_text('{"mechanisms": 3}')
    assert "comparison.json: must be what bonafed compare wrote" in bonafed("report", "kept")[2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "CONTRACT.json or RUN is required"),
        (("missing",), "CONTRACT.json or RUN must exist, got missing"),
        (("c.json", "--save", "page.txt"), "--save must end in .html, got page.txt"),
        (("c.json", "."), "CONTRACT.json must be alone"),
        (("empty",), "folder must hold a run, or folders that do, got empty"),
        (("c.json", "--save", "none/page.html"), "output must be in an existing folder"),
    ],
)
def test_what_it_refuses(bonafed, words, message):
    Path("empty").mkdir()
    bonafed(*SAMPLING, "--save", "c.json")
    code, said, error = bonafed("report", *words)
    assert (code, said) == (2, "")
    assert message in error
    assert not list(Path().glob("*.html"))


def test_only_pages_are_replaced_without_being_named(bonafed):
    bonafed(*SAMPLING, "--save", "c.json")
    Path("c.html").write_text("<p>precious</p>")
    code, _, error = bonafed("report", "c.json")
    assert code == 2
    assert "--save must be given: a file of another kind has the default name, got c.html" in error
    assert Path("c.html").read_text() == "<p>precious</p>"
    assert bonafed("report", "c.json", "--save", "c.html")[0] == 0
    assert bonafed("report", "c.json")[0] == 0
