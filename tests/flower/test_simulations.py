"""Every mechanism on Flower's simulation engine (Ray), beside the same run on one machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bonafed.runs import toml
from bonafed.runs.config import from_tables
from bonafed.runs.prepare import prepare
from bonafed.runs.training import train
from tests.flower.clinics import (
    EXACT,
    LEDGERS,
    REPORTING,
    command,
    of_module,
    outcome,
    receipts,
    said,
    weights,
)

# The simulation does not know what a mechanism is: one that asks for reports, and one that hides records.
# Every mechanism is on a federation of processes in `test_mechanisms.py`, and here in `make deep-flower`.
SHORT = ("sampling", "private")


@pytest.mark.parametrize(
    "kind",
    [kind if kind in SHORT else pytest.param(kind, marks=pytest.mark.deep) for kind in (*EXACT, *LEDGERS)],
)
def test_a_simulation(tmp_path: Path, kind: str) -> None:
    tables = {**EXACT, **LEDGERS}[kind]
    (tmp_path / f"{kind}.toml").write_text(toml.dumps(tables), encoding="utf-8")
    said(command(tmp_path, "train", f"{kind}.toml", "--on", "simulation"))
    summary = outcome(tmp_path, kind)
    assert receipts(summary)["text"].startswith("4 of 4 participants")
    if kind in EXACT:
        alone = train(prepare(from_tables(tables)))  # simulated clients draw the same costs
        assert np.abs(weights(tmp_path, kind) - of_module(alone)).max() < 1e-5
        assert summary["statement"]["amounts"] == list(alone.statement.amounts)
    assert (kind in REPORTING) == any(summary["statement"]["amounts"]) or kind in (
        "faithful",
        "private-faithful",
    )
