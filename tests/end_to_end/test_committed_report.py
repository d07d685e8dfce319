"""The committed report: judged again from its own tables, complete, small, and told in the README."""

import re
from pathlib import Path

import pytest

from bonafed.studies import register
from bonafed.studies.claim import judged
from bonafed.studies.report import VERDICTS, read_circumstances, read_report, verdict_counts

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


def test_every_claim_is_in_it():
    assert {item["identifier"] for item in CLAIMS} == set(register.claims())


def test_what_is_contradicted_is_explained():
    """By an erratum, or in the text of the claim."""
    for item in CLAIMS:
        if item["verdict"] == "contradicted":
            claim = register.find(item["identifier"])
            assert claim.erratum or claim.about, item["identifier"]


def test_it_says_how_it_was_made():
    about = read_circumstances(REPORT)
    assert about["command"].startswith("bonafed reproduce --all --preset quick --report ")
    assert re.fullmatch("[0-9a-f]{12}", about["commit"])  # made from what is committed


def test_it_is_small():
    assert sum(path.stat().st_size for path in REPORT.parent.rglob("*") if path.is_file()) < 6e6


def test_the_readme_counts_the_verdicts():
    text = (ROOT / "README.md").read_text("utf-8")
    for paper, counts in verdict_counts(CLAIMS).items():
        link = re.escape(f"| [{paper}](docs/report/index.html#{paper}) |")
        row = re.search(rf"^{link}(.*)\|$", text, re.MULTILINE)
        assert row, paper
        cells = [int(cell) for cell in row[1].split("|")]
        assert cells == [*(counts.get(verdict, 0) for verdict in VERDICTS[:4]), sum(counts.values())], paper
