"""The committed report: judged again from its own tables, complete, small, and told in the README."""

import re
from pathlib import Path

import pytest
from tests.legible import illegible

from bonafed.papers import register
from bonafed.papers.claim import judged
from bonafed.papers.report import VERDICTS, read_circumstances, read_report, verdict_counts

ROOT = Path(__file__).parents[2]
REPORT = ROOT / "docs" / "report" / "index.html"
CLAIMS = read_report(REPORT)


@pytest.mark.parametrize("item", CLAIMS, ids=lambda item: f"{item['identifier']}-{item['preset']}")
def test_verdicts_follow_from_the_tables(item):
    again = judged(register.find(item["identifier"]), item["rows"])
    assert (again.verdict, again.seeds_needed) == (item["verdict"], item["seeds_needed"])
    assert [check.to_json() for check in again.checks] == item["checks"]


def test_numbers_that_the_paper_prints_are_decided():
    for item in CLAIMS:
        for check in item["checks"]:
            assert check["paper"] is None or check["outcome"] != "undecided", item["identifier"]


def test_training_has_three_seeds_at_least():
    for item in CLAIMS:
        assert item["settings"].get("seeds", 3) >= 3, item["identifier"]


def test_claims_are_known_to_the_register():
    names = [(item["identifier"], item["preset"]) for item in CLAIMS]
    assert len(set(names)) == len(names)
    assert {name for name, _ in names} <= set(register.claims())


def test_what_is_contradicted_is_in_the_errata():
    errata = (ROOT / "docs" / "errata.md").read_text("utf-8")
    for item in CLAIMS:
        if item["verdict"] == "contradicted":
            key = register.find(item["identifier"]).erratum
            assert key, item["identifier"]
            assert key in errata, item["identifier"]


def test_it_says_how_it_was_made():
    about = read_circumstances(REPORT)
    assert about["command"].startswith("bonafed reproduce ")
    assert "--preset quick --report " in about["command"]
    assert re.fullmatch("[0-9a-f]{12}", about["commit"])  # made from what is committed


def test_it_is_small():
    assert sum(path.stat().st_size for path in REPORT.parent.rglob("*") if path.is_file()) < 6e6


def test_the_readme_counts_the_verdicts():
    text = (ROOT / "README.md").read_text("utf-8")
    found = verdict_counts(CLAIMS)
    for paper in register.PAPERS:
        counts = found.get(paper, {})
        link = re.escape(f"| [{paper}](docs/report/index.html#{paper}) |")
        row = re.search(rf"^{link}(.*)\|$", text, re.MULTILINE)
        assert row, paper
        cells = [int(cell) for cell in row[1].split("|")]
        registered = sum(claim.paper == paper for claim in register.claims().values())
        here = [counts.get(verdict, 0) for verdict in VERDICTS[:4]]
        assert cells == [*here, registered - sum(counts.values())], paper


def _drawn(item):
    """All are looked at by `make deep`; here those that could not be read once."""
    identifier = item["identifier"]
    marks = () if identifier == "rewards-table7" else pytest.mark.deep
    return pytest.param(item, id=f"{identifier}-{item['preset']}", marks=marks)


@pytest.mark.parametrize("item", [_drawn(item) for item in CLAIMS])
def test_the_words_of_its_figures_can_be_read(item):
    assert illegible(register.find(item["identifier"]).draw(item["rows"])) == []
