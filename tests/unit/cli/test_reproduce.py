"""Claims on the command line: a list, presets and settings, files, verdicts, and how failures are told."""

import csv
import json
import os
import subprocess
import sys

import pytest

from bonafed.papers import register

OWN = '''
from dataclasses import dataclass

from bonafed import checks
from bonafed.sections import Section, key
from bonafed.papers.cells import Cell
from bonafed.papers.claim import Claim, Estimate, at_least, number
from bonafed.presentation.figures import sheet


@dataclass(frozen=True)
class Many(Section):
    """How many."""

    points: int = key(checks.whole, 3, help="Points.")
    sign: float = key(checks.number, 1.0, help="Which way it goes.")


def compute(arguments, folder):
    """A point."""
    if arguments["x"] == 7:
        raise ValueError("seven")
    return {"y": arguments["sign"] * arguments["x"] ** 2}


def cells(many):
    return {x: Cell(f"point {x}", compute, {"x": x, "sign": many.sign}) for x in range(many.points)}


def rows(many, results):
    return [{"x": x, "y": result["y"]} for x, result in results.items()]


def judge(table):
    values = [number(row, "y") for row in table]
    rise = min((b - a for a, b in zip(values, values[1:], strict=False)), default=0.0)
    return [at_least("smallest rise", Estimate(rise), 0.0)]


def draw(table):
    figure = sheet(4, 3)
    axes = figure.subplots()
    axes.plot([row["x"] for row in table], [row["y"] for row in table])
    axes.set(xlabel="x", ylabel="y")
    return figure


CLAIM = Claim(
    identifier="own-squares", paper="own", place="here", says="Squares grow.",
    presets={"smoke": Many(), "quick": Many(4), "paper": Many(5)},
    cells=cells, rows=rows, judge=judge, draw=draw, control={"sign": -1},
)
'''


@pytest.fixture
def own(tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    return "own.py"


def test_without_a_name_claims_are_listed(bonafed):
    code, out, err = bonafed("reproduce", "--json")
    assert (code, err) == (0, "")
    listed = json.loads(out)
    assert [claim["identifier"] for claim in listed["claims"]] == list(register.claims())
    code, out, _ = bonafed("reproduce")
    assert code == 0
    for paper, title in register.PAPERS.items():
        assert f"{paper}: {title}" in out


def test_a_claim_of_ones_own_is_a_file(bonafed, own, tmp_path):
    words = ("reproduce", own, "--preset", "quick", "--cores", "1")
    code, out, err = bonafed(*words, "--plot", "a.png", "--csv", "a.csv")
    assert (code, err) == (0, "")
    assert "verdict: holds" in out
    assert "Not as in the paper: points 4 (there 5)." in out
    assert (tmp_path / "a.png").read_bytes()[:4] == b"\x89PNG"
    with (tmp_path / "a.csv").open() as file:
        assert [float(row["y"]) for row in csv.DictReader(file)] == [0, 1, 4, 9]
    code, out, _ = bonafed(*words, "--control")
    assert (code, "verdict of the control: contradicted, as it must be" in out) == (0, True)
    code, out, _ = bonafed(
        *words, "--control", "--set", "points=1"
    )  # nothing to compare: it decides nothing
    assert (code, "but it must be contradicted" in out) == (1, True)
    code, out, _ = bonafed(*words, "--set", "points=2", "--json")
    said = json.loads(out)
    assert (said["verdict"], said["settings"]["points"]) == ("holds", 2)
    assert [row["y"] for row in said["rows"]] == [0, 1]


@pytest.mark.parametrize("cores", ["1", "2"])
def test_cells_that_fail_are_told_and_the_rest_is_kept(bonafed, own, tmp_path, cores):
    code, out, _ = bonafed("reproduce", own, "--set", "points=9", "--cores", cores)
    assert code == 1
    assert "not computed: 1 of its cells failed" in out
    assert "point 7: ValueError: seven" in out
    finished = list((tmp_path / "studies").rglob("result.json"))
    assert len(finished) == 8
    finished[0].write_text("{")
    _, _, err = bonafed("reproduce", own, "--set", "points=9", "--cores", cores)
    assert f"{finished[0].relative_to(tmp_path)} is damaged: its cell is computed again" in err


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (
            ["faithful-fig22"],
            "claim must be the name of a claim, or a .py file (did you mean faithful-fig2?)",
        ),
        (["nowhere.py"], "nowhere.py: is not there"),
        (["empty.py"], "empty.py: must have a CLAIM, a bonafed.papers.claim.Claim"),
        (["faithful-fig2", "--preset", "huge"], "--preset must be one of smoke, quick, paper, got 'huge'"),
        (
            ["faithful-fig2", "--set", "pionts=3"],
            "faithful-fig2.pionts is unknown (did you mean points?), got",
        ),
        (["faithful-fig2", "--set", "points"], "--set must be KEY=VALUE, got 'points'"),
        (["faithful-fig2", "--set", "points=two"], "points must be a number, got 'two'"),
        (["faithful-fig2", "--all"], "--all must not be given with names, got faithful-fig2"),
        (["--paper", "nobody"], "--paper must be one of sampling, faithful, jsam, rewards, got 'nobody'"),
        (["broken.py"], "broken.py: cannot be read, line 2: NameError: name 'nothing' is not defined"),
        (["wrong.py"], "wrong.py: cannot be read, line 1: "),
        (["faithful-fig2", "--seeds", "0"], "--seeds must be a whole number of at least 1, got 0"),
        (["faithful-fig2", "--cores", "-1"], "--cores must be a whole number of at least 0, got -1"),
        (
            ["faithful-fig2", "--report", "page"],
            "--report must not hold an index.html that bonafed did not",
        ),
        (
            ["--paper", "faithful", "--plot", "a.png"],
            "--plot must be of one claim; --report has all of them",
        ),
    ],
)
def test_what_cannot_be_is_refused(bonafed, tmp_path, words, error):
    (tmp_path / "empty.py").write_text("")
    (tmp_path / "broken.py").write_text("import json\nnothing\n")
    (tmp_path / "wrong.py").write_text("def\n")
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / "index.html").write_text("mine")
    code, _, err = bonafed("reproduce", *words)
    assert code == 2
    assert err.startswith(f"error: {error}"), err


def test_data_that_cannot_be_had_stop_no_other_claim(bonafed, own, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("BONAFED_DATA", str(tmp_path))
    name = "missing.py"
    text = (tmp_path / own).read_text().replace("own-squares", "own-missing")
    (tmp_path / name).write_text(text.replace('"sign": many.sign})', '"sign": many.sign}, data=("sst",))'))
    code, out, _ = bonafed("reproduce", own, name, "--preset", "smoke", "--cores", "1")
    assert code == 1
    assert "2 claims: 1 holds, 1 not computed" in out
    assert "sst not found" in out


def test_the_list_needs_no_training():
    program = (
        "import sys; from bonafed.cli import main; sys.argv = ['bonafed', 'reproduce']\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "print({'torch', 'matplotlib', 'sklearn'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=os.environ, check=True
    )
    assert done.stdout.endswith("set()\n")
