"""The mechanism of the page on adding one, on a real federation: it has no line about Flower."""

from __future__ import annotations

from pathlib import Path

from tests.flower.clinics import TABLES, begin, outcome, receipts, require_balance, said
from tests.flower.harness import Trial
from tests.oracles.packages import MODULES

OFFER = {"seats": 2, "total_budget": 6.0, "prior": "uniform:0.5,1.5"}


def test_an_auction(clinics: Trial, tmp_path: Path) -> None:
    assert "flower" not in (MODULES / "mechanism.py").read_text(encoding="utf-8").lower()
    said(begin(clinics, tmp_path, "auction", {**TABLES, "auction": OFFER}))  # by the installed package
    summary = outcome(tmp_path, "auction")
    statement = summary["statement"]
    turns = statement["columns"]["participations"]
    assert statement["amounts"] == [95 * count for count in turns]  # the third cost is the price
    assert dict(zip(statement["clients"], turns, strict=True)) == {"ada": 3, "ben": 0, "cyd": 0, "dan": 3}
    assert receipts(summary)["holds"]
    require_balance(clinics, summary)
