"""The report of claims: complete, judged again from its own tables, and small."""

from dataclasses import replace
from pathlib import Path

import pytest

from bonafed.errors import InvalidValue
from bonafed.papers import register, report
from bonafed.papers.claim import judged
from bonafed.papers.report import read_circumstances, read_report, report_files, verdict_counts
from bonafed.papers.reproducing import reproduce


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A claim at two sizes, and one that failed."""
    claim, cells = register.find("faithful-fig2"), tmp_path_factory.mktemp("cells")
    (smoke,) = reproduce([claim], "smoke", cells, cores=1)
    (full,) = reproduce([claim], "paper", cells, cores=1)
    other = replace(claim, identifier="mine-1", paper="mine", erratum="")
    broken = replace(
        smoke, claim=other, rows=[], judgement=None, failures={"a cell": "Traceback\nBad: luck"}
    )
    return [smoke, full, broken]


@pytest.fixture(scope="module")
def files(done, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    made = report_files(done, folder, "bonafed reproduce --all")
    for path, content in made.items():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    return folder


def test_verdicts_follow_from_the_tables_in_it(files):
    claims = read_report(files / "index.html")
    assert [(item["identifier"], item["preset"]) for item in claims] == [
        ("faithful-fig2", "smoke"), ("faithful-fig2", "paper"), ("mine-1", "smoke"),
    ]  # fmt: skip
    for item in claims[:2]:
        again = judged(register.find(item["identifier"]), item["rows"])
        assert again.verdict == item["verdict"] == "holds with a correction"
        assert [check.to_json() for check in again.checks] == item["checks"]


def test_it_says_how_it_was_made(files):
    about = read_circumstances(files / "index.html")
    assert about["command"] == "bonafed reproduce --all"
    assert {"bonafed", "commit", "python", "numpy", "scipy", "torch"} <= set(about)
    text = (files / "index.html").read_text("utf-8")
    assert text.index("bonafed reproduce --all") < text.index("Summary of verdicts")


def test_every_figure_is_a_file_too(files):
    names = {path.name for path in (files / "figures").iterdir()}
    assert names == {
        f"faithful-fig2-{size}.{kind}" for size in ("smoke", "paper") for kind in ("png", "svg")
    }
    assert (files / "figures" / "faithful-fig2-paper.png").read_bytes().startswith(b"\x89PNG")


def test_sizes_and_failures_are_marked(files):
    text = (files / "index.html").read_text("utf-8")
    assert 'id="faithful-fig2-paper"' in text
    assert "Preset paper, at the paper&#x27;s own sizes" in text
    assert "a cell: Bad: luck" in text
    assert "1 cell failed." in text


def test_counts_are_of_claims_not_of_runs(files):
    counts = verdict_counts(read_report(files / "index.html"))
    assert counts == {"faithful": {"holds with a correction": 1}, "mine": {"not computed": 1}}


def test_what_is_open_is_said(done, tmp_path, monkeypatch):
    unanswered = register.PaperItem(
        "faithful", "table 9", "It shows <much>.", open="The data are not public."
    )
    monkeypatch.setattr(register, "paper_items", lambda: [unanswered])
    (path, *_) = (made := report_files(done[:1], tmp_path, "x"))
    text = made[path].decode()
    assert "Open: 1 entry" in text
    assert "It shows &lt;much&gt;." in text
    assert "The data are not public." in text


def test_an_erratum_is_linked_from_inside_the_checkout_only(done, tmp_path):
    root = Path(report.__file__).parents[3]
    page = (root / "docs" / "errata.md").read_text("utf-8")
    inside = report_files(done[:1], root / "docs" / "report", "x")
    text = inside[root / "docs" / "report" / "index.html"].decode()
    assert 'href="../errata.md' in text
    assert "F-D9" in page
    assert "errata.md" not in report_files(done[:1], tmp_path, "x")[tmp_path / "index.html"].decode()


def test_a_file_that_is_no_report_is_refused(tmp_path):
    (tmp_path / "index.html").write_text("<p>hello</p>")
    with pytest.raises(InvalidValue, match="must hold data called claims"):
        read_report(tmp_path / "index.html")


def test_sixty_claims_fit(files):
    """The committed report must stay below 6 MB."""
    size = sum(path.stat().st_size for path in files.rglob("*") if path.is_file())
    assert size / 2 < 100_000  # of two runs
