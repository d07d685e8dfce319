"""The mechanism of the page on adding one, on a real federation: it has no line about Flower."""

from __future__ import annotations

from pathlib import Path

from tests.flower.clinics import TABLES, begin, outcome, receipts, require_balance, said
from tests.flower.harness import Trial
from tests.oracles.packages import ADDED

OFFER = {"price": 1.0, "budget": 9.0, "prior": "uniform:0.5,1.5"}


def test_a_price_lottery(clinics: Trial, tmp_path: Path) -> None:
    assert "flower" not in (ADDED / "slice.py").read_text(encoding="utf-8").lower()
    said(begin(clinics, tmp_path, "posted", {**TABLES, "price_lottery": OFFER}))  # by the clinics' package
    summary = outcome(tmp_path, "posted")
    statement = summary["statement"]
    turns = statement["columns"]["participations"]
    assert statement["amounts"] == [100 * count for count in turns]
    assert sum(turns) == 9  # three of those whose cost is below the price, in three rounds
    assert statement["amounts"][statement["clients"].index("cyd")] == 0  # its cost is above
    assert receipts(summary)["holds"]
    require_balance(clinics, summary)
