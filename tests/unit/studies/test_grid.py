"""What every study relies on: cells that are kept, documents, and a registry that loads nothing."""

import subprocess
import sys

import numpy as np
import pytest
from bonafed.studies.registry import STUDIES

from bonafed.errors import InvalidValue
from bonafed.sections import Section
from bonafed.shown import Document
from bonafed.studies import grid
from bonafed.studies.grid import Study, StudyCell, run

TABLES = {
    "data": {"name": "digits"},
    "partition": {"clients": 3},
    "model": {"name": "softmax"},
    "training": {"rounds": 3, "learning_rate": 0.1, "batch_size": 64},
    "run": {"seed": 1, "cores": 1},
}


def summaries(_, results):
    return Document((), {"results": dict(results)})


def test_a_run_is_trained_once_and_read_after(tmp_path):
    study = Study("", grid.Grid, summaries, lambda _: {"a": StudyCell("plain", tables=TABLES)})
    options, told = grid.Grid(out=tmp_path), []
    first = run(study, options, told.append)
    assert told == ["1 of 1: plain"]
    assert first.data["results"]["a"]["rounds"] == 3
    assert run(study, options, pytest.fail).data == first.data


def test_a_computation_is_kept_like_a_run(tmp_path):
    calls = []

    def compute():
        calls.append(1)
        return {"number": 0.1 + 0.2}

    study = Study("", grid.Grid, summaries, lambda _: {"a": StudyCell("sum", [1], compute=compute)})
    documents = [run(study, grid.Grid(out=tmp_path)) for _ in range(2)]
    assert documents[0].data == documents[1].data == {"results": {"a": {"number": 0.1 + 0.2}}}
    assert len(calls) == 1


def test_long_runs_tell_their_round(tmp_path):
    told, seconds = [], iter(range(0, 1000, 20))
    grid.train(StudyCell("plain", tables=TABLES), tmp_path / "run", told.append, lambda: next(seconds))
    assert told == ["plain: round 2 of 3"]


def test_folders_tell_cells_apart():
    other = {**TABLES, "training": {**TABLES["training"], "rounds": 4}}
    cells = [
        StudyCell("a", tables=TABLES), StudyCell("a", tables=other), StudyCell("a", [1], TABLES),
        StudyCell("a", [1]), StudyCell("a", [2]),
    ]  # fmt: skip
    assert len({cell.folder for cell in cells}) == 5
    cores = {**TABLES, "run": {"seed": 1, "cores": 2}}
    assert StudyCell("a", tables=cores).folder == cells[0].folder
    assert StudyCell("s 100, money 1", [1]).folder.startswith("s-100-money-1-")


def test_increasing_numbers():
    assert grid.increasing("points", [0, 1], zero=True).tolist() == [0, 1]
    for values, rule in (([2, 1], "increasing"), ([0, 1], "positive"), ([1], "at least 2 numbers")):
        with pytest.raises(InvalidValue, match=f"^points must be {rule}"):
            grid.increasing("points", values, at_least=2)


def test_the_spread_of_one_value_is_nothing():
    once, twice = grid.average(np.ones((1, 2))), grid.average(np.array([[1.0, 2.0], [3.0, 2.0]]))
    assert once.sd.tolist() == [0, 0]
    assert (twice.mean.tolist(), twice.sd.tolist()) == ([2, 2], [pytest.approx(2**0.5), 0])


@pytest.mark.parametrize("entry", STUDIES.values(), ids=STUDIES)
def test_every_study_is_where_the_registry_says(entry):
    study = entry.load()
    assert issubclass(study.options, Section)
    assert study.example.startswith(f"bonafed reproduce {entry.name} ")
    assert study.cells(study.options()) or not hasattr(study.options, "out")


def test_the_registry_is_light():
    code = "import sys, bonafed.studies.registry; print({'torch', 'matplotlib'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"


def test_settings_that_are_not_the_papers_are_named():
    paper = {"seeds": 10, "seed": 0, "out": "elsewhere"}
    study = Study("", grid.Grid, lambda *_: Document(("a table",)), paper={"seeds": 10, "seed": 0})
    assert run(study, grid.Grid(seeds=10)).blocks == ("a table",)
    document = run(study, grid.Grid(seeds=1200))
    assert document.blocks == (
        "a table",
        "Not the paper's settings, so its numbers are not to be expected: seeds 1,200 (there 10).",
    )
    assert document.data == {"not_as_in_the_paper": ["seeds"]}
    assert grid.departures(grid.Grid(), paper) == {"seeds": ("1", "10"), "out": ("studies", "elsewhere")}


@pytest.mark.parametrize("entry", STUDIES.values(), ids=lambda entry: entry.name)
def test_what_the_paper_says_is_about_options_of_the_study(entry):
    study = entry.load()
    assert study.paper.keys() <= study.options.__dataclass_fields__.keys()
